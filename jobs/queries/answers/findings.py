"""Findings from gold and coverage, and where to look next: the last lines of nightly.

Every number is a count of rows in a table, or a sum over them; each line names the command that shows those rows.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.confidence import GUESS
from coordinator_core.history.rows import FORGOTTEN
from coordinator_core.inference.audit.log_anomalies import (
    CLIENT,
    COORDINATOR,
    GROUP,
    INPUT_NOT_READ,
    LOG,
    LOG_NOT_JUDGED,
    LOG_NOT_REPLAYED,
    NOT_JUDGED,
    NOT_REPLAYED,
    TWO_APPLICATIONS,
)
from coordinator_core.inference.groups.causes import CONNECT_DELAY_OVER, COOPERATIVE_FOLLOW_UP, METADATA_FOLLOW_UP
from coordinator_core.inference.groups.leave_reasons import EXPIRED, SILENT_FOR_POLL_INTERVAL
from coordinator_core.text import counted
from jobs.bronze.copies import read_lineages
from jobs.bronze.coverage import hole_count
from jobs.bronze.log_ends import COORDINATOR_TOPICS, log_ends
from jobs.bronze.quarantine import COPIES_PART, open_count
from jobs.console import command_name
from jobs.console.names import NAME_CHARACTERS_MAX, names_of, short, some_of
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.other_writers import ForeignWrite, written_by_others
from jobs.delta.other_writers import lines as lines_of_others
from jobs.delta.replay_runs import WholeRun
from jobs.queries.answers.shared_instances import shared_instances
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.views.counted_events import IS_BACK, IS_WITHOUT_OWNER, NUMBERS, sums
from schemas.tables.bronze import COVERAGE, QUARANTINE
from schemas.tables.gold import HANGING_TRANSACTIONS, LOG_ANOMALIES, REDELIVERIES, SHARE_GROUP_SUMMARY
from schemas.tables.state import OFFSET_RANGES, Ranges

PARTITIONS_CHANGED: Final = "PARTITIONS_CHANGED"
FOLLOW_UPS: Final = (COOPERATIVE_FOLLOW_UP, CONNECT_DELAY_OVER, METADATA_FOLLOW_UP)
"""Methods of rebalances that complete the one before and have its cause: what caused both happened once."""
NOT_GROWN: Final = ("CONNECTORS_CHANGED", "CONFIGS_CHANGED", "SHARE_PARTITIONS_INITIALIZED", *FOLLOW_UPS)
"""Methods of PARTITIONS_CHANGED that do not mean a changed partition count: connectors and tasks are not topics."""
COUNTED: Final = (
    f"SELECT group_id, cause, {sums(it.name for it in NUMBERS)} FROM counted_events "
    f"WHERE table_name <> '{REDELIVERIES.name}' GROUP BY ALL"
)
"""There may be millions of redeliveries, and the days have their sums."""
IS_THROWN_OUT: Final = f"(cause = '{EXPIRED}' OR method = '{SILENT_FOR_POLL_INTERVAL}') AND method NOT IN {FOLLOW_UPS}"
CAUSES: Final = f"""
    SELECT group_id, count(*) FILTER ({IS_THROWN_OUT} AND confidence <> '{GUESS}') AS thrown_out,
        count(*) FILTER ({IS_THROWN_OUT} AND confidence = '{GUESS}') AS maybe_thrown_out,
        count(*) FILTER (cause = '{PARTITIONS_CHANGED}' AND method NOT IN {NOT_GROWN}) AS partitions_added
    FROM (
        SELECT group_id, unnest(causes) AS cause, unnest(cause_methods) AS method,
            unnest(cause_confidences) AS confidence
        FROM gold.rebalances
    ) GROUP BY ALL
"""
"""A rebalance may have several causes."""
ROLLOUTS: Final = "SELECT DISTINCT group_id, rollout_id FROM gold.rebalances WHERE rollout_id IS NOT NULL"
WORST_DAYS: Final = """
    SELECT group_id, max(of_day) AS rebalance_count FROM (
        SELECT group_id, count(*) AS of_day FROM gold.rebalances
        WHERE started_at IS NOT NULL GROUP BY group_id, date_trunc('day', started_at)
    ) GROUP BY ALL
"""
MANY_REBALANCES: Final = 20
"""A group with more rebalances on one day has a problem of its own."""
TRANSACTION_MARKER: Final = "TRANSACTION_MARKER"
"""`likely_cause` of archived offsets that are not records."""
NOTE_CHARACTERS_MAX: Final = 300
NOT_JUDGED_RULES: Final = (NOT_JUDGED, NOT_REPLAYED)
"""Rules about groups that gold lacks."""
LACKING_RULES: Final = (LOG_NOT_JUDGED, LOG_NOT_REPLAYED, INPUT_NOT_READ)
"""Rules about inputs that all of gold lacks."""


Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the tables say, by the names that JSON has. Counts by group are in order, most first; others by name."""

    rebalance_count: int
    storm_rebalance_count: int
    storm_rebalances_by_group: Counts
    thrown_out_by_group: Counts
    """Rebalances in which members were removed for missing heartbeats or late polls."""
    maybe_thrown_out_by_group: Counts
    """As `thrown_out_by_group`, where the cause is a guess."""
    without_owner_by_group: Counts = field(default_factory=dict)
    """Rebalances that left partitions without an owner for a minute or longer."""
    emptied_groups: tuple[str, ...]
    """Groups whose last member left and that are still empty."""
    partitions_added_by_group: Counts
    """Rebalances caused by growing topics."""
    rollout_count: int
    rebalances_on_worst_day: Counts
    """Rebalances on the group's worst day (UTC)."""
    given_up_count: int
    """Records that share groups gave up."""
    given_up_marker_count: int = 0
    """Those of `not_records_by_cause` that look like transaction markers."""
    not_records_by_cause: Counts = field(default_factory=dict)
    """Archived offsets that are likely no records of the topic, and not included in the other counts."""
    given_up_by_group: Counts
    redelivered_count: int
    """Records that share groups handed back or got again, each counted once."""
    extra_delivery_count: int
    """Deliveries of share groups' records beyond the first."""
    went_back_by_group: Counts = field(default_factory=dict)
    """Groups, and their commits of a lower offset than before, whoever made them."""
    share_offset_changes: Counts = field(default_factory=dict)
    """By kind, resets and deletions of share groups' offsets."""
    never_delivered_count: int = 0
    """Records that these skipped."""
    delivered_again_count: int = 0
    odd_commits: Counts
    """Commit anomalies by kind."""
    guessed_odd_commits: Counts = field(default_factory=dict)
    """Commit anomalies that are only guesses, not included in `odd_commits`."""
    broken_rules: Counts
    """Broken rules of the coordinators."""
    log_oddities: Counts
    """Oddities of the log itself by rule."""
    forgotten_by_group: Counts = field(default_factory=dict)
    """Groups that a new leader did not load wholly, since the log start had moved, and their committed offsets that it
    does not know."""
    start_moved: Counts = field(default_factory=dict)
    """Log partitions whose start moved past captured records, without a new leader since; and their log start offsets.
    """
    client_notes: Counts
    """Deviations of clients from their protocol, and the number of groups with each."""
    shared_groups: tuple[str, ...]
    """Groups whose current members have no topic in common: several applications share a group.id."""
    shared_instances: tuple[str, ...] = ()
    """In words, instance ids of several processes that put each other out."""
    not_judged: tuple[str, ...] = ()
    """Groups that could not be judged."""
    audit_lacks: tuple[str, ...] = ()
    """Inputs that the audit could not use."""
    hole_count: int
    missing_log_partitions: Counts = field(default_factory=dict)
    """Coordinator topics, and how many of their log partitions are in no source."""
    hanging_transactions: Counts = field(default_factory=dict)
    """Groups, and the number of hanging transactions that committed offsets for them."""
    hanging_transaction_count: int = 0
    """Each transaction counted once, whatever groups it committed for: a producer has one at a time."""
    parted_copies: Counts = field(default_factory=dict)
    """Log partitions with diverging copies, and the number of divergences."""
    leader_changes: Counts = field(default_factory=dict)
    """Log partitions, and the number of leader changes, most first."""
    quarantined_count: int
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """The last foreign write to each table."""

    @property
    def headline(self) -> str:
        """A summary in one line."""
        busy = [count for count in self.rebalances_on_worst_day.values() if count > MANY_REBALANCES]
        parts = [
            _counted(len(self.storm_rebalances_by_group), "group", "in rebalance storms"),
            _counted(len(busy), "group", f"rebalanced more than {MANY_REBALANCES} times on one day"),
            self._thrown_out(),
            _counted(len(self.without_owner_by_group), "group", "whose partitions had no owner for a minute or longer"),
            _counted(self.given_up_count, "record", "given up", verb=True),
            _counted(len(self.went_back_by_group), "group", "whose offsets went back"),
            _counted(sum(self.share_offset_changes.values()), "change", "of share offsets by a tool"),
            _counted(self.never_delivered_count, "record", "never delivered for that", verb=True),
            _counted(sum(self.odd_commits.values()), "commit anomaly", "", plural="commit anomalies"),
            _counted(sum(self.broken_rules.values()), "broken rule", "of the coordinators"),
            _counted(sum(self.log_oddities.values()), "oddity", "of the log", plural="oddities"),
            _counted(len(self.forgotten_by_group), "group", "forgotten by a new leader, wholly or in part"),
            _counted(len(self.start_moved), "log partition", "whose start moved since its leader loaded it"),
            _counted(len(self.shared_groups), "group id", "used by several applications"),
            _counted(len(self.shared_instances), "instance id", "used by several processes"),
            _counted(len(self.not_judged), "group", "could not be judged"),
            _counted(len(self.audit_lacks), "input", "of the audit could not be used"),
            _counted(self.hole_count, "hole", "in coverage"),
            _counted(sum(self.missing_log_partitions.values()), "log partition", "in no source"),
            _counted(self.hanging_transaction_count, "hanging transaction", ""),
            _counted(len(self.parted_copies), "log partition", "with copies that part ways"),
            _counted(self.quarantined_count, "row", "in quarantine"),
            _counted(len(self.foreign_writes), "table", "changed by another program"),
        ]
        found = [part for part in parts if part]
        return "found: " + ("; ".join(found) if found else "nothing out of the ordinary")

    def _thrown_out(self) -> str:
        count, maybe = sum(self.thrown_out_by_group.values()), sum(self.maybe_thrown_out_by_group.values())
        if not count + maybe:
            return ""
        in_rebalances = _counted(count + maybe, "rebalance", "")
        guesses = f" ({maybe:,} of them {'a guess' if maybe == 1 else 'guesses'})" if maybe else ""
        return f"members were thrown out in {in_rebalances}{guesses}"

    def as_json(self) -> dict[str, Any]:
        """As one JSON object with stable names."""
        values = {it.name: getattr(self, it.name) for it in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        writes = {write.table: write.version for write in self.foreign_writes}
        return {"headline": self.headline, **plain, "foreign_writes": writes}


def findings(tables: ClusterTables) -> Findings:
    """What the tables of a cluster say."""
    gold = WholeAudit.newest(tables)
    ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
    counts, causes = ledger.rows_of(COUNTED), ledger.rows_of(CAUSES)

    def total(name: str) -> int:
        return sum(row[name] for row in counts)

    def by_cause(name: str) -> Counts:
        return dict(sorted(_by(counts, name, "cause").items()))

    no_records = _by(counts, "no_record_count", "cause")
    days = gold.read(SHARE_GROUP_SUMMARY, ["records_redelivered", "extra_deliveries"])
    odd = gold.read(
        LOG_ANOMALIES, ["rule", "category", "details", "group_id", "at", "log_partition", "log_offset", "ordinal"]
    )
    hanging = gold.read(HANGING_TRANSACTIONS, ["group_id", "producer_id"])
    quarantined = tables.read(QUARANTINE, ["topic", "partition", "code", "message", "resolved_at"])
    return Findings(
        rebalance_count=total("rebalance_count"),
        storm_rebalance_count=total("storm_rebalance_count"),
        storm_rebalances_by_group=_by(counts, "storm_rebalance_count"),
        thrown_out_by_group=_by(causes, "thrown_out"),
        maybe_thrown_out_by_group=_by(causes, "maybe_thrown_out"),
        without_owner_by_group=_by(counts, "without_owner_count"),
        emptied_groups=tuple(row["group_id"] for row in ledger.rows_of(f"{EMPTIED} order by count(*) desc, group_id")),
        partitions_added_by_group=_by(causes, "partitions_added"),
        rollout_count=len(ledger.rows_of(ROLLOUTS)),
        rebalances_on_worst_day=_by(ledger.rows_of(WORST_DAYS), "rebalance_count"),
        given_up_count=total("records_given_up"),
        given_up_marker_count=no_records.get(TRANSACTION_MARKER, 0),
        not_records_by_cause=no_records,
        given_up_by_group=_by(counts, "records_given_up"),
        redelivered_count=pc.sum(days["records_redelivered"]).as_py() or 0,
        extra_delivery_count=pc.sum(days["extra_deliveries"]).as_py() or 0,
        went_back_by_group=_by(counts, "went_back_count"),
        share_offset_changes=by_cause("offset_change_count"),
        never_delivered_count=total("never_delivered_count"),
        delivered_again_count=total("delivered_again_count"),
        odd_commits=by_cause("odd_commit_count"),
        guessed_odd_commits=by_cause("guessed_odd_commit_count"),
        broken_rules=_counts_of(_of_category(odd, COORDINATOR)["rule"]),
        log_oddities=_counts_of(_of_category(odd, LOG).filter(pc.field("rule") != FORGOTTEN)["rule"]),
        forgotten_by_group=_forgotten(odd, _by(counts, "offset_forgotten_count")),
        start_moved=_start_moved(tables),
        client_notes=_client_notes(_of_category(odd, CLIENT)),
        shared_groups=_shared_groups(_of_category(odd, GROUP)),
        shared_instances=tuple(it.text for it in shared_instances(WholeRun.newest(tables))),
        not_judged=groups_not_judged(tables),
        audit_lacks=audit_lacks(tables),
        hole_count=hole_count(tables),
        quarantined_count=open_count(quarantined),
        missing_log_partitions={
            topic: len(ends.missing) for topic, ends in log_ends(tables).items() if ends.ends and ends.missing
        },
        hanging_transactions=_counts_of(hanging["group_id"]),
        hanging_transaction_count=pc.count_distinct(hanging["producer_id"]).as_py(),
        parted_copies=_parted_copies(quarantined),
        leader_changes=_leader_changes(tables),
        foreign_writes=tuple(written_by_others(tables)),
    )


def _by(rows: Sequence[Mapping[str, Any]], name: str, key: str = "group_id") -> Counts:
    """Sums of a column by another, most first."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row[key]] += row[name]
    return _most_first(pair for pair in found.items() if pair[1])


def _of_category(odd: pa.Table, category: str) -> pa.Table:
    return odd.filter(pc.equal(odd["category"], category))


def audit_lacks(tables: ClusterTables) -> tuple[str, ...]:
    """What the newest audit lacked: log partitions that it could not judge, and inputs that it could not read."""
    columns = ["rule", "log_topic", "log_partition", "details"]
    rows = WholeAudit.newest(tables).read(LOG_ANOMALIES, columns)
    found = rows.filter(pc.is_in(rows["rule"], value_set=pa.array(LACKING_RULES))).to_pylist()
    names = (
        f"{row['log_topic']}-{row['log_partition']}"
        if row["rule"] in (LOG_NOT_JUDGED, LOG_NOT_REPLAYED)
        else str(row["details"]).partition(":")[0]
        for row in found
    )
    return tuple(sorted(set(names)))


def groups_not_judged(tables: ClusterTables) -> tuple[str, ...]:
    """Groups that the newest audit could not judge, including those of which silver lacks something."""
    rows = WholeAudit.newest(tables).read(LOG_ANOMALIES, ["rule", "group_id"])
    found = rows.filter(pc.is_in(rows["rule"], value_set=pa.array(NOT_JUDGED_RULES)))
    return tuple(sorted(set(found["group_id"].to_pylist())))


def _parted_copies(quarantined: pa.Table) -> Counts:
    """Log partitions with diverging copies and the number of divergences: each was resolved when found, but records
    were lost."""
    rows = quarantined.filter(pc.equal(quarantined["code"], COPIES_PART)).select(["topic", "partition"]).to_pylist()
    return dict(sorted(Counter(f"{row['topic']}-{row['partition']}" for row in rows).items()))


def _leader_changes(tables: ClusterTables) -> Counts:
    """Coordinators' log partitions, and the number of leader epochs with batches after the first one."""
    rows = tables.read(OFFSET_RANGES, kind=Ranges.LEADER_EPOCH).to_pylist()
    epochs: dict[str, set[int]] = {}
    for row in rows:
        if row["topic"] in COORDINATOR_TOPICS and not row["is_checkpoint"] and row["leader_epoch"] >= 0:
            epochs.setdefault(f"{row['topic']}-{row['partition']}", set()).add(row["leader_epoch"])
    return _most_first((place, len(found) - 1) for place, found in epochs.items() if len(found) > 1)


CLIENTS_OF_NOTE: Final = re.compile(
    "(?P<what>.*); clients like (?P<clients>'.*'), protocol (?P<protocol>.*)", re.DOTALL
)
CLIENTS_NAMED_MAX: Final = 3


def _client_notes(rows: pa.Table) -> Counts:
    """Oddities in bytes that clients write, and the number of groups with each. Client software is identified by how
    it writes the protocol, not by client ids, which are application names: these are shown together."""
    groups: dict[tuple[str, str], set[str]] = {}
    clients: dict[tuple[str, str], set[str]] = {}
    for row in rows.group_by(["details", "group_id"], use_threads=False).aggregate([]).to_pylist():
        found = CLIENTS_OF_NOTE.fullmatch(row["details"])
        kind = (found["what"], found["protocol"]) if found else (row["details"], "")
        groups.setdefault(kind, set()).add(row["group_id"])
        clients.setdefault(kind, set()).update([found["clients"]] if found else [])
    notes: list[tuple[str, int]] = []
    for (what, protocol), of in groups.items():
        names = sorted(clients[what, protocol])
        more = len(names) - CLIENTS_NAMED_MAX
        said = ", ".join(names[:CLIENTS_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
        notes.append((f"{what}; clients like {said}, protocol {protocol}" if names else what, len(of)))
    return dict(sorted(notes))


def _shared_groups(rows: pa.Table) -> tuple[str, ...]:
    """Groups whose newest row shows several applications."""
    order = [("log_partition", "ascending"), ("log_offset", "ascending"), ("ordinal", "ascending")]
    newest: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows.sort_by(order).to_pylist():
        newest.setdefault(row["group_id"], {})[row["log_partition"]] = row
    # a group has several log partitions only after the topic grew: the one used last counts
    last = {group_id: max(found.values(), key=lambda row: row["at"] or LONG_AGO) for group_id, found in newest.items()}
    return tuple(sorted(group_id for group_id, row in last.items() if row["rule"] == TWO_APPLICATIONS))


LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


def _counts_of(names: pa.ChunkedArray) -> Counts:
    """The number of occurrences of each name, by name."""
    return dict(sorted((found["values"], found["counts"]) for found in pc.value_counts(names).to_pylist()))


def _forgotten(odd: pa.Table, offsets: Counts) -> Counts:
    """Groups that a new leader did not load wholly, and their committed offsets that it does not know."""
    groups = pc.unique(odd.filter(pc.field("rule") == FORGOTTEN)["group_id"]).to_pylist()
    return _most_first((group_id, offsets.get(group_id, 0)) for group_id in groups)


def _start_moved(tables: ClusterTables) -> Counts:
    """Log partitions of which the next leader will not load all that was captured, and their log start offsets."""
    starts = {
        (topic, partition): max(lineage.log_starts)
        for (topic, partition), lineage in read_lineages(tables).items()
        if lineage.log_starts
        and max(lineage.log_starts) > max((it.log_start_offset for it in lineage.loads), default=0)
    }
    if not starts:
        return {}
    captured = tables.read(COVERAGE, ["topic", "partition", "kind", "from_offset"]).to_pylist()
    return {
        f"{topic}-{partition}": start
        for (topic, partition), start in sorted(starts.items())
        if any(
            (row["topic"], row["partition"], row["kind"]) == (topic, partition, "CAPTURED")
            and row["from_offset"] < start
            for row in captured
        )
    }


def _most_first(pairs: Iterable[tuple[str, int]]) -> Counts:
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def lines(found: Findings, options: Sequence[str] = ()) -> Iterator[str]:
    """The findings as lines: the summary, then each part with the command that shows its rows.

    `options`: added to every command, such as `--warehouse`.
    """
    yield found.headline
    yield from lines_of_others(found.foreign_writes, "".join(f" {shlex.quote(word)}" for word in options))
    parts = list(_parts(found))
    if parts:
        parts.append(("all of it as one page to open in a browser", "report --output report.html"))
    for what, command in parts:
        yield f"{what}: {command_name.command(' '.join([command, *map(shlex.quote, options)]))}"


Part = tuple[str, str]
"""What was found, and the command that shows its rows."""


def _parts(found: Findings) -> Iterator[Part]:
    yield from _parts_of_rebalances(found)
    yield from _parts_of_offsets(found)
    yield from _parts_of_rules(found)
    yield from _parts_of_the_log(found)


def _parts_of_rebalances(found: Findings) -> Iterator[Part]:
    if found.rebalance_count:
        parts = [f"rebalances: {found.rebalance_count:,}"]
        if found.storm_rebalance_count:
            parts.append(f"{found.storm_rebalance_count:,} of them in storms")
        if found.rollout_count:
            parts.append(_counted(found.rollout_count, "rolling deployment", ""))
        if found.rebalances_on_worst_day:
            parts.append(f"most on one day: {_names(found.rebalances_on_worst_day)}")
        yield ", ".join(parts), "audit --list rebalances"
    if found.storm_rebalance_count:
        query = "select distinct group_id, flapping_members from gold.rebalances where in_storm"
        yield "who flaps in the storms", _sql(query)
    thrown_out = [
        f"{what}: {_names(by_group)}"
        for what, by_group in (
            ("members were thrown out", found.thrown_out_by_group),
            ("members may have been thrown out", found.maybe_thrown_out_by_group),
        )
        if by_group
    ]
    if thrown_out:
        yield "; ".join(thrown_out), _sql(THROWN_OUT)
    if found.partitions_added_by_group:
        query = (
            f"select * from gold.rebalances where array_contains(causes, '{PARTITIONS_CHANGED}') "
            f"and {_without(NOT_GROWN)}"
        )
        yield f"topics grew, came or went, by group: {_names(found.partitions_added_by_group)}", _sql(query)
    if found.emptied_groups:
        yield f"groups whose last member went: {len(found.emptied_groups):,}", _sql(EMPTIED)
    if found.without_owner_by_group:
        query = f"select * from gold.rebalances where {IS_WITHOUT_OWNER} order by started_at"
        yield f"partitions without an owner for a minute or longer: {_names(found.without_owner_by_group)}", _sql(query)


def _parts_of_offsets(found: Findings) -> Iterator[Part]:
    if found.given_up_count:
        what = f"records given up: {found.given_up_count:,} by {_names(found.given_up_by_group)}"
        if found.not_records_by_cause:
            offsets = counted(sum(found.not_records_by_cause.values()), "offset")
            what += f"; and {offsets} likely without a record: {_names(found.not_records_by_cause)}"
        yield what, "audit --list archived"
    if found.redelivered_count or found.extra_delivery_count:
        extra = _counted(found.extra_delivery_count, "delivery", "beyond the first", plural="deliveries")
        records = f"handed back or given out again: {counted(found.redelivered_count, 'record')}"
        yield ", ".join(filter(None, [records, extra])), "audit --list redeliveries"
    if found.went_back_by_group:
        query = f'select * from gold.commit_anomalies where {IS_BACK} order by "at", log_offset'
        yield f"offsets went back, by members or reset by a tool: {_names(found.went_back_by_group)}", _sql(query)
    if found.share_offset_changes:
        counts = (found.never_delivered_count, "never delivered"), (found.delivered_again_count, "delivered again")
        those = [f"{counted(number, 'record')} {words}" for number, words in counts if number]
        changes = f"offsets of share groups reset or deleted: {_names(found.share_offset_changes)}"
        yield "; ".join([changes, *those]), "audit --list share-offsets"
    if found.odd_commits:
        yield f"commit anomalies: {_names(found.odd_commits)}", "audit --list commits"
    if found.guessed_odd_commits:
        yield f"guesses, perhaps commit anomalies: {_names(found.guessed_odd_commits)}", "audit --list commits"


def _parts_of_rules(found: Findings) -> Iterator[Part]:
    if found.broken_rules:
        query = f"select distinct rule, meaning, remedy from gold.log_anomalies where category = '{COORDINATOR}'"
        yield f"broken rules: {_names(found.broken_rules)}", _sql(query)
    if found.log_oddities:
        query = f"select distinct rule, meaning, remedy from gold.log_anomalies where category = '{LOG}'"
        yield f"oddities of the log: {_names(found.log_oddities)}", _sql(query)
    if found.forgotten_by_group:
        query = f"""select group_id, "at", details, remedy from gold.log_anomalies where rule = '{FORGOTTEN}'"""
        yield (
            "a new leader did not load them, as the log start had moved, and the committed offsets lost: "
            f"{_names(found.forgotten_by_group)}",
            _sql(query),
        )
    if found.start_moved:
        places = " or ".join(
            f"(log_partition = {name.rpartition('-')[2]} and log_offset < {start})"
            for name, start in found.start_moved.items()
        )
        query = (
            f"select log_partition, group_id, topic, partition, committed_offset from current_offsets where {places}"
        )
        yield (
            "the log start moved, and the next leader will not load what only lower offsets have: "
            f"{_names(found.start_moved)}; these committed offsets",
            _sql(query),
        )
    if found.client_notes:
        query = f"select group_id, rule, details, meaning, remedy from gold.log_anomalies where category = '{CLIENT}'"
        names = _names(found.client_notes, NOTE_CHARACTERS_MAX)
        yield f"notes on clients, by what they write, and in how many groups: {names}", _sql(query)
    if found.shared_groups:
        query = f"""select group_id, "at", rule, details from gold.log_anomalies where category = '{GROUP}'"""
        yield f"several applications under one group.id: {names_of(found.shared_groups)}", _sql(query)
    if found.shared_instances:
        query = "select * from silver.group_members where ended_by = 'REPLACED_STATIC' order by valid_to"
        yield f"processes with one group.instance.id put each other out: {some_of(found.shared_instances)}", _sql(query)
    if found.not_judged:
        query = f"select group_id, details, remedy from gold.log_anomalies where rule in {NOT_JUDGED_RULES}"
        yield (
            f"could not be judged: {_counted(len(found.not_judged), 'group', '')}, {names_of(found.not_judged)}",
            _sql(query),
        )
    if found.audit_lacks:
        query = f"select rule, details, remedy from gold.log_anomalies where rule in {LACKING_RULES}"
        yield f"gold was made without: {'; '.join(found.audit_lacks)}", _sql(query)


def _parts_of_the_log(found: Findings) -> Iterator[Part]:
    if found.hole_count:
        query = "select * from bronze.coverage where kind in ('MISSING', 'CORRUPT')"
        yield f"holes in coverage: {found.hole_count:,}", _sql(query)
    if found.hanging_transactions:
        query = "select group_id, since, producer_id, uncleanable_count, meaning, remedy from gold.hanging_transactions"
        yield f"hanging transactions: {_names(found.hanging_transactions)}", _sql(query)
    if found.leader_changes:
        query = "select topic, partition, leader_epoch, from_offset from state.offset_ranges where not is_checkpoint"
        yield f"leaders changed, as when a broker fails or restarts: {_names(found.leader_changes)}", _sql(query)
    if found.parted_copies:
        query = f"""select topic, partition, "offset", message from bronze.quarantine where code = '{COPIES_PART}'"""
        yield (
            f"copies of a log part ways, as after an unclean leader election: {_names(found.parted_copies)}",
            _sql(query),
        )
    if found.missing_log_partitions:
        query = "select topic, partition from bronze.log_partitions"
        yield f"log partitions in no source: {_names(found.missing_log_partitions)}; found are", _sql(query)
    if found.quarantined_count:
        query = (
            'select topic, partition, "offset", stage, code, message from bronze.quarantine where resolved_at is null'
        )
        yield f"could not be read: {found.quarantined_count:,}", _sql(query)


def _without(methods: Sequence[str]) -> str:
    """A condition on rebalances: none of their causes was found by such a method."""
    return " and ".join(f"not array_contains(cause_methods, '{method}')" for method in methods)


EMPTIED: Final = (
    "select group_id, max(started_at) as since from gold.rebalances where not coalesce(is_former_log_partition, false) "
    "group by group_id having max(case when member_count = 0 then incarnation * 4294967296 + to_generation end) "
    "= max(incarnation * 4294967296 + to_generation)"
)
"""Groups that were empty after their last rebalance, and whose members did not come back. Rows of a former log
partition do not reflect the present."""
THROWN_OUT: Final = (
    "select group_id, started_at, members_left, causes, cause_confidences from gold.rebalances "
    f"where (array_contains(causes, '{EXPIRED}') or array_contains(cause_methods, '{SILENT_FOR_POLL_INTERVAL}')) "
    f"and {_without(FOLLOW_UPS)}"
)


def _sql(query: str) -> str:
    return f"sql -e {shlex.quote(query)}"


def _names(counts: Counts, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    return some_of(f"{short(name, characters_max)} ({count:,})" for name, count in counts.items())


def _counted(count: int, noun: str, rest: str, *, verb: bool = False, plural: str | None = None) -> str:
    """`3 groups rest`, or nothing for zero; with `verb`: `1 record was rest`."""
    if not count:
        return ""
    words = [counted(count, noun, plural)]
    if verb:
        words.append("was" if count == 1 else "were")
    return " ".join([*words, rest]).rstrip()
