"""What a member's heartbeat or JoinGroup changes in its group: its own record, the hash of the topics, the group
epoch."""

from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.consumer.records import group_metadata_record, member_metadata_record
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord, tombstone
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.consumer.subscriptions import (
    SubscriptionType,
    count_resolved,
    subscription_type,
    subscriptions_of,
)
from schemas.consumer_offsets import RecordType

METADATA_REFRESH_INTERVAL_MS: Final = 2**31 - 1
"""How long the hash of a group's topics is valid without a metadata change; fixed in Kafka."""


@dataclass(slots=True)
class MetadataWatch:
    """What is known about topics and consumer groups only in the coordinator's memory. Lost at a reload."""

    image: MetadataImage = field(default_factory=MetadataImage)
    """The image before the next change: topics that are not in it are new then."""
    version_with_new_topics: int = 0
    """Version of the last image that brought topics, including the image at loading
    (lastMetadataImageWithNewTopics)."""
    refreshes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group id -> (until when its hash is valid, epoch ms; group epoch at which it was computed). A lower group epoch
    means that the log refused the record (ModernGroup.DeadlineAndEpoch)."""


def member_changed(
    group_id: str, member: ConsumerMember, updated: ConsumerMember, records: list[CoordinatorRecord]
) -> bool:
    """Append the member's record if it changed. Returns whether its topic names did (hasMemberSubscriptionChanged)."""
    before, after = frozenset(member.subscribed_topic_names), frozenset(updated.subscribed_topic_names)
    if before == after and _without_names(member) == _without_names(updated):
        return False
    records.append(member_metadata_record(group_id, updated))
    return before != after


def _without_names(member: ConsumerMember) -> tuple[object, ...]:
    """What a heartbeat may change in a member, except the names, whose order does not matter."""
    return (
        member.instance_id,
        member.rack_id,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.subscribed_topic_regex,
        member.client_id,
        member.client_host,
        member.classic_member_metadata,
    )


def is_metadata_expired(context: Context, group: ConsumerGroup) -> bool:
    """Whether the group's topics have to be looked up again (ModernGroup.hasMetadataExpired)."""
    refresh = context.live(MetadataWatch).refreshes.get(group.group_id)
    return refresh is None or context.now_ms >= refresh[0] or group.group_epoch < refresh[1]


def believe_metadata(context: Context, group: ConsumerGroup, group_epoch: int) -> None:
    """Note that the group's topics were looked up in this epoch.

    Not for a group that no record has created yet: Kafka notes it on an object that it then discards.
    """
    if context.group(group.group_id) is group:
        deadline_ms = context.now_ms + METADATA_REFRESH_INTERVAL_MS
        context.live(MetadataWatch).refreshes[group.group_id] = (deadline_ms, group_epoch)


def forget_metadata(context: Context, group_id: str) -> None:
    """A group with this id is about to be created: discard what was known about an earlier one."""
    context.live(MetadataWatch).refreshes.pop(group_id, None)


def update_metadata(
    context: Context,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[CoordinatorRecord],
    *,
    bump: bool,
) -> tuple[int, SubscriptionType]:
    """(group epoch, subscription type) with the updated member (updateSubscriptionMetadata).

    The epoch is bumped if required (`bump`) or if the topics changed.
    """
    known = subscriptions_of(group)
    regexes, by_regex = known.regexes.copy(), known.by_regex
    old_regex, new_regex = member.subscribed_topic_regex, updated.subscribed_topic_regex
    if (old_regex or None) != (new_regex or None):
        regexes.subtract([old_regex] if old_regex else [])
        regexes.update([new_regex] if new_regex else [])
        if old_regex and known.regexes[old_regex] == 1:
            by_regex = by_regex - count_resolved(filter(None, [group.resolved_regexes.get(old_regex)]))
    by_name = known.by_name.copy()
    by_name.subtract(set(member.subscribed_topic_names))
    by_name.update(set(updated.subscribed_topic_names))
    is_new = updated.member_id not in group.members and updated.instance_id not in group.static_members
    kind = subscription_type(by_name, by_regex, regexes, len(group.members) + is_new)
    names = [name for name in by_name.keys() | by_regex.keys() if by_name[name] > 0 or by_regex[name] > 0]
    new_hash = metadata_hash(context.image, names)
    group_epoch = group.group_epoch
    if bump or new_hash != group.metadata_hash:
        group_epoch += 1
        records.append(group_metadata_record(group.group_id, group_epoch, new_hash))
    believe_metadata(context, group, group_epoch)
    if group.has_legacy_partition_metadata:
        records.append(tombstone(RecordType.CONSUMER_GROUP_PARTITION_METADATA, group_id=group.group_id))
    return group_epoch, kind


def watch_metadata(context: Context, changed_topics: frozenset[str]) -> None:
    """Apply new metadata: groups that read one of these topics have to look them up again (onMetadataUpdate)."""
    watch = context.live(MetadataWatch)
    before, watch.image = watch.image, context.image
    if any(_is_new(name, before, context.image) for name in changed_topics):
        watch.version_with_new_topics = context.image.version
    groups = context.shard.groups.groups
    for group_id in tuple(watch.refreshes):
        group = groups.get(group_id)
        if isinstance(group, ConsumerGroup) and not changed_topics.isdisjoint(subscriptions_of(group).topic_names):
            del watch.refreshes[group_id]


def _is_new(name: str, before: MetadataImage, after: MetadataImage) -> bool:
    topic, known = after.topics.get(name), before.topics.get(name)
    return topic is not None and (known is None or known.topic_id != topic.topic_id)
