"""The client assignors "sticky" and "cooperative-sticky" (AbstractStickyAssignor and its two subclasses, 4.3).

Members get equally many partitions, or one more or less, and keep what they have as far as that allows. `sticky` takes
a member's previous partitions from its user data, `cooperative-sticky` from the subscription; if two members claim a
partition, the one with the later generation keeps it. If all members are subscribed to the same topics, quotas decide
(`_Constrained`). If not, free partitions go one by one to the member with the fewest, and then partitions move one by
one until no move improves the balance (`_General`). Members on a rack keep and get partitions with a replica there
first.

`cooperative-sticky` leaves partitions out of its result that would move from one member to another: the first has to
revoke them before, and the next generation assigns them to the other.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coordinator_core.bytes.client_protocols import decode_cooperative_sticky_user_data, decode_sticky_user_data
from coordinator_core.errors import DecodeError
from coordinator_core.live.assignors.client_group import (
    GENERATION_DEFAULT,
    Assignment,
    Subscription,
    Topic,
    TopicPartition,
    is_rack_aware,
    subscribed_topics,
    topic_partitions,
)
from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.replay.java.hash_codes import string_hash_code, string_order, topic_partition_hash_code
from coordinator_core.replay.java.hash_map import HashMap, HashSet

Lists = dict[str, list[TopicPartition]]
"""Member id -> partitions so far, in the order of assignment."""


@dataclass(frozen=True, slots=True)
class MemberData:
    """A member's previous partitions (AbstractStickyAssignor.MemberData)."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None


def assign_sticky(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Partitions of every member. Raises AssignorError if Kafka's assignor fails."""
    data = {member_id: sticky_member_data(subscription) for member_id, subscription in subscriptions.items()}
    return _answer(_assign(topics, subscriptions, data)[0])


def assign_cooperative_sticky(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Partitions of every member, without those that another still owns. Raises AssignorError if Kafka's assignor
    fails.
    """
    data = {member_id: cooperative_member_data(subscription) for member_id, subscription in subscriptions.items()}
    lists, transferring = _assign(topics, subscriptions, data)
    if transferring is None:
        transferring = _transferring(lists, subscriptions)
    for partition, member_id in transferring.items():
        lists[member_id].remove(partition)
    return _answer(lists)


def sticky_member_data(subscription: Subscription) -> MemberData:
    """StickyAssignor.memberData: everything is in the user data. Unreadable data count as no partitions in generation
    -1.
    """
    if not subscription.user_data:
        return MemberData()
    try:
        user_data = decode_sticky_user_data(subscription.user_data)
    except DecodeError:
        return MemberData(generation=GENERATION_DEFAULT)
    return MemberData(topic_partitions(user_data.previous_assignment), user_data.generation)


def cooperative_member_data(subscription: Subscription) -> MemberData:
    """CooperativeStickyAssignor.memberData: older clients have the generation in the user data instead of the
    subscription.
    """
    generation = subscription.generation_id
    if generation is None and subscription.user_data is not None:
        try:
            generation = decode_cooperative_sticky_user_data(subscription.user_data)
        except DecodeError:
            generation = GENERATION_DEFAULT
    return MemberData(subscription.owned_partitions, generation)


def _answer(lists: Lists) -> Assignment:
    return {member_id: tuple(partitions) for member_id, partitions in lists.items()}


def _assign(
    topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription], data: Mapping[str, MemberData]
) -> tuple[Lists, dict[TopicPartition, str] | None]:
    """Partitions by member, and which of them change their owner: None if the builder does not track it."""
    if not subscriptions:
        return {}, {}
    existing = subscribed_topics(topics, subscriptions)
    owned, claimed_twice = _owned_partitions(existing, subscriptions, data)
    racks = _Racks(existing, subscriptions)
    if _is_same_for_all(subscriptions):
        constrained = _Constrained(existing, racks, owned, claimed_twice)
        return constrained.assignment(), constrained.transferring
    return _General(existing, racks, owned, subscriptions, data).assignment(), None


def _is_same_for_all(subscriptions: Mapping[str, Subscription]) -> bool:
    """Whether all subscriptions are equal. All are compared with the first non-empty one; members before it count as
    equal, which is a bug in Kafka: such a member gets partitions of topics that it is not subscribed to.
    """
    first: frozenset[str] = frozenset()
    for subscription in subscriptions.values():
        if not first:
            first = frozenset(subscription.topics)
        elif len(subscription.topics) != len(first) or not first.issuperset(subscription.topics):
            return False
    return True


def _owned_partitions(
    topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription], data: Mapping[str, MemberData]
) -> tuple[HashMap[str, list[TopicPartition]], list[TopicPartition]]:
    """What each member may keep; and partitions claimed by two members of one generation, which neither may keep.

    The generation of the first member is taken from its subscription, that of the other from its data: for `sticky` the
    two may differ (allSubscriptionsEqual). Unlike in Kafka, a partition beyond the end of its topic, which was
    recreated with fewer, has no owner. Kafka's assignor keeps it, and then fails or assigns others twice.
    """
    numbers = {name: range(topic.partition_count) for name, topic in topics.items()}
    owned: HashMap[str, list[TopicPartition]] = HashMap(string_hash_code)
    claimed_twice: dict[TopicPartition, None] = {}
    owners: dict[TopicPartition, str] = {}
    for member_id, member_data in data.items():
        generation = GENERATION_DEFAULT if member_data.generation is None else member_data.generation
        partitions: list[TopicPartition] = []
        owned[member_id] = partitions
        for partition in member_data.partitions:
            if partition.partition not in numbers.get(partition.topic, ()):
                continue
            other = owners.get(partition)
            if other is None:
                partitions.append(partition)
                owners[partition] = member_id
                continue
            other_generation = subscriptions[other].generation
            if generation < other_generation:
                continue
            if partition in owned[other]:
                owned[other].remove(partition)
            if generation == other_generation:
                claimed_twice[partition] = None
            else:
                partitions.append(partition)
            owners[partition] = member_id
    return owned, list(claimed_twice)


def _transferring(lists: Lists, subscriptions: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """Partition -> new owner, for partitions that one member gets and another has
    (computePartitionsTransferringOwnership).
    """
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, assigned in lists.items():
        had = set(subscriptions[member_id].owned_partitions)
        added |= {partition: member_id for partition in assigned if partition not in had}
        revoked |= had.difference(assigned)
    return {partition: member_id for partition, member_id in added.items() if partition in revoked}


class _Racks:
    """Which members and partitions share a rack (RackInfo). No member has a rack if racks do not matter."""

    def __init__(self, topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> None:
        members = {m: subscription.rack for m, subscription in subscriptions.items() if subscription.rack is not None}
        partitions = {
            TopicPartition(name, number): topic.racks(number)
            for name, topic in topics.items()
            for number in range(topic.partition_count)
        }
        is_aware = is_rack_aware(frozenset(members.values()), partitions.values())
        self.of_member = members if is_aware else {}
        self._of_partition = partitions if is_aware else {}
        member_racks = list(members.values())
        self._near_counts = {p: sum(map(member_racks.count, racks)) for p, racks in partitions.items() if members}
        """Partition -> how many members are on a rack with a replica, even if racks do not matter otherwise."""

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member is on a rack without a replica (racksMismatch)."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self._of_partition.get(partition, ())

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self._of_partition.get(partition, ())

    def fewest_near_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with few members on their racks first; ties keep their order."""
        return sorted(partitions, key=lambda partition: self._near_counts.get(partition, 0))


class _Constrained:
    """For groups in which all members subscribe to the same topics (ConstrainedAssignmentBuilder)."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        racks: _Racks,
        owned: HashMap[str, list[TopicPartition]],
        claimed_twice: Sequence[TopicPartition],
    ) -> None:
        self._racks = racks
        self._owned = owned
        self._claimed_twice = claimed_twice
        self._partitions = [
            TopicPartition(name, number)
            for name in sorted(topics, key=string_order)
            for number in range(topics[name].partition_count)
        ]
        self._quota_min, self._extra_count = divmod(len(self._partitions), len(owned))
        self._quota_max = self._quota_min + (self._extra_count > 0)
        self._extras_given = 0
        self._lists: Lists = {member_id: [] for member_id in owned}
        self._below_min: list[str] = []
        """Members with less than the smaller quota."""
        self._at_min: list[str] = []
        """Members with the smaller quota, which may get one more."""
        self._given_up: dict[TopicPartition, str] = {}
        """Partition -> the member that had it and does not keep it at first."""
        self.transferring: dict[TopicPartition, str] = {}
        """Partition -> new owner, for partitions that another member owned until now."""

    def assignment(self) -> Lists:
        """Keep owned partitions, then fill up."""
        self._keep_owned()
        kept = {partition for partitions in self._lists.values() for partition in partitions}
        free = self._racks.fewest_near_first([partition for partition in self._partitions if partition not in kept])
        self._below_min.sort(key=string_order)
        self._at_min.sort(key=string_order)
        if self._racks.of_member:
            free = self._fill_near(free)
        self._fill(free)
        return self._lists

    def _keep_owned(self) -> None:
        for member_id, owned in self._owned.items():
            mine = [p for p in owned if p not in self._claimed_twice and not self._racks.is_far(member_id, p)]
            mine.sort(key=lambda partition: (partition.partition, string_order(partition.topic)))
            self._given_up |= {partition: member_id for partition in owned if self._racks.is_far(member_id, partition)}
            if len(mine) < self._quota_min:
                self._below_min.append(member_id)
                keep_count = len(mine)
            elif len(mine) >= self._quota_max and self._extras_given < self._extra_count:
                self._count_extra()
                keep_count = self._quota_max
            else:
                if self._extras_given < self._extra_count:
                    self._at_min.append(member_id)
                keep_count = self._quota_min
            self._lists[member_id] += mine[:keep_count]
            self._given_up |= dict.fromkeys(mine[keep_count:], member_id)

    def _count_extra(self) -> None:
        """Note that one more member has the larger quota; when all possible ones have it, no member can get it any
        more.
        """
        self._extras_given += 1
        if self._extras_given == self._extra_count:
            self._at_min.clear()

    def _fill_near(self, free: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions in turn to members on their racks. Returns the ones that stay free."""
        left = []
        turn = 0
        for partition in free:
            place = self._next_near(partition, self._below_min, turn)
            if place is not None:
                member_id = self._below_min[place]
                count = len(self._lists[member_id]) + 1
                if count >= self._quota_min:
                    del self._below_min[place]
                    if count < self._quota_max and self._extras_given < self._extra_count:
                        self._at_min.append(member_id)
                else:
                    place += 1
                turn = place % len(self._below_min) if self._below_min else 0
            else:
                place = self._next_near(partition, self._at_min, 0)
                if place is None:
                    left.append(partition)
                    continue
                member_id = self._at_min.pop(place)
                self._count_extra()
            self._give(partition, member_id)
        return left

    def _next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Index of the first member on a rack of the partition, in a round from `first`."""
        round_of_places = (*range(first, len(members)), *range(min(first, len(members))))
        return next((place for place in round_of_places if self._racks.is_near(members[place], partition)), None)

    def _fill(self, free: Sequence[TopicPartition]) -> None:
        """Assign partitions in turn: up to the smaller quota first, then one more each."""
        turn = 0
        for partition in free:
            if turn >= len(self._below_min):
                turn = 0
            if self._below_min:
                member_id = self._below_min[turn]
            else:
                assert self._at_min, "quotas add up to all partitions"
                member_id = self._at_min.pop(0)
            count = self._give(partition, member_id)
            if count == self._quota_min:
                del self._below_min[turn]
                self._at_min.append(member_id)
            else:
                turn += 1
                self._extras_given += count == self._quota_max
        assert not self._below_min, "who may have more is only asked when all have the smaller quota"

    def _give(self, partition: TopicPartition, member_id: str) -> int:
        self._lists[member_id].append(partition)
        if self._given_up.get(partition, member_id) != member_id or partition in self._claimed_twice:
            self.transferring[partition] = member_id
        return len(self._lists[member_id])


class _General:
    """For groups whose members subscribe to different topics (GeneralAssignmentBuilder)."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        racks: _Racks,
        owned: HashMap[str, list[TopicPartition]],
        subscriptions: Mapping[str, Subscription],
        data: Mapping[str, MemberData],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._lists: Lists = dict(owned.items())
        self._topics_of = {
            member_id: tuple(name for name in subscription.topics if name in topics)
            for member_id, subscription in subscriptions.items()
        }
        self._subscribers = {
            name: [member_id for member_id, names in self._topics_of.items() if name in names] for name in topics
        }
        self._owners = {partition: member_id for member_id, mine in self._lists.items() for partition in mine}
        self._partitions = [
            TopicPartition(name, number)
            for name in sorted(topics, key=lambda name: (len(self._subscribers[name]), string_order(name)))
            for number in range(topics[name].partition_count)
        ]
        self._previous = _previous_owners(data)
        self._movements = _Movements()
        self._by_size = _BySize(self._lists)

    def assignment(self) -> Lists:
        """Keep owned partitions, assign free ones, balance."""
        is_revoked = self._drop_what_is_not_theirs()
        kept = {partition for partitions in self._lists.values() for partition in partitions}
        free = [partition for partition in self._partitions if partition not in kept]
        self._by_size.fill()
        is_first = not self._lists[self._by_size.last()]
        if self._racks.of_member:
            self._hand_out(self._hand_out(free, is_near_only=True), is_near_only=False)
        else:
            self._hand_out(free, is_near_only=False)
        fixed = self._take_out_fixed_members()
        before = {member_id: list(partitions) for member_id, partitions in self._lists.items()}
        movable = [partition for partition in self._partitions if len(self._subscribers[partition.topic]) > 1]
        if not is_revoked:
            was_free = set(free)
            self._balance([partition for partition in movable if partition in was_free])
        is_moved = self._balance(movable)
        if not is_first and is_moved and _unevenness(self._lists) >= _unevenness(before):
            return before | fixed
        return self._lists | fixed

    def _drop_what_is_not_theirs(self) -> bool:
        """Remove partitions that members are no longer subscribed to, or that have no replica on their rack. True if
        any was removed.
        """
        is_revoked = False
        for member_id, mine in self._lists.items():
            kept = [p for p in mine if p.topic in self._topics_of[member_id] and not self._racks.is_far(member_id, p)]
            is_revoked = is_revoked or len(kept) < len(mine)
            mine[:] = kept
        return is_revoked

    def _hand_out(self, partitions: Sequence[TopicPartition], *, is_near_only: bool) -> list[TopicPartition]:
        """Assign each partition to the subscriber with the fewest. Returns those that no member could have."""
        left = []
        for partition in partitions:
            for member_id in self._by_size:
                is_fitting = partition.topic in self._topics_of[member_id]
                if is_fitting and not (is_near_only and self._racks.is_far(member_id, partition)):
                    with self._by_size.resizing(member_id):
                        self._lists[member_id].append(partition)
                    self._owners[partition] = member_id
                    break
            else:
                left.append(partition)
        return left

    def _take_out_fixed_members(self) -> Lists:
        """Remove members that can neither get nor give a partition from the balancing."""
        fixed = {member_id: mine for member_id, mine in self._lists.items() if not self._can_take_part(member_id)}
        for member_id in fixed:
            self._by_size.remove(member_id)
            del self._lists[member_id]
        return fixed

    def _can_take_part(self, member_id: str) -> bool:
        mine = self._lists[member_id]
        return len(mine) < self._size_max(member_id) or any(len(self._subscribers[p.topic]) > 1 for p in mine)

    def _size_max(self, member_id: str) -> int:
        return sum(self._topics[name].partition_count for name in self._topics_of[member_id])

    def _balance(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions until the assignment is balanced or nothing moves. True if one moved
        (performReassignments)."""
        is_moved = False
        while True:
            is_moved_now = False
            for partition in partitions:
                if self._is_balanced():
                    break
                taker = self._taker(partition)
                if taker is not None:
                    self._move(partition, taker)
                    is_moved_now = True
            if not is_moved_now:
                return is_moved
            is_moved = True

    def _taker(self, partition: TopicPartition) -> str | None:
        """The member that should have the partition instead of its owner: its previous owner, else the subscriber with
        the fewest.
        """
        owner_size = len(self._lists[self._owners[partition]])
        previous = self._previous.get(partition)
        if previous is not None:
            if previous not in self._lists:
                raise AssignorError("sticky assignor: a partition's previous owner is out of the game")
            if owner_size > len(self._lists[previous]) + 1:
                return previous
        # with racks Kafka first searches among members on them, but then picks the one with the fewest anyway
        subscribers = self._subscribers[partition.topic]
        if any(owner_size > len(self._lists[member_id]) + 1 for member_id in subscribers):
            return next(member_id for member_id in self._by_size if partition.topic in self._topics_of[member_id])
        return None

    def _move(self, partition: TopicPartition, taker: str) -> None:
        partition = self._movements.partition_to_move(partition, self._owners[partition], taker)
        giver = self._owners[partition]
        self._movements.add(partition, giver, taker)
        with self._by_size.resizing(giver), self._by_size.resizing(taker):
            self._lists[giver].remove(partition)
            self._lists[taker].append(partition)
        self._owners[partition] = taker

    def _is_balanced(self) -> bool:
        """Sizes differ by one at most, or no member could get one more from a member with two more."""
        if len(self._lists[self._by_size.first()]) >= len(self._lists[self._by_size.last()]) - 1:
            return True
        for member_id in self._by_size:
            size = len(self._lists[member_id])
            if size == self._size_max(member_id):
                continue
            for name in self._topics_of[member_id]:
                for number in range(self._topics[name].partition_count):
                    owner = self._owners[TopicPartition(name, number)]
                    if owner != member_id and size + 1 < len(self._lists[owner]):
                        return False
        return True


def _previous_owners(data: Mapping[str, MemberData]) -> dict[TopicPartition, str]:
    """Partition -> its owner before the latest generation: the last such owner, on a tie the first one found."""
    generations = {
        member_id: GENERATION_DEFAULT if member_data.generation is None else member_data.generation
        for member_id, member_data in data.items()
    }
    generation_max = max(GENERATION_DEFAULT, *generations.values())
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, member_data in data.items():
        generation = generations[member_id]
        if generation >= generation_max:
            continue
        for partition in member_data.partitions:
            if partition not in owners or generation > owners[partition][0]:
                owners[partition] = (generation, member_id)
    return {partition: member_id for partition, (_, member_id) in owners.items()}


def _unevenness(lists: Lists) -> int:
    """Sum of the size differences of all pairs of members (getBalanceScore)."""
    sizes = sorted(map(len, lists.values()))
    return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))


class _Movements:
    """Which partitions of a topic moved between which members, so that none moves there while another moves back."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, tuple[str, str]] = {}
        self._partitions: dict[tuple[str, str, str], HashSet[TopicPartition]] = {}
        """(topic, giver, taker) -> partitions."""

    def partition_to_move(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """The partition itself, or one of its topic that moved the other way and should move back instead
        (getTheActualPartitionToBeMoved).
        """
        giver = self._pairs.get(partition, (giver, giver))[0]
        came = self._partitions.get((partition.topic, taker, giver))
        return next(iter(came)) if came else partition

    def add(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Record a movement. Two movements of one partition are combined; there and back cancel out."""
        if partition in self._pairs:
            first_giver, last_taker = self._pairs.pop(partition)
            self._partitions[partition.topic, first_giver, last_taker].discard(partition)
            if first_giver == taker:
                return
            giver = first_giver
        self._pairs[partition] = (giver, taker)
        key = (partition.topic, giver, taker)
        self._partitions.setdefault(key, HashSet(topic_partition_hash_code)).add(partition)


class _Resizing:
    """Takes a member out of the order while its list changes."""

    def __init__(self, by_size: "_BySize", member_id: str) -> None:
        self._by_size = by_size
        self._member_id = member_id

    def __enter__(self) -> None:
        self._by_size.remove(self._member_id)

    def __exit__(self, *_: object) -> None:
        self._by_size.add(self._member_id)


class _BySize:
    """Members by number of partitions, then by id (sortedCurrentSubscriptions)."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._keys: list[tuple[int, bytes, str]] = []

    def fill(self) -> None:
        self._keys = sorted(map(self._key, self._lists))

    def __iter__(self) -> Iterator[str]:
        """Members with the fewest partitions first. The iteration must end before the order changes."""
        return (member_id for _, _, member_id in self._keys)

    def first(self) -> str:
        """The member with the fewest partitions."""
        return self._keys[0][2]

    def last(self) -> str:
        """The member with the most partitions."""
        return self._keys[-1][2]

    def add(self, member_id: str) -> None:
        """Add a member at its current size."""
        insort(self._keys, self._key(member_id))

    def remove(self, member_id: str) -> None:
        """Remove a member; call it before its size changes."""
        del self._keys[bisect_left(self._keys, self._key(member_id))]

    def resizing(self, member_id: str) -> _Resizing:
        """A context manager around changes of the member's list."""
        return _Resizing(self, member_id)

    def _key(self, member_id: str) -> tuple[int, bytes, str]:
        return len(self._lists[member_id]), string_order(member_id), member_id
