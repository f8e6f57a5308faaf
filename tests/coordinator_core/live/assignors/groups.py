"""Groups of any shape for the assignors' properties, and what to ask of an answer."""

from collections import Counter
from collections.abc import Mapping

from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, MemberSpec
from coordinator_core.replay.consumer.subscriptions import SubscriptionType


def subscription_type_of(members: Mapping[str, MemberSpec]) -> SubscriptionType:
    """HOMOGENEOUS if all members are subscribed to the same set of topics (ModernGroup.subscriptionType)."""
    subscriptions = {frozenset(member.subscribed_topic_ids) for member in members.values()}
    return SubscriptionType.HETEROGENEOUS if len(subscriptions) > 1 else SubscriptionType.HOMOGENEOUS


def owners(assignment: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Counter[tuple[str, int]]:
    """How many members each partition has."""
    return Counter(
        (topic_id, partition)
        for topics in assignment.values()
        for topic_id, partitions in topics.items()
        for partition in partitions
    )


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
