"""gold.log_anomalies: where a log breaks the coordinators' own rules, what that means, and which Kafka defect causes
such a break; and, in other categories, anomalies of clients and of the log itself.

`RULES` is the list, as data. Breaks met during replay are ANOMALY events in silver (`anomalies`, `history`). The others
are found here: groups whose members have no topic in common (silver has events for them, too), offsets that outlive
their group, and share partitions whose start offset or epochs go back. That a rule is broken is certain if the log
is whole. The cause is not: a log assembled from several clusters, or a damaged log, shows the same. A defect is listed
only if its effect on a log is exactly this break; the comments in `RULES` explain how.
"""

import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I64, BoolArray, Columns
from coordinator_core.confidence import CERTAIN, LIKELY
from coordinator_core.history.client_families import client_family
from coordinator_core.history.rows import FORGOTTEN, SUBSCRIPTIONS_APART, SUBSCRIPTIONS_TOGETHER, EventRow
from coordinator_core.inference.commits.commit_anomalies import LOG_START_OFFSET
from coordinator_core.inference.facts.clock import shown_at
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.log_facts import NONE_MS
from coordinator_core.inference.facts.partitions import by_partition
from coordinator_core.inference.groups.owners import OWNED
from coordinator_core.replay import anomalies
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS
from coordinator_core.text import counted

COORDINATOR: Final = "COORDINATOR"
"""Category: a rule of the coordinators is broken."""
CLIENT: Final = "CLIENT"
"""Category: a client's bytes do not follow its protocol, which no coordinator checks."""
LOG: Final = "LOG"
"""Category: the log itself is anomalous, whoever wrote it."""

GROUP: Final = "GROUP"
"""Category: how a group is used. No rule is broken."""

AUDIT: Final = "AUDIT"
"""Category: results that gold lacks because of a fault in Groupledger."""

GENERATION_FELL: Final = "GENERATION_FELL"
EMBEDDED: Final = "EMBEDDED"
CLIENT_LAYOUT: Final = "CLIENT_LAYOUT"
OFFSETS_OUTLIVE_GROUP: Final = "OFFSETS_OUTLIVE_GROUP"
START_OFFSET_WENT_BACK: Final = "START_OFFSET_WENT_BACK"
STATE_EPOCH_FELL: Final = "STATE_EPOCH_FELL"
STATE_EPOCH_UNSET: Final = "STATE_EPOCH_UNSET"
SNAPSHOT_EPOCH_FELL: Final = "SNAPSHOT_EPOCH_FELL"
LEADER_EPOCH_FELL: Final = "LEADER_EPOCH_FELL"
TWO_APPLICATIONS: Final = "TWO_APPLICATIONS"
ONE_APPLICATION: Final = "ONE_APPLICATION"
OTHER: Final = "OTHER"
TIME_WENT_BACK: Final = "TIME_WENT_BACK"
NOT_JUDGED: Final = "NOT_JUDGED"
LOG_NOT_JUDGED: Final = "LOG_NOT_JUDGED"
INPUT_NOT_READ: Final = "INPUT_NOT_READ"
NOT_REPLAYED: Final = "NOT_REPLAYED"
LOG_NOT_REPLAYED: Final = "LOG_NOT_REPLAYED"
"""Not a broken rule: gold lacks the results for a group because of a fault in Groupledger."""


class Rule(NamedTuple):
    meaning: str
    remedy: str
    known_defects: tuple[str, ...] = ()
    """Kafka issues with exactly this effect on a log: by number, or by pull request if there is none."""
    category: str = COORDINATOR
    """Who is responsible for a break."""


RELOAD: Final = (
    "Nothing was lost by it here. Kafka's own loader throws at such a record, so a coordinator that moves may fail to "
    "load the partition: watch its log for 'Failed to load', and upgrade to a version that has the fix."
)
ONE_CLUSTER: Final = (
    "Make sure that the sources are of one cluster and of one life of the topic: a log put together of several breaks "
    "rules where they meet."
)
UNCLEAN: Final = (
    f"{ONE_CLUSTER} If they are, look whether the coordinator topic had an unclean leader election then, which takes "
    "back what had been written."
)

OUR_FAULT: Final = (
    "This is a fault of Groupledger: please report it with `details`, and if you can with the segments of the log "
    "partition."
)

RULES: Final[Mapping[str, Rule]] = {
    # KAFKA-16147: a member that is given back a partition which it is about to revoke loses the partition's epoch, so
    # the coordinator takes the partition for free.
    anomalies.DOUBLE_OWNER: Rule(
        "A partition was given to a member while another member still owned it: both may have read it.",
        "Take the records of the partition between the two times as processed twice.",
        ("KAFKA-16147",),
    ),
    anomalies.CLASSIC_MEMBER_REPEATED: Rule(
        "One generation of a classic group names a member id or a group instance id twice.",
        "No coordinator of Kafka's writes this: see which program or which version of a broker wrote the record.",
    ),
    # KAFKA-21117: a group is converted from the consumer protocol to the classic one while the cleaner runs. The loader
    # reads a classic group, then consumer records whose tombstones come later or were cleaned away.
    anomalies.GROUP_TYPE_MISMATCH: Rule(
        "A record of one group type for an id that a group of another type has: the tombstones of the former group are "
        "missing, or came later.",
        f"See whether the group was converted about then: the cleaner may have taken the tombstones. {RELOAD}",
        ("KAFKA-21117",),
    ),
    # KAFKA-21102: the tombstones of a group or member are cleaned away one by one, so the tombstone of the whole may
    # remain after those of its parts are gone, while the parts' values are still in a segment that is read earlier.
    anomalies.GROUP_TOMBSTONE_TOO_EARLY: Rule(
        "A group was deleted with members or assignments left, whose own tombstones are missing.",
        RELOAD,
        ("KAFKA-21102",),
    ),
    anomalies.MEMBER_TOMBSTONE_TOO_EARLY: Rule(
        "A member was deleted with an assignment left, whose own tombstone is missing.", RELOAD, ("KAFKA-21102",)
    ),
    anomalies.TARGET_TOMBSTONE_TOO_EARLY: Rule(
        "The assignment epoch was deleted with target assignments left, whose own tombstones are missing.",
        RELOAD,
        ("KAFKA-21102",),
    ),
    GENERATION_FELL: Rule(
        "A generation or group epoch is lower than the one before it, with no tombstone between: a coordinator wrote "
        "that had lost what another one knew.",
        UNCLEAN,
    ),
    EMBEDDED: Rule(
        "A subscription or assignment inside a group's record is not what its protocol says: the client that made it "
        "is at fault, or uses a protocol of its own. Kafka stores such bytes unread.",
        "See details for the kind of client. Its topics or partitions are missing from the tables, which say so: null "
        "in subscribed_topics, the member's id in unread_members of silver.group_generations.",
        category=CLIENT,
    ),
    CLIENT_LAYOUT: Rule(
        "A client names a version of the consumer protocol in its subscription or assignment and does not write all "
        "fields of it. Kafka stores such bytes, and reads topics as in version 0.",
        "Nothing is to be done for the tables: topics and partitions were read, and what is missing is null. A Java "
        "consumer in the same group would fail on these bytes: do not mix clients there.",
        category=CLIENT,
    ),
    OFFSETS_OUTLIVE_GROUP: Rule(
        "A group was deleted and an offset committed before stayed in force: no tombstone followed it. A new group of "
        "that id would go on from it.",
        "Before that group id is used again, delete the offset with kafka-consumer-groups --delete-offsets, or expect "
        "the new group to start there.",
    ),
    # The share coordinator takes the start offset of each write as it is, so a write that overtakes another, or comes
    # from a share partition that is no longer the leader's, sets it back; with this change the greater one stays.
    START_OFFSET_WENT_BACK: Rule(
        "A share partition's start offset went back without a reset: a write that was overtaken by a newer one, or one "
        "of a share partition that had been loaded again, was taken. Where the leader changes next, records before the "
        "greater offset may be delivered again.",
        "Look in gold.redeliveries for offsets below the greater start offset from then on: they had been done with.",
        ("apache/kafka#23074",),
    ),
    STATE_EPOCH_FELL: Rule(
        "A share partition's state epoch went back without its deletion, which the share coordinator refuses.",
        UNCLEAN,
    ),
    # An Initialize request with state epoch -1 passes unchecked and is written as it is; brokers never send it.
    STATE_EPOCH_UNSET: Rule(
        "A share partition was initialized with state epoch -1, past the check that fences old epochs: from then on "
        "no write is fenced by it.",
        "Kafka's group coordinator never sends this: see which client has CLUSTER_ACTION on the cluster.",
        ("KAFKA-20743",),
    ),
    SNAPSHOT_EPOCH_FELL: Rule(
        "A share partition's snapshot epoch went back without its deletion: a share coordinator wrote that had not "
        "seen the newest snapshot, or a tombstone is missing.",
        UNCLEAN,
    ),
    LEADER_EPOCH_FELL: Rule(
        "A share partition's leader epoch went back without a reset, which the share coordinator refuses.",
        UNCLEAN,
    ),
    TWO_APPLICATIONS: Rule(
        "From here on the group has members that share no topic with others, directly or through further members: two "
        "applications use one group.id, as a rule. Each rebalance of one stops the other, and lag, offsets and resets "
        "of the group are of both.",
        "Give each application a group.id of its own: `details` name topics and clients of each. A deployment that "
        "changes the topics of all members looks like this while it goes on, until ONE_APPLICATION.",
        category=GROUP,
    ),
    ONE_APPLICATION: Rule(
        "From here on the members of a group that had TWO_APPLICATIONS share topics again, or only those of one "
        "application are left.",
        "Nothing is to be done.",
        category=GROUP,
    ),
    TIME_WENT_BACK: Rule(
        "A record is older than the one before it in its log partition: the partition's leader moved to a broker whose "
        "clock was behind, or a clock was set back. Times of before and after do not compare, and the log has some "
        "moments twice.",
        "Compare the clocks of the brokers (NTP). For what was so at such a moment go by the place in the log.",
        category=LOG,
    ),
    FORGOTTEN: Rule(
        "A new leader loaded the log without records of this group: the log start had moved past them, by retention "
        "or because someone deleted records. From here on the broker knows neither the members nor the offsets that "
        "`details` count, and silver ends them.",
        "Partitions without a committed offset start again at auto.offset.reset: commit what restore says of the time "
        "before. Set cleanup.policy of __consumer_offsets to compact alone, and delete none of its records.",
        category=LOG,
    ),
    NOT_JUDGED: Rule(
        "This group could not be judged, so gold lacks it: no owners, rebalances, commit anomalies or days of it. "
        "Other groups are not concerned, nor is silver. The next audit judges it from its beginning.",
        f"{OUR_FAULT} Until then silver has all that the log tells of the group.",
        category=AUDIT,
    ),
    LOG_NOT_JUDGED: Rule(
        "No group of this log partition could be judged, so gold lacks all of them. Other log partitions are not "
        "concerned, nor is silver. The next audit judges the cluster from the beginning.",
        f"{OUR_FAULT} Until then silver has all that the log tells of its groups.",
        category=AUDIT,
    ),
    INPUT_NOT_READ: Rule(
        "The audit could not read one of its inputs (`details` name it), so gold was made without it: causes that rest "
        "on it are missing or less sure. The next audit judges the cluster from the beginning.",
        "This is a fault of Groupledger: please report it with `details`.",
        category=AUDIT,
    ),
    NOT_REPLAYED: Rule(
        "This group could not be replayed: silver has it as it was before the log offset that `details` name, and gold "
        "lacks it. Other groups are not concerned. The next night replays it from there.",
        f"{OUR_FAULT} Until then bronze has all records of the group.",
        category=AUDIT,
    ),
    LOG_NOT_REPLAYED: Rule(
        "No group of this log partition could be replayed: silver has them as they were before the log offset that "
        "`details` name, and gold lacks them. Other log partitions are not concerned. The next night replays it from "
        "there.",
        f"{OUR_FAULT} Until then bronze has all of its records.",
        category=AUDIT,
    ),
    OTHER: Rule(
        "The log contradicts its own past in a way that has no description of its own.",
        ONE_CLUSTER,
    ),
}
"""The meaning of each rule's break, and what to do about it."""

OF_ONE_RECORD: Final = frozenset({anomalies.CLASSIC_MEMBER_REPEATED, EMBEDDED, CLIENT_LAYOUT})
"""Rules that a single record breaks, whatever came before it."""
OF_TOMBSTONES: Final = frozenset(
    {
        anomalies.GROUP_TYPE_MISMATCH,
        anomalies.GROUP_TOMBSTONE_TOO_EARLY,
        anomalies.MEMBER_TOMBSTONE_TOO_EARLY,
        anomalies.TARGET_TOMBSTONE_TOO_EARLY,
    }
)
"""Rules that lack tombstones break."""


class LogAnomalyRow(NamedTuple):
    """gold.log_anomalies, without the coordinator topic."""

    group_id: str | None
    """None: it concerns no group."""
    group_type: str | None
    rule: str
    log_partition: int
    log_offset: int
    ordinal: int
    """Number within one record."""
    at: int
    topic: str | None
    topic_id: str | None
    partition: int | None
    member_id: str | None
    details: str
    meaning: str
    remedy: str
    known_defects: tuple[str, ...]
    category: str
    method: str
    confidence: str | None
    """None: nothing is inferred."""


def _row(
    rule: str, log_partition: int, log_offset: int, at_ms: int, details: str, method: str, confidence: str | None
) -> LogAnomalyRow:
    """The row of a break that concerns no group, topic or member."""
    place = (rule, log_partition, log_offset, 0, at_ms)
    return LogAnomalyRow(None, None, *place, None, None, None, None, details, *RULES[rule], method, confidence)


CLOCK_STEP_MS_MIN: Final = 1_000
"""Clocks under NTP differ by milliseconds, and a leader may append records in another order than it timestamped
them."""


STEP_DETAILS: Final = re.compile(r"from (?P<before>-?\d+) to (?P<now>-?\d+) \(epoch ms\)")
"""The format in which `time_went_back` writes details."""


def step_of(details: str) -> tuple[int, int] | None:
    """The times (epoch ms) before and after a step back, from the details of its row."""
    found = STEP_DETAILS.match(details)
    return None if found is None else (int(found["before"]), int(found["now"]))


def time_went_back(log_partition: int, log_offset: I64, at_ms: I64, from_log_offset: int) -> list[LogAnomalyRow]:
    """Batches from an offset on that are older than the one before them. Both columns are in log order."""
    rows = 1 + np.flatnonzero((at_ms[:-1] - at_ms[1:] >= CLOCK_STEP_MS_MIN) & (log_offset[1:] >= from_log_offset))
    return [
        clock_step(
            log_partition,
            offset,
            now_ms,
            f"from {before_ms} to {now_ms} (epoch ms): {before_ms - now_ms} ms back, after log offset {offset_before}",
        )
        for offset, now_ms, before_ms, offset_before in zip(
            log_offset[rows].tolist(),
            at_ms[rows].tolist(),
            at_ms[rows - 1].tolist(),
            log_offset[rows - 1].tolist(),
            strict=True,
        )
    ]


def clock_step(log_partition: int, log_offset: int, at_ms: int, details: str) -> LogAnomalyRow:
    """The row of a place where the time of a log partition went back. `details`: as `STEP_DETAILS` reads them."""
    return _row(TIME_WENT_BACK, log_partition, log_offset, at_ms, details, "SUCCESSIVE_BATCHES", CERTAIN)


def not_judged(
    error: Exception, group_id: str, group_type: str | None, log_partition: int, log_offset: int
) -> LogAnomalyRow:
    """The row of a group that could not be judged. `log_offset`: an offset of any of its records."""
    return _of_audit(NOT_JUDGED, _fault_text(error), group_id, group_type, log_partition, log_offset)


def log_not_judged(error: Exception, log_partition: int) -> LogAnomalyRow:
    """The row of a log partition in which no group could be judged."""
    return _of_audit(LOG_NOT_JUDGED, _fault_text(error), None, None, log_partition, 0)


def input_not_read(error: Exception, what: str) -> LogAnomalyRow:
    """The row of an audit input for the whole cluster that could not be read."""
    return _of_audit(INPUT_NOT_READ, f"{what}: {_fault_text(error)}", None, None, 0, 0)


def not_replayed(
    text: str,
    log_partition: int,
    log_offset: int,
    *,
    group_id: str | None,
    group_type: str | None,
    topic_id: str | None = None,
    partition: int | None = None,
) -> LogAnomalyRow:
    """The row of a group, of a share partition of it, or without `group_id` of a log partition, that could not be
    replayed.
    """
    rule = LOG_NOT_REPLAYED if group_id is None else NOT_REPLAYED
    row = _of_audit(rule, text, group_id, group_type, log_partition, log_offset)
    return row._replace(topic_id=topic_id, partition=partition)


def _fault_text(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _of_audit(
    rule: str, details: str, group_id: str | None, group_type: str | None, log_partition: int, log_offset: int
) -> LogAnomalyRow:
    row = _row(rule, log_partition, log_offset, NONE_MS, details, "AUDIT", None)
    return row._replace(group_id=group_id, group_type=group_type)


def group_anomalies(life: GroupLife, from_log_offset: int = 0) -> list[LogAnomalyRow]:
    """Broken rules in the log of one group from an offset on, in log order."""
    events = [event for event in life.events if event.log_offset >= from_log_offset]
    found = (_from_events, _of_applications, _orphaned_offsets, _forgotten)
    rows = [row for rows_of in found for row in rows_of(life, events)]
    return sorted(rows, key=lambda row: (row.log_offset, row.ordinal, row.rule))


def _from_events(life: GroupLife, events: Iterable[EventRow]) -> Iterator[LogAnomalyRow]:
    for event in events:
        if event.event_type != "ANOMALY":
            continue
        code = event.details.get("code", OTHER)
        if _is_explained(life, code, event):
            continue
        rule = EMBEDDED if code.startswith(EMBEDDED) else code if code in RULES else OTHER
        # behind a missing part of the log, only what a record shows by itself contradicts anything
        is_proven = rule in OF_ONE_RECORD or not life.log.has_hole(-1, event.log_offset)
        confidence = CERTAIN if is_proven else LIKELY
        yield _of_event(life, event, rule, _details_of(code, event.details), "REPLAY", confidence)


def _is_explained(life: GroupLife, code: str, event: EventRow) -> bool:
    """Whether a record that may be missing between the two that contradict each other explains that. Between two
    captures of a compacted log this is no break of a rule: the record was there, and nobody read it (KAFKA-19862).
    Compaction keeps the last record of a key, so that a hole may hide every record of it but that one, and also that
    one if it is a tombstone.
    """
    if code == anomalies.DOUBLE_OWNER:  # the one by which the other owner gave the partition up
        message = event.details.get("message", "")
        places = [
            row.from_log_offset
            for row in life.assignments
            if row.assignment in OWNED
            and row.from_log_offset < event.log_offset
            and (row.to_log_offset is None or row.to_log_offset > event.log_offset)
            and message.startswith(f"{row.topic_id}-{row.partition} ")
        ]
        return life.log.has_hole(min(places, default=-1), event.log_offset)
    if code == GENERATION_FELL:  # the deletion of the group
        places = [row.from_log_offset for row in life.generations if row.from_log_offset < event.log_offset]
        return life.log.has_hole(max(places, default=-1), event.log_offset)
    if code not in OF_TOMBSTONES:
        return False
    # the tombstones of what is left, or of the former group
    return life.log.may_have_gap(-1, event.log_offset) or life.log.has_hole(
        _read_at(life, code, event), event.log_offset
    )


def _read_at(life: GroupLife, code: str, event: EventRow) -> int:
    """A place where something was read that a record of `OF_TOMBSTONES` contradicts; -1 if the rows do not show one.

    Compaction takes a tombstone only after the values before it. So a value that was read, and whose tombstone
    compaction took, is from an earlier capture: a hole behind this place explains the contradiction.

    A member of which no assignment was ever read is another matter. Its assignment and the tombstone of that are gone
    from a log that still has the member: this is what fails to load (KAFKA-21102), and a hole explains it no further.
    """
    at, message = event.log_offset, event.details.get("message", "")
    if code == anomalies.GROUP_TYPE_MISMATCH:
        return max((row.from_log_offset for row in life.generations if row.from_log_offset < at), default=-1)
    members = {
        row.member_id: row.from_log_offset
        for row in life.members
        if row.from_log_offset < at and (row.to_log_offset is None or row.to_log_offset >= at)
    }
    if code == anomalies.MEMBER_TOMBSTONE_TOO_EARLY:
        if message.endswith(_NEVER_ASSIGNED):
            return at
        return next((place for member_id, place in members.items() if message.startswith(f"member {member_id!r} ")), -1)
    # every member that is there was left by a deletion of the group; a target may be left of any of them
    choose = max if code == anomalies.GROUP_TOMBSTONE_TOO_EARLY else min
    return choose(members.values(), default=-1)


_NEVER_ASSIGNED: Final = ("its current assignment at epoch 0 left", "it never had a current assignment")
"""No member that was assigned anything has epoch 0."""


def _of_event(life: GroupLife, event: EventRow, rule: str, details: str, method: str, confidence: str) -> LogAnomalyRow:
    at_ms = shown_at(life, event.log_offset, event.at)
    row = _row(rule, life.log_partition, event.log_offset, at_ms, details, method, confidence)
    return row._replace(
        group_id=life.group_id,
        group_type=event.group_type,
        ordinal=event.event_index,
        topic=event.topic,
        partition=event.partition,
        member_id=event.member_id,
    )


def _details_of(code: str, details: Mapping[str, str]) -> str:
    message = f"{code}: {details.get('message', '')}"
    if RULES.get(code, RULES[OTHER]).category != CLIENT or "client_id" not in details:
        return message
    client = " ".join(client_family(details["client_id"])) or details["client_id"]
    return f"{details.get('message', '')}; clients like {client!r}, protocol {details.get('protocol', '')!r}"


RULE_OF_EVENT: Final[Mapping[str, str]] = {
    SUBSCRIPTIONS_APART: TWO_APPLICATIONS,
    SUBSCRIPTIONS_TOGETHER: ONE_APPLICATION,
}


def _of_applications(life: GroupLife, events: Iterable[EventRow]) -> Iterator[LogAnomalyRow]:
    """Where members begin to have no topic in common, and where that ends. The log proves this; that they are two
    applications is inferred."""
    for event in events:
        rule = RULE_OF_EVENT.get(event.event_type)
        if rule is not None:
            details = _applications(event.details.get("applications", "[]"))
            method = "NO_TOPIC_IN_COMMON" if rule == TWO_APPLICATIONS else "TOPICS_IN_COMMON"
            yield _of_event(life, event, rule, details, method, LIKELY)


LOST_OF_GROUP: Final = {"GONE": "the group with ", "IN_PART": "a part of the group, ", "KEPT": ""}
"""How much of a group a new leader did not load, by the detail `group` of the event."""


def _forgotten(life: GroupLife, events: Iterable[EventRow]) -> Iterator[LogAnomalyRow]:
    """Where a new leader did not load all of the group."""
    for event in events:
        if event.event_type == FORGOTTEN:
            of = event.details
            offsets = counted(int(of["offset_count"]), "committed offset")
            members = counted(int(of["member_count"]), "member")
            lost = f"{LOST_OF_GROUP[of['group']]}{members} and {offsets} lost"
            details = f"{lost}: leader epoch {of['leader_epoch']} loaded from log start offset {of['log_start_offset']}"
            yield _of_event(life, event, FORGOTTEN, details, LOG_START_OFFSET, of["confidence"])


def _applications(text: str) -> str:
    """`topics a, b: 2 members, clients x, y; topics c: 1 member, client z`."""
    return "; ".join(
        f"{_named('topic', one['topics'], one['topic_count'])}: {one['member_count']} "
        f"{'member' if one['member_count'] == 1 else 'members'}, "
        f"{_named('client', one['clients'], one['client_count'])}"
        for one in json.loads(text)
    )


def _named(what: str, names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{what if count == 1 else what + 's'} {', '.join(names)}{more}"


def _orphaned_offsets(life: GroupLife, events: Iterable[EventRow]) -> Iterator[LogAnomalyRow]:
    """Offsets that were in force when their group was deleted, and afterwards. The row is at the group's deletion."""
    deletions = [event for event in events if event.event_type == "GROUP_DELETED"]
    commits = life.commits
    if not deletions or not len(commits):
        return
    rows, starts = by_partition(commits, commits.outcome == OUTCOMES.index("APPLIED"))
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        mine = rows[first:end]
        applied_at = commits.applied_log_offset[mine]
        for event in deletions:
            last = int(np.searchsorted(applied_at, event.log_offset)) - 1
            if last < 0 or commits.change[mine[last]] >= CHANGES.index("DELETE"):
                continue
            if last + 1 < len(mine) and commits.change[mine[last + 1]] == CHANGES.index("FIRST"):
                # no offset was in force at the next commit: the tombstone is there, in the same operation
                continue
            row = mine[last]
            if life.may_lack_commit(int(row), event.log_offset):
                continue  # its tombstone may be missing
            details = f"offset {int(commits.committed_offset[row])} of log offset {int(commits.log_offset[row])}"
            of_group = _of_event(life, event, OFFSETS_OUTLIVE_GROUP, details, "NO_TOMBSTONE", LIKELY)
            yield of_group._replace(
                topic=commits.topics[commits.topic[row]], partition=int(commits.partition[row]), member_id=None
            )


@dataclass(frozen=True, slots=True)
class ShareEpochs(Columns):
    """Start offsets and epochs from silver.share_partition_states, in any order. Null is -1."""

    key: I64
    """Number of the share partition."""
    log_offset: I64
    record_kind: I8
    """Index into `RECORD_KINDS`."""
    start_offset: I64
    state_epoch: I64
    snapshot_epoch: I64
    leader_epoch: I64


class ShareBreak(NamedTuple):
    """Rows where a rule is broken, and the rows before them."""

    rule: str
    column: str
    rows: I64
    previous: I64


_TOMBSTONE: Final = RECORD_KINDS.index("TOMBSTONE")
_RESET: Final = RECORD_KINDS.index("RESET")


class ShareRule(NamedTuple):
    """A column that must not go back."""

    rule: str
    column: str
    is_reset_free: bool
    lowest: int = -1
    """The break belongs to this rule if the new value is within these bounds."""
    highest: int = 2**63 - 1


SHARE_RULES: Final = (
    # a start offset of -1 is not set yet, and is not compared
    ShareRule(START_OFFSET_WENT_BACK, "start_offset", is_reset_free=True, lowest=0),
    ShareRule(STATE_EPOCH_FELL, "state_epoch", is_reset_free=False, lowest=0),
    ShareRule(STATE_EPOCH_UNSET, "state_epoch", is_reset_free=False, highest=-1),
    ShareRule(SNAPSHOT_EPOCH_FELL, "snapshot_epoch", is_reset_free=False),
    ShareRule(LEADER_EPOCH_FELL, "leader_epoch", is_reset_free=True),
)


def share_breaks(states: ShareEpochs) -> list[ShareBreak]:
    """Where a share partition's start offset or epochs went back without a reset or a deletion."""
    order = np.lexsort((states.log_offset, states.key))
    kind = states.record_kind[order]
    goes_on: BoolArray = states.key[order][1:] == states.key[order][:-1]
    goes_on &= (kind[1:] != _TOMBSTONE) & (kind[:-1] != _TOMBSTONE)
    breaks = []
    for rule, column, is_reset_free, lowest, highest in SHARE_RULES:
        values: I64 = getattr(states, column)[order]
        is_broken = goes_on & (values[1:] < values[:-1]) & (values[1:] >= lowest) & (values[1:] <= highest)
        if is_reset_free:
            is_broken &= kind[1:] != _RESET
        places = np.flatnonzero(is_broken)
        if len(places):
            breaks.append(ShareBreak(rule, column, order[places + 1], order[places]))
    return breaks
