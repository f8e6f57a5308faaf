"""What an audit keeps of groups, so that the next one reads only the later commits.

A night has few commits compared with all commits, and few earlier ones are needed to judge them: for each partition the
commit in force, and the one by which it reached its offset; the times of members' last commits (`last_commit_times`);
why members departed; and a few facts about everything before (`GroupFacts`). With these a group is judged from where
the last audit stopped, and earlier results about commits stay. Where these may change, the group is judged from its
beginning (`PastTooShort`):

* it was set only once so far, and now again; or it is empty, and by now has more commits to a partition than a tool
  makes;
* a generation is missing after its last one, that lost its members step by step, or it had no generation before;
* an offset that outlived the group is committed for the first time again: then it did not outlive it;
* offsets were deleted, and new records show more about the reason: a classic generation whose join phase had ended by
  then, a commit to another partition of a topic considered deleted, further tombstones within seconds;
* an operation is partly before and partly after the place;
* a member comes back from another host: all rows about it name its last one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, compress, count, pairwise, starmap
from typing import Final, NamedTuple, Self

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.errors import PastTooShort
from coordinator_core.history.rows import FORGOTTEN, LEFT_OR_EXPIRED, REPLACED_STATIC, GenerationRow
from coordinator_core.inference.audit.audit_watermark import AuditWatermark, require_watermark
from coordinator_core.inference.audit.days import UNKNOWN_TYPE, DayCounts
from coordinator_core.inference.commits.commit_anomalies import (
    ADVANCE,
    APPLIED,
    DELETE,
    FIRST,
    REPEAT,
    RESETS_MAX,
    USUAL_ADVANCES,
    GenerationsAt,
    applied_by_partition,
    is_plain,
    is_set_once,
)
from coordinator_core.inference.commits.deletions import TOGETHER_MS
from coordinator_core.inference.commits.last_commit_times import (
    NOBODY,
    Membership,
    Times,
    add_commit_times,
    latest_of,
    times_of,
)
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.columns import distinct, numbered_pairs
from coordinator_core.inference.facts.life import COMMIT_COLUMNS, GroupCommits, GroupLife
from coordinator_core.inference.facts.log_facts import WHOLE
from coordinator_core.inference.facts.partitions import ByPartition
from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.handovers import Handover
from coordinator_core.inference.groups.leave_reasons import LeaveReasons, membership_of
from coordinator_core.replay.columnar.offsets_columnar import OUTCOMES

PENDING: Final = OUTCOMES.index("PENDING")
NO_TOMBSTONE: Final = -2
"""In place of a time; less than that of a record without one (RecordBatch.NO_TIMESTAMP, -1)."""


Piece = tuple[GroupCommits, I64, Sequence[str]]
"""Commits, and the group of each: an index into the ids."""


class Gone(NamedTuple):
    """Why the members departed that one generation no longer has. Few member ids are kept: kept ids would
    accumulate.
    """

    member_count: int
    why: Claim
    """The reason of most of them."""
    others: Mapping[Membership, Claim]
    """The reasons of the others."""

    @classmethod
    def of(cls, leave_reasons: Mapping[Membership, Claim]) -> Self:
        """From the reasons of at least one member."""
        why, _ = min(Counter(leave_reasons.values()).items(), key=lambda item: (-item[1], item[0]))
        return cls(
            len(leave_reasons), why, {membership: own for membership, own in leave_reasons.items() if own != why}
        )


_NONE_GONE: Final[Mapping[int, Gone]] = {}
_NO_HANDOVERS: Final[Mapping[int, Handover]] = {}
_NO_ROW_SUMS: Final[Mapping[str, Mapping[int, int]]] = {}


class GroupFacts(NamedTuple):
    """What is kept of one group besides its commits."""

    first_log_offset: int
    """The log offset of its first commit; -1: it has none."""
    is_set_once: bool
    """Each commit was a plain first one to its partition."""
    emptied_since: int = -1
    """Log offset since which it has no members, after it had some; -1: it has members, or never had any."""
    newest_since: int = -1
    """`from_log_offset` of its newest generation; -1: it has none."""
    is_memberless: bool = False
    """Its newest generation has no members."""
    deleted_at: int = -1
    """Log offset where it was deleted last; -1: never."""
    event_ms: int = -1
    """The time of its last event; -1: it has none."""
    tombstone_ms: int = NO_TOMBSTONE
    """When the last tombstone of its offsets was written; -1: unknown; NO_TOMBSTONE: there was none."""
    changed_ms: int = -1
    """When a member joined or departed last; -1: never."""
    member_count: int = 0
    """Number of members since."""
    typed_ms: int = -1
    """When its newest generation began; -1: it has none."""
    group_type: str = UNKNOWN_TYPE
    """Its type since."""
    handovers: Mapping[int, Handover] = _NO_HANDOVERS
    """By log offset of the rebalance."""
    row_sums: Mapping[str, Mapping[int, int]] = _NO_ROW_SUMS
    """By table, and first instant of the day of their end: checksums of its gold rows that are not settled."""
    gone: Mapping[int, Gone] = _NONE_GONE
    """By `to_log_offset` of the members that departed with a generation."""

    @property
    def is_watched(self) -> bool:
        """Whether any further commit may change more than counts."""
        return self.is_set_once or self.emptied_since >= 0


@dataclass(frozen=True, slots=True)
class GroupBefore:
    """Where the judgement of one group continues."""

    past: GroupFacts
    from_log_offset: int
    is_new: BoolArray
    """Which of the group's commits were not judged yet; the others are kept earlier ones."""
    commit_times: Mapping[Membership, Times]
    days: Mapping[int, DayCounts]
    """What was already counted on its days."""
    watermark: AuditWatermark | None = None
    """Nothing of the group before it is needed."""

    def leave_reasons(self, life: GroupLife) -> LeaveReasons:
        """Why members departed before. Raises PastTooShort if the departed members do not match."""
        ended = _ended(life)
        if any(len(ended.get(place, ())) != gone.member_count for place, gone in self.past.gone.items()):
            raise PastTooShort("other members went than had gone")
        return {
            membership: gone.others.get(membership, gone.why)
            for place, gone in self.past.gone.items()
            for membership in ended[place]
        }

    def require_enough(self, life: GroupLife, settings: InferenceSettings) -> None:
        """Raises PastTooShort if earlier results may change, or if more of the past is needed."""
        past, commits = self.past, life.commits
        if self.from_log_offset <= life.log.unread_from < WHOLE or _are_others(life, self.from_log_offset):
            raise PastTooShort("from a new record on its members are others, or unknown")
        if self.watermark is not None:
            require_watermark(life, self.watermark, settings, commits.log_offset[self.is_new])
        if past.first_log_offset < 0:
            return
        new = commits.taken(self.is_new)
        if len(new):
            if goes_on(commits, self.is_new).any():
                raise PastTooShort("an operation of commits goes on")
            if past.is_set_once:
                raise PastTooShort("it was set but once")
            if past.emptied_since >= 0 and self._may_change_resets(life):
                raise PastTooShort("more commits without members than a tool makes, or it lost its members otherwise")
        if life.generations and past.newest_since < 0:
            raise PastTooShort("it had no generation")
        if _is_emptied_otherwise(life.generations, past):
            raise PastTooShort("members went within a generation, or generations are missing")
        new_events = [event for event in life.events if event.log_offset >= self.from_log_offset]
        if self._may_change_deletions(life.generations, new):
            raise PastTooShort("why offsets were deleted goes by what came after")
        times = {event.at for event in new_events}
        times |= set(new.recorded_at_ms[new.change >= DELETE].tolist())
        if {past.event_ms, past.tombstone_ms} & times:
            raise PastTooShort("an operation goes on")
        if ((new.change >= DELETE) & (new.log_offset < self.from_log_offset)).any():
            raise PastTooShort("a transaction deleted an offset")
        outlived = ~self.is_new & (commits.outcome == APPLIED) & (commits.applied_log_offset < past.deleted_at)
        if outlived.any() and (new.change == FIRST).any():
            raise PastTooShort("an offset outlived its group, or did not")

    def _may_change_resets(self, life: GroupLife) -> bool:
        """Whether the first commits without members turn out to be a consumer's, or not to be without members."""
        since, commits = self.past.emptied_since, life.commits
        if not GenerationsAt(life).is_emptied_at(since):
            return True
        rows = is_plain(commits) & (commits.log_offset >= since)
        pairs = numbered_pairs(commits.topic[rows].astype(np.int64), commits.partition[rows].astype(np.int64))
        partitions, partition = distinct(pairs)
        before = np.bincount(partition[~self.is_new[rows]], minlength=len(partitions))
        now = np.bincount(partition, minlength=len(partitions))
        return bool(((before > 0) & (before <= RESETS_MAX) & (now > RESETS_MAX)).any())

    def _may_change_deletions(self, generations: Iterable[GenerationRow], new: GroupCommits) -> bool:
        past = self.past
        if past.tombstone_ms == NO_TOMBSTONE:
            return False
        deleted_ms = new.recorded_at_ms[new.change >= DELETE]
        if bool((deleted_ms <= past.tombstone_ms + TOGETHER_MS).any()):
            return True
        return any(
            row.from_log_offset >= self.from_log_offset
            and row.current_state_at is not None
            and row.current_state_at <= past.tombstone_ms
            for row in generations
        )


def goes_on(commits: GroupCommits, is_new: BoolArray, group: I64 | None = None) -> BoolArray:
    """Which new commits may be of an operation that began with one judged before: the next record, at the same time.

    Commits of one group, or of several (`group`, a number for each row), in log order.
    """
    found = np.zeros(len(commits), np.bool_)
    found[1:] = (np.diff(commits.log_offset) == 1) & (np.diff(commits.recorded_at_ms) == 0) & ~is_new[:-1] & is_new[1:]
    if group is not None:
        found[1:] &= np.diff(group) == 0
    return found


def _are_others(life: GroupLife, from_log_offset: int) -> bool:
    """Whether, from an offset on, a new leader did not load all of the group, or a member came back from another host:
    all rows about a member name its last one."""
    types = {FORGOTTEN, "MEMBER_UPDATED"}
    return any(event.event_type in types and event.log_offset >= from_log_offset for event in life.events)


def _is_emptied_otherwise(generations: Sequence[GenerationRow], past: GroupFacts) -> bool:
    """Whether the former newest generation now turns out to have had members where it had none, or the reverse. If it
    had none, and the following generation is missing in the log, its end is unknown."""
    found = [index for index, row in enumerate(generations) if row.from_log_offset == past.newest_since]
    if not found:
        return past.newest_since >= 0
    index = found[-1]
    if (generations[index].member_count == 0) != past.is_memberless:
        return True
    following = generations[index + 1 : index + 2]
    return past.is_memberless and any(not (row.is_contiguous or row.generation == 0) for row in following)


def group_facts(
    life: GroupLife,
    leave_reasons: LeaveReasons,
    before: GroupBefore | None = None,
    watermark: AuditWatermark | None = None,
    handovers: Mapping[int, Handover] = _NO_HANDOVERS,
) -> GroupFacts:
    """What to keep of a group, judged from its beginning or from `before` on. Of departed members and handovers, only
    those after `watermark`."""
    commits, past = life.commits, None if before is None else before.past
    groups = GenerationsAt(life)
    emptied_since = groups.emptied_since()
    deleted_ats = [event.log_offset for event in life.events if event.event_type == "GROUP_DELETED"]
    changes = [row.valid_from for row in life.members]
    changes += [row.valid_to for row in life.members if row.valid_to is not None]
    if past is not None:
        deleted_ats.append(past.deleted_at)
        changes.append(past.changed_ms)
    if past is not None and past.first_log_offset < 0:
        past = None
    newest = max(life.generations, key=lambda row: (row.from_log_offset, row.incarnation, row.generation), default=None)
    tombstones = commits.recorded_at_ms[commits.change >= DELETE]
    return GroupFacts(
        first_log_offset=past.first_log_offset if past else int(commits.log_offset[0]) if len(commits) else -1,
        is_set_once=past.is_set_once if past else is_set_once(commits),
        emptied_since=emptied_since,
        newest_since=-1 if newest is None else newest.from_log_offset,
        is_memberless=newest is not None and not newest.member_count,
        deleted_at=max(deleted_ats, default=-1),
        event_ms=max(life.events, key=lambda event: (event.log_offset, event.event_index)).at if life.events else -1,
        tombstone_ms=int(tombstones[-1]) if len(tombstones) else NO_TOMBSTONE if past is None else past.tombstone_ms,
        changed_ms=max(changes, default=-1),
        member_count=sum(row.valid_to is None for row in life.members),
        typed_ms=max((row.valid_from for row in life.generations), default=-1),
        group_type=UNKNOWN_TYPE if newest is None else newest.group_type,
        handovers={
            place: handover
            for place, handover in handovers.items()
            if watermark is None or place >= watermark.generation_at
        },
        gone={
            place: Gone.of({membership: leave_reasons[membership] for membership in memberships})
            for place, memberships in _ended(life).items()
            if leave_reasons.keys() >= set(memberships) and (watermark is None or place > watermark.generation_at)
        },
    )


def _ended(life: GroupLife) -> dict[int, list[Membership]]:
    """Members that left, expired or were replaced, by `to_log_offset`."""
    ended: dict[int, list[Membership]] = {}
    for member in life.members:
        if member.to_log_offset is not None and member.ended_by in (LEFT_OR_EXPIRED, REPLACED_STATIC):
            ended.setdefault(member.to_log_offset, []).append(membership_of(member))
    return ended


def kept_commits(
    commits: GroupCommits, applied: ByPartition, emptied_since: I64 | int, group: I64 | None = None
) -> I64:
    """Which commits of one group, or of several (`group`, a number for each row), to keep, in order.

    `applied`: the result of `applied_by_partition`. `emptied_since`: as in `GroupFacts`, of each commit's group.

    For each partition with an offset: the commit in force, the one by which it reached that offset, and the advances by
    which the next one is measured. Those of open transactions, each with the commit in force at that time. And of a
    group without members the first ones since, by which it shows whether a tool made them.
    """
    is_pending = commits.outcome == PENDING
    is_kept = is_pending.copy()
    _mark_in_force(*applied, commits.change, is_kept)
    without_members = is_plain(commits) & (emptied_since >= 0) & (commits.log_offset >= emptied_since)
    if without_members.any():
        _mark_first(*applied, commits.change, without_members, is_kept)
    if is_pending.any():
        is_kept[_in_force(commits, group, is_pending)] = True
    return np.flatnonzero(is_kept)


@compiled
def _mark_in_force(rows: I32, starts: I64, change: I8, is_kept: BoolArray) -> None:
    """For each partition with an offset, mark the newest commit, the one by which it reached that offset, and the last
    advances: those that are usual, and one more, since a rate is that since the one before."""
    for number in range(len(starts) - 1):
        place = starts[number + 1] - 1
        if change[rows[place]] >= DELETE:
            continue
        is_kept[rows[place]] = True
        while place > starts[number] and change[rows[place]] == REPEAT:
            place -= 1
        is_kept[rows[place]] = True
        wanted = USUAL_ADVANCES + 1
        while wanted and place >= starts[number] and change[rows[place]] < DELETE:
            if change[rows[place]] == ADVANCE:
                is_kept[rows[place]] = True
                wanted -= 1
            place -= 1


@compiled
def _mark_first(rows: I32, starts: I64, change: I8, is_chosen: BoolArray, is_kept: BoolArray) -> None:
    """For each partition, mark one chosen commit more than resets may be, and the last deletion behind one."""
    for number in range(len(starts) - 1):
        wanted, deletion = RESETS_MAX + 1, -1
        for place in range(starts[number], starts[number + 1]):
            row = rows[place]
            if wanted and is_chosen[row]:
                is_kept[row] = True
                wanted -= 1
            if wanted <= RESETS_MAX and change[row] >= DELETE:
                deletion = row
        if deletion >= 0:
            is_kept[deletion] = True


def _in_force(commits: GroupCommits, group: I64 | None, is_pending: BoolArray) -> I64:
    """The commits that were in force when those of open transactions were written."""
    group = np.zeros(len(commits), np.int64) if group is None else group
    rows = np.flatnonzero(is_pending | (commits.outcome == APPLIED))
    at = np.where(is_pending[rows], commits.log_offset[rows], commits.applied_log_offset[rows])
    key = np.stack((group[rows], commits.topic[rows], commits.partition[rows]))
    order = np.lexsort((is_pending[rows], at, *key[::-1]))
    rows, key = rows[order], key[:, order]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    place = np.arange(len(rows))
    before = np.maximum.accumulate(np.where(is_pending[rows], -1, place))
    is_own = before >= np.maximum.accumulate(np.where(begins, place, 0))
    return rows[before[is_pending[rows] & is_own]]


@dataclass(frozen=True, slots=True)
class GroupedCommits:
    """Commits of groups of one log partition, by group and log offset. Create it with `of`."""

    group_ids: tuple[str, ...]
    group: I64
    """Index into `group_ids`, ascending."""
    commits: GroupCommits

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> Self:
        """From pieces in any order."""
        ids: dict[str, int] = {}
        topics: dict[str, int] = {}
        group, topic, columns = (
            [NO_NUMBERS],
            [NO_NUMBERS],
            {name: [getattr(NO_COMMITS, name)] for name in COMMIT_COLUMNS},
        )
        for commits, codes, group_ids in pieces:
            group.append(_numbered(group_ids, ids)[codes])
            topic.append(_numbered(commits.topics, topics)[commits.topic])
            for name, values in columns.items():
                values.append(getattr(commits, name))
        groups = np.concatenate(group)
        found = {name: np.concatenate(values) for name, values in columns.items()}
        found["topic"] = np.concatenate(topic).astype(np.int32)
        commits = GroupCommits(tuple(topics), **found)
        order = np.lexsort((commits.log_offset, groups))
        return cls(tuple(ids), groups[order], commits.taken(order))

    @classmethod
    def of_groups(cls, commits: Iterable[tuple[str, GroupCommits]]) -> Self:
        return cls.of((own, np.zeros(len(own), np.int64), (group_id,)) for group_id, own in commits)

    def of_some(self, group_ids: Set[str], *, are_others: bool = False) -> "GroupedCommits":
        is_wanted = np.array([(group_id in group_ids) != are_others for group_id in self.group_ids], np.bool_)
        return self.taken(is_wanted[self.group])

    def alone(self, group_ids: Set[str]) -> "GroupedCommits":
        """The commits of some groups, with only these in `group_ids`."""
        is_wanted = np.array([group_id in group_ids for group_id in self.group_ids], np.bool_)
        rows = is_wanted[self.group]
        names = tuple(compress(self.group_ids, is_wanted.tolist()))
        return GroupedCommits(names, (np.cumsum(is_wanted) - 1)[self.group[rows]], self.commits.taken(rows))

    def slices(self) -> dict[str, slice]:
        """The rows of each group."""
        bounds = np.searchsorted(self.group, np.arange(len(self.group_ids) + 1)).tolist()
        return {group_id: slice(*bound) for group_id, bound in zip(self.group_ids, pairwise(bounds), strict=True)}

    def taken(self, rows: I64 | BoolArray) -> "GroupedCommits":
        return GroupedCommits(self.group_ids, self.group[rows], self.commits.taken(rows))

    @property
    def piece(self) -> Piece:
        """In the form that `of` takes."""
        return self.commits, self.group, self.group_ids

    @property
    def pending(self) -> I64:
        """Log offsets of commits in open transactions."""
        found: I64 = self.commits.log_offset[self.commits.outcome == PENDING]
        return found

    def and_new(self, pieces: Iterable[Piece], from_log_offset: int) -> tuple["GroupedCommits", BoolArray]:
        """Kept commits from before a log offset, together with those from there on; and which of them are new.

        `pieces` begin at the first of `pending`: the outcome of those commits is new, too.
        """
        pending = self.pending
        known = self.taken(self.commits.outcome != PENDING)

        def is_new(commits: GroupCommits) -> BoolArray:
            return (commits.log_offset >= from_log_offset) | np.isin(commits.log_offset, pending)

        def new_of(commits: GroupCommits, group: I64, group_ids: Sequence[str]) -> Piece:
            rows = is_new(commits)
            return commits.taken(rows), group[rows], group_ids

        both = type(self).of((known.piece, *starmap(new_of, pieces)))
        return both, is_new(both.commits)

    def kept(self, pasts: Mapping[str, GroupFacts]) -> "GroupedCommits":
        """Those to keep. `pasts`: of the groups, as far as they are known."""
        since = [pasts[group_id].emptied_since if group_id in pasts else -1 for group_id in self.group_ids]
        applied = applied_by_partition(self.commits, self.group)
        return self.taken(kept_commits(self.commits, applied, np.array(since, np.int64)[self.group], self.group))


NO_NUMBERS: Final = np.zeros(0, np.int64)
NO_COMMITS: Final = GroupCommits()


def _numbered(texts: Sequence[str], numbers: dict[str, int]) -> I64:
    """Numbers of texts; new texts get the next numbers."""
    others = [text for text in dict.fromkeys(texts) if text not in numbers]
    numbers.update(zip(others, count(len(numbers)), strict=False))
    return np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))


@dataclass(frozen=True, slots=True)
class MemberCommitTimes:
    """Last commit times of the current members of one log partition's groups, and what these members own."""

    members: tuple[tuple[str, str, int], ...] = ()
    """Group id, member id and `from_log_offset`."""
    latest: I64 = field(default_factory=lambda: latest_of(()))
    """`latest_of` their times."""
    topics: tuple[str, ...] = ()
    member: I64 = field(default_factory=lambda: NO_NUMBERS)
    """For each owned partition: index into `members`."""
    topic: I64 = field(default_factory=lambda: NO_NUMBERS)
    partition: I64 = field(default_factory=lambda: NO_NUMBERS)

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Combine those of several tasks, each with groups of its own."""
        numbers: dict[str, int] = {}
        topics = [_numbered(part.topics, numbers)[part.topic] for part in parts]
        begins = np.cumsum([0, *(len(part.members) for part in parts)])
        return cls(
            tuple(chain.from_iterable(part.members for part in parts)),
            np.concatenate([part.latest for part in parts]),
            tuple(numbers),
            np.concatenate([part.member + begin for part, begin in zip(parts, begins[:-1], strict=True)]),
            np.concatenate(topics),
            np.concatenate([part.partition for part in parts]),
        )

    def by_group(self) -> dict[str, dict[Membership, Times]]:
        """By group, in the form of `last_commit_times.last_commit_times`."""
        found: dict[str, dict[Membership, Times]] = {}
        for (group_id, member_id, begin), times in zip(self.members, times_of(self.latest), strict=True):
            if times:
                found.setdefault(group_id, {})[member_id, begin] = times
        return found

    def and_new(self, new: GroupedCommits, from_log_offset: int) -> "MemberCommitTimes":
        """Add further commits of groups whose members and owners have not changed. Commits from before a log offset,
        whose transactions were open there, count at their own time, for the owners that their partitions had then."""
        commits = new.commits
        rows = np.flatnonzero(~commits.is_tombstone & (commits.log_offset >= from_log_offset))
        if not len(rows) or not len(self.member):
            return self
        groups = {group_id: code for code, group_id in enumerate(new.group_ids)}
        topics = {topic: code for code, topic in enumerate(commits.topics)}
        group = np.array([groups.get(group_id, -1) for group_id, _, _ in self.members], np.int64)[self.member]
        topic = np.array([topics.get(text, -1) for text in self.topics], np.int64)[self.topic]
        owned = np.flatnonzero((group >= 0) & (topic >= 0))
        if not len(owned):
            return self
        places = numbered_pairs(
            np.concatenate((group[owned], new.group[rows])) * len(topics)
            + np.concatenate((topic[owned], commits.topic[rows])),
            np.concatenate((self.partition[owned], commits.partition[rows])),
        )
        order = np.argsort(places[: len(owned)], kind="stable")
        owned_rows, firsts = np.unique(places[: len(owned)][order], return_index=True)
        committed = places[len(owned) :]
        found = np.minimum(np.searchsorted(owned_rows, committed), len(owned_rows) - 1)
        is_single = np.diff(np.append(firsts, len(owned))) == 1
        owners = np.where(is_single, self.member[owned][order][firsts], NOBODY)
        latest = self.latest.copy()
        add_commit_times(
            commits.sign_of_life_ms[rows],
            commits.log_offset[rows],
            new.group[rows],
            np.where(owned_rows[found] == committed, owners[found], NOBODY),
            commits.has_moved[rows],
            latest,
        )
        return replace(self, latest=latest)

    def without(self, group_ids: Set[str]) -> "MemberCommitTimes":
        is_kept = np.array([group_id not in group_ids for group_id, _, _ in self.members], np.bool_)
        if is_kept.all():
            return self
        number = np.cumsum(is_kept) - 1
        owned_rows = is_kept[self.member]
        return MemberCommitTimes(
            tuple(member for member, kept in zip(self.members, is_kept.tolist(), strict=True) if kept),
            self.latest[is_kept],
            self.topics,
            number[self.member[owned_rows]],
            self.topic[owned_rows],
            self.partition[owned_rows],
        )


class CommitTimesBuilder:
    """Builds `MemberCommitTimes` group by group."""

    def __init__(self) -> None:
        self._members: list[tuple[str, str, int]] = []
        self._times: list[Times] = []
        self._topics: dict[str, int] = {}
        self._owned: list[tuple[int, int, int]] = []

    def add(self, life: GroupLife, owners: Iterable[OwnerRow], commit_times: Mapping[Membership, Times]) -> None:
        """Add a group's current members."""
        numbers: dict[str, list[int]] = {}
        for member in life.members:
            if member.to_log_offset is None:
                numbers.setdefault(member.member_id, []).append(len(self._members))
                self._members.append((life.group_id, *membership_of(member)))
                self._times.append(commit_times.get(membership_of(member), ()))
        for owner in owners:
            if owner.to_log_offset is None and owner.topic is not None:
                topic = self._topics.setdefault(owner.topic, len(self._topics))
                self._owned += [(number, topic, owner.partition) for number in numbers.get(owner.member_id, ())]

    def built(self, others: MemberCommitTimes) -> MemberCommitTimes:
        """The added ones, together with those of other groups."""
        numbers = {topic: number for number, topic in enumerate(others.topics)}
        codes = _numbered(list(self._topics), numbers)
        member, topic, partition = np.array(self._owned, np.int64).reshape(-1, 3).T
        return MemberCommitTimes(
            (*others.members, *self._members),
            np.concatenate((others.latest, latest_of(self._times))),
            tuple(numbers),
            np.concatenate((others.member, member + len(others.members))),
            np.concatenate((others.topic, codes[topic])),
            np.concatenate((others.partition, partition)),
        )
