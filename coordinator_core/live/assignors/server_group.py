"""Input and output of a server assignor (org.apache.kafka.coordinator.group.api.assignor).

All topics are topic ids of 22 characters. Orders matter: members and topic ids are iterated in the order given here,
which in the broker is the order of hash maps (see `java.hash_map`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.replay.consumer.subscriptions import SubscriptionType

GroupAssignment = dict[str, dict[str, tuple[int, ...]]]
"""Member id -> topic id -> partitions, ascending. A topic without partitions is possible, as in Kafka's result."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: its subscription (MemberSubscription) and what it has (MemberAssignment)."""

    subscribed_topic_ids: tuple[str, ...] = ()
    """Distinct topic ids."""
    assigned_partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The member's part of the last target assignment: topic id -> partitions. Both orders matter."""
    instance_id: str | None = None
    """Instance id of a static member."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The assignor's view of a group (GroupSpec and SubscribedTopicDescriber)."""

    members: Mapping[str, MemberSpec]
    """Member id -> member, in the order in which the assignor iterates over them."""
    partition_counts: Mapping[str, int]
    """Topic id -> number of partitions, for all existing topics."""
    subscription_type: SubscriptionType
    assignable: Mapping[str, frozenset[int]] | None = None
    """Topic id -> partitions that may be assigned, for share groups: those with an initialized share state. None:
    all."""

    def partition_count(self, topic_id: str) -> int:
        """Number of partitions of a subscribed topic. Raises AssignorError for a topic that does not exist."""
        if topic_id not in self.partition_counts:
            raise AssignorError("a member is subscribed to a topic which is not in the metadata")
        return self.partition_counts[topic_id]

    def is_assignable(self, topic_id: str, partition: int) -> bool:
        """GroupSpec.isPartitionAssignable."""
        return self.assignable is None or partition in self.assignable.get(topic_id, ())


def group_assignment(assigned: Mapping[str, Mapping[str, set[int]]]) -> GroupAssignment:
    return {
        member_id: {topic_id: tuple(sorted(partitions)) for topic_id, partitions in topics.items()}
        for member_id, topics in assigned.items()
    }


def working_copy(assigned_partitions: Mapping[str, tuple[int, ...]]) -> dict[str, set[int]]:
    """A modifiable copy of a member's assignment (AssignorHelpers.deepCopyAssignment)."""
    return {topic_id: set(partitions) for topic_id, partitions in assigned_partitions.items()}


ServerAssignor = Callable[[GroupSpec], GroupAssignment]
"""group -> target assignment of its members."""
