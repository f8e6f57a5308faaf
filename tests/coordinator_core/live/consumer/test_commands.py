"""Tests of consumer groups as their coordinator runs them: ConsumerGroupHeartbeat and what follows from it."""

from msgspec.structs import replace

from coordinator_core.live.coordinator.modern_messages import HeartbeatResponse
from coordinator_core.replay.consumer.state import ConsumerGroup
from tests.coordinator_core.live.consumer.members import (
    GROUP,
    LEGACY,
    MEMBER,
    Members,
)


def two_members() -> Members:
    """m0 and m1 share the topics a and b, and are Stable."""
    members = Members()
    members.join("m0", "a", "b")
    members.join("m1", "a", "b")
    members.converge("m0", "m1")
    return members


def put_group(members: Members, group: ConsumerGroup) -> None:
    """Let the group be as it is here."""
    shard = members.coordinator.shard
    groups = shard.groups.groups.set(group.group_id, group)
    members.coordinator.shard = replace(shard, groups=replace(shard.groups, groups=groups))


# --- joining ---


# --- the target ---


def test_the_record_of_old_brokers_goes_with_the_next_look_at_the_topics() -> None:
    """ConsumerGroupPartitionMetadata gets a tombstone after the group epoch."""
    members = two_members()
    put_group(members, replace(members.group, has_legacy_partition_metadata=True))
    members.heartbeat("m0", subscribed_topic_names=("a",))
    assert members.kinds()[:3] == [MEMBER, GROUP, LEGACY]
    assert not members.group.has_legacy_partition_metadata


# --- epochs ---


# --- static members ---


# --- describe ---


def test_settings_of_the_group_come_before_the_brokers() -> None:
    """`consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms`, `consumer.assignment.interval.ms` (KIP-848)."""
    members = Members()
    members.coordinator.group_settings["g"] = {
        "consumer_session_timeout_ms": 10,
        "consumer_heartbeat_interval_ms": 7,
        "consumer_assignment_interval_ms": 100,
    }
    first = members.join("m1", "a")
    assert isinstance(first, HeartbeatResponse)
    assert first.heartbeat_interval_ms == 7
    members.join("m2", "a")
    assert members.group.assignment_epoch < members.group.group_epoch, "the next target may not be computed yet"
    members.wait(10)
    assert not members.group.members
