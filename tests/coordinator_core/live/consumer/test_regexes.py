"""Tests of subscription by pattern: when patterns are resolved, what that writes, what it does to the group."""

from tests.coordinator_core.live.consumer.members import REGEX, Members

REFRESH_MS = 600_000


def resolved_once() -> Members:
    """m0 reads the pattern `[ac]`, resolved at the start, and has a."""
    members = Members()
    members.join("m0", regex="[ac]")
    members.run_tasks()
    members.heartbeat("m0")
    return members


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
