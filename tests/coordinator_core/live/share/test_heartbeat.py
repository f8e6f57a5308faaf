"""Heartbeats of share groups: who may join and stay, when the epoch grows, what a member gets, who is found dead."""

import pytest

from coordinator_core.live.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.share import target
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.share.share_clients import BAR, FOO, ShareClients, refusal_of


def two_members() -> ShareClients:
    """A group with a and b, both subscribed to foo, settled."""
    clients = ShareClients()
    clients.join_share("a", "foo")
    clients.join_share("b", "foo")
    clients.settle()
    clients.written()
    return clients


# --- joining, staying, leaving ---


def test_a_session_is_as_long_as_the_groups_own_setting_says() -> None:
    """`share.session.timeout.ms` and `share.heartbeat.interval.ms` of the group come before the broker's."""
    clients = ShareClients()
    clients.coordinator.group_settings[GROUP] = {"share_session_timeout_ms": 10, "share_heartbeat_interval_ms": 7}
    assert clients.join_share("a", "foo").heartbeat_interval_ms == 7
    clients.wait(10)
    assert not clients.share_group.members


# --- subscriptions, topics, epochs ---


# --- assignor ---


def test_an_assignor_which_stumbles_is_asked_again_without_what_is_not_assignable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 4.3.1 would answer every heartbeat with NoSuchElementException; here a member gets what can be given."""
    seen: list[GroupSpec] = []

    def stumbling(spec: GroupSpec) -> dict[str, dict[str, tuple[int, ...]]]:
        seen.append(spec)
        if len(seen) == 1:
            raise NoMemberLeft("once")
        return {}

    monkeypatch.setattr(target, "assign_simple", stumbling)
    members = {"a": MemberSpec((FOO,), {FOO: (0, 2), BAR: (0,)})}
    spec = GroupSpec(members, {FOO: 3}, SubscriptionType.HOMOGENEOUS, {FOO: frozenset({0, 1})})
    assert target._assign(spec) == {}
    assert seen[1].members["a"].assigned_partitions == {FOO: (0,), BAR: ()}


def test_an_assignor_which_fails_fails_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNKNOWN_SERVER_ERROR, and nothing is written."""

    def failing(spec: GroupSpec) -> dict[str, dict[str, tuple[int, ...]]]:
        raise AssignorError("no luck")

    clients = two_members()
    monkeypatch.setattr(target, "assign_simple", failing)
    epoch = clients.share_group.group_epoch
    code, text = refusal_of(clients.try_heartbeat("a", epoch, "bar"))
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert text == f"Failed to compute a new target assignment for epoch {epoch + 1}: no luck"
    assert clients.written() == []
    assert clients.share_group.group_epoch == epoch


# --- describing ---
