"""Tests of subscription by pattern: when patterns are resolved, what that writes, what it does to the group."""

from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.members import REGEX, B, Members, reported

MIN_INTERVAL_MS = 10_000
REFRESH_MS = 600_000


def test_a_pattern_which_matches_nothing_bumps_no_epoch() -> None:
    """It is resolved all the same."""
    members = Members()
    members.join("m0", regex="zzz")
    members.run_tasks()
    assert members.kinds() == [REGEX]
    assert members.group.group_epoch == 1


def test_names_and_pattern_together() -> None:
    """The union of both; a pattern alone shrinks away what only the names had."""
    members = Members()
    members.join("m0", "b", regex="a")
    members.run_tasks()
    assert reported(members.heartbeat("m0")) == "a0 a1 a2 b0 b1"
    members.heartbeat("m0", subscribed_topic_names=())
    assert reported(members.heartbeat("m0", rebalance_timeout_ms=5000, subscribed_topic_names=())) == "a0 a1 a2"


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
