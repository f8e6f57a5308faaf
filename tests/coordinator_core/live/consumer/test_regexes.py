"""Tests of subscription by pattern: when patterns are resolved, what that writes, what it does to the group."""

import pytest

from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.members import (
    CURRENT,
    GROUP,
    MEMBER,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    A,
    B,
    C,
    Members,
    reported,
    shown,
)

MIN_INTERVAL_MS = 10_000
REFRESH_MS = 600_000


def test_a_new_pattern_has_topics_once_it_is_resolved() -> None:
    """The join writes no epoch; the task does, and the next heartbeat assigns."""
    members = Members()
    assert reported(members.join("m0", regex="[ab]")) == ""
    assert members.kinds() == [MEMBER, CURRENT]
    assert (members.group.group_epoch, members.member("m0").member_epoch) == (1, 1)
    assert members.run_tasks() == ("g-regex",)
    assert members.kinds() == [REGEX, GROUP]
    assert members.group.resolved_regexes["[ab]"].topics == ("a", "b")
    assert reported(members.heartbeat("m0")) == "a0 a1 a2 b0 b1"
    assert members.run_tasks() == ()


def test_a_pattern_which_matches_nothing_bumps_no_epoch() -> None:
    """It is resolved all the same."""
    members = Members()
    members.join("m0", regex="zzz")
    members.run_tasks()
    assert members.kinds() == [REGEX]
    assert members.group.group_epoch == 1


def test_a_pattern_which_others_use_is_there_at_once() -> None:
    """It is resolved: the group rebalances in the heartbeat that brings it."""
    members = Members()
    members.join("m0", regex="a")
    members.run_tasks()
    members.heartbeat("m0")
    members.join("m1", regex="a")
    assert members.kinds() == [MEMBER, GROUP, TARGET, TARGET, TARGET_EPOCH, CURRENT]
    assert members.run_tasks() == ()


def test_names_and_pattern_together() -> None:
    """The union of both; a pattern alone shrinks away what only the names had."""
    members = Members()
    members.join("m0", "b", regex="a")
    members.run_tasks()
    assert reported(members.heartbeat("m0")) == "a0 a1 a2 b0 b1"
    members.heartbeat("m0", subscribed_topic_names=())
    assert reported(members.heartbeat("m0", rebalance_timeout_ms=5000, subscribed_topic_names=())) == "a0 a1 a2"


@pytest.mark.parametrize("regex", ["", "b"])
def test_the_last_to_use_a_pattern_takes_it_along(regex: str) -> None:
    """Giving it up or choosing another one deletes what it was resolved to."""
    members = Members()
    members.join("m0", regex="a")
    members.run_tasks()
    members.heartbeat("m0")
    members.heartbeat("m0", subscribed_topic_regex=regex)
    assert members.kinds()[:2] == [MEMBER, REGEX]
    assert not members.group.resolved_regexes


def test_a_pattern_which_others_use_stays() -> None:
    """Whether one of them chooses another one or leaves."""
    members = Members()
    for member_id in ("m0", "m1", "m2"):
        members.join(member_id, regex="a")
    members.run_tasks()
    members.heartbeat("m0", subscribed_topic_regex="")
    members.heartbeat("m1", epoch=-1)
    assert set(members.group.resolved_regexes) == {"a"}


def test_the_topics_of_a_pattern_given_up_count_no_more() -> None:
    """The hash is that of what is left, and what was assigned by the pattern is to be given up."""
    members = Members()
    members.join("m0", "b", regex="a")
    members.run_tasks()
    members.heartbeat("m0")
    members.heartbeat("m0", subscribed_topic_regex="")
    assert members.group.metadata_hash == metadata_hash(members.coordinator.image, ["b"])
    assert shown(members.member("m0").pending_revocation) == "a0 a1 a2"


def test_a_pattern_which_is_not_resolved_yet_shrinks_the_assignment() -> None:
    """At once and at the same epoch: the group rebalances once the new pattern is resolved."""
    members = Members()
    members.join("m0", regex="a")
    members.run_tasks()
    members.heartbeat("m0")
    members.heartbeat("m0", subscribed_topic_regex="b")
    assert members.kinds() == [MEMBER, REGEX, CURRENT]
    assert shown(members.member("m0").pending_revocation) == "a0 a1 a2"


def test_who_leaves_takes_the_pattern_along() -> None:
    """The tombstone comes between those of the member and the epoch; whose topics count no more."""
    members = Members()
    members.join("m0", regex="a")
    members.join("m1", "b")
    members.run_tasks()
    members.heartbeat("m0", epoch=-1)
    assert members.kinds() == [CURRENT, TARGET, MEMBER, REGEX, GROUP]
    assert not members.group.resolved_regexes
    both = members.group.metadata_hash
    members.set_topic("a", A, 9)
    members.converge("m1")
    assert members.group.metadata_hash == both


def test_a_pattern_has_to_be_one() -> None:
    """Only a new one is looked at. Nothing is written."""
    members = Members()
    assert members.join("m0", regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert members.kinds() == []
    members.join("m0", regex="a")
    assert members.heartbeat("m0", subscribed_topic_regex="b[") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert members.member("m0").subscribed_topic_regex == "a"


def resolved_once() -> Members:
    """m0 reads the pattern `[ac]`, resolved at the start, and has a."""
    members = Members()
    members.join("m0", regex="[ac]")
    members.run_tasks()
    members.heartbeat("m0")
    return members


def test_new_topics_are_looked_for_when_ten_seconds_have_passed() -> None:
    """And no topic has to be new to a pattern for the look; but a rebalance comes only where one is."""
    members = resolved_once()
    members.set_topic("c", C, 1)
    members.wait(MIN_INTERVAL_MS)
    members.heartbeat("m0")
    assert members.run_tasks() == ()
    members.wait(1)
    members.heartbeat("m0")
    assert members.run_tasks() == ("g-regex",)
    assert members.kinds() == [REGEX, GROUP]
    assert reported(members.heartbeat("m0")) == "a0 a1 a2 c0"


def test_grown_topics_are_no_new_topics() -> None:
    """They are seen by the hash, without the patterns."""
    members = resolved_once()
    members.wait(MIN_INTERVAL_MS + 1)
    members.set_topic("b", B, 5)
    members.heartbeat("m0")
    assert members.run_tasks() == ()


def test_patterns_are_refreshed_after_the_interval() -> None:
    """Even where nothing is known to have changed."""
    members = resolved_once()
    for _ in range(REFRESH_MS // 30_000):
        members.wait(30_000)
        members.heartbeat("m0")
        assert members.run_tasks() == ()
    members.wait(1)
    members.heartbeat("m0")
    assert members.run_tasks() == ("g-regex",)
    assert members.kinds() == [REGEX]


def test_one_task_resolves_all_patterns_of_a_group() -> None:
    """Those which were there when it was queued; who comes meanwhile waits for the next one."""
    members = Members()
    members.join("m0", regex="a")
    members.join("m1", regex="b")
    assert members.run_tasks() == ("g-regex",)
    assert set(members.group.resolved_regexes) == {"a"}
    members.wait(MIN_INTERVAL_MS + 1)
    members.heartbeat("m1")
    assert members.run_tasks() == ("g-regex",)
    assert set(members.group.resolved_regexes) == {"a", "b"}


def test_who_is_gone_when_the_task_runs_has_no_pattern() -> None:
    """Nor has a group which is gone."""
    members = Members()
    members.join("m0", regex="a")
    members.join("m1", "b")
    members.heartbeat("m0", epoch=-1)
    members.run_tasks()
    assert members.kinds() == []
    members = Members()
    members.join("m0", regex="a")
    members.heartbeat("m0", epoch=-1)
    members.coordinator.handle("delete_groups", ("g",), now_ms=members.now_ms)
    assert members.run_tasks() == ("g-regex",)
    assert members.kinds() == []


def test_a_reload_looks_at_the_topics_again() -> None:
    """Topics may have come while nobody was there: what was resolved at an older version is resolved again."""
    members = resolved_once()
    members.set_topic("b", B, 5)
    members.coordinator.reload(now_ms=members.now_ms)
    members.wait(MIN_INTERVAL_MS + 1)
    members.heartbeat("m0")
    assert members.run_tasks() == ("g-regex",)
