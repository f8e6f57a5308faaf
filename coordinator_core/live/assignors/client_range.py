"""The client assignor "range" (org.apache.kafka.clients.consumer.RangeAssignor, with racks by KIP-881).

Each topic is divided into ranges for its subscribers in member order; if it does not divide evenly, the first ranges
are longer by one. If members and replicas have racks, a first pass assigns members only partitions with a replica on
their rack; topics with the same subscribers and equally many partitions are then assigned together, so that equal
partition numbers go to one member. The second pass assigns the rest regardless of racks.
"""

from collections.abc import Callable, Mapping, Sequence

from coordinator_core.live.assignors.client_group import (
    Assignment,
    Subscription,
    Topic,
    TopicPartition,
    is_rack_aware,
    members_in_line,
    subscribed_topics,
)
from coordinator_core.replay.java.hash_codes import string_order

Lists = dict[str, list[TopicPartition]]
"""Member id -> its partitions so far."""


def assign_range(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Partitions of every member: by topic in the order of the topics' hash map or, if racks matter, of names."""
    line = members_in_line(subscriptions)
    ranges = [
        _TopicRanges(name, topic, {m: subscriptions[m].rack for m in line if name in subscriptions[m].topics})
        for name, topic in subscribed_topics(topics, subscriptions).items()
    ]
    lists: Lists = {member_id: [] for member_id in subscriptions}
    with_racks = any(topic.is_rack_aware for topic in ranges)
    if with_racks:
        _assign_matching_racks(ranges, lists)
    for topic in ranges:
        topic.assign_ranges(lists, lambda _member_id, _partition: True)
    if with_racks:
        for partitions in lists.values():
            partitions.sort(key=lambda partition: (string_order(partition.topic), partition.partition))
    return {member_id: tuple(partitions) for member_id, partitions in lists.items()}


class _TopicRanges:
    """A topic, its subscribers, and how much of it is assigned (TopicAssignmentState)."""

    def __init__(self, name: str, topic: Topic, members: Mapping[str, str | None]) -> None:
        self.name = name
        self.members = members
        """Member id -> rack, in the order of the members."""
        member_racks = frozenset(rack for rack in members.values() if rack is not None)
        self.partition_count = topic.partition_count
        self.is_rack_aware = is_rack_aware(member_racks, map(topic.racks, range(topic.partition_count)))
        self.has_member_racks = bool(member_racks)
        self._topic = topic
        self._free = dict.fromkeys(range(topic.partition_count))
        self._quota, self._extra_count = divmod(topic.partition_count, len(members))
        self._assigned_counts = dict.fromkeys(members, 0)

    def has_matching_rack(self, member_id: str, partition: int) -> bool:
        """Whether a replica is on the member's rack. A member without a rack matches every rack."""
        rack = self.members[member_id]
        return rack is None or rack in self._topic.racks(partition)

    def open_quota(self, member_id: str) -> int:
        """How many more partitions the member may have."""
        return max(self._quota + (self._extra_count > 0) - self._assigned_counts[member_id], 0)

    def assign(self, member_id: str, partitions: Sequence[int], lists: Lists) -> None:
        lists[member_id] += [TopicPartition(self.name, partition) for partition in partitions]
        self._assigned_counts[member_id] += len(partitions)
        if self._assigned_counts[member_id] > self._quota:
            self._extra_count -= 1
        for partition in partitions:
            del self._free[partition]

    def assign_ranges(self, lists: Lists, may_have: Callable[[str, int], bool]) -> None:
        """Assign every member, in member order, the first free partitions that it may have, up to its quota."""
        for member_id in self.members:
            fitting = [partition for partition in self._free if may_have(member_id, partition)]
            partitions = fitting[: self.open_quota(member_id)]
            if partitions:
                self.assign(member_id, partitions, lists)


def _assign_matching_racks(ranges: Sequence[_TopicRanges], lists: Lists) -> None:
    alike: dict[tuple[frozenset[str], int], list[_TopicRanges]] = {}
    for topic in ranges:
        if topic.has_member_racks:
            alike.setdefault((frozenset(topic.members), topic.partition_count), []).append(topic)
    for co_partitioned in alike.values():
        if len(co_partitioned) > 1:
            _assign_co_partitioned(co_partitioned, lists)
        elif co_partitioned[0].is_rack_aware:
            co_partitioned[0].assign_ranges(lists, co_partitioned[0].has_matching_rack)


def _assign_co_partitioned(ranges: Sequence[_TopicRanges], lists: Lists) -> None:
    """Assign each partition number of all the topics to the first member whose rack matches in each of them."""
    remaining = list(ranges[0].members)
    for partition in range(ranges[0].partition_count):
        for member_id in remaining:
            if all(topic.has_matching_rack(member_id, partition) and topic.open_quota(member_id) for topic in ranges):
                for topic in ranges:
                    topic.assign(member_id, [partition], lists)
                if not any(topic.open_quota(member_id) for topic in ranges):
                    remaining.remove(member_id)
                break
