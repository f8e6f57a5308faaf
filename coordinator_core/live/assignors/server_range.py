"""The server assignor "range" (org.apache.kafka.coordinator.group.assignor.RangeAssignor of 4.3).

Members are ordered: static ones by instance id, then the others by member id. Each topic is divided into as many ranges
as it has subscribers, which get them in member order; if it does not divide evenly, the first ranges are longer by one.
Previous assignments do not matter.

In a homogeneous group, the first member represents all. The broker may call a group homogeneous although its members
differ: it infers the type only when a member changes, not when a pattern is resolved again.
"""

from collections import Counter

from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, MemberSpec
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.hash_codes import string_order


def assign_range(spec: GroupSpec) -> GroupAssignment:
    """A target assignment of every member. Raises AssignorError for a topic that does not exist."""
    line = sorted(spec.members.items(), key=_place_in_line)
    subscriptions = {member_id: member.subscribed_topic_ids for member_id, member in line}
    if line and spec.subscription_type == SubscriptionType.HOMOGENEOUS:
        _, first = line[0]
        subscriptions = dict.fromkeys(subscriptions, first.subscribed_topic_ids)
    subscriber_counts = Counter(topic_id for topic_ids in subscriptions.values() for topic_id in topic_ids)
    quotas = {topic_id: divmod(spec.partition_count(topic_id), count) for topic_id, count in subscriber_counts.items()}
    served = Counter[str]()
    assignment: GroupAssignment = {}
    for member_id, topic_ids in subscriptions.items():
        topics = assignment.setdefault(member_id, {})
        for topic_id in topic_ids:
            quota, extra_count = quotas[topic_id]
            place = served[topic_id]
            served[topic_id] += 1
            start = quota * place + min(place, extra_count)
            partitions = tuple(range(start, start + quota + (place < extra_count)))
            if partitions:
                topics[topic_id] = partitions
    return assignment


def _place_in_line(entry: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
    member_id, member = entry
    if member.instance_id is None:
        return True, string_order(member_id)
    return False, string_order(member.instance_id)
