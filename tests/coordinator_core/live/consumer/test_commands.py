"""Tests of consumer groups as their coordinator runs them: ConsumerGroupHeartbeat and what follows from it."""

import pytest
from msgspec.structs import replace

from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.modern_messages import HeartbeatResponse, TopicPartitions
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerGroupState
from coordinator_core.replay.share.state import ShareGroup
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.members import (
    CURRENT,
    GROUP,
    LEGACY,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    A,
    B,
    Members,
    reported,
    shown,
)

SESSION_MS = 45_000
JOINED = [MEMBER, GROUP, TARGET, TARGET_EPOCH, CURRENT]


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


def test_the_first_member_gets_everything() -> None:
    """A fresh group is at epoch 1; its first bump gives 2, and the member is reconciled in the same heartbeat."""
    members = Members()
    response = members.join("m0", "a", "b")
    assert isinstance(response, HeartbeatResponse)
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m0", 2, 5000)
    assert reported(response) == "a0 a1 a2 b0 b1"
    assert members.kinds() == JOINED
    assert (members.group.group_epoch, members.group.assignment_epoch) == (2, 2)
    assert members.group.state == ConsumerGroupState.STABLE


def test_other_fields_do_not_bump_the_epoch() -> None:
    """A new rack is written, no more; what a request leaves out stays."""
    members = two_members()
    members.heartbeat("m0", rack_id="r")
    assert members.kinds() == [MEMBER]
    assert (members.member("m0").rack_id, members.member("m0").rebalance_timeout_ms) == ("r", 5000)


def test_a_full_group_takes_nobody_new() -> None:
    """Its members may come back."""
    members = Members(group_consumer_max_size=1)
    members.join("m0", "a")
    assert members.join("m1", "a") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(members.join("m0", "a"), HeartbeatResponse)


# --- the target ---


def test_the_target_waits_for_the_interval() -> None:
    """Until then the group is Assigning, and a new member is reconciled to the old target, with nothing."""
    members = Members(group_consumer_assignment_interval_ms=1000)
    members.join("m0", "a")
    members.wait(999)
    assert reported(members.join("m1", "a")) == ""
    assert members.kinds() == [MEMBER, GROUP, CURRENT]
    assert members.group.state == ConsumerGroupState.ASSIGNING
    members.wait(1)
    members.heartbeat("m1")
    assert members.kinds() == [TARGET, TARGET, TARGET_EPOCH, CURRENT]
    assert members.group.assignment_epoch == 3


def test_new_partitions_are_assigned_at_the_next_heartbeat() -> None:
    """The hash of the topics has changed: any member's heartbeat sees it, once."""
    members = Members()
    members.join("m0", "a", "b")
    members.heartbeat("m0")
    members.set_topic("b", B, 4)
    assert reported(members.heartbeat("m0")) == "a0 a1 a2 b0 b1 b2 b3"
    assert members.kinds() == [GROUP, TARGET, TARGET_EPOCH, CURRENT]
    members.heartbeat("m0")
    assert members.kinds() == []


def test_the_record_of_old_brokers_goes_with_the_next_look_at_the_topics() -> None:
    """ConsumerGroupPartitionMetadata gets a tombstone after the group epoch."""
    members = two_members()
    put_group(members, replace(members.group, has_legacy_partition_metadata=True))
    members.heartbeat("m0", subscribed_topic_names=("a",))
    assert members.kinds()[:3] == [MEMBER, GROUP, LEGACY]
    assert not members.group.has_legacy_partition_metadata


# --- epochs ---


@pytest.mark.parametrize(
    ("epoch", "owned", "expected"),
    [
        (3, "", ErrorCode.NONE),
        (4, "", ErrorCode.FENCED_MEMBER_EPOCH),
        (2, "", ErrorCode.NONE),
        (2, "a0", ErrorCode.NONE),
        (2, "a0 a1 a2 b0 b1", ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, "", ErrorCode.FENCED_MEMBER_EPOCH),
        (0, "", ErrorCode.NONE),
    ],
)
def test_epochs(epoch: int, owned: str | None, expected: ErrorCode) -> None:
    """m0 is at epoch 3 and was at 2: then it may own no more than it was assigned, for it may not have got 3 yet."""
    members = Members()
    members.join("m0", "a", "b", server_assignor="range")
    members.join("m1", "a", "b", server_assignor="range")
    members.heartbeat("m0")
    members.heartbeat("m0")
    assert shown(members.member("m0").assigned) == "a0 a1 b0"
    assert (members.member("m0").member_epoch, members.member("m0").previous_member_epoch) == (3, 2)
    partitions = (
        None
        if owned is None
        else tuple(TopicPartitions({"a": A, "b": B}[name[0]], (int(name[1]),)) for name in owned.split())
    )
    answer = members.heartbeat("m0", epoch=epoch, topic_partitions=partitions)
    assert (ErrorCode.NONE if isinstance(answer, HeartbeatResponse) else answer) == expected


def test_who_is_unknown_has_to_join() -> None:
    """The group, then the member."""
    members = Members()
    assert members.heartbeat("m0", epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    members.join("m0", "a")
    assert members.heartbeat("m1", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert members.heartbeat("m1", epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_of_other_types_are_no_consumer_groups() -> None:
    """A share group stays one; an empty classic group gives way to who joins, after a tombstone."""
    members = Members()
    shard = members.coordinator.shard
    groups = shard.groups.groups.set("g", ShareGroup("g"))
    members.coordinator.shard = replace(shard, groups=replace(shard.groups, groups=groups))
    assert members.join("m0", "a") == ErrorCode.GROUP_ID_NOT_FOUND
    assert members.heartbeat("m0", epoch=-1) == ErrorCode.GROUP_ID_NOT_FOUND
    members = Members()
    members.coordinator.classic_groups["g"] = LiveClassicGroup("g")
    assert members.heartbeat("m0", epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert reported(members.join("m0", "b")) == "b0 b1"
    assert members.kinds()[1:] == JOINED
    assert not members.coordinator.classic_groups


# --- static members ---


def test_a_static_member_comes_back_under_another_id() -> None:
    """Away, it keeps its partitions; back, it has them, and nobody rebalances."""
    members = two_members()
    members.join("s0", "a", "b", instance_id="i")
    members.converge("m0", "m1", "s0")
    partition_epochs = shown(members.member("s0").assigned)
    group_epoch = members.group.group_epoch
    members.heartbeat("s0", epoch=-2, instance_id="i")
    assert members.kinds() == [CURRENT]
    assert members.member("s0").member_epoch == -2
    assert {epoch for topic in members.member("s0").assigned.values() for epoch in topic.values()} == {0}
    assert reported(members.join("s1", "a", "b", instance_id="i")) == partition_epochs
    assert members.kinds() == [CURRENT, TARGET, MEMBER, MEMBER, TARGET, CURRENT, CURRENT]
    assert members.group.group_epoch == group_epoch
    assert dict(members.group.static_members.items()) == {"i": "s1"}
    members.wait(SESSION_MS - 1)
    members.heartbeat("s1", instance_id="i")
    members.wait(1)
    assert "s1" in members.group.members, "the session of the old id ends nothing"


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "expected"),
    [
        ("s1", 0, "i", ErrorCode.UNRELEASED_INSTANCE_ID),
        ("s1", 2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s1", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s1", -2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s0", 2, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("s0", -2, "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_instance_id_has_one_member(member_id: str, epoch: int, instance_id: str, expected: ErrorCode) -> None:
    """As long as that one has not left."""
    members = Members()
    members.join("s0", "a", instance_id="i")
    assert members.heartbeat(member_id, epoch=epoch, instance_id=instance_id) == expected
    assert members.kinds() == []


def test_a_static_member_may_leave_for_good() -> None:
    """Its instance id is free then."""
    members = Members()
    members.join("s0", "a", instance_id="i")
    members.heartbeat("s0", epoch=-1, instance_id="i")
    assert not members.group.static_members


# --- describe ---


def test_describe() -> None:
    """What members own includes what they are still to give up; groups which are none are errors of their own."""
    members = Members()
    members.join("m0", "a", server_assignor="range")
    members.join("m1", "a", server_assignor="range")
    members.heartbeat("m0")
    members.coordinator.classic_groups["k"] = LiveClassicGroup("k")
    answer = members.coordinator.handle("consumer_group_describe", ("g", "none", "k"), now_ms=members.now_ms)
    group, unknown, classic = answer.response
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "range"
    first = next(member for member in group.members if member.member_id == "m0")
    assert [(topic.topic_name, topic.partitions) for topic in first.assignment.topic_partitions] == [("a", (0, 1, 2))]
    assert [topic.partitions for topic in first.target_assignment.topic_partitions] == [(0, 1)]
    assert first.member_type == 1
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    assert classic.error_message == "Group k is not a consumer group."


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
