"""What clients put into the bytes fields of group records: subscriptions, assignments and assignors' user
data.

Consumers: ConsumerProtocol, StickyAssignor, CooperativeStickyAssignor. Connect workers: ConnectProtocol and
IncrementalCooperativeConnectProtocol. Streams (protocol "stream") keeps its own format in the user data:
opaque here.

All decoders give frozen dataclasses and raise only DecodeError. A version above the highest known one is
read as the highest, as Kafka's readers do: later versions only append. A negative version is an error.
"""

from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

from coordinator_core.codec import Buffer, Struct, decode, encode, make
from coordinator_core.errors import BufferUnderflow, DecodeError, UnknownValueVersion
from coordinator_core.frozen import quickly_made
from schemas import wire
from schemas.client_protocols import (
    CONNECT_PROTOCOL_ASSIGNMENT,
    CONNECT_PROTOCOL_METADATA,
    CONNECTOR_ASSIGNMENT,
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
CONNECTOR_TASK: Final = -1


@quickly_made
@dataclass(frozen=True, slots=True)
class Subscription:
    """ConsumerProtocolSubscription. `version` is the one in the bytes, also where it is above 3."""

    version: int
    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: TopicPartitions = ()
    """From version 1: what the member owned when it joined."""
    generation_id: int = GENERATION_NONE
    """From version 2: the generation it owned that in."""
    rack_id: str | None = None
    """From version 3."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Assignment:
    """ConsumerProtocolAssignment."""

    version: int
    assigned_partitions: TopicPartitions = ()
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class StickyUserData:
    """StickyAssignorUserData: a member's last assignment. `generation` is None where version 0 wrote it."""

    previous_assignment: TopicPartitions = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectAssignment:
    """ConnectProtocolAssignment. In version 0 (eager) `revoked` is empty and `delay_ms` 0."""

    version: int
    error: int = 0
    leader: str = ""
    leader_url: str = ""
    config_offset: int = 0
    assigned: ConnectorTasks = ()
    revoked: ConnectorTasks = ()
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConnectMetadata:
    """ConnectProtocolMetadata. Versions: 0 eager, 1 compatible, 2 sessioned."""

    version: int
    url: str = ""
    config_offset: int = 0
    allocation: ConnectAssignment | None = None
    """From version 1: what the worker runs now; None for nothing."""


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
    return _encode_versioned(
        CONSUMER_PROTOCOL_SUBSCRIPTION,
        subscription.version,
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned_partitions=_structs(TOPIC_PARTITION, subscription.owned_partitions),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )


def decode_assignment(data: Buffer) -> Assignment | None:
    """ConsumerProtocol.deserializeAssignment. None for no bytes at all: the leader left the member out."""
    if not data:
        return None
    version, fields = _decode_versioned(CONSUMER_PROTOCOL_ASSIGNMENT, data)
    return Assignment(version, _pairs(fields.assigned_partitions, "topic", "partitions"), fields.user_data)


def encode_assignment(assignment: Assignment) -> bytes:
    """ConsumerProtocol.serializeAssignment, in the assignment's version (0..3)."""
    return _encode_versioned(
        CONSUMER_PROTOCOL_ASSIGNMENT,
        assignment.version,
        assigned_partitions=_structs(TOPIC_PARTITION, assignment.assigned_partitions),
        user_data=assignment.user_data,
    )


def decode_sticky_user_data(data: Buffer) -> StickyUserData:
    """User data of the assignor "sticky": version 1, else version 0, for the bytes do not say which.

    Kafka's assignor takes what is neither for an empty assignment; here it is a DecodeError.
    """
    try:
        fields = decode(STICKY_ASSIGNOR_USER_DATA, data, 1)
    except DecodeError:
        fields = decode(STICKY_ASSIGNOR_USER_DATA, data, 0)
        return StickyUserData(_pairs(fields.previous_assignment, "topic", "partitions"))
    return StickyUserData(_pairs(fields.previous_assignment, "topic", "partitions"), fields.generation)


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """Version 1, or version 0 where there is no generation."""
    previous_assignment = _structs(TOPIC_ASSIGNMENT, user_data.previous_assignment)
    if user_data.generation is None:
        return encode(
            STICKY_ASSIGNOR_USER_DATA, make(STICKY_ASSIGNOR_USER_DATA, previous_assignment=previous_assignment), 0
        )
    fields = make(STICKY_ASSIGNOR_USER_DATA, previous_assignment=previous_assignment, generation=user_data.generation)
    return encode(STICKY_ASSIGNOR_USER_DATA, fields, 1)


def decode_cooperative_sticky_user_data(data: Buffer) -> int:
    """User data of the assignor "cooperative-sticky": the generation of the owned partitions."""
    generation: int = decode(COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, data, 0).generation
    return generation


def encode_cooperative_sticky_user_data(generation: int) -> bytes:
    """The opposite of `decode_cooperative_sticky_user_data`."""
    return encode(
        COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, make(COOPERATIVE_STICKY_ASSIGNOR_USER_DATA, generation=generation), 0
    )


# --- Connect ---


def decode_connect_metadata(data: Buffer) -> ConnectMetadata:
    """IncrementalCooperativeConnectProtocol.deserializeMetadata, or ConnectProtocol's in version 0."""
    version, fields = _decode_versioned(CONNECT_PROTOCOL_METADATA, data)
    allocation = None if fields.allocation is None else decode_connect_assignment(fields.allocation)
    return ConnectMetadata(version, fields.url, fields.config_offset, allocation)


def encode_connect_metadata(metadata: ConnectMetadata) -> bytes:
    """The opposite of `decode_connect_metadata`, in the metadata's version (0..2)."""
    allocation = None if metadata.allocation is None else encode_connect_assignment(metadata.allocation)
    return _encode_versioned(
        CONNECT_PROTOCOL_METADATA,
        metadata.version,
        url=metadata.url,
        config_offset=metadata.config_offset,
        allocation=allocation,
    )


def decode_connect_assignment(data: Buffer) -> ConnectAssignment | None:
    """deserializeAssignment of either protocol; fields missing at the end have their default. None for no
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


def encode_connect_assignment(assignment: ConnectAssignment) -> bytes:
    """The opposite of `decode_connect_assignment`, in the assignment's version (0..2)."""
    return _encode_versioned(
        CONNECT_PROTOCOL_ASSIGNMENT,
        assignment.version,
        error=assignment.error,
        leader=assignment.leader,
        leader_url=assignment.leader_url,
        config_offset=assignment.config_offset,
        assignment=_structs(CONNECTOR_ASSIGNMENT, assignment.assigned),
        revoked=_structs(CONNECTOR_ASSIGNMENT, assignment.revoked) or (() if assignment.version else None),
        delay=assignment.delay_ms,
    )


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


def _encode_versioned(message: wire.Message, version: int, **fields: Any) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(message, make(message, **fields), version)


def _pairs(structs: tuple[Struct, ...] | None, name: str, numbers: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(map(_fields(name, numbers), structs or ()))


_fields: Final = cache(attrgetter)


def _structs(declaration: wire.Struct, pairs: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[Struct, ...]:
    name, numbers = (field.name for field in declaration.fields)
    return tuple(make(declaration, **{name: pair[0], numbers: pair[1]}) for pair in pairs)
