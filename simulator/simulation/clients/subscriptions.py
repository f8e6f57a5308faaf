"""What members of a classic group exchange through the coordinator: subscriptions, and the leader's assignment.

Source: ConsumerCoordinator.metadata, onLeaderElected.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from coordinator_core.bytes.client_protocols import (
    Assignment,
    StickyUserData,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_cooperative_sticky_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from coordinator_core.live.assignors import CLIENT_ASSIGNORS
from coordinator_core.live.assignors.client_group import Subscription as MemberSubscription
from coordinator_core.live.assignors.client_group import Topic, TopicPartition, subscription_from_protocol
from coordinator_core.live.classic.messages import JoinGroupResponse, SyncGroupRequestAssignment
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import HashMap
from simulator.simulation.clients.machine import COOPERATIVE
from simulator.simulation.topics import Topics

SUBSCRIPTION_VERSION: Final = 3
STICKY: Final = "sticky"


def by_topic(partitions: Sequence[TopicPartition]) -> TopicPartitions:
    """The partitions by topic, in the order of the first partition of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def subscription_bytes(
    assignor: str,
    topics: Sequence[str],
    assigned: Sequence[TopicPartition],
    generation_id: int,
    sticky_assignment: Sequence[TopicPartition] | None,
    rack_id: str | None = None,
) -> bytes:
    """A member's metadata for one assignor. `sticky_assignment`: the last assignment, which that assignor remembers;
    None if there is none.
    """
    user_data = None
    if assignor == STICKY and sticky_assignment is not None:
        user_data = encode_sticky_user_data(StickyUserData(by_topic(sticky_assignment), generation_id))
    elif assignor == COOPERATIVE:
        user_data = encode_cooperative_sticky_user_data(generation_id)
    return encode_subscription(
        Subscription(SUBSCRIPTION_VERSION, tuple(sorted(topics)), user_data, by_topic(assigned), generation_id, rack_id)
    )


Snapshot = dict[str, tuple[frozenset[str], ...]]
"""Topic -> what a leader compares for each partition: the racks of the replicas, if it has a rack itself."""


def topics_of_group(response: JoinGroupResponse) -> frozenset[str]:
    return frozenset(topic for member in response.members for topic in decode_subscription(member.metadata).topics)


def metadata_snapshot(names: Iterable[str], topics: Topics, now_ms: int, *, has_rack: bool) -> Snapshot:
    """The part of the metadata that a leader compares (ConsumerCoordinator.MetadataSnapshot)."""
    counts = {name: topics.partition_count(name) for name in names}
    return {
        name: (topics.replica_racks(name) if has_rack else ()) or (frozenset(),) * count
        for name, count in counts.items()
        if count
    }


def assign_as_leader(
    response: JoinGroupResponse, topics: Topics, now_ms: int
) -> tuple[SyncGroupRequestAssignment, ...]:
    """Run the chosen assignor over the subscriptions of all members."""
    subscriptions: HashMap[str, MemberSubscription] = HashMap(string_hash_code)
    for member in response.members:
        decoded = decode_subscription(member.metadata)
        subscriptions[member.member_id] = subscription_from_protocol(decoded, member.group_instance_id)
    existing: dict[str, Topic] = {}
    for name in sorted(topics_of_group(response)):
        count = topics.partition_count(name)
        if count:
            existing[name] = Topic(count, tuple(racks - {""} for racks in topics.replica_racks(name)))
    assert response.protocol_name is not None
    assignment = CLIENT_ASSIGNORS[response.protocol_name](existing, dict(subscriptions.items()))
    return tuple(
        SyncGroupRequestAssignment(member_id, encode_assignment(Assignment(SUBSCRIPTION_VERSION, by_topic(partitions))))
        for member_id, partitions in assignment.items()
    )


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that SyncGroup assigns to a member, sorted."""
    decoded = decode_assignment(data)
    pairs = () if decoded is None else decoded.assigned_partitions
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in pairs for number in numbers))
