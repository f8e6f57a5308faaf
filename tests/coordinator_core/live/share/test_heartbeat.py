"""Heartbeats of share groups: who may join and stay, when the epoch grows, what a member gets, who is found dead."""

import pytest

from coordinator_core.live.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.coordinator.image import Topic
from coordinator_core.live.share import target
from coordinator_core.live.share.live import METADATA_REFRESH_INTERVAL_MS, ShareLive
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.share.share_clients import BAR, BAZ, FOO, ShareClients, partitions_of, refusal_of

SESSION_TIMEOUT_MS = 45_000


def two_members() -> ShareClients:
    """A group with a and b, both subscribed to foo, settled."""
    clients = ShareClients()
    clients.join_share("a", "foo")
    clients.join_share("b", "foo")
    clients.settle()
    clients.written()
    return clients


# --- joining, staying, leaving ---


@pytest.mark.parametrize(
    ("member_id", "epoch", "code", "text"),
    [
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group g."),
        ("x", -1, ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group g."),
        (
            "a",
            9,
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a greater member epoch (9) than the one known by the group coordinator (3). "
            "The member must abandon all its partitions and rejoin.",
        ),
        (
            "a",
            1,
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a smaller member epoch (1) than the one known by the group coordinator (3), "
            "and it does not match the previous member epoch (2). The member must abandon all its partitions and "
            "rejoin.",
        ),
    ],
)
def test_who_is_fenced(member_id: str, epoch: int, code: ErrorCode, text: str) -> None:
    """Strangers, and members with an epoch which they cannot have; nothing is written."""
    clients = ShareClients()
    clients.join_share("a", "foo")
    clients.join_share("b", "foo")
    clients.share_heartbeat("b")
    clients.share_heartbeat("a")
    clients.written()
    assert refusal_of(clients.try_heartbeat(member_id, epoch)) == (code, text)
    assert clients.written() == []


def test_a_member_may_be_one_epoch_behind() -> None:
    """The answer with its last epoch may be lost; also it may always join again."""
    clients = two_members()
    member = clients.share_group.members["a"]
    assert member.previous_member_epoch < member.member_epoch
    for epoch in (member.previous_member_epoch, 0):
        outcome = clients.try_heartbeat("a", epoch, "foo")
        assert outcome.error is None
        assert partitions_of(outcome.response) == member.assigned
    assert clients.written() == []


def test_who_asks_for_a_group_which_is_not_there() -> None:
    """Only a joining member makes one; a group of another type is not found."""
    clients = ShareClients()
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal_of(clients.try_heartbeat("a", 1)) == (not_found, "Share group g not found.")
    assert refusal_of(clients.try_heartbeat("a", -1)) == (not_found, "Group g not found.")
    clients.commit()
    for epoch in (0, 1, -1):
        outcome = clients.try_heartbeat("a", epoch, "foo")
        assert refusal_of(outcome) == (not_found, "Group g is not a share group.")


def test_a_full_group_takes_nobody_else() -> None:
    """Who is a member stays one, and comes back after leaving."""
    clients = ShareClients(group_share_max_size=1)
    clients.join_share("a", "foo")
    assert refusal_of(clients.try_heartbeat("b", 0, "foo")) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    assert clients.try_heartbeat("a", 0, "foo").error is None
    clients.try_heartbeat("a", -1)
    assert clients.try_heartbeat("b", 0, "foo").error is None


def test_a_session_is_as_long_as_the_groups_own_setting_says() -> None:
    """`share.session.timeout.ms` and `share.heartbeat.interval.ms` of the group come before the broker's."""
    clients = ShareClients()
    clients.coordinator.group_settings[GROUP] = {"share_session_timeout_ms": 10, "share_heartbeat_interval_ms": 7}
    assert clients.join_share("a", "foo").heartbeat_interval_ms == 7
    clients.wait(10)
    assert not clients.share_group.members


# --- subscriptions, topics, epochs ---


def test_a_topic_of_others_is_not_looked_at() -> None:
    """A change of a topic which the group does not read lets its hash hold, for some 25 days."""
    clients = two_members()
    live = clients.coordinator.live(ShareLive)
    before = live.refreshes[GROUP]
    clients.take_image(clients.coordinator.image.without_topic("bar"), "bar")
    assert live.refreshes[GROUP] is before
    assert before.deadline_ms <= clients.now_ms + METADATA_REFRESH_INTERVAL_MS
    clients.take_image(clients.coordinator.image.without_topic("foo"), "foo")
    assert GROUP not in live.refreshes


def test_the_interval_ends_to_the_millisecond() -> None:
    """It counts from the last target; the first target waits for nothing."""
    clients = ShareClients(group_share_assignment_interval_ms=2_000_000)
    clients.join_share("a", "foo")
    group = clients.share_group
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    for moment_ms, assignment_epoch in ((1_999_999, 2), (2_000_000, 3)):
        clients.now_ms = group.assignment_timestamp_ms + moment_ms - 1
        clients.share_heartbeat("a")
        assert clients.share_group.assignment_epoch == assignment_epoch


def test_a_member_drops_what_it_no_longer_reads_before_there_is_a_target() -> None:
    """Within the interval its epoch stays, and only its own subscription is looked at."""
    clients = ShareClients(group_share_assignment_interval_ms=1000)
    clients.join_share("a", "foo", "bar")
    clients.wait(1000)
    epoch = clients.share_heartbeat("a").member_epoch
    response = clients.share_heartbeat("a", "bar")
    assert (response.member_epoch, partitions_of(response)) == (epoch, {BAR: (0, 1)})
    assert clients.share_group.group_epoch == epoch + 1


def test_only_targets_which_changed_are_written() -> None:
    """Another member with another topic leaves the others alone."""
    clients = two_members()
    clients.join_share("c", "baz")
    assert clients.written().count(13) == 1
    clients.share_heartbeat("c")
    assert clients.written().count(13) == 1


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


def test_describe() -> None:
    """Members with their assignment by topic name; what is gone is left out; other groups are not found."""
    clients = ShareClients()
    clients.join_share("a", "foo", "bar")
    clients.settle()
    described, missing = clients.ask("share_group_describe", (GROUP, "x")).response
    assert (described.group_state, described.assignor_name, described.group_epoch) == ("Stable", "simple", 3)
    (member,) = described.members
    assert {topic.topic_name: topic.partitions for topic in member.assignment.topic_partitions} == {
        "foo": (0, 1, 2),
        "bar": (0, 1),
    }
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")
    clients.take_image(clients.coordinator.image.without_topic("foo"), "foo")
    (member,) = clients.ask("share_group_describe", (GROUP,)).response[0].members
    assert [topic.topic_name for topic in member.assignment.topic_partitions] == ["bar"]


def test_partitions_beyond_the_hash_table_are_no_news() -> None:
    """Sets of numbers from 16 on have another order in a record than in the state; the member gets no second answer."""
    clients = ShareClients()
    clients.take_image(clients.coordinator.image.with_topic(Topic("foo", FOO, 20)), "foo")
    clients.join_share("a", "foo", "bar")
    clients.join_share("b", "foo")
    clients.settle()
    clients.join_share("c", "baz")
    clients.settle()
    epoch = clients.share_group.group_epoch
    clients.take_image(clients.coordinator.image.with_topic(Topic("baz", BAZ, 2)), "baz")
    clients.share_heartbeat("c")
    assert clients.share_group.group_epoch == epoch + 1
    assert max(clients.share_group.members["b"].assigned[FOO]) >= 16
    assert partitions_of(clients.share_heartbeat("b")) is None
    assert clients.share_group.members["b"].member_epoch == epoch + 1
