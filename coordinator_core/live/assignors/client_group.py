"""Input and output of a client assignor (org.apache.kafka.clients.consumer.ConsumerPartitionAssignor).

The leader of a classic group runs it. Topics are identified by name here. Members are iterated in the given order,
which in the client is the order of a hash map (see `java.hash_map`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator_core.bytes import client_protocols
from coordinator_core.replay.java.hash_codes import string_hash_code, string_order
from coordinator_core.replay.java.hash_map import HashMap, HashSet

GENERATION_DEFAULT: Final = -1
"""Generation of a member that sends none (DEFAULT_GENERATION)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> partitions, in the order in which the assignor lists them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the leader's metadata."""

    partition_count: int
    replica_racks: tuple[frozenset[str], ...] = ()
    """Racks of each partition's replicas; empty if the brokers do not have racks."""

    def racks(self, partition: int) -> frozenset[str]:
        return self.replica_racks[partition] if self.replica_racks else frozenset()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The leader's view of a member (ConsumerPartitionAssignor.Subscription)."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None

    @property
    def rack(self) -> str | None:
        """The rack; None for an empty string."""
        return self.rack_id or None

    @property
    def generation(self) -> int:
        """The generation in which the partitions were owned, -1 if the member sends none."""
        return GENERATION_DEFAULT if self.generation_id is None else self.generation_id


def subscription_from_protocol(
    decoded: client_protocols.Subscription, group_instance_id: str | None = None
) -> Subscription:
    """A member's subscription from a JoinGroup request's metadata (ConsumerProtocol.deserializeSubscription)."""
    return Subscription(
        topics=decoded.topics,
        user_data=decoded.user_data,
        owned_partitions=topic_partitions(decoded.owned_partitions),
        generation_id=None if decoded.generation_id < 0 else decoded.generation_id,
        rack_id=decoded.rack_id,
        group_instance_id=group_instance_id,
    )


def topic_partitions(grouped: client_protocols.TopicPartitions) -> tuple[TopicPartition, ...]:
    """The partitions one by one, from the protocols' groups by topic."""
    return tuple(TopicPartition(topic, partition) for topic, numbers in grouped for partition in numbers)


def subscribed_topics(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> dict[str, Topic]:
    """Topics that exist, have partitions and have a subscriber, in the order of the assignor's map."""
    names: HashSet[str] = HashSet(string_hash_code)
    for subscription in subscriptions.values():
        for name in subscription.topics:
            names.add(name)
    existing: HashMap[str, Topic] = HashMap(string_hash_code)
    for name in names:
        if name in topics and topics[name].partition_count > 0:
            existing[name] = topics[name]
    return dict(existing.items())


def members_in_line(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members by instance id, then the others by member id (AbstractPartitionAssignor.MemberInfo)."""

    def place(member_id: str) -> tuple[bool, bytes]:
        group_instance_id = subscriptions[member_id].group_instance_id
        if group_instance_id is None:
            return True, string_order(member_id)
        return False, string_order(group_instance_id)

    return sorted(subscriptions, key=place)


def is_rack_aware(member_racks: frozenset[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Whether racks matter (useRackAwareAssignment): some member is on a rack with replicas, and some partition does
    not have replicas on all racks.
    """
    racks_of_partitions = list(partition_racks)
    all_racks = frozenset[str]().union(*racks_of_partitions)
    return not member_racks.isdisjoint(all_racks) and any(racks != all_racks for racks in racks_of_partitions)


ClientAssignor = Callable[[Mapping[str, Topic], Mapping[str, Subscription]], Assignment]
"""(topics by name, subscriptions by member id) -> partitions by member id."""
