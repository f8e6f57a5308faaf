"""Requests to coordinators: how to ask about several groups at once, and how to read the responses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from coordinator_core.bytes.codec import Struct, make
from coordinator_core.history.views import embedded_assignment
from coordinator_core.replay.lookup import SharePartitionKey, group_partition, share_partition_partition
from jobs.sources.admin_answers import (
    NEGATIVE_EPOCH,
    AssignedPartition,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    Refusal,
    ShareOffset,
    ShareState,
    StateBatch,
    TopicPartitionId,
    TopologyStatus,
)
from jobs.sources.api_request import ApiRequest
from schemas import consumer_offsets, share_group_state
from schemas.admin_protocol import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    READ_SHARE_GROUP_STATE,
    READ_STATE_PARTITION,
    READ_STATE_TOPIC,
    SHARE_GROUP_DESCRIBE,
    SHARE_OFFSETS_GROUP,
    STREAMS_GROUP_DESCRIBE,
)
from schemas.group_types import GroupType

GROUPS_AT_ONCE: Final = 200
"""Groups in one request: a description takes about a kilobyte, and the size of a response is bounded."""
OFFSETS_AT_ONCE: Final = 50
"""Groups in one OffsetFetch, each of which may have thousands of partitions."""
RESOURCES_AT_ONCE: Final = 500
OFFSET_FETCH_VERSION_MIN: Final = 8
"""From this version on a request can contain several groups (Kafka 3.0)."""
SINGLE_OFFSET_FETCH_VERSIONS: Final = (2, 7)
"""Versions for a single group; from 2 on for all its partitions (Kafka 0.10.2)."""
OFFSET_FETCH_VERSION_MAX: Final = 9
"""From version 10 on topics are identified by id, and deleted topics that still have offsets are left out."""
TOPOLOGY_DESCRIPTION_VERSION_MIN: Final = 1
"""First version of StreamsGroupDescribe with it (Kafka 4.4)."""
NO_LEADER_EPOCH: Final = -1
MEMBER_OF_CLASSIC_PROTOCOL: Final = 0
DEAD: Final = "Dead"
"""The state that DescribeGroups before version 6 returns for a group that does not exist."""
TRY_AGAIN: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
GROUP_ID_NOT_FOUND: Final = 69
INVALID_REQUEST: Final = 42
UNINITIALIZED: Final = "uninitialized"
"""Part of ReadShareGroupState's INVALID_REQUEST message for a share partition without a state."""
Answer = TypeVar("Answer")
Item = TypeVar("Item")


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def is_not_ready(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code in TRY_AGAIN


@dataclass(frozen=True, slots=True)
class Question(Generic[Item, Answer]):
    """A kind of request to coordinators about groups or share partitions."""

    topic: str
    """The topic whose partition leaders are the coordinators."""
    partition_of: Callable[[Item, int], int]
    """The partition for an item, given the partition count."""
    parts: Callable[[Sequence[Item]], Iterator[Sequence[Item]]]
    """Split items into those of single requests."""
    request: Callable[[Sequence[Item]], Any]
    read: Callable[[Sequence[Item], Any], Iterator[tuple[Item, Answer | Refusal]]]
    """Read the answers for these items from a response."""
    older: "Question[Item, Answer] | None" = None
    """The request for brokers that do not support this one."""


def _of_groups(
    request: Callable[[Sequence[str]], Any],
    read: Callable[[Any], Iterator[tuple[str, Answer | Refusal]]],
    at_once: int = GROUPS_AT_ONCE,
) -> Question[str, Answer]:
    return Question(
        consumer_offsets.TOPIC,
        group_partition,
        lambda items: chunks(items, at_once),
        request,
        lambda _, response: read(response),
    )


def _classic_groups(response: Any) -> Iterator[tuple[str, GroupDescription | Refusal]]:
    for it in response.groups:
        if it.error_code:
            yield it.group_id, Refusal.of(it.error_code)
        elif it.group_state == DEAD:
            yield it.group_id, Refusal.of(GROUP_ID_NOT_FOUND)
        else:
            members = tuple(_classic_member(it.protocol_type, member) for member in it.members)
            yield (
                it.group_id,
                GroupDescription(
                    it.group_id,
                    GroupType.CLASSIC,
                    it.group_state,
                    members,
                    protocol_type=it.protocol_type,
                    protocol_name=it.protocol_data,
                ),
            )


def _classic_member(protocol_type: str, member: Any) -> GroupMember:
    # read like the assignments in silver, as far as they can be decoded
    read = embedded_assignment(protocol_type, bytes(member.member_assignment), bytes(member.member_metadata))
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assigned=frozenset(
            AssignedPartition(None, topic, partition, None)
            for topic, partitions in read.assigned or ()
            for partition in partitions
        ),
        is_unread=read.assigned is None,
    )


def _described(
    response: Any, group_type: str, member_of: Callable[[Any], GroupMember]
) -> Iterator[tuple[str, GroupDescription | Refusal]]:
    for it in response.groups:
        if it.error_code:
            yield it.group_id, Refusal.of(it.error_code)
        else:
            yield (
                it.group_id,
                GroupDescription(
                    it.group_id,
                    group_type,
                    it.group_state,
                    tuple(map(member_of, it.members)),
                    protocol_name=getattr(it, "assignor_name", None),
                    group_epoch=it.group_epoch,
                    assignment_epoch=it.assignment_epoch,
                    **(_topology(it) if group_type == GroupType.STREAMS else {}),
                ),
            )


def _topology(group: Struct) -> dict[str, Any]:
    return {
        "topology_epoch": group.topology.epoch if group.topology else None,
        "topology_status": TopologyStatus(group.topology_description_status),
        "topology_description": group.topology_description,
    }


def _consumer_member(member: Struct) -> GroupMember:
    known = member.member_type >= MEMBER_OF_CLASSIC_PROTOCOL
    return _modern_member(
        member,
        uses_classic_protocol=member.member_type == MEMBER_OF_CLASSIC_PROTOCOL if known else None,
        assigned=_topic_partitions(member.assignment),
        target=_topic_partitions(member.target_assignment),
    )


def _share_member(member: Struct) -> GroupMember:
    return _modern_member(member, assigned=_topic_partitions(member.assignment))


def _streams_member(member: Struct) -> GroupMember:
    return _modern_member(member, assigned=_tasks(member.assignment), target=_tasks(member.target_assignment))


def _modern_member(member: Struct, **of_type: Any) -> GroupMember:
    return GroupMember(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        **of_type,
    )


def _topic_partitions(assignment: Struct) -> frozenset[AssignedPartition]:
    return frozenset(
        AssignedPartition(it.topic_id, it.topic_name, partition, None)
        for it in assignment.topic_partitions
        for partition in it.partitions
    )


def _tasks(assignment: Struct) -> frozenset[AssignedPartition]:
    by_type = {
        "ACTIVE": assignment.active_tasks,
        "STANDBY": assignment.standby_tasks,
        "WARMUP": assignment.warmup_tasks,
    }
    return frozenset(
        AssignedPartition(None, it.subtopology_id, partition, task_type)
        for task_type, tasks in by_type.items()
        for it in tasks
        for partition in it.partitions
    )


STREAMS_GROUPS: Final = _of_groups(
    lambda part: ApiRequest(STREAMS_GROUP_DESCRIBE, group_ids=tuple(part)),
    lambda response: _described(response, GroupType.STREAMS, _streams_member),
)
STREAMS_GROUPS_SINCE_44: Final = _of_groups(
    lambda part: ApiRequest(
        STREAMS_GROUP_DESCRIBE,
        min_version=TOPOLOGY_DESCRIPTION_VERSION_MIN,
        group_ids=tuple(part),
        include_topology_description=True,
    ),
    lambda response: _described(response, GroupType.STREAMS, _streams_member),
)

DESCRIPTIONS: Final[Mapping[str, Question[str, GroupDescription]]] = {
    GroupType.CLASSIC: _of_groups(
        lambda part: DescribeGroupsRequest(groups=list(part), include_authorized_operations=False, min_version=0),
        _classic_groups,
    ),
    GroupType.CONSUMER: _of_groups(
        lambda part: ApiRequest(CONSUMER_GROUP_DESCRIBE, group_ids=tuple(part)),
        lambda response: _described(response, GroupType.CONSUMER, _consumer_member),
    ),
    GroupType.SHARE: _of_groups(
        lambda part: ApiRequest(SHARE_GROUP_DESCRIBE, group_ids=tuple(part)),
        lambda response: _described(response, GroupType.SHARE, _share_member),
    ),
    GroupType.STREAMS: replace(STREAMS_GROUPS_SINCE_44, older=STREAMS_GROUPS),
}
"""By group type."""


def _offset_fetch(group_ids: Sequence[str]) -> OffsetFetchRequest:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=group_id, topics=None) for group_id in group_ids],
        require_stable=False,
        min_version=OFFSET_FETCH_VERSION_MIN,
        max_version=OFFSET_FETCH_VERSION_MAX,
    )


def _fetched_offsets(response: Any) -> Iterator[tuple[str, dict[tuple[str, int], CommittedOffset] | Refusal]]:
    for group in response.groups:
        if group.error_code:
            yield group.group_id, Refusal.of(group.error_code)
        else:
            yield group.group_id, _committed(group.topics)


def _committed(topics: Any) -> dict[tuple[str, int], CommittedOffset]:
    return {
        (topic.name, it.partition_index): CommittedOffset(
            it.committed_offset,
            None if it.committed_leader_epoch == NO_LEADER_EPOCH else it.committed_leader_epoch,
            it.metadata or "",
        )
        for topic in topics
        for it in topic.partitions
        if not it.error_code and it.committed_offset >= 0
    }


def _single_offset_fetch(group_ids: Sequence[str]) -> OffsetFetchRequest:
    (group_id,) = group_ids
    first, last = SINGLE_OFFSET_FETCH_VERSIONS
    return OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False, min_version=first, max_version=last)


def _single_fetched_offsets(
    group_ids: Sequence[str], response: Any
) -> Iterator[tuple[str, dict[tuple[str, int], CommittedOffset] | Refusal]]:
    (group_id,) = group_ids
    yield group_id, Refusal.of(response.error_code) if response.error_code else _committed(response.topics)


COMMITTED_OFFSETS: Final = replace(
    _of_groups(_offset_fetch, _fetched_offsets, OFFSETS_AT_ONCE),
    older=Question(
        consumer_offsets.TOPIC,
        group_partition,
        lambda items: chunks(items, 1),
        _single_offset_fetch,
        _single_fetched_offsets,
    ),
)


def _described_share_offsets(
    response: Struct,
) -> Iterator[tuple[str, dict[TopicPartitionId, ShareOffset | Refusal] | Refusal]]:
    for group in response.groups:
        if group.error_code:
            yield group.group_id, Refusal.of(group.error_code)
            continue
        offsets: dict[TopicPartitionId, ShareOffset | Refusal] = {}
        for topic in group.topics:
            for it in topic.partitions:
                place = TopicPartitionId(topic.topic_id, topic.topic_name, it.partition_index)
                is_refused = it.error_code != 0
                offsets[place] = (
                    Refusal.of(it.error_code) if is_refused else ShareOffset(it.start_offset, it.leader_epoch)
                )
        not_ready = next((answer for answer in offsets.values() if is_not_ready(answer)), None)
        yield group.group_id, offsets if not_ready is None else not_ready  # type: ignore[misc]


SHARE_OFFSETS: Final = _of_groups(
    lambda part: ApiRequest(
        DESCRIBE_SHARE_GROUP_OFFSETS,
        groups=tuple(make(SHARE_OFFSETS_GROUP, group_id=group_id, topics=None) for group_id in part),
    ),
    _described_share_offsets,
    OFFSETS_AT_ONCE,
)


def _read_states(leader_epochs: Mapping[SharePartitionKey, int], keys: Sequence[SharePartitionKey]) -> ApiRequest:
    by_topic = groupby(keys, key=lambda key: key.topic_id)
    topics = [
        make(
            READ_STATE_TOPIC,
            topic_id=topic_id,
            partitions=tuple(
                make(
                    READ_STATE_PARTITION, partition=key.partition, leader_epoch=leader_epochs.get(key, NO_LEADER_EPOCH)
                )
                for key in of_topic
            ),
        )
        for topic_id, of_topic in by_topic
    ]
    return ApiRequest(READ_SHARE_GROUP_STATE, group_id=keys[0].group_id, topics=tuple(topics))


def _read_states_described(
    leader_epochs: Mapping[SharePartitionKey, int], keys: Sequence[SharePartitionKey], response: Struct
) -> Iterator[tuple[SharePartitionKey, ShareState | Refusal]]:
    for topic in response.results:
        for it in topic.partitions:
            key = SharePartitionKey(keys[0].group_id, topic.topic_id, it.partition)
            if it.error_code == INVALID_REQUEST and UNINITIALIZED not in (it.error_message or UNINITIALIZED):
                yield key, NEGATIVE_EPOCH
            elif it.error_code:
                yield key, Refusal.of(it.error_code)
            else:
                batches = tuple(
                    StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                    for batch in it.state_batches
                )
                yield key, ShareState(it.state_epoch, it.start_offset, batches)


def parts_of_group(keys: Sequence[SharePartitionKey]) -> Iterator[Sequence[SharePartitionKey]]:
    """A request can contain only one group."""
    for _, of_group in groupby(sorted(keys), key=lambda key: key.group_id):
        yield from chunks(list(of_group), RESOURCES_AT_ONCE)


def share_states_of(leader_epochs: Mapping[SharePartitionKey, int]) -> Question[SharePartitionKey, ShareState]:
    return Question(
        share_group_state.TOPIC,
        share_partition_partition,
        parts_of_group,
        partial(_read_states, leader_epochs),
        partial(_read_states_described, leader_epochs),
    )
