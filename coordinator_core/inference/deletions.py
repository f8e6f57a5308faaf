"""Why committed offsets went away.

The coordinator deletes them in four cases, and writes the same tombstone in each:

* TOPIC_DELETED: all partitions of a topic that is no more (onPartitionsDeleted), whatever the group does.
* GROUP_DELETED: all offsets of a group and the group itself, in one operation (deleteGroups).
* OFFSETS_DELETED: some partitions, as an admin client asked (deleteOffsets). Refused for a topic that a member of the
  group is subscribed to.
* EXPIRED: what is older than its retention (cleanupExpiredOffsets), at a check every
  `offsets.retention.check.interval.ms`. If nothing is left of an empty group, the group goes in the same operation.

What expires hangs on the broker. Before 2.1 the value itself says when (expireTimestamp), whether the group reads the
topic or not; brokers since write that too where a client asks for a retention. From 2.1 on `offsets.retention.minutes`
counts, and a subscribed topic is spared; but until 3.1 not while its classic group rebalances (KAFKA-13636).

So it is proven that a topic was deleted where the metadata log shows it, and nowhere else: that a group was subscribed
to the topic and kept nothing of it is a guess, since other groups may have kept their offsets and may go on with the
topic, and they are mostly in other log partitions. An operation that took an offset of another topic too, or one that
was committed after the topic was removed, is no proof either: then the topic was made again, or the whole group was
deleted. It is proven that an offset expired where its own expiry had passed at the check. The rest is as likely as the
settings of the broker are known.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.history.rows import EventRow, GenerationRow, MemberRow
from coordinator_core.history.views import TOPICS_BEFORE
from coordinator_core.inference.life import NO_EXPIRY, NONE_MS, GroupLife
from coordinator_core.inference.partitions import by_partition
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.chunk import I32
from coordinator_core.offsets.columnar import CHANGES, OUTCOMES
from schemas.group_types import GroupType

TOPIC_DELETED: Final = "TOPIC_DELETED"
GROUP_DELETED: Final = "GROUP_DELETED"
OFFSETS_DELETED: Final = "OFFSETS_DELETED"
EXPIRED: Final = "EXPIRED"

CERTAIN: Final = "CERTAIN"
LIKELY: Final = "LIKELY"
GUESS: Final = "GUESS"


RETENTION_MIN_MS: Final = 59_000
"""One minute, less what the times of two records may be off."""
SUBSCRIBED_TOPIC: Final = "SUBSCRIBED_TOPIC"
"""Method: a member was subscribed to the topic."""
EXPIRE_TIME: Final = "EXPIRE_TIME"
"""Method: the value itself says when it expires."""
REMOVAL_MS: Final = 30_000
"""The coordinators delete the offsets of a topic so long after the controller removed it, at most."""
CLOCKS_MS: Final = 1_000
"""The clocks of two brokers may be so far apart: then the removal may have a later time than its tombstones."""
TOGETHER_MS: Final = 10_000
"""A broker with ZooKeeper is told of the deletion of a topic in several requests, all within so long."""

_APPLIED: Final = OUTCOMES.index("APPLIED")
_DELETE: Final = CHANGES.index("DELETE")

Partition = tuple[int, int]
"""Index of the topic, and partition."""


class Why(NamedTuple):
    """The cause, where the log shows it, and how."""

    likely_cause: str | None
    method: str
    confidence: str


UNKNOWN: Final = Why(None, "TOMBSTONE", "CERTAIN")
"""That it was deleted is certain, and no more is said."""


class _Step(NamedTuple):
    """Tombstones of one operation."""

    rows: tuple[int, ...]
    at_ms: int
    last_log_offset: int


Removed = Mapping[str, Sequence[int]]
"""Topic -> when the metadata log says that it was removed (ms), ascending."""
NOTHING_REMOVED: Final[Removed] = {}


class Deletions:
    """The deletions of one group. `removed`: topics that the metadata log shows removed."""

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
        self._applied: dict[Partition, I32] = {}
        """Applied rows of the topics that lost an offset, by partition, in the order in which they were applied."""
        self._of_topic: dict[int, list[tuple[int, I32]]] = {}
        """By topic, its partitions with their applied rows."""
        self._read_applied()

    def of(self, rows: Sequence[int], generation_at: Callable[[int], GenerationRow | None]) -> Mapping[int, Why]:
        """The cause of each tombstone; `rows` are those of the commits with a DELETE."""
        causes: dict[int, Why] = {}
        for step in self._steps(rows):
            generation = generation_at(int(self._life.commits.log_offset[step.rows[0]]))
            offsets = {row: self._deleted(row, generation) for row in step.rows}
            removals = self._removals(step, offsets)
            may_have_expired = all(offset.may_have_expired for offset in offsets.values())
            age_ms = min((offset.age_ms for offset in offsets.values() if offset.age_ms is not None), default=None)
            # of one topic in one operation nothing differs but what the values themselves say
            alike: dict[tuple[int, int | None, str | None], Why] = {}
            for row in step.rows:
                expire_at_ms, removal = offsets[row].expire_at_ms, removals[row]
                kind = int(self._life.commits.topic[row]), expire_at_ms, removal
                if kind not in alike:
                    expired = self._expired(expire_at_ms, age_ms, step.at_ms) if may_have_expired else None
                    alike[kind] = self._why(row, step, expired, may_have_expired, generation, removal)
                causes[row] = alike[kind]
        return causes

    def _why(
        self,
        row: int,
        step: _Step,
        expired: Why | None,
        may_have_expired: bool,
        generation: GenerationRow | None,
        removal: str | None,
    ) -> Why:
        others = self._others(row, step)
        if removal == CERTAIN and not others.are_kept and not self._life.has_clock_step(-1, step.last_log_offset):
            return Why(TOPIC_DELETED, "METADATA_LOG", CERTAIN)
        if expired is not None and expired.method == EXPIRE_TIME:
            # a check takes all that has expired
            return expired._replace(confidence=LIKELY) if others.outlived_expiry else expired
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
            if self._group_deleted.get(step.at_ms, -1) > step.last_log_offset:
                return Why(GROUP_DELETED, "WITH_ITS_GROUP", LIKELY)
            if others.are_kept:
                return Why(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", LIKELY)
            return Why(None, "YOUNGER_THAN_RETENTION", CERTAIN)
        return UNKNOWN if expired is None else expired

    def _of_some_subscribed(self, expired: Why | None, may_have_expired: bool) -> Why:
        """The topic is there, and a member subscribed to it: no admin deletes an offset of it."""
        if expired is not None:
            return expired
        if may_have_expired:
            return Why(EXPIRED, "EXPIRED_IN_REBALANCE", GUESS)
        # between the end of the join phase and the record of the generation its subscriptions are not in the log yet
        return Why(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", GUESS)

    def _expired(self, expire_at_ms: int | None, age_ms: int | None, at_ms: int) -> Why | None:
        """That an offset which may have expired did, if its expiry or the least age of the operation shows it."""
        settings = self._settings
        check_ms = 2 * settings.offsets_retention_check_interval_ms
        if expire_at_ms is not None:
            is_at_check = at_ms <= expire_at_ms + check_ms
            return Why(EXPIRED, EXPIRE_TIME, CERTAIN if is_at_check else LIKELY)
        if age_ms is None:
            return None
        is_at_check = settings.offsets_retention_ms <= age_ms <= settings.offsets_retention_ms + check_ms
        return Why(EXPIRED, "AGE_AT_RETENTION", LIKELY) if is_at_check else None

    def _removals(self, step: _Step, offsets: Mapping[int, "_Deleted"]) -> Mapping[int, str | None]:
        """For each row of an operation: was its topic removed then, as far as the metadata log shows it?

        An operation that took an offset of a topic that was not removed was not caused by the removal of another one.
        """
        if not self._removed:
            return dict.fromkeys(step.rows)
        found = {row: self._removal_before(row, step.at_ms, offsets[row].committed_ms) for row in step.rows}
        if None not in found.values():
            return found
        return {row: None if removal is None else LIKELY for row, removal in found.items()}

    def _removal_before(self, row: int, at_ms: int, committed_ms: int | None) -> str | None:
        """CERTAIN: the topic was removed just before, and nothing was committed in between; LIKELY: about then."""
        commits = self._life.commits
        times = self._removed.get(commits.topics[commits.topic[row]], ())
        if any(
            0 <= at_ms - removed_ms <= REMOVAL_MS and (committed_ms is None or committed_ms <= removed_ms)
            for removed_ms in times
        ):
            return CERTAIN
        is_near = any(
            -CLOCKS_MS <= at_ms - removed_ms <= REMOVAL_MS
            and (committed_ms is None or committed_ms <= removed_ms + CLOCKS_MS)
            for removed_ms in times
        )
        return LIKELY if is_near else None

    def _steps(self, rows: Sequence[int]) -> Iterable[_Step]:
        """Tombstones which follow each other in the log at one millisecond are of one operation."""
        commits = self._life.commits
        step: list[int] = []
        for row in rows:
            if step and (
                commits.log_offset[row] != commits.log_offset[step[-1]] + 1
                or commits.recorded_at_ms[row] != commits.recorded_at_ms[step[-1]]
            ):
                yield self._step(step)
                step = []
            step.append(row)
        if step:
            yield self._step(step)

    def _step(self, rows: Sequence[int]) -> _Step:
        commits = self._life.commits
        return _Step(tuple(rows), int(commits.recorded_at_ms[rows[-1]]), int(commits.log_offset[rows[-1]]))

    def _read_applied(self) -> None:
        commits = self._life.commits
        has_lost = np.zeros(len(commits.topics), np.bool_)
        has_lost[commits.topic[commits.change == _DELETE]] = True
        rows, bounds = by_partition(commits, (commits.outcome == _APPLIED) & has_lost[commits.topic])
        if not len(rows):
            return
        firsts = rows[bounds[:-1]]
        found = zip(commits.topic[firsts].tolist(), commits.partition[firsts].tolist(), strict=True)
        for (topic, partition), (first, end) in zip(found, pairwise(bounds.tolist()), strict=True):
            self._applied[topic, partition] = rows[first:end]
            self._of_topic.setdefault(topic, []).append((partition, rows[first:end]))

    def _last_before(self, rows: I32, row: int) -> int:
        """The place, among applied rows, of the last one that was in force when this one was written, or -1."""
        commits = self._life.commits
        return bisect_left(rows, commits.log_offset[row], key=commits.applied_log_offset.__getitem__) - 1

    def _deleted(self, row: int, generation: GenerationRow | None) -> "_Deleted":
        """The offset that a tombstone took.

        Its age, for the retention check, counts from the commit; in a classic group without members from when the group
        became empty.
        """
        commits = self._life.commits
        rows = self._applied[int(commits.topic[row]), int(commits.partition[row])]
        place = self._last_before(rows, row)
        if place < 0 or commits.change[rows[place]] == _DELETE:
            return _Deleted(None, None, True, None)
        at_ms, base_ms = int(commits.recorded_at_ms[row]), int(commits.recorded_at_ms[rows[place]])
        if base_ms == NONE_MS:
            # a record that bears no time still carries that of its commit
            base_ms = int(commits.applied_at_ms[rows[place]])
        committed_ms = None if base_ms == NONE_MS else base_ms
        if NONE_MS in {at_ms, base_ms}:
            return _Deleted(None, None, True, committed_ms)
        expire_at_ms = int(commits.expire_at_ms[rows[place]])
        if expire_at_ms != NO_EXPIRY:
            # the leader that wrote the tombstone went by its own clock, whatever that of the leader before
            return _Deleted(None, expire_at_ms, at_ms >= expire_at_ms, committed_ms)
        if self._life.has_clock_step(int(commits.log_offset[rows[place]]), int(commits.log_offset[row])):
            return _Deleted(None, None, True, committed_ms)
        if generation is not None and generation.group_type == GroupType.CLASSIC and generation.member_count == 0:
            if generation.from_log_offset in self._life.timeless:
                return _Deleted(None, None, True, committed_ms)
            base_ms = min(base_ms, generation.valid_from)
        return _Deleted(at_ms - base_ms, None, at_ms - base_ms >= RETENTION_MIN_MS, committed_ms)

    def _others(self, row: int, step: _Step) -> "_Others":
        """What became of the other partitions of the topic."""
        commits = self._life.commits
        deleted = {int(commits.partition[other]) for other in step.rows if commits.topic[other] == commits.topic[row]}
        are_kept = outlived_expiry = False
        for partition, rows in self._of_topic[int(commits.topic[row])]:
            if partition in deleted:
                continue
            place = self._last_before(rows, row)
            if place >= 0 and commits.change[rows[place]] != _DELETE:
                is_kept = not self._is_deleted_with(step, rows[place + 1 :])
                expire_at_ms = int(commits.expire_at_ms[rows[place]])
                are_kept |= is_kept
                outlived_expiry |= is_kept and expire_at_ms != NO_EXPIRY and expire_at_ms < step.at_ms
        return _Others(are_kept, outlived_expiry)

    def _is_deleted_with(self, step: _Step, rows: I32) -> bool:
        """Is the next that becomes of a partition that its offset is deleted, soon after others?"""
        commits = self._life.commits
        if not len(rows) or commits.change[rows[0]] != _DELETE:
            return False
        is_soon = int(commits.applied_at_ms[rows[0]]) <= step.at_ms + TOGETHER_MS
        return is_soon and not self._life.has_clock_step(step.last_log_offset, int(commits.log_offset[rows[0]]))


class _Deleted(NamedTuple):
    """An offset when it was deleted."""

    age_ms: int | None
    """For the retention check, at most; None where it does not go by that, or the log does not show it."""
    expire_at_ms: int | None
    """What its own value says."""
    may_have_expired: bool
    committed_ms: int | None
    """When it was committed; None where the log does not show it."""


class _Others(NamedTuple):
    """What became of the other partitions of a topic of which an offset was deleted."""

    are_kept: bool
    """One kept its offset: the topic is there."""
    outlived_expiry: bool
    """One kept its offset though its own expiry had passed."""


class _Subscriptions:
    """What the members of one group were subscribed to by name, at any place in the log."""

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._begins = [row.from_log_offset for row in life.generations]
        self._changes: dict[str, list[EventRow]] = {}
        for event in life.events:
            if event.event_type == "SUBSCRIPTION_CHANGED" and event.member_id is not None:
                self._changes.setdefault(event.member_id, []).append(event)

    def holds(self, row: int, at_ms: int) -> bool:
        """Is it proven that a member was subscribed to the topic of a commit when this was written?

        A classic generation is written when its leader has synced, but its subscriptions count from the end of the
        join phase: within that time a member must be subscribed in both generations.
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
        """What a member was subscribed to: what the next change says that it was before, else what it is at its end."""
        end = member.to_log_offset
        for event in self._changes.get(member.member_id, ()):
            if event.log_offset > log_offset and (end is None or event.log_offset <= end):
                before: list[str] = json.loads(event.details.get(TOPICS_BEFORE, "[]"))
                return before
        return member.subscribed_topics or ()
