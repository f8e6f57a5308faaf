"""The client assignor "roundrobin" (org.apache.kafka.clients.consumer.RoundRobinAssignor)."""

from collections.abc import Mapping

from coordinator_core.live.assignors.client_group import (
    Assignment,
    Subscription,
    Topic,
    TopicPartition,
    members_in_line,
    subscribed_topics,
)
from coordinator_core.replay.java.hash_codes import string_order


def assign_round_robin(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Assign all partitions, topic by topic in the order of names, to the members in turn, skipping members that are
    not subscribed to the topic.
    """
    line = members_in_line(subscriptions)
    dealt: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
    turn = 0
    existing = subscribed_topics(topics, subscriptions)
    for name in sorted(existing, key=string_order):
        for partition in range(existing[name].partition_count):
            while name not in subscriptions[line[turn % len(line)]].topics:
                turn += 1
            dealt[line[turn % len(line)]].append(TopicPartition(name, partition))
            turn += 1
    return {member_id: tuple(partitions) for member_id, partitions in dealt.items()}
