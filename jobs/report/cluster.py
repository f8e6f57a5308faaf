"""The overview: a timeline, which groups cost most and why, and how much of the coordinators' logs was read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.delta.arrow_columns import epoch_ms_column, numbers_of, texts_of
from jobs.gold.measures import MEASURES as COUNTED
from jobs.gold.measures import Measure, counted
from jobs.queries.answers.audit_report import Hole
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from jobs.report.pictures import Column, Kind, Listing, Picture, columns_of, first_rows
from jobs.report.reader import LOGS, Limits, Reader
from jobs.report.sql_text import Scope, bin_of, column, literal, select, width_text
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE
from schemas.tables.silver import GROUP_GENERATIONS, SHARE_PARTITION_STATES

MEASURES: Final = (
    "rebalances",
    "unowned_ms",
    "rewinds",
    "redelivered",
    "extra_deliveries",
    "archived",
    "offset_changes",
)
"""Measures for comparing groups, in the order of the SQL."""

OVERVIEW_COLUMNS: Final = (
    Column("group_id", Kind.TEXT),
    Column("group_type", Kind.TEXT, "max(group_type)"),
    Column("rebalances", Kind.NUMBER, "coalesce(sum(rebalances), 0)"),
    Column("unowned_ms", Kind.DURATION, "coalesce(sum(unowned_ms), 0)"),
    Column("rewinds", Kind.NUMBER, "coalesce(sum(rewinds), 0)"),
    Column("redelivered", Kind.NUMBER, "coalesce(sum(redelivered), 0)"),
    Column("extra_deliveries", Kind.NUMBER, "coalesce(sum(extra_deliveries), 0)"),
    Column("archived", Kind.NUMBER, "coalesce(sum(archived), 0)"),
    Column("offset_changes", Kind.NUMBER, "coalesce(sum(offset_changes), 0)"),
    Column("holes", Kind.NUMBER, "coalesce(sum(holes), 0)"),
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
TIMELINE: Final = ("rebalances", "storm_rebalances", "rewinds", "extra_deliveries", "archived")
"""Measures in the timeline, in the order of the SQL."""
LANE_HEIGHT: Final = 64


@dataclass(slots=True)
class GroupLine:
    """One group in the overview, as `measures` counts. Durations in ms."""

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
    numbers = counted(reader.moments)
    for name in MEASURES:
        _count(lines, name, numbers[name])
    known = ("group_id", "group_type", "log_partition")
    for group_id, group_type, log_partition in _distinct(reader.intervals(GROUP_GENERATIONS, known), known):
        _line(lines, group_id, group_type).log_partitions.add((GROUPS_LOG, log_partition))
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
    bins: dict[int, list[int]] = defaultdict(lambda: [0] * len(TIMELINE))
    numbers = counted(reader.moments)
    for measure, name in enumerate(TIMELINE):
        at_ms, amounts = epoch_ms_column(numbers[name]["at"]), numbers_of(numbers[name]["amount"])
        places, which = np.unique(at_ms[at_ms >= 0] // width_ms * width_ms, return_inverse=True)
        sums = np.bincount(which, amounts[at_ms >= 0], len(places))
        for place, amount in zip(places.tolist(), sums.tolist(), strict=True):
            bins[place][measure] += int(amount)
    columns = (Column("bin", Kind.TIME), *(Column(name, Kind.NUMBER) for name in TIMELINE))
    rows = [(at, *counts) for at, counts in sorted(bins.items())]
    shown = [index for index, _ in enumerate(TIMELINE) if index != 1 and any(row[index + 1] for row in rows)]
    return Picture(
        "timeline",
        "drawTimeline",
        "What happened when",
        f"All groups together, in steps of {width_text(width_ms)}. Hatched: a part of some log was not read.",
        (Listing("What happened", columns, rows, len(rows), _timeline_sql(reader.scope, width_ms)),),
        {"width": width_ms, "holes": [hole_json(hole) for hole in holes]},
        height=max(len(shown), 1) * LANE_HEIGHT + 60,
    )


def _timeline_sql(scope: Scope, width_ms: int) -> str:
    def part(measure: Measure, name: str) -> str:
        columns = [f"{measure.amount_sql if it == name else 0} as {it}" for it in TIMELINE]
        timed = [*scope.within(measure.time), measure.condition_sql, f"{column(measure.time)} is not null"]
        what = f"select {bin_of(measure.time, width_ms)} as bin, {', '.join(columns)}"
        return f"{what}\n    from {measure.table.full_name} where {' and '.join(timed)}"

    parts = [part(COUNTED[name], name) for name in TIMELINE]
    union = "\n  union all ".join(parts)
    columns = ["bin", *(f"sum({name}) as {name}" for name in TIMELINE)]
    return select(columns, f"(\n  {union}\n)", (), ("bin",), group_by="bin")


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


def _count(lines: dict[str, GroupLine], measure: str, rows: pa.Table) -> None:
    names = ["group_id", "group_type", "cause"]
    sums = rows.group_by(names).aggregate([("amount", "sum")])
    of_groups = zip(*(texts_of(sums[name]) for name in names), sums["amount_sum"].to_pylist(), strict=True)
    for group_id, group_type, cause, amount in of_groups:
        line = _line(lines, group_id, group_type)
        setattr(line, measure, getattr(line, measure) + amount)
        line.causes[measure][cause or NO_CAUSE] += amount


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
        *(
            _part(it.table.full_name, [*scope.within(it.time), it.condition_sql], **{name: it.amount_sql})
            for name, it in ((name, COUNTED[name]) for name in MEASURES)
        ),
        _part("silver.group_generations", scope.overlapping()),
        _part("silver.share_partition_states", scope.rows(), group_type="null"),
        _holes_part(scope, "silver.group_generations", scope.overlapping(), GROUPS_LOG),
        _holes_part(scope, "silver.share_partition_states", scope.rows(), SHARES_LOG),
    ]
    union = "\n  union all ".join(parts)
    columns = [column.sql for column in OVERVIEW_COLUMNS]
    return select(columns, f"(\n  {union}\n)", (), OVERVIEW_ORDER, group_by="group_id")


def _part(source: str, conditions: Sequence[str], group_type: str = "group_type", **measures: str) -> str:
    columns = [f"{measures.get(name, '0')} as {name}" for name in (*MEASURES, "holes")]
    what = f"select group_id, {group_type} as group_type, {', '.join(columns)}"
    return f"{what}\n    from {source} where {' and '.join(conditions)}"


def _holes_part(scope: Scope, source: str, conditions: Sequence[str], topic: str) -> str:
    groups = f"select distinct group_id, log_partition from {source} where {' and '.join(conditions)}"
    coverage = (
        f"c.cluster_id = {literal(scope.cluster_id)} and c.topic = '{topic}' and c.partition = g.log_partition "
        "and c.kind in ('MISSING', 'CORRUPT')"
    )
    return _part(f"({groups}) as g join bronze.coverage as c on {coverage}", ["true"], "null", holes="1")
