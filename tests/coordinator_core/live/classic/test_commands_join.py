"""Tests of JoinGroup: who is let in, and how the join phase ends."""

from coordinator_core.live.classic.live import PREPARING_REBALANCE, STABLE
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import Clients, state_of


def test_a_pending_id_is_no_static_members() -> None:
    """Who asked for it had no group instance id."""
    clients = Clients()
    member_id = clients.answers[clients.join(api_version=4)].member_id
    number = clients.join(member_id, instance="i")
    assert clients.answers[number].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert clients.group.pending_join_members == {member_id}


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
