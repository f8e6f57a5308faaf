"""The server assignor "uniform", the default of consumer groups (UniformAssignor of 4.3).

Members get equally many partitions, or one more or less, and keep what they have as far as that allows. If all are
subscribed to the same topics, quotas decide (UniformHomogeneousAssignmentBuilder). If not, free partitions go topic by
topic to the subscriber with the fewest, and then topic by topic partitions move from the subscriber with the most to
the one with the fewest (UniformHeterogeneousAssignmentBuilder).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, group_assignment, working_copy
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.hash_codes import uuid_hash_code, uuid_order
from coordinator_core.replay.java.hash_map import capacity_of_copy, in_hash_order

ROUND_COUNT_MAX: Final = 16
"""Maximum number of rounds over all topics in balancing (MAX_ITERATION_COUNT)."""


def assign_uniform(spec: GroupSpec) -> GroupAssignment:
    """A target assignment of every member; empty if no member is subscribed to anything.

    Raises AssignorError for a topic that does not exist, or if a partition is assigned twice so that the quotas do not
    suffice.
    """
    if not any(member.subscribed_topic_ids for member in spec.members.values()):
        return {}
    if spec.subscription_type == SubscriptionType.HOMOGENEOUS:
        return _assign_by_quota(spec)
    return _Balance(spec).assignment()


# --- all subscribed to the same topics ---


def _assign_by_quota(spec: GroupSpec) -> GroupAssignment:
    subscribed = _subscribed_topic_ids(spec)
    partition_count = sum(spec.partition_count(topic_id) for topic_id in subscribed)
    free = _free_partitions(spec, subscribed)
    quota_min, extra_count = divmod(partition_count, len(spec.members))
    assigned: dict[str, dict[str, set[int]]] = {}
    open_quotas: list[tuple[str, int]] = []
    for place, (member_id, member) in enumerate(spec.members.items()):
        has_extra = extra_count > 0
        kept, open_quota, revoked = _keep_within_quota(
            member.assigned_partitions, frozenset(subscribed), quota_min + has_extra
        )
        if has_extra and open_quota > 0 and len(spec.members) - place > extra_count:
            # a member that does not use the larger quota leaves it to others, as long as enough members follow
            has_extra = False
            open_quota -= 1
        extra_count -= has_extra
        assigned[member_id] = kept
        free += revoked
        open_quotas.append((member_id, open_quota))
    next_free = 0
    for member_id, open_quota in open_quotas:
        for topic_id, partition in free[next_free : next_free + open_quota]:
            assigned[member_id].setdefault(topic_id, set()).add(partition)
        next_free += open_quota
    if next_free < len(free):
        raise AssignorError("partitions were left over")
    return group_assignment(assigned)


def _subscribed_topic_ids(spec: GroupSpec) -> list[str]:
    """The first member's topics count for all members."""
    topic_ids = next(iter(spec.members.values())).subscribed_topic_ids
    return in_hash_order(topic_ids, uuid_hash_code, initial_capacity=capacity_of_copy(len(topic_ids)))


def _free_partitions(spec: GroupSpec, topic_ids: Sequence[str]) -> list[tuple[str, int]]:
    taken = {
        (topic_id, partition)
        for member in spec.members.values()
        for topic_id, partitions in member.assigned_partitions.items()
        for partition in partitions
    }
    every = ((topic_id, partition) for topic_id in topic_ids for partition in range(spec.partition_count(topic_id)))
    return [partition for partition in every if partition not in taken]


def _keep_within_quota(
    assigned_partitions: Mapping[str, tuple[int, ...]], subscribed: frozenset[str], quota: int
) -> tuple[dict[str, set[int]], int, list[tuple[str, int]]]:
    """What stays of an assignment, how much of the quota is then open, and what is revoked."""
    kept: dict[str, set[int]] = {}
    revoked = []
    for topic_id, partitions in assigned_partitions.items():
        if topic_id not in subscribed:
            continue
        kept_here, too_many = partitions[:quota], partitions[quota:]
        quota -= len(kept_here)
        revoked += [(topic_id, partition) for partition in too_many]
        if kept_here or not too_many:
            kept[topic_id] = set(kept_here)
    return kept, quota, revoked


# --- subscribed to different topics ---


class _Balance:
    """An assignment while it is balanced. Members are their indexes in the group."""

    def __init__(self, spec: GroupSpec) -> None:
        self.member_ids = list(spec.members)
        self.subscribers: dict[str, list[int]] = {}
        for place, member in enumerate(spec.members.values()):
            for topic_id in member.subscribed_topic_ids:
                self.subscribers.setdefault(topic_id, []).append(place)
        self.owners: dict[str, list[int | None]] = {
            topic_id: [None] * spec.partition_count(topic_id) for topic_id in self.subscribers
        }
        """Topic id -> owner of each partition."""
        self.sizes = [0] * len(self.member_ids)
        """How many partitions each member has."""
        self.assigned: list[dict[str, set[int]]] = []
        for place, member in enumerate(spec.members.values()):
            self.assigned.append(self._kept(place, member.subscribed_topic_ids, member.assigned_partitions))

    def _kept(
        self, place: int, topic_ids: Iterable[str], assigned_partitions: Mapping[str, tuple[int, ...]]
    ) -> dict[str, set[int]]:
        subscribed = frozenset(topic_ids)
        kept = {topic_id: partitions for topic_id, partitions in assigned_partitions.items() if topic_id in subscribed}
        for topic_id, partitions in kept.items():
            self.sizes[place] += len(partitions)
            for partition in partitions:
                if partition >= len(self.owners[topic_id]):
                    raise AssignorError("a member has a partition which its topic does not have")
                self.owners[topic_id][partition] = place
        return working_copy(kept)

    def assignment(self) -> GroupAssignment:
        """Assign free partitions, then balance."""
        free = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner is None]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self._by_need(topic_id for topic_id, partitions in free.items() if partitions):
            levels = _Levels(self.subscribers[topic_id], self.sizes)
            for partition in free[topic_id]:
                self._move(topic_id, partition, levels.next_least_loaded())
        self._balance_topics(self._by_need(t for t, subscribers in self.subscribers.items() if len(subscribers) > 1))
        return group_assignment(dict(zip(self.member_ids, self.assigned, strict=True)))

    def _by_need(self, topic_ids: Iterable[str]) -> list[str]:
        """Most partitions for each subscriber first, then fewest subscribers, then by topic id (`topicComparator`)."""

        def need(topic_id: str) -> tuple[float, int, tuple[int, int]]:
            subscriber_count = len(self.subscribers[topic_id])
            return -len(self.owners[topic_id]) / subscriber_count, subscriber_count, uuid_order(topic_id)

        return sorted(topic_ids, key=need)

    def _balance_topics(self, topic_ids: Sequence[str]) -> None:
        """Repeat rounds over the topics until a whole round has moved nothing."""
        last_moved: str | None = None
        for _ in range(ROUND_COUNT_MAX):
            for topic_id in topic_ids:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: str) -> bool:
        """Move partitions from subscribers with the most to those with the fewest. True if one moved."""
        levels = _Levels(self.subscribers[topic_id], self.sizes)
        if levels.is_level():
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            assert owner is not None, "everything is handed out before it is balanced"
            owned.setdefault(owner, []).append(partition)
        is_moved = False
        while (giver := levels.next_most_loaded(owned)) is not None:
            partition = owned[giver].pop()
            taker = levels.next_least_loaded()
            if levels.is_balanced():
                break
            self._move(topic_id, partition, taker)
            is_moved = True
        return is_moved

    def _move(self, topic_id: str, partition: int, taker: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner is not None:
            of_topic = self.assigned[owner][topic_id]
            of_topic.discard(partition)
            if not of_topic:
                del self.assigned[owner][topic_id]
            self.sizes[owner] -= 1
        self.assigned[taker].setdefault(topic_id, set()).add(partition)
        self.owners[topic_id][partition] = taker
        self.sizes[taker] += 1


class _Levels:
    """A topic's subscribers by number of partitions, filled from the bottom and drained from the top.

    It works on two ranges of the sorted members. All members of the low range have the smallest number of partitions;
    each gets one in turn, and when all have got one, the level rises and the range includes the members that were
    already at that level. The high range works the same downwards; a member without partitions of this topic is
    excluded from it (MemberAssignmentBalancer).
    """

    def __init__(self, subscribers: Sequence[int], sizes: list[int]) -> None:
        self._sizes = sizes
        """Sizes of all members, shared with `_Balance`: they change during the iteration."""
        self._members = sorted(subscribers, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_level = sizes[self._members[0]] - 1
        self._low_next = 0
        self._high_start = len(self._members)
        self._high_end = len(self._members)
        self._high_level = sizes[self._members[-1]] + 1
        self._high_next = len(self._members) - 1

    def is_level(self) -> bool:
        """Whether there is nothing to balance. Called before anything has moved."""
        return self._sizes[self._members[-1]] - self._sizes[self._members[0]] <= 1

    def is_balanced(self) -> bool:
        """Whether the ranges are at most one partition apart."""
        return self._high_level - self._low_level <= 1

    def next_least_loaded(self) -> int:
        """The member that gets the next partition, which is counted."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._size_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._members[self._low_next - 1]

    def next_most_loaded(self, owned: Mapping[int, Sequence[int]]) -> int | None:
        """The member that gives an owned partition, which is counted. None if no member is left that can."""
        while (member := self._next_of_high_range()) is not None:
            if owned.get(member):
                return member
            self._exclude()
        return None

    def _next_of_high_range(self) -> int | None:
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # all of the range were excluded: use the level of the next one below, or the range would stay empty
                self._high_level = self._size_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._size_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return None
        self._high_next -= 1
        return self._members[self._high_next + 1]

    def _exclude(self) -> None:
        """Exclude the last returned member from the high range, by swapping it with the range's last."""
        last, given = self._high_end - 1, self._high_next + 1
        self._members[given], self._members[last] = self._members[last], self._members[given]
        self._high_end -= 1

    def _size_at(self, place: int) -> int:
        return self._sizes[self._members[place]]
