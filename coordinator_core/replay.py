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
from coordinator_core.frozen import quickly_made, with_fields
from coordinator_core.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.modern import fresh_group, without
from coordinator_core.offsets import replay as offsets
from coordinator_core.offsets.state import OffsetsState
from coordinator_core.share import replay as share
from coordinator_core.share.state import ShareGroup, ShareGroupStatePartitions
from coordinator_core.streams import replay as streams
from coordinator_core.streams.state import StreamsGroup
from schemas.consumer_offsets import RecordType

__all__ = [
    "REPLAY",
    "SHARE_PARTITIONS_RECORD",
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
    "replay_share_partitions",
    "simple_group",
    "touch_simple_group",
    "with_group",
]

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


@quickly_made
@dataclass(frozen=True, slots=True)
class GroupShard:
    """State of one `__consumer_offsets` partition, offsets aside. The group map is keyed by id alone."""

    groups: Map[str, Group] = field(default_factory=Map)
    share_partitions: Map[str, ShareGroupStatePartitions] = field(default_factory=Map)


G = TypeVar("G", ConsumerGroup, ShareGroup, StreamsGroup)
ReplayOfKind = Callable[[G, Struct, Struct | None, Report], G | None]
"""(group, key, value or None for a tombstone, report) -> group, or None when the record deletes it."""
ReplayByVersion = Callable[[G, Struct, Struct | None, Report, KafkaVersion], G | None]
"""The same, where releases of Kafka differ."""
Replay = Callable[[Group | None, Struct, Struct | None, Report, KafkaVersion], Group | None]
"""The same, of whatever group has the key's group id now, if any: the group itself where nothing changed. Of which
release's coordinator the state is wanted comes last."""


def replay_group_metadata(
    _existing: Group | None, key: Struct, value: Struct | None, report: Report, _version: KafkaVersion = DEFAULT_VERSION
) -> Group | None:
    """GroupMetadata (2): a value replaces whatever group has this id, a tombstone removes it."""
    return None if value is None else classic_group(key.group, value, report)


def replay_share_group_state_partition_metadata(
    existing: Group | None, key: Struct, value: Struct | None, report: Report, version: KafkaVersion = DEFAULT_VERSION
) -> Group | None:
    """ShareGroupStatePartitionMetadata (15), as far as it creates the group that it needs; its value is kept outside of
    the groups (`replay_share_partitions`)."""
    group = _group_for(existing, ShareGroup, key.group_id, version, is_value=value is not None, report=report)
    return existing if value is None or group is None else group


def replay_share_partitions(
    pictures: Map[str, ShareGroupStatePartitions], key: Struct, value: Struct | None
) -> Map[str, ShareGroupStatePartitions]:
    """ShareGroupStatePartitionMetadata (15). The picture is kept by group id: it may outlive the group.

    Where the id belongs to a group of another type with members (an anomaly), the picture is kept all the
    same.
    """
    if value is None:
        return without(pictures, key.group_id)
    return pictures.set(key.group_id, share.state_partitions(value))


def _in_group(kind: type[G], replay_of_kind: ReplayOfKind[G]) -> Replay:
    """Lift the replay of a group of one type to that of whatever group there is."""

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
    """The same, of a replay for which the version counts."""

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
    """The group of a record, made where the rules above say so; None where the record is passed over."""
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
    RecordType.CONSUMER_GROUP_METADATA: _in_group(ConsumerGroup, consumer.replay_metadata),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _in_group(ConsumerGroup, consumer.replay_partition_metadata),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _in_group_by_version(ConsumerGroup, consumer.replay_member_metadata),
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
    RecordType.STREAMS_GROUP_MEMBER_METADATA: _in_group_by_version(StreamsGroup, streams.replay_member_metadata),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: _in_group(
        StreamsGroup, streams.replay_target_assignment_metadata
    ),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: _in_group(StreamsGroup, streams.replay_target_assignment_member),
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: _in_group(StreamsGroup, streams.replay_current_assignment),
    RecordType.STREAMS_GROUP_TOPOLOGY: _in_group(StreamsGroup, streams.replay_topology),
}
"""Every record type of groups. Offset commits (0 and 1) are `replay_record`'s."""

_BY_NUMBER: Final[Mapping[int, Replay]] = {record_type.value: function for record_type, function in REPLAY.items()}

_GROUP_METADATA: Final = RecordType.GROUP_METADATA
SHARE_PARTITIONS_RECORD: Final = RecordType.SHARE_GROUP_STATE_PARTITION_METADATA
"""The one record of a group with state outside of it: `replay_share_partitions`."""
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
    """Apply one group record. `value` is None for a tombstone. Types without a replay function change
    nothing.

    `key` and `value` have the record's fields as attributes in snake case (arrays as tuples, topic ids as
    their text).
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
    """The shard with `group`, or none, in the place of the `existing` one."""
    if group is existing:
        return shard
    groups = shard.groups.delete(group_id) if group is None else shard.groups.set(group_id, group)
    # once a record: dataclasses.replace costs more than the update itself
    return GroupShard(groups, shard.share_partitions)


def replay_all(
    shard: GroupShard, records: Iterable[tuple[int, Struct, Struct | None]], *, report: Report
) -> GroupShard:
    """Apply (record type, key, value) after (record type, key, value), in log order."""
    for record_type, key, value in records:
        shard = replay(shard, record_type, key, value, report=report)
    return shard


def touch_simple_group(shard: GroupShard, group_id: str) -> GroupShard:
    """An offset commit makes a simple group where there is none (OffsetMetadataManager.replay)."""
    existing = shard.groups.get(group_id)
    return with_group(shard, group_id, existing, simple_group(existing, group_id))


def simple_group(existing: Group | None, group_id: str) -> Group:
    """The group of an offset commit: a simple one where there is none."""
    return ClassicGroup(group_id) if existing is None else existing


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
    version: KafkaVersion = DEFAULT_VERSION,
) -> CoordinatorShard:
    """Apply one record of any type, as `replay` does. `offset` is its log offset, `producer_id` its
    batch's, `version` the release whose state is wanted."""
    if record_type not in OFFSET_COMMIT_TYPES:
        return with_fields(shard, groups=replay(shard.groups, record_type, key, value, report=report, version=version))
    committed = offsets.replay_offset_commit(shard.offsets, key, value, offset=offset, producer_id=producer_id)
    groups = shard.groups if value is None else touch_simple_group(shard.groups, key.group)
    return CoordinatorShard(groups, committed)


def replay_end_transaction_marker(shard: CoordinatorShard, producer_id: int, *, committed: bool) -> CoordinatorShard:
    """Apply a transaction marker: it decides the pending offsets of its producer, for all groups at once."""
    return with_fields(shard, offsets=offsets.replay_end_transaction_marker(shard.offsets, producer_id, committed))
