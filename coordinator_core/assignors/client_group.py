"""What a client assignor is given and what it gives (org.apache.kafka.clients.consumer.ConsumerPartitionAssignor).

The leader of a classic group runs it. Topics go by name here. Members are walked in the order in which they are given,
which in the client is the order of a hash map (`java.hash_map` tells that order).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator_core import client_protocols
from coordinator_core.java.hash_codes import string_hash_code, string_order
from coordinator_core.java.hash_map import HashMap, HashSet

GENERATION_DEFAULT: Final = -1
"""Generation of a member that tells none (DEFAULT_GENERATION)."""


class TopicPartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int


Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> partitions, in the order in which the assignor lists them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the leader's metadata."""

    partition_count: int
    replica_racks: tuple[frozenset[str], ...] = ()
    """Racks of each partition's replicas; empty where the brokers tell none."""

    def racks(self, partition: int) -> frozenset[str]:
        """Racks on which a partition has a replica."""
        return self.replica_racks[partition] if self.replica_racks else frozenset()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member as the leader sees it (ConsumerPartitionAssignor.Subscription)."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None

    @property
    def rack(self) -> str | None:
        """The rack, for which an empty text is none."""
        return self.rack_id or None

    @property
    def generation(self) -> int:
        """The generation in which the partitions were owned, -1 where the member names none."""
        return GENERATION_DEFAULT if self.generation_id is None else self.generation_id


def subscription_from_protocol(
    decoded: client_protocols.Subscription, group_instance_id: str | None = None
) -> Subscription:
    """What a JoinGroup request's metadata (ConsumerProtocol.deserializeSubscription) says of a member."""
    return Subscription(
        topics=decoded.topics,
        user_data=decoded.user_data,
        owned_partitions=topic_partitions(decoded.owned_partitions),
        generation_id=None if decoded.generation_id < 0 else decoded.generation_id,
        rack_id=decoded.rack_id,
        group_instance_id=group_instance_id,
    )


def topic_partitions(grouped: client_protocols.TopicPartitions) -> tuple[TopicPartition, ...]:
    """Partitions one by one, which the protocols group by topic."""
    return tuple(TopicPartition(topic, partition) for topic, numbers in grouped for partition in numbers)


def subscribed_topics(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> dict[str, Topic]:
    """Topics which exist, have partitions and have a subscriber, in the order of the assignor's map of them."""
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
    """Whether racks can make a difference (useRackAwareAssignment): some member is on a rack with replicas, and some
    partition has not replicas on all racks.
    """
    racks_of_partitions = list(partition_racks)
    all_racks = frozenset[str]().union(*racks_of_partitions)
    return not member_racks.isdisjoint(all_racks) and any(racks != all_racks for racks in racks_of_partitions)


ClientAssignor = Callable[[Mapping[str, Topic], Mapping[str, Subscription]], Assignment]
"""Topics by name and subscriptions by member id give partitions by member id."""
