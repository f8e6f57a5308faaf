"""Groups: who owned what and when, why it moved, what was committed, who came and went."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.log.chunk import I64
from jobs.arrow_columns import codes_of, epoch_ms_column, numbers_of
from jobs.audit_report import Hole
from jobs.report.cluster import GroupLine, hole_json
from jobs.report.pictures import Column, Kind, Listing, Picture, cells, deltas, listing
from jobs.report.reader import Limits, Reader
from jobs.report.sql_text import Scope, select
from schemas.tables.gold import COMMIT_ANOMALIES, LAG_HISTORY, PARTITION_OWNERS, REBALANCES
from schemas.tables.silver import GROUP_MEMBERS

OPEN: Final = -1
"""In place of an end."""
SEVERAL: Final = -2
"""In place of a member."""
QUANTUM_MS: Final = 1_000
"""Stretches are put together in steps of this first, then of twice, four times ... as much."""
BINS_MAX: Final = 1_000
BIN_WIDTHS_MS: Final = tuple(
    seconds * 1000 for seconds in (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_592_000)
)
WHO_MAX: Final = 3
"""Members named in a rebalance's line."""

OWNER_COLUMNS: Final = (
    Column("topic", Kind.TEXT),
    Column("partition", Kind.NUMBER),
    Column("member_id", Kind.TEXT),
    Column("instance_id", Kind.TEXT),
    Column("client_id", Kind.TEXT),
    Column("client_host", Kind.TEXT),
    Column("from_generation", Kind.NUMBER),
    Column("to_generation", Kind.NUMBER),
    Column("valid_from", Kind.TIME),
    Column("valid_to", Kind.TIME),
    Column("gap_before_ms", Kind.DURATION),
    Column("is_double", Kind.FLAG),
)
OWNER_ORDER: Final = ("valid_from", "topic", "partition", "from_log_offset", "member_id")

REBALANCE_COLUMNS: Final = (
    Column("started_at", Kind.TIME),
    Column("to_generation", Kind.NUMBER),
    Column("cause", Kind.TEXT),
    Column("confidence", Kind.TEXT),
    Column("method", Kind.TEXT),
    Column("duration_ms", Kind.DURATION),
    Column("joined_count", Kind.NUMBER, "coalesce(array_size(members_joined), 0)"),
    Column("left_count", Kind.NUMBER, "coalesce(array_size(members_left), 0)"),
    Column("who_joined", Kind.TEXT, f"array_join(slice(members_joined, 1, {WHO_MAX}), ', ')"),
    Column("who_left", Kind.TEXT, f"array_join(slice(members_left, 1, {WHO_MAX}), ', ')"),
    Column("member_count", Kind.NUMBER),
    Column("partitions_moved", Kind.NUMBER),
    Column("partitions_total", Kind.NUMBER),
    Column("stickiness", Kind.SHARE),
    Column("unowned_partition_ms", Kind.DURATION),
    Column("in_storm", Kind.FLAG),
)
REBALANCE_ORDER: Final = ("started_at", "incarnation", "to_generation")

MEMBER_COLUMNS: Final = (
    Column("member_id", Kind.TEXT),
    Column("instance_id", Kind.TEXT),
    Column("client_id", Kind.TEXT),
    Column("client_host", Kind.TEXT),
    Column("rack_id", Kind.TEXT),
    Column("valid_from", Kind.TIME),
    Column("valid_to", Kind.TIME),
    Column("from_generation", Kind.NUMBER),
    Column("to_generation", Kind.NUMBER),
    Column("ended_by", Kind.TEXT),
)
MEMBER_ORDER: Final = ("valid_from", "from_log_offset", "member_id")

ANOMALY_COLUMNS: Final = (
    Column("at", Kind.TIME),
    Column("kind", Kind.TEXT),
    Column("topic", Kind.TEXT),
    Column("partition", Kind.NUMBER),
    Column("from_offset", Kind.NUMBER),
    Column("to_offset", Kind.NUMBER),
    Column("delta", Kind.NUMBER),
    Column("owner_member_id", Kind.TEXT),
    Column("owner_client_host", Kind.TEXT),
    Column("likely_cause", Kind.TEXT),
    Column("method", Kind.TEXT),
    Column("confidence", Kind.TEXT),
)
ANOMALY_ORDER: Final = ("at", "log_offset", "topic", "partition")


@dataclass(slots=True)
class Bins:
    """Commits of one group by bins of time: counts, offsets moved ahead, rewinds."""

    width_ms: int
    counts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))

    def add(self, at_ms: I64, change: Sequence[str | None], codes: I64, delta: I64) -> None:
        """Commits of one group."""
        bins, places = np.unique(at_ms // self.width_ms * self.width_ms, return_inverse=True)
        is_of = {text: codes == index for index, text in enumerate(change)}
        nothing = np.zeros(len(codes), np.bool_)
        ahead = np.bincount(places, np.where(is_of.get("ADVANCE", nothing), delta, 0), len(bins))
        rewinds = np.bincount(places, is_of.get("REWIND", nothing), len(bins))
        commits = np.bincount(places, minlength=len(bins))
        for at, *more in zip(bins.tolist(), commits.tolist(), ahead.tolist(), rewinds.tolist(), strict=True):
            self.counts[at] = [int(old + new) for old, new in zip(self.counts[at], more, strict=True)]

    def rows(self) -> list[tuple[int, ...]]:
        """In the order of time."""
        return [(at, *counts) for at, counts in sorted(self.counts.items())]


def group_pictures(
    reader: Reader, lines: Sequence[GroupLine], holes: Sequence[Hole], window: tuple[int, int], limits: Limits
) -> dict[str, list[Picture]]:
    """Pictures of groups, by group id. `window`: the stretch of time of the report, epoch ms."""
    if not lines:
        return {}
    reader = reader.of_groups([line.group_id for line in lines])
    names = [name for table in (OWNER_COLUMNS,) for name, *_ in table]
    owners = reader.stretches(PARTITION_OWNERS, [*names, "group_id", "from_log_offset"])
    rebalances = _with_words(
        reader.moments(
            REBALANCES,
            [
                *(column.name for column in REBALANCE_COLUMNS if column.expression is None),
                "group_id",
                "incarnation",
                "members_joined",
                "members_left",
            ],
            "started_at",
        )
    )
    names = [column.name for column in MEMBER_COLUMNS]
    members = reader.stretches(GROUP_MEMBERS, [*names, "group_id", "from_log_offset"])
    names = [column.name for column in ANOMALY_COLUMNS]
    anomalies = reader.moments(COMMIT_ANOMALIES, [*names, "group_id", "log_offset"], "at")
    names = ["group_id", "at", "lag", "lag_min", "lag_max"]
    lags = reader.moments(LAG_HISTORY, names, "at")
    widths = {}
    for line in lines:
        first, last = _ends(_of(members, line.group_id), "valid_from", "valid_to", window)
        widths[line.group_id] = _bin_width(max(first, window[0]), min(last, window[1]))
    commits = _commits(reader, widths)
    pictures: dict[str, list[Picture]] = {}
    for index, line in enumerate(lines):
        own, scope = f"g{index}", reader.scope.of_group(line.group_id)
        own_holes = [
            hole_json(hole) for hole in holes if hole.log_partition in {f"{t}-{p}" for t, p in line.log_partitions}
        ]
        own_rebalances, own_members = _of(rebalances, line.group_id), _of(members, line.group_id)
        table = _rebalance_listing(own_rebalances, scope, limits.rebalance_count // len(lines))
        found = [_owners_picture(own, _of(owners, line.group_id), table, scope, limits, len(lines))]
        found.append(
            _commits_picture(
                own,
                commits[line.group_id],
                _of(anomalies, line.group_id),
                _of(lags, line.group_id),
                scope,
                limits,
            )
        )
        found.append(members_picture(own, own_members, scope, limits))
        for picture in found:
            picture.data["holes"].extend(own_holes)
        pictures[line.group_id] = [picture for picture in found if any(it.row_count for it in picture.listings)]
    return pictures


def _owners_picture(
    own: str, owners: pa.Table, rebalances: Listing, scope: Scope, limits: Limits, group_count: int
) -> Picture:
    """Partitions and who owned them, under the rebalances that moved them."""
    table = listing(
        "Owners", PARTITION_OWNERS, OWNER_COLUMNS, owners, scope.overlapping(), OWNER_ORDER, limits.row_count
    )
    data, quantum_ms = ownership(owners, limits.stretch_count // group_count)
    remarks = []
    if quantum_ms:
        remarks.append(
            f"There are {owners.num_rows:,} stretches of ownership: those below {quantum_ms / 1000:g} s are drawn "
            "together. A report of a shorter stretch of time (--from, --to) draws each."
        )
    return Picture(
        f"{own}-owners",
        "drawOwners",
        "Rebalances, and who owned what",
        "Above: each rebalance, by its cause. Below: each partition, and which member owned it. Drag over a stretch "
        "to see it closer; many partitions or moves are counted together until then.",
        (rebalances, table),
        {**data, "holes": []},
        tuple(remarks),
    )


def ownership(owners: pa.Table, stretch_count_max: int) -> tuple[dict[str, Any], int]:
    """Stretches of ownership as the page draws them, and the time in ms below which they are put together (0: none).

    Parallel lists, by partition and then by time: `rows` (partition), `members`, `starts` (epoch ms, as `deltas`),
    `lengths` (ms; OPEN), `counts` (stretches put together).
    """
    topics, topic_names = codes_of(owners["topic"])
    members, member_ids = codes_of(owners["member_id"])
    partitions = numbers_of(owners["partition"])
    starts, ends = epoch_ms_column(owners["valid_from"]), epoch_ms_column(owners["valid_to"])
    names = np.array([*topic_names, ""], object)[topics]
    places = sorted(set(zip(names.tolist(), partitions.tolist(), strict=True)))
    row_of = {place: index for index, place in enumerate(places)}
    rows = np.array([row_of[place] for place in zip(names.tolist(), partitions.tolist(), strict=True)], np.int64)
    order = np.lexsort([starts, rows])
    rows, members, starts, ends = rows[order], members[order], starts[order], ends[order]
    # members by first appearance: their colours then follow the time, too
    first_seen = np.full(len(member_ids), np.iinfo(np.int64).max)
    np.minimum.at(first_seen, members, starts)
    by_time = np.argsort(first_seen, kind="stable")
    renumbered = np.empty(len(member_ids), np.int64)
    renumbered[by_time] = np.arange(len(member_ids))
    members = renumbered[members] if len(members) else members
    quantum_ms, counts = 0, np.ones(len(rows), np.int64)
    whole = rows, members, starts, ends
    while len(rows) > stretch_count_max:
        quantum_ms = quantum_ms * 2 or QUANTUM_MS
        rows, members, starts, ends, counts = _put_together(*whole, quantum_ms)
    lengths = np.where(ends == OPEN, OPEN, ends - starts)
    first = {
        member: (client_id or "", client_host or "", instance_id or "")
        for member, client_id, client_host, instance_id in zip(
            *(cells(owners[name]) for name in ("member_id", "client_id", "client_host", "instance_id")), strict=True
        )
    }
    return {
        "partitions": [f"{topic}-{partition}" for topic, partition in places],
        "memberIds": [member_ids[index] for index in by_time.tolist()],
        "clients": [first[member_ids[index]] for index in by_time.tolist()],
        "rows": deltas(rows.tolist()),
        "members": members.tolist(),
        "starts": deltas(starts.tolist()),
        "lengths": lengths.tolist(),
        "counts": [] if not quantum_ms else counts.tolist(),
    }, quantum_ms


def _put_together(rows: I64, members: I64, starts: I64, ends: I64, quantum_ms: int) -> tuple[I64, I64, I64, I64, I64]:
    """Neighbours of one partition that are shorter than the quantum and begin in the same one become one stretch."""
    is_short = (ends != OPEN) & (ends - starts < quantum_ms)
    slot = starts // quantum_ms
    joins = np.zeros(len(rows), np.bool_)
    joins[1:] = is_short[1:] & is_short[:-1] & (rows[1:] == rows[:-1]) & (slot[1:] == slot[:-1])
    heads = np.flatnonzero(~joins)
    counts = np.diff([*heads, len(rows)])
    lasts = heads + counts - 1
    owners = np.where(counts > 1, SEVERAL, members[heads])
    return rows[heads], owners, starts[heads], ends[lasts], counts


def _rebalance_listing(rebalances: pa.Table, scope: Scope, rows_max: int) -> Listing:
    return listing(
        "Every rebalance",
        REBALANCES,
        REBALANCE_COLUMNS,
        rebalances,
        scope.within("started_at"),
        REBALANCE_ORDER,
        rows_max,
    )


def _with_words(rebalances: pa.Table) -> pa.Table:
    """With the columns that SQL makes of lists."""
    for name, column in (("joined", "members_joined"), ("left", "members_left")):
        counts = pc.fill_null(pc.list_value_length(rebalances[column]), 0)
        words = [None if who is None else ", ".join(who[:WHO_MAX]) for who in rebalances[column].to_pylist()]
        rebalances = rebalances.append_column(f"{name}_count", counts)
        rebalances = rebalances.append_column(f"who_{name}", pa.chunked_array([pa.array(words, pa.string())]))
    return rebalances


def _commits(reader: Reader, widths: Mapping[str, int]) -> dict[str, Bins]:
    """Commits by bins of time, all groups in one pass."""
    found = {group_id: Bins(width_ms) for group_id, width_ms in widths.items()}
    from_ms, to_ms = reader.scope.from_ms, reader.scope.to_ms
    for batch in reader.applied_commits(("group_id", "applied_at", "change", "delta")):
        rows = pa.Table.from_batches([batch])
        groups, group_ids = codes_of(rows["group_id"])
        changes, change = codes_of(rows["change"])
        at_ms, delta = epoch_ms_column(rows["applied_at"]), numbers_of(rows["delta"])
        is_within = np.ones(len(at_ms), np.bool_)
        if from_ms is not None:
            is_within &= at_ms >= from_ms
        if to_ms is not None:
            is_within &= at_ms < to_ms
        for code, group_id in enumerate(group_ids):
            chosen = np.flatnonzero((groups == code) & is_within)
            if group_id in found and len(chosen):
                found[group_id].add(at_ms[chosen], change, changes[chosen], delta[chosen])
    return found


def _commits_picture(
    own: str, bins: Bins, anomalies: pa.Table, lags: pa.Table, scope: Scope, limits: Limits
) -> Picture:
    """Commits by time, what is odd about them, and how far behind the end of their topics they were."""
    bin_of = "timestamp_millis(unix_millis({}) div {} * {})".format("{}", bins.width_ms, bins.width_ms)
    columns = (
        Column("bin", Kind.TIME, bin_of.format("applied_at")),
        Column("commits", Kind.NUMBER, "count(*)"),
        Column("moved_ahead", Kind.NUMBER, "coalesce(sum(case when change = 'ADVANCE' then delta end), 0)"),
        Column("rewinds", Kind.NUMBER, "count_if(change = 'REWIND')"),
    )
    conditions = [*scope.within("applied_at"), "outcome = 'APPLIED'"]
    rows = bins.rows()
    sql = select([it.sql for it in columns], "silver.offset_commits", conditions, ("bin",))
    commits = Listing(
        f"Commits, {_width_text(bins.width_ms)} a row",
        columns,
        rows[: limits.row_count],
        len(rows),
        sql.replace("\norder by", "\ngroup by bin\norder by"),
    )
    odd = listing(
        "Odd commits", COMMIT_ANOMALIES, ANOMALY_COLUMNS, anomalies, scope.within("at"), ANOMALY_ORDER, limits.row_count
    )
    lag = _lag_listing(lags, bins.width_ms, bin_of, scope, limits)
    remarks = (
        ()
        if lag.row_count
        else (
            "Lag is not known: no end of these topics was sampled near these commits. A continuous capture "
            "samples them.",
        )
    )
    return Picture(
        f"{own}-commits",
        "drawCommits",
        "Commits and lag",
        f"In steps of {_width_text(bins.width_ms)}: how many offsets the commits moved ahead, what was odd, and the "
        "lag of the partition that was furthest behind.",
        (commits, odd, lag),
        {"width": bins.width_ms, "holes": []},
        remarks,
    )


def _lag_listing(lags: pa.Table, width_ms: int, bin_of: str, scope: Scope, limits: Limits) -> Listing:
    columns = (
        Column("bin", Kind.TIME, bin_of.format("at")),
        Column("lag", Kind.NUMBER, "max(lag)"),
        Column("lag_min", Kind.NUMBER, "max(lag_min)"),
        Column("lag_max", Kind.NUMBER, "max(lag_max)"),
    )
    bins = epoch_ms_column(lags["at"]) // width_ms * width_ms
    names = ("lag", "lag_min", "lag_max")
    table = pa.table({"bin": bins, **{name: lags[name] for name in names}})
    worst = table.group_by("bin").aggregate([(name, "max") for name in names]).sort_by("bin")
    rows = list(zip(worst["bin"].to_pylist(), *(worst[f"{name}_max"].to_pylist() for name in names), strict=True))
    sql = select([it.sql for it in columns], LAG_HISTORY.full_name, scope.within("at"), ("bin",))
    return Listing(
        f"Lag of the partition furthest behind, {_width_text(width_ms)} a row",
        columns,
        rows[: limits.row_count],
        len(rows),
        sql.replace("\norder by", "\ngroup by bin\norder by"),
    )


def members_picture(own: str, members: pa.Table, scope: Scope, limits: Limits) -> Picture:
    """Who was in the group, and when."""
    starts, ends = epoch_ms_column(members["valid_from"]), epoch_ms_column(members["valid_to"])
    order = np.argsort(starts, kind="stable")[: limits.rebalance_count]
    table = listing(
        "Members", GROUP_MEMBERS, MEMBER_COLUMNS, members, scope.overlapping(), MEMBER_ORDER, limits.row_count
    )
    return Picture(
        f"{own}-members",
        "drawMembers",
        "Members in and out",
        "How many members the group had, and how many came and went.",
        (table,),
        {
            "starts": deltas(starts[order].tolist()),
            "lengths": np.where(ends == OPEN, OPEN, ends - starts)[order].tolist(),
            "holes": [],
        },
    )


def _of(rows: pa.Table, group_id: str) -> pa.Table:
    return rows.filter(pc.equal(rows["group_id"], pa.scalar(group_id)))


def _ends(rows: pa.Table, first: str, last: str, window: tuple[int, int]) -> tuple[int, int]:
    """From the first start to the last end; the window where there is none, or one is open."""
    starts, ends = epoch_ms_column(rows[first]), epoch_ms_column(rows[last])
    if not len(starts):
        return window
    return int(starts.min()), window[1] if (ends == OPEN).any() else int(ends.max())


def _bin_width(from_ms: int, to_ms: int) -> int:
    return next((width for width in BIN_WIDTHS_MS if (to_ms - from_ms) / width <= BINS_MAX), BIN_WIDTHS_MS[-1])


def _width_text(width_ms: int) -> str:
    units: Iterator[tuple[int, str]] = iter(((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")))
    size, unit = next(it for it in units if width_ms % it[0] == 0)
    return f"{width_ms // size} {unit}"
