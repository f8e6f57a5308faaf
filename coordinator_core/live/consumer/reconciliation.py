"""Moves a member from what it owns to its target, one heartbeat at a time (CurrentAssignmentBuilder).

A member first revokes what it must, then takes what is free. It waits for partitions that another member still owns.

    STABLE                 target of another epoch -> next assignment (below); else, where the subscription changed,
                           partitions no longer subscribed are removed
    UNREVOKED_PARTITIONS   still owns what it must revoke -> stays, reduced as above; else -> next assignment
    UNRELEASED_PARTITIONS  -> next assignment
    UNKNOWN                owns nothing -> next assignment; else the member is fenced

The next assignment is UNREVOKED_PARTITIONS, at the old epoch, if the member has to revoke partitions that it still
owns. Otherwise it is at the target's epoch: UNRELEASED_PARTITIONS if others still own some of it, STABLE if not.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from coordinator_core.live.consumer.records import current_assignment_record
from coordinator_core.live.consumer.target import Target
from coordinator_core.live.consumer.timers import TYPE_NAME
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.member_timers import follow_revocation
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, MemberState
from coordinator_core.replay.java.hash_codes import uuid_hash_code
from coordinator_core.replay.java.hash_map import HashMap, capacity_of_map_copy, in_hash_order
from schemas.error_codes import ErrorCode

PartitionEpochs = Mapping[str, Mapping[int, int]]
"""Topic id -> partition -> epoch in which it was assigned, in the order of Kafka's map of topics."""

Owned = Iterable[TopicPartitions] | None
"""What the member owns according to its request; None if the request does not say."""

NOTHING: Final[PartitionEpochs] = {}

UNKNOWN_STATE: Final = (
    "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
)


def reconcile(
    context: Context,
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    owned: Owned,
    records: list[CoordinatorRecord],
    *,
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after this heartbeat; its record is appended if anything changed. Raises Refused
    (FENCED_MEMBER_EPOCH).

    While a member of the consumer protocol has partitions to revoke, its rebalance timeout runs.
    """
    is_there = member.state == MemberState.STABLE and member.member_epoch == target.epoch
    if is_there and not subscription_changed:
        return member
    updated = _Step(context.image, group, member, target, owned).next(subscription_changed=subscription_changed)
    if updated is member or updated == member:
        return member
    records.append(current_assignment_record(group.group_id, updated))
    if updated.classic_member_metadata is None:
        is_revoking = updated.state == MemberState.UNREVOKED_PARTITIONS
        follow_revocation(context, TYPE_NAME, group.group_id, updated, is_revoking=is_revoking)
    return updated


@dataclass(frozen=True, slots=True)
class _Step:
    """Everything on which the next assignment of a member depends."""

    image: MetadataImage
    group: ConsumerGroup
    member: ConsumerMember
    target: Target
    owned: Owned

    def next(self, *, subscription_changed: bool) -> ConsumerMember:
        return NEXT[self.member.state](self, subscription_changed)

    def from_stable(self, subscription_changed: bool) -> ConsumerMember:
        if self.member.member_epoch != self.target.epoch:
            return self.next_assignment(self.member.member_epoch)
        return self.shrunk() if subscription_changed else self.member

    def from_unrevoked(self, subscription_changed: bool) -> ConsumerMember:
        if not self.owns_any(self.member.pending_revocation):
            return self.next_assignment(self.member.member_epoch)
        return self.shrunk() if subscription_changed else self.member

    def from_unreleased(self, subscription_changed: bool) -> ConsumerMember:
        return self.next_assignment(self.member.member_epoch)

    def from_unknown(self, subscription_changed: bool) -> ConsumerMember:
        """A state of a later Kafka, before a broker downgrade: only a member without partitions may continue."""
        if self.owned is None or any(True for _ in self.owned):
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, UNKNOWN_STATE)
        return self.next_assignment(self.target.epoch)

    def owns_any(self, partition_epochs: PartitionEpochs) -> bool:
        """Whether the member may still own one of these partitions; if the request does not say, it may own all."""
        if self.owned is None:
            return True
        return any(
            partition in partition_epochs.get(topic.topic_id, {})
            for topic in self.owned
            for partition in topic.partitions
        )

    def is_subscribed_to(self, topic_id: str) -> bool:
        """Whether the member is subscribed by name or by pattern. A deleted topic counts as not subscribed."""
        topic = self.image.topic_of_id(topic_id)
        return topic is not None and (
            topic.name in self.member.subscribed_topic_names or topic.name in self.topics_of_regex()
        )

    def is_new(self) -> bool:
        """Whether neither the member nor its instance id is in a record yet."""
        return self.member.member_id not in self.group.members and (
            self.member.instance_id not in self.group.static_members
        )

    def has_subscription(self) -> bool:
        """Whether the member is subscribed to any name, whether or not the topic exists."""
        return bool(self.member.subscribed_topic_names or self.topics_of_regex())

    def topics_of_regex(self) -> tuple[str, ...]:
        """Topics of the member's pattern; empty if it is not resolved yet."""
        regex = self.member.subscribed_topic_regex
        resolved = self.group.resolved_regexes.get(regex) if regex else None
        return () if resolved is None else resolved.topics

    def shrunk(self) -> ConsumerMember:
        """Remove partitions that are no longer subscribed; they have to be revoked if the member still owns them."""
        member = self.member
        if not member.pending_revocation and not self.has_subscription():
            return member if self.is_new() else self._revoked({}, member.assigned)
        gone = [topic_id for topic_id in member.assigned if not self.is_subscribed_to(topic_id)]
        if not gone:
            return member
        kept = _copy_of(member.assigned)
        revoked = _copy_of(member.pending_revocation)
        for topic_id in gone:
            del kept[topic_id]
            so_far = revoked.compute_if_absent(topic_id, dict)
            revoked[topic_id] = _by_partition({**so_far, **member.assigned[topic_id]})
        return self._revoked(dict(kept.items()), dict(revoked.items()))

    def _revoked(self, kept: PartitionEpochs, pending_revocation: PartitionEpochs) -> ConsumerMember:
        shrunk = replace(self.member, previous_member_epoch=self.member.member_epoch, assigned=kept)
        if not pending_revocation or not self.owns_any(pending_revocation):
            return shrunk
        return replace(shrunk, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending_revocation)

    def next_assignment(self, member_epoch: int) -> ConsumerMember:
        """The next assignment towards the target. `member_epoch`: where the member stays while it has partitions to
        revoke.
        """
        assigned = self.member.assigned
        kept: HashMap[str, Mapping[int, int]] = HashMap(uuid_hash_code)
        revoked: HashMap[str, Mapping[int, int]] = HashMap(uuid_hash_code)
        free: HashMap[str, list[int]] = HashMap(uuid_hash_code)
        is_waiting = False
        for topic_id in in_hash_order((*self.target.partitions, *assigned), uuid_hash_code):
            partition_epochs = assigned.get(topic_id, {})
            wanted = frozenset(self.target.partitions.get(topic_id, ()) if self.is_subscribed_to(topic_id) else ())
            missing = [partition for partition in sorted(wanted) if partition not in partition_epochs]
            available = [partition for partition in missing if self.is_available(topic_id, partition)]
            is_waiting |= len(available) < len(missing)
            if kept_here := {partition: epoch for partition, epoch in partition_epochs.items() if partition in wanted}:
                kept[topic_id] = kept_here
            if len(kept_here) < len(partition_epochs):
                revoked[topic_id] = {
                    partition: epoch for partition, epoch in partition_epochs.items() if partition not in wanted
                }
            if available:
                free[topic_id] = available
        if len(revoked) and self.owns_any(pending := dict(revoked.items())):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, member_epoch, kept, pending)
        for topic_id, partitions in free.items():
            so_far = kept.compute_if_absent(topic_id, dict)
            kept[topic_id] = _by_partition({**so_far, **dict.fromkeys(partitions, self.target.epoch)})
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        return self._moved(state, self.target.epoch, kept, NOTHING)

    def is_available(self, topic_id: str, partition: int) -> bool:
        """Whether no other member owns the partition."""
        if (topic_id, partition) not in self.group.owners:
            return True
        return partition in self.member.pending_revocation.get(topic_id, {})

    def _moved(
        self, state: MemberState, epoch: int, assigned: HashMap[str, Mapping[int, int]], pending: PartitionEpochs
    ) -> ConsumerMember:
        return replace(
            self.member,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member.member_epoch,
            assigned=dict(assigned.items()),
            pending_revocation=pending,
        )


NEXT: Final[Mapping[MemberState, Callable[[_Step, bool], ConsumerMember]]] = {
    MemberState.STABLE: _Step.from_stable,
    MemberState.UNREVOKED_PARTITIONS: _Step.from_unrevoked,
    MemberState.UNRELEASED_PARTITIONS: _Step.from_unreleased,
    MemberState.UNKNOWN: _Step.from_unknown,
}
"""State -> the function for a heartbeat in this state."""


def _copy_of(partition_epochs: PartitionEpochs) -> HashMap[str, Mapping[int, int]]:
    """`new HashMap<>(map)`: its table is just large enough, so its order may differ."""
    copy: HashMap[str, Mapping[int, int]] = HashMap(uuid_hash_code, capacity_of_map_copy(len(partition_epochs)))
    for topic_id, epochs in partition_epochs.items():
        copy[topic_id] = epochs
    return copy


def _by_partition(epochs: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted(epochs.items()))
