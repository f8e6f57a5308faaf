"""What the replays of consumer, share and streams groups have in common (ModernGroup, StreamsGroup).

The three write the same kinds of record: group metadata, member metadata, target assignment (its epoch and one record
per member) and current assignment. A group is deleted from the leaves up, so each tombstone may be written only when
everything below it is gone; otherwise Kafka's loader throws, and these helpers report it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import KafkaVersion, Since
from coordinator_core.replay.anomalies import (
    GROUP_TOMBSTONE_TOO_EARLY,
    MEMBER_TOMBSTONE_TOO_EARLY,
    TARGET_TOMBSTONE_TOO_EARLY,
    Anomaly,
    Report,
)
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.member_epochs import LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.replay.share.state import ShareGroup
from coordinator_core.replay.streams.state import StreamsGroup

NO_ASSIGNMENT_EPOCH: Final = -1
"""The assignment epoch of a group whose target assignment was deleted."""

NOT_VALIDATED: Final = -1
"""The validated topology epoch of a streams group whose topology does not match the cluster, or was not validated
yet."""

ModernGroup = TypeVar("ModernGroup", ConsumerGroup, ShareGroup, StreamsGroup)

IdTargets = TypeVar("IdTargets", ConsumerGroup, ShareGroup)
"""Groups whose targets are partitions by topic id."""

V = TypeVar("V")


def fresh_group(kind: type[ModernGroup], group_id: str, version: KafkaVersion) -> ModernGroup:
    """A group before its first record, in its initial state in a release."""
    group = kind(group_id)
    if not Since.EPOCHS_BEGIN_AT_1.holds_in(version):
        group = replace(group, group_epoch=0, assignment_epoch=0)
    if isinstance(group, StreamsGroup) and Since.STREAMS_TOPOLOGY_BEGINS_UNVALIDATED.holds_in(version):
        group = replace(group, validated_topology_epoch=NOT_VALIDATED)
    return group


def without(mapping: Map[str, V], key: str) -> Map[str, V]:
    """The mapping without a key. Compaction may have removed the record that added it, so it may be absent."""
    return mapping.delete(key) if key in mapping else mapping


def target_partitions(topics: Iterable[Struct]) -> Mapping[str, tuple[int, ...]]:
    """Topic id -> partitions, ascending. A topic that occurs twice counts as one."""
    partitions: dict[str, tuple[int, ...]] = {}
    for topic in topics:
        so_far, more = partitions.get(topic.topic_id), topic.partitions
        if so_far is not None:
            more = so_far + more
        partitions[topic.topic_id] = tuple(sorted(set(more))) if len(more) > 1 else more
    return partitions


def partition_epochs(
    partitions: tuple[int, ...], assignment_epochs: tuple[int, ...] | None, member_epoch: int
) -> dict[int, int]:
    """Partition -> assignment epoch, by ascending partition.

    Records from before the `assignmentEpochs` tag (4.3) have none: the member's epoch applies to all, at least zero
    (Utils.topicPartitionsWithEpochsFromRecord).
    """
    if assignment_epochs is None or len(assignment_epochs) != len(partitions):
        assignment_epochs = (max(member_epoch, 0),) * len(partitions)
    if len(partitions) == 1:  # most topics of most members
        return {partitions[0]: assignment_epochs[0]}
    epochs = dict(zip(partitions, assignment_epochs))  # noqa: B905  (of one length; to say so costs a third more)
    if [*epochs] == sorted(partitions):  # mostly: no pairs to be sorted
        return epochs
    return dict(sorted(zip(partitions, assignment_epochs, strict=True)))


def replay_epoch(group: IdTargets, _key: Struct, value: Struct | None, report: Report) -> IdTargets | None:
    """ConsumerGroupMetadata (3), ShareGroupMetadata (11): group epoch and hash; a tombstone deletes it."""
    if value is None:
        check_group_tombstone(group, report)
        return None
    return replace(group, group_epoch=value.epoch, metadata_hash=value.metadata_hash)


def replay_target(group: IdTargets, key: Struct, value: Struct | None, _report: Report) -> IdTargets | None:
    """ConsumerGroupTargetAssignmentMember (7), ShareGroupTargetAssignmentMember (13): a member's whole target."""
    if value is None:
        return replace(group, target_assignment=without(group.target_assignment, key.member_id))
    target = target_partitions(value.topic_partitions)
    return replace(group, target_assignment=group.target_assignment.set(key.member_id, target))


def replay_target_metadata(
    group: ModernGroup, _key: Struct, value: Struct | None, report: Report
) -> ModernGroup | None:
    """*TargetAssignmentMetadata (6, 12, 20): set the assignment epoch and the time of the targets (epoch ms, 0 if
    unknown), or remove both.

    On a tombstone while target assignments are left, Kafka throws; best effort removes the epoch and keeps the target
    assignments.
    """
    if value is not None:
        return replace(
            group,
            assignment_epoch=value.assignment_epoch,
            assignment_timestamp_ms=value.assignment_timestamp,
        )
    if group.target_assignment:
        count = len(group.target_assignment)
        report(Anomaly(TARGET_TOMBSTONE_TOO_EARLY, f"assignment epoch deleted, {count} target assignments left"))
    return replace(group, assignment_epoch=NO_ASSIGNMENT_EPOCH, assignment_timestamp_ms=0)


def check_group_tombstone(group: ModernGroup, report: Report) -> None:
    """Report what is left of a group whose metadata is deleted. Best effort: all of it is deleted with the group."""
    left = []
    if group.members:
        left.append(f"{len(group.members)} members")
    if group.target_assignment:
        left.append(f"{len(group.target_assignment)} target assignments")
    if group.assignment_epoch != NO_ASSIGNMENT_EPOCH:
        left.append(f"assignment epoch {group.assignment_epoch}")
    if left:
        report(Anomaly(GROUP_TOMBSTONE_TOO_EARLY, f"group deleted, left: {', '.join(left)}"))


def check_member_tombstone(group: ModernGroup, member_id: str, member_epoch: int, report: Report) -> None:
    """Report what is left of a deleted member. Best effort: the member is deleted, its target assignment stays."""
    if member_epoch != LEAVE_GROUP_MEMBER_EPOCH:
        report(
            Anomaly(
                MEMBER_TOMBSTONE_TOO_EARLY,
                f"member {member_id!r} deleted, its current assignment at epoch {member_epoch} left",
            )
        )
    elif member_id in group.target_assignment:
        report(Anomaly(MEMBER_TOMBSTONE_TOO_EARLY, f"member {member_id!r} deleted, its target assignment left"))


def without_former_instance_id(
    static_members: Map[str, str], former: str | None, instance_id: str | None, version: KafkaVersion
) -> Map[str, str]:
    """The group instance ids without a member's former one, if the member now has another one or none.

    Earlier releases kept the former one for the member.
    """
    if former is None or former == instance_id or not Since.MEMBER_UPDATE_DROPS_INSTANCE_ID.holds_in(version):
        return static_members
    return static_members.delete(former) if former in static_members else static_members


def without_static_member(static_members: Map[str, str], instance_id: str | None, member_id: str) -> Map[str, str]:
    """The group instance ids without that of a removed member, unless another member took it over."""
    if instance_id is not None and static_members.get(instance_id) == member_id:
        return static_members.delete(instance_id)
    return static_members
