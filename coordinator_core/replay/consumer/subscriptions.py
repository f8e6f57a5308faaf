"""The subscriptions of all members of a consumer group together (ConsumerGroup, ModernGroup).

Kafka updates these counts with each record. Here each is computed from the members on demand, and cached with the group
until a record changes it: a heartbeat that changes nothing computes nothing.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property

from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.timeline import timeline_capacity_after, timeline_order


class SubscriptionType(StrEnum):
    """Whether the members' subscriptions are equal."""

    HOMOGENEOUS = "HOMOGENEOUS"
    """All members are subscribed to the same topics."""
    HETEROGENEOUS = "HETEROGENEOUS"
    """Some member has another subscription."""


class Subscriptions:
    """Counts over the members of one group at one time. Do not modify the counters."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    @cached_property
    def by_name(self) -> Counter[str]:
        """Topic name -> how many members subscribe to it by name."""
        return count_names(self._group.members.values())

    @cached_property
    def by_regex(self) -> Counter[str]:
        """Topic name -> how many patterns were resolved to it."""
        return count_resolved(self._group.resolved_regexes.values())

    @cached_property
    def regexes(self) -> Counter[str]:
        """Pattern -> how many members use it."""
        members = self._group.members.values()
        return Counter(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)

    @cached_property
    def assignors(self) -> Counter[str]:
        """Server assignor -> how many members ask for it."""
        members = self._group.members.values()
        return Counter(member.server_assignor for member in members if member.server_assignor is not None)

    @cached_property
    def classic_member_count(self) -> int:
        """How many members use the classic protocol."""
        return sum(member.classic_member_metadata is not None for member in self._group.members.values())

    @cached_property
    def classic_protocols(self) -> Counter[str]:
        """Protocol -> how many classic members support it."""
        return Counter(
            name
            for member in self._group.members.values()
            if member.classic_member_metadata is not None
            for name, _ in member.classic_member_metadata.supported_protocols
        )

    @cached_property
    def subscription_type(self) -> SubscriptionType:
        """Whether all members have the same subscription. Patterns count with their topics at the last change of a
        member: Kafka infers the type only then.
        """
        by_regex = count_resolved(self._group.subscription_regexes.values())
        return subscription_type(self.by_name, by_regex, self.regexes, len(self._group.members))

    @cached_property
    def topic_names(self) -> frozenset[str]:
        """All topics subscribed to by name or by pattern."""
        return frozenset(self.by_name) | frozenset(self.by_regex)


def subscriptions_of(group: ConsumerGroup) -> Subscriptions:
    """The counts of a group, cached with it."""
    derived = vars(group)
    if "subscriptions" not in derived:
        derived["subscriptions"] = Subscriptions(group)
    found: Subscriptions = derived["subscriptions"]
    return found


def count_names(members: Iterable[ConsumerMember]) -> Counter[str]:
    """Topic name -> how many of the members subscribe to it by name."""
    return Counter(name for member in members for name in set(member.subscribed_topic_names))


def count_resolved(regexes: Iterable[ResolvedRegex]) -> Counter[str]:
    """Topic name -> how many of the patterns were resolved to it."""
    return Counter(name for resolved in regexes for name in set(resolved.topics))


def subscription_type(
    by_name: Counter[str], by_regex: Counter[str], regexes: Counter[str], member_count: int
) -> SubscriptionType:
    """ConsumerGroup.subscriptionType: homogeneous if all members name the same topics, or all use one pattern and no
    names.

    Counts of zero or less are no subscriptions.
    """
    topics = [name for name in by_name.keys() | by_regex.keys() if by_name[name] > 0 or by_regex[name] > 0]
    patterns = [count for count in regexes.values() if count > 0]
    if patterns:
        is_alike = patterns == [member_count] and all(by_regex[name] == 1 and not by_name[name] for name in topics)
    else:
        is_alike = all(by_name[name] == member_count for name in topics)
    return SubscriptionType.HOMOGENEOUS if is_alike else SubscriptionType.HETEROGENEOUS


def asked_order(assignors: Counter[str]) -> list[str]:
    """Assignors in the order of Kafka's TimelineHashMap of them (ConsumerGroup.serverAssignors)."""
    return timeline_order(dict.fromkeys(assignors, 0), timeline_capacity_after(len(assignors) + 1), string_hash_code)


def preferred_assignor(assignors: Counter[str]) -> str | None:
    """The assignor that most members ask for, on a tie the first; None if no member asks for one
    (preferredServerAssignor).
    """
    return max(asked_order(assignors), key=assignors.__getitem__, default=None)
