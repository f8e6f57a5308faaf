"""Tests of subscription by pattern: when patterns are resolved, what that writes, what it does to the group."""

from tests.coordinator_core.live.consumer.members import Members


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
