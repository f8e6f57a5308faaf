"""The server assignor "simple" of share groups (SimpleAssignor of 4.3, KIP-932).

A partition may have several members. If there are fewer partitions than members, each partition should have the same
number of members (its sharing), and these places are distributed evenly. There are four steps: keep what is still
subscribed, revoke from members that have too much, revoke from partitions that are shared too much, fill up. If members
are subscribed to different topics, each topic is assigned separately, so that the balance is by topic, too.

Java's set order decides which member loses or gets which partition, so the collections here have that order. So has the
result: its topics are in the order of Kafka's map, which is visible in the records of a target assignment.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Generic, TypeVar

from coordinator_core.live.assignors.errors import NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, group_assignment
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.hash_codes import (
    HashCode,
    TopicIdPartition,
    integer_hash_code,
    topic_id_partition_hash_code,
    uuid_hash_code,
)
from coordinator_core.replay.java.hash_map import HashMap, HashSet, capacity_for, in_hash_order

P = TypeVar("P")


def assign_simple(spec: GroupSpec) -> GroupAssignment:
    """A target assignment of every member; empty if no member is subscribed to anything.

    Raises AssignorError for a topic that does not exist, and NoMemberLeft if Kafka throws NoSuchElementException:
    assigned partitions that are no longer assignable take places that others then lack.
    """
    if not any(member.subscribed_topic_ids for member in spec.members.values()):
        return {}
    if spec.subscription_type == SubscriptionType.HOMOGENEOUS:
        return _assign_all_topics(spec)
    return _assign_topic_by_topic(spec)


def _assign_all_topics(spec: GroupSpec) -> GroupAssignment:
    """SimpleHomogeneousAssignmentBuilder. Partitions are TopicIdPartitions."""
    topic_ids = next(iter(spec.members.values())).subscribed_topic_ids
    targets = [TopicIdPartition(topic_id, number) for topic_id in topic_ids for number in _targets(spec, topic_id)]
    sharing = _Sharing(range(len(spec.members)), targets, topic_id_partition_hash_code)
    assigned: list[dict[str, set[int]]] = []
    for member, had in enumerate(spec.members.values()):
        # a topic without remaining partitions stays in the result
        assigned.append({topic_id: set() for topic_id in had.assigned_partitions if topic_id in topic_ids})
        for topic_id in assigned[member]:
            for number in had.assigned_partitions[topic_id]:
                sharing.keep(member, TopicIdPartition(topic_id, number))
    kept_counts = {member: sharing.count_of(member) for member in range(len(spec.members))}
    sharing.settle()
    for member, partition in sharing.places():
        assigned[member].setdefault(partition.topic_id, set()).add(partition.partition)
    for member, had in enumerate(spec.members.values()):
        is_full = 0 < kept_counts[member] >= sharing.wanted[member]
        has_dropped = any(topic_id not in topic_ids for topic_id in had.assigned_partitions)
        if is_full or has_dropped or member in sharing.changed:
            given = [partition.topic_id for partition in sharing.given.get(member, ())]
            assigned[member] = _in_order_of_copy(assigned[member], had.assigned_partitions, given)
    return group_assignment(dict(zip(spec.members, assigned, strict=True)))


def _assign_topic_by_topic(spec: GroupSpec) -> GroupAssignment:
    """SimpleHeterogeneousAssignmentBuilder. Partitions are numbers within the current topic."""
    subscribers: dict[str, list[int]] = {}
    for member, subscribed in enumerate(spec.members.values()):
        for topic_id in subscribed.subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member)
    # topics without subscribers stay with the members that have them: no step revokes them
    assigned: list[dict[str, set[int]]] = [
        {
            topic_id: set() if topic_id in subscribers else set(numbers)
            for topic_id, numbers in had.assigned_partitions.items()
        }
        for had in spec.members.values()
    ]
    given: dict[int, list[str]] = {}
    """Member -> the topics of which it got partitions, in that order; empty if it only lost partitions."""
    for topic_id in in_hash_order(subscribers, uuid_hash_code):
        members = subscribers[topic_id]
        sharing = _Sharing(members, _targets(spec, topic_id), integer_hash_code)
        for member, had in enumerate(spec.members.values()):
            for number in had.assigned_partitions.get(topic_id, ()):
                sharing.keep(member, number)
        sharing.settle()
        for member, number in sharing.places():
            assigned[member].setdefault(topic_id, set()).add(number)
        for member in sharing.changed:
            given.setdefault(member, []).extend([topic_id] * len(sharing.given.get(member, ())))
    for member, had in enumerate(spec.members.values()):
        if member in given:
            assigned[member] = _in_order_of_copy(assigned[member], had.assigned_partitions, given[member])
    return group_assignment(dict(zip(spec.members, assigned, strict=True)))


def _in_order_of_copy(
    assigned: Mapping[str, set[int]], had: Mapping[str, object], given: Iterable[str]
) -> dict[str, set[int]]:
    """The topics in the order of a copy of the old assignment that is modified step by step (deepCopyAssignment).

    The table of the copy has as many buckets as the old assignment has topics; each assigned partition (by topic in
    `given`) may make it grow.
    """
    topics: HashMap[str, None] = HashMap(uuid_hash_code, len(had))
    for topic_id in had:
        topics[topic_id] = None
    for topic_id in had:
        if topic_id not in assigned:
            del topics[topic_id]
    for topic_id in given:
        topics.compute_if_absent(topic_id, lambda: None)
    return {topic_id: assigned[topic_id] for topic_id in topics}


def _targets(spec: GroupSpec, topic_id: str) -> list[int]:
    return [number for number in range(spec.partition_count(topic_id)) if spec.is_assignable(topic_id, number)]


class _Sharing(Generic[P]):
    """Assignments of members to partitions while they are balanced. Members are their indexes in the group."""

    def __init__(self, members: Sequence[int], targets: Sequence[P], hash_code: HashCode[P]) -> None:
        self._members = members
        """Subscribed members, ascending."""
        self._targets = targets
        self._hash_code = hash_code
        self._members_of: HashMap[P, HashSet[int]] = HashMap(hash_code, capacity_for(len(targets)))
        self._partitions_of: dict[int, HashSet[P]] = {}
        self._sharing = -(-len(members) // len(targets)) if targets else 0
        """How many members share each partition."""
        part = self._sharing * len(targets) / len(members)
        self.wanted = {member: ceil(part * (place + 1)) - ceil(part * place) for place, member in enumerate(members)}
        """Member -> its target number of partitions."""
        self.given: dict[int, list[P]] = {}
        """Member -> the partitions that it got, in that order."""
        self.changed: set[int] = set()
        """Members that got or lost partitions."""

    def keep(self, member: int, partition: P) -> None:
        """Keep a place from the last assignment, for any member and partition; later steps remove wrong ones."""
        self._members_of.compute_if_absent(partition, _no_members).add(member)
        self._partitions_of.setdefault(member, HashSet(self._hash_code)).add(partition)

    def settle(self) -> None:
        """Balance the places. Raises NoMemberLeft."""
        self._revoke_from_overfilled_members()
        self._revoke_overshared_partitions()
        for partition in self._targets:
            self._members_of.compute_if_absent(partition, _no_members)
        self._fill()

    def count_of(self, member: int) -> int:
        """How many partitions the member has now."""
        return len(self._partitions_of.get(member, ()))

    def places(self) -> Iterable[tuple[int, P]]:
        return [(member, partition) for member, partitions in self._partitions_of.items() for partition in partitions]

    def _revoke_from_overfilled_members(self) -> None:
        for member, partitions in self._partitions_of.items():
            excess_count = max(len(partitions) - self.wanted.get(member, 0), 0)
            for partition in list(partitions)[:excess_count]:
                self._revoke(member, partition)

    def _revoke_overshared_partitions(self) -> None:
        for partition, members in self._members_of.items():
            excess_count = max(len(members) - self._sharing, 0)
            for member in list(members)[:excess_count]:
                self._revoke(member, partition)

    def _revoke(self, member: int, partition: P) -> None:
        self._partitions_of[member].discard(partition)
        self._members_of[partition].discard(member)
        self.changed.add(member)

    def _fill(self) -> None:
        """Iterate over the partitions once, and round-robin over the members that have too few.

        A member that has the partition already is skipped. A partition for which a whole round found no member is left
        as it is: Kafka accepts the small imbalance.
        """
        unfilled = {member: None for member in self._members if self._is_unfilled(member)}
        round_of_members = iter(list(unfilled))
        is_helped = False
        for partition, members in self._members_of.items():
            wanted_count = self._sharing - len(members)
            while wanted_count > 0:
                member = next(round_of_members, None)
                if member is None:
                    if not is_helped:
                        break
                    if not unfilled:
                        raise NoMemberLeft("SimpleAssignor: a partition lacks members when all have their part")
                    round_of_members = iter(list(unfilled))
                    is_helped = False
                    continue
                if member in members:
                    continue
                self._partitions_of.setdefault(member, HashSet(self._hash_code)).add(partition)
                self.given.setdefault(member, []).append(partition)
                self.changed.add(member)
                # a member that reaches the same partition in its turn again counts again: Kafka does not track new
                # members here
                wanted_count -= 1
                is_helped = True
                if not self._is_unfilled(member):
                    del unfilled[member]
            if not unfilled:
                break

    def _is_unfilled(self, member: int) -> bool:
        return self.count_of(member) < self.wanted[member]


def _no_members() -> HashSet[int]:
    return HashSet(integer_hash_code)
