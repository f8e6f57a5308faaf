"""Which groups need attention: the state of each group at the end of the log, recent events, and a verdict with rules
and time.

STALLED: commits repeat an offset that has not moved since, and no sampled end offset shows that there was nothing to
read. WARN: storms, members that were thrown out (no guesses), instance ids of several processes, group ids of several
applications, partitions without an owner for long, archived records, offsets that went back, that a tool reset or
deleted (those of share groups too), or a group that could not be judged. OK: none of these. By default, counts are of
the last day before the newest record that was read. The score of a group orders them, the worst first; of those with
the same score, the one in which more happened, then the one that began last.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from coordinator_core.confidence import GUESS
from coordinator_core.history.rows import FORGOTTEN
from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.text import counted
from jobs.bronze.log_ends import COORDINATOR_TOPICS, log_ends
from jobs.cli_enums import Listing
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.pinned_versions import of_one_run
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms, to_datetime
from jobs.queries.answers.lists import IS_SHARED_NOW, NOT_JUDGED_RULES, SURELY_THROWN_OUT, has_cause
from jobs.queries.answers.shared_instances import shared_instances
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.behind import is_behind
from jobs.queries.as_of.group_model import TopicPartition
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.views.counted_events import sums
from schemas.tables.silver import GROUP_EVENTS, OFFSET_COMMITS, SHARE_PARTITION_STATES

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
SHARED_GROUP: Final = "GROUP_ID_SHARED"
THROWN_OUT: Final = "MEMBERS_EXPIRED"
TIMES_SEEN: Final = ((GROUP_EVENTS, "at"), (OFFSET_COMMITS, "recorded_at"), (SHARE_PARTITION_STATES, "valid_from"))
"""Columns of silver with the times of its records."""


class Rule(NamedTuple):
    """What makes a verdict. `points`: how bad it is, in a group's score; `listing`: what `audit --list` shows of it."""

    points: int
    listing: Listing
    one: str
    many: str


RULES: Final[Mapping[str, Rule]] = {
    REPEATED: Rule(40, Listing.COMMITS, "partition stays", "partitions stay"),
    FAILED: Rule(
        35,
        Listing.NOT_JUDGED,
        "failure to judge it",
        "failures to judge it",
    ),
    SHARED_INSTANCE: Rule(
        30, Listing.INSTANCES, "instance id of several processes", "instance ids of several processes"
    ),
    SHARED_GROUP: Rule(30, Listing.SHARED, "group id of several applications", "group ids of several applications"),
    IN_STORM: Rule(30, Listing.FLAPPING, "in a storm", "in storms"),
    WITHOUT_OWNER: Rule(
        25,
        Listing.UNOWNED,
        "rebalance left partitions without an owner for a minute or longer",
        "rebalances left partitions without an owner for a minute or longer",
    ),
    GIVEN_UP: Rule(25, Listing.ARCHIVED, "given up", "given up"),
    RESET: Rule(25, Listing.RESETS, "partition", "partitions"),
    MOVED: Rule(25, Listing.SHARE_OFFSETS, "time", "times"),
    DELETED: Rule(
        25,
        Listing.DELETED,
        "offset deleted, not explained by offsets_retention_ms",
        "offsets deleted, not explained by offsets_retention_ms",
    ),
    THROWN_OUT: Rule(20, Listing.EXPIRED, "rebalance with members thrown out", "rebalances with members thrown out"),
    FORGOTTEN: Rule(20, Listing.FORGOTTEN, "offset forgotten by the broker", "offsets forgotten by the broker"),
    WENT_BACK: Rule(10, Listing.REWINDS, "rewind", "rewinds"),
    DELETED_WITH_GROUP: Rule(10, Listing.COMMITS, "offset deleted with its group", "offsets deleted with their group"),
}
"""Rules for the verdict, worst first, and the words after a count of one and of more."""
NUMBER_OF_RULE: Final = {
    IN_STORM: "storm_rebalance_count",
    WITHOUT_OWNER: "without_owner_count",
    GIVEN_UP: "records_given_up",
    MOVED: "offset_change_count",
    DELETED: "offset_deleted_count",
    FORGOTTEN: "offset_forgotten_count",
    WENT_BACK: "went_back_count",
    DELETED_WITH_GROUP: "deleted_with_group_count",
}
"""Rules that a column of counted_events is the reason of by itself."""
OTHER_NUMBERS: Final = (
    "rebalance_count",
    "unowned_likely_ms",
    "records_redelivered",
    "extra_deliveries",
    "never_delivered_count",
    "delivered_again_count",
)
"""Columns of counted_events that are shown, too."""
FIRSTS: Final = ", ".join(f'min("at") FILTER ({number} > 0) AS {rule}' for rule, number in NUMBER_OF_RULE.items())
EVENTS: Final = (
    f"SELECT group_id, {FIRSTS}, {sums((*NUMBER_OF_RULE.values(), *OTHER_NUMBERS))} FROM counted_events "
    'WHERE "at" >= $1 GROUP BY ALL'
)
EXPIRIES: Final = (
    "SELECT r.group_id, min(r.started_at) AS since, count(*) AS number FROM gold.rebalances AS r "
    f"WHERE r.started_at >= $1 AND {has_cause(SURELY_THROWN_OUT)} GROUP BY ALL"
)
MOVES_AHEAD_MAX: Final = 3
"""More commits than these to one partition that only move ahead are nobody's reset: a consumer without membership."""
RESETS: Final = f"""
    SELECT group_id, min("at") AS since, count(*) FILTER (to_offset < from_offset) AS back_count,
        CAST(sum(greatest(from_offset - to_offset, 0)) AS BIGINT) AS back,
        CAST(sum(greatest(to_offset - from_offset, 0)) AS BIGINT) AS ahead
    FROM gold.commit_anomalies
    WHERE "at" >= $1 AND kind = 'EMPTY_GROUP_RESET' AND confidence <> '{GUESS}'
        AND from_offset IS DISTINCT FROM to_offset AND coalesce(likely_cause, '') <> '{TOPIC_RECREATED}'
    GROUP BY group_id, topic, partition HAVING count(*) <= {MOVES_AHEAD_MAX} OR back_count > 0
"""
"""Partitions whose offsets were moved while the group was empty, and the records in between."""
STALLS: Final = f"""
    SELECT group_id, topic, partition, to_offset, "at" FROM gold.commit_anomalies
    QUALIFY log_offset = max(log_offset) OVER (PARTITION BY group_id, topic, partition) AND kind = '{STALLED}'
"""
"""Partitions whose newest anomaly is a stall."""
LAGS: Final = """
    SELECT group_id, CAST(sum(greatest(newest, 0)) AS BIGINT) AS lag FROM (
        SELECT group_id, topic, partition, arg_max(coalesce(lag, lag_min), log_offset) AS newest
        FROM gold.lag_history WHERE coalesce(lag, lag_min) IS NOT NULL GROUP BY ALL
    ) GROUP BY ALL
"""
"""The newest known lag of groups, summed over partitions; negative lags count as 0."""
FAILURES: Final = f"SELECT group_id FROM gold.log_anomalies WHERE rule IN {NOT_JUDGED_RULES}"
"""Groups that gold lacks because their replay or audit failed: they cannot be called OK."""
SHARED: Final = f'SELECT r.group_id, r."at" FROM gold.log_anomalies AS r WHERE {IS_SHARED_NOW}'
"""Groups of several applications at the end of the log."""
GONE: Final = "Dead"
"""Kafka's name for the state of a group that was deleted."""
NOT_THERE: Final = {"group_type": "", "state": GONE, "member_count": 0, "valid_from": None}


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
    score: int = 0
    """The points of its rules, and the number of digits of the count of each."""
    rules: Mapping[str, int] = {}
    """The rules behind the verdict, worst first, and their counts."""
    lag: int | None = None
    """The newest known lag of all partitions; None where no end offset was sampled."""

    @property
    def is_gone(self) -> bool:
        """Was it deleted, and not with offsets, which would be a reason to look at it?"""
        return self.state == GONE and DELETED_WITH_GROUP not in self.rules


class Seen(NamedTuple):
    """The events of one group since a time: counts, and first occurrences (epoch ms)."""

    counts: Counter[str]
    firsts: dict[str, int]


@of_one_run
def group_verdicts(
    tables: ClusterTables,
    *,
    from_ms: int | None = None,
    match: str | None = None,
    with_gone: bool = False,
    known: Collection[str] = (),
) -> list[GroupVerdict]:
    """The groups that still exist in the log, and those that were deleted with their offsets; those that need attention
    first.

    Counts are from `from_ms` on, by default a day before the newest record that was read. `match`: a part of the group
    id, ignoring case. `with_gone`: also other groups that had events since and are gone, and those of `known` that are.
    Gone ones have the state `GONE`.
    """
    ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
    since_ms = from_ms if from_ms is not None else newest_record_ms(tables) - DAY_MS
    seen = _seen_since(ledger, since_ms)
    _add_stalls(seen, tables, ledger.rows_of(STALLS))
    for row in ledger.rows_of(FAILURES):
        seen[row["group_id"]].counts[FAILED] += 1
    for shared in shared_instances(WholeRun.newest(tables), since_ms):
        seen[shared.group_id].counts[SHARED_INSTANCE] += 1
        seen[shared.group_id].firsts[SHARED_INSTANCE] = max(shared.since_ms, since_ms)
    for row in ledger.rows_of(SHARED):
        seen[row["group_id"]].counts[SHARED_GROUP] += 1
        if row["at"] is not None:
            seen[row["group_id"]].firsts[SHARED_GROUP] = max(epoch_ms(row["at"]), since_ms)
    lags = {row["group_id"]: row["lag"] for row in ledger.rows_of(LAGS)}
    groups = {row["group_id"]: row for row in ledger.rows_of("SELECT * FROM current_groups")}
    groups |= {group_id: {**NOT_THERE, "group_id": group_id} for group_id in {*seen, *known} - groups.keys()}
    every = (
        _verdict(row, seen[group_id], lags.get(group_id))
        for group_id, row in groups.items()
        if match is None or match.casefold() in group_id.casefold()
    )
    found = [it for it in every if with_gone or not it.is_gone]
    return sorted(found, key=lambda it: (-it.score, -sum(it.rules.values()), -(it.since_ms or 0), it.group_id))


def newest_record_ms(tables: ClusterTables) -> int:
    """The latest time up to which any log partition of the coordinators was read (epoch ms); 0 for none. While captures
    are ahead of what readers see: the time of the newest record that these see, by the statistics of silver's files."""
    if is_behind(tables) and (silver := WholeRun.newest(tables)).is_known:
        files = ((name, silver.files(table)) for table, name in TIMES_SEEN)
        times = (file.maximum[name] for name, of_table in files for file in of_table if name in file.maximum)
        return max(map(epoch_ms, times), default=0)
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
        counts["rebalance_count"],
        counts[IN_STORM],
        counts["unowned_likely_ms"],
        counts[GIVEN_UP],
        counts["records_redelivered"],
        counts["extra_deliveries"],
        counts["went_back_count"],
        verdict,
        ", ".join(why_text(rule, counts) for rule in rules),
        min((seen.firsts[rule] for rule in rules if rule in seen.firsts), default=None),
        sum(RULES[rule].points + len(str(count)) for rule, count in rules.items()),
        rules,
        lag,
    )


def why_text(rule: str, counts: Mapping[str, int]) -> str:
    """A reason of a verdict in words."""
    text = counted(counts[rule], RULES[rule].one, RULES[rule].many)
    if rule == MOVED:
        ways = ("never_delivered_count", "never delivered"), ("delivered_again_count", "delivered again")
        lost = [f"{counted(counts[name], 'record')} {words}" for name, words in ways if counts[name]]
        return f"offsets reset or deleted by a tool: {', '.join([text, *lost])} (who did it is in no log)"
    if rule != RESET:
        return text
    moved = [f"{counted(counts[way], 'record')} {way}" for way in ("back", "ahead") if counts[way]]
    return f"reset by a tool: {', '.join([text, *moved])}, group was empty (who did it is in no log)"


def _seen_since(ledger: DuckDb, since_ms: int) -> defaultdict[str, Seen]:
    """The events of each group since a time."""
    seen: defaultdict[str, Seen] = defaultdict(lambda: Seen(Counter(), {}))
    for row in ledger.rows_of(EVENTS, to_datetime(since_ms)):
        counts, firsts = seen[row["group_id"]]
        counts.update({name: row[name] for name in ("went_back_count", *OTHER_NUMBERS)})
        for rule, number in NUMBER_OF_RULE.items():
            if row[number]:
                counts[rule], firsts[rule] = row[number], epoch_ms(row[rule])
    for row in ledger.rows_of(EXPIRIES, to_datetime(since_ms)):
        counts, firsts = seen[row["group_id"]]
        counts[THROWN_OUT], firsts[THROWN_OUT] = row["number"], epoch_ms(row["since"])
    for row in ledger.rows_of(RESETS, to_datetime(since_ms)):
        counts, firsts = seen[row["group_id"]]
        counts.update({RESET: 1, "back": row["back"], "ahead": row["ahead"]})
        counts[WENT_BACK] -= row["back_count"]  # a reset that a rule names is no rewind as well
        firsts[RESET] = min(firsts.get(RESET, sys.maxsize), epoch_ms(row["since"]))
    return seen


def _add_stalls(seen: Mapping[str, Seen], tables: ClusterTables, stalled: Sequence[Mapping[str, Any]]) -> None:
    """Add those partitions whose offset has not moved since, and that no later sample shows to be consumed to their
    end."""
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
