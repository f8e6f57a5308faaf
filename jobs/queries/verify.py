"""verify: is the ledger's end state what the brokers themselves say?

The ends of the coordinators' logs are noted, the cluster is asked about its groups, members, assignments, committed
offsets, share offsets and share states, and the ends are noted again. Then the log is captured and replayed up to
there, and each answer is held against the states which the ledger has between the two ends (`coordinator_core.verify`
says what counts as equal). With what was captured before alone, the answers are held against the end of that.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TextIO

from coordinator_core.coverage import CoverageKind, CoverageRange
from coordinator_core.java.hash_codes import string_order
from coordinator_core.lookup import SharePartitionKey, group_partition, share_partition_partition
from coordinator_core.share_state.lane import DELIVERY_STATES
from coordinator_core.verify import (
    EXISTS,
    MEMBER_EXISTS,
    Difference,
    Facts,
    Path,
    Reason,
    Verdict,
    changes_between,
    differences,
    explain_group,
)
from jobs.bronze import coverage as coverage_rows
from jobs.console.command_name import command
from jobs.console.output import Value, write_answers
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, SettingsError
from jobs.queries.group_model import CLASSIC, CONSUMER, SHARE, STREAMS
from jobs.queries.verify_ledger import (
    NOTHING,
    GroupHistory,
    Ledger,
    LogPartition,
    OffsetHistory,
    ShareHistory,
    Window,
    assignment_path,
    joined_batches,
)
from jobs.settings import Settings, place_words
from jobs.sources.admin import (
    Admin,
    AssignedPartition,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    Refusal,
    ShareOffset,
    ShareState,
    Topic,
    TopicPartitionId,
)
from jobs.sources.broker import Broker, OffsetSpec
from schemas import consumer_offsets, share_group_state
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES
from schemas.tables.state import RUNS

CLUSTER_AUTHORIZATION_FAILED: Final = 31
GROUP_ID_NOT_FOUND: Final = 69
TOPIC_AUTHORIZATION_FAILED: Final = 29
NOT_INITIALIZED: Final = 42
"""INVALID_REQUEST: what ReadShareGroupState says of a share partition without a state."""

NO_PARTITION: Final = -1

GAPS: Final = frozenset({CoverageKind.MISSING, CoverageKind.CORRUPT})
TEXT_MAX: Final = 300
"""Of a value, as shown."""

ASSIGNOR: Final[Path] = ("assignor",)
STATE_EPOCH: Final[Path] = ("state epoch",)
START_OFFSET: Final[Path] = ("start offset",)
LEADER_EPOCH: Final[Path] = ("leader epoch",)
BATCHES: Final[Path] = ("batches",)

NOT_FOUND: Final = Refusal.of(GROUP_ID_NOT_FOUND)
LEFT_OUT: Final = "the broker did not list it, and knew it when asked by name: verify again"
HIDDEN: Final = "the principal may not describe the topic: grant it Describe"
NO_SNAPSHOT: Final = "no snapshot of its state was captured"
UNREAD: Final = "its client writes assignments in a form of its own: ask the client"

COLUMNS: Final = ("VERDICT", "WHAT", "GROUP", "OF", "FIELD", "BROKER", "LEDGER", "REASON")
SUMMARY_COLUMNS: Final = ("WHAT", "COMPARED", "EQUAL", "NOT-IN-LOG", "MOVED-ON", "CANNOT-TELL", "DIFFERENT")


class What(StrEnum):
    """What is compared, in the order in which it is told."""

    GROUP = "group"
    MEMBER = "member"
    ASSIGNMENT = "assignment"
    OFFSET = "offset"
    SHARE_OFFSET = "share-offset"
    SHARE_STATE = "share-state"


class Thing(NamedTuple):
    """One thing that is compared. `name` is empty for the group itself."""

    what: What
    group_id: str
    name: str = ""


class Finding(NamedTuple):
    """How one thing came out; of one that is not equal, one for each field in which it is not."""

    verdict: Verdict
    thing: Thing
    field: str | None = None
    told: Any = None
    """By the broker."""
    known: Any = None
    """By the ledger."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a cluster said of itself, and the ends of its coordinators' logs before and after."""

    group_ids: frozenset[str] | None
    """Whom it was asked about; None: all."""
    starts: Mapping[LogPartition, int]
    before: Mapping[LogPartition, int]
    after: Mapping[LogPartition, int]
    topics: Mapping[str, Topic]
    descriptions: Mapping[str, GroupDescription | Refusal]
    offsets: Mapping[str, Mapping[tuple[str, int], CommittedOffset] | Refusal]
    share_offsets: Mapping[str, Mapping[TopicPartitionId, ShareOffset | Refusal] | Refusal]
    share_states: Mapping[SharePartitionKey, ShareState | Refusal]

    def partition_count(self, topic: str) -> int:
        """Of a coordinator topic; 0 where it is not there."""
        return self.topics[topic].partition_count if topic in self.topics else 0

    def group_log(self, group_id: str) -> LogPartition:
        """The log partition which holds a group."""
        count = self.partition_count(consumer_offsets.TOPIC)
        return consumer_offsets.TOPIC, group_partition(group_id, count) if count else NO_PARTITION

    def share_log(self, key: SharePartitionKey) -> LogPartition:
        """The log partition which holds a share partition."""
        count = self.partition_count(share_group_state.TOPIC)
        return share_group_state.TOPIC, share_partition_partition(key, count) if count else NO_PARTITION


def ask(broker: Broker, group_ids: Collection[str] | None = None) -> Asked:
    """Ask a cluster about some groups, or all. Raises BrokerError."""
    admin = Admin(broker)
    topics = admin.topics()
    coordinators = (consumer_offsets.TOPIC, share_group_state.TOPIC)
    logs = [(name, number) for name in coordinators if name in topics for number in range(topics[name].partition_count)]
    if consumer_offsets.TOPIC not in topics:
        raise JobError(
            f"this cluster shows no topic {consumer_offsets.TOPIC}: no group was ever in it, or the principal may not "
            "describe it"
        )
    starts = broker.offsets(logs, OffsetSpec.EARLIEST)
    before = broker.offsets(logs)
    listed = {name: it.group_type for name, it in admin.list_groups().items()}
    if group_ids is not None:
        listed = {name: listed.get(name, "") for name in group_ids}
    descriptions = admin.describe_groups(listed)
    types = {name: it.group_type for name, it in descriptions.items() if isinstance(it, GroupDescription)}
    offsets = admin.committed_offsets([name for name, kind in types.items() if kind != SHARE])
    share_offsets = admin.share_offsets([name for name, kind in types.items() if kind == SHARE])
    told = {
        SharePartitionKey(group_id, place.topic_id, place.partition): offset
        for group_id, places in share_offsets.items()
        if not isinstance(places, Refusal)
        for place, offset in places.items()
    }
    # as the coordinator tells it: any higher one would be written down
    leader_epochs = {key: offset.leader_epoch for key, offset in told.items() if isinstance(offset, ShareOffset)}
    share_states = admin.share_states(told, leader_epochs)
    after = broker.offsets(logs)
    return Asked(
        None if group_ids is None else frozenset(group_ids),
        starts,
        before,
        after,
        topics,
        descriptions,
        offsets,
        share_offsets,
        share_states,
    )


# --- what the broker said, as facts


def description_facts(group: GroupDescription) -> dict[Path, Any]:
    """A description as facts, of the form in which the ledger gives them."""
    facts: dict[Path, Any] = {EXISTS: True, ("type",): group.group_type, ("state",): group.state}
    if group.group_type == CLASSIC:
        facts["protocol_type",] = group.protocol_type or ""
        facts["protocol_name",] = group.protocol_name or ""
    else:
        facts["group epoch",] = group.group_epoch
        facts["assignment epoch",] = group.assignment_epoch
    if group.group_type == CONSUMER:
        facts["assignor",] = group.protocol_name
    if group.group_type == STREAMS:
        facts["topology epoch",] = group.topology_epoch
    facts["member count",] = len(group.members)
    for member in group.members:
        facts.update(_told_member(group.group_type, member))
    return facts


def _told_member(group_type: str, member: GroupMember) -> Iterator[tuple[Path, Any]]:
    names = ["client_id", "client_host"]
    if group_type != SHARE:
        names.append("instance_id")
    if group_type != CLASSIC:
        names += ["member_epoch", "rack_id"]
    if group_type == CONSUMER:
        names.append("uses_classic_protocol")
    yield ("member", member.member_id, MEMBER_EXISTS), True
    for name in names:
        yield ("member", member.member_id, name), getattr(member, name)
    yield from _told_partitions(member.member_id, member.assigned, is_target=False)
    yield from _told_partitions(member.member_id, member.target or (), is_target=True)


def _told_partitions(
    member_id: str, partitions: Iterable[AssignedPartition], *, is_target: bool
) -> Iterator[tuple[Path, Any]]:
    for it in partitions:
        path = assignment_path(member_id, it.topic, it.partition, it.task_type, is_target=is_target)
        yield path, it.topic_id or True


# --- the verdicts


Explain = Callable[[Difference], Reason | None]
Lacks = Callable[[Difference], str | None]
"""What of the log the ledger lacks that may be why."""


def _nothing(_: Difference) -> None:
    """Nothing explains a difference, nothing is lacking."""


OF_ALL_MEMBERS: Final = frozenset({"state", "member count", "assignor", "protocol_name"})
"""Facts of a group which hang on who is in it."""


class Hole(NamedTuple):
    """The last stretch of a log partition that compaction took before it was captured."""

    from_offset: int
    text: str


class Judge:
    """Holds a cluster's answers against the ledger, thing by thing.

    `gaps` say in words what the warehouse lacks of log partitions, `compacted` where compaction was faster than
    capture, `behind` which of them go on at the broker;
    `former` are log partitions with records of a group or share partition, by coordinator topic and key, for which the
    broker looks elsewhere; `unlisted` is what the broker says when it is asked for groups which it did not list;
    `hidden` are topics which this principal may not describe.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        gaps: Mapping[LogPartition, str],
        compacted: Mapping[LogPartition, Hole],
        behind: Mapping[LogPartition, str],
        unlisted: Mapping[str, GroupDescription | Refusal],
        hidden: Collection[str] = (),
        former: Mapping[tuple[str, str], Collection[int]] | None = None,
    ) -> None:
        self._asked = asked
        self._gaps = gaps
        self._compacted = compacted
        self._behind = behind
        self._unlisted = unlisted
        self._hidden = frozenset(hidden)
        self._former = former or {}
        self._names = {topic.topic_id: topic.topic for topic in asked.topics.values()}

    def groups(self, known: Mapping[str, GroupHistory]) -> Iterator[Finding]:
        """Groups, members and assignments."""
        for group_id in {**self._asked.descriptions, **known}:
            answer = self._asked.descriptions.get(group_id, NOT_FOUND)
            if isinstance(answer, Refusal) and answer.code != GROUP_ID_NOT_FOUND:
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=answer.name)
                continue
            told = {} if isinstance(answer, Refusal) else description_facts(answer)
            states = known[group_id].states(self._names) if group_id in known else [{}]
            if not any(ASSIGNOR in state for state in states):
                told.pop(ASSIGNOR, None)  # no member asks for one: it is the broker's setting, and in no log
            unlike = [it for it in differences(told, states[0], changes_between(states)) if not _is_untold(it)]
            by_name = self._unlisted.get(group_id, NOT_FOUND)
            if unlike and by_name != NOT_FOUND:
                reason = by_name.name if isinstance(by_name, Refusal) else LEFT_OUT
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=reason)
                continue
            state = None if isinstance(answer, Refusal) else answer.state
            explain = partial(explain_group, told_state=state, topic_ids=frozenset(self._names))
            lacks = self._lacks_deletions(group_id, known[group_id].begun, unlike) if group_id in known else _nothing
            log = self._asked.group_log(group_id)
            of_before = self._of_before(log, group_id)
            yield from self._findings(
                partial(_of_description, group_id), told, unlike, [log], explain, lacks, of_before
            )
            if isinstance(answer, GroupDescription):
                for member in answer.members:
                    if member.is_unread:
                        thing = Thing(What.ASSIGNMENT, group_id, f"all of {member.member_id}")
                        yield Finding(Verdict.CANNOT_TELL, thing, reason=UNREAD)

    def offsets(self, known: Mapping[str, OffsetHistory]) -> Iterator[Finding]:
        """Committed offsets."""
        for group_id in {**self._asked.offsets, **known}:
            answer = self._asked.offsets.get(group_id, {})
            description = self._asked.descriptions.get(group_id) or self._unlisted.get(group_id)
            if isinstance(answer, Refusal) or _is_refused(description):
                if isinstance(answer, Refusal):  # else it is said of the group
                    yield Finding(Verdict.CANNOT_TELL, Thing(What.OFFSET, group_id), reason=answer.name)
                continue
            told: dict[Path, Any] = {("offset", *place): tuple(offset) for place, offset in answer.items()}
            history = known.get(group_id, OffsetHistory())
            unlike = differences(told, history.base, history.changes)
            lacks = self._lacks_deletions(group_id, history.applied, unlike)
            log = self._asked.group_log(group_id)
            of_before = self._of_before(log, group_id)
            yield from self._findings(
                partial(_of_offset, group_id), told, unlike, [log], lacks=lacks, of_before=of_before
            )

    def shares(
        self, known: Mapping[SharePartitionKey, ShareHistory], initialized: Collection[SharePartitionKey]
    ) -> Iterator[Finding]:
        """Start offsets of share partitions, and what the share coordinator keeps of them."""
        told_offsets: dict[SharePartitionKey, ShareOffset | Refusal] = {}
        refused: dict[str, Refusal] = {}
        for group_id, answer in self._asked.share_offsets.items():
            if isinstance(answer, Refusal):
                refused[group_id] = answer
                yield Finding(Verdict.CANNOT_TELL, Thing(What.SHARE_OFFSET, group_id), reason=answer.name)
                continue
            for place, offset in answer.items():
                told_offsets[SharePartitionKey(group_id, place.topic_id, place.partition)] = offset
        for key in {**told_offsets, **known}:
            description = self._asked.descriptions.get(key.group_id) or self._unlisted.get(key.group_id)
            if key.group_id in refused or _is_refused(description):
                continue
            history = known.get(key, ShareHistory(NOTHING))
            states = history.states()
            yield from self._share_offset(key, told_offsets.get(key), history, states, initialized)
            if key in self._asked.share_states:
                yield from self._share_state(key, self._asked.share_states[key], history, states, initialized)

    def _share_offset(
        self,
        key: SharePartitionKey,
        answer: ShareOffset | Refusal | None,
        history: ShareHistory,
        states: Sequence[Facts],
        initialized: Collection[SharePartitionKey],
    ) -> Iterator[Finding]:
        thing = Thing(What.SHARE_OFFSET, key.group_id, self._place(key))
        if isinstance(answer, Refusal):
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.name)
            return
        told: dict[Path, Any] = {}
        if answer is not None:
            told = {EXISTS: True, START_OFFSET: answer.start_offset, LEADER_EPOCH: answer.leader_epoch}
        unlike = _differences_in(told, states, (EXISTS, START_OFFSET, LEADER_EPOCH))
        yield from self._share_findings(key, thing, told, unlike, history, initialized)

    def _share_state(
        self,
        key: SharePartitionKey,
        answer: ShareState | Refusal,
        history: ShareHistory,
        states: Sequence[Facts],
        initialized: Collection[SharePartitionKey],
    ) -> Iterator[Finding]:
        thing = Thing(What.SHARE_STATE, key.group_id, self._place(key))
        told: dict[Path, Any] = {}
        if isinstance(answer, ShareState):
            told = {EXISTS: True, STATE_EPOCH: answer.state_epoch, START_OFFSET: answer.start_offset}
            told[BATCHES] = joined_batches(answer.batches)
        elif answer.code == CLUSTER_AUTHORIZATION_FAILED:
            return  # it is said of all of them together
        elif answer.code != NOT_INITIALIZED:
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.name)
            return
        unlike = _differences_in(told, states, (EXISTS, STATE_EPOCH, START_OFFSET, BATCHES))
        if not told and not unlike:
            yield Finding(Verdict.EQUAL, thing)  # it was there when it was listed, and both say that it went
        yield from self._share_findings(key, thing, told, unlike, history, initialized)

    def _share_findings(
        self,
        key: SharePartitionKey,
        thing: Thing,
        told: Facts,
        unlike: Collection[Difference],
        history: ShareHistory,
        initialized: Collection[SharePartitionKey],
    ) -> Iterator[Finding]:
        logs = [self._asked.share_log(key), self._asked.group_log(key.group_id)]
        explain = partial(self._explain_share, key, initialized)
        lacks = None if history.is_complete else NO_SNAPSHOT
        of_before = self._of_before(logs[0], key.as_coordinator_key())
        yield from self._findings(lambda _: thing, told, unlike, logs, explain, lambda _: lacks, of_before)

    def _explain_share(
        self, key: SharePartitionKey, initialized: Collection[SharePartitionKey], difference: Difference
    ) -> Reason | None:
        if difference.path != EXISTS or difference.told:
            return None
        if key.topic_id not in self._names:
            return Reason.TOPIC_DELETED
        return None if key in initialized else Reason.SHARE_INITIALIZING

    def _of_before(self, log: LogPartition, key: str) -> str | None:
        """In words: the log partitions with records of a group or share partition that were not compared."""
        topic, number = log
        former = sorted(self._former.get((topic, key), ()))
        if not former:
            return None
        there = " and ".join(f"{topic}-{partition}" for partition in former)
        return (
            f"it is in {topic}-{number} now that the topic has {self._asked.partition_count(topic)} partitions: what "
            f"{there} has of it is of before, and was not compared"
        )

    def _place(self, key: SharePartitionKey) -> str:
        return f"{self._names.get(key.topic_id, key.topic_id)}-{key.partition}"

    def _lacks_deletions(self, group_id: str, written: Mapping[Path, int], unlike: Collection[Difference]) -> Lacks:
        """What the ledger has and the broker has not may have been deleted by a tombstone which the cleaner took, after
        delete.retention.ms, before it was captured. `written`: the offset of the record that brought a fact."""
        hole = self._compacted.get(self._asked.group_log(group_id))
        if hole is None:
            return _nothing
        gone = {
            it.path for it in unlike if it.told is None and written.get(it.path, hole.from_offset) < hole.from_offset
        }
        members = {path[1] for path in gone if path[0] == "member"}

        def lacks(it: Difference) -> str | None:
            is_of_gone = it.path in gone or (it.path[0] in ("assigned", "target") and it.path[1] in members)
            return hole.text if is_of_gone or (members and it.path[0] in OF_ALL_MEMBERS) else None

        return lacks

    def _findings(
        self,
        thing_of: Callable[[Path], Thing],
        told: Facts,
        unlike: Collection[Difference],
        logs: Sequence[LogPartition],
        explain: Explain = _nothing,
        lacks: Lacks = _nothing,
        of_before: str | None = None,
    ) -> Iterator[Finding]:
        """A finding for each difference, and for each thing that has none. `logs` are those which the facts are from,
        `lacks` what else the ledger cannot know, `of_before` what of it did not count."""
        missing = {thing_of(it.path) for it in unlike if it.path[-1] == EXISTS[0]}
        # of what one side has not, the other side's facts say nothing more
        if any(it.path == EXISTS for it in unlike):
            unlike, told = [it for it in unlike if it.path == EXISTS], {}
        unlike = [it for it in unlike if it.path[-1] == EXISTS[0] or thing_of(it.path) not in missing]
        gap = next((self._gaps[log] for log in logs if log in self._gaps), None)
        behind = next((self._behind[log] for log in logs if log in self._behind), None)
        for it in unlike:
            thing = thing_of(it.path)
            is_hidden = thing.what is What.OFFSET and it.told is None and it.path[1] in self._hidden
            verdict, why = _verdict(it, explain(it), HIDDEN if is_hidden else lacks(it) or gap, behind)
            if verdict in (Verdict.DIFFERENT, Verdict.CANNOT_TELL) and of_before is not None:
                why = of_before if why is None else f"{why}; {of_before}"
            yield Finding(verdict, thing, _field(it.path), it.told, it.known, why)
        differing = {thing_of(it.path) for it in unlike}
        for thing in dict.fromkeys(thing_of(path) for path in told):
            if thing not in differing:
                yield Finding(Verdict.EQUAL, thing)


def _verdict(
    difference: Difference, reason: Reason | None, lacks: str | None, behind: str | None
) -> tuple[Verdict, str | None]:
    if reason is not None:
        return Verdict.NOT_IN_LOG, reason
    if difference.has_moved:
        return Verdict.MOVED_ON, None
    return (Verdict.DIFFERENT, behind) if lacks is None else (Verdict.CANNOT_TELL, lacks)


def _is_refused(answer: GroupDescription | Refusal | None) -> bool:
    return isinstance(answer, Refusal) and answer.code != GROUP_ID_NOT_FOUND


def _is_untold(difference: Difference) -> bool:
    """What brokers before 4.1 do not tell."""
    return difference.path[-1] == "uses_classic_protocol" and difference.told is None


def _differences_in(told: Facts, states: Sequence[Facts], paths: Collection[Path]) -> tuple[Difference, ...]:
    """Differences in some facts alone."""
    some = [{path: state[path] for path in paths if path in state} for state in states]
    return differences(told, some[0], changes_between(some))


def _of_description(group_id: str, path: Path) -> Thing:
    """What a fact of a description is a fact of."""
    match path:
        case ("member", member_id, _):
            return Thing(What.MEMBER, group_id, str(member_id))
        case ("assigned" | "target", member_id, place):
            return Thing(What.ASSIGNMENT, group_id, f"{place} of {member_id}")
    return Thing(What.GROUP, group_id)


def _of_offset(group_id: str, path: Path) -> Thing:
    _, topic, partition = path
    return Thing(What.OFFSET, group_id, f"{topic}-{partition}")


def _field(path: Path) -> str:
    return str(path[0] if path[0] in ("assigned", "target", "offset") else path[-1])


# --- what the warehouse has


def windows_of(
    asked: Asked, coverage: Mapping[LogPartition, Sequence[CoverageRange]]
) -> tuple[dict[LogPartition, Window], dict[LogPartition, str]]:
    """Log ends between which each log partition's answers were given, as far as the warehouse has them; and in words
    where it ends before that."""
    windows: dict[LogPartition, Window] = {}
    behind: dict[LogPartition, str] = {}
    for log, to_end in asked.after.items():
        captured_end = max((r.to_offset + 1 for r in coverage.get(log, ())), default=0)
        windows[log] = Window(min(asked.before[log], captured_end), min(to_end, captured_end))
        if captured_end < to_end:
            behind[log] = f"the log ends at {to_end}, the warehouse at {captured_end}"
    return windows, behind


def gaps_of(asked: Asked, coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> dict[LogPartition, str]:
    """What the warehouse lacks of each log partition, in words, where that may make it differ from its broker.

    What was deleted below the log's start before anything was captured the broker does not have either.
    """
    gaps: dict[LogPartition, str] = {}
    for log, start in asked.starts.items():
        was_captured = False
        for r in coverage.get(log, ()):
            if r.kind in GAPS and (was_captured or r.to_offset >= start):
                gaps[log] = f"offsets {r.from_offset} to {r.to_offset} of {log[0]}-{log[1]} are {r.kind.name}"
                break
            was_captured = was_captured or r.kind is CoverageKind.CAPTURED
        else:
            if start < asked.before[log] and not was_captured:
                gaps[log] = f"nothing of {log[0]}-{log[1]} was captured"
    return gaps


def compacted_of(coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> dict[LogPartition, Hole]:
    """The last stretch of each log partition that compaction took before it was captured."""
    return {
        log: Hole(
            r.from_offset,
            f"a deletion may have been in offsets {r.from_offset} to {r.to_offset}, "
            f"which {log[0]}-{log[1]} had lost to compaction when it was captured",
        )
        for log, ranges in coverage.items()
        for r in ranges
        if r.kind is CoverageKind.COMPACTED
    }


# --- the job


def verify(warehouse: Warehouse, cluster_id: str, asked: Asked, admin: Admin) -> list[Finding]:
    """A finding or more for each thing that the cluster or the ledger knows of, in the order in which they are told."""
    coverage = coverage_rows.from_table(warehouse.read(COVERAGE, where={"cluster_id": cluster_id}))
    windows, behind = windows_of(asked, coverage)
    counts = {topic: asked.partition_count(topic) for topic in (consumer_offsets.TOPIC, share_group_state.TOPIC)}
    ledger = Ledger(warehouse, cluster_id, windows, asked.group_ids, counts)
    groups, offsets, shares = ledger.groups(), ledger.committed_offsets(), ledger.share_partitions()
    unlisted = {
        group_id: str(history.generations[0]["group_type"])
        for group_id, history in groups.items()
        if group_id not in asked.descriptions and history.generations
    }
    unseen = {str(path[1]) for history in offsets.values() for path in history.base} - asked.topics.keys()
    hidden = [name for name, it in admin.refused_topics(unseen).items() if it.code == TOPIC_AUTHORIZATION_FAILED]
    judge = Judge(
        asked,
        gaps=gaps_of(asked, coverage),
        compacted=compacted_of(coverage),
        behind=behind,
        unlisted=admin.describe_groups(unlisted),
        hidden=hidden,
        former=ledger.former,
    )
    findings = [*judge.groups(groups), *judge.offsets(offsets), *judge.shares(shares, ledger.initialized())]
    order = list(What)
    return sorted(
        findings,
        key=lambda it: (
            order.index(it.thing.what),
            string_order(it.thing.group_id),
            string_order(it.thing.name),
            it.field or "",
        ),
    )


def summary_rows(findings: Iterable[Finding]) -> list[tuple[Value, ...]]:
    """One row for each kind of things: how many were compared, and how they came out."""
    worst: dict[Thing, Verdict] = {}
    for it in findings:
        worst[it.thing] = max(it.verdict, worst.get(it.thing, Verdict.EQUAL))
    counts = Counter((thing.what, verdict) for thing, verdict in worst.items())
    return [
        (what.value, sum(counts[what, verdict] for verdict in Verdict), *(counts[what, verdict] for verdict in Verdict))
        for what in What
    ]


def tell(findings: Sequence[Finding], asked: Asked, output_format: str, verbose: bool, out: TextIO) -> Iterator[str]:
    """Print the findings, in a table after their summary; gives what else is to be said, line by line."""
    shown = [it for it in findings if verbose or it.verdict is not Verdict.EQUAL]
    if output_format == "table":
        write_answers(SUMMARY_COLUMNS, summary_rows(findings), output_format, out)
        out.write("\n" if shown else "")
    if shown or output_format != "table":
        write_answers(COLUMNS, [_cells(it) for it in shown], output_format, out)
    refused = [it for it in asked.share_states.values() if isinstance(it, Refusal)]
    if any(it.code == CLUSTER_AUTHORIZATION_FAILED for it in refused):
        yield "share states were not compared: the principal needs ClusterAction on the cluster to read them"


def _cells(it: Finding) -> tuple[Value, ...]:
    told, known = it.told, it.known
    if it.field == BATCHES[0] and told is not None and known is not None:
        told, known = (
            tuple(batch for batch in one if batch not in other) for one, other in ((told, known), (known, told))
        )
    place = (it.thing.what.value, it.thing.group_id, it.thing.name or None, it.field)
    return (it.verdict.name, *place, _text(it.field, told), _text(it.field, known), it.reason)


def _batch_text(batch: tuple[int, int, int, int]) -> str:
    first_offset, last_offset, state, count = batch
    return f"{first_offset}-{last_offset} {DELIVERY_STATES[state] if state < len(DELIVERY_STATES) else state} {count}"


def _text(field: str | None, value: Any) -> Value:
    if field == What.OFFSET and value is not None:
        offset, leader_epoch, metadata = value
        more = [f"leader epoch {leader_epoch}"] if leader_epoch is not None else []
        more += [f"metadata {metadata!r}"] if metadata else []
        value = f"{offset} ({', '.join(more)})" if more else offset
    elif field == BATCHES[0] and value is not None:
        value = ", ".join(map(_batch_text, value))
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return value[:TEXT_MAX] + "..."
    return value  # type: ignore[no-any-return]


def run_verify(
    settings: Settings,
    ledger: Callable[[], Warehouse],
    *,
    group_ids: Collection[str] | None,
    output_format: str,
    verbose: bool,
    say: Callable[[str], None],
    out: TextIO | None = None,
) -> Verdict:
    """Ask the cluster, compare with the ledger, and print. Gives the worst verdict.

    `ledger` gives the warehouse once the cluster is asked: brought up to there, or as it is. Raises BrokerError, and
    JobError where there is nothing to compare with.
    """
    address = settings.broker_address
    if address is None:
        raise SettingsError("verify asks a live cluster: give --bootstrap-server HOST:PORT, or set bootstrap_servers")
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        asked = ask(broker, group_ids)
        warehouse = ledger()
        _require_replayed(warehouse, settings.cluster_id)
        findings = verify(warehouse, settings.cluster_id, asked, Admin(broker))
    for remark in tell(findings, asked, output_format, verbose, out or sys.stdout):
        say(remark)
    return max((it.verdict for it in findings), default=Verdict.EQUAL)


def _require_replayed(warehouse: Warehouse, cluster_id: str) -> None:
    """Raises JobError where silver is not of all that was captured."""
    if not any(file.partition_values["cluster_id"] == cluster_id for file in warehouse.files(RECORD_BATCHES)):
        return  # nothing was captured: it is said of each log partition
    replayed = warehouse.read(RUNS, ["bronze_version"], where={"cluster_id": cluster_id})["bronze_version"].to_pylist()
    if max(replayed, default=-1) < warehouse.version(RECORD_BATCHES):
        raise JobError(
            f"more was captured than replayed: run {command('replay' + place_words(warehouse.root, cluster_id))} "
            "first, or leave --captured away"
        )
