"""Verdicts of verify: each answer of a broker against the ledger, with the reason for every difference."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from coordinator_core.log_partitions import LogPartition
from coordinator_core.lookup import SharePartitionKey
from coordinator_core.verify import (
    EXISTS,
    TOPOLOGY_DESCRIPTION,
    Difference,
    Facts,
    Path,
    Reason,
    Verdict,
    changes_between,
    differences,
    explain_group,
)
from jobs.queries.verify_broker import GROUP_ID_NOT_FOUND, NOT_FOUND, Asked, description_facts
from jobs.queries.verify_ledger import NOTHING, GroupInWindow, OffsetHistory, ShareHistory, joined_batches
from jobs.sources.admin_answers import GroupDescription, Refusal, ShareOffset, ShareState

CLUSTER_AUTHORIZATION_FAILED: Final = 31
TOPIC_AUTHORIZATION_FAILED: Final = 29
NOT_INITIALIZED: Final = 42
"""INVALID_REQUEST: what ReadShareGroupState says of a share partition without a state."""
ASSIGNOR: Final[Path] = ("assignor",)
STATE_EPOCH: Final[Path] = ("state epoch",)
START_OFFSET: Final[Path] = ("start offset",)
LEADER_EPOCH: Final[Path] = ("leader epoch",)
BATCHES: Final[Path] = ("batches",)
LEFT_OUT: Final = "the broker did not list it, and knew it when asked by name: verify again"
HIDDEN: Final = "the principal may not describe the topic: grant it Describe"
NO_SNAPSHOT: Final = "no snapshot of its state was captured"
UNREAD: Final = "its client writes assignments in a form of its own: ask the client"


class What(StrEnum):
    """What is compared, in the order of the report."""

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
    described: Any = None
    """By the broker."""
    known: Any = None
    """By the ledger."""
    reason: str | None = None


Explain = Callable[[Difference], Reason | None]
Lacks = Callable[[Difference], str | None]
"""What of the log the ledger lacks that may be why."""


def _nothing(_: Difference) -> None:
    """Nothing explains a difference, nothing is lacking."""


def _not_dropped_yet(_: Difference) -> Reason:
    """Explains all there is of a group that nobody but the broker knows."""
    return Reason.NOT_DROPPED_YET


EMPTY: Final = "Empty"
OF_ALL_MEMBERS: Final = frozenset({"state", "member count", "assignor", "protocol_name"})
"""Facts of a group which hang on who is in it."""


class Hole(NamedTuple):
    """The last range of a log partition that compaction took before it was captured."""

    from_offset: int
    text: str


class Judge:
    """Holds a cluster's answers against the ledger, thing by thing.

    `gaps` say in words what the warehouse lacks of log partitions, `compacted` where compaction was faster than
    capture, `behind` which of them go on at the broker;
    `former` are log partitions with records of a group or share partition, by coordinator topic and key, for which the
    broker looks elsewhere; `unlisted` is what the broker says when it is asked for groups which it did not list;
    `hidden` are topics which this principal may not describe; `left_empty` are groups that went at a marker.
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
        left_empty: Collection[str] = (),
        former: Mapping[tuple[str, str], Collection[int]] | None = None,
    ) -> None:
        self._asked = asked
        self._gaps = gaps
        self._compacted = compacted
        self._behind = behind
        self._unlisted = unlisted
        self._hidden = frozenset(hidden)
        self._left_empty = frozenset(left_empty)
        self._former = former or {}
        self._names = {it.topic_id: it.topic for it in asked.topics.values() if it.topic_id is not None}

    def groups(self, known: Mapping[str, GroupInWindow]) -> Iterator[Finding]:
        """Groups, members and assignments."""
        for group_id in {**self._asked.descriptions, **known}:
            answer = self._asked.descriptions.get(group_id, NOT_FOUND)
            if isinstance(answer, Refusal) and answer.code != GROUP_ID_NOT_FOUND:
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=answer.why)
                continue
            described = {} if isinstance(answer, Refusal) else description_facts(answer)
            states = known[group_id].states(self._names) if group_id in known else [{}]
            if not any(ASSIGNOR in state for state in states):
                described.pop(ASSIGNOR, None)  # no member asks for one: it is the broker's setting, and in no log
            unlike = [it for it in differences(described, states[0], changes_between(states)) if not _is_unknown(it)]
            by_name = self._unlisted.get(group_id, NOT_FOUND)
            if unlike and by_name != NOT_FOUND:
                reason = by_name.why if isinstance(by_name, Refusal) else LEFT_OUT
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=reason)
                continue
            state = None if isinstance(answer, Refusal) else answer.state
            explain: Explain = partial(explain_group, described_state=state, topic_ids=frozenset(self._names))
            if group_id in self._left_empty and group_id not in known and state == EMPTY:
                explain = _not_dropped_yet
            lacks = self._lacks_deletions(group_id, known[group_id].begun, unlike) if group_id in known else _nothing
            log = self._asked.group_log(group_id)
            of_before = self._of_before(log, group_id)
            yield from self._findings(
                partial(_of_description, group_id), described, unlike, [log], explain, lacks, of_before
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
                    yield Finding(Verdict.CANNOT_TELL, Thing(What.OFFSET, group_id), reason=answer.why)
                continue
            described: dict[Path, Any] = {("offset", *place): tuple(offset) for place, offset in answer.items()}
            history = known.get(group_id, OffsetHistory())
            unlike = differences(described, history.base, history.changes)
            lacks = self._lacks_deletions(group_id, history.applied, unlike)
            log = self._asked.group_log(group_id)
            of_before = self._of_before(log, group_id)
            yield from self._findings(
                partial(_of_offset, group_id), described, unlike, [log], lacks=lacks, of_before=of_before
            )

    def shares(
        self, known: Mapping[SharePartitionKey, ShareHistory], initialized: Collection[SharePartitionKey]
    ) -> Iterator[Finding]:
        """Start offsets of share partitions, and what the share coordinator keeps of them."""
        described_offsets: dict[SharePartitionKey, ShareOffset | Refusal] = {}
        refused: dict[str, Refusal] = {}
        for group_id, answer in self._asked.share_offsets.items():
            if isinstance(answer, Refusal):
                refused[group_id] = answer
                yield Finding(Verdict.CANNOT_TELL, Thing(What.SHARE_OFFSET, group_id), reason=answer.why)
                continue
            for place, offset in answer.items():
                described_offsets[SharePartitionKey(group_id, place.topic_id, place.partition)] = offset
        for key in {**described_offsets, **known}:
            description = self._asked.descriptions.get(key.group_id) or self._unlisted.get(key.group_id)
            if key.group_id in refused or _is_refused(description):
                continue
            history = known.get(key, ShareHistory(NOTHING))
            states = history.states()
            yield from self._share_offset(key, described_offsets.get(key), history, states, initialized)
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
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.why)
            return
        described: dict[Path, Any] = {}
        if answer is not None:
            described = {EXISTS: True, START_OFFSET: answer.start_offset, LEADER_EPOCH: answer.leader_epoch}
        unlike = _differences_in(described, states, (EXISTS, START_OFFSET, LEADER_EPOCH))
        yield from self._share_findings(key, thing, described, unlike, history, initialized)

    def _share_state(
        self,
        key: SharePartitionKey,
        answer: ShareState | Refusal,
        history: ShareHistory,
        states: Sequence[Facts],
        initialized: Collection[SharePartitionKey],
    ) -> Iterator[Finding]:
        thing = Thing(What.SHARE_STATE, key.group_id, self._place(key))
        described: dict[Path, Any] = {}
        if isinstance(answer, ShareState):
            described = {EXISTS: True, STATE_EPOCH: answer.state_epoch, START_OFFSET: answer.start_offset}
            described[BATCHES] = joined_batches(answer.batches)
        elif answer.code == CLUSTER_AUTHORIZATION_FAILED:
            return  # it is said of all of them together
        elif answer.code != NOT_INITIALIZED:
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.why)
            return
        unlike = _differences_in(described, states, (EXISTS, STATE_EPOCH, START_OFFSET, BATCHES))
        if not described and not unlike:
            yield Finding(Verdict.EQUAL, thing)  # it was there when it was listed, and both say that it went
        yield from self._share_findings(key, thing, described, unlike, history, initialized)

    def _share_findings(
        self,
        key: SharePartitionKey,
        thing: Thing,
        described: Facts,
        unlike: Collection[Difference],
        history: ShareHistory,
        initialized: Collection[SharePartitionKey],
    ) -> Iterator[Finding]:
        logs = [self._asked.share_log(key), self._asked.group_log(key.group_id)]
        explain = partial(self._explain_share, key, initialized)
        lacks = None if history.is_complete else NO_SNAPSHOT
        of_before = self._of_before(logs[0], key.as_coordinator_key())
        yield from self._findings(lambda _: thing, described, unlike, logs, explain, lambda _: lacks, of_before)

    def _explain_share(
        self, key: SharePartitionKey, initialized: Collection[SharePartitionKey], difference: Difference
    ) -> Reason | None:
        if difference.path != EXISTS or difference.described:
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
            it.path
            for it in unlike
            if it.described is None and written.get(it.path, hole.from_offset) < hole.from_offset
        }
        members = {path[1] for path in gone if path[0] == "member"}

        def lacks(it: Difference) -> str | None:
            is_of_gone = it.path in gone or (it.path[0] in ("assigned", "target") and it.path[1] in members)
            return hole.text if is_of_gone or (members and it.path[0] in OF_ALL_MEMBERS) else None

        return lacks

    def _findings(
        self,
        thing_of: Callable[[Path], Thing],
        described: Facts,
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
            unlike, described = [it for it in unlike if it.path == EXISTS], {}
        unlike = [it for it in unlike if it.path[-1] == EXISTS[0] or thing_of(it.path) not in missing]
        gap = next((self._gaps[log] for log in logs if log in self._gaps), None)
        behind = next((self._behind[log] for log in logs if log in self._behind), None)
        for it in unlike:
            thing = thing_of(it.path)
            is_hidden = thing.what is What.OFFSET and it.described is None and it.path[1] in self._hidden
            verdict, why = _verdict(it, explain(it), HIDDEN if is_hidden else lacks(it) or gap, behind)
            if verdict in (Verdict.DIFFERENT, Verdict.CANNOT_TELL) and of_before is not None:
                why = of_before if why is None else f"{why}; {of_before}"
            yield Finding(verdict, thing, _field(it.path), it.described, it.known, why)
        differing = {thing_of(it.path) for it in unlike}
        for thing in dict.fromkeys(thing_of(path) for path in described):
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


def _is_unknown(difference: Difference) -> bool:
    """What brokers before 4.1 do not tell, and those before 4.4."""
    is_newer = difference.path[-1] == "uses_classic_protocol" or difference.path == TOPOLOGY_DESCRIPTION
    return is_newer and difference.described is None


def _differences_in(described: Facts, states: Sequence[Facts], paths: Collection[Path]) -> tuple[Difference, ...]:
    """Differences in some facts alone."""
    some = [{path: state[path] for path in paths if path in state} for state in states]
    return differences(described, some[0], changes_between(some))


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
