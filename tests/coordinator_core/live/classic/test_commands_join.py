"""Tests of JoinGroup: who is let in, and how the join phase ends."""

import pytest

from coordinator_core.live.classic.live import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import REBALANCE_TIMEOUT_MS, Clients, state_of


def test_from_version_4_on_a_new_member_gets_its_id_first() -> None:
    """The id is pending until it joins with it; then it is a member like others."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    first = clients.join(api_version=4)
    assert clients.answers[first].error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id = clients.answers[first].member_id
    assert clients.group.pending_join_members == {member_id}
    assert clients.group.members == {}
    second = clients.join(member_id, api_version=4)
    clients.wait(0)
    assert clients.answers[second].generation_id == 1
    assert clients.group.pending_join_members == set()


def test_a_pending_id_is_no_static_members() -> None:
    """Who asked for it had no group instance id."""
    clients = Clients()
    member_id = clients.answers[clients.join(api_version=4)].member_id
    number = clients.join(member_id, instance="i")
    assert clients.answers[number].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert clients.group.pending_join_members == {member_id}


@pytest.mark.parametrize(
    ("protocols", "protocol_type", "code"),
    [((), "consumer", ErrorCode.INCONSISTENT_GROUP_PROTOCOL), (("range",), "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)],
)
def test_the_first_member_needs_a_protocol(protocols: tuple[str, ...], protocol_type: str, code: ErrorCode) -> None:
    """Without type or without any protocol nobody may join; the group is made all the same."""
    clients = Clients()
    number = clients.join(protocols=protocols, protocol_type=protocol_type)
    assert clients.answers[number].error_code == code
    assert clients.group.state == EMPTY
    assert len(clients.records) == 1


@pytest.mark.parametrize(("protocols", "protocol_type"), [(("sticky",), "consumer"), (("range",), "connect")])
def test_others_need_a_common_protocol(protocols: tuple[str, ...], protocol_type: str) -> None:
    """Of the group's type, and one which all members support."""
    clients = Clients()
    clients.join(protocols=("range", "roundrobin"))
    number = clients.join(protocols=protocols, protocol_type=protocol_type)
    assert clients.answers[number].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(clients.group.members) == 1


def test_the_protocol_with_most_votes_wins() -> None:
    """Each votes for the first on its list which all support."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    clients.join(protocols=("only-mine", "roundrobin", "range"))
    clients.join(protocols=("range", "roundrobin"))
    clients.join(protocols=("range", "roundrobin"))
    clients.wait(0)
    assert {answer.protocol_name for answer in clients.answers.values()} == {"range"}


def test_a_follower_that_rejoins_unchanged_learns_what_holds() -> None:
    """No rebalance: its answer may have been lost. A leader that rejoins asks for a rebalance."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    leader, follower = clients.stable_members(2)
    again = clients.join(follower)
    assert clients.answers[again].generation_id == 1
    assert clients.answers[again].members == ()
    assert state_of(clients) == STABLE
    clients.join(leader)
    assert state_of(clients) == PREPARING_REBALANCE


def test_who_does_not_rejoin_in_time_is_out() -> None:
    """After the rebalance time-out the phase ends without it, and another leads."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    leader, follower = clients.stable_members(2, session_timeout_ms=2 * REBALANCE_TIMEOUT_MS)
    waiting = clients.join(follower, topics=("u",), session_timeout_ms=2 * REBALANCE_TIMEOUT_MS)
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert clients.answers[waiting].leader == follower
    assert set(clients.group.members) == {follower}
    assert clients.coordinator.timers.get(f"heartbeat-g-{leader}") is None


def test_a_static_member_may_miss_the_join_phase() -> None:
    """It stays, but does not lead any more; where nobody is there the phase is prolonged."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    timeout_ms = 10 * REBALANCE_TIMEOUT_MS
    first = clients.join(instance="i", session_timeout_ms=timeout_ms)
    second = clients.join(session_timeout_ms=timeout_ms)
    clients.wait(0)
    static, dynamic = clients.answers[first].member_id, clients.answers[second].member_id
    assert clients.answers[first].leader == static
    waiting = clients.join(dynamic, topics=("u",), session_timeout_ms=timeout_ms)
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert clients.answers[waiting].leader == dynamic
    assert set(clients.group.members) == {static, dynamic}
    clients.leave((dynamic, None))
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert state_of(clients) == PREPARING_REBALANCE
    assert clients.coordinator.timers.get("join-g") is not None
    clients.join(static, instance="i", session_timeout_ms=timeout_ms)
    assert state_of(clients) == COMPLETING_REBALANCE


def test_a_new_members_join_is_timed() -> None:
    """It sends no heartbeats: after five minutes its JoinGroup is answered, and it is out."""
    clients = Clients(group_initial_rebalance_delay_ms=400_000)
    number = clients.join(rebalance_timeout_ms=1_000_000)
    clients.wait(299_999)
    assert clients.answers == {}
    clients.wait(1)
    assert clients.answers[number].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients.group.members == {}


def test_a_static_member_that_comes_back_replaces_itself() -> None:
    """In a stable group with an unchanged protocol: the same generation is written, without a rebalance."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    (old,) = clients.stable_members(1, instance="i")
    written = len(clients.records)
    number = clients.join(instance="i", api_version=9)
    new = clients.answers[number].member_id
    assert new != old
    assert clients.answers[number].skip_assignment is True
    assert [member.member_id for member in clients.answers[number].members] == [new]
    assert clients.group.state == STABLE
    value = clients.records[written].record.value
    assert value is not None
    assert value.generation == 1
    assert [(member.member_id, member.assignment) for member in value.members] == [(new, old.encode())]
    assert clients.heartbeat(old, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert clients.heartbeat(new, instance="i") == ErrorCode.NONE


def test_a_follower_that_comes_back_does_not_lead() -> None:
    """The answer names the leader, which stays what it was."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    first, second = clients.join(instance="i"), clients.join(instance="j")
    clients.wait(0)
    instances = {clients.answers[first].member_id: "i", clients.answers[second].member_id: "j"}
    leader = clients.group.leader
    assert leader is not None
    for member_id, instance in instances.items():
        clients.sync(member_id, instance=instance)
    other = next(instance for member_id, instance in instances.items() if member_id != leader)
    answer = clients.answers[clients.join(instance=other)]
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader, False, ())
    assert clients.group.leader == leader


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    """The choice of the next generation would be another."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    clients.stable_members(1, instance="i", protocols=("range", "sticky"))
    number = clients.join(instance="i", protocols=("sticky",))
    assert clients.answers[number].generation_id == 2
    assert clients.answers[number].protocol_name == "sticky"


def test_who_waits_under_an_old_id_is_fenced() -> None:
    """Its JoinGroup in the join phase; its SyncGroup in the sync phase, which then ends."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    first = clients.join(instance="i")
    second = clients.join(instance="i")
    assert clients.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    other = clients.join()
    clients.wait(0)
    static, dynamic = clients.answers[second].member_id, clients.answers[other].member_id
    follower = next(member_id for member_id in (static, dynamic) if member_id != clients.group.leader)
    waiting = clients.sync(follower)
    clients.join(instance="i")
    assert clients.group.state == PREPARING_REBALANCE
    expected = ErrorCode.FENCED_INSTANCE_ID if follower == static else ErrorCode.REBALANCE_IN_PROGRESS
    assert clients.answers[waiting].error_code == expected


def test_a_replacement_that_cannot_be_written_is_undone() -> None:
    """The static member keeps its old id, protocols and time-outs."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    (old,) = clients.stable_members(1, instance="i", protocols=("range", "sticky"))
    before = clients.coordinator.dump()
    clients.log.next_error = ErrorCode.REQUEST_TIMED_OUT
    number = clients.join(instance="i", protocols=("range",), session_timeout_ms=33)
    assert clients.answers[number].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.answers[number].leader == old
    assert clients.coordinator.dump() == before
    assert clients.group.supported_protocols == {"range": 1, "sticky": 1}
    assert clients.heartbeat(old, instance="i") == ErrorCode.NONE
