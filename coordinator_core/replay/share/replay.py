"""Replay of a share group's records (GroupMetadataManager.replay of ShareGroup*, KIP-932): types 10 to 15.

The functions for types 10 to 14 take the group and one record, and return the group after it, or None if the record
deletes it. A value of None is a tombstone. Partitions are shared, so overlap between members is normal here.
"""

from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.replay.anomalies import Report
from coordinator_core.replay.java.timeline import grown_timeline_capacity
from coordinator_core.replay.member_epochs import LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.replay.modern import check_member_tombstone, target_partitions
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions, ShareMember


def replay_member_metadata(group: ShareGroup, key: Struct, value: Struct | None, report: Report) -> ShareGroup | None:
    """ShareGroupMemberMetadata (10): a member joins or changes its subscription; a tombstone removes it."""
    if value is None:
        if key.member_id not in group.members:
            return group
        check_member_tombstone(group, key.member_id, group.members[key.member_id].member_epoch, report)
        return without_member(group, key.member_id)
    group, member = _with_known(group, key.member_id)
    member = replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=tuple(value.subscribed_topic_names),
    )
    return put_member(group, member)


def replay_current_assignment(
    group: ShareGroup, key: Struct, value: Struct | None, _report: Report
) -> ShareGroup | None:
    """ShareGroupCurrentMemberAssignment (14): epoch and partitions of one member; a tombstone removes both."""
    if value is None:
        if key.member_id not in group.members:
            return group
        member = replace(
            group.members[key.member_id],
            member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            assigned={},
        )
    else:
        group, member = _with_known(group, key.member_id)
        member = replace(
            member,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=value.state,
            assigned=target_partitions(value.assigned_partitions),
        )
    return put_member(group, member)


def put_member(group: ShareGroup, member: ShareMember) -> ShareGroup:
    """Put a member into the group (ShareGroup.updateMember); a new one comes last."""
    known = group.members.get(member.member_id)
    return replace(
        group,
        members=group.members.set(
            member.member_id, replace(member, place=group.members_ever) if known is None else member
        ),
        name_counts=counts_after(group.name_counts, known, member),
        members_ever=group.members_ever + (known is None),
        table_capacity=grown_timeline_capacity(group.table_capacity, len(group.members)),
    )


def without_member(group: ShareGroup, member_id: str) -> ShareGroup:
    """The group without one of its members (ShareGroup.removeMember)."""
    counts = counts_after(group.name_counts, group.members[member_id], None)
    return replace(group, members=group.members.delete(member_id), name_counts=counts)


def counts_after(counts: Map[str, int], old: ShareMember | None, new: ShareMember | None) -> Map[str, int]:
    """Topic name -> subscribers, after a member joined (no `old`), changed or left (no `new`).

    The same object if the subscription is unchanged (ModernGroup.maybeUpdateSubscribedTopicNames).
    """
    before = () if old is None else old.subscribed_topic_names
    after = () if new is None else new.subscribed_topic_names
    if before == after:
        return counts
    changed = counts.mutate()
    for name in set(before):
        if changed.get(name, 0) > 1:
            changed[name] -= 1
        else:
            changed.pop(name, None)
    for name in set(after):
        changed[name] = changed.get(name, 0) + 1
    return changed.finish()


def _with_known(group: ShareGroup, member_id: str) -> tuple[ShareGroup, ShareMember]:
    """The group with this member; a new, empty member if it is unknown (getOrMaybeCreateMember)."""
    if member_id not in group.members:
        group = put_member(group, ShareMember(member_id))
    return group, group.members[member_id]


def state_partitions(value: Struct) -> ShareGroupStatePartitions:
    """ShareGroupStatePartitionMetadataValue (15): a complete state, which replaces the one before.

    The record does not have the time since when a partition is initializing: a broker restarts that clock when it
    loads.
    """
    return ShareGroupStatePartitions(
        initializing=_named_partitions(value.initializing_topics),
        initialized=_named_partitions(value.initialized_topics),
        deleting={topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _named_partitions(topics: Iterable[Struct]) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    return {topic.topic_id: (topic.topic_name, tuple(sorted(set(topic.partitions)))) for topic in topics}
