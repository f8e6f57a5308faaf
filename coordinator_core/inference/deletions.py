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

from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.history.rows import EventRow, GenerationRow, MemberRow
from coordinator_core.history.views import TOPICS_BEFORE
from coordinator_core.inference.life import NO_EXPIRY, NONE_MS, GroupCommits, GroupLife
from coordinator_core.inference.partitions import by_partition
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.chunk import I32, I64
from coordinator_core.log.kernels import compiled
from coordinator_core.offsets.columnar import CHANGES, OUTCOMES
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

_APPLIED: Final = OUTCOMES.index("APPLIED")
_DELETE: Final = CHANGES.index("DELETE")


class Why(NamedTuple):
    """The cause, where the log shows it, and how."""

    likely_cause: str | None
    method: str
    confidence: str


UNKNOWN: Final = Why(None, "TOMBSTONE", CERTAIN)
"""The deletion is certain, its cause unknown."""


class _RemovedTogether(NamedTuple):
    rows: tuple[int, ...]
    at_ms: int
    last_log_offset: int


Removed = Mapping[str, Sequence[int]]
"""Topic -> when it was removed according to the metadata log (ms), ascending."""
NOTHING_REMOVED: Final[Removed] = {}


class Deletions:
    """The deletions of one group. `removed`: topics that were removed according to the metadata log."""

    def __init__(self, life: GroupLife, settings: InferenceSettings, removed: Removed = NOTHING_REMOVED) -> None:
        self._life = life
        self._settings = settings
        self._removed = removed
        self._subscriptions = _Subscriptions(life)
        self._group_deleted = {
            event.at: event.log_offset
            for event in life.events
            if event.event_type == "GROUP_DELETED" and event.log_offset not in life.timeless
        }
        self._applied = _Applied.of(life.commits)

    def of(self, rows: Sequence[int], generation_at: Callable[[int], GenerationRow | None]) -> Mapping[int, Why]:
        """The cause of each tombstone. `rows`: the commits with a DELETE."""
        causes: dict[int, Why] = {}
        tombstones = np.array(rows)
        steps, taken = self._steps(tombstones), self._taken(tombstones)
        others = self._others(steps, tombstones)
        for step in steps:
            generation = generation_at(int(self._life.commits.log_offset[step.rows[0]]))
            offsets = {row: self._deleted(taken[row], generation) for row in step.rows}
            removals = self._removals(step, offsets, taken)
            may_have_expired = all(offset.may_have_expired for offset in offsets.values())
            age_ms = min((offset.age_ms for offset in offsets.values() if offset.age_ms is not None), default=None)
            # within one operation and topic, only the values themselves make a difference
            alike: dict[tuple[int, int | None, bool, str | None], Why] = {}
            for row in step.rows:
                topic, offset, removal = taken[row].topic, offsets[row], removals[row]
                kind = topic, offset.expire_at_ms, offset.is_behind_hole, removal
                if kind not in alike:
                    expired = self._expired(offset, age_ms, step.at_ms) if may_have_expired else None
                    of_others = others[step.last_log_offset, topic]
                    alike[kind] = self._why(row, step, expired, may_have_expired, generation, removal, of_others)
                causes[row] = alike[kind]
        return causes

    def _why(
        self,
        row: int,
        step: _RemovedTogether,
        expired: Why | None,
        may_have_expired: bool,
        generation: GenerationRow | None,
        removal: str | None,
        others: "_Others",
    ) -> Why:
        went_with_group = self._group_deleted.get(step.at_ms, -1) > step.last_log_offset
        if removal == CERTAIN and not others.are_kept and not self._life.has_clock_step(-1, step.last_log_offset):
            # an admin or a check may have been quicker than the removal, which takes all partitions at once
            is_proven = expired is None and not went_with_group and not others.went_apart
            return Why(TOPIC_DELETED, "METADATA_LOG", CERTAIN if is_proven else LIKELY)
        if expired is not None and expired.method == EXPIRE_TIME:
            # a check deletes all offsets that have expired, and a group without others; so does who deletes the group
            is_proven = not others.outlived_expiry and removal is None and not went_with_group
            return expired if is_proven else expired._replace(confidence=LIKELY)
        if self._subscriptions.holds(row, step.at_ms):
            if others.are_kept:
                return self._of_some_subscribed(expired, may_have_expired)
            is_spared = generation is not None and generation.group_type != GroupType.CLASSIC
            if expired is not None and not is_spared:
                return expired
            return Why(TOPIC_DELETED, SUBSCRIBED_TOPIC, GUESS)
        if removal is not None and not others.are_kept:
            return Why(TOPIC_DELETED, "METADATA_LOG", LIKELY)
        if not may_have_expired:
            if went_with_group:
                return Why(GROUP_DELETED, "WITH_ITS_GROUP", LIKELY)
            if others.are_kept:
                return Why(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", LIKELY)
            return Why(None, "YOUNGER_THAN_RETENTION", CERTAIN)
        return UNKNOWN if expired is None else expired

    def _of_some_subscribed(self, expired: Why | None, may_have_expired: bool) -> Why:
        """The topic exists, and a member is subscribed to it: an admin client cannot delete its offsets."""
        if expired is not None:
            return expired
        if may_have_expired:
            return Why(EXPIRED, "EXPIRED_IN_REBALANCE", GUESS)
        # from the end of the join phase until the generation's record, its subscriptions are not in the log yet
        return Why(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", GUESS)

    def _expired(self, offset: "_Deleted", age_ms: int | None, at_ms: int) -> Why | None:
        """The verdict that an offset expired, where its expiry or its age at the operation shows it."""
        settings = self._settings
        check_ms = 2 * settings.offsets_retention_check_interval_ms
        if offset.expire_at_ms is not None:
            is_at_check = at_ms <= offset.expire_at_ms + check_ms
            return Why(EXPIRED, EXPIRE_TIME, CERTAIN if is_at_check and not offset.is_behind_hole else LIKELY)
        if age_ms is None:
            return None
        is_at_check = settings.offsets_retention_ms <= age_ms <= settings.offsets_retention_ms + check_ms
        return Why(EXPIRED, "AGE_AT_RETENTION", LIKELY) if is_at_check else None

    def _removals(
        self, step: _RemovedTogether, offsets: Mapping[int, "_Deleted"], taken: Mapping[int, "_Taken"]
    ) -> Mapping[int, str | None]:
        """For each row of an operation, whether its topic was removed then, according to the metadata log.

        An operation that deleted an offset of a topic that was not removed was not caused by the removal of another
        topic.
        """
        if not self._removed:
            return dict.fromkeys(step.rows)
        found = {row: self._removal_before(taken[row], step.at_ms, offsets[row]) for row in step.rows}
        if None not in found.values():
            return found
        return {row: None if removal is None else LIKELY for row, removal in found.items()}

    def _removal_before(self, taken: "_Taken", at_ms: int, offset: "_Deleted") -> str | None:
        """CERTAIN: the topic was removed just before, and nothing was committed in between; LIKELY: about that time."""
        times = self._removed.get(self._life.commits.topics[taken.topic], ())
        committed_ms = offset.committed_ms
        before = [
            removed_ms
            for removed_ms in times
            if 0 <= at_ms - removed_ms <= REMOVAL_MS and (committed_ms is None or committed_ms <= removed_ms)
        ]
        if before:
            # where it is not known what was committed last, it may have been of a topic that was created again
            if committed_ms is None or offset.is_behind_gap:
                return LIKELY
            since_ms = before[-1] - CLOCKS_MS
            has_hole = self._life.has_hole_since(taken.base_log_offset, taken.log_offset, since_ms)
            return LIKELY if has_hole else CERTAIN
        is_near = any(
            -CLOCKS_MS <= at_ms - removed_ms <= REMOVAL_MS
            and (committed_ms is None or committed_ms <= removed_ms + CLOCKS_MS)
            for removed_ms in times
        )
        return LIKELY if is_near else None

    def _steps(self, tombstones: I64) -> Sequence[_RemovedTogether]:
        """Consecutive tombstones with the same timestamp belong to one operation."""
        log_offset, at_ms = self._life.commits.log_offset[tombstones], self._life.commits.recorded_at_ms[tombstones]
        goes_on = (log_offset[1:] == log_offset[:-1] + 1) & (at_ms[1:] == at_ms[:-1])
        ends = np.append(np.flatnonzero(~goes_on) + 1, len(tombstones))
        last = ends - 1
        rows: list[int] = tombstones.tolist()
        steps = []
        begin = 0
        for end, step_ms, offset in zip(ends.tolist(), at_ms[last].tolist(), log_offset[last].tolist(), strict=True):
            steps.append(_RemovedTogether(tuple(rows[begin:end]), step_ms, offset))
            begin = end
        return steps

    def _taken(self, tombstones: I64) -> Mapping[int, "_Taken"]:
        """For each tombstone, the commit whose offset it deleted."""
        commits, applied = self._life.commits, self._applied
        places = applied.last_before(applied.partition_of_row[tombstones], commits.log_offset[tombstones])
        base = applied.rows[places]
        is_known = (places >= 0) & (commits.change[base] != _DELETE)
        columns = (
            tombstones.tolist(),
            commits.topic[tombstones].tolist(),
            commits.log_offset[tombstones].tolist(),
            commits.recorded_at_ms[tombstones].tolist(),
            is_known.tolist(),
            base.tolist(),
            commits.log_offset[base].tolist(),
            commits.recorded_at_ms[base].tolist(),
            commits.applied_at_ms[base].tolist(),
            commits.expire_at_ms[base].tolist(),
        )
        return {row: _Taken(*fields) for row, *fields in zip(*columns, strict=True)}

    def _deleted(self, taken: "_Taken", generation: GenerationRow | None) -> "_Deleted":
        """The offset that a tombstone deleted.

        Its age, for the retention check, counts from the commit; in a classic group without members, from when the
        group became empty.
        """
        if not taken.is_known:
            return _Deleted(None, None, True, None, True, True)
        between = taken.base_log_offset, taken.log_offset
        is_behind = self._life.may_have_gap(*between), self._life.may_lack_commit(taken.base_row, taken.log_offset)
        at_ms, base_ms = taken.at_ms, taken.base_ms
        if base_ms == NONE_MS:
            # a record without a timestamp still has its commit time
            base_ms = taken.base_applied_ms
        committed_ms = None if base_ms == NONE_MS else base_ms
        if at_ms == NONE_MS or committed_ms is None:
            return _Deleted(None, None, True, committed_ms, *is_behind)
        if taken.expire_at_ms != NO_EXPIRY:
            # the leader that wrote the tombstone used its own clock, whatever the clock of the previous leader
            return _Deleted(None, taken.expire_at_ms, at_ms >= taken.expire_at_ms, committed_ms, *is_behind)
        if self._life.has_clock_step(taken.base_log_offset, taken.log_offset):
            return _Deleted(None, None, True, committed_ms, *is_behind)
        if generation is not None and generation.group_type == GroupType.CLASSIC and generation.member_count == 0:
            if generation.from_log_offset in self._life.timeless:
                return _Deleted(None, None, True, committed_ms, *is_behind)
            base_ms = min(base_ms, generation.valid_from)
        return _Deleted(at_ms - base_ms, None, at_ms - base_ms >= RETENTION_MIN_MS, committed_ms, *is_behind)

    def _others(self, steps: Sequence[_RemovedTogether], tombstones: I64) -> Mapping[tuple[int, int], "_Others"]:
        """For each operation and topic that lost an offset in it, what happened to the topic's other partitions. An
        operation is identified by its last log offset."""
        commits, applied = self._life.commits, self._applied
        step_of_row = np.repeat(np.arange(len(steps)), [len(step.rows) for step in steps])
        _, first, pair_of_row = np.unique(
            step_of_row * len(commits.topics) + commits.topic[tombstones], return_index=True, return_inverse=True
        )
        step_of_pair, topic_of_pair = step_of_row[first], commits.topic[tombstones[first]]
        begins, counts = applied.first_of_topic[topic_of_pair], applied.count_of_topic[topic_of_pair]
        starts = np.cumsum(counts) - counts
        pair = np.repeat(np.arange(len(first)), counts)
        partition = (np.arange(len(pair)) - np.repeat(starts - begins, counts)).astype(np.int32)
        is_deleted = np.zeros(len(pair), np.bool_)
        is_deleted[(starts - begins)[pair_of_row] + applied.partition_of_row[tombstones]] = True
        places = applied.last_before(partition, commits.log_offset[tombstones[first]][pair])
        base = applied.rows[places]
        has_offset = ~is_deleted & (places >= 0) & (commits.change[base] != _DELETE)
        at_ms = np.array([step.at_ms for step in steps])[step_of_pair][pair]
        last_log_offset = np.array([step.last_log_offset for step in steps])[step_of_pair]
        # is the next change of the partition the deletion of its offset, soon after?
        has_next = places + 1 < applied.bounds[partition + 1]
        following = applied.rows[np.where(has_next, places + 1, 0)]
        is_soon = has_next & (commits.change[following] == _DELETE)
        is_soon &= commits.applied_at_ms[following] <= at_ms + TOGETHER_MS
        if self._life.clock_steps:
            clock_steps = np.array(self._life.clock_steps)
            is_soon &= np.searchsorted(clock_steps, last_log_offset[pair], "right") >= np.searchsorted(
                clock_steps, commits.log_offset[following], "right"
            )
        is_kept = has_offset & ~is_soon
        went_apart = has_offset & is_soon & (commits.applied_at_ms[following] != at_ms)
        expire_at_ms = commits.expire_at_ms[base]
        outlived = is_kept & (expire_at_ms != NO_EXPIRY) & (expire_at_ms < at_ms)
        found = zip(
            last_log_offset.tolist(),
            topic_of_pair.tolist(),
            np.logical_or.reduceat(is_kept, starts).tolist(),
            np.logical_or.reduceat(went_apart, starts).tolist(),
            np.logical_or.reduceat(outlived, starts).tolist(),
            strict=True,
        )
        return {(offset, topic): _Others(*of_others) for offset, topic, *of_others in found}


class _Applied(NamedTuple):
    """Applied commits of the topics that lost an offset, by partition, in the order in which they were applied."""

    rows: I32
    bounds: I64
    """Where the rows of each partition begin, plus the end. A partition is identified by its index here; those of one
    topic are consecutive."""
    log_offset: I64
    """For each row, the log offset where it was applied."""
    first_of_topic: I64
    """By topic, its first partition."""
    count_of_topic: I64
    partition_of_row: I32
    """For each commit, its partition; 0 for other commits."""

    @classmethod
    def of(cls, commits: GroupCommits) -> "_Applied":
        has_lost = np.zeros(len(commits.topics), np.bool_)
        has_lost[commits.topic[commits.change == _DELETE]] = True
        rows, bounds = by_partition(commits, (commits.outcome == _APPLIED) & has_lost[commits.topic])
        count_of_topic = np.bincount(commits.topic[rows[bounds[:-1]]], minlength=len(commits.topics))
        partition_of_row = np.zeros(len(commits), np.int32)
        partition_of_row[rows] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
        return cls(
            rows,
            bounds,
            commits.applied_log_offset[rows],
            np.cumsum(count_of_topic) - count_of_topic,
            count_of_topic,
            partition_of_row,
        )

    def last_before(self, partitions: I32, log_offsets: I64) -> I64:
        """For each partition and log offset, the index in `rows` of the last commit in force then; -1 if there is
        none."""
        places = np.empty(len(partitions), np.int64)
        _find_last_before(self.log_offset, self.bounds, partitions, log_offsets, places)
        return places


@compiled
def _find_last_before(applied: I64, bounds: I64, partitions: I32, log_offsets: I64, places: I64) -> None:
    for index in range(len(partitions)):
        first = bounds[partitions[index]]
        low, high = first, bounds[partitions[index] + 1]
        while low < high:
            middle = (low + high) // 2
            if applied[middle] < log_offsets[index]:
                low = middle + 1
            else:
                high = middle
        places[index] = low - 1 if low > first else -1


class _Taken(NamedTuple):
    """A tombstone, and the commit in force before it."""

    topic: int
    log_offset: int
    at_ms: int
    is_known: bool
    """False: the log does not show the commit; the fields below have no meaning."""
    base_row: int
    base_log_offset: int
    base_ms: int
    base_applied_ms: int
    expire_at_ms: int


class _Deleted(NamedTuple):
    """An offset at the time of its deletion."""

    age_ms: int | None
    """Its greatest possible age for the retention check; None if retention does not apply, or the log does not show
    it.
    """
    expire_at_ms: int | None
    """The expiry in its own value."""
    may_have_expired: bool
    committed_ms: int | None
    """When it was committed; None if the log does not show it."""
    is_behind_gap: bool
    """A later commit may be in a part of the log that was not read."""
    is_behind_hole: bool
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
        has_step = self._life.has_clock_step(log_offset, following.from_log_offset)
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
