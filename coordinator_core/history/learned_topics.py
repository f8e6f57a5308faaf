"""Topic names and share partitions, as learned from group records."""

from coordinator_core.bytes.codec import Struct
from coordinator_core.history.operations import TARGET_MEMBER_RECORDS, TARGET_METADATA_RECORDS, ReplayedOperation
from coordinator_core.history.rows import TopicName
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions
from schemas.consumer_offsets import RecordType


class LearnedTopics:
    """Names of topic ids, as operations show them. Each name is reported once, at its first time."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()
        self._new: list[TopicName] = []

    def take(self) -> list[TopicName]:
        """Names learned since the last call."""
        new, self._new = self._new, []
        return new

    def learn_share_partitions(self, step: ReplayedOperation) -> None:
        """Learn the topics of share partitions that an operation initializes or deletes, and record the events."""
        before, after = step.partitions_before, step.partitions_after
        if after is before or after is None:
            return
        old = before if before is not None else ShareGroupStatePartitions()
        offset = step.offset_of(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA)
        for event_type, was, now in (
            ("SHARE_PARTITIONS_INITIALIZING", old.initializing, after.initializing),
            ("SHARE_PARTITIONS_INITIALIZED", old.initialized, after.initialized),
        ):
            for topic_id in sorted(now):
                topic, partitions = now[topic_id]
                added = sorted(set(partitions) - set(was[topic_id][1] if topic_id in was else ()))
                self._learn(topic_id, topic, step.operation.timestamp_ms, "SHARE_PARTITIONS")
                if added:
                    step.add_event(
                        event_type,
                        offset,
                        topic=topic,
                        details={"topic_id": topic_id, "partitions": ",".join(map(str, added))},
                    )
        for topic_id in sorted(after.deleting):
            self._learn(topic_id, after.deleting[topic_id], step.operation.timestamp_ms, "SHARE_PARTITIONS")
            if topic_id not in old.deleting:
                step.add_event(
                    "SHARE_PARTITIONS_DELETING",
                    offset,
                    topic=after.deleting[topic_id],
                    details={"topic_id": topic_id},
                )

    def learn_targets(self, step: ReplayedOperation) -> None:
        """Learn names that a target proves: a member subscribed to a single topic can only be assigned that topic.

        This holds only if the target was computed in this operation for the current epoch: an older target may come
        from an older subscription.
        """
        after = step.after
        if not isinstance(after, ConsumerGroup | ShareGroup) or after.group_epoch != after.assignment_epoch:
            return
        types = {record.record_type for record in step.operation.records if record.value is not None}
        if not types & TARGET_METADATA_RECORDS:
            return
        for record in step.operation.records:
            if record.record_type not in TARGET_MEMBER_RECORDS or record.value is None:
                continue
            assert isinstance(record.key, Struct)
            member = after.members.get(record.key.member_id)
            if member is None:
                continue
            names, learned_from = set(member.subscribed_topic_names), "SUBSCRIPTION"
            if isinstance(member, ConsumerMember) and (regex := member.subscribed_topic_regex):
                assert isinstance(after, ConsumerGroup)
                resolved = after.resolved_regexes.get(regex)
                if resolved is None:
                    continue
                names, learned_from = names | set(resolved.topics), "REGEX"
            if len(names) == 1:
                (name,) = names
                for topic_id in after.target_assignment.get(member.member_id, {}):
                    self._learn(topic_id, name, step.operation.timestamp_ms, learned_from)

    def _learn(self, topic_id: str, topic: str, at: int, learned_from: str) -> None:
        known = (topic_id, topic, learned_from)
        if known not in self._known:
            self._known.add(known)
            self._new.append(TopicName(topic_id, topic, at, learned_from))
