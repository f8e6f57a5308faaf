"""Which process has which task, updated with each record (StreamsGroup.maybeUpdateTaskProcessId and the methods it
calls).

The rules apply to any log, also one in which two members claim a task: the last one has it, and a member that leaves
only removes tasks that its process still has.
"""

from collections.abc import Iterable, Iterator, Mapping

from immutables import Map

from coordinator_core.replay.streams.state import StreamsMember, TaskId, TaskProcesses

NOBODY: frozenset[str] = frozenset()


def replaced(processes: TaskProcesses, before: StreamsMember | None, after: StreamsMember | None) -> TaskProcesses:
    """The processes after a member changed; `before` or `after` is None if the member is new or removed."""
    if before is not None and after is not None and _has_same_tasks(before, after):
        return processes
    active, standby, warmup = processes.active, processes.standby, processes.warmup
    if before is not None:
        active = _without_active(active, before)
        standby = _without(standby, before.process_id, _standby(before))
        warmup = _without(warmup, before.process_id, _warmup(before))
    if after is not None and after.process_id is not None:
        active = _with_active(active, after, after.process_id)
        standby = _with(standby, after.process_id, _standby(after))
        warmup = _with(warmup, after.process_id, _warmup(after))
    return TaskProcesses(active, standby, warmup)


def _has_same_tasks(before: StreamsMember, after: StreamsMember) -> bool:
    """Compares by identity: a record without tasks does not change the task objects."""
    return (
        before.process_id == after.process_id
        and before.active is after.active
        and before.standby is after.standby
        and before.warmup is after.warmup
        and before.active_pending_revocation is after.active_pending_revocation
        and before.standby_pending_revocation is after.standby_pending_revocation
        and before.warmup_pending_revocation is after.warmup_pending_revocation
    )


def _active(member: StreamsMember) -> Iterator[TaskId]:
    return _task_ids((member.active, member.active_pending_revocation))


def _standby(member: StreamsMember) -> Iterator[TaskId]:
    return _task_ids((member.standby, member.standby_pending_revocation))


def _warmup(member: StreamsMember) -> Iterator[TaskId]:
    return _task_ids((member.warmup, member.warmup_pending_revocation))


def _task_ids(parts: Iterable[Mapping[str, Iterable[int]]]) -> Iterator[TaskId]:
    for tasks in parts:
        for subtopology_id, partitions in tasks.items():
            for partition in partitions:
                yield subtopology_id, partition


def _without_active(active: Map[TaskId, str], member: StreamsMember) -> Map[TaskId, str]:
    for task in _active(member):
        if task in active and active[task] == member.process_id:
            active = active.delete(task)
    return active


def _with_active(active: Map[TaskId, str], member: StreamsMember, process_id: str) -> Map[TaskId, str]:
    return active.update(dict.fromkeys(_active(member), process_id))


def _without(
    holders: Map[TaskId, frozenset[str]], process_id: str | None, tasks: Iterable[TaskId]
) -> Map[TaskId, frozenset[str]]:
    for task in tasks:
        left = holders.get(task, NOBODY) - {process_id}
        if left:
            holders = holders.set(task, left)
        elif task in holders:
            holders = holders.delete(task)
    return holders


def _with(
    holders: Map[TaskId, frozenset[str]], process_id: str, tasks: Iterable[TaskId]
) -> Map[TaskId, frozenset[str]]:
    for task in tasks:
        holders = holders.set(task, holders.get(task, NOBODY) | {process_id})
    return holders
