"""gold.commit_anomalies: committed offsets that went back, jumped, did not move or were deleted.

A commit has at most one row, of the most significant kind:

* DELETED: a tombstone deleted a committed offset; `deletions` says why, where the log shows it.
* FORGOTTEN: a new leader did not load it: the log start had moved past its record.
* ABORTED: the transaction that contained the commit was aborted.
* EMPTY_GROUP_RESET: an offset committed while a group that had had members was empty. No member can have done it: it
  was a tool (`kafka-consumer-groups --reset-offsets`), an admin client, or a consumer that assigns its partitions
  itself. In a group that never had members such a consumer is the rule, and its commits are no sign of a reset.
* REWIND: the committed offset went back.
* SKIP: it jumped ahead, by far more and far faster than this partition moved before.
* STALLED: commits continued for long, and the offset stayed. The partition may simply have no new records, which the
  coordinator's log does not show, so it is a guess.

The coordinator accepts a plain commit in two cases only: from a member of the current generation or epoch, or, without
a member id, while the group is empty (validateOffsetCommit of ClassicGroup, ConsumerGroup and StreamsGroup). So
emptiness proves that no member wrote it. A transactional commit never needs a member id, so it is never called a reset.
Rows of a dump do not tell which commits are transactional: what rests on that is LIKELY there.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.history.rows import FORGOTTEN, GenerationRow, MemberRow
from coordinator_core.inference.commits.deletions import NOTHING_REMOVED, Deletions, Removed
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.facts.log_facts import NONE_MS, WHOLE
from coordinator_core.inference.facts.partitions import ByPartition, by_partition
from coordinator_core.inference.facts.rows import AnomalyRow, OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES
from schemas.group_types import GroupType

APPLIED: Final = OUTCOMES.index("APPLIED")
ABORTED: Final = OUTCOMES.index("ABORTED")
FIRST: Final = CHANGES.index("FIRST")
ADVANCE: Final = CHANGES.index("ADVANCE")
REPEAT: Final = CHANGES.index("REPEAT")
REWIND: Final = CHANGES.index("REWIND")
DELETE: Final = CHANGES.index("DELETE")
"""From here on in CHANGES, no offset is in force."""

RESETS_MAX: Final = 16
"""More commits than these to one partition of a group that stays empty come from a consumer without membership. Only
the first of them, and those that go back, are reported."""
USUAL_FACTOR: Final = 10
"""A skip is longer and faster than the partition's usual advance by this factor."""
USUAL_ADVANCES: Final = 3
"""Usual is the median of this many advances before it, since the offset was last deleted; with fewer, nothing is."""


class Verdict(NamedTuple):
    """What a commit is, and what the log says of its reason."""

    kind: str
    claim: Claim


LOG_START_OFFSET: Final = "LOG_START_OFFSET"
"""Method: a new leader loads the log from its start, which had moved."""
NOT_APPLIED: Final = "ABORTED"
"""Kind of a commit that never took effect."""
TOPIC_RECREATED: Final = "TOPIC_RECREATED"
"""`likely_cause` where an offset went back because its topic was made again: offsets begin again there."""
STALLED: Final = Verdict("STALLED", Claim("", "REPEATED_COMMITS", GUESS))
SKIP: Final = Verdict("SKIP", Claim("", "BEYOND_USUAL_RATE", LIKELY))
NEVER_APPLIED: Final = Verdict(NOT_APPLIED, Claim("", "ABORT_MARKER", CERTAIN))
SET_ONCE: Final = Verdict("EMPTY_GROUP_RESET", Claim("", "SET_ONCE_WITHOUT_MEMBERS", GUESS))


def find_anomalies(
    life: GroupLife,
    owners: Iterable[OwnerRow],
    settings: InferenceSettings,
    is_new: BoolArray | None = None,
    removed: Removed = NOTHING_REMOVED,
    applied: ByPartition | None = None,
) -> list[AnomalyRow]:
    """Commit anomalies of one group, in log order. `owners`: `owners.partition_owners(life)`.

    `is_new`: which of the commits to judge; of earlier ones, only those needed for that are present (`group_past`).
    `removed`: topics that were removed according to the metadata log. `applied`: the result of `applied_by_partition`,
    if known.
    """
    commits = life.commits
    if not len(commits) or not (is_new is None or is_new.any()):
        return []
    groups = GenerationsAt(life)
    verdicts: dict[int, Verdict] = {}
    applied = applied_by_partition(commits) if applied is None else applied
    # later updates override earlier ones, so the more significant kinds come last
    verdicts |= dict.fromkeys(stalled(commits, applied, settings), STALLED)
    verdicts |= dict.fromkeys(skips(commits, applied, settings), SKIP)
    verdicts |= _rewinds(life, applied)
    verdicts |= _resets(life, groups)
    if is_new is None:
        verdicts |= _set_once(commits, groups, life.log.whole_to)
    verdicts |= dict.fromkeys(_rows(commits.outcome == ABORTED), NEVER_APPLIED)
    verdicts |= _deleted(life, groups, settings, removed, applied) | _forgotten(life)
    if is_new is not None:
        verdicts = {row: verdict for row, verdict in verdicts.items() if is_new[row]}
    if not verdicts:
        return []
    anomalies = _Anomalies(life, groups, OwnersAt(owners), _InForce(life, applied))
    return [anomalies.row(commit, verdicts[commit.row]) for commit in _commits_of(commits, sorted(verdicts))]


def went_back(row: AnomalyRow) -> bool:
    """Did the committed offset go back, whatever the row is called? Not where its topic was made again."""
    is_less = row.from_offset is not None and row.to_offset is not None and row.to_offset < row.from_offset
    return is_less and row.kind != NOT_APPLIED and row.likely_cause != TOPIC_RECREATED


class Moment(NamedTuple):
    """A group at a log offset."""

    generation: GenerationRow | None
    group_type: str | None
    """If there is no generation, that of the nearest one."""
    begin: int
    """Where the generation, or the one before, begins; -1 if there is none."""
    members_since: int
    """The same, or -1 if members that came before it may be there unseen: where only commits show the group, or in a
    group whose members have records of their own."""
    is_empty: bool | None
    """Whether the group has no members; None if a hole in the log leaves it open."""
    are_missing_behind: bool
    """Whether generations between this one and the next are not in the log."""


class GenerationsAt:
    """Generations of a group, by log offset."""

    def __init__(self, life: GroupLife) -> None:
        self._unread_from = life.log.unread_from
        # an interval counts from the last record of its operation; a group is empty from the first record that created
        # it
        created: dict[int, list[int]] = {}
        emptied: list[int] = []
        for event in life.events:
            if event.event_type == "GROUP_CREATED":
                created.setdefault(event.at, []).append(event.log_offset)
            elif event.event_type == "GROUP_EMPTIED":
                emptied.append(event.log_offset)
        joined = sorted(row.from_log_offset for row in life.members)
        self._rows = sorted(life.generations, key=lambda row: row.from_log_offset)
        begins = [
            row.from_log_offset
            if row.member_count
            else max(
                (place for place in created.get(row.valid_from, ()) if place <= row.from_log_offset),
                default=row.from_log_offset,
            )
            for row in self._rows
        ]
        self._from = np.minimum.accumulate(np.array(begins[::-1], np.int64))[::-1]
        self._begins: list[int] = self._from.tolist()
        self._to = [WHOLE if row.to_log_offset is None else row.to_log_offset for row in self._rows]
        empty = [row.member_count == 0 for row in self._rows]
        self._is_followed = [row.is_contiguous or row.generation == 0 for row in self._rows[1:]] + [True]
        # without times, or after compaction, the records of members may be far from that of the epoch
        self._empty_from = [
            _last_between(emptied, begin, row.to_log_offset)
            for begin, row in zip(self._begins, self._rows, strict=True)
        ]
        was_empty = [(-1, True), *zip(self._empty_from, empty, strict=True)][: len(self._rows)]
        self._joined_at = [
            _first_behind(joined, since) if was and row.member_count else -1
            for (since, was), row in zip(was_empty, self._rows, strict=True)
        ]
        self._is_empty = empty

    def at(self, log_offset: int) -> "Moment":
        index = bisect_right(self._begins, log_offset) - 1
        if index < 0:
            return Moment(None, self._rows[0].group_type if self._rows else None, -1, -1, None, False)
        row, begin = self._rows[index], self._begins[index]
        is_unwritten = row.generation == 0 and row.previous_generation is None
        may_have_others = is_unwritten or (row.group_type != GroupType.CLASSIC and not row.member_count)
        return Moment(
            row if log_offset < self._to[index] else None,
            row.group_type,
            begin,
            -1 if may_have_others else begin,
            self._is_empty_at(index, log_offset),
            not self._is_followed[index],
        )

    def _is_empty_at(self, index: int, log_offset: int) -> bool | None:
        is_empty = self._is_empty[index]
        if log_offset >= self._to[index] or (is_empty and not self._is_followed[index]):
            return None  # generations in between are missing, and may have had members
        if log_offset < self._joined_at[index]:
            return None  # the record of its first member is the one that the log still has
        is_empty = is_empty and log_offset >= self._empty_from[index]
        return None if is_empty and log_offset >= self._unread_from else is_empty

    def emptied_rows(self, log_offsets: I64) -> Iterator[tuple[int, int]]:
        """For each interval in which a group that had members has none: the first and the end index (exclusive) of the
        ascending log offsets within it."""
        for index, row in enumerate(self._rows):
            if not self._is_empty[index] or not self._is_followed[index] or row.generation <= 0:
                continue
            ends = self._to[index], *self._from[index + 1 : index + 2], self._unread_from
            first, end = np.searchsorted(log_offsets, (self._empty_from[index], min(ends))).tolist()
            if first < end:
                yield first, end

    def is_emptied_at(self, log_offset: int) -> bool:
        """Whether a group that had members has none from there on."""
        return any(
            is_empty and since == log_offset for is_empty, since in zip(self._is_empty, self._empty_from, strict=True)
        )

    def emptied_since(self) -> int:
        """Where the newest interval begins, if the group is empty in it and had members before; else -1."""
        newest = self._rows[-1] if self._rows else None
        if newest is None or newest.to_log_offset is not None or newest.member_count or newest.generation <= 0:
            return -1
        if self._unread_from < WHOLE:
            return -1
        return self._empty_from[-1]


def _last_between(places: Sequence[int], begin: int, end: int | None) -> int:
    """The last of some log offsets, ascending, from one up to another (exclusive); the begin if there is none."""
    index = bisect_left(places, WHOLE if end is None else end) - 1
    return begin if index < 0 else max(begin, places[index])


def _first_behind(places: Sequence[int], log_offset: int) -> int:
    """The first of some log offsets, ascending, behind one; -1 if there is none."""
    index = bisect_right(places, log_offset)
    return places[index] if index < len(places) else -1


class OwnersAt:
    def __init__(self, owners: Iterable[OwnerRow]) -> None:
        self._intervals: defaultdict[tuple[str | None, int], list[OwnerRow]] = defaultdict(list)
        for owner in owners:
            self._intervals[owner.topic, owner.partition].append(owner)

    def at(self, topic: str, partition: int, log_offset: int) -> OwnerRow | None:
        """The owner; None if there is none. If the log shows two, the one with the earliest beginning."""
        found: OwnerRow | None = None
        for owner in self._intervals.get((topic, partition), ()):
            if owner.from_log_offset <= log_offset and (
                owner.to_log_offset is None or log_offset < owner.to_log_offset
            ):
                is_longer = found is None or _begin(owner) < _begin(found)
                found = owner if is_longer else found
        return found


def _begin(owner: OwnerRow) -> tuple[int, str]:
    return owner.from_log_offset, owner.member_id


class _InForce:
    """The committed offset in force at a log offset."""

    def __init__(self, life: GroupLife, applied: ByPartition) -> None:
        self._life = life
        self._commits = life.commits
        self.has_holes = bool(life.log.holes)
        self._by_partition = applied
        self._applied: dict[tuple[int, int], I32] | None = None
        """Topic and partition -> the rows that took effect, in the order of taking effect."""

    def before(self, row: int) -> int | None:
        """The offset in force when the record of this row was written; None if there was none, or if another one may
        have been committed in a missing part of the log."""
        commits = self._commits
        if self._applied is None:
            rows, starts = self._by_partition
            slices = [rows[first:end] for first, end in pairwise(starts.tolist())]
            self._applied = {(int(commits.topic[of[0]]), int(commits.partition[of[0]])): of for of in slices}
        rows = self._applied.get((int(commits.topic[row]), int(commits.partition[row])), _NO_ROWS)
        index = bisect_left(rows, commits.log_offset[row], key=commits.applied_log_offset.__getitem__) - 1
        if index < 0 or commits.change[rows[index]] >= DELETE:
            return None
        if self._life.may_lack_commit(int(rows[index]), int(commits.log_offset[row])):
            return None  # compaction, too: the one found may be of an earlier capture
        return int(commits.committed_offset[rows[index]])


_NO_ROWS: Final = np.zeros(0, np.int32)


class _Commit(NamedTuple):
    row: int
    topic: str
    partition: int
    log_offset: int
    change: int
    """Index into CHANGES; -1 unless applied."""
    at_ms: int
    """When it was applied, else when it was recorded."""
    previous_offset: int
    committed_offset: int
    is_transactional: bool


def _commits_of(commits: GroupCommits, rows: Sequence[int]) -> Iterator[_Commit]:
    """Some of the commits, as Python values."""
    at = np.array(rows, np.int64)
    is_applied = commits.outcome[at] == APPLIED
    columns = (
        commits.partition[at],
        commits.log_offset[at],
        commits.change[at],
        np.where(is_applied, commits.applied_at_ms[at], commits.recorded_at_ms[at]),
        commits.previous_offset[at],
        commits.committed_offset[at],
        commits.is_transactional[at],
    )
    topics = map(commits.topics.__getitem__, commits.topic[at].tolist())
    return map(_Commit, rows, topics, *(column.tolist() for column in columns))


class _Anomalies:
    """Rows of the anomalies of one group."""

    def __init__(self, life: GroupLife, groups: GenerationsAt, owners: OwnersAt, in_force: _InForce) -> None:
        self._life = life
        self._is_whole = life.log.is_whole
        self._groups = groups
        self._owners = owners
        self._doubts = _Doubts(life)
        self._in_force = in_force

    def row(self, commit: _Commit, verdict: Verdict) -> AnomalyRow:
        # a new leader does not know what was so just before
        log_offset = commit.log_offset - (verdict.kind == FORGOTTEN)
        owner = self._owners.at(commit.topic, commit.partition, log_offset)
        moment = self._groups.at(log_offset)
        is_empty, generation = moment.is_empty, moment.generation
        is_owner_known = self._life.log.unread_from > log_offset and not (generation and generation.unread_members)
        if self._is_whole:
            pass
        elif self._may_lack_members(moment, log_offset):
            owner = is_empty = None
        elif doubtful := self._doubts.at(log_offset):
            is_empty = None if is_empty is False and self._doubts.are_all(doubtful, log_offset) else is_empty
            owner = None if owner is not None and owner.member_id in doubtful else owner
            is_owner_known = is_owner_known and owner is not None
        before, after = _offsets_of(commit, self._in_force)
        method = verdict.claim.method
        may_be_renamed = owner is None and is_empty is False and is_owner_known
        if may_be_renamed and method in _NON_OWNER_METHODS and not commit.is_transactional:
            # it was accepted, so it came from a member; the partition had no owner, so not from its owner
            method = "COMMIT_BY_NON_OWNER"
        # positional arguments: keywords for so many fields take twice the time
        return AnomalyRow(
            self._life.group_id,
            moment.group_type,
            commit.topic,
            commit.partition,
            commit.log_offset,
            commit.at_ms,
            verdict.kind,
            before,
            after,
            None if commit.change < 0 else _difference(before, after),
            owner.member_id if owner else None,
            owner.client_host if owner else None,
            is_empty,
            verdict.claim.cause or None,
            method,
            verdict.claim.confidence,
        )

    def _may_lack_members(self, moment: Moment, log_offset: int) -> bool:
        """Whether members may have come, or gone, in a missing part of the log."""
        generation, begin = moment.generation, moment.members_since
        if generation is not None and not generation.generation and not generation.incarnation:
            begin = -1  # the first commit that was read made the group: its own records may be in any part before
        is_compacted = moment.are_missing_behind and self._life.log.has_hole(begin, log_offset)
        return is_compacted or self._life.log.has_gap(begin, log_offset)


class _Doubts:
    """Which members of a group may have gone in a missing part of the log. Members of other groups than classic ones
    have records of their own: what is behind that part does not tell of the others."""

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        spanning = [
            (row, gap)
            for row in (life.members if life.log.gaps else ())
            if row.group_type != GroupType.CLASSIC
            for gap in life.log.gaps[bisect_right(life.log.gaps, row.from_log_offset) :]
            if row.to_log_offset is None or gap < row.to_log_offset
        ]
        self._intervals = [(row.member_id, gap, self._shown_again(row, gap)) for row, gap in spanning]

    def _shown_again(self, member: MemberRow, gap: int) -> int:
        """Where a record of a member follows."""
        places = (it.log_offset for it in self._life.events if it.member_id == member.member_id and it.log_offset > gap)
        end = WHOLE if member.to_log_offset is None else member.to_log_offset
        return min(min(places, default=end), end)

    def at(self, log_offset: int) -> Collection[str]:
        """The members of whom it is not known whether they are there."""
        return {member_id for member_id, begin, end in self._intervals if begin <= log_offset < end}

    def are_all(self, doubtful: Collection[str], log_offset: int) -> bool:
        """Whether these are all members that may be there."""
        return all(
            row.member_id in doubtful
            for row in self._life.members
            if row.from_log_offset <= log_offset and (row.to_log_offset is None or log_offset < row.to_log_offset)
        )


_NON_OWNER_METHODS: Final = frozenset({"OFFSET_WENT_BACK", "BEYOND_USUAL_RATE"})


def _rewinds(life: GroupLife, applied: ByPartition) -> dict[int, Verdict]:
    """Commits of less than the one before.

    The offset may have gone back in another record, or not at all, where records between the two may be missing, or
    where it is not known of one of them whether it was of a transaction that was aborted.
    """
    commits = life.commits
    rows = _rows(commits.change == REWIND)
    went_back = Claim("", "OFFSET_WENT_BACK", CERTAIN)
    found = dict.fromkeys(rows, Verdict("REWIND", went_back))
    may_be_aborted = commits.may_be_transactional
    if not rows or not (life.log.holes or life.log.whole_to < WHOLE or may_be_aborted.any()):
        return found
    before = _before(commits, applied)
    for row in rows:
        last, place = int(before[row]), int(commits.applied_log_offset[row])
        is_doubtful = may_be_aborted[row] or (last >= 0 and may_be_aborted[last])
        is_doubtful |= life.log.has_hole(-1, place) if last < 0 else life.may_lack_commit(last, place)
        found[row] = Verdict("REWIND", went_back.weighed(bool(is_doubtful)))
    return found


def _before(commits: GroupCommits, applied: ByPartition) -> I64:
    """For each commit that took effect, the one in force before it, tombstones included; -1 if there is none."""
    rows, starts = applied
    before = np.full(len(commits), -1, np.int64)
    has_earlier = np.ones(len(rows), np.bool_)
    has_earlier[starts[:-1]] = False
    later = np.flatnonzero(has_earlier)
    before[rows[later]] = rows[later - 1]
    return before


def _resets(life: GroupLife, groups: GenerationsAt) -> dict[int, Verdict]:
    """Plain commits while a group that had had members was empty. After a missing part of the log it may have members
    again."""
    commits = life.commits
    chosen = is_plain(commits)
    verdicts: dict[int, Verdict] = {}
    for first, end in groups.emptied_rows(commits.log_offset):
        mine, starts = by_partition(commits.taken(slice(first, end)), chosen[first:end])
        for begin, to in pairwise(starts.tolist()):
            if to - begin <= RESETS_MAX:
                for row in (first + mine[begin:to]).tolist():
                    place = int(commits.log_offset[row])
                    moment = groups.at(place)
                    # an earlier capture may have read the generation before compaction took the ones behind it
                    is_doubtful = (
                        commits.may_be_transactional[row]
                        or life.log.may_have_gap(moment.members_since, place)
                        or life.log.has_hole(moment.begin, place)
                    )
                    claim = Claim("", "COMMIT_TO_EMPTY_GROUP", CERTAIN).weighed(bool(is_doubtful))
                    verdicts[row] = Verdict("EMPTY_GROUP_RESET", claim)
            else:
                row = first + int(mine[begin])
                verdicts[row] = Verdict("EMPTY_GROUP_RESET", Claim("", "COMMITS_WITHOUT_MEMBERSHIP", GUESS))
    return verdicts


def is_plain(commits: GroupCommits) -> BoolArray:
    """Which commits set an offset, and are of no transaction."""
    plain: BoolArray = (commits.outcome == APPLIED) & (commits.change < DELETE) & ~commits.is_transactional
    return plain


def _set_once(commits: GroupCommits, groups: GenerationsAt, whole_to: int) -> dict[int, Verdict]:
    """Offsets that were set once and never moved: perhaps by a tool. Where offsets of the log are missing before them,
    they may as well be the last commits of a consumer."""
    if commits.log_offset[-1] > whole_to or not is_set_once(commits) or any(groups.emptied_rows(commits.log_offset)):
        return {}
    return {row: SET_ONCE for row in _rows(commits.change < DELETE) if groups.at(int(commits.log_offset[row])).is_empty}


def is_set_once(commits: GroupCommits) -> bool:
    """Whether all commits of a group, except deletions, are plain first ones to their partition."""
    return _are_plain_first(commits.outcome, commits.change, commits.is_transactional)


@compiled
def _are_plain_first(outcome: I8, change: I8, is_transactional: BoolArray) -> bool:
    for row in range(len(change)):
        is_first = outcome[row] == APPLIED and change[row] == FIRST and not is_transactional[row]
        if not is_first and change[row] < DELETE:
            return False
    return True


def _deleted(
    life: GroupLife, groups: GenerationsAt, settings: InferenceSettings, removed: Removed, applied: ByPartition
) -> dict[int, Verdict]:
    commits = life.commits
    rows = _rows(commits.change == DELETE)
    if not rows:
        return {}
    causes = Deletions(life, settings, applied, removed)
    return {
        row: Verdict("DELETED", why)
        for row, why in causes.of(rows, lambda log_offset: groups.at(log_offset).generation).items()
    }


def _forgotten(life: GroupLife) -> dict[int, Verdict]:
    """Offsets that a new leader did not load, since the log start had moved past them."""
    rows = _rows(life.commits.change == CHANGES.index(FORGOTTEN))
    sure = {event.log_offset: event.details["confidence"] for event in life.events if event.event_type == FORGOTTEN}
    return {
        row: Verdict(FORGOTTEN, Claim("", LOG_START_OFFSET, sure.get(int(life.commits.log_offset[row]), GUESS)))
        for row in rows
    }


def skips(commits: GroupCommits, applied: ByPartition, settings: InferenceSettings) -> Sequence[int]:
    """Advances that are far longer and far faster than the median of those before. `applied`: the result of
    `applied_by_partition`."""
    moved = np.where(commits.change == ADVANCE, commits.committed_offset - commits.previous_offset, 0)
    is_found = np.zeros(len(commits), np.bool_)
    _mark_skips(*applied, commits.change, moved, commits.applied_at_ms, settings.skip_offset_count, is_found)
    return _rows(is_found)


@compiled
def _mark_skips(
    rows: I32, starts: I64, change: I8, moved: I64, at_ms: I64, offset_count: int, is_found: BoolArray
) -> None:
    """Rates are offsets per millisecond since the advance before; 0 for the first one, and where a time is missing or
    went back."""
    lengths, rates = np.zeros(USUAL_ADVANCES, np.int64), np.zeros(USUAL_ADVANCES)
    for number in range(len(starts) - 1):
        count, before_ms = 0, NONE_MS
        for place in range(starts[number], starts[number + 1]):
            row = rows[place]
            if change[row] >= DELETE:
                count = 0
            if change[row] != ADVANCE:
                continue
            rate = 0.0
            if count and before_ms != NONE_MS and at_ms[row] >= before_ms:
                rate = moved[row] / max(at_ms[row] - before_ms, 1)
            if moved[row] >= offset_count and count >= USUAL_ADVANCES:
                is_far = moved[row] > USUAL_FACTOR * np.median(lengths)
                is_found[row] = is_far and rate > USUAL_FACTOR * np.median(rates)
            lengths[count % USUAL_ADVANCES], rates[count % USUAL_ADVANCES] = moved[row], rate
            count, before_ms = count + 1, at_ms[row]


def applied_by_partition(commits: GroupCommits, group: I64 | None = None) -> ByPartition:
    """The commits that took effect, by partition. `group`, a number for each row: for commits of several groups."""
    return by_partition(commits, commits.outcome == APPLIED, group=group)


def stalled(commits: GroupCommits, applied: ByPartition, settings: InferenceSettings) -> Sequence[int]:
    """The commits at which an offset has stayed for `stalled_ms`, one for each time that it stays.

    `applied`: the result of `applied_by_partition`.
    """
    at = commits.applied_at_ms
    has_time = at != NONE_MS
    last_ms = int(at.max(where=has_time, initial=NONE_MS))
    if last_ms - int(at.min(where=has_time, initial=last_ms)) < settings.stalled_ms or not has_time.any():
        return ()
    is_found = np.zeros(len(commits), np.bool_)
    _mark_stalls(*applied, commits.change, at, settings.stalled_ms, is_found)
    return _rows(is_found)


@compiled
def _mark_stalls(rows: I32, starts: I64, change: I8, at_ms: I64, stalled_ms: int, is_found: BoolArray) -> None:
    """In each run of repeated commits to a partition, mark the first one that is `stalled_ms` after the repeated
    commit.
    """
    for number in range(len(starts) - 1):
        began_ms = np.int64(0)
        was_long = False
        for place in range(starts[number], starts[number + 1]):
            row = rows[place]
            if place == starts[number] or change[row] != REPEAT:
                began_ms = at_ms[row]
                was_long = False
            is_long = change[row] == REPEAT and at_ms[row] - began_ms >= stalled_ms
            is_long = is_long and at_ms[row] != NONE_MS and began_ms != NONE_MS
            is_found[row] = is_long and not was_long
            was_long = is_long


def _rows(chosen: BoolArray) -> Sequence[int]:
    rows: Sequence[int] = np.flatnonzero(chosen).tolist()
    return rows


def _offsets_of(commit: _Commit, in_force: _InForce) -> tuple[int | None, int | None]:
    """The offset in force before a commit, and the one after it; None if there is none."""
    if commit.change in _MOVES:
        return commit.previous_offset, commit.committed_offset
    before: int | None = commit.previous_offset
    if commit.change == FIRST:
        before = None
    elif commit.change < 0 or before == _MAY_BE_NULL or in_force.has_holes:
        before = in_force.before(commit.row)
    return before, None if commit.change >= DELETE else commit.committed_offset


_MAY_BE_NULL: Final = -1
"""The column's value for null, which is also a possible offset."""
_MOVES: Final = frozenset({ADVANCE, REPEAT, REWIND})


def _difference(before: int | None, after: int | None) -> int | None:
    """None if an offset is missing, or if the difference exceeds a BIGINT."""
    if before is None or after is None:
        return None
    return after - before if -(2**63) <= after - before < 2**63 else None
