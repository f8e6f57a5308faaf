"""Commands about committed offsets, and those for groups of all types: delete, list, expire.

The group's `GroupRules` decide what depends on its type.

Source: OffsetMetadataManager, GroupCoordinatorShard (deleteGroups, listGroups, cleanupGroupMetadata).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.operation import BaseTimestamp, Context, OffsetCommitter, Result
from coordinator_core.live.coordinator.records import NO_PRODUCER, CoordinatorRecord, Producer
from coordinator_core.live.offsets.messages import (
    NO_RETENTION_TIME_MS,
    DeletableGroupResult,
    DeletedTopic,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    PartitionError,
    TxnOffsetCommitRequest,
)
from coordinator_core.live.offsets.records import offset_commit_record, offset_commit_tombstone
from coordinator_core.replay.offsets.replay import ZERO_UUID
from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey, OffsetsState
from schemas.error_codes import ErrorCode

EXPIRE_GROUP_METADATA: Final = "expire_group_metadata"
EXPIRE_GROUP_METADATA_KEY: Final = "expire-group-metadata"

NEW_TXN_ERRORS_FROM_VERSION: Final = 6
"""TxnOffsetCommit returns STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND from this version on."""

NEW_MEMBER_EPOCH_ERROR_FROM_VERSION: Final = 9
"""OffsetCommit returns a specific error to a member of a group that does not exist from this version on."""


# --- OffsetCommit, TxnOffsetCommit ---


def commit_offset(context: Context, request: OffsetCommitRequest) -> Result:
    """OffsetCommit: an OffsetCommitResponse. One record for each accepted partition, in the order of the request."""
    generation_id = request.generation_id_or_member_epoch
    committer = OffsetCommitter(request.member_id, request.group_instance_id, generation_id, False, context.api_version)
    group = context.group(request.group_id)
    if group is None:
        if generation_id >= 0:
            if context.api_version >= NEW_MEMBER_EPOCH_ERROR_FROM_VERSION:
                raise _group_not_found(request.group_id)
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        group = _new_simple_group(context, request.group_id)
    has_retention_time = request.retention_time_ms != NO_RETENTION_TIME_MS
    expire_timestamp_ms = context.now_ms + request.retention_time_ms if has_retention_time else None
    result = _commit(context, group, committer, request.topics, expire_timestamp_ms, NO_PRODUCER)
    context.coordinator.rules_of(group).refresh_on_commit(context, group, request.member_id)
    return result


def commit_transactional_offset(context: Context, request: TxnOffsetCommitRequest) -> Result:
    """TxnOffsetCommit: an OffsetCommitResponse. The offsets are pending until the producer's marker."""
    committer = OffsetCommitter(
        request.member_id, request.group_instance_id, request.generation_id, True, context.api_version
    )
    knows_errors = _have_topic_ids(context, committer) and context.api_version >= NEW_TXN_ERRORS_FROM_VERSION
    group = context.group(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise _group_not_found(request.group_id) if knows_errors else Refused(ErrorCode.ILLEGAL_GENERATION)
        group = _new_simple_group(context, request.group_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        return _commit(context, group, committer, request.topics, None, producer)
    except Refused as refused:
        if refused.code == ErrorCode.STALE_MEMBER_EPOCH and not knows_errors:
            raise Refused(ErrorCode.ILLEGAL_GENERATION) from refused
        raise


def _have_topic_ids(context: Context, committer: OffsetCommitter) -> bool:
    """Whether the broker resolves topic names to ids before it calls the coordinator."""
    version = context.config.kafka_version
    return not committer.is_transactional or Since.TXN_COMMITS_HAVE_TOPIC_IDS.holds_in(version)


def _new_simple_group(context: Context, group_id: str) -> LiveClassicGroup:
    """A group with offsets only. It exists from now on, even if no partition of the commit is accepted."""
    group = LiveClassicGroup(group_id, current_state_timestamp_ms=context.now_ms)
    context.coordinator.classic_groups[group_id] = group
    return group


def _commit(
    context: Context,
    group: Any,
    committer: OffsetCommitter,
    topics: tuple[OffsetCommitTopic, ...],
    expire_timestamp_ms: int | None,
    producer: Producer,
) -> Result:
    rules = context.coordinator.rules_of(group)
    check_partition = rules.validate_offset_commit(context, group, committer)
    records: list[CoordinatorRecord] = []
    answers = []
    have_topic_ids = _have_topic_ids(context, committer)
    for topic in topics:
        partitions = []
        if check_partition is not None and not have_topic_ids and topic.name not in context.image.topics:
            # The request has only names: without the topic's id, the owner of its partitions is unknown.
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if _metadata_size(partition) > context.config.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                if check_partition is not None:
                    check_partition(topic.name, topic.topic_id, partition.partition_index)
                key = OffsetKey(group.group_id, topic.name, partition.partition_index)
                topic_id = topic.topic_id if have_topic_ids else ZERO_UUID
                committed = _committed(partition, topic_id, context.now_ms, expire_timestamp_ms)
                records.append(offset_commit_record(key, committed, context.config.kafka_version))
            partitions.append(PartitionError(partition.partition_index, code))
        answers.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, tuple(partitions)))

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None and group.group_id not in later.shard.groups.groups:
            # The group was created for this commit, so it is removed with it.
            later.coordinator.classic_groups.pop(group.group_id, None)

    return Result(tuple(records), OffsetCommitResponse(topics=tuple(answers)), producer, on_append)


def _committed(
    partition: OffsetCommitPartition, topic_id: str, now_ms: int, expire_timestamp_ms: int | None
) -> CommittedOffset:
    return CommittedOffset(
        record_offset=-1,  # assigned by the log
        committed_offset=partition.committed_offset,
        leader_epoch=None if partition.committed_leader_epoch < 0 else partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_timestamp_ms,
        topic_id=None if topic_id == ZERO_UUID else topic_id,
    )


def _metadata_size(partition: OffsetCommitPartition) -> int:
    """Length of the metadata as Java counts it, in UTF-16 code units, for comparison with
    `offset.metadata.max.bytes`."""
    return len((partition.committed_metadata or "").encode("utf-16-le", "surrogatepass")) // 2


# --- OffsetFetch, OffsetDelete ---


def fetch_offsets(context: Context, request: OffsetFetchRequest) -> Result:
    """OffsetFetch: an OffsetFetchResponse. A group that does not exist has no offsets, which is not an error."""
    group = context.group(request.group_id)
    is_there = group is not None
    if is_there:
        try:
            rules = context.coordinator.rules_of(group)
            rules.validate_offset_fetch(group, request.member_id, request.member_epoch)
        except Refused as refused:
            if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            is_there = False
    offsets = context.shard.offsets
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    else:
        asked = _committed_partitions(offsets, request.group_id) if is_there else []
    topics = []
    for topic, partitions in asked:
        keys = [OffsetKey(request.group_id, topic, partition) for partition in partitions]
        answers = (_fetched(offsets, key, is_there=is_there) for key in keys)
        topics.append(OffsetFetchResponseTopic(topic, tuple(answers)))
    return Result(response=OffsetFetchResponse(request.group_id, tuple(topics)))


def _committed_partitions(offsets: OffsetsState, group_id: str) -> list[tuple[str, tuple[int, ...]]]:
    keys = _keys_of(offsets.offsets, group_id)
    return [(topic, tuple(key.partition for key in of_topic)) for topic, of_topic in groupby(keys, attrgetter("topic"))]


def _fetched(offsets: OffsetsState, key: OffsetKey, *, is_there: bool) -> OffsetFetchResponsePartition:
    if key in offsets.open_producers:
        return OffsetFetchResponsePartition(key.partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.offsets.get(key) if is_there else None
    if committed is None:
        return OffsetFetchResponsePartition(key.partition)
    leader_epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
    return OffsetFetchResponsePartition(key.partition, committed.committed_offset, leader_epoch, committed.metadata)


def delete_offsets(context: Context, request: OffsetDeleteRequest) -> Result:
    """OffsetDelete: an OffsetDeleteResponse. Offsets of topics that the group is subscribed to stay."""
    group = context.group(request.group_id)
    if group is None:
        raise _group_not_found(request.group_id)
    rules = context.coordinator.rules_of(group)
    rules.validate_offset_delete(group)
    offsets = context.shard.offsets
    records: list[CoordinatorRecord] = []
    answers = []
    for topic in request.topics:
        is_in_use = rules.is_subscribed_to(group, topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else ErrorCode.NONE
        for partition in topic.partitions:
            key = OffsetKey(request.group_id, topic.name, partition.partition_index)
            if not is_in_use and (key in offsets.offsets or key in offsets.open_producers):
                records.append(offset_commit_tombstone(key))
        partitions = (PartitionError(partition.partition_index, code) for partition in topic.partitions)
        answers.append(OffsetDeleteResponseTopic(topic.name, tuple(partitions)))
    return Result(tuple(records), OffsetDeleteResponse(topics=tuple(answers)))


# --- deleted groups and topics ---


def delete_groups(context: Context, group_ids: tuple[str, ...]) -> Result:
    """DeleteGroups: a tuple of DeletableGroupResult. All groups are deleted in one operation, each after its
    offsets."""
    records: list[CoordinatorRecord] = []
    answers = []
    for group_id in group_ids:
        code = ErrorCode.NONE
        try:
            group = context.group(group_id)
            if group is None:
                raise _group_not_found(group_id)
            rules = context.coordinator.rules_of(group)
            rules.validate_delete_group(group)
        except Refused as refused:
            code = refused.code
        else:
            offsets = context.shard.offsets
            committed = _keys_of(offsets.offsets, group_id)
            pending = [key for key in _keys_of(offsets.open_producers, group_id) if key not in offsets.offsets]
            records.extend(offset_commit_tombstone(key) for key in (*committed, *pending))
            records.extend(rules.tombstones(context, group))
        answers.append(DeletableGroupResult(group_id, code))
    return Result(tuple(records), tuple(answers))


def topics_deleted(context: Context, topics: tuple[DeletedTopic, ...]) -> Result:
    """Delete the offsets of topics that were deleted from the cluster, in all groups.

    An offset is matched by topic id; by name only if it was committed without an id. Pending offsets get a tombstone of
    their own, one for each producer, as in Kafka.
    """
    ids = {topic.topic: topic.topic_id for topic in topics}
    offsets = context.shard.offsets
    keys = sorted(key for key, committed in offsets.offsets.items() if _is_of(ids, key, committed))
    for producer_id in sorted(offsets.pending):
        pending = offsets.pending[producer_id]
        keys.extend(sorted(key for key, committed in pending.items() if _is_of(ids, key, committed)))
    return Result(tuple(offset_commit_tombstone(key) for key in keys), is_atomic=False)


def _is_of(ids: dict[str, str], key: OffsetKey, committed: CommittedOffset) -> bool:
    return key.topic in ids and committed.topic_id in {None, ids[key.topic]}


# --- expiry ---


def expire_group_metadata(context: Context) -> Result:
    """Delete expired offsets, and empty groups without offsets; then schedule the next check."""
    offsets = context.shard.offsets
    committed: dict[str, list[OffsetKey]] = defaultdict(list)
    for key in sorted(offsets.offsets):
        committed[key.group].append(key)
    open_groups = {key.group for key in offsets.open_producers}
    records: list[CoordinatorRecord] = []
    for group_id in context.coordinator.group_ids():
        group = context.group(group_id)
        rules = context.coordinator.rules_of(group)
        if not rules.should_expire(group):
            continue
        keys = committed.get(group_id, [])
        base = rules.expiration_base(group)
        expired = [
            key
            for key in keys
            if base is not None and not rules.is_subscribed_to(group, key.topic) and _is_expired(context, key, base)
        ]
        records.extend(offset_commit_tombstone(key) for key in expired)
        if len(expired) == len(keys) and group_id not in open_groups and rules.is_empty(group):
            records.extend(rules.tombstones(context, group))
    schedule_expiration(context)
    return Result(tuple(records), is_atomic=False)


def _is_expired(context: Context, key: OffsetKey, base: BaseTimestamp) -> bool:
    """OffsetExpirationConditionImpl, and no open transaction on the partition."""
    offsets = context.shard.offsets
    committed = offsets.offsets[key]
    if key in offsets.open_producers:
        return False
    if committed.expire_timestamp_ms is not None:
        return context.now_ms >= committed.expire_timestamp_ms
    return context.now_ms - base(committed) >= context.config.offsets_retention_ms


def schedule_expiration(context: Context) -> None:
    """Set the timer for the next expiry; it is also called after loading."""
    interval_ms = context.config.offsets_retention_check_interval_ms
    context.schedule(EXPIRE_GROUP_METADATA_KEY, interval_ms, EXPIRE_GROUP_METADATA, retry_backoff_ms=interval_ms)


def _keys_of(keys: Iterable[OffsetKey], group_id: str) -> list[OffsetKey]:
    return sorted(key for key in keys if key.group == group_id)


def _group_not_found(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


MODULE: Final = GroupModule(
    "offsets",
    commands={
        "commit_offset": commit_offset,
        "commit_transactional_offset": commit_transactional_offset,
        "fetch_offsets": fetch_offsets,
        "delete_offsets": delete_offsets,
        "delete_groups": delete_groups,
        "on_topics_deleted": topics_deleted,
    },
    timers={EXPIRE_GROUP_METADATA: expire_group_metadata},
    on_loaded=schedule_expiration,
)
