"""REPLAY: record type to replay function. One replay for history, simulation and tests.

`replay(shard, record_type, key, value, report=...)` applies one record of one `__consumer_offsets` partition
to its groups; `replay_record` does the same for groups and committed offsets together. Both take a state and
give a state. `report` takes an `Anomaly` where the log breaks one of the coordinator's own rules (Kafka's
loader throws there); the best effort is applied and replay goes on. Nothing is raised for any sequence of
decoded records.

Rules which all types share (GroupMetadataManager.getOrMaybeCreatePersisted*Group):

* A group id has one group of one type. A value makes the group which it needs, a tombstone for an absent one
  is fine: compaction may have removed what came before.
* A simple group, of offsets only, gives way to a record of a consumer or a streams group, even to a
  tombstone.
* Any other mismatch of types is an anomaly. A value then replaces a group without members, and is passed over
  where there are members; a tombstone is passed over.
* GroupMetadata (2) asks nothing: a value replaces whatever is there, a tombstone removes it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from immutables import Map

from coordinator_core.anomalies import GROUP_TYPE_MISMATCH, Anomaly, Report
from coordinator_core.classic.replay import classic_group
from coordinator_core.classic.state import ClassicGroup
from coordinator_core.codec import Struct
from coordinator_core.consumer import replay as consumer
from coordinator_core.consumer.state import ConsumerGroup
from coordinator_core.frozen import with_fields
from coordinator_core.modern import without
from coordinator_core.offsets import replay as offsets
from coordinator_core.offsets.state import OffsetsState
from coordinator_core.share import replay as share
from coordinator_core.share.state import ShareGroup, ShareGroupStatePartitions
from coordinator_core.streams import replay as streams
from coordinator_core.streams.state import StreamsGroup
from schemas.consumer_offsets import RecordType

__all__ = [
    "REPLAY",
    "Anomaly",
    "CoordinatorShard",
    "Group",
    "GroupShard",
    "RecordType",
    "Report",
    "replay",
    "replay_all",
    "replay_end_transaction_marker",
    "replay_record",
    "touch_simple_group",
]

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


@dataclass(frozen=True, slots=True)
class GroupShard:
    """State of one `__consumer_offsets` partition, offsets aside. The group map is keyed by id alone."""

    groups: Map[str, Group] = field(default_factory=Map)
    share_partitions: Map[str, ShareGroupStatePartitions] = field(default_factory=Map)


Replay = Callable[[GroupShard, Struct, Struct | None, Report], GroupShard]
"""(shard, key, value or None for a tombstone, report) -> shard."""

G = TypeVar("G", ConsumerGroup, ShareGroup, StreamsGroup)
GroupReplay = Callable[[G, Struct, Struct | None, Report], G | None]
"""(group, key, value or None, report) -> group, or None when the record deletes it."""


def replay_group_metadata(shard: GroupShard, key: Struct, value: Struct | None, report: Report) -> GroupShard:
    """GroupMetadata (2): a value replaces whatever group has this id, a tombstone removes it."""
    if value is None:
        return _without_group(shard, key.group)
    return _with_group(shard, classic_group(key.group, value, report))


def replay_share_group_state_partition_metadata(
    shard: GroupShard, key: Struct, value: Struct | None, report: Report
) -> GroupShard:
    """ShareGroupStatePartitionMetadata (15). The picture is kept by group id: it may outlive the group.

    Where the id belongs to a group of another type with members (an anomaly), the picture is kept all the
    same.
    """
    group = _group_for(shard, ShareGroup, key.group_id, is_value=value is not None, report=report)
    if value is None:
        return with_fields(shard, share_partitions=without(shard.share_partitions, key.group_id))
    if group is not None:
        shard = _with_group(shard, group)
    picture = share.state_partitions(value)
    return with_fields(shard, share_partitions=shard.share_partitions.set(key.group_id, picture))


def _in_group(kind: type[G], replay_in_group: GroupReplay[G]) -> Replay:
    """Lift the replay of a group to the replay of a shard."""

    def replay_in_shard(shard: GroupShard, key: Struct, value: Struct | None, report: Report) -> GroupShard:
        group = _group_for(shard, kind, key.group_id, is_value=value is not None, report=report)
        if group is None:
            return shard
        after = replay_in_group(group, key, value, report)
        return _without_group(shard, key.group_id) if after is None else _with_group(shard, after)

    return replay_in_shard


def _group_for(shard: GroupShard, kind: type[G], group_id: str, *, is_value: bool, report: Report) -> G | None:
    """The group of a record, made where the rules above say so; None where the record is passed over."""
    existing = shard.groups.get(group_id)
    if isinstance(existing, kind):
        return existing
    if existing is None:
        return kind(group_id) if is_value else None
    if kind is not ShareGroup and isinstance(existing, ClassicGroup) and existing.is_simple:
        return kind(group_id)
    message = f"{kind.__name__} record for {group_id!r}, which is a {type(existing).__name__}"
    report(Anomaly(GROUP_TYPE_MISMATCH, message))
    return kind(group_id) if is_value and not existing.members else None


def _with_group(shard: GroupShard, group: Group) -> GroupShard:
    # once a record: dataclasses.replace costs more than the update itself
    return GroupShard(shard.groups.set(group.group_id, group), shard.share_partitions)


def _without_group(shard: GroupShard, group_id: str) -> GroupShard:
    return GroupShard(without(shard.groups, group_id), shard.share_partitions)


REPLAY: Final[Mapping[RecordType, Replay]] = {
    RecordType.GROUP_METADATA: replay_group_metadata,
    RecordType.CONSUMER_GROUP_METADATA: _in_group(ConsumerGroup, consumer.replay_metadata),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _in_group(ConsumerGroup, consumer.replay_partition_metadata),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _in_group(ConsumerGroup, consumer.replay_member_metadata),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(
        ConsumerGroup, consumer.replay_target_assignment_metadata
    ),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(
        ConsumerGroup, consumer.replay_target_assignment_member
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(ConsumerGroup, consumer.replay_current_assignment),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _in_group(ConsumerGroup, consumer.replay_regular_expression),
    RecordType.SHARE_GROUP_MEMBER_METADATA: _in_group(ShareGroup, share.replay_member_metadata),
    RecordType.SHARE_GROUP_METADATA: _in_group(ShareGroup, share.replay_metadata),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(ShareGroup, share.replay_target_assignment_metadata),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(ShareGroup, share.replay_target_assignment_member),
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(ShareGroup, share.replay_current_assignment),
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: replay_share_group_state_partition_metadata,
    RecordType.STREAMS_GROUP_METADATA: _in_group(StreamsGroup, streams.replay_metadata),
    RecordType.STREAMS_GROUP_MEMBER_METADATA: _in_group(StreamsGroup, streams.replay_member_metadata),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(
        StreamsGroup, streams.replay_target_assignment_metadata
    ),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(StreamsGroup, streams.replay_target_assignment_member),
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(StreamsGroup, streams.replay_current_assignment),
    RecordType.STREAMS_GROUP_TOPOLOGY: _in_group(StreamsGroup, streams.replay_topology),
}
"""Every record type of groups. Offset commits (0 and 1) are `replay_record`'s."""

_BY_NUMBER: Final[Mapping[int, Replay]] = {record_type.value: function for record_type, function in REPLAY.items()}


OFFSET_COMMIT_TYPES: Final = frozenset({RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT})


def replay(shard: GroupShard, record_type: int, key: Struct, value: Struct | None, *, report: Report) -> GroupShard:
    """Apply one group record. `value` is None for a tombstone. Types without a replay function change
    nothing.

    `key` and `value` have the record's fields as attributes in snake case (arrays as tuples, topic ids as
    their text).
    """
    function = _BY_NUMBER.get(record_type)
    return shard if function is None else function(shard, key, value, report)


def replay_all(
    shard: GroupShard, records: Iterable[tuple[int, Struct, Struct | None]], *, report: Report
) -> GroupShard:
    """Apply (record type, key, value) after (record type, key, value), in log order."""
    for record_type, key, value in records:
        shard = replay(shard, record_type, key, value, report=report)
    return shard


def touch_simple_group(shard: GroupShard, group_id: str) -> GroupShard:
    """An offset commit makes a simple group where there is none (OffsetMetadataManager.replay)."""
    return shard if group_id in shard.groups else _with_group(shard, ClassicGroup(group_id))


@dataclass(frozen=True, slots=True)
class CoordinatorShard:
    """All state of one `__consumer_offsets` partition: what a coordinator has after loading it."""

    groups: GroupShard = field(default_factory=GroupShard)
    offsets: OffsetsState = field(default_factory=OffsetsState)


def replay_record(
    shard: CoordinatorShard,
    record_type: int,
    key: Struct,
    value: Struct | None,
    *,
    offset: int,
    producer_id: int = offsets.NO_PRODUCER_ID,
    report: Report,
) -> CoordinatorShard:
    """Apply one record of any type, as `replay` does. `offset` is its log offset, `producer_id` its
    batch's."""
    if record_type not in OFFSET_COMMIT_TYPES:
        return with_fields(shard, groups=replay(shard.groups, record_type, key, value, report=report))
    committed = offsets.replay_offset_commit(shard.offsets, key, value, offset=offset, producer_id=producer_id)
    groups = shard.groups if value is None else touch_simple_group(shard.groups, key.group)
    return CoordinatorShard(groups, committed)


def replay_end_transaction_marker(shard: CoordinatorShard, producer_id: int, *, committed: bool) -> CoordinatorShard:
    """Apply a transaction marker: it decides the pending offsets of its producer, for all groups at once."""
    return with_fields(shard, offsets=offsets.replay_end_transaction_marker(shard.offsets, producer_id, committed))
