"""What clients write into the bytes fields of group records: subscriptions, assignments and assignors' user data.

Consumers: ConsumerProtocol, StickyAssignor, CooperativeStickyAssignor. Connect workers: ConnectProtocol and
IncrementalCooperativeConnectProtocol. Streams (protocol "stream") has its own format in the user data: of an assignment
(AssignmentInfo) only the time of the next rebalance is read, at its end; the rest is opaque here.

All decoders return frozen dataclasses and raise only DecodeError. A version above the highest known one is read as the
highest, as Kafka's readers do: later versions only append fields. A negative version is an error.

`read_subscription`, `read_assignment` and `read_connect` read the bytes in a log as far as possible. Brokers store
these bytes unread, many clients write a version without the fields of that version, and where the coordinator itself
reads them (ClassicGroup.computeSubscribedTopics) it assumes version 0 whatever the bytes say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from coordinator_core.bytes.codec import Buffer, Struct, decode, encode, make, make_from
from coordinator_core.errors import BufferUnderflow, DecodeError, UnknownValueVersion
from schemas import wire
from schemas.client_protocols import (
    CONNECT_PROTOCOL_ASSIGNMENT,
    CONNECT_PROTOCOL_METADATA,
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    COOPERATIVE_STICKY_ASSIGNOR_USER_DATA,
    STICKY_ASSIGNOR_USER_DATA,
    TOPIC_ASSIGNMENT,
    TOPIC_PARTITION,
)

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""((topic, (partition, ...)), ...), in the order of the bytes."""

ConnectorTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""((connector, (task, ...)), ...); task -1 is the connector itself."""

GENERATION_NONE: Final = -1


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """ConsumerProtocolSubscription. `version` is the one in the bytes, even if it is above 3."""

    version: int
    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: TopicPartitions = ()
    """From version 1: the partitions that the member owned when it joined."""
    generation_id: int = GENERATION_NONE
    """From version 2: the generation in which it owned them."""
    rack_id: str | None = None
    """From version 3."""


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """ConsumerProtocolAssignment."""

    version: int
    assigned_partitions: TopicPartitions = ()
    user_data: bytes | None = None


class StickyUserData(msgspec.Struct, frozen=True, gc=False):
    """StickyAssignorUserData: a member's last assignment. `generation` is None in version 0."""

    previous_assignment: TopicPartitions = ()
    generation: int | None = None


class ConnectAssignment(msgspec.Struct, frozen=True, gc=False):
    """ConnectProtocolAssignment. In version 0 (eager) `revoked` is empty and `delay_ms` 0."""

    version: int
    error: int = 0
    leader: str = ""
    leader_url: str = ""
    config_offset: int = 0
    assigned: ConnectorTasks = ()
    revoked: ConnectorTasks = ()
    delay_ms: int = 0


class ConnectMetadata(msgspec.Struct, frozen=True, gc=False):
    """ConnectProtocolMetadata. Versions: 0 eager, 1 compatible, 2 sessioned."""

    version: int
    url: str = ""
    config_offset: int = 0
    allocation: ConnectAssignment | None = None
    """From version 1: the connectors and tasks that the worker runs now; None if there are none."""


# --- consumers ---


def decode_subscription(data: Buffer) -> Subscription:
    """ConsumerProtocol.deserializeSubscription."""
    version, fields = _decode_versioned(CONSUMER_PROTOCOL_SUBSCRIPTION, data)
    return Subscription(
        version,
        fields.topics,
        fields.user_data,
        _pairs(fields.owned_partitions, "topic", "partitions"),
        fields.generation_id,
        fields.rack_id,
    )


def encode_subscription(subscription: Subscription) -> bytes:
    """ConsumerProtocol.serializeSubscription, in the subscription's version (0..3)."""
    owned = _structs(TOPIC_PARTITION, subscription.owned_partitions)
    return _encode_versioned(CONSUMER_PROTOCOL_SUBSCRIPTION, subscription, owned_partitions=owned)


def decode_assignment(data: Buffer) -> Assignment | None:
    """ConsumerProtocol.deserializeAssignment. None if there are no bytes: the leader left the member out."""
    if not data:
        return None
    version, fields = _decode_versioned(CONSUMER_PROTOCOL_ASSIGNMENT, data)
    return Assignment(version, _pairs(fields.assigned_partitions, "topic", "partitions"), fields.user_data)


def encode_assignment(assignment: Assignment) -> bytes:
    """ConsumerProtocol.serializeAssignment, in the assignment's version (0..3)."""
    assigned = _structs(TOPIC_PARTITION, assignment.assigned_partitions)
    return _encode_versioned(CONSUMER_PROTOCOL_ASSIGNMENT, assignment, assigned_partitions=assigned)


def decode_sticky_user_data(data: Buffer) -> StickyUserData:
    """User data of the assignor "sticky": version 1, otherwise version 0, since the bytes do not say which.

    Kafka's assignor treats other bytes as an empty assignment; here they are a DecodeError.
    """
    try:
        fields = decode(STICKY_ASSIGNOR_USER_DATA, data, 1)
    except DecodeError:
        fields = decode(STICKY_ASSIGNOR_USER_DATA, data, 0)
        return StickyUserData(_pairs(fields.previous_assignment, "topic", "partitions"))
    return StickyUserData(_pairs(fields.previous_assignment, "topic", "partitions"), fields.generation)


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """Version 1, or version 0 if there is no generation."""
    previous, generation = _structs(TOPIC_ASSIGNMENT, user_data.previous_assignment), user_data.generation
    said = GENERATION_NONE if generation is None else generation
    fields = make(STICKY_ASSIGNOR_USER_DATA, previous_assignment=previous, generation=said)
    return encode(STICKY_ASSIGNOR_USER_DATA, fields, int(generation is not None))


def decode_cooperative_sticky_user_data(data: Buffer) -> int:
    """User data of the assignor "cooperative-sticky": the generation of the owned partitions."""
    generation: int = decode(COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, data, 0).generation
    return generation


def encode_cooperative_sticky_user_data(generation: int) -> bytes:
    """The inverse of `decode_cooperative_sticky_user_data`."""
    return encode(
        COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, make(COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, generation=generation), 0
    )


# --- Connect ---


def decode_connect_metadata(data: Buffer) -> ConnectMetadata:
    """IncrementalCooperativeConnectProtocol.deserializeMetadata, or ConnectProtocol's in version 0."""
    version, fields = _decode_versioned(CONNECT_PROTOCOL_METADATA, data)
    allocation = None if fields.allocation is None else decode_connect_assignment(fields.allocation)
    return ConnectMetadata(version, fields.url, fields.config_offset, allocation)


def decode_connect_assignment(data: Buffer) -> ConnectAssignment | None:
    """deserializeAssignment of either protocol; fields missing at the end have their default. None if there are no
    bytes."""
    if not data:
        return None
    version, fields = _decode_versioned(CONNECT_PROTOCOL_ASSIGNMENT, data)
    return ConnectAssignment(
        version,
        fields.error,
        fields.leader,
        fields.leader_url,
        fields.config_offset,
        _pairs(fields.assignment, "connector", "tasks"),
        _pairs(fields.revoked, "connector", "tasks"),
        fields.delay,
    )


# --- as far as possible ---


class Oddity(NamedTuple):
    """Why bytes do not match their protocol. `text` is the same for all bytes with the same fault."""

    is_unread: bool
    """Not even the topics or partitions can be read."""
    text: str


class SubscriptionRead(NamedTuple):
    """`subscription` is None if its topics cannot be read; other unreadable fields have their default."""

    subscription: Subscription | None
    oddity: Oddity | None = None


class AssignmentRead(NamedTuple):
    """The content of a member's assignment: topics and partitions, or connectors and tasks; None if it cannot be
    read."""

    assigned: TopicPartitions | None
    oddity: Oddity | None = None


class ConnectRound(NamedTuple):
    """What the assignments of one generation of Connect workers have in common."""

    config_offset: int
    """The offset of the config topic at which the leader computed the assignment."""
    revoked_count: int
    """The number of connectors and tasks that workers had to revoke."""
    delay_ms: int
    """How long the leader waits for a worker to return before it assigns that worker's connectors and tasks to others
    (KIP-415).
    """
    has_error: bool
    """Whether the leader did not know the newest configs, and assigned nothing."""


def read_subscription(data: Buffer) -> SubscriptionRead:
    """Read a subscription in any version and layout."""
    version, fields, oddity = _read_versioned(CONSUMER_PROTOCOL_SUBSCRIPTION, data)
    if not fields:
        return SubscriptionRead(None, oddity)
    owned_partitions = _pairs(fields.get("owned_partitions"), "topic", "partitions")
    read = Subscription(
        version,
        fields["topics"],
        fields.get("user_data"),
        owned_partitions,
        fields.get("generation_id", GENERATION_NONE),
        fields.get("rack_id"),
    )
    return SubscriptionRead(read, oddity)


def read_assignment(data: Buffer) -> AssignmentRead:
    """Read an assignment in any version and layout. Empty if there are no bytes: the leader left the member out."""
    if not data:
        return AssignmentRead(())
    _, fields, oddity = _read_versioned(CONSUMER_PROTOCOL_ASSIGNMENT, data)
    return AssignmentRead(_pairs(fields["assigned_partitions"], "topic", "partitions") if fields else None, oddity)


def read_connect(assignment: Buffer, metadata: Buffer) -> AssignmentRead:
    """The connectors and tasks that a worker runs after it gets its assignment (WorkerCoordinator.onJoinComplete): in
    version 0 the assigned ones; from version 1 on those that it ran when it joined, according to its metadata, without
    the revoked ones, plus the assigned ones."""
    try:
        given = decode_connect_assignment(assignment)
    except DecodeError as error:
        return AssignmentRead(None, _unread(CONNECT_PROTOCOL_ASSIGNMENT, assignment, error))
    if given is not None and not given.version:
        return AssignmentRead(given.assigned)
    try:
        allocation = decode_connect_metadata(metadata).allocation
    except DecodeError as error:
        return AssignmentRead(None, _unread(CONNECT_PROTOCOL_METADATA, metadata, error))
    running: dict[str, set[int]] = {}
    for connector, tasks in () if allocation is None else allocation.assigned:
        running.setdefault(connector, set()).update(tasks)
    if given is not None:
        for connector, tasks in given.revoked:
            running.get(connector, set()).difference_update(tasks)
        for connector, tasks in given.assigned:
            running.setdefault(connector, set()).update(tasks)
    return AssignmentRead(tuple((connector, tuple(sorted(tasks))) for connector, tasks in running.items() if tasks))


def connect_round(assignments: Iterable[Buffer]) -> ConnectRound | None:
    """The common content of the assignments of one generation; None if none can be read."""
    read = []
    for data in assignments:
        try:
            assignment = decode_connect_assignment(data)
        except DecodeError:
            continue
        if assignment is not None:
            read.append(assignment)
    if not read:
        return None
    return ConnectRound(
        max(it.config_offset for it in read),
        sum(len(tasks) for it in read for _, tasks in it.revoked),
        max(it.delay_ms for it in read),
        any(it.error for it in read),
    )


STREAMS_NEXT_REBALANCE_SINCE: Final = 7
"""The version of AssignmentInfo from which on its last 8 bytes are nextScheduledRebalanceMs."""
_NEVER_MS: Final = (1 << 63) - 1


def next_rebalance_ms(assignments: Iterable[Buffer]) -> int | None:
    """When a member of a Kafka Streams group is to join again, by its leader (KIP-441): the earliest time (epoch ms) in
    the assignments of one generation; None if no member is to, or each at once."""
    times = []
    for data in assignments:
        try:
            assignment = decode_assignment(data)
        except DecodeError:
            continue
        info = (assignment.user_data if assignment is not None else None) or b""
        if len(info) >= 16 and int.from_bytes(info[:4], signed=True) >= STREAMS_NEXT_REBALANCE_SINCE:
            times.append(int.from_bytes(info[-8:], signed=True))
    return min((time for time in times if 0 < time < _NEVER_MS), default=None)


def _read_versioned(message: wire.Message, data: Buffer) -> tuple[int, Mapping[str, Any], Oddity | None]:
    """The version in the bytes, the fields that can be read, and the oddity. There are no fields if not even the first
    one can be read."""
    if len(data) < 2:
        return 0, {}, Oddity(True, f"{message.name} of {len(data)} bytes: too short for a version")
    said = int.from_bytes(data[:2], "big", signed=True)
    versions = _versions(message)
    version = max(versions[0], min(said, versions[-1]))
    names = [field.name for field in message.fields if version in wire.version_range(field.versions, versions[-1])]
    failed: DecodeError | None = None
    for count in range(len(names), 0, -1):
        try:
            first = message if count == len(names) else _first_fields(message, count)
            struct = decode(first, data, version, position=2)
        except DecodeError as error:
            failed = failed or error
            continue
        fields = {name: getattr(struct, name) for name in names[:count]}
        if failed is None and said >= versions[0]:
            return said, fields, None
        missing = f" without {', '.join(names[count:])}" if failed else ""
        return said, fields, Oddity(False, f"{message.name} of version {said}{missing}")
    assert failed is not None, "every message has fields"
    return said, {}, _unread(message, data, failed)


def _unread(message: wire.Message, data: Buffer, error: DecodeError) -> Oddity:
    version = f" of version {int.from_bytes(data[:2], 'big', signed=True)}" if len(data) >= 2 else ""
    return Oddity(True, f"{message.name}{version} cannot be read ({error.code})")


@cache
def _first_fields(message: wire.Message, count: int) -> wire.Message:
    return replace(message, fields=message.fields[:count])


# --- shared ---


def _decode_versioned(message: wire.Message, data: Buffer) -> tuple[int, Struct]:
    if len(data) < 2:
        raise BufferUnderflow(f"{message.name} is too short for a version", byte_position=len(data))
    version = int.from_bytes(data[:2], "big", signed=True)
    versions = _versions(message)
    if version < versions[0]:
        raise UnknownValueVersion(f"{message.name} has no version {version}", byte_position=0)
    return version, decode(message, data, min(version, versions[-1]), position=2)


_versions: Final = cache(wire.message_versions)


Versioned = Subscription | Assignment | ConnectAssignment | ConnectMetadata


def _encode_versioned(message: wire.Message, source: Versioned, **given: Any) -> bytes:
    fields = make_from(message, source, **given)
    return source.version.to_bytes(2, "big", signed=True) + encode(message, fields, source.version)


def _pairs(structs: tuple[Struct, ...] | None, name: str, numbers: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(map(_fields(name, numbers), structs or ()))


_fields: Final = cache(attrgetter)


def _structs(declaration: wire.Struct, pairs: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[Struct, ...]:
    name, numbers = (field.name for field in declaration.fields)
    return tuple(make(declaration, **{name: pair[0], numbers: pair[1]}) for pair in pairs)
