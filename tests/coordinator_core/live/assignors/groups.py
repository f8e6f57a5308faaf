"""Groups of any shape for the assignors' properties, and what to ask of an answer."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import strategies as st

from coordinator_core.live.assignors.client_group import Assignment, Subscription, Topic, TopicPartition
from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, MemberSpec
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.ordered import partitions_of_record
from tests.strategies import uuids

member_ids = st.lists(st.integers(0, 99).map("m{}".format), min_size=1, max_size=8, unique=True)
racks = st.sampled_from(["r0", "r1", "r2"])


def subscription_type_of(members: Mapping[str, MemberSpec]) -> SubscriptionType:
    """HOMOGENEOUS if all members are subscribed to the same set of topics (ModernGroup.subscriptionType)."""
    subscriptions = {frozenset(member.subscribed_topic_ids) for member in members.values()}
    return SubscriptionType.HETEROGENEOUS if len(subscriptions) > 1 else SubscriptionType.HOMOGENEOUS


@st.composite
def client_groups(
    draw: st.DrawFn, *, is_same_for_all: bool = False
) -> tuple[dict[str, Topic], dict[str, Subscription]]:
    """Topics and fresh members, with and without racks, some static, some topics missing."""
    names = draw(st.lists(st.sampled_from(["a", "b", "orders", "t0", "t1"]), min_size=1, max_size=4, unique=True))
    topics = {}
    for name in names[: draw(st.integers(1, len(names)))]:
        count = draw(st.integers(1, 6))
        replicas = st.lists(st.frozensets(racks, min_size=1), min_size=count, max_size=count).map(tuple)
        topics[name] = Topic(count, draw(st.just(()) | replicas))
    subscription = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)
    shared = draw(subscription)
    subscriptions = {
        member_id: Subscription(
            topics=shared if is_same_for_all else draw(subscription),
            rack_id=draw(st.none() | racks),
            group_instance_id=draw(st.none() | st.just(f"i-{member_id}")),
        )
        for member_id in draw(member_ids)
    }
    return topics, subscriptions


@st.composite
def server_groups(draw: st.DrawFn, *, is_same_for_all: bool = False) -> GroupSpec:
    """A group whose members have nothing yet."""
    counts = {
        topic_id: draw(st.integers(1, 6)) for topic_id in draw(st.lists(uuids, min_size=1, max_size=4, unique=True))
    }
    subscription = st.lists(st.sampled_from(list(counts)), min_size=1, unique=True).map(tuple)
    shared = draw(subscription)
    members = {
        member_id: MemberSpec(
            shared if is_same_for_all else draw(subscription), instance_id=draw(st.none() | st.just(f"i-{member_id}"))
        )
        for member_id in draw(member_ids)
    }
    return GroupSpec(members, counts, subscription_type_of(members))


def with_assignment(spec: GroupSpec, assignment: GroupAssignment, *, without: str | None = None) -> GroupSpec:
    """The group after an answer was taken up, perhaps with one member gone."""
    members = {
        member_id: MemberSpec(
            member.subscribed_topic_ids, partitions_of_record(assignment.get(member_id, {})), member.instance_id
        )
        for member_id, member in spec.members.items()
        if member_id != without
    }
    return GroupSpec(members, spec.partition_counts, subscription_type_of(members), spec.assignable)


def owners(assignment: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Counter[tuple[str, int]]:
    """How many members each partition has."""
    return Counter(
        (topic_id, partition)
        for topics in assignment.values()
        for topic_id, partitions in topics.items()
        for partition in partitions
    )


def sizes(assignment: Mapping[str, Mapping[str, tuple[int, ...]]]) -> list[int]:
    """How many partitions each member has."""
    return [sum(map(len, topics.values())) for topics in assignment.values()]


def subscribed_partitions(spec: GroupSpec) -> set[tuple[str, int]]:
    """All partitions that somebody is subscribed to."""
    return {
        (topic_id, partition)
        for member in spec.members.values()
        for topic_id in member.subscribed_topic_ids
        for partition in range(spec.partition_counts[topic_id])
    }


def assert_client_answer(
    topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription], assignment: Assignment
) -> None:
    """Every member answers, has what it is subscribed to, and each partition with a subscriber has one owner."""
    assert assignment.keys() == subscriptions.keys()
    for member_id, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= set(subscriptions[member_id].topics)
    given = [partition for partitions in assignment.values() for partition in partitions]
    wanted = {
        TopicPartition(name, number)
        for subscription in subscriptions.values()
        for name in subscription.topics
        if name in topics
        for number in range(topics[name].partition_count)
    }
    assert Counter(given) == Counter(wanted)


# --- the smallest groups: topics a of three partitions and b of two ---

A = "AAAAAAAAAAAAAAAAAAAAAQ"
B = "AAAAAAAAAAAAAAAAAAAAAg"
LETTERS = {A: "a", B: "b"}


def small_group(*subscriptions: str) -> GroupSpec:
    """Members m0, m1 ... subscribed to "a", "b" or "ab", who have nothing yet."""
    topic_ids = {letter: topic_id for topic_id, letter in LETTERS.items()}
    members = {
        f"m{place}": MemberSpec(tuple(topic_ids[letter] for letter in letters))
        for place, letters in enumerate(subscriptions)
    }
    return GroupSpec(members, {A: 3, B: 2}, subscription_type_of(members))


def shown(assignment: GroupAssignment) -> str:
    """An answer of a small group on one line: `a0 b0 | a1 | -`."""
    return " | ".join(
        " ".join(f"{LETTERS[topic_id]}{number}" for topic_id in sorted(topics) for number in topics[topic_id]) or "-"
        for topics in assignment.values()
    )
