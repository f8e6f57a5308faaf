"""Why committed offsets were deleted.

The coordinator deletes them in four cases, and writes the same tombstone in each:

* TOPIC_DELETED: all partitions of a deleted topic (onPartitionsDeleted), whatever the group does.
* GROUP_DELETED: all offsets of a group and the group itself, in one operation (deleteGroups).
* OFFSETS_DELETED: some partitions, as an admin client asked (deleteOffsets). Refused for a topic that a member of the
  group is subscribed to.
* EXPIRED: offsets older than their retention (cleanupExpiredOffsets), at a check every
  `offsets.retention.check.interval.ms`. If no offset is left in an empty group, the group is deleted in the same
  operation.

Which offsets expire depends on the broker. Before 2.1 the value itself has its expiry (expireTimestamp), whether the
group reads the topic or not; later brokers write it too where a client asks for a retention. From 2.1 on
`offsets.retention.minutes` counts, and a subscribed topic is spared; but until 3.1 not while its classic group
rebalances (KAFKA-13636).

So only the metadata log proves that a topic was deleted. If a group was subscribed to the topic and kept none of its
offsets, that is a guess: other groups may have kept their offsets and may still read the topic, and they are mostly in
other log partitions. It is no proof either where the operation also deleted an offset of another topic, or one that was
committed after the topic was removed: then the topic was created again, or the whole group was deleted. It is proven
that an offset expired where its own expiry had passed at the check. The rest is as likely as the broker's settings are
known.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.history.rows import EventRow, GenerationRow, MemberRow
from coordinator_core.history.views import TOPICS_BEFORE
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.life import NO_EXPIRY, GroupCommits, GroupLife
from coordinator_core.inference.facts.log_facts import NONE_MS
from coordinator_core.inference.facts.partitions import ByPartition
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES
from schemas.group_types import GroupType

TOPIC_DELETED: Final = "TOPIC_DELETED"
GROUP_DELETED: Final = "GROUP_DELETED"
OFFSETS_DELETED: Final = "OFFSETS_DELETED"
EXPIRED: Final = "EXPIRED"

RETENTION_MIN_MS: Final = 59_000
"""One minute, less the possible error of two timestamps."""
SUBSCRIBED_TOPIC: Final = "SUBSCRIBED_TOPIC"
"""Method: a member was subscribed to the topic."""
EXPIRE_TIME: Final = "EXPIRE_TIME"
"""Method: the value itself has its expiry."""
REMOVAL_MS: Final = 30_000
"""The coordinators delete the offsets of a topic at most this long after the controller removed it."""
CLOCKS_MS: Final = 1_000
"""By how much the clocks of two brokers may differ. The removal may then have a later time than its tombstones."""
TOGETHER_MS: Final = 10_000
"""A broker with ZooKeeper receives the deletion of a topic in several requests, all within this time."""

NOT_EMPTY_MS: Final = 2**62
"""Later than all times."""
NO_AGE_MS: Final = 2**62
"""Greater than all ages."""

_DELETE: Final = CHANGES.index("DELETE")


UNKNOWN: Final = Claim("", "TOMBSTONE", CERTAIN)
"""The deletion is certain, its cause unknown."""


class _RemovedTogether(NamedTuple):
    at_ms: int
    last_log_offset: int


Removed = Mapping[str, Sequence[int]]
"""Topic -> when it was removed according to the metadata log (ms), ascending."""
NOTHING_REMOVED: Final[Removed] = {}


class Deletions:
    """The deletions of one group. `removed`: topics that were removed according to the metadata log."""

    def __init__(
        self,
        life: GroupLife,
        settings: InferenceSettings,
        applied: ByPartition,
        removed: Removed = NOTHING_REMOVED,
    ) -> None:
        """`applied`: the group's commits that took effect, by partition."""
        self._life = life
        self._settings = settings
        self._removed = removed
        self._subscriptions = _Subscriptions(life)
        self._group_deleted = {
            event.at: event.log_offset
            for event in life.events
            if event.event_type == "GROUP_DELETED" and event.log_offset not in life.timeless
        }
        self._applied = _Applied.of(life.commits, applied)

    def of(self, rows: Sequence[int], generation_at: Callable[[int], GenerationRow | None]) -> Mapping[int, Claim]:
        """The cause of each tombstone. `rows`: the commits with a DELETE, in log order."""
        tombstones = np.array(rows)
        firsts, steps = self._steps(tombstones)
        step_of_row = np.repeat(np.arange(len(steps)), np.diff(np.append(firsts, len(rows))))
        log_offset = self._life.commits.log_offset
        generations = [generation_at(place) for place in log_offset[tombstones[firsts]].tolist()]
        deleted = self._deleted(tombstones, [self._empty_since(row) for row in generations], step_of_row)
        may_have_expired = np.logical_and.reduceat(deleted.may_have_expired, firsts).tolist()
        age_ms = np.minimum.reduceat(deleted.age_ms, firsts).tolist()
        others, pair_of_row = self._others(firsts, tombstones)
        step_numbers = step_of_row.tolist()
        removals = self._removals(steps, step_numbers, tombstones, deleted)
        # within one operation and topic, only the values themselves make a difference
        kinds = zip(
            pair_of_row.tolist(), deleted.expire_at_ms.tolist(), deleted.is_behind_hole.tolist(), removals, strict=True
        )
        alike: dict[tuple[int, int, bool, str | None], Claim] = {}
        causes: dict[int, Claim] = {}
        for row, number, kind in zip(rows, step_numbers, kinds, strict=True):
            why = alike.get(kind)
            if why is None:
                pair, expire_at_ms, is_behind_hole, removal = kind
                step, may_have = steps[number], may_have_expired[number]
                expired = self._expired(expire_at_ms, is_behind_hole, age_ms[number], step.at_ms) if may_have else None
                why = self._why(row, step, expired, may_have, generations[number], removal, others[pair])
                alike[kind] = why
            causes[row] = why
        return causes

    def _why(
        self,
        row: int,
        step: _RemovedTogether,
        expired: Claim | None,
        may_have_expired: bool,
        generation: GenerationRow | None,
        removal: str | None,
        others: "_Others",
    ) -> Claim:
        went_with_group = self._group_deleted.get(step.at_ms, -1) > step.last_log_offset
        if removal == CERTAIN and not others.are_kept and not self._life.log.has_clock_step(-1, step.last_log_offset):
            # an admin or a check may have been quicker than the removal, which takes all partitions at once
            is_proven = expired is None and not went_with_group and not others.went_apart
            return Claim(TOPIC_DELETED, "METADATA_LOG", CERTAIN).weighed(not is_proven)
        if expired is not None and expired.method == EXPIRE_TIME:
            # a check deletes all offsets that have expired, and a group without others; so does who deletes the group
            is_proven = not others.outlived_expiry and removal is None and not went_with_group
            return expired.weighed(not is_proven)
        if self._subscriptions.holds(row, step.at_ms):
            if others.are_kept:
                return self._of_some_subscribed(expired, may_have_expired)
            is_spared = generation is not None and generation.group_type != GroupType.CLASSIC
            if expired is not None and not is_spared:
                return expired
            return Claim(TOPIC_DELETED, SUBSCRIBED_TOPIC, GUESS)
        if removal is not None and not others.are_kept:
            return Claim(TOPIC_DELETED, "METADATA_LOG", LIKELY)
        if not may_have_expired:
            if went_with_group:
                return Claim(GROUP_DELETED, "WITH_ITS_GROUP", LIKELY)
            if others.are_kept:
                return Claim(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", LIKELY)
            return Claim("", "YOUNGER_THAN_RETENTION", CERTAIN)
        return UNKNOWN if expired is None else expired

    def _of_some_subscribed(self, expired: Claim | None, may_have_expired: bool) -> Claim:
        """The topic exists, and a member is subscribed to it: an admin client cannot delete its offsets."""
        if expired is not None:
            return expired
        if may_have_expired:
            return Claim(EXPIRED, "EXPIRED_IN_REBALANCE", GUESS)
        # from the end of the join phase until the generation's record, its subscriptions are not in the log yet
        return Claim(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", GUESS)

    def _expired(self, expire_at_ms: int, is_behind_hole: bool, age_ms: int, at_ms: int) -> Claim | None:
        """The verdict that an offset expired, where its expiry or its age at the operation shows it."""
        settings = self._settings
        check_ms = 2 * settings.offsets_retention_check_interval_ms
        if expire_at_ms != NO_EXPIRY:
            is_at_check = at_ms <= expire_at_ms + check_ms
            return Claim(EXPIRED, EXPIRE_TIME, CERTAIN).weighed(is_behind_hole or not is_at_check)
        is_at_check = settings.offsets_retention_ms <= age_ms <= settings.offsets_retention_ms + check_ms
        return Claim(EXPIRED, "AGE_AT_RETENTION", LIKELY) if is_at_check else None

    def _removals(
        self, steps: Sequence[_RemovedTogether], step_of_row: Sequence[int], tombstones: I64, deleted: "_Deleted"
    ) -> Sequence[str | None]:
        """For each tombstone, whether its topic was removed at its operation, according to the metadata log.

        An operation that deleted an offset of a topic that was not removed was not caused by the removal of another
        topic.
        """
        if not self._removed:
            return [None] * len(tombstones)
        found = [
            self._removal_before(row, steps[number].at_ms, None if committed_ms == NONE_MS else committed_ms, *place)
            for row, number, committed_ms, *place in zip(
                tombstones.tolist(),
                step_of_row,
                deleted.committed_ms.tolist(),
                deleted.base_log_offset.tolist(),
                deleted.is_behind_gap.tolist(),
                strict=True,
            )
        ]
        is_other = {number for number, removal in zip(step_of_row, found, strict=True) if removal is None}
        return [
            LIKELY if removal is not None and number in is_other else removal
            for number, removal in zip(step_of_row, found, strict=True)
        ]

    def _removal_before(
        self, row: int, at_ms: int, committed_ms: int | None, base_log_offset: int, is_behind_gap: bool
    ) -> str | None:
        """CERTAIN: the topic was removed just before, and nothing was committed in between; LIKELY: about that time."""
        commits = self._life.commits
        times = self._removed.get(commits.topics[commits.topic[row]], ())
        before = [
            removed_ms
            for removed_ms in times
            if 0 <= at_ms - removed_ms <= REMOVAL_MS and (committed_ms is None or committed_ms <= removed_ms)
        ]
        if before:
            # where it is not known what was committed last, it may have been of a topic that was created again
            if committed_ms is None or is_behind_gap:
                return LIKELY
            since_ms = before[-1] - CLOCKS_MS
            has_hole = self._life.log.has_hole_since(base_log_offset, int(commits.log_offset[row]), since_ms)
            return LIKELY if has_hole else CERTAIN
        is_near = any(
            -CLOCKS_MS <= at_ms - removed_ms <= REMOVAL_MS
            and (committed_ms is None or committed_ms <= removed_ms + CLOCKS_MS)
            for removed_ms in times
        )
        return LIKELY if is_near else None

    def _steps(self, tombstones: I64) -> tuple[I64, Sequence[_RemovedTogether]]:
        """Consecutive tombstones with the same timestamp belong to one operation. Also the index of the first one of
        each."""
        log_offset, at_ms = self._life.commits.log_offset[tombstones], self._life.commits.recorded_at_ms[tombstones]
        goes_on = (log_offset[1:] == log_offset[:-1] + 1) & (at_ms[1:] == at_ms[:-1])
        ends = np.append(np.flatnonzero(~goes_on) + 1, len(tombstones))
        steps = map(_RemovedTogether, at_ms[ends - 1].tolist(), log_offset[ends - 1].tolist())
        return np.append(0, ends[:-1]), list(steps)

    def _empty_since(self, generation: GenerationRow | None) -> int:
        """Since when (ms) a classic group has had no members; `NOT_EMPTY_MS` if it has some, NONE_MS if the log does
        not show it."""
        if generation is None or generation.group_type != GroupType.CLASSIC or generation.member_count:
            return NOT_EMPTY_MS
        return NONE_MS if generation.from_log_offset in self._life.timeless else generation.valid_from

    def _deleted(self, tombstones: I64, empty_since_ms: Sequence[int], step_of_row: I64) -> "_Deleted":
        """The offsets that the tombstones deleted. `empty_since_ms`: by operation."""
        life, commits, applied = self._life, self._life.commits, self._applied
        places = applied.last_before(applied.partition_of_row[tombstones], commits.log_offset[tombstones])
        base = applied.rows[places]
        is_known = (places >= 0) & (commits.change[base] < _DELETE)
        at_ms, base_ms = commits.recorded_at_ms[tombstones], commits.recorded_at_ms[base]
        # a record without a timestamp still has its commit time
        base_ms = np.where(base_ms == NONE_MS, commits.applied_at_ms[base], base_ms)
        base_ms = np.where(is_known, base_ms, NONE_MS)
        has_times = (at_ms != NONE_MS) & (base_ms != NONE_MS)
        # the leader that wrote the tombstone used its own clock, whatever the clock of the previous leader
        expire_at_ms = np.where(has_times, commits.expire_at_ms[base], NO_EXPIRY)
        has_expiry = expire_at_ms != NO_EXPIRY
        since_ms = np.array(empty_since_ms)[step_of_row]
        has_age = has_times & ~has_expiry & (since_ms != NONE_MS)
        places_of = commits.log_offset[base], commits.log_offset[tombstones]
        if life.log.clock_steps:
            before, behind = (np.searchsorted(life.log.clock_steps, places, "right") for places in places_of)
            has_age &= before == behind
        age_ms = at_ms - np.minimum(base_ms, since_ms)
        is_behind_gap = is_behind_hole = ~is_known
        if not life.log.is_whole:
            between = list(zip(base.tolist(), *(places.tolist() for places in places_of), strict=True))
            is_behind_gap = is_behind_gap | [life.log.may_have_gap(begin, end) for _, begin, end in between]
            is_behind_hole = is_behind_hole | [life.may_lack_commit(row, end) for row, _, end in between]
        return _Deleted(
            np.where(has_age, age_ms, NO_AGE_MS),
            expire_at_ms,
            np.where(has_expiry, at_ms >= expire_at_ms, ~has_age | (age_ms >= RETENTION_MIN_MS)),
            base_ms,
            places_of[0],
            is_behind_gap,
            is_behind_hole,
        )

    def _others(self, firsts: I64, tombstones: I64) -> tuple[Sequence["_Others"], I64]:
        """For each operation and topic that lost an offset in it, what happened to the topic's other partitions; and
        of each tombstone, the index of its own. `firsts`: index of each operation's first tombstone."""
        commits, applied = self._life.commits, self._applied
        pair_of_row = np.empty(len(tombstones), np.int64)
        found = np.zeros((len(tombstones), len(_Others._fields)), np.bool_)
        count = _find_others(
            *applied,
            commits.topic,
            commits.log_offset,
            commits.recorded_at_ms,
            commits.change,
            commits.applied_at_ms,
            commits.expire_at_ms,
            tombstones,
            np.append(firsts, len(tombstones)),
            np.array(self._life.log.clock_steps, np.int64),
            pair_of_row,
            found,
        )
        return [_Others(*of_pair) for of_pair in found[:count].tolist()], pair_of_row


class _Applied(NamedTuple):
    """The commits that took effect, by partition, in that order."""

    rows: I32
    bounds: I64
    """Where the rows of each partition begin, plus the end. A partition is identified by its index here; those of one
    topic are consecutive."""
    applied_log_offset: I64
    """For each commit, the log offset where it took effect."""
    first_of_topic: I64
    """By topic, its first partition."""
    count_of_topic: I64
    partition_of_row: I32
    """For each deletion, its partition; 0 for other commits."""

    @classmethod
    def of(cls, commits: GroupCommits, applied: ByPartition) -> "_Applied":
        rows, bounds = applied
        count_of_topic = np.bincount(commits.topic[rows[bounds[:-1]]], minlength=len(commits.topics))
        partition_of_row = np.zeros(len(commits), np.int32)
        _number_deletions(rows, bounds, commits.change, partition_of_row)
        return cls(
            rows,
            bounds,
            commits.applied_log_offset,
            np.cumsum(count_of_topic) - count_of_topic,
            count_of_topic,
            partition_of_row,
        )

    def last_before(self, partitions: I32, log_offsets: I64) -> I64:
        """For each partition and log offset, the index in `rows` of the last commit in force then; -1 if there is
        none."""
        places = np.empty(len(partitions), np.int64)
        _find_last_before(self.rows, self.bounds, self.applied_log_offset, partitions, log_offsets, places)
        return places


@compiled
def _number_deletions(rows: I32, bounds: I64, change: I8, partition: I32) -> None:
    for number in range(len(bounds) - 1):
        for place in range(bounds[number], bounds[number + 1]):
            if change[rows[place]] >= _DELETE:
                partition[rows[place]] = number


@compiled
def _last_before(rows: I32, bounds: I64, applied_log_offset: I64, partition: int, log_offset: int) -> int:
    first = bounds[partition]
    low, high = first, bounds[partition + 1]
    while low < high:
        middle = (low + high) // 2
        if applied_log_offset[rows[middle]] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > first else -1


@compiled
def _find_last_before(
    rows: I32, bounds: I64, applied_log_offset: I64, partitions: I32, log_offsets: I64, places: I64
) -> None:
    for index in range(len(partitions)):
        places[index] = _last_before(rows, bounds, applied_log_offset, partitions[index], log_offsets[index])


@compiled
def _find_others(
    rows: I32,
    bounds: I64,
    applied_log_offset: I64,
    first_of_topic: I64,
    count_of_topic: I64,
    partition_of_row: I32,
    topic: I32,
    log_offset: I64,
    recorded_at_ms: I64,
    change: I8,
    applied_at_ms: I64,
    expire_at_ms: I64,
    tombstones: I64,
    firsts: I64,
    clock_steps: I64,
    pair_of_row: I64,
    found: BoolArray,
) -> int:
    """Find the `_Others` of each operation and topic. Returns how many there are."""
    count = 0
    step_of_partition = np.full(len(bounds) - 1, -1, np.int64)
    pair_of_topic = np.full(len(first_of_topic), -1, np.int64)
    for step in range(len(firsts) - 1):
        last = tombstones[firsts[step + 1] - 1]
        at_ms, clock_step = recorded_at_ms[last], np.searchsorted(clock_steps, log_offset[last], side="right")
        for index in range(firsts[step], firsts[step + 1]):
            step_of_partition[partition_of_row[tombstones[index]]] = step
        begin = count
        for index in range(firsts[step], firsts[step + 1]):
            row = tombstones[index]
            lost = topic[row]
            if pair_of_topic[lost] >= begin:
                pair_of_row[index] = pair_of_topic[lost]
                continue
            pair_of_row[index] = pair_of_topic[lost] = count
            for partition in range(first_of_topic[lost], first_of_topic[lost] + count_of_topic[lost]):
                place = _last_before(rows, bounds, applied_log_offset, partition, log_offset[row])
                if step_of_partition[partition] == step or place < 0 or change[rows[place]] >= _DELETE:
                    continue
                # is the next change of the partition the deletion of its offset, soon after?
                is_soon = False
                if place + 1 < bounds[partition + 1]:
                    following = rows[place + 1]
                    is_soon = change[following] >= _DELETE and applied_at_ms[following] <= at_ms + TOGETHER_MS
                    if is_soon and np.searchsorted(clock_steps, log_offset[following], side="right") > clock_step:
                        is_soon = False
                    found[count, 1] |= is_soon and applied_at_ms[following] != at_ms
                found[count, 0] |= not is_soon
                expiry_ms = expire_at_ms[rows[place]]
                found[count, 2] |= not is_soon and expiry_ms != NO_EXPIRY and expiry_ms < at_ms
            count += 1
    return count


class _Deleted(NamedTuple):
    """Offsets at the time of their deletion, as columns."""

    age_ms: I64
    """The greatest possible age for the retention check, which counts from the commit; in a classic group without
    members, from when the group became empty. NO_AGE_MS if retention does not apply, or the log does not show it."""
    expire_at_ms: I64
    """The expiry in the value of the commit."""
    may_have_expired: BoolArray
    committed_ms: I64
    """When it was committed; NONE_MS if the log does not show it."""
    base_log_offset: I64
    """The log offset of that commit, if the log shows it."""
    is_behind_gap: BoolArray
    """A later commit may be in a part of the log that was not read."""
    is_behind_hole: BoolArray
    """The same, or compaction may have removed a later commit between two captures."""


class _Others(NamedTuple):
    """What happened to the other partitions of a topic that lost an offset."""

    are_kept: bool
    """One kept its offset: the topic exists."""
    went_apart: bool
    """One lost its offset in a later operation."""
    outlived_expiry: bool
    """One kept its offset although its own expiry had passed."""


class _Subscriptions:
    """The subscriptions by name of one group's members, at any log offset."""

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._begins = [row.from_log_offset for row in life.generations]
        self._changes: dict[str, list[EventRow]] = {}
        for event in life.events:
            if event.event_type == "SUBSCRIPTION_CHANGED" and event.member_id is not None:
                self._changes.setdefault(event.member_id, []).append(event)

    def holds(self, row: int, at_ms: int) -> bool:
        """Whether it is proven that a member was subscribed to the topic of a commit when the commit was written.

        A classic generation is written when its leader has synced, but its subscriptions count from the end of the join
        phase: between the two, a member must be subscribed in both generations.
        """
        commits = self._life.commits
        topic, log_offset = commits.topics[commits.topic[row]], int(commits.log_offset[row])
        if not self._is_subscribed(topic, log_offset):
            return False
        index = bisect_right(self._begins, log_offset)
        if index == len(self._begins):
            return True
        following = self._life.generations[index]
        has_step = self._life.log.has_clock_step(log_offset, following.from_log_offset)
        if following.current_state_at is None or (following.current_state_at > at_ms and not has_step):
            return True
        return self._is_subscribed(topic, following.from_log_offset)

    def _is_subscribed(self, topic: str, log_offset: int) -> bool:
        return any(
            member.from_log_offset <= log_offset
            and (member.to_log_offset is None or log_offset < member.to_log_offset)
            and topic in self._topics(member, log_offset)
            for member in self._life.members
        )

    def _topics(self, member: MemberRow, log_offset: int) -> Sequence[str]:
        """What a member was subscribed to: the previous value in its next change, else the subscription at its end."""
        end = member.to_log_offset
        for event in self._changes.get(member.member_id, ()):
            if event.log_offset > log_offset and (end is None or event.log_offset <= end):
                before: list[str] = json.loads(event.details.get(TOPICS_BEFORE, "[]"))
                return before
        return member.subscribed_topics or ()
