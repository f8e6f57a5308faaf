"""Pictures of groups: owners over time, causes of rebalances, commits, members."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.facts.columns import distinct, numbered_pairs
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of, ordered_codes
from jobs.delta.duckdb import connect
from jobs.queries.answers.audit_report import Hole
from jobs.queries.views.counted_events import IS_BACK
from jobs.report.cluster import BIN_WIDTHS_MS, GroupLine, hole_json
from jobs.report.condense import OPEN, STEP_MS, Condensed, Flow, Marks, Ownership, flow, marks
from jobs.report.pictures import Column, Kind, Listed, Listing, Picture, cells, columns_of, in_order
from jobs.report.reader import Limits, Reader, by_group, shared_out
from jobs.report.sql_text import Scope, bin_of, select, width_text
from schemas.tables.gold import COMMIT_ANOMALIES, LAG_HISTORY, PARTITION_OWNERS, REBALANCES
from schemas.tables.silver import GROUP_MEMBERS

BINS_MAX: Final = 1_000
LANE_HEIGHT: Final = 24
ROW_HEIGHT: Final = 19
AXIS_HEIGHT: Final = 62
"""Height of the time axis below a chart, and of the gaps between its parts."""
LEGEND_MAX: Final = 16
COLOURS: Final = 8
MEMBERS_DRAWN_MAX: Final = 30
WHO_MAX: Final = 3
"""Maximum number of members named in a rebalance's line."""

OWNERS: Final = Listed(
    "Owners",
    PARTITION_OWNERS,
    columns_of(
        PARTITION_OWNERS,
        "topic partition member_id instance_id client_id client_host from_generation to_generation valid_from "
        "valid_to gap_before_ms is_double is_former_log_partition",
    ),
    ("valid_from", "topic", "partition", "from_log_offset", "member_id"),
)
EVERY_REBALANCE: Final = Listed(
    "Every rebalance",
    REBALANCES,
    (
        *columns_of(REBALANCES, "started_at to_generation cause confidence method duration_ms"),
        Column("joined_count", Kind.NUMBER, "coalesce(len(members_joined), 0)"),
        Column("left_count", Kind.NUMBER, "coalesce(len(members_left), 0)"),
        Column("who_joined", Kind.TEXT, f"array_to_string(members_joined[:{WHO_MAX}], ', ')"),
        Column("who_left", Kind.TEXT, f"array_to_string(members_left[:{WHO_MAX}], ', ')"),
        *columns_of(REBALANCES, "member_count partitions_moved partitions_total"),
        Column("stickiness", Kind.SHARE),
        *columns_of(REBALANCES, "unowned_likely_ms in_storm is_former_log_partition"),
    ),
    ("started_at", "incarnation", "to_generation"),
)
MEMBERS: Final = Listed(
    "Members",
    GROUP_MEMBERS,
    columns_of(
        GROUP_MEMBERS,
        "member_id instance_id client_id client_host rack_id valid_from valid_to from_generation to_generation "
        "ended_by",
    ),
    ("valid_from", "from_log_offset", "member_id"),
)
ODD_COMMITS: Final = Listed(
    "Odd commits",
    COMMIT_ANOMALIES,
    columns_of(
        COMMIT_ANOMALIES,
        "at kind topic partition from_offset to_offset delta owner_member_id owner_client_host likely_cause "
        "method confidence is_former_log_partition",
    ),
    ("at", "log_offset", "topic", "partition"),
)

REBALANCE_TEXTS: Final = ("cause", "confidence", "method")
ANOMALY_TEXTS: Final = ("kind", "confidence", "method", "likely_cause", "topic")


@dataclass(slots=True)
class Bins:
    """Commits of one group in time bins, which widen as needed: number, offsets advanced, commits of a lower offset
    than before, also to a recreated topic."""

    width_ms: int = BIN_WIDTHS_MS[0]
    counts: dict[int, list[int]] = field(default_factory=dict)

    def add(self, at_ms: I64, change: Sequence[str | None], codes: I64, delta: I64) -> None:
        bins, places = np.unique(at_ms // self.width_ms * self.width_ms, return_inverse=True)
        is_of = {text: codes == index for index, text in enumerate(change)}
        nothing = np.zeros(len(codes), np.bool_)
        ahead = np.bincount(places, np.where(is_of.get("ADVANCE", nothing), delta, 0), len(bins))
        rewinds = np.bincount(places, is_of.get("REWIND", nothing), len(bins))
        commits = np.bincount(places, minlength=len(bins))
        for at, *more in zip(bins.tolist(), commits.tolist(), ahead.tolist(), rewinds.tolist(), strict=True):
            self._count(at, [int(number) for number in more])
        while len(self.counts) > BINS_MAX and self.width_ms < BIN_WIDTHS_MS[-1]:
            self._widen(next(width_ms for width_ms in BIN_WIDTHS_MS if width_ms > self.width_ms))

    def rows(self) -> list[tuple[int, ...]]:
        """In time order."""
        return [(at, *counts) for at, counts in sorted(self.counts.items())]

    def _count(self, at: int, more: Sequence[int]) -> None:
        known = self.counts.get(at, (0, 0, 0))
        self.counts[at] = [old + new for old, new in zip(known, more, strict=True)]

    def _widen(self, width_ms: int) -> None:
        narrow, self.counts, self.width_ms = self.counts, {}, width_ms
        for at, counts in narrow.items():
            self._count(at // width_ms * width_ms, counts)


@dataclass(frozen=True, slots=True)
class Names:
    """Names for the codes in `Ownership`."""

    partitions: list[str]
    member_ids: list[str]
    """In the order of their first ownership, so that their colours follow the time."""
    clients: list[tuple[str, str, str]]
    """Client id, host and instance id of each member; empty for none."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts of one group in full detail."""

    line: GroupLine
    owners: Listing
    names: Names
    ownership: Condensed[Ownership]
    rebalances: Listing
    rebalance_marks: Condensed[Marks]
    commits: Listing
    anomalies: Listing
    anomaly_marks: Condensed[Marks]
    lags: Listing
    width_ms: int
    """Bin width of commits and lag."""
    members: Listing
    flow: Condensed[Flow]
    times: tuple[I64, ...]
    """Times of everything drawn (epoch ms); OPEN where there is no end."""


def read_groups(reader: Reader, lines: Sequence[GroupLine], limits: Limits) -> list[GroupFacts]:
    """The facts of groups; each table is read once for all of them."""
    group_ids = [line.group_id for line in lines]
    if not group_ids:
        return []
    reader = reader.of_groups(group_ids)
    bins = _commits(reader, group_ids)
    owners = by_group(reader.intervals(PARTITION_OWNERS, OWNERS.names("log_partition")), group_ids)
    rebalances = by_group(_rebalances(reader), group_ids)
    rows = reader.moments(COMMIT_ANOMALIES, ODD_COMMITS.names(), "at")
    went_back = connect().register("rows", rows).sql(f"select coalesce({IS_BACK}, false)::tinyint as it from rows")
    anomalies = by_group(rows.append_column("went_back", went_back.to_arrow_table()["it"]), group_ids)
    lags = by_group(reader.moments(LAG_HISTORY, ("group_id", "at", "lag", "lag_min", "lag_max"), "at"), group_ids)
    members = by_group(reader.intervals(GROUP_MEMBERS, MEMBERS.names("log_partition")), group_ids)
    found = []
    for line in lines:
        group_id, scope = line.group_id, reader.scope.of_group(line.group_id)
        names, ownership = owned(reader.as_owned(owners[group_id]))
        membership = member_flow(owned_rows := reader.as_owned(members[group_id]))
        of_group = (
            in_order(rebalances[group_id], EVERY_REBALANCE.order),
            in_order(anomalies[group_id], ODD_COMMITS.order),
        )
        found.append(
            GroupFacts(
                line,
                OWNERS.listing(owners.pop(group_id), scope, limits.row_count),
                names,
                Condensed(ownership),
                EVERY_REBALANCE.listing(of_group[0], scope, limits.rebalance_count),
                Condensed(marks(of_group[0], "started_at", REBALANCE_TEXTS)),
                _commit_listing(bins[group_id], scope),
                ODD_COMMITS.listing(of_group[1], scope, limits.row_count),
                Condensed(marks(of_group[1], "at", ANOMALY_TEXTS, ("partition", "went_back"))),
                _lag_listing(lags[group_id], bins[group_id].width_ms, scope),
                bins[group_id].width_ms,
                MEMBERS.listing(members[group_id], scope, limits.row_count),
                membership,
                (
                    ownership.starts,
                    ownership.ends,
                    epoch_ms_column(of_group[0]["started_at"]),
                    epoch_ms_column(of_group[1]["at"]),
                    epoch_ms_column(owned_rows["valid_from"]),
                    epoch_ms_column(owned_rows["valid_to"]),
                    np.array(
                        [at + more for at in bins[group_id].counts for more in (0, bins[group_id].width_ms)], np.int64
                    ),
                ),
            )
        )
    return found


def group_pictures(groups: Sequence[GroupFacts], holes: Sequence[Hole], limits: Limits) -> dict[str, list[Picture]]:
    interval_counts = shared_out(limits.interval_count, [group.ownership.whole_count for group in groups])
    rebalance_counts = shared_out(limits.rebalance_count, [group.rebalances.row_count for group in groups])
    mark_counts = [
        shared_out(limits.mark_count, [condensed.whole_count for condensed in found])
        for found in (
            [group.rebalance_marks for group in groups],
            [group.anomaly_marks for group in groups],
            [group.flow for group in groups],
        )
    ]
    pictures = {}
    for index, group in enumerate(groups):
        rebalance_marks_max, anomaly_marks_max, flow_max = (counts[index] for counts in mark_counts)
        own, own_holes = f"g{index}", holes_of_group(group.line, holes)
        rebalances = group.rebalances.cut(rebalance_counts[index])
        found = (
            _owners_picture(own, group, rebalances, own_holes, limits, interval_counts[index], rebalance_marks_max),
            _commits_picture(own, group, own_holes, limits, anomaly_marks_max),
            members_picture(own, group.members, group.flow, own_holes, limits, flow_max),
        )
        pictures[group.line.group_id] = [picture for picture in found if picture.has_rows]
    return pictures


def span_of(times: Sequence[I64], window: tuple[int, int]) -> tuple[int, int]:
    """The time span that all pictures of a group share: from its first to its last event, with a margin.

    Intervals without an end extend to the end of the report. If more than the span itself would follow the last event,
    only a quarter of the span is added, so that no picture is half empty.
    """
    known = np.concatenate([*times, np.zeros(0, np.int64)])
    is_open = bool((known == OPEN).any())
    known = known[known >= 0]
    if not len(known):
        return window
    first, last = max(int(known.min()), window[0]), min(int(known.max()), window[1])
    room = max((last - first) // 50, 500)
    end = last + room
    if is_open:
        end = window[1] + room if window[1] - last <= last - first else last + max((last - first) // 4, room)
    return first - room, max(end, first + room)


def holes_of_group(line: GroupLine, holes: Sequence[Hole]) -> list[dict[str, Any]]:
    """Holes in the log partitions that have records of the group, in the page's form."""
    logs = {f"{topic}-{partition}" for topic, partition in line.log_partitions}
    return [hole_json(hole) for hole in holes if hole.log_partition in logs]


def _owners_picture(
    own: str,
    group: GroupFacts,
    rebalances: Listing,
    holes: list[dict[str, Any]],
    limits: Limits,
    intervals_max: int,
    marks_max: int,
) -> Picture:
    """Partitions and their owners, below the rebalances that moved them."""
    intervals, moments = group.ownership.at_most(intervals_max), group.rebalance_marks.at_most(marks_max)
    remarks = []
    if group.ownership.step:
        remarks.append(
            f"There are {group.ownership.whole_count:,} intervals of ownership: neighbours shorter than "
            f"{width_text(group.ownership.step * STEP_MS)} are drawn as one. {SHORTER}"
        )
    if group.rebalance_marks.step:
        remarks.append(together_text("rebalances of one cause", group.rebalance_marks))
    return Picture(
        f"{own}-owners",
        "drawOwners",
        "Rebalances, and who owned what",
        "Above: each rebalance, by its cause. Below: each partition, and which member owned it. Drag over a span of "
        "time to see it closer; many partitions or moves are counted together until then.",
        (rebalances, group.owners.cut(limits.row_count)),
        {
            "partitions": group.names.partitions,
            "memberIds": group.names.member_ids,
            "clients": group.names.clients,
            **intervals.json(),
            "marks": moments.json(),
            "holes": holes,
        },
        tuple(remarks),
        _lanes_of(group.rebalance_marks, "cause") * LANE_HEIGHT
        + min(max(len(group.names.partitions) * ROW_HEIGHT, 110), 560)
        + AXIS_HEIGHT
        + 8,
        tuple(_legend(group.names)),
        len(group.names.member_ids),
    )


def _legend(names: Names) -> Iterator[tuple[int, str, str]]:
    """Members with their colours, in the order of their first ownership."""
    for number, (member_id, (client_id, host, instance_id)) in enumerate(
        zip(names.member_ids[:LEGEND_MAX], names.clients, strict=False)
    ):
        yield number % COLOURS, client_id or instance_id or member_id, f"{member_id} {host}".rstrip()


def _lanes_of(condensed: Condensed[Marks], name: str) -> int:
    """Number of lanes in which events are drawn."""
    return len(set(condensed.at_most(sys.maxsize).kind_columns[name]))


SHORTER: Final = "A report of a shorter span of time (--from, --to) draws each."


def together_text(what: str, condensed: Condensed[Any]) -> str:
    """A sentence: events were merged."""
    within = width_text(condensed.step * STEP_MS)
    return f"There are {condensed.whole_count:,} {what}: those within {within} are drawn as one. {SHORTER}"


def _partition_name(topic: str, partition: int) -> str:
    """A partition, a task or (-1) a connector, which has no number."""
    return topic if partition < 0 else f"{topic}-{partition}"


def owned(owners: pa.Table) -> tuple[Names, Ownership]:
    """Rows of gold.partition_owners as intervals, sorted by partition and time."""
    topics, topic_names = ordered_codes(owners["topic"])
    members, member_ids = codes_of(owners["member_id"])
    places, rows = distinct(numbered_pairs(topics, numbers_of(owners["partition"])))
    samples = np.zeros(len(places), np.int64)
    samples[rows] = np.arange(len(rows))
    partitions = zip(topics[samples].tolist(), numbers_of(owners["partition"])[samples].tolist(), strict=True)
    starts, ends = epoch_ms_column(owners["valid_from"]), epoch_ms_column(owners["valid_to"])
    first_starts = np.full(len(member_ids), np.iinfo(np.int64).max)
    np.minimum.at(first_starts, members, starts)
    # the dictionary has the strings of all groups: keep those that own something in this one
    by_time = np.argsort(first_starts, kind="stable")[: int((first_starts < np.iinfo(np.int64).max).sum())]
    renumbered = np.empty(len(member_ids), np.int64)
    renumbered[by_time] = np.arange(len(by_time))
    of_member = np.zeros(len(member_ids), np.int64)
    of_member[members] = np.arange(len(members))
    clients = owners.take(pa.array(of_member[by_time])) if len(members) else owners
    texts = ([text or "" for text in cells(clients[name])] for name in ("client_id", "client_host", "instance_id"))
    names = Names(
        [_partition_name(topic_names[topic] if topic >= 0 else "", partition) for topic, partition in partitions],
        [member_ids[index] for index in by_time.tolist()],
        list(zip(*texts, strict=True)),
    )
    order = np.lexsort([starts, rows])
    ones = np.ones(len(rows), np.int64)
    return names, Ownership(rows[order], renumbered[members[order]], starts[order], ends[order], ones)


def _rebalances(reader: Reader) -> pa.Table:
    """Rebalances, with the columns that SQL derives from lists."""
    lists = {"joined": "members_joined", "left": "members_left"}
    rows = reader.moments(REBALANCES, EVERY_REBALANCE.names(*lists.values()), "started_at")
    for name, column in lists.items():
        counts = pc.fill_null(pc.list_value_length(rows[column]), 0)
        words = [None if who is None else ", ".join(who[:WHO_MAX]) for who in rows[column].to_pylist()]
        rows = rows.append_column(f"{name}_count", counts)
        rows = rows.append_column(f"who_{name}", pa.chunked_array([pa.array(words, pa.string())]))
    return rows.drop_columns(list(lists.values()))


def _commits(reader: Reader, group_ids: Sequence[str]) -> dict[str, Bins]:
    """Commits in time bins, for all groups in one pass."""
    found = {group_id: Bins() for group_id in group_ids}
    from_ms, to_ms = reader.scope.from_ms, reader.scope.to_ms
    for batch in reader.silver.applied_commits(("group_id", "applied_at", "change", "delta")):
        rows = pa.Table.from_batches([batch])
        groups, names = codes_of(rows["group_id"])
        changes, change = codes_of(rows["change"])
        at_ms, delta = epoch_ms_column(rows["applied_at"]), numbers_of(rows["delta"])
        is_within = np.ones(len(at_ms), np.bool_)
        if from_ms is not None:
            is_within &= at_ms >= from_ms
        if to_ms is not None:
            is_within &= at_ms < to_ms
        for code in np.unique(groups).tolist():
            chosen = np.flatnonzero((groups == code) & is_within)
            if len(chosen):
                found[names[code]].add(at_ms[chosen], change, changes[chosen], delta[chosen])
    return found


def _commit_listing(bins: Bins, scope: Scope) -> Listing:
    columns = (
        Column("bin", Kind.TIME, bin_of("applied_at", bins.width_ms)),
        Column("commits", Kind.NUMBER, "count(*)"),
        Column("moved_ahead", Kind.NUMBER, "coalesce(sum(case when change = 'ADVANCE' then delta end), 0)"),
        Column("commits_back", Kind.NUMBER, "count_if(change = 'REWIND')"),
    )
    conditions = [*scope.within("applied_at"), "outcome = 'APPLIED'"]
    rows = bins.rows()
    return Listing(
        f"Commits, {width_text(bins.width_ms)} a row",
        columns,
        rows,
        len(rows),
        select([it.sql for it in columns], "silver.offset_commits", conditions, ("bin",), group_by="bin"),
    )


def _lag_listing(lags: pa.Table, width_ms: int, scope: Scope) -> Listing:
    names = ("lag", "lag_min", "lag_max")
    columns = (
        Column("bin", Kind.TIME, bin_of("at", width_ms)),
        *(Column(name, Kind.NUMBER, f"max({name})") for name in names),
    )
    bins = epoch_ms_column(lags["at"]) // width_ms * width_ms
    table = pa.table({"bin": bins, **{name: lags[name] for name in names}})
    worst = table.group_by("bin").aggregate([(name, "max") for name in names]).sort_by("bin")
    rows = list(zip(worst["bin"].to_pylist(), *(worst[f"{name}_max"].to_pylist() for name in names), strict=True))
    return Listing(
        f"Lag of the partition furthest behind, {width_text(width_ms)} a row",
        columns,
        rows,
        len(rows),
        select([it.sql for it in columns], LAG_HISTORY.full_name, scope.within("at"), ("bin",), group_by="bin"),
    )


def _commits_picture(
    own: str, group: GroupFacts, holes: list[dict[str, Any]], limits: Limits, marks_max: int
) -> Picture:
    """Commits over time, their anomalies, and the lag."""
    moments = group.anomaly_marks.at_most(marks_max)
    lanes = _lanes_of(group.anomaly_marks, "kind")
    remarks = []
    if group.anomaly_marks.step:
        remarks.append(together_text("commit anomalies", group.anomaly_marks))
    if not group.lags.row_count:
        remarks.append(
            "Lag is not known: no end of these topics was sampled near these commits. A continuous capture samples "
            "them."
        )
    return Picture(
        f"{own}-commits",
        "drawCommits" if group.commits.row_count > 1 or group.anomalies.row_count or group.lags.row_count else "",
        "Commits and lag",
        f"In steps of {width_text(group.width_ms)}: how many offsets the commits moved ahead, what was odd, and the "
        "lag of the partition that was furthest behind.",
        (group.commits, group.anomalies.cut(limits.row_count), group.lags),
        {"width": group.width_ms, "marks": moments.json(), "holes": holes},
        tuple(remarks),
        150 + (lanes * LANE_HEIGHT + 22 if lanes else 0) + (130 if group.lags.row_count else 0) + AXIS_HEIGHT,
    )


def member_flow(members: pa.Table) -> Condensed[Flow]:
    """Numbers of joins and departures over time."""
    return Condensed(flow(epoch_ms_column(members["valid_from"]), epoch_ms_column(members["valid_to"])))


def members_picture(
    own: str, members: Listing, came_and_went: Condensed[Flow], holes: list[dict[str, Any]], limits: Limits, most: int
) -> Picture:
    """The members of the group, and their number over time."""
    return Picture(
        f"{own}-members",
        "drawMembers",
        "Members in and out",
        "How many members the group had, and how many came and went.",
        (members.cut(limits.row_count),),
        {"flow": came_and_went.at_most(most).json(), "holes": holes},
        height=154 + max(min(members.row_count, MEMBERS_DRAWN_MAX) * 17, 20) + AXIS_HEIGHT,
    )
