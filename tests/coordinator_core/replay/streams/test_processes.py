"""Which process has which task, whatever the log says."""

from typing import Any

from immutables import Map

from coordinator_core.live.streams.reconciliation import reconcile
from coordinator_core.replay.streams.processes import replaced
from coordinator_core.replay.streams.state import StreamsMember, TaskAssignment, TaskProcesses


def member(process_id: str | None = "p", **tasks: Any) -> StreamsMember:
    return StreamsMember("m", process_id=process_id, **tasks)


NOBODY = TaskProcesses()


def test_tasks_of_all_kinds_and_those_pending_revocation() -> None:
    """All of them are the process's, and none once the member is gone."""
    full = member(
        active={"0": {1: 5}},
        standby={"0": (2,)},
        warmup={"0": (3,)},
        active_pending_revocation={"0": {4: 5}},
        standby_pending_revocation={"0": (5,)},
        warmup_pending_revocation={"0": (6,)},
    )
    processes = replaced(NOBODY, None, full)
    assert dict(processes.active) == {("0", 1): "p", ("0", 4): "p"}
    assert dict(processes.standby) == {("0", 2): frozenset("p"), ("0", 5): frozenset("p")}
    assert dict(processes.warmup) == {("0", 3): frozenset("p"), ("0", 6): frozenset("p")}
    assert replaced(processes, full, None) == NOBODY


def test_a_copy_is_kept_by_several_processes() -> None:
    """Who goes takes its own process out only; a second time there is nothing to take."""
    first, second = member("p", standby={"0": (1,)}), member("q", standby={"0": (1,)})
    processes = replaced(replaced(NOBODY, None, first), None, second)
    assert dict(processes.standby) == {("0", 1): frozenset("pq")}
    left = replaced(processes, first, None)
    assert dict(left.standby) == {("0", 1): frozenset("q")}
    assert replaced(left, first, None).standby == left.standby
    assert replaced(replaced(left, second, None), second, None).standby == Map()


def test_an_active_task_is_the_last_ones_to_come() -> None:
    """The one before takes nothing away when it goes."""
    first, second = member("p", active={"0": {1: 5}}), member("q", active={"0": {1: 6}})
    processes = replaced(replaced(NOBODY, None, first), None, second)
    assert dict(replaced(processes, first, None).active) == {("0", 1): "q"}


def test_members_without_process_have_nothing() -> None:
    """A current assignment may come before the member it is of; its process comes later."""
    early = member(None, active={"0": {1: 5}})
    assert replaced(NOBODY, None, early) == NOBODY
    known = member("p", active=early.active)
    assert dict(replaced(NOBODY, early, known).active) == {("0", 1): "p"}


def test_what_does_not_touch_tasks_changes_nothing() -> None:
    """The same object, so that heartbeats cost nothing."""
    before = member(active={"0": {1: 5}})
    processes = replaced(NOBODY, None, before)
    after = StreamsMember(
        "m",
        process_id="p",
        client_id="new",
        active=before.active,
        standby=before.standby,
        warmup=before.warmup,
        active_pending_revocation=before.active_pending_revocation,
        standby_pending_revocation=before.standby_pending_revocation,
        warmup_pending_revocation=before.warmup_pending_revocation,
    )
    assert replaced(processes, before, after) is processes


def test_a_member_whose_current_assignment_is_unknown_does_not_move() -> None:
    """Its record was lost; Kafka knows no state of it."""
    lost = member()
    assert reconcile(lost, 5, TaskAssignment({"0": (1,)}), NOBODY, None) is lost
