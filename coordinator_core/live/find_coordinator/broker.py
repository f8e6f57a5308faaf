"""A broker's response to FindCoordinator (KafkaApis.handleFindCoordinatorRequest and getCoordinator, 4.3.1)."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from coordinator_core.bytes.codec import uuid_text
from coordinator_core.errors import CoreError, LookupKeyError
from coordinator_core.live.find_coordinator.internal_topics import InternalTopicsConfig, creatable_topic
from coordinator_core.replay.lookup import (
    INT32_MAX,
    INT32_MIN,
    SharePartitionKey,
    group_partition,
    share_partition_partition,
    transactional_id_partition,
)
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.error_codes import ErrorCode
from schemas.share_group_state import TOPIC as SHARE_STATE_TOPIC
from schemas.transaction_state import TOPIC as TRANSACTION_TOPIC

SHARE_FROM_VERSION: Final = 6
"""Requests may ask for share coordinators from this version on (KIP-932)."""
NO_NODE_ID: Final = -1
UUID_CHARACTERS: Final = 22

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that String.trim removes."""
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class CoordinatorType(IntEnum):
    """`key_type` of the request (FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    """The key is a group id."""
    TRANSACTION = 1
    """The key is a transactional id."""
    SHARE = 2
    """The key is `group:topicId:partition`."""


class Node(NamedTuple):
    """A broker's address for clients."""

    node_id: int
    host: str
    port: int


NO_NODE: Final = Node(NO_NODE_ID, "", -1)


@dataclass(frozen=True, slots=True)
class ClusterView:
    nodes: Mapping[int, Node] = field(default_factory=dict)
    """Live brokers."""
    leaders: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """Topic -> leader of each partition, None without a leader. A missing topic does not exist."""


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """Before version 4 there is a single key."""

    key_type: int
    keys: tuple[str, ...]
    api_version: int = 6


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a key, or an error (then `node` is NO_NODE)."""

    key: str
    node: Node
    error_code: ErrorCode = ErrorCode.NONE


class Found(NamedTuple):
    """The response, with one coordinator for each key in order, and the topics to create first."""

    coordinators: tuple[Coordinator, ...]
    missing_topics: tuple[str, ...]


def find_coordinators(view: ClusterView, request: FindCoordinatorRequest, config: InternalTopicsConfig) -> Found:
    """Answer a request. Keys of a topic that does not exist yet are answered with COORDINATOR_NOT_AVAILABLE."""
    coordinators: list[Coordinator] = []
    missing: dict[str, None] = {}
    for key in request.keys:
        try:
            topic, partition = _partition_of(view, request, key, config)
        except CoreError:
            coordinators.append(Coordinator(key, NO_NODE, ErrorCode.INVALID_REQUEST))
            continue
        if topic not in view.leaders:
            missing[topic] = None
        coordinators.append(_leader(view, key, topic, partition))
    return Found(tuple(coordinators), tuple(missing))


def _partition_of(
    view: ClusterView, request: FindCoordinatorRequest, key: str, config: InternalTopicsConfig
) -> tuple[str, int]:
    """Topic and partition of a key; raises CoreError for an invalid key or type."""
    if request.key_type == CoordinatorType.GROUP:
        return OFFSETS_TOPIC, group_partition(key, _partition_count(view, OFFSETS_TOPIC, config))
    if request.key_type == CoordinatorType.TRANSACTION:
        return TRANSACTION_TOPIC, transactional_id_partition(key, _partition_count(view, TRANSACTION_TOPIC, config))
    if request.key_type != CoordinatorType.SHARE or request.api_version < SHARE_FROM_VERSION:
        raise LookupKeyError(f"no coordinators of type {request.key_type} in version {request.api_version}")
    count = _partition_count(view, SHARE_STATE_TOPIC, config)
    return SHARE_STATE_TOPIC, share_partition_partition(share_partition_key(key), count)


def share_partition_key(text: str) -> SharePartitionKey:
    """Parse `group:topicId:partition` like a broker (SharePartitionKey.getInstance).

    Trailing colons are ignored, and the partition may have a sign: Java splits and parses numbers like that. Padding of
    the topic id is ignored, and so are bits beyond its 128th. Raises LookupKeyError.
    """
    tokens = text.rstrip(":").split(":")
    if len(tokens) < 3:
        raise LookupKeyError("a share partition key is group:topicId:partition")
    *group, topic_id, digits = tokens
    group_id = ":".join(group)
    if not group_id.strip(_JAVA_BLANKS):
        raise LookupKeyError("the group id of a share partition key is blank")
    if _TOPIC_ID.fullmatch(topic_id) is None:
        raise LookupKeyError("the middle part of a share partition key is a topic id")
    if _NUMBER.fullmatch(digits) is None or not INT32_MIN <= int(digits) <= INT32_MAX:
        raise LookupKeyError("the last part of a share partition key is a partition number")
    topic = uuid_text(base64.urlsafe_b64decode(f"{topic_id[:UUID_CHARACTERS]}=="))
    return SharePartitionKey(group_id, topic, int(digits))


def _partition_count(view: ClusterView, topic: str, config: InternalTopicsConfig) -> int:
    """The partition count of an existing topic, otherwise the one with which it will be created."""
    leaders = view.leaders.get(topic)
    return creatable_topic(topic, config).partition_count if leaders is None else len(leaders)


def _leader(view: ClusterView, key: str, topic: str, partition: int) -> Coordinator:
    leaders = view.leaders.get(topic, ())
    leader = leaders[partition] if partition < len(leaders) else None
    node = None if leader is None else view.nodes.get(leader)
    if node is None:
        return Coordinator(key, NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key, node)
