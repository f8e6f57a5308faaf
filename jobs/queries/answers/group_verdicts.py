"""Which groups need attention: the state of each group at the end of the log, recent events, and a verdict with rules
and time.

STALLED: commits repeat an offset that has not moved since, and no sampled end offset shows that there was nothing to
read. WARN: storms, partitions without an owner for long, archived records, offsets that went back, that a tool reset or
deleted (those of share groups, too), or a group that could not be judged. OK: none of these. By default, counts are of
the last day before the newest record that was read. Sums are computed by Arrow, without loops over rows of gold.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.confidence import GUESS
from coordinator_core.history.rows import FORGOTTEN
from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from coordinator_core.inference.commits.deletions import EXPIRED, GROUP_DELETED, TOPIC_DELETED
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.text import counted
from jobs.bronze.log_ends import COORDINATOR_TOPICS, log_ends
from jobs.delta.arrow_columns import epoch_ms_column, numbers_of
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms, to_datetime
from jobs.gold.measures import counted as counted_rows
from jobs.queries.answers.findings import NOT_JUDGED_RULES
from jobs.queries.answers.shared_instances import shared_instances
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.group_model import TopicPartition
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, LAG_HISTORY, LOG_ANOMALIES
from schemas.tables.silver import GROUP_GENERATIONS

OK: Final = "OK"
WARN: Final = "WARN"
STALLED: Final = "STALLED"
SEVERITIES: Final = (STALLED, WARN, OK)
"""Worst first."""
IN_STORM: Final = "IN_STORM"
WITHOUT_OWNER: Final = "WITHOUT_OWNER"
GIVEN_UP: Final = "RECORDS_GIVEN_UP"
RESET: Final = "OFFSETS_RESET"
DELETED: Final = "OFFSETS_DELETED"
DELETED_WITH_GROUP: Final = "GROUP_DELETED"
MOVED: Final = "SHARE_OFFSETS_CHANGED"
WENT_BACK: Final = "OFFSETS_WENT_BACK"
REPEATED: Final = "REPEATED_COMMITS"
FAILED: Final = "NOT_JUDGED"
SHARED_INSTANCE: Final = "INSTANCE_ID_SHARED"
RULES: Final[Mapping[str, tuple[str, str]]] = {
    REPEATED: ("partition stays", "partitions stay"),
    FAILED: ("failure to judge it: see gold.log_anomalies", "failures to judge it: see gold.log_anomalies"),
    SHARED_INSTANCE: ("instance id of several processes", "instance ids of several processes"),
    IN_STORM: ("in a storm", "in storms"),
    WITHOUT_OWNER: (
        "rebalance left partitions without an owner for a minute or longer",
        "rebalances left partitions without an owner for a minute or longer",
    ),
    GIVEN_UP: ("given up", "given up"),
    RESET: ("partition", "partitions"),
    MOVED: ("time", "times"),
    DELETED: ("offset deleted, not by age", "offsets deleted, not by age"),
    FORGOTTEN: ("offset forgotten by the broker", "offsets forgotten by the broker"),
    WENT_BACK: ("rewind", "rewinds"),
    DELETED_WITH_GROUP: ("offset deleted with its group", "offsets deleted with their group"),
}
"""Rules for the verdict, worst first, and the words after a count of one and of more."""
RULE_OF_MEASURE: Final = {
    "storm_rebalances": IN_STORM,
    "without_owner": WITHOUT_OWNER,
    "archived": GIVEN_UP,
    "offset_changes": MOVED,
}
"""Measures that are the reason of a verdict by themselves."""
MOVES_AHEAD_MAX: Final = 3
"""More commits than these to one partition that only move ahead are nobody's reset."""
DELETED_ELSEWHERE: Final = (TOPIC_DELETED, GROUP_DELETED, EXPIRED)
"""Why offsets go without anybody having deleted them."""
GENERATION_COLUMNS: Final = (
    "group_id",
    "group_type",
    "state",
    "member_count",
    "valid_from",
    "to_log_offset",
    "log_partition",
)
GONE: Final = "Dead"
"""Kafka's name for the state of a group that was deleted."""
NOT_THERE: Final = {"group_type": "", "state": GONE, "member_count": 0, "valid_from": None}
ANOMALY_COLUMNS: Final = ("group_id", "topic", "partition", "log_offset", "kind", "to_offset", "at")


class GroupVerdict(NamedTuple):
    """A group at the end of the log, and its last day."""

    group_id: str
    group_type: str
    state: str
    member_count: int | None
    last_change_ms: int | None
    rebalance_count: int
    storm_count: int
    unowned_ms: int
    given_up_count: int
    redelivered_count: int
    """Records, each counted once."""
    extra_delivery_count: int
    rewind_count: int
    """Commits that went back, whoever made them."""
    verdict: str
    why: str
    since_ms: int | None = None
    """When the reasons of the verdict began, within the time considered."""
    rules: Mapping[str, int] = {}
    """The rules behind the verdict, worst first, and their counts."""
    lag: int | None = None
    """The newest known lag of all partitions; None where no end offset was sampled."""


class Seen(NamedTuple):
    """The events of one group since a time: counts, and first occurrences (epoch ms)."""

    counts: Counter[str]
    firsts: dict[str, int]


def group_verdicts(
    tables: ClusterTables, *, from_ms: int | None = None, match: str | None = None, with_gone: bool = False
) -> list[GroupVerdict]:
    """The groups that still exist in the log, those that need attention first.

    Counts are from `from_ms` on, by default a day before the newest record that was read. `match`: a part of the group
    id, ignoring case. `with_gone`: also groups that had events since and are gone, in state `GONE`, for sums.
    """
    run = WholeRun.newest(tables)
    newest = run.read(GROUP_GENERATIONS, GENERATION_COLUMNS)
    newest = newest.filter(newest["to_log_offset"].is_null())
    since_ms = from_ms if from_ms is not None else newest_record_ms(tables) - DAY_MS
    gold = WholeAudit.newest(tables)
    seen = _seen_since(gold, since_ms)
    _add_stalls(seen, tables, gold)
    lags = _newest_lags(gold)
    _add_failures(seen, gold)
    for shared in shared_instances(run, since_ms):
        seen[shared.group_id].counts[SHARED_INSTANCE] += 1
        seen[shared.group_id].firsts[SHARED_INSTANCE] = max(shared.since_ms, since_ms)
    # a group may have an open row in a former log partition, too: it is obsolete
    left = SilverAt(tables).left_behind()
    groups = {row["group_id"]: row for row in left.present(newest.to_pylist())}
    if with_gone:
        groups |= {group_id: {**NOT_THERE, "group_id": group_id} for group_id in seen.keys() - groups.keys()}
    found = [
        _verdict(row, seen[group_id], lags.get(group_id))
        for group_id, row in groups.items()
        if match is None or match.casefold() in group_id.casefold()
    ]
    return sorted(
        found, key=lambda it: (SEVERITIES.index(it.verdict), -it.storm_count, -it.given_up_count, it.group_id)
    )


def newest_record_ms(tables: ClusterTables) -> int:
    """The latest time up to which any log partition of the coordinators was read (epoch ms); 0 for none."""
    ends = log_ends(tables, COORDINATOR_TOPICS).values()
    return max((end.newest_ms for end in ends if end.newest_ms is not None), default=0)


def _verdict(row: Mapping[str, Any], seen: Seen, lag: int | None) -> GroupVerdict:
    counts = seen.counts
    rules = {rule: counts[rule] for rule in RULES if counts[rule]}
    if row["state"] != GONE:
        rules.pop(DELETED_WITH_GROUP, None)  # an earlier group of that name
    verdict = STALLED if REPEATED in rules else WARN if rules else OK
    return GroupVerdict(
        row["group_id"],
        row["group_type"],
        row["state"],
        row["member_count"],
        None if row["valid_from"] is None else epoch_ms(row["valid_from"]),
        counts["rebalances"],
        counts[IN_STORM],
        counts["unowned_ms"],
        counts[GIVEN_UP],
        counts["redelivered"],
        counts["extra_deliveries"],
        counts["rewinds"],
        verdict,
        ", ".join(_why(rule, counts) for rule in rules),
        min((seen.firsts[rule] for rule in rules if rule in seen.firsts), default=None),
        rules,
        lag,
    )


def _why(rule: str, counts: Mapping[str, int]) -> str:
    text = counted(counts[rule], *RULES[rule])
    if rule == MOVED:
        ways = ("never_delivered", "never delivered"), ("delivered_again", "delivered again")
        lost = [f"{counted(counts[name], 'record')} {words}" for name, words in ways if counts[name]]
        return f"offsets reset or deleted by a tool: {', '.join([text, *lost])} (who did it is in no log)"
    if rule != RESET:
        return text
    moved = [f"{counted(counts[way], 'record')} {way}" for way in ("back", "ahead") if counts[way]]
    return f"reset by a tool: {', '.join([text, *moved])}, group was empty (who did it is in no log)"


def _seen_since(gold: WholeAudit, since_ms: int) -> defaultdict[str, Seen]:
    """The events of each group since a time."""
    seen: defaultdict[str, Seen] = defaultdict(lambda: Seen(Counter(), {}))

    def rows_since(table: Table, names: Sequence[str], time: str = "at") -> pa.Table:
        rows = gold.read(table, [*names, time])
        return rows.filter(pc.greater_equal(rows[time], pa.scalar(to_datetime(since_ms), rows[time].type)))

    for name, rows in counted_rows(rows_since).items():
        _add(seen, RULE_OF_MEASURE.get(name, name), rows, rows["amount"])
    names = ("group_id", "topic", "partition", "kind", "from_offset", "to_offset", "likely_cause", "confidence")
    commits = rows_since(COMMIT_ANOMALIES, names)
    is_deleted = pc.equal(commits["kind"], "DELETED")
    is_explained = pc.is_in(commits["likely_cause"], pa.array(DELETED_ELSEWHERE))
    _add(seen, DELETED, commits.filter(pc.and_not(is_deleted, is_explained)))
    _add(seen, DELETED_WITH_GROUP, commits.filter(pc.equal(commits["likely_cause"], GROUP_DELETED)))
    _add(seen, FORGOTTEN, commits.filter(pc.equal(commits["kind"], FORGOTTEN)))
    is_tool = pc.and_not(pc.equal(commits["kind"], "EMPTY_GROUP_RESET"), pc.equal(commits["confidence"], GUESS))
    _add_resets(seen, commits.filter(is_tool).to_pylist())
    for of_group in seen.values():
        # a reset that a rule names is no rewind as well
        of_group.counts[WENT_BACK] = of_group.counts["rewinds"] - of_group.counts["reset back"]
        of_group.firsts[WENT_BACK] = of_group.firsts.get("rewinds", sys.maxsize)
    return seen


def _add_resets(seen: Mapping[str, Seen], resets: Sequence[Mapping[str, Any]]) -> None:
    """Add partitions whose offsets were moved while the group was empty, and the records in between.

    A partition that only moved ahead, and often, is one of a consumer without membership.
    """
    by_place: defaultdict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in resets:
        if row["from_offset"] != row["to_offset"] and row["likely_cause"] != TOPIC_RECREATED:
            by_place[row["group_id"], row["topic"], row["partition"]].append(row)
    for (group_id, _, _), rows in by_place.items():
        ends = [(row["from_offset"], row["to_offset"]) for row in rows]
        moves = [0 if None in end else end[1] - end[0] for end in ends]
        back = [move for move in moves if move < 0]
        if len(rows) > MOVES_AHEAD_MAX and not back:
            continue
        counts, firsts = seen[group_id]
        counts.update({RESET: 1, "reset back": len(back), "back": -sum(back), "ahead": max(sum(moves) - sum(back), 0)})
        firsts[RESET] = min(firsts.get(RESET, sys.maxsize), *(epoch_ms(row["at"]) for row in rows))


def _add_failures(seen: Mapping[str, Seen], gold: WholeAudit) -> None:
    """Groups that gold lacks because their replay or audit failed: they cannot be called OK."""
    rows = gold.read(LOG_ANOMALIES, ["rule", "group_id"])
    failed = rows.filter(pc.is_in(rows["rule"], value_set=pa.array(NOT_JUDGED_RULES)))
    for group_id in failed["group_id"].to_pylist():
        seen[group_id].counts[FAILED] += 1


def _add(seen: Mapping[str, Seen], name: str, rows: pa.Table, amounts: pa.ChunkedArray | None = None) -> None:
    """Add each group's amount (default: number of rows), and the time of its first row."""
    if amounts is None:
        amounts = pa.chunked_array([pa.repeat(1, rows.num_rows)])
    table = pa.table({"group_id": rows["group_id"], "at": rows["at"], "amount": amounts})
    sums = table.group_by("group_id", use_threads=False).aggregate([("amount", "sum"), ("at", "min")])
    columns = sums["group_id"].to_pylist(), numbers_of(sums["amount_sum"]).tolist(), epoch_ms_column(sums["at_min"])
    for group_id, amount, first_ms in zip(*columns, strict=True):
        of_group = seen[group_id]
        of_group.counts[name] += max(amount, 0)
        of_group.firsts[name] = min(int(first_ms), of_group.firsts.get(name, int(first_ms)))


def _add_stalls(seen: Mapping[str, Seen], tables: ClusterTables, gold: WholeAudit) -> None:
    """Add partitions whose newest anomaly is a stall, whose offset has not moved since, and that no later sample
    shows to be consumed to their end."""
    lasts = _newest_rows(gold.read(COMMIT_ANOMALIES, ANOMALY_COLUMNS))
    stalled = lasts.filter(pc.equal(lasts["kind"], STALLED)).to_pylist()
    if not stalled:
        return
    silver = SilverAt(tables, group_ids={row["group_id"] for row in stalled})
    committed, ends = silver.committed_offsets(), silver.end_offsets(sample_age_max_ms=sys.maxsize)
    for row in stalled:
        place = TopicPartition(row["topic"], row["partition"])
        now = committed.get(row["group_id"], {}).get(place)
        if now is None or now.offset != row["to_offset"]:
            continue
        of_group, at_ms, end = seen[row["group_id"]], epoch_ms(row["at"]), ends.get(place)
        if end is not None and end.end_offset <= now.offset and end.sampled_at_ms >= at_ms:
            continue
        of_group.counts[REPEATED] += 1
        of_group.firsts[REPEATED] = min(at_ms, of_group.firsts.get(REPEATED, at_ms))


def _newest_lags(gold: WholeAudit) -> Mapping[str, int]:
    """The newest known lag of groups, summed over partitions; negative lags count as 0."""
    rows = gold.read(LAG_HISTORY, ["group_id", "topic", "partition", "log_offset", "lag", "lag_min"])
    rows = rows.append_column("known", pc.coalesce(rows["lag"], rows["lag_min"]))
    lasts = _newest_rows(rows.filter(pc.is_valid(rows["known"])))
    lags = pa.table({"group_id": lasts["group_id"], "lag": pc.max_element_wise(lasts["known"], 0)})
    sums = lags.group_by("group_id", use_threads=False).aggregate([("lag", "sum")])
    return dict(zip(sums["group_id"].to_pylist(), sums["lag_sum"].to_pylist(), strict=True))


def _newest_rows(rows: pa.Table) -> pa.Table:
    """The last row in the log for each group and partition."""
    places = ["group_id", "topic", "partition"]
    newest = rows.group_by(places, use_threads=False).aggregate([("log_offset", "max")])
    return rows.join(newest, [*places, "log_offset"], [*places, "log_offset_max"], join_type="inner")
