"""Why committed offsets went away.

The coordinator deletes them in four cases, and writes the same tombstone in each:

* TOPIC_DELETED: all partitions of a topic that is no more (onPartitionsDeleted), whatever the group does.
* GROUP_DELETED: all offsets of a group and the group itself, in one operation (deleteGroups).
* OFFSETS_DELETED: some partitions, as an admin client asked (deleteOffsets). Refused for a topic that a member of the
  group is subscribed to.
* EXPIRED: what is older than `offsets.retention.minutes` (cleanupExpiredOffsets), at a check every
  `offsets.retention.check.interval.ms`; never of a subscribed topic. If nothing is left of an empty group, the group
  goes in the same operation.

Nothing but the deletion of the topic takes offsets from a group that is subscribed to it: that is certain. Retention
is a whole number of minutes, so nothing younger than one minute has expired. The rest is as likely as the settings of
the broker are known.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.history.rows import GenerationRow
from coordinator_core.inference.life import GroupLife
from coordinator_core.inference.partitions import by_partition
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.chunk import I32
from coordinator_core.offsets.lane import CHANGES, OUTCOMES

TOPIC_DELETED: Final = "TOPIC_DELETED"
GROUP_DELETED: Final = "GROUP_DELETED"
OFFSETS_DELETED: Final = "OFFSETS_DELETED"
EXPIRED: Final = "EXPIRED"

RETENTION_MIN_MS: Final = 59_000
"""One minute, less what the times of two records may be off."""

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


class Deletions:
    """The deletions of one group."""

    def __init__(self, life: GroupLife, settings: InferenceSettings) -> None:
        self._life = life
        self._settings = settings
        self._group_deleted = {
            event.at: event.log_offset for event in life.events if event.event_type == "GROUP_DELETED"
        }
        self._applied = self._applied_by_partition()

    def of(self, rows: Sequence[int], generation_at: Callable[[int], GenerationRow | None]) -> Mapping[int, Why]:
        """The cause of each tombstone; `rows` are those of the commits with a DELETE."""
        causes: dict[int, Why] = {}
        for step in self._steps(rows):
            generation = generation_at(int(self._life.commits.log_offset[step.rows[0]]))
            ages = [age for row in step.rows if (age := self._age_ms(row, generation)) is not None]
            for row in step.rows:
                causes[row] = self._why(row, step, ages)
        return causes

    def _why(self, row: int, step: _Step, ages: Sequence[int]) -> Why:
        if self._is_subscribed(row):
            return Why(TOPIC_DELETED, "SUBSCRIBED_TOPIC", "CERTAIN")
        with_group = self._group_deleted.get(step.at_ms, -1) > step.last_log_offset
        settings = self._settings
        expiry_ends_ms = settings.offsets_retention_ms + 2 * settings.offsets_retention_check_interval_ms
        if ages and min(ages) < RETENTION_MIN_MS:
            if with_group:
                return Why(GROUP_DELETED, "WITH_ITS_GROUP", "LIKELY")
            if self._has_other_partitions(row, step):
                return Why(OFFSETS_DELETED, "SOME_PARTITIONS_OF_A_TOPIC", "LIKELY")
            return Why(None, "YOUNGER_THAN_RETENTION", "CERTAIN")
        if ages and settings.offsets_retention_ms <= min(ages) <= expiry_ends_ms:
            return Why(EXPIRED, "AGE_AT_RETENTION", "LIKELY")
        return UNKNOWN

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

    def _applied_by_partition(self) -> dict[Partition, I32]:
        """Applied rows of the topics that lost an offset, by partition, in the order in which they were applied."""
        commits = self._life.commits
        has_lost = np.zeros(len(commits.topics), np.bool_)
        has_lost[commits.topic[commits.change == _DELETE]] = True
        rows, bounds = by_partition(commits, (commits.outcome == _APPLIED) & has_lost[commits.topic])
        firsts = rows[bounds[:-1]]
        partitions = zip(commits.topic[firsts].tolist(), commits.partition[firsts].tolist(), strict=True)
        return {
            place: rows[first:end] for place, (first, end) in zip(partitions, pairwise(bounds.tolist()), strict=True)
        }

    def _last_before(self, rows: I32, row: int) -> int:
        """The place, among applied rows, of the last one that was in force when this one was written, or -1."""
        commits = self._life.commits
        return bisect_left(rows, commits.log_offset[row], key=commits.applied_log_offset.__getitem__) - 1

    def _age_ms(self, row: int, generation: GenerationRow | None) -> int | None:
        """How old, at most, the offset was for the retention check when it was deleted.

        It counts from the commit; in a classic group without members from when the group became empty.
        """
        commits = self._life.commits
        rows = self._applied[int(commits.topic[row]), int(commits.partition[row])]
        place = self._last_before(rows, row)
        if place < 0 or commits.change[rows[place]] == _DELETE:
            return None
        base_ms = int(commits.recorded_at_ms[rows[place]])
        if generation is not None and generation.group_type == "CLASSIC" and generation.member_count == 0:
            base_ms = min(base_ms, generation.valid_from)
        return int(commits.recorded_at_ms[row]) - base_ms

    def _is_subscribed(self, row: int) -> bool:
        """A member was subscribed to the topic by name."""
        commits = self._life.commits
        topic, log_offset = commits.topics[commits.topic[row]], int(commits.log_offset[row])
        return any(
            topic in (member.subscribed_topics or ())
            and member.from_log_offset <= log_offset
            and (member.to_log_offset is None or log_offset < member.to_log_offset)
            for member in self._life.members
        )

    def _has_other_partitions(self, row: int, step: _Step) -> bool:
        """Another partition of the topic kept its offset: the topic went on."""
        commits = self._life.commits
        deleted = {int(commits.partition[other]) for other in step.rows if commits.topic[other] == commits.topic[row]}
        for (topic, partition), rows in self._applied.items():
            if topic != commits.topic[row] or partition in deleted:
                continue
            place = self._last_before(rows, row)
            if place >= 0 and commits.change[rows[place]] != _DELETE:
                return True
        return False
