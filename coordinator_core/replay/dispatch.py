"""REPLAY: record type to replay function. One replay for history, simulation and tests.

`replay(shard, record_type, key, value, report=...)` applies one record of one `__consumer_offsets` partition to its
groups; `replay_record` does the same for groups and committed offsets together. Both take a state and return a state.
`report` receives an `Anomaly` where the log breaks one of the coordinator's own rules (Kafka's loader throws there);
replay applies its best effort and goes on. No sequence of decoded records raises an exception.

Rules that all types share (GroupMetadataManager.getOrMaybeCreatePersisted*Group):

* A group id has one group of one type. A value creates the group that it needs; a tombstone for an absent group is
  fine: compaction may have removed what came before.
* A record of a consumer or a streams group, even a tombstone, replaces a simple group (one with offsets only).
* Any other mismatch of types is an anomaly. A value then replaces a group without members, and is ignored where there
  are members; a tombstone is ignored.
* GroupMetadata (2) has no condition: a value replaces any group with this id, a tombstone removes it.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay import modern
from coordinator_core.replay.anomalies import GROUP_TYPE_MISMATCH, Anomaly, Report
from coordinator_core.replay.classic.replay import classic_group
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer import replay as consumer
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.modern import fresh_group, without
from coordinator_core.replay.offsets import replay as offsets
from coordinator_core.replay.offsets.state import OffsetsState
from coordinator_core.replay.share import replay as share
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions
from coordinator_core.replay.streams import replay as streams
from coordinator_core.replay.streams.state import StreamsGroup
from schemas.consumer_offsets import RecordType

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


class GroupShard(msgspec.Struct, frozen=True, gc=False):
    """State of one `__consumer_offsets` partition, without offsets. The group map is keyed by id alone."""

    groups: Map[str, Group] = Map()
    share_partitions: Map[str, ShareGroupStatePartitions] = Map()


G = TypeVar("G", ConsumerGroup, ShareGroup, StreamsGroup)
ReplayOfKind = Callable[[G, Struct, Struct | None, Report], G | None]
"""(group, key, value or None for a tombstone, report) -> group, or None when the record deletes it."""
ReplayByVersion = Callable[[G, Struct, Struct | None, Report, KafkaVersion], G | None]
"""`ReplayOfKind` for rules that differ between releases of Kafka."""
Replay = Callable[[Group | None, Struct, Struct | None, Report, KafkaVersion], Group | None]
"""Replays a record for any group: the first argument is the group that has the key's group id now, or None. Returns the
same object where nothing changed. The last argument is the release whose coordinator is replayed."""


def replay_group_metadata(
    _existing: Group | None, key: Struct, value: Struct | None, report: Report, _version: KafkaVersion = DEFAULT_VERSION
) -> Group | None:
    """GroupMetadata (2): a value replaces any group with this id, a tombstone removes it."""
    return None if value is None else classic_group(key.group, value, report)


def replay_share_group_state_partition_metadata(
    existing: Group | None, key: Struct, value: Struct | None, report: Report, version: KafkaVersion = DEFAULT_VERSION
) -> Group | None:
    """ShareGroupStatePartitionMetadata (15): create the group that the record needs. `replay_share_partitions` keeps
    its value, outside of the groups."""
    group = _group_for(existing, ShareGroup, key.group_id, version, is_value=value is not None, report=report)
    return existing if value is None or group is None else group


def replay_share_partitions(
    pictures: Map[str, ShareGroupStatePartitions], key: Struct, value: Struct | None
) -> Map[str, ShareGroupStatePartitions]:
    """ShareGroupStatePartitionMetadata (15): keep the value by group id, since it may outlive the group.

    It is kept even where the id belongs to a group of another type with members (an anomaly).
    """
    if value is None:
        return without(pictures, key.group_id)
    return pictures.set(key.group_id, share.state_partitions(value))


def _in_group(kind: type[G], replay_of_kind: ReplayOfKind[G]) -> Replay:
    """Turn the replay for groups of one type into a replay for any group."""

    def replay_in_group(
        existing: Group | None,
        key: Struct,
        value: Struct | None,
        report: Report,
        version: KafkaVersion = DEFAULT_VERSION,
    ) -> Group | None:
        group = _group_for(existing, kind, key.group_id, version, is_value=value is not None, report=report)
        return existing if group is None else replay_of_kind(group, key, value, report)

    return replay_in_group


def _in_group_by_version(kind: type[G], replay_by_version: ReplayByVersion[G]) -> Replay:
    """`_in_group` for a replay that depends on the release."""

    def replay_in_group(
        existing: Group | None,
        key: Struct,
        value: Struct | None,
        report: Report,
        version: KafkaVersion = DEFAULT_VERSION,
    ) -> Group | None:
        group = _group_for(existing, kind, key.group_id, version, is_value=value is not None, report=report)
        return existing if group is None else replay_by_version(group, key, value, report, version)

    return replay_in_group


def _group_for(
    existing: Group | None, kind: type[G], group_id: str, version: KafkaVersion, *, is_value: bool, report: Report
) -> G | None:
    """The group of a record, created where the rules above allow it; None if the record is ignored."""
    if isinstance(existing, kind):
        return existing
    if existing is None:
        return fresh_group(kind, group_id, version) if is_value else None
    if kind is not ShareGroup and isinstance(existing, ClassicGroup) and existing.is_simple:
        return fresh_group(kind, group_id, version)
    message = f"{kind.__name__} record for {group_id!r}, which is a {type(existing).__name__}"
    report(Anomaly(GROUP_TYPE_MISMATCH, message))
    return fresh_group(kind, group_id, version) if is_value and not existing.members else None


REPLAY: Final[Mapping[RecordType, Replay]] = {
    RecordType.GROUP_METADATA: replay_group_metadata,
    RecordType.CONSUMER_GROUP_METADATA: _in_group(ConsumerGroup, modern.replay_epoch),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _in_group(ConsumerGroup, consumer.replay_partition_metadata),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _in_group_by_version(ConsumerGroup, consumer.replay_member_metadata),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(ConsumerGroup, modern.replay_target_metadata),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(ConsumerGroup, modern.replay_target),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(ConsumerGroup, consumer.replay_current_assignment),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _in_group(ConsumerGroup, consumer.replay_regular_expression),
    RecordType.SHARE_GROUP_MEMBER_METADATA: _in_group(ShareGroup, share.replay_member_metadata),
    RecordType.SHARE_GROUP_METADATA: _in_group(ShareGroup, modern.replay_epoch),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(ShareGroup, modern.replay_target_metadata),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(ShareGroup, modern.replay_target),
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(ShareGroup, share.replay_current_assignment),
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: replay_share_group_state_partition_metadata,
    RecordType.STREAMS_GROUP_METADATA: _in_group(StreamsGroup, streams.replay_metadata),
    RecordType.STREAMS_GROUP_MEMBER_METADATA: _in_group_by_version(StreamsGroup, streams.replay_member_metadata),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(StreamsGroup, modern.replay_target_metadata),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(StreamsGroup, streams.replay_target_assignment_member),
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(StreamsGroup, streams.replay_current_assignment),
    RecordType.STREAMS_GROUP_TOPOLOGY: _in_group(StreamsGroup, streams.replay_topology),
}
"""Every record type of groups. `replay_record` handles offset commits (0 and 1)."""

_BY_NUMBER: Final[Mapping[int, Replay]] = {record_type.value: function for record_type, function in REPLAY.items()}

_GROUP_METADATA: Final = RecordType.GROUP_METADATA
SHARE_PARTITIONS_RECORD: Final = RecordType.SHARE_GROUP_STATE_PARTITION_METADATA
"""The one record type whose state is kept outside of its group: `replay_share_partitions`."""
OFFSET_COMMIT_TYPES: Final = frozenset({RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT})


def replay(
    shard: GroupShard,
    record_type: int,
    key: Struct,
    value: Struct | None,
    *,
    report: Report,
    version: KafkaVersion = DEFAULT_VERSION,
) -> GroupShard:
    """Apply one group record. `value` is None for a tombstone. Types without a replay function change nothing.

    `key` and `value` have the record's fields as attributes in snake case (arrays as tuples, topic ids as text).
    """
    function = _BY_NUMBER.get(record_type)
    if function is None:
        return shard
    group_id: str = key.group if record_type == _GROUP_METADATA else key.group_id
    existing = shard.groups.get(group_id)
    shard = with_group(shard, group_id, existing, function(existing, key, value, report, version))
    if record_type == SHARE_PARTITIONS_RECORD:
        return GroupShard(shard.groups, replay_share_partitions(shard.share_partitions, key, value))
    return shard


def with_group(shard: GroupShard, group_id: str, existing: Group | None, group: Group | None) -> GroupShard:
    """The shard with `group` in place of `existing`; without it where `group` is None."""
    if group is existing:
        return shard
    groups = shard.groups.delete(group_id) if group is None else shard.groups.set(group_id, group)
    return GroupShard(groups, shard.share_partitions)


def touch_simple_group(shard: GroupShard, group_id: str) -> GroupShard:
    """Create a simple group for an offset commit where the id has no group (OffsetMetadataManager.replay)."""
    existing = shard.groups.get(group_id)
    return with_group(shard, group_id, existing, simple_group(existing, group_id))


def simple_group(existing: Group | None, group_id: str) -> Group:
    """The group of an offset commit: the existing one, else a new simple group."""
    return ClassicGroup(group_id) if existing is None else existing


class CoordinatorShard(msgspec.Struct, frozen=True, gc=False):
    """All state of one `__consumer_offsets` partition: what a coordinator has after loading it."""

    groups: GroupShard = GroupShard()
    offsets: OffsetsState = OffsetsState()


def replay_record(
    shard: CoordinatorShard,
    record_type: int,
    key: Struct,
    value: Struct | None,
    *,
    offset: int,
    producer_id: int = offsets.NO_PRODUCER_ID,
    report: Report,
    version: KafkaVersion = DEFAULT_VERSION,
) -> CoordinatorShard:
    """Apply one record of any type, like `replay`. `offset` is its log offset, `producer_id` that of its batch,
    `version` the release whose coordinator is replayed."""
    if record_type not in OFFSET_COMMIT_TYPES:
        return replace(shard, groups=replay(shard.groups, record_type, key, value, report=report, version=version))
    committed = offsets.replay_offset_commit(shard.offsets, key, value, offset=offset, producer_id=producer_id)
    groups = shard.groups if value is None else touch_simple_group(shard.groups, key.group)
    return CoordinatorShard(groups, committed)


def replay_end_transaction_marker(shard: CoordinatorShard, producer_id: int, *, committed: bool) -> CoordinatorShard:
    """Apply a transaction marker: it commits or aborts the pending offsets of its producer, in all groups."""
    return replace(shard, offsets=offsets.replay_end_transaction_marker(shard.offsets, producer_id, committed))
