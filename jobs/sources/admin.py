"""What a cluster answers about itself: topics, configs, groups, committed offsets, and what share coordinators keep.

Each question goes to the broker that can answer it: a group's to the leader of its partition of `__consumer_offsets`,
a share partition's to that of its partition of `__share_group_state`, a broker's own configs to that broker. A
coordinator that is loading, or that moved, is asked again until the time is up. What a broker refuses to tell is a
`Refusal` in the answer's place, never an answer that looks empty.

Nothing here writes: ReadShareGroupState is sent with the leader epoch that the share coordinator itself tells, which
leaves no record; a higher one would (ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch). -1 leaves none either,
but brokers before 4.3 fence it, and 4.4 refuses it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from coordinator_core.codec import Struct, make, uuid_text
from coordinator_core.history.simple_log import is_kept_config
from coordinator_core.history.views import embedded_assignment
from coordinator_core.lookup import SharePartitionKey, group_partition, share_partition_partition
from jobs.errors import BrokerError
from jobs.sources.api_request import ApiRequest
from jobs.sources.broker import Broker, Deadline, error_name
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
from schemas.cluster_metadata import ConfigResourceType

GROUPS_AT_ONCE: Final = 200
"""Groups of one request: a description takes a kilobyte or so, and answers are bounded by what a client receives."""
OFFSETS_AT_ONCE: Final = 50
"""Groups of one OffsetFetch, which may have thousands of partitions each."""
RESOURCES_AT_ONCE: Final = 500

OFFSET_FETCH_VERSION_MIN: Final = 8
"""From here one request asks for several groups."""
OFFSET_FETCH_VERSION_MAX: Final = 9
"""From 10 topics go by id, and those which were deleted and have offsets still are left out."""
NO_LEADER_EPOCH: Final = -1
MEMBER_OF_CLASSIC_PROTOCOL: Final = 0
DEAD: Final = "Dead"
"""What DescribeGroups before version 6 says of a group that is not there."""

TRY_AGAIN: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
GROUP_ID_NOT_FOUND: Final = 69
OLD_BROKER: Final = "OLD_BROKER"
"""Code of the BrokerError of a request which the broker does not know."""

CLASSIC: Final = "CLASSIC"
CONSUMER: Final = "CONSUMER"
SHARE: Final = "SHARE"
STREAMS: Final = "STREAMS"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in an answer's place. `name` is Kafka's constant, GROUP_AUTHORIZATION_FAILED say."""

    code: int
    name: str

    @classmethod
    def of(cls, code: int) -> "Refusal":
        """By Kafka's error code."""
        return cls(code, error_name(code))


UNANSWERED: Final = Refusal(-1, "UNANSWERED")
"""Of what a response leaves out."""
INVALID_REQUEST: Final = 42
UNINITIALIZED: Final = "uninitialized"
"""In the message of ReadShareGroupState's INVALID_REQUEST of a share partition without a state."""
NEGATIVE_EPOCH: Final = Refusal(-2, "LEADER_EPOCH_NOT_KNOWN")
"""The share coordinator reads no state without a leader epoch, and did not tell its own: Kafka 4.4 refuses -1."""
UNSUPPORTED: Final = Refusal(35, "UNSUPPORTED_VERSION")
"""What is said of a question which the broker does not know."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster's metadata has it now."""

    topic: str
    topic_id: str
    """22 characters of URL-safe base64."""
    partition_count: int


@dataclass(frozen=True, slots=True)
class Config:
    """A config as it is in force. `value` None: a secret, or not set."""

    resource_type: str
    """GROUP, TOPIC or BROKER."""
    resource_name: str
    name: str
    value: str | None
    source: str
    """Where the value comes from: a name of `CONFIG_SOURCES`."""


CONFIG_SOURCES: Final[Mapping[int, str]] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    8: "GROUP_CONFIG",
}
"""DescribeConfigsResponse.ConfigSource."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A line of the list of groups."""

    group_id: str
    group_type: str
    """CLASSIC CONSUMER SHARE STREAMS; empty where a broker before 4.0 does not tell."""
    protocol_type: str
    state: str


class AssignedPartition(NamedTuple):
    """A partition or task which a member has: by the names that silver.member_assignments uses."""

    topic_id: str | None
    topic: str
    """Subtopology of a streams group, connector of Connect."""
    partition: int
    task_type: str | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. What its type of groups has not is None."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    member_epoch: int | None = None
    uses_classic_protocol: bool | None = None
    assigned: frozenset[AssignedPartition] = frozenset()
    """What it has, with what it has still to give up."""
    target: frozenset[AssignedPartition] | None = None
    is_unread: bool = False
    """Its assignment is in a form that cannot be read, and `assigned` is empty."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. What its type of groups has not is None."""

    group_id: str
    group_type: str
    state: str
    members: tuple[GroupMember, ...]
    protocol_type: str | None = None
    protocol_name: str | None = None
    """Classic: the voted protocol, empty where members are not in step; others: the assignor."""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    topology_epoch: int | None = None


class CommittedOffset(NamedTuple):
    """A committed offset. `leader_epoch` None for none."""

    offset: int
    leader_epoch: int | None
    metadata: str


class TopicPartitionId(NamedTuple):
    """A partition of a topic, by its id and its name."""

    topic_id: str
    topic: str
    partition: int


class ShareOffset(NamedTuple):
    """A share partition as DescribeShareGroupOffsets tells it. `start_offset` -1: not set yet."""

    start_offset: int
    leader_epoch: int


class StateBatch(NamedTuple):
    """A range of offsets in one delivery state; `last_offset` is inclusive, the state is Kafka's code."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """A share partition as its coordinator keeps it. `start_offset` -1: not set yet."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Admin:
    """Asks a cluster, through a connection that stays the caller's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # --- metadata and configs

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Topics by name, all of them without names; those which are not there, or hidden from us, are left out."""
        return {
            it.name: Topic(it.name, _topic_id(it.topic_id), len(it.partitions))
            for it in self._metadata(names).topics
            if it.error_code == 0
        }

    def refused_topics(self, names: Collection[str]) -> dict[str, Refusal]:
        """Of these topics those of which the cluster tells this principal nothing, and why."""
        return {it.name: Refusal.of(it.error_code) for it in self._metadata(names).topics if it.error_code}

    def broker_ids(self) -> tuple[int, ...]:
        """Nodes of the cluster's brokers."""
        return tuple(sorted(it.node_id for it in self._metadata(()).brokers))

    def configs(
        self, *, group_ids: Collection[str] = (), topics: Collection[str] = (), broker_ids: Collection[int] = ()
    ) -> tuple[list[Config], dict[tuple[str, str], Refusal]]:
        """The configs in force of groups, topics and brokers, and what was refused by (resource type, name).

        Only those configs which silver.configs keeps: brokers' others hold secrets.
        """
        of_cluster = [
            *((ConfigResourceType.GROUP, name) for name in sorted(group_ids)),
            *((ConfigResourceType.TOPIC, name) for name in sorted(topics)),
        ]
        asked: list[tuple[int | None, list[tuple[ConfigResourceType, str]]]]
        asked = [(None, list(part)) for part in _chunks(of_cluster, RESOURCES_AT_ONCE)]
        asked += [(node_id, [(ConfigResourceType.BROKER, str(node_id))]) for node_id in sorted(broker_ids)]
        found: list[Config] = []
        refused: dict[tuple[str, str], Refusal] = {}
        resource = DescribeConfigsRequest.DescribeConfigsResource
        for node_id, resources in asked:
            request = DescribeConfigsRequest(
                resources=[
                    resource(resource_type=int(kind), resource_name=name, configuration_keys=None)
                    for kind, name in resources
                ],
                include_synonyms=False,
                include_documentation=False,
                min_version=1,
            )
            for result in self._broker.send(request, node_id).results:
                kind = ConfigResourceType(result.resource_type).name
                if result.error_code:
                    refused[kind, result.resource_name] = Refusal.of(result.error_code)
                    continue
                found += (
                    Config(
                        kind,
                        result.resource_name,
                        it.name,
                        None if it.is_sensitive else it.value,
                        CONFIG_SOURCES.get(it.config_source, "UNKNOWN"),
                    )
                    for it in result.configs
                    if is_kept_config(it.name)
                )
        return found, refused

    def configured_groups(self) -> tuple[str, ...] | Refusal:
        """Groups that have configs of their own; a Refusal where the broker does not know the question (before 4.1)."""
        request = ListConfigResourcesRequest(resource_types=[int(ConfigResourceType.GROUP)], min_version=1)
        try:
            response = self._broker.send(request)
        except BrokerError as error:
            if error.code != OLD_BROKER:
                raise
            return UNSUPPORTED
        if response.error_code:
            return Refusal.of(response.error_code)
        return tuple(sorted(it.resource_name for it in response.config_resources))

    # --- groups

    def list_groups(self) -> dict[str, ListedGroup]:
        """All groups of every type and state, which this principal may describe. Raises BrokerError."""
        groups: dict[str, ListedGroup] = {}
        for node_id in self.broker_ids():
            response = self._broker.send(ListGroupsRequest(min_version=3), node_id, error_code=lambda it: it.error_code)
            if response.error_code:
                name = error_name(response.error_code)
                raise BrokerError(f"broker {node_id} does not list its groups: {name}", code=name)
            for it in response.groups:
                groups[it.group_id] = ListedGroup(
                    it.group_id, (it.group_type or "").upper(), it.protocol_type or "", it.group_state or ""
                )
        return groups

    def describe_groups(self, groups: Mapping[str, str]) -> dict[str, GroupDescription | Refusal]:
        """Groups by id, given with the type which the list told of each; one that changed its type since is looked for
        under the others. A group which is not there is refused as GROUP_ID_NOT_FOUND."""
        described: dict[str, GroupDescription | Refusal] = {}
        for group_type, question in DESCRIPTIONS.items():
            of_type = [name for name, its_type in groups.items() if (its_type or CLASSIC) == group_type]
            told = self._answers(question, of_type)
            described.update(told)
        for group_type, question in DESCRIPTIONS.items():
            lost = [
                name
                for name, its_type in groups.items()
                if (its_type or CLASSIC) != group_type and _is_lost(described[name])
            ]
            found = self._answers(question, lost)
            described.update((name, answer) for name, answer in found.items() if isinstance(answer, GroupDescription))
        return described

    def committed_offsets(
        self, group_ids: Collection[str]
    ) -> dict[str, dict[tuple[str, int], CommittedOffset] | Refusal]:
        """Committed offsets by (topic, partition), by group. Those of topics which this principal may not describe are
        not among them: `refused_topics` tells which these are."""
        return self._answers(COMMITTED_OFFSETS, group_ids)

    def share_offsets(
        self, group_ids: Collection[str]
    ) -> dict[str, dict[TopicPartitionId, ShareOffset | Refusal] | Refusal]:
        """Start offsets of all share partitions which share groups read, by group."""
        return self._answers(SHARE_OFFSETS, group_ids)

    def share_states(
        self, keys: Collection[SharePartitionKey], leader_epochs: Mapping[SharePartitionKey, int] | None = None
    ) -> dict[SharePartitionKey, ShareState | Refusal]:
        """What the share coordinator keeps of share partitions. It needs ClusterAction on the cluster.

        `leader_epochs`: what the coordinator itself told of them (`share_offsets`), never another one; -1 is sent where
        there is none.
        """
        return self._answers(_share_states(leader_epochs or {}), keys)

    # --- how

    def _metadata(self, names: Collection[str] | None) -> Any:
        topic = MetadataRequest.MetadataRequestTopic
        asked = None if names is None else [topic(name=name) for name in sorted(names)]
        return self._broker.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=10))

    def _answers(self, question: "_Question[Item, Answer]", items: Collection[Item]) -> dict[Item, Answer | Refusal]:
        """Ask each item's coordinator, those which are not ready again. Raises BrokerError when the time is up."""
        answers: dict[Item, Answer | Refusal] = {}
        if not items:
            return answers
        count = self._partition_count(question.topic)
        deadline = Deadline(self._broker.timeout_ms)
        waiting = list(items)
        while waiting:
            by_leader: dict[int, list[Item]] = defaultdict(list)
            for item in waiting:
                partition = question.partition_of(item, count)
                by_leader[self._broker.leader(question.topic, partition, deadline=deadline).node_id].append(item)
            waiting = []
            for node_id, of_leader in by_leader.items():
                for part in question.parts(of_leader):
                    told = self._ask(question, part, node_id)
                    waiting += (item for item, answer in told.items() if _is_not_ready(answer))
                    answers |= told
            if waiting and not deadline.back_off():
                refusal = answers[waiting[0]]
                assert isinstance(refusal, Refusal)
                raise BrokerError(
                    f"{len(waiting)} of {len(items)} questions to coordinators are not answered within "
                    f"{self._broker.timeout_ms} ms ({refusal.name}): they may load {question.topic} still; try later",
                    code=refusal.name,
                )
            if waiting:
                self._broker.forget_leaders(question.topic)
        return answers

    def _ask(
        self, question: "_Question[Item, Answer]", part: Sequence[Item], node_id: int
    ) -> dict[Item, Answer | Refusal]:
        try:
            response = self._broker.send(question.request(part), node_id)
        except BrokerError as error:
            if error.code != OLD_BROKER:
                raise
            return dict.fromkeys(part, UNSUPPORTED)
        told = dict(question.read(part, response))
        return {item: told.get(item, UNANSWERED) for item in part}

    def _partition_count(self, topic: str) -> int:
        found = self._broker.topics([topic])
        if topic not in found:
            raise BrokerError(f"there is no topic {topic}: nobody used its coordinators yet", code="UNKNOWN_TOPIC")
        return found[topic].partition_count


def _topic_id(topic_id: Any) -> str:
    """kafka-python's uuid as Kafka prints it."""
    return uuid_text(topic_id.bytes)


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _is_not_ready(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code in TRY_AGAIN


def _is_lost(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code == GROUP_ID_NOT_FOUND


# --- questions to coordinators


@dataclass(frozen=True, slots=True)
class _Question(Generic[Item, Answer]):
    """What coordinators are asked of groups, or of share partitions."""

    topic: str
    """The log whose leaders answer."""
    partition_of: Callable[[Item, int], int]
    """Partition of it which an item has, given their number."""
    parts: Callable[[Sequence[Item]], Iterator[Sequence[Item]]]
    """Items which one request asks of."""
    request: Callable[[Sequence[Item]], Any]
    read: Callable[[Sequence[Item], Any], Iterator[tuple[Item, Answer | Refusal]]]
    """The answers in a response to them."""


def _of_groups(
    request: Callable[[Sequence[str]], Any],
    read: Callable[[Any], Iterator[tuple[str, Answer | Refusal]]],
    at_once: int = GROUPS_AT_ONCE,
) -> _Question[str, Answer]:
    return _Question(
        consumer_offsets.TOPIC,
        group_partition,
        lambda items: _chunks(items, at_once),
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
                    CLASSIC,
                    it.group_state,
                    members,
                    protocol_type=it.protocol_type,
                    protocol_name=it.protocol_data,
                ),
            )


def _classic_member(protocol_type: str, member: Any) -> GroupMember:
    # as silver reads them, as far as they go
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
                    topology_epoch=it.topology.epoch if group_type == STREAMS and it.topology else None,
                ),
            )


def _consumer_member(member: Struct) -> GroupMember:
    known = member.member_type >= MEMBER_OF_CLASSIC_PROTOCOL
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        uses_classic_protocol=member.member_type == MEMBER_OF_CLASSIC_PROTOCOL if known else None,
        assigned=_topic_partitions(member.assignment),
        target=_topic_partitions(member.target_assignment),
    )


def _share_member(member: Struct) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        assigned=_topic_partitions(member.assignment),
    )


def _streams_member(member: Struct) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        assigned=_tasks(member.assignment),
        target=_tasks(member.target_assignment),
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


DESCRIPTIONS: Final[Mapping[str, _Question[str, GroupDescription]]] = {
    CLASSIC: _of_groups(
        lambda part: DescribeGroupsRequest(groups=list(part), include_authorized_operations=False, min_version=3),
        _classic_groups,
    ),
    CONSUMER: _of_groups(
        lambda part: ApiRequest(CONSUMER_GROUP_DESCRIBE, group_ids=tuple(part)),
        lambda response: _described(response, CONSUMER, _consumer_member),
    ),
    SHARE: _of_groups(
        lambda part: ApiRequest(SHARE_GROUP_DESCRIBE, group_ids=tuple(part)),
        lambda response: _described(response, SHARE, _share_member),
    ),
    STREAMS: _of_groups(
        lambda part: ApiRequest(STREAMS_GROUP_DESCRIBE, group_ids=tuple(part)),
        lambda response: _described(response, STREAMS, _streams_member),
    ),
}
"""By type of groups."""


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
            yield (
                group.group_id,
                {
                    (topic.name, it.partition_index): CommittedOffset(
                        it.committed_offset,
                        None if it.committed_leader_epoch == NO_LEADER_EPOCH else it.committed_leader_epoch,
                        it.metadata or "",
                    )
                    for topic in group.topics
                    for it in topic.partitions
                    if not it.error_code and it.committed_offset >= 0
                },
            )


COMMITTED_OFFSETS: Final = _of_groups(_offset_fetch, _fetched_offsets, OFFSETS_AT_ONCE)


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
        not_ready = next((answer for answer in offsets.values() if _is_not_ready(answer)), None)
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
                    READ_STATE_PARTITION,
                    partition=key.partition,
                    leader_epoch=leader_epochs.get(key, NO_LEADER_EPOCH),
                )
                for key in of_topic
            ),
        )
        for topic_id, of_topic in by_topic
    ]
    return ApiRequest(READ_SHARE_GROUP_STATE, group_id=keys[0].group_id, topics=tuple(topics))


def _read_states_told(
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


def _parts_of_group(keys: Sequence[SharePartitionKey]) -> Iterator[Sequence[SharePartitionKey]]:
    """A request names one group."""
    for _, of_group in groupby(sorted(keys), key=lambda key: key.group_id):
        yield from _chunks(list(of_group), RESOURCES_AT_ONCE)


def _share_states(
    leader_epochs: Mapping[SharePartitionKey, int],
) -> _Question[SharePartitionKey, ShareState]:
    return _Question(
        share_group_state.TOPIC,
        share_partition_partition,
        _parts_of_group,
        partial(_read_states, leader_epochs),
        partial(_read_states_told, leader_epochs),
    )
