"""State as plain JSON, with the names of Kafka's own objects, for comparisons and for people.

What Kafka derives (group states, subscription types, subscribed topics) is derived here by its rules. Each group id has
one object with `group` (absent where only offsets or share partitions are known), `offsets`, `pendingTxnOffsets` and
`shareStatePartitions`, each absent when empty. Times are in milliseconds, bytes in hexadecimal, numeric keys are
strings as in all JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from coordinator_core.bytes.codec import decode
from coordinator_core.errors import DecodeError
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, MemberState
from coordinator_core.replay.consumer.subscriptions import SubscriptionType, subscription_type, subscriptions_of
from coordinator_core.replay.dispatch import CoordinatorShard, Group
from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions, ShareMember
from coordinator_core.replay.streams.state import NO_MEMBER_STATE, StreamsGroup, StreamsMember, Topology
from schemas.client_protocols import CONSUMER_PROTOCOL_SUBSCRIPTION
from schemas.wire import camel_case

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NONE_KNOWN: Final = -1
"""An absent leader epoch or expiry time, as in the records."""
VERSION_BYTES: Final = 2
"""Subscriptions start with their version."""
ZERO_UUID: Final = "A" * 22
TASK_STATE_NAMES: Final[Mapping[int, str | None]] = {
    NO_MEMBER_STATE: None,
    1: "STABLE",
    2: "UNREVOKED_TASKS",
    3: "UNRELEASED_TASKS",
}
"""MemberState of streams groups; any other number is UNKNOWN."""

Json = dict[str, Any]


def dump_shard(shard: CoordinatorShard) -> dict[str, Json]:
    """Group id -> dump, for every id with any state."""
    dumps: dict[str, Json] = defaultdict(dict)
    for group_id, group in shard.groups.groups.items():
        dumps[group_id]["group"] = _group(group)
    for group_id, partitions in shard.groups.share_partitions.items():
        dumps[group_id]["shareStatePartitions"] = _state_partitions(partitions)
    for key, committed in shard.offsets.offsets.items():
        _put_offset(dumps[key.group].setdefault("offsets", {}), key, committed)
    for producer_id, pending in shard.offsets.pending.items():
        for key, committed in pending.items():
            producers = dumps[key.group].setdefault("pendingTxnOffsets", {})
            _put_offset(producers.setdefault(str(producer_id), {}), key, committed)
    return dict(dumps)


def _fields(source: object, *names: str) -> Json:
    """Attributes of an object, under Kafka's names."""
    return {camel_case(name): getattr(source, name) for name in names}


def _put_offset(topics: dict[str, Json], key: OffsetKey, committed: CommittedOffset) -> None:
    names = ("leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset")
    found = _fields(committed, *names)
    topics.setdefault(key.topic, {})[str(key.partition)] = {
        "offset": committed.committed_offset,
        **{name: NONE_KNOWN if value is None else value for name, value in found.items()},
        "topicId": committed.topic_id or ZERO_UUID,
    }


def _group(group: Group) -> Json:
    match group:
        case ClassicGroup():
            return _classic_group(group)
        case ConsumerGroup():
            return _consumer_group(group)
        case ShareGroup():
            return _share_group(group)
        case StreamsGroup():
            return _streams_group(group)


def _classic_group(group: ClassicGroup) -> Json:
    members = {
        member.member_id: classic_member(member, [(group.protocol_name, member.subscription)])
        for member in group.members.values()
    }
    subscriptions = [member.subscription for member in group.members.values()]
    topics = subscribed_topics(group.protocol_type, group.protocol_name, subscriptions)
    return classic_group(group, members, (), topics)


def classic_group(group: Any, members: Json, pending_join: Iterable[str], topics: Iterable[str] | None) -> Json:
    """A classic group, replayed or live."""
    return {
        "type": "classic",
        "state": group.state.value,
        **_fields(group, "generation_id", "protocol_type", "protocol_name", "leader"),
        "pendingJoinMembers": sorted(pending_join),
        "subscribedTopics": None if topics is None else sorted(topics),
        "members": members,
    }


def classic_member(
    member: Any, protocols: Iterable[tuple[str | None, bytes]], *, awaits_join: bool = False, awaits_sync: bool = False
) -> Json:
    """A member of a classic group, replayed or live."""
    return {
        "instanceId": member.group_instance_id,
        **_fields(member, "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms"),
        "protocols": [{"name": name, "metadata": metadata.hex()} for name, metadata in protocols],
        "assignment": member.assignment.hex(),
        "awaitingJoin": awaits_join,
        "awaitingSync": awaits_sync,
    }


def subscribed_topics(
    protocol_type: str | None, protocol_name: str | None, subscriptions: Collection[bytes]
) -> frozenset[str] | None:
    """Topics of all members of a classic group, or None if they are unknown (ClassicGroup.computeSubscribedTopics)."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if not subscriptions:
        return frozenset()
    if protocol_name is None:
        return None
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            # Kafka reads every version as 0: later versions only append fields.
            topics.update(decode(CONSUMER_PROTOCOL_SUBSCRIPTION, subscription, 0, position=VERSION_BYTES).topics)
    except DecodeError:
        return None
    return frozenset(topics)


def _modern_group(group: ConsumerGroup | ShareGroup, group_type: str, kind: SubscriptionType) -> Json:
    by_name = _name_counts(group)
    return {
        "type": group_type,
        **_epochs_of(group),
        "assignmentTimestamp": group.assignment_timestamp_ms,
        "metadataHash": group.metadata_hash,
        "subscriptionType": kind.name,
        "subscribedTopicNameCounts": dict(sorted(by_name.items())),
        "targetAssignment": {member_id: _lists(target) for member_id, target in group.target_assignment.items()},
    }


def _epochs_of(group: ConsumerGroup | ShareGroup | StreamsGroup) -> Json:
    return {
        "state": group.state.value,
        **_fields(group, "group_epoch", "assignment_epoch"),
    }


def _modern_member(member: ConsumerMember | ShareMember) -> Json:
    return {
        **_fields(member, "member_epoch", "previous_member_epoch", "rack_id", "client_id", "client_host"),
        "subscribedTopicNames": sorted(set(member.subscribed_topic_names)),
    }


def _name_counts(group: ConsumerGroup | ShareGroup) -> Counter[str]:
    return Counter(name for member in group.members.values() for name in set(member.subscribed_topic_names))


def _consumer_group(group: ConsumerGroup) -> Json:
    known = subscriptions_of(group)
    return {
        **_modern_group(group, "consumer", known.subscription_type),
        "subscribedTopicNameCounts": {topic: known.by_name[topic] for topic in sorted(known.topic_names)},
        "resolvedRegexes": {
            regex: {
                "topics": sorted(set(resolved.topics)),
                "version": resolved.version,
                "timestamp": resolved.timestamp_ms,
            }
            for regex, resolved in group.resolved_regexes.items()
        },
        "staticMembers": dict(group.static_members.items()),
        "members": {member.member_id: _consumer_member(member) for member in group.members.values()},
    }


def _consumer_member(member: ConsumerMember) -> Json:
    return {
        **_modern_member(member),
        "state": member.state.name,
        **_fields(member, "instance_id", "rebalance_timeout_ms", "subscribed_topic_regex", "server_assignor"),
        "useClassicProtocol": member.classic_member_metadata is not None,
        "assigned": _epochs(member.assigned),
        "pendingRevocation": _epochs(member.pending_revocation),
    }


def _share_group(group: ShareGroup) -> Json:
    kind = subscription_type(_name_counts(group), Counter(), Counter(), len(group.members))
    return {
        **_modern_group(group, "share", kind),
        "members": {member.member_id: _share_member(member) for member in group.members.values()},
    }


def _share_member(member: ShareMember) -> Json:
    names = {known.value: known.name for known in MemberState}
    return {
        **_modern_member(member),
        "state": names.get(member.state, MemberState.UNKNOWN.name),
        "instanceId": None,
        "assigned": _lists(member.assigned),
    }


def _state_partitions(partitions: ShareGroupStatePartitions) -> Json:
    return {
        "initializing": {topic_id: list(numbers) for topic_id, (_, numbers) in partitions.initializing.items()},
        "initialized": {topic_id: list(numbers) for topic_id, (_, numbers) in partitions.initialized.items()},
        "deleting": sorted(partitions.deleting),
    }


def _streams_group(group: StreamsGroup) -> Json:
    return {
        "type": "streams",
        **_epochs_of(group),
        **_fields(group, "validated_topology_epoch"),
        "endpointInformationEpoch": 0,
        "topology": None if group.topology is None else _topology(group.topology),
        "targetAssignment": {
            member_id: {kind: _lists(getattr(target, kind)) for kind in ("active", "standby", "warmup")}
            for member_id, target in group.target_assignment.items()
        },
        "lastAssignmentConfigs": dict(group.last_assignment_configs),
        "members": {member.member_id: _streams_member(member) for member in group.members.values()},
    }


def _topology(topology: Topology) -> Json:
    return {
        "epoch": topology.epoch,
        "subtopologySourceTopics": {
            subtopology.subtopology_id: sorted(set(subtopology.source_topics)) for subtopology in topology.subtopologies
        },
    }


def _streams_member(member: StreamsMember) -> Json:
    """Dump of a member. A field whose record was never read is null."""
    metadata = {
        **_fields(member, "client_id", "client_host", "rebalance_timeout_ms", "topology_epoch", "process_id"),
        "clientTags": dict(member.client_tags),
    }
    current = {
        **_fields(member, "member_epoch", "previous_member_epoch"),
        "state": TASK_STATE_NAMES.get(member.state, "UNKNOWN"),
        "activeAssigned": _epochs(member.active),
        "standbyAssigned": _lists(member.standby),
        "warmupAssigned": _lists(member.warmup),
        "activePendingRevocation": _epochs(member.active_pending_revocation),
        "standbyPendingRevocation": _lists(member.standby_pending_revocation),
    }
    return {
        **_fields(member, "instance_id", "rack_id"),
        **(metadata if member.process_id is not None else dict.fromkeys(metadata)),
        **(current if member.has_current_assignment else dict.fromkeys(current)),
    }


def _lists(partitions: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    return {name: list(numbers) for name, numbers in partitions.items()}


def _epochs(partitions: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {name: {str(partition): epoch for partition, epoch in epochs.items()} for name, epochs in partitions.items()}
