"""One interface to the four group types: what the silver tables need of a group and its members.

The types have no common base class, because Kafka has few common rules for them. The tables do have common columns.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.client_protocols import (
    AssignmentRead,
    ConnectRound,
    Oddity,
    connect_round,
    next_rebalance_ms,
    read_assignment,
    read_connect,
    read_subscription,
)
from coordinator_core.history.rows import NOTHING, Assigned, TopicKey
from coordinator_core.replay.classic.state import ClassicGroup, ClassicMember
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, TaskAssignment, Tasks
from schemas.group_types import GroupType

Member = ClassicMember | ConsumerMember | ShareMember | StreamsMember

CONSUMER_PROTOCOL_TYPE = "consumer"
CONNECT_PROTOCOL_TYPE = "connect"
STREAMS_PROTOCOL: Final = "stream"
"""The assignor of Kafka Streams on the classic protocol."""

EMBEDDED_CACHE_SIZE = 16_384
"""Most members of a group send the same subscription, and keep their assignment from one generation to the next. The
size exceeds the members of the largest groups; with less, each entry would be evicted before it is used again. About 10
MiB."""

TARGET = "TARGET"
CURRENT = "CURRENT"
REVOKING = "REVOKING"


ASSIGNMENT_KINDS: Final = (TARGET, CURRENT, REVOKING)

AssignmentSources = tuple[Any, Any, Any]
"""By kind: the part of a group's state that contains the assignment. Equal sources give equal assignments, None gives
nothing.
"""

NO_SOURCES: Final[AssignmentSources] = (None, None, None)


class MemberFields(NamedTuple):
    """Columns of silver.group_members that come from the member itself. What its type does not have is None."""

    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    rebalance_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    member_epoch: int | None = None
    uses_classic_protocol: bool = False
    process_id: str | None = None


def attributes(fields: MemberFields) -> tuple[object, ...]:
    """Columns of silver.member_attributes: all fields but the epoch."""
    return *fields[:EPOCH], *fields[EPOCH + 1 :]


EPOCH: Final = MemberFields._fields.index("member_epoch")


def group_type(group: Group) -> str:
    """CLASSIC, CONSUMER, SHARE or STREAMS."""
    return _GROUP_TYPES[type(group)]


_GROUP_TYPES: Final[Mapping[type[Group], str]] = {
    ClassicGroup: GroupType.CLASSIC.value,
    ConsumerGroup: GroupType.CONSUMER.value,
    ShareGroup: GroupType.SHARE.value,
    StreamsGroup: GroupType.STREAMS.value,
}


def generation(group: Group) -> int:
    """Generation of a classic group, group epoch of other groups."""
    return group.generation_id if isinstance(group, ClassicGroup) else group.group_epoch


def generations_between(first: int, second: int) -> int:
    """How many generations the second is after the first; negative where it is before it. Kafka adds 1 to a Java int,
    so -2^31 follows 2^31 - 1 (ClassicGroup.initNextGeneration; group epochs likewise)."""
    return (second - first + 2**31) % 2**32 - 2**31


def assignment_epoch(group: Group) -> int | None:
    """Epoch of the target assignment; None for classic groups, which have none."""
    return None if isinstance(group, ClassicGroup) else group.assignment_epoch


def current_state_at(group: Group) -> int | None:
    """When a classic group entered the state in which the record was written: for a generation with members, the end of
    the join phase (ClassicGroup.currentStateTimestamp). None if the log does not have it, and for other groups."""
    if not isinstance(group, ClassicGroup) or group.current_state_timestamp_ms < 0:
        return None
    return group.current_state_timestamp_ms


def metadata_hash(group: Group) -> int | None:
    """Hash of the subscribed topics' metadata; None for classic groups."""
    return None if isinstance(group, ClassicGroup) else group.metadata_hash


def topology_epoch(group: Group) -> int | None:
    return group.topology.epoch if isinstance(group, StreamsGroup) and group.topology is not None else None


def instance_id(member: Member) -> str | None:
    """group.instance.id of a static member."""
    match member:
        case ClassicMember():
            return member.group_instance_id
        case ShareMember():
            return None
        case _:
            return member.instance_id


def server_assignor(member: Member) -> str | None:
    """The server assignor that a member of a consumer group asks for."""
    return member.server_assignor if isinstance(member, ConsumerMember) else None


def member_fields(group: Group, member: Member) -> MemberFields:
    """Columns of a membership row. What the log does not contain is None."""
    match member:
        case ClassicMember():
            return _classic_fields(group, member)
        case ConsumerMember():
            classic = member.classic_member_metadata
            return MemberFields(
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rack_id=member.rack_id,
                subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
                subscribed_regex=member.subscribed_topic_regex or None,
                server_assignor=member.server_assignor,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=classic.session_timeout_ms if classic is not None else None,
                member_epoch=member.member_epoch,
                uses_classic_protocol=classic is not None,
            )
        case ShareMember():
            names, epoch = tuple(sorted(member.subscribed_topic_names)), member.member_epoch
            return MemberFields(None, member.client_id, member.client_host, member.rack_id, names, member_epoch=epoch)
        case StreamsMember():
            return MemberFields(
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rack_id=member.rack_id,
                subscribed_topics=None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                member_epoch=member.member_epoch,
                process_id=member.process_id,
            )


def _classic_fields(group: Group, member: ClassicMember) -> MemberFields:
    is_consumer = isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    topics, rack_id = _topics_and_rack(member.subscription) if is_consumer else (None, None)
    return MemberFields(
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack_id=rack_id,
        subscribed_topics=topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        uses_classic_protocol=True,
    )


def subscription(group: Group, member: Member) -> object:
    """What a member subscribes to, as a comparable value: a change is a SUBSCRIPTION_CHANGED. None if it cannot be
    read, and for members of other protocols: a Connect worker's metadata describe what it runs."""
    match member:
        case ConsumerMember():
            return frozenset(member.subscribed_topic_names), member.subscribed_topic_regex
        case StreamsMember():
            return member.topology_epoch
        case _:
            return topics_of(group, member)


Topics = frozenset[str]


def topics_of(group: Group, member: Member) -> Topics | None:
    """The topics that a member subscribes to; None if the log does not contain them: patterns, other protocols,
    unreadable bytes."""
    match member:
        case ClassicMember():
            is_other = isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER_PROTOCOL_TYPE
            return None if is_other else _subscribed_topics(member.subscription)
        case ConsumerMember():
            return None if member.subscribed_topic_regex else frozenset(member.subscribed_topic_names)
        case ShareMember():
            return frozenset(member.subscribed_topic_names)
        case StreamsMember():
            return None


def subscription_details(old: Member, new: Member) -> dict[str, str]:
    """What a member subscribed to before and after, as JSON: sorted topics, and patterns. Empty for members of streams
    groups, whose topics are in the topology."""
    match old, new:
        case ClassicMember(), ClassicMember():
            before, after = _subscribed_topics(old.subscription), _subscribed_topics(new.subscription)
            return {} if before is None or after is None else _details_of_topics(before, after)
        case ConsumerMember(), ConsumerMember():
            details = _details_of_topics(old.subscribed_topic_names, new.subscribed_topic_names)
            if old.subscribed_topic_regex or new.subscribed_topic_regex:
                details |= {
                    "regex_before": old.subscribed_topic_regex or "",
                    "regex_after": new.subscribed_topic_regex or "",
                }
            return details
        case ShareMember(), ShareMember():
            return _details_of_topics(old.subscribed_topic_names, new.subscribed_topic_names)
        case _:
            return {}


def _details_of_topics(before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    return {TOPICS_BEFORE: json.dumps(sorted(before)), TOPICS_AFTER: json.dumps(sorted(after))}


COMMITTED_BEFORE: Final = "committed_before"
"""Detail of a generation: the group had committed before its first record that the log has."""
TOPICS_BEFORE: Final = "topics_before"
"""Detail of SUBSCRIPTION_CHANGED: the topics that the member subscribed to before."""
TOPICS_AFTER: Final = "topics_after"
"""Detail of SUBSCRIPTION_CHANGED: those that it subscribes to since."""


def is_described(member: Member) -> bool:
    """Whether a record had the member's metadata: in a log whose beginning is missing, others may name it before."""
    return bool(member.client_id or member.client_host)


def description(member: Member) -> object:
    """A member's other attributes, without subscription and epochs, as a comparable value: a change is a
    MEMBER_UPDATED.
    """
    match member:
        case ClassicMember():
            return _description_of_classic(member)
        case ConsumerMember():
            return _description_of_consumer(member)
        case ShareMember():
            return member.rack_id, member.client_id, member.client_host
        case StreamsMember():
            return (
                member.instance_id,
                member.rack_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.process_id,
                member.user_endpoint,
                tuple(sorted(member.client_tags.items())),
            )


_description_of_classic: Final = attrgetter(
    "group_instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms"
)
_description_of_consumer: Final = attrgetter(
    "instance_id",
    "rack_id",
    "client_id",
    "client_host",
    "rebalance_timeout_ms",
    "server_assignor",
    "classic_member_metadata",
)


def describes_itself_otherwise(old: Member, new: Member) -> bool:
    """Whether columns may differ that are part of neither the subscription nor the description. A classic member's rack
    is in the bytes of its subscription."""
    if isinstance(old, ClassicMember) and isinstance(new, ClassicMember):
        return old.subscription != new.subscription and _topics_and_rack(old.subscription) != _topics_and_rack(
            new.subscription
        )
    return type(old) is not type(new)


def odd_bytes(group: ClassicGroup, before: ClassicGroup | None) -> Iterator[tuple[ClassicMember, Oddity]]:
    """What is malformed in members' subscriptions and assignments and was not there before."""
    for member in group.members.values():
        old = None if before is None else before.members.get(member.member_id)
        if old is not None and (old.subscription, old.assignment) == (member.subscription, member.assignment):
            continue
        if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            oddity = embedded_subscription(member.subscription).oddity
            if oddity is not None:
                yield member, oddity
        oddity = embedded_assignment(*_classic_source(group, member)).oddity
        if oddity is not None:
            yield member, oddity


def unread_members(group: Group) -> tuple[str, ...]:
    """Members whose assignments cannot be read, sorted."""
    if not isinstance(group, ClassicGroup):
        return ()
    unread = [
        member.member_id
        for member in group.members.values()
        if embedded_assignment(*_classic_source(group, member)).assigned is None
    ]
    return tuple(sorted(unread))


def connect_round_of(group: Group) -> ConnectRound | None:
    """The values that the assignments of one generation of Connect workers have in common; None for other groups."""
    if not isinstance(group, ClassicGroup) or group.protocol_type != CONNECT_PROTOCOL_TYPE:
        return None
    return connect_round(member.assignment for member in group.members.values())


def next_rebalance_of(group: Group) -> int | None:
    """The time at which a member of a Kafka Streams group on the classic protocol is to join again."""
    if not isinstance(group, ClassicGroup) or group.protocol_name != STREAMS_PROTOCOL:
        return None
    return next_rebalance_ms(member.assignment for member in group.members.values())


def sources_of(group: Group) -> Callable[[Any, str], AssignmentSources]:
    """A function from a group of the same type and a member id to that member's parts of the group state: its target,
    what it owns, and what it has to revoke."""
    return _SOURCES[type(group)]


def _classic_sources(group: ClassicGroup, member_id: str) -> AssignmentSources:
    member = group.members.get(member_id)
    return NO_SOURCES if member is None else (None, _classic_source(group, member), None)


def _classic_source(group: ClassicGroup, member: ClassicMember) -> tuple[str | None, bytes, bytes]:
    """The arguments of `embedded_assignment`. Metadata is passed only for Connect, whose assignments contain only
    changes.
    """
    metadata = member.subscription if group.protocol_type == CONNECT_PROTOCOL_TYPE else b""
    return group.protocol_type, member.assignment, metadata


def _consumer_sources(group: ConsumerGroup, member_id: str) -> AssignmentSources:
    member, target = group.members.get(member_id), group.target_assignment.get(member_id)
    return (target, None, None) if member is None else (target, member.assigned, member.pending_revocation)


def _share_sources(group: ShareGroup, member_id: str) -> AssignmentSources:
    member, target = group.members.get(member_id), group.target_assignment.get(member_id)
    return (target, None, None) if member is None else (target, member.assigned, None)


def _streams_sources(group: StreamsGroup, member_id: str) -> AssignmentSources:
    member, target = group.members.get(member_id), group.target_assignment.get(member_id)
    if member is None:
        return target, None, None
    current = TaskAssignment(_partitions(member.active), member.standby, member.warmup)
    revoking = TaskAssignment(
        _partitions(member.active_pending_revocation),
        member.standby_pending_revocation,
        member.warmup_pending_revocation,
    )
    return target, current, revoking


_SOURCES: Final[Mapping[type[Group], Callable[[Any, str], AssignmentSources]]] = {
    ClassicGroup: _classic_sources,
    ConsumerGroup: _consumer_sources,
    ShareGroup: _share_sources,
    StreamsGroup: _streams_sources,
}


def assigned(source: Any) -> Assigned:
    """The assignment in one of the `AssignmentSources`. Do not modify it."""
    match source:
        case None:
            return NOTHING
        case TaskAssignment():
            return {
                (task_type, subtopology_id): tuple(sorted(partitions))
                for task_type, tasks in (
                    ("ACTIVE", source.active),
                    ("STANDBY", source.standby),
                    ("WARMUP", source.warmup),
                )
                for subtopology_id, partitions in tasks.items()
                if partitions
            }
        case tuple():
            return _classic_assigned(*source)
        case _:
            return {
                topic_id: tuple(partitions) if len(partitions) == 1 else tuple(sorted(partitions))
                for topic_id, partitions in source.items()
                if partitions
            }


def _partitions(tasks: Mapping[str, Mapping[int, int]]) -> Tasks:
    return {subtopology_id: tuple(epochs) for subtopology_id, epochs in tasks.items()}


@lru_cache(EMBEDDED_CACHE_SIZE)
def _classic_assigned(protocol_type: str | None, assignment: bytes, metadata: bytes) -> Assigned:
    """The partitions of an embedded assignment; empty if it cannot be read, which `unread_members` reports."""
    partitions: dict[TopicKey, tuple[int, ...]] = {}
    for topic, some in embedded_assignment(protocol_type, assignment, metadata).assigned or ():
        every = tuple(sorted({*partitions.get(topic, ()), *some})) if topic in partitions or len(some) > 1 else some
        if every:
            partitions[topic] = every
    return partitions


@lru_cache(EMBEDDED_CACHE_SIZE)
def _subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if they cannot be read. Comparing the bytes would not do: they also have
    user data and owned partitions, which change with each join."""
    read = embedded_subscription(subscription).subscription
    return None if read is None else frozenset(read.topics)


@lru_cache(EMBEDDED_CACHE_SIZE)
def _topics_and_rack(subscription: bytes) -> tuple[tuple[str, ...] | None, str | None]:
    """Sorted topics, and rack; None if they cannot be read."""
    read = embedded_subscription(subscription).subscription
    return (None, None) if read is None else (tuple(sorted(read.topics)), read.rack_id)


embedded_subscription: Final = lru_cache(EMBEDDED_CACHE_SIZE)(read_subscription)


@lru_cache(EMBEDDED_CACHE_SIZE)
def embedded_assignment(protocol_type: str | None, data: bytes, metadata: bytes) -> AssignmentRead:
    """Topics and partitions, or connectors and tasks; empty for other protocols. `metadata`: the metadata with which a
    Connect worker joined."""
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        return read_assignment(data)
    if protocol_type == CONNECT_PROTOCOL_TYPE:
        return read_connect(data, metadata)
    return AssignmentRead(())
