"""Verdicts of verify: each answer of a broker compared with the ledger, with a reason for every difference."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.comparison_with_broker import (
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
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.text import counted
from jobs.queries.verify.verify_broker import NOT_FOUND, Asked, description_facts
from jobs.queries.verify.verify_ledger import NOTHING, GroupInWindow, OffsetHistory, ShareHistory, joined_batches
from jobs.sources.admin_answers import GroupDescription, Refusal, ShareOffset, ShareState
from jobs.sources.admin_questions import GROUP_ID_NOT_FOUND

CLUSTER_AUTHORIZATION_FAILED: Final = 31
NOT_INITIALIZED: Final = 42
"""INVALID_REQUEST: the answer of ReadShareGroupState for a share partition without a state."""
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
    """The kinds of things compared, in the order of the report."""

    GROUP = "group"
    MEMBER = "member"
    ASSIGNMENT = "assignment"
    OFFSET = "offset"
    SHARE_OFFSET = "share-offset"
    SHARE_STATE = "share-state"


class Thing(NamedTuple):
    """A thing that is compared. `name` is empty for the group itself."""

    what: What
    group_id: str
    name: str = ""


class Finding(NamedTuple):
    """The result for one thing; if it differs, there is one for each differing field."""

    verdict: Verdict
    thing: Thing
    field: str | None = None
    described: Any = None
    """The broker's value."""
    known: Any = None
    """The ledger's value."""
    reason: str | None = None


Explain = Callable[[Difference], Reason | None]
Lacks = Callable[[Difference], str | None]
"""Returns what the ledger lacks of the log that may explain a difference."""


def _nothing(_: Difference) -> None:
    """No explanation, nothing is lacking."""


EMPTY: Final = "Empty"
OF_ALL_MEMBERS: Final = frozenset({"state", "member count", "assignor", "protocol_name"})
"""Facts of a group that depend on its members."""


class Hole(NamedTuple):
    """The last range of a log partition that was compacted before it was captured."""

    from_offset: int
    text: str


@dataclass(frozen=True)
class Judge:
    """Compares a cluster's answers with the ledger, thing by thing."""

    asked: Asked
    _: KW_ONLY
    gaps: Mapping[LogPartition, str]
    """Sentences about what the warehouse lacks of log partitions."""
    compacted: Mapping[LogPartition, Hole]
    """Where compaction came before the capture."""
    behind: Mapping[LogPartition, str]
    """Log partitions that continue at the broker."""
    unlisted: Mapping[str, GroupDescription | Refusal]
    """Answers of the broker about groups that it did not list."""
    hidden: Set[str]
    """Topics that the principal may not describe."""
    left_empty: Set[str]
    """Groups that were removed by a transaction marker."""
    former: Mapping[tuple[str, str], Collection[int]]
    """By coordinator topic and key, log partitions with records for which the broker uses another one."""
    initialized: Set[SharePartitionKey]
    """Share partitions that their groups recorded as initialized."""

    @cached_property
    def _names(self) -> dict[str, str]:
        return {it.topic_id: it.topic for it in self.asked.topics.values() if it.topic_id is not None}

    def groups(self, known: Mapping[str, GroupInWindow]) -> Iterator[Finding]:
        """Compare groups, members and assignments."""
        for group_id in {**self.asked.descriptions, **known}:
            answer = self.asked.descriptions.get(group_id, NOT_FOUND)
            if isinstance(answer, Refusal) and answer.code != GROUP_ID_NOT_FOUND:
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=answer.why)
                continue
            described = {} if isinstance(answer, Refusal) else description_facts(answer)
            states = known[group_id].states(self._names) if group_id in known else [{}]
            if not any(ASSIGNOR in state for state in states):
                described.pop(ASSIGNOR, None)  # no member requests one: it is a broker setting, and in no log
            unlike = [it for it in differences(described, states[0], changes_between(states)) if not _is_unknown(it)]
            by_name = self.unlisted.get(group_id, NOT_FOUND)
            if unlike and by_name != NOT_FOUND:
                reason = by_name.why if isinstance(by_name, Refusal) else LEFT_OUT
                yield Finding(Verdict.CANNOT_TELL, Thing(What.GROUP, group_id), reason=reason)
                continue
            state = None if isinstance(answer, Refusal) else answer.state
            explain: Explain = partial(explain_group, described_state=state, topic_ids=frozenset(self._names))
            if group_id in self.left_empty and group_id not in known and state == EMPTY:
                explain = lambda _: Reason.NOT_DROPPED_YET  # noqa: E731
            lacks = self._lacks_deletions(group_id, known[group_id].begun, unlike) if group_id in known else _nothing
            log = self.asked.group_log(group_id)
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
        for group_id in {**self.asked.offsets, **known}:
            answer = self.asked.offsets.get(group_id, {})
            description = self.asked.descriptions.get(group_id) or self.unlisted.get(group_id)
            if isinstance(answer, Refusal) or _is_refused(description):
                if isinstance(answer, Refusal):  # else it is reported for the group
                    yield Finding(Verdict.CANNOT_TELL, Thing(What.OFFSET, group_id), reason=answer.why)
                continue
            described: dict[Path, Any] = {("offset", *place): tuple(offset) for place, offset in answer.items()}
            history = known.get(group_id, OffsetHistory())
            unlike = differences(described, history.base, history.changes)
            lacks = self._lacks_deletions(group_id, history.applied, unlike)
            log = self.asked.group_log(group_id)
            of_before = self._of_before(log, group_id)
            yield from self._findings(
                partial(_of_offset, group_id), described, unlike, [log], lacks=lacks, of_before=of_before
            )

    def shares(self, known: Mapping[SharePartitionKey, ShareHistory]) -> Iterator[Finding]:
        """Compare start offsets of share partitions, and their states at the share coordinator."""
        described_offsets: dict[SharePartitionKey, ShareOffset | Refusal] = {}
        refused: dict[str, Refusal] = {}
        for group_id, answer in self.asked.share_offsets.items():
            if isinstance(answer, Refusal):
                refused[group_id] = answer
                yield Finding(Verdict.CANNOT_TELL, Thing(What.SHARE_OFFSET, group_id), reason=answer.why)
                continue
            for place, offset in answer.items():
                described_offsets[SharePartitionKey(group_id, place.topic_id, place.partition)] = offset
        for key in {**described_offsets, **known}:
            description = self.asked.descriptions.get(key.group_id) or self.unlisted.get(key.group_id)
            if key.group_id in refused or _is_refused(description):
                continue
            history = known.get(key, ShareHistory(NOTHING))
            states = history.states()
            yield from self._share_offset(key, described_offsets.get(key), history, states)
            if key in self.asked.share_states:
                yield from self._share_state(key, self.asked.share_states[key], history, states)

    def _share_offset(
        self,
        key: SharePartitionKey,
        answer: ShareOffset | Refusal | None,
        history: ShareHistory,
        states: Sequence[Facts],
    ) -> Iterator[Finding]:
        thing = Thing(What.SHARE_OFFSET, key.group_id, self._place(key))
        if isinstance(answer, Refusal):
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.why)
            return
        described: dict[Path, Any] = {}
        if answer is not None:
            described = {EXISTS: True, START_OFFSET: answer.start_offset, LEADER_EPOCH: answer.leader_epoch}
        unlike = _differences_in(described, states, (EXISTS, START_OFFSET, LEADER_EPOCH))
        yield from self._share_findings(key, thing, described, unlike, history)

    def _share_state(
        self, key: SharePartitionKey, answer: ShareState | Refusal, history: ShareHistory, states: Sequence[Facts]
    ) -> Iterator[Finding]:
        thing = Thing(What.SHARE_STATE, key.group_id, self._place(key))
        described: dict[Path, Any] = {}
        if isinstance(answer, ShareState):
            described = {EXISTS: True, STATE_EPOCH: answer.state_epoch, START_OFFSET: answer.start_offset}
            described[BATCHES] = joined_batches(answer.batches)
        elif answer.code == CLUSTER_AUTHORIZATION_FAILED:
            return  # it is reported once for all of them
        elif answer.code != NOT_INITIALIZED:
            yield Finding(Verdict.CANNOT_TELL, thing, reason=answer.why)
            return
        unlike = _differences_in(described, states, (EXISTS, STATE_EPOCH, START_OFFSET, BATCHES))
        if not described and not unlike:
            yield Finding(Verdict.EQUAL, thing)  # it existed when it was listed, and both sides agree that it is gone
        yield from self._share_findings(key, thing, described, unlike, history)

    def _share_findings(
        self,
        key: SharePartitionKey,
        thing: Thing,
        described: Facts,
        unlike: Collection[Difference],
        history: ShareHistory,
    ) -> Iterator[Finding]:
        logs = [self.asked.share_log(key), self.asked.group_log(key.group_id)]
        explain = partial(self._explain_share, key)
        lacks = None if history.is_complete else NO_SNAPSHOT
        of_before = self._of_before(logs[0], key.as_coordinator_key())
        yield from self._findings(lambda _: thing, described, unlike, logs, explain, lambda _: lacks, of_before)

    def _explain_share(self, key: SharePartitionKey, difference: Difference) -> Reason | None:
        if difference.path != EXISTS or difference.described:
            return None
        if key.topic_id not in self._names:
            return Reason.TOPIC_DELETED
        return None if key in self.initialized else Reason.SHARE_INITIALIZING

    def _of_before(self, log: LogPartition, key: str) -> str | None:
        """A sentence about log partitions with records of a group or share partition that were not compared."""
        topic, number = log
        former = sorted(self.former.get((topic, key), ()))
        if not former:
            return None
        there = " and ".join(f"{topic}-{partition}" for partition in former)
        return (
            f"it is in {topic}-{number} now that the topic has "
            f"{counted(self.asked.partition_count(topic) or 0, 'partition')}: its records in {there} are from "
            "before the topic got more partitions, and were not compared"
        )

    def _place(self, key: SharePartitionKey) -> str:
        return f"{self._names.get(key.topic_id, key.topic_id)}-{key.partition}"

    def _lacks_deletions(self, group_id: str, written: Mapping[Path, int], unlike: Collection[Difference]) -> Lacks:
        """What only the ledger has may have been deleted by a tombstone that the cleaner removed, after
        delete.retention.ms, before it was captured. `written`: the offset of the record behind each fact."""
        hole = self.compacted.get(self.asked.group_log(group_id))
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
        """Yield a finding for each difference, and for each thing without one. `logs`: log partitions of the facts;
        `lacks`: what else the ledger cannot know; `of_before`: obsolete records that were not compared."""
        missing = {thing_of(it.path) for it in unlike if it.path[-1] == EXISTS[0]}
        # if one side does not have it, other facts add nothing
        if any(it.path == EXISTS for it in unlike):
            unlike, described = [it for it in unlike if it.path == EXISTS], {}
        unlike = [it for it in unlike if it.path[-1] == EXISTS[0] or thing_of(it.path) not in missing]
        gap = next((self.gaps[log] for log in logs if log in self.gaps), None)
        behind = next((self.behind[log] for log in logs if log in self.behind), None)
        for it in unlike:
            thing = thing_of(it.path)
            is_hidden = thing.what is What.OFFSET and it.described is None and it.path[1] in self.hidden
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
    """Facts that brokers before 4.1, or before 4.4, do not report."""
    is_newer = difference.path[-1] == "uses_classic_protocol" or difference.path == TOPOLOGY_DESCRIPTION
    return is_newer and difference.described is None


def _differences_in(described: Facts, states: Sequence[Facts], paths: Collection[Path]) -> tuple[Difference, ...]:
    some = [{path: state[path] for path in paths if path in state} for state in states]
    return differences(described, some[0], changes_between(some))


def _of_description(group_id: str, path: Path) -> Thing:
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
