"""The overview: a timeline, which groups cost most and why, and how much of the coordinators' logs was read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.delta.times import epoch_ms
from jobs.queries.answers.audit_report import Hole
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from jobs.queries.views.counted_events import COUNTED_EVENTS
from jobs.report.pictures import Column, Kind, Listing, Picture, columns_of, first_rows
from jobs.report.reader import LOGS, Limits, Reader
from jobs.report.sql_text import Scope, bin_of, column, literal, select, width_text
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE
from schemas.tables.silver import GROUP_GENERATIONS, SHARE_PARTITION_STATES

MEASURES: Final = {
    "rebalances": "rebalance_count",
    "unowned_ms": "unowned_likely_ms",
    "rewinds": "went_back_count",
    "redelivered": "records_redelivered",
    "extra_deliveries": "extra_deliveries",
    "archived": "records_given_up",
    "offset_changes": "offset_change_count",
}
"""Measures for comparing groups, in the order of the SQL; columns of counted_events."""

OVERVIEW_COLUMNS: Final = (
    Column("group_id", Kind.TEXT),
    # the newest: a group may have migrated
    Column("group_type", Kind.TEXT, "coalesce(max_by(group_type, typed_at), max(group_type))"),
    *(
        Column(name, Kind.DURATION if name == "unowned_ms" else Kind.NUMBER, f"coalesce(sum({name}), 0)")
        for name in (*MEASURES, "holes")
    ),
)
OVERVIEW_ORDER: Final = ("rebalances desc", "unowned_ms desc", "archived desc", "redelivered desc", "group_id")

COVERAGE_COLUMNS: Final = columns_of(
    COVERAGE, "topic partition from_offset to_offset kind reason first_timestamp last_timestamp"
)

TOP: Final = 15
"""Number of groups drawn for one measure."""
CAUSES_MAX: Final = 6
"""Number of causes with their own colour, for one measure; the others share one."""
OTHER_CAUSES: Final = "OTHER"
NO_CAUSE: Final = "NOT_KNOWN"
BAR_HEIGHT: Final = 26
TIMELINE_BINS_MAX: Final = 240
BIN_WIDTHS_MS: Final = tuple(
    seconds * 1000 for seconds in (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_419_200)
)
TIMELINE: Final = {
    "rebalances": "rebalance_count",
    "storm_rebalances": "storm_rebalance_count",
    "rewinds": "went_back_count",
    "extra_deliveries": "extra_deliveries",
    "archived": "records_given_up",
}
"""Measures in the timeline, in the order of the SQL; columns of counted_events."""
LANE_HEIGHT: Final = 64


@dataclass(slots=True)
class GroupLine:
    """One group in the overview, with the sums of `MEASURES`. Durations in ms."""

    group_id: str
    group_type: str | None = None
    rebalances: int = 0
    unowned_ms: int = 0
    rewinds: int = 0
    redelivered: int = 0
    extra_deliveries: int = 0
    archived: int = 0
    offset_changes: int = 0
    holes: int = 0
    """Holes in the log partitions that have records of it."""
    log_partitions: set[tuple[str, int]] = field(default_factory=set)
    """Coordinator topics and partitions that have records of it."""
    causes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """For each measure: amounts by cause."""

    @property
    def is_share(self) -> bool:
        """Is it a share group?"""
        return self.group_type == GroupType.SHARE


def group_lines(reader: Reader, coverage: pa.Table) -> list[GroupLine]:
    """All groups, those with most rebalances first."""
    lines: dict[str, GroupLine] = defaultdict(lambda: GroupLine(""))
    sums = [f"sum({counted}) as {name}" for name, counted in MEASURES.items()]
    kinds = ("group_id", "group_type", "cause")
    counts = select([*kinds, *sums], COUNTED_EVENTS.name, reader.scope.within("at"), kinds, group_by="all")
    for row in reader.ledger.rows_of(counts):
        _count(lines, row)
    known = ("group_id", "group_type", "log_partition")
    generations = reader.intervals(GROUP_GENERATIONS, (*known, "from_log_offset"))
    newest = generations.group_by(list(known)).aggregate([("from_log_offset", "max")]).sort_by("from_log_offset_max")
    for group_id, group_type, log_partition in zip(*(newest[name].to_pylist() for name in known), strict=True):
        line = _line(lines, group_id, group_type)
        line.group_type = group_type  # the newest: a group may have migrated
        line.log_partitions.add((GROUPS_LOG, log_partition))
    logs = ("group_id", "log_partition")
    for group_id, log_partition in _distinct(reader.rows(SHARE_PARTITION_STATES, logs), logs):
        _line(lines, group_id, None).log_partitions.add((SHARES_LOG, log_partition))
    holes = _hole_counts(coverage)
    for line in lines.values():
        line.holes = sum(holes.get(place, 0) for place in line.log_partitions)
    return sorted(
        lines.values(), key=lambda it: (-it.rebalances, -it.unowned_ms, -it.archived, -it.redelivered, it.group_id)
    )


def overview(lines: Sequence[GroupLine], scope: Scope, limits: Limits, lags: Mapping[str, int]) -> Picture:
    """Groups by measure, each divided by cause. `lags`: newest known lag of groups."""
    rows = [tuple(getattr(line, column.name) for column in OVERVIEW_COLUMNS) for line in lines]
    measures = {name: _most(lines, name, lags) for name in (*MEASURES, "holes")}
    most = max(len(measure["groups"]) for measure in measures.values())
    return Picture(
        "groups",
        "drawGroups",
        "Groups by cost, and why",
        "The groups that stand out, by one measure at a time, in the colours of its causes. The table has them all.",
        (Listing("Groups", OVERVIEW_COLUMNS, rows[: limits.overview_count], len(rows), _overview_sql(scope)),),
        {"measures": measures},
        height=max(most, 3) * BAR_HEIGHT + 110,
    )


def _most(lines: Sequence[GroupLine], measure: str, lags: Mapping[str, int]) -> dict[str, Any]:
    """The number of groups with a measure, and those with most of it, for the table and by cause."""
    having = [line for line in lines if getattr(line, measure)]
    having.sort(key=lambda line: (-getattr(line, measure), line.group_id))
    top = having[:TOP]
    totals: Counter[str] = sum((line.causes[measure] for line in top), Counter())
    named = [cause for cause, _ in sorted(totals.items(), key=lambda it: (-it[1], it[0]))[:CAUSES_MAX]]

    def amounts(line: GroupLine) -> list[int]:
        known = [line.causes[measure][cause] for cause in named]
        return [*known, getattr(line, measure) - sum(known)]

    parts = [amounts(line) for line in top]
    return {
        "count": len(having),
        "causes": [*named, OTHER_CAUSES if named else NO_CAUSE],
        "groups": [
            {column.name: getattr(line, column.name) for column in OVERVIEW_COLUMNS}
            | {"parts": part, "lag": lags.get(line.group_id)}
            for line, part in zip(top, parts, strict=True)
        ],
    }


def timeline(reader: Reader, window: tuple[int, int], holes: Sequence[Hole]) -> Picture:
    """Events of the cluster over time."""
    width_ms = next(
        (width for width in BIN_WIDTHS_MS if (window[1] - window[0]) / width <= TIMELINE_BINS_MAX),
        BIN_WIDTHS_MS[-1],
    )
    sql = _timeline_sql(reader.scope, width_ms)
    columns = (Column("bin", Kind.TIME), *(Column(name, Kind.NUMBER) for name in TIMELINE))
    rows = [(epoch_ms(row["bin"]), *(row[name] for name in TIMELINE)) for row in reader.ledger.rows_of(sql)]
    shown = [index for index, _ in enumerate(TIMELINE) if index != 1 and any(row[index + 1] for row in rows)]
    return Picture(
        "timeline",
        "drawTimeline",
        "What happened when",
        f"All groups together, in steps of {width_text(width_ms)}. Hatched: a part of some log was not read.",
        (Listing("What happened", columns, rows, len(rows), sql),),
        {"width": width_ms, "holes": [hole_json(hole) for hole in holes]},
        height=max(len(shown), 1) * LANE_HEIGHT + 60,
    )


def _timeline_sql(scope: Scope, width_ms: int) -> str:
    columns = [f"{bin_of('at', width_ms)} as bin", *(f"sum({counted}) as {name}" for name, counted in TIMELINE.items())]
    counts = f"{' + '.join(TIMELINE.values())} > 0"
    timed = [*scope.within("at"), f"{column('at')} is not null", counts]
    return select(columns, COUNTED_EVENTS.name, timed, ("bin",), group_by="bin")


def coverage_picture(coverage: pa.Table, holes: Sequence[Hole], scope: Scope, limits: Limits) -> Picture:
    """What was read of the coordinators' logs, and what was not."""
    order = ("topic", "partition", "from_offset")
    conditions = [
        f"cluster_id = {literal(scope.cluster_id)}",
        f"topic in ({', '.join(map(literal, LOGS))})",
        "kind in ('CAPTURED', 'MISSING', 'CORRUPT')",
    ]
    sql = select([column.sql for column in COVERAGE_COLUMNS], "bronze.coverage", conditions, order)
    rows = first_rows(coverage, COVERAGE_COLUMNS, order, limits.row_count)
    return Picture(
        "coverage",
        "drawCoverage",
        "What was read of the coordinators' logs",
        "A line for each log partition: from its first record to its last one. Hatched: records that were not read. "
        "Nothing in this report can speak of what was in there.",
        (Listing("Coverage", COVERAGE_COLUMNS, rows, coverage.num_rows, sql),),
        {"read": (read := _read(coverage)), "holes": [hole_json(hole) for hole in holes]},
        height=min(max(len({it["log"] for it in read} | {it.log_partition for it in holes}) * 13, 90), 620) + 60,
    )


def hole_json(hole: Hole) -> dict[str, Any]:
    """A hole in the page's form."""
    return {"log": hole.log_partition, "after": hole.after_ms, "before": hole.before_ms, "text": hole.text()}


def _read(coverage: pa.Table) -> list[dict[str, Any]]:
    """Log partitions: the time span and number of offsets read."""
    captured = coverage.filter(pc.equal(coverage["kind"], "CAPTURED"))
    offsets = pc.add(pc.subtract(captured["to_offset"], captured["from_offset"]), 1)
    sums = (
        captured.append_column("offsets", offsets)
        .group_by(["topic", "partition"])
        .aggregate([("first_timestamp", "min"), ("last_timestamp", "max"), ("offsets", "sum")])
        .sort_by([("topic", "ascending"), ("partition", "ascending")])
    )
    columns = Column("topic", Kind.TEXT), Column("partition", Kind.NUMBER)
    times = Column("first_timestamp_min", Kind.TIME), Column("last_timestamp_max", Kind.TIME)
    rows = first_rows(
        sums, (*columns, *times, Column("offsets_sum", Kind.NUMBER)), ("topic", "partition"), sums.num_rows
    )
    return [
        {"log": f"{topic}-{partition}", "from": first_ms, "to": last_ms, "offsets": count}
        for topic, partition, first_ms, last_ms, count in rows
    ]


def _line(lines: dict[str, GroupLine], group_id: str, group_type: str | None) -> GroupLine:
    line = lines[group_id]
    line.group_id = group_id
    if group_type is not None and (line.group_type is None or group_type > line.group_type):
        line.group_type = group_type
    return line


def _count(lines: dict[str, GroupLine], counts: Mapping[str, Any]) -> None:
    line = _line(lines, counts["group_id"], counts["group_type"])
    for name in MEASURES:
        if counts[name]:
            setattr(line, name, getattr(line, name) + counts[name])
            line.causes[name][counts["cause"] or NO_CAUSE] += counts[name]


def _distinct(rows: pa.Table, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    found = rows.group_by(list(names)).aggregate([])
    return zip(*(found[name].to_pylist() for name in names), strict=True)


def _hole_counts(coverage: pa.Table) -> dict[tuple[str, int], int]:
    holes = coverage.filter(pc.not_equal(coverage["kind"], "CAPTURED"))
    counts = holes.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    places = zip(counts["topic"].to_pylist(), counts["partition"].to_pylist(), strict=True)
    return dict(zip(places, counts["count_all"].to_pylist(), strict=True))


def _overview_sql(scope: Scope) -> str:
    """The SQL for everything that `group_lines` counts."""
    parts = [
        _part(COUNTED_EVENTS.name, scope.within("at"), **MEASURES),
        _part("silver.group_generations", scope.overlapping(), typed_at="from_log_offset"),
        _part("silver.share_partition_states", scope.rows(), group_type="null"),
        _holes_part(scope, "silver.group_generations", scope.overlapping(), GROUPS_LOG),
        _holes_part(scope, "silver.share_partition_states", scope.rows(), SHARES_LOG),
    ]
    union = "\n  union all ".join(parts)
    columns = [column.sql for column in OVERVIEW_COLUMNS]
    return select(columns, f"(\n  {union}\n)", (), OVERVIEW_ORDER, group_by="group_id")


def _part(
    source: str, conditions: Sequence[str], group_type: str = "group_type", typed_at: str = "null", **measures: str
) -> str:
    columns = [f"{measures.get(name, '0')} as {name}" for name in (*MEASURES, "holes")]
    what = f"select group_id, {group_type} as group_type, {typed_at} as typed_at, {', '.join(columns)}"
    return f"{what}\n    from {source} where {' and '.join(conditions)}"


def _holes_part(scope: Scope, source: str, conditions: Sequence[str], topic: str) -> str:
    groups = f"select distinct group_id, log_partition from {source} where {' and '.join(conditions)}"
    coverage = (
        f"c.cluster_id = {literal(scope.cluster_id)} and c.topic = '{topic}' and c.partition = g.log_partition "
        "and c.kind in ('MISSING', 'CORRUPT')"
    )
    return _part(f"({groups}) as g join bronze.coverage as c on {coverage}", ["true"], "null", holes="1")
