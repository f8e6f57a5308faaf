"""Tests of SyncGroup, Heartbeat, LeaveGroup and DescribeGroups of classic groups, and of what a reload leaves."""

import pytest

from coordinator_core.errors import IllegalTransition
from coordinator_core.live.classic.live import (
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    LiveClassicGroup,
    LiveMember,
)
from coordinator_core.live.classic.messages import LeaveGroupRequest, MemberIdentity
from coordinator_core.live.classic.records import group_metadata_record
from coordinator_core.live.classic.timers import EXPIRE_SYNC
from coordinator_core.replay.classic.replay import classic_group
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import REBALANCE_TIMEOUT_MS, Clients, state_of


def joined(count: int = 2) -> tuple[Clients, list[str]]:
    """A group in its sync phase; members, the leader first."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    numbers = [clients.join() for _ in range(count)]
    clients.wait(0)
    leader = clients.group.leader
    members = [clients.answers[number].member_id for number in numbers]
    return clients, sorted(members, key=lambda member_id: member_id != leader)


def test_a_sync_out_of_place_is_refused() -> None:
    """No group, an empty one, one that rebalances, one that is dead."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    assert clients.answers[clients.sync("m", generation_id=1)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = clients.stable_members(2)
    clients.join(leader)
    assert clients.answers[clients.sync(leader)].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    clients.group.state = DEAD
    assert clients.answers[clients.sync(leader)].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    clients.group.state = EMPTY
    assert clients.answers[clients.sync(leader)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_cannot_be_written_starts_a_rebalance() -> None:
    """All who wait get the error; nobody is assigned anything."""
    clients, (leader, follower) = joined()
    early = clients.sync(follower)
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    number = clients.sync(leader, {leader: b"mine"})
    assert clients.answers[number].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.answers[early].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.group.state == PREPARING_REBALANCE
    assert {member.assignment for member in clients.group.members.values()} == {b""}


def test_wrong_heartbeats_are_refused() -> None:
    """By group, member, generation."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    assert clients.heartbeat("m", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    (member_id,) = clients.stable_members(1)
    assert clients.heartbeat("m") == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients.heartbeat(member_id, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    clients.group.state = DEAD
    assert clients.heartbeat(member_id) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_leaving() -> None:
    """One by one and together, by member id, by instance id, and by an id which is only pending."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    static_number, number = clients.join(instance="i"), clients.join()
    clients.wait(0)
    static, dynamic = clients.answers[static_number].member_id, clients.answers[number].member_id
    pending = clients.answers[clients.join(api_version=5)].member_id
    codes = clients.leave((pending, None), ("", "i"), ("", "nobody"), ("", None), (static, None), (dynamic, "i"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [0, 0, unknown, unknown, unknown, unknown]
    assert state_of(clients) == PREPARING_REBALANCE
    assert set(clients.group.members) == {dynamic}
    assert clients.leave((dynamic, None)) == [0]
    assert state_of(clients) == EMPTY
    assert clients.records[-1].record.value is not None
    assert clients.coordinator.timers.get(f"heartbeat-g-{pending}") is None


def test_nobody_leaves_a_group_that_is_not_there() -> None:
    """The whole request is refused; a dead group answers with an error of its own."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    outcome = clients.ask("classic_leave", LeaveGroupRequest("g", (MemberIdentity("m"),)))
    assert outcome.error is not None
    assert outcome.error.code == ErrorCode.UNKNOWN_MEMBER_ID
    clients.stable_members(1)
    clients.group.state = DEAD
    outcome = clients.ask("classic_leave", LeaveGroupRequest("g", (MemberIdentity("m"),)))
    assert outcome.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_that_is_too_large_when_loaded_rebalances() -> None:
    """The limit was lowered meanwhile: those who rejoin first find room."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    first, second = clients.stable_members(2)
    clients.coordinator.config = type(clients.coordinator.config)(group_max_size=1)
    clients.coordinator.reload(now_ms=clients.now_ms)
    assert clients.group.state == PREPARING_REBALANCE
    clients.join(first)
    assert clients.answers[clients.join(second)].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_timers_of_a_group_that_is_gone_do_nothing() -> None:
    """A group of another type may have its id by now."""
    for is_initial in (True, False):
        clients = Clients(group_initial_rebalance_delay_ms=0)
        if is_initial:
            clients.join()
        else:
            leader, follower = clients.stable_members(2)
            clients.sync(follower)
            clients.join(leader)
        clients.coordinator.timers.schedule("sync-g", clients.now_ms + 1, EXPIRE_SYNC, ("g", 1))
        before = len(clients.records)
        clients.coordinator.classic_groups.clear()
        clients.coordinator.shard = type(clients.coordinator.shard)()
        clients.wait(REBALANCE_TIMEOUT_MS)
        assert {key.split("-")[0] for key in clients.fired} >= {"heartbeat", "join", "sync"} or is_initial
        assert len(clients.records) == before


def test_a_dead_group_takes_nobody() -> None:
    """The client looks for the coordinator again."""
    clients = Clients()
    clients.join()
    clients.group.state = DEAD
    assert clients.answers[clients.join()].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_topics_that_cannot_be_read_are_not_known() -> None:
    """Metadata which is no subscription: the group counts as subscribed to everything."""
    group = LiveClassicGroup("g", protocol_type="consumer")
    assert group.compute_subscribed_topics() == frozenset()
    group.add(LiveMember("m", None, "c", "h", 1, 1, "consumer", (("range", b"\x00"),)))
    assert group.compute_subscribed_topics() is None
    group.protocol_name = "range"
    assert group.compute_subscribed_topics() is None
    assert group.is_subscribed_to("t")
    group.remove("nobody")
    assert set(group.members) == {"m"}


def test_an_illegal_transition_changes_nothing() -> None:
    """States follow each other as the table says."""
    group = LiveClassicGroup("g")
    with pytest.raises(IllegalTransition):
        group.transition_to(STABLE, 5)
    assert group.state == EMPTY
    assert group.current_state_timestamp_ms is None


def test_a_load_fills_the_table_of_members_in_the_order_of_the_record() -> None:
    """Two ids whose bucket is one: the first of the record comes first, whatever their order as texts."""
    first, second = "client-0b5e64b1-cbf1-439c-99d0-d6252c94c990", "client-0b1ece20-6b3d-4813-8990-66c4d9ce1d5b"
    for member_ids in ((first, second), (second, first)):
        group = LiveClassicGroup("g", generation_id=1, protocol_name="range")
        for member_id in member_ids:
            group.add(LiveMember(member_id, None, "c", "h", 1, 1, "consumer", (("range", b""),)))
        value = group_metadata_record(group, {}).value
        assert value is not None
        loaded = LiveClassicGroup.of(classic_group("g", value, lambda anomaly: None))
        assert [member.member_id for member in loaded.members_in_hash_order()] == list(member_ids)
