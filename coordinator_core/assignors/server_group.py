"""What a server assignor is given and what it gives (org.apache.kafka.coordinator.group.api.assignor).

All topics are topic ids of 22 characters. Orders matter: members and topic ids are walked in the order in which they
are given here, which in the broker is the order of hash maps (`java.hash_map` tells that order).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator_core.assignors.errors import AssignorError

GroupAssignment = dict[str, dict[str, tuple[int, ...]]]
"""Member id -> topic id -> partitions, ascending. A topic without partitions may be there, as in Kafka's answer."""


class SubscriptionType(StrEnum):
    """How the members' subscriptions compare."""

    HOMOGENEOUS = "HOMOGENEOUS"
    """All members are subscribed to the same topics."""
    HETEROGENEOUS = "HETEROGENEOUS"
    """Some member is not."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: its subscription (MemberSubscription) and what it has (MemberAssignment)."""

    subscribed_topic_ids: tuple[str, ...] = ()
    """Without repetitions."""
    assigned_partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The member's part of the last target assignment: topic id -> partitions. Both orders matter."""
    instance_id: str | None = None
    """Of a static member."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as its assignor sees it (GroupSpec and SubscribedTopicDescriber)."""

    members: Mapping[str, MemberSpec]
    """Member id -> member, in the order in which the assignor walks them."""
    partition_counts: Mapping[str, int]
    """Topic id -> number of partitions, of all topics that there are."""
    subscription_type: SubscriptionType
    assignable: Mapping[str, frozenset[int]] | None = None
    """Topic id -> partitions that may be assigned, for share groups: those whose share state is initialised. None: all
    are."""

    def partition_count(self, topic_id: str) -> int:
        """Number of partitions of a subscribed topic. Raises AssignorError where there is no such topic."""
        if topic_id not in self.partition_counts:
            raise AssignorError("a member is subscribed to a topic which is not in the metadata")
        return self.partition_counts[topic_id]

    def is_assignable(self, topic_id: str, partition: int) -> bool:
        """GroupSpec.isPartitionAssignable."""
        return self.assignable is None or partition in self.assignable.get(topic_id, ())


def subscription_type_of(members: Mapping[str, MemberSpec]) -> SubscriptionType:
    """HOMOGENEOUS where all members are subscribed to the same set of topics (ModernGroup.subscriptionType)."""
    subscriptions = {frozenset(member.subscribed_topic_ids) for member in members.values()}
    return SubscriptionType.HETEROGENEOUS if len(subscriptions) > 1 else SubscriptionType.HOMOGENEOUS


def group_assignment(assigned: Mapping[str, Mapping[str, set[int]]]) -> GroupAssignment:
    """Work sets as an answer."""
    return {
        member_id: {topic_id: tuple(sorted(partitions)) for topic_id, partitions in topics.items()}
        for member_id, topics in assigned.items()
    }


def working_copy(assigned_partitions: Mapping[str, tuple[int, ...]]) -> dict[str, set[int]]:
    """What a member has, to be changed (AssignorHelpers.deepCopyAssignment)."""
    return {topic_id: set(partitions) for topic_id, partitions in assigned_partitions.items()}


ServerAssignor = Callable[[GroupSpec], GroupAssignment]
"""A group gives a target assignment of its members."""
