"""GroupHistory: turns the operations of one `__consumer_offsets` partition into rows.

How it works. The log has records; the coordinator wrote them in operations, and only the states between operations ever
existed. So each operation is replayed whole, and the state before it is compared with the state after it. Each
difference closes open intervals, opens new ones, and becomes an event. Only what the keys of the operation's records
name is compared, so the cost depends on the size of the change and not of the group.

Open intervals are keyed by their subject; `Open` has the place where an interval began. All rows of a closed interval
have the attributes at its end. `finish` returns the intervals that are still open.
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION
from coordinator_core.bytes.log.copies import Load
from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.history import views
from coordinator_core.history.checkpoint import GroupCheckpoint, pack_group, unpack_group
from coordinator_core.history.comparison import Comparison
from coordinator_core.history.intervals import Intervals
from coordinator_core.history.learned_topics import LearnedTopics
from coordinator_core.history.open_intervals import OpenIntervals
from coordinator_core.history.operations import (
    CURRENT_ASSIGNMENT_RECORDS,
    GENERATION_RECORDS,
    KEYED_BY_MEMBER,
    MEMBER_RECORDS,
    OFFSET_RECORDS,
    TARGET_METADATA_RECORDS,
    GroupRecord,
    LastOffsetGone,
    OffsetsDeleted,
    Operation,
    ReplayedOperation,
    numbered,
    offsets_deleted,
)
from coordinator_core.history.rows import FORGOTTEN, GroupRows
from coordinator_core.history.subscriptions import Subscriptions
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.dispatch import (
    REPLAY,
    SHARE_PARTITIONS_RECORD,
    Group,
    GroupShard,
    replay_share_partitions,
    simple_group,
    with_group,
)
from coordinator_core.replay.faults import Faults
from coordinator_core.replay.member_epochs import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from coordinator_core.replay.offsets.state import OffsetKey
from coordinator_core.replay.streams.state import StreamsGroup
from schemas.consumer_offsets import RecordType


class LostOffsets(NamedTuple):
    """Committed offsets of a group that a new leader did not load."""

    offset_count: int
    record_offset: int
    """The greatest log offset of their records."""


NO_OFFSETS: Final = LostOffsets(0, -1)
_EVENT_INDEX_MAX: Final = 2**31 - 1


class GroupHistory:
    """History of all groups of one `__consumer_offsets` partition. Feed operations in log order.

    `saved`: groups that an earlier history of the same log saved (`save`), by group id. Their state stays serialized
    until a record of the group arrives; deletions of its offsets do not deserialize it. State that stays serialized is
    passed on unchanged, with its open intervals.
    """

    def __init__(
        self,
        shard: GroupShard | None = None,
        *,
        saved: Mapping[str, bytes] | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.shard = shard if shard is not None else GroupShard()
        self._open_intervals: dict[str, OpenIntervals] = {}
        self._serialized: dict[str, bytes] = dict(saved or {})
        self._serialized_types: dict[str, _TypeAndGeneration] = {}
        """Serialized group -> the type and generation that deletions of its offsets need."""
        self._rows = GroupRows()
        self._topics = LearnedTopics()
        self._subscriptions = Subscriptions()
        self.faults = Faults() if faults is None else faults

    def take(self) -> GroupRows:
        """Rows closed since the last call."""
        rows, self._rows = self._rows, GroupRows()
        rows.topics = self._topics.take()
        return rows

    def apply(self, operation: Operation | OffsetsDeleted) -> None:
        """Replay one operation and record what it changed."""
        if isinstance(operation, OffsetsDeleted):
            self._rows.events.extend(offsets_deleted(operation, *self._type_and_generation(operation.group_id)))
            return
        if operation.group_id in self._serialized:
            self._wake(operation.group_id)
        step = self._replay(operation)
        if step.after is step.before and step.partitions_after is step.partitions_before:
            # only tombstones of offsets, or of records that compaction had removed: no group changed
            self._rows.events.extend(numbered(step.events))
            return
        intervals = self._open_intervals.get(operation.group_id)
        if intervals is None:
            intervals = self._open_intervals[operation.group_id] = OpenIntervals()
        Comparison(step, Intervals(operation.group_id, intervals, self._rows)).compare()
        self._subscriptions.compare(step)
        self._topics.learn_share_partitions(step)
        self._topics.learn_targets(step)
        self._rows.events.extend(numbered(step.events))

    def reload(
        self, loaded: GroupShard, load: Load, log_offset: int, at_ms: int, lost: Mapping[str, LostOffsets]
    ) -> None:
        """Go on with the groups that a new leader loaded from a log start that had moved. Its epoch begins at
        `log_offset`. `lost`: by group, the committed offsets that it did not load."""
        for group_id in list(self._serialized):
            self._wake(group_id)
        before, self.shard = self.shard, loaded
        for group_id in sorted({*before.groups, *loaded.groups, *lost}):
            group, after = before.groups.get(group_id), loaded.groups.get(group_id)
            if group == after and group_id not in lost:
                continue
            with self.faults.guard(group_id):
                intervals = self._open_intervals.setdefault(group_id, OpenIntervals())
                offsets = lost.get(group_id, NO_OFFSETS)
                own = offsets.record_offset if intervals.generation is None else intervals.generation.log_offset
                # several groups may be forgotten at one place: an offset of its own tells each from the others
                index = max(0, _EVENT_INDEX_MAX - (log_offset - max(own, offsets.record_offset)))
                partitions = before.share_partitions.get(group_id), loaded.share_partitions.get(group_id)
                operation = Operation(group_id, at_ms, log_offset, (), index)
                step = ReplayedOperation(operation, group, after, *partitions, log_offset, log_offset, log_offset, True)
                had = frozenset(() if group is None else group.members)
                has = frozenset(() if after is None else after.members)
                details = {
                    "log_start_offset": str(load.log_start_offset),
                    "leader_epoch": str(load.leader_epoch),
                    "confidence": LIKELY if load.is_ordered else GUESS,
                    "offset_count": str(offsets.offset_count),
                    "member_count": str(len(had - has)),
                    "group": "KEPT" if group == after else "GONE" if after is None else "IN_PART",
                }
                step.add_event(FORGOTTEN, log_offset, details=details)
                if group != after:
                    Comparison(step, Intervals(group_id, intervals, self._rows)).reload()
                self._rows.events.extend(step.events)

    def save(self) -> dict[str, bytes]:
        """What a later history needs to continue, by group id. State that is still serialized is returned as it was
        given."""
        groups, partitions = self.shard.groups, self.shard.share_partitions
        saved = dict(self._serialized)
        for group_id in sorted({*groups, *partitions, *self._open_intervals}):
            intervals = self._open_intervals.get(group_id)
            with self.faults.guard(group_id):
                saved[group_id] = pack_group(GroupCheckpoint(groups.get(group_id), partitions.get(group_id), intervals))
        return saved

    @property
    def serialized(self) -> Set[str]:
        """Groups without records in this run: their open intervals are unchanged."""
        return self._serialized.keys()

    def _type_and_generation(self, group_id: str) -> "_TypeAndGeneration":
        """Type and generation of a group whose offsets were deleted. The group's state may stay serialized."""
        if group_id not in self._serialized:
            return _type_of(self.shard.groups.get(group_id))
        found = self._serialized_types.get(group_id)
        if found is None:
            found = self._serialized_types[group_id] = _type_of(unpack_group(self._serialized[group_id]).group)
        return found

    def _wake(self, group_id: str) -> None:
        saved = unpack_group(self._serialized.pop(group_id))
        shard = self.shard
        if saved.group is not None:
            shard = replace(shard, groups=shard.groups.set(group_id, saved.group))
        if saved.share_partitions is not None:
            partitions = shard.share_partitions.set(group_id, saved.share_partitions)
            shard = replace(shard, share_partitions=partitions)
        if saved.intervals is not None:
            self._open_intervals[group_id] = saved.intervals
        self.shard = shard

    def finish(self) -> GroupRows:
        """Rows of all open intervals, with the newest attributes, except those of serialized groups. The history cannot
        continue afterwards."""
        for group_id, intervals in self._open_intervals.items():
            group = self.shard.groups.get(group_id)
            if group is None:
                continue
            with self.faults.guard(group_id):
                Intervals(group_id, intervals, self._rows).close_all(group, None, None)
        return self.take()

    def _replay(self, operation: Operation) -> ReplayedOperation:
        group_id = operation.group_id
        before = self.shard.groups.get(group_id)
        partitions = self.shard.share_partitions.get(group_id)
        step = ReplayedOperation(
            operation=operation,
            before=before,
            after=before,
            partitions_before=partitions,
            partitions_after=partitions,
            appeared_at=operation.last_offset,
            vanished_at=operation.last_offset,
            generation_at=operation.last_offset,
            vanished=False,
        )
        group = before
        for record in operation.records:
            previous = group
            group = self._replay_record(step, group, record)
            if group is not None and type(group) is type(previous):
                between = views.generations_between(views.generation(previous), views.generation(group))
                step.has_skipped |= between not in {0, 1}
            else:
                if previous is not None:
                    step.vanished, step.vanished_at = True, record.offset
                if group is not None:
                    step.appeared_at = record.offset
        step.after = group
        self.shard = with_group(self.shard, group_id, before, group)
        return step

    def _replay_record(self, step: ReplayedOperation, group: Group | None, record: GroupRecord) -> Group | None:
        """Apply one record. Returns the group after it."""
        offset, record_type, key, value = record
        if record_type in OFFSET_RECORDS:
            group_id = step.operation.group_id
            if isinstance(key, LastOffsetGone):
                return None if _is_of_offsets_only(group) else group
            if not isinstance(key, OffsetKey):
                return simple_group(group, group_id)
            deleted = OffsetsDeleted(group_id, step.operation.timestamp_ms, [offset], [key.topic], [key.partition])
            step.events.extend(offsets_deleted(deleted, *_type_of(group)))
            return group
        assert isinstance(key, Struct), "only offset commits come with less than the codec's key"
        step.replaying = offset
        group = REPLAY[record_type](group, key, value, step.report, DEFAULT_VERSION)
        if record_type == SHARE_PARTITIONS_RECORD:
            partitions = replay_share_partitions(self.shard.share_partitions, key, value)
            self.shard = replace(self.shard, share_partitions=partitions)
            step.partitions_after = partitions.get(step.operation.group_id)
        _note_record(step, offset, record_type, key, value)
        return group


class _TypeAndGeneration(NamedTuple):
    """Type and generation of a group; None if the group does not exist."""

    group_type: str | None
    generation: int | None


def _type_of(group: Group | None) -> _TypeAndGeneration:
    return (
        _TypeAndGeneration(None, None)
        if group is None
        else _TypeAndGeneration(views.group_type(group), views.generation(group))
    )


def _is_of_offsets_only(group: Group | None) -> bool:
    """Whether only commits created the group. It exists as long as it has offsets (GroupMetadataManager.scala writes no
    tombstone for generation 0)."""
    return isinstance(group, ClassicGroup) and group.is_simple and group.generation_id == 0


def _keeps_targets(step: ReplayedOperation, value: Struct) -> bool:
    """Whether a streams group enters a new epoch with its current targets (Kafka 4.4). Then the targets' time stays,
    too.
    """
    before = step.before
    return (
        isinstance(before, StreamsGroup)
        and value.assignment_epoch > before.assignment_epoch
        and value.assignment_timestamp == before.assignment_timestamp_ms != 0
    )


_MEMBER_STATE_NAMES: Final[Mapping[RecordType, Mapping[int, str]]] = {
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: {
        0: "STABLE",
        1: "UNREVOKED_PARTITIONS",
        2: "UNRELEASED_PARTITIONS",
    },
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: {0: "STABLE"},
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"},
}
"""Names of MemberState by its code in the record: streams groups count from 1."""


def _note_record(
    step: ReplayedOperation, offset: int, record_type: RecordType, key: Struct, value: Struct | None
) -> None:
    """Note which record mentions which member, and record the event where each such record is one event."""
    if record_type in KEYED_BY_MEMBER:
        member_id: str = key.member_id
        step.touched.setdefault(member_id)
        if record_type in MEMBER_RECORDS:
            step.described.add(member_id)
            step.member_at[member_id] = offset
            return
        step.member_at.setdefault(member_id, offset)
        if value is not None and record_type in CURRENT_ASSIGNMENT_RECORDS:
            details = {
                "previous_member_epoch": str(value.previous_member_epoch),
                "state": _MEMBER_STATE_NAMES[record_type].get(value.state, "UNKNOWN"),
            }
            epoch = value.member_epoch
            step.add_event("MEMBER_RECONCILED", offset, generation=epoch, member_id=member_id, details=details)
            if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                step.add_event("STATIC_MEMBER_LEFT", offset, member_id=member_id)
    elif value is None:
        return
    elif record_type in GENERATION_RECORDS:
        step.generation_at = offset
    elif record_type in TARGET_METADATA_RECORDS:
        details = {"kept": "true"} if _keeps_targets(step, value) else {}
        step.add_event("TARGET_COMPUTED", offset, generation=value.assignment_epoch, details=details)
