"""Moves a member from its current tasks to its target (CurrentAssignmentBuilder of streams groups).

A member first revokes tasks that it should not have, then takes tasks that others have released:

    state             leaves it when
    STABLE            the target has another epoch
    UNREVOKED_TASKS   the member no longer reports any of the tasks that it has to revoke
    UNRELEASED_TASKS  at every heartbeat: others may have released tasks since
    UNKNOWN_STATE     the member reports that it has no tasks; else it is fenced

`TRANSITIONS` has the possible next states.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.replay.streams.state import (
    STABLE_MEMBER,
    UNKNOWN_STATE,
    UNRELEASED_TASKS,
    UNREVOKED_TASKS,
    StreamsMember,
    TaskAssignment,
    TaskId,
    TaskProcesses,
    Tasks,
)
from schemas.error_codes import ErrorCode

TRANSITIONS: Final[Mapping[int, frozenset[int]]] = {
    STABLE_MEMBER: frozenset({STABLE_MEMBER, UNREVOKED_TASKS, UNRELEASED_TASKS}),
    UNREVOKED_TASKS: frozenset({STABLE_MEMBER, UNREVOKED_TASKS, UNRELEASED_TASKS}),
    UNRELEASED_TASKS: frozenset({STABLE_MEMBER, UNREVOKED_TASKS, UNRELEASED_TASKS}),
    UNKNOWN_STATE: frozenset({STABLE_MEMBER, UNRELEASED_TASKS}),
}

NO_PROCESSES: Final[frozenset[str]] = frozenset()

ActiveTasks = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> assignment epoch."""


@dataclass(slots=True)
class _Difference:
    """Tasks of one kind: kept, to be revoked, and free to take. Values of standby and warm-up tasks are 0."""

    kept: dict[str, dict[int, int]] = field(default_factory=dict)
    revoked: dict[str, dict[int, int]] = field(default_factory=dict)
    free: dict[str, dict[int, int]] = field(default_factory=dict)
    has_unreleased: bool = False


def reconcile(
    member: StreamsMember,
    assignment_epoch: int,
    target: TaskAssignment,
    processes: TaskProcesses,
    owned: TaskAssignment | None,
    version: KafkaVersion = DEFAULT_VERSION,
) -> StreamsMember:
    """The member's next step towards its target; the same object if it cannot move.

    `owned`: the tasks that the member reports, None if it reports none of them. Raises Refused for a member in a state
    that a later Kafka wrote, unless it has no tasks.
    """
    epoch = _epoch_while_moving(member, assignment_epoch, owned)
    return member if epoch is None else _next(member, epoch, assignment_epoch, target, processes, owned, version)


def _epoch_while_moving(member: StreamsMember, assignment_epoch: int, owned: TaskAssignment | None) -> int | None:
    """The member's epoch while it revokes tasks; None if it stays unchanged."""
    if member.state == STABLE_MEMBER:
        return None if member.member_epoch == assignment_epoch else member.member_epoch
    if member.state == UNREVOKED_TASKS:
        is_waiting = owned is None or _has_any(owned, _pending_revocation(member))
        # A step between two epochs of the group: in any case the member has left the old one.
        return None if is_waiting else member.member_epoch + 1
    if member.state == UNRELEASED_TASKS:
        return member.member_epoch
    if member.state != UNKNOWN_STATE:
        return None
    if owned is None or any((owned.active, owned.standby, owned.warmup)):
        text = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, text)
    return assignment_epoch


def _next(
    member: StreamsMember,
    epoch: int,
    assignment_epoch: int,
    target: TaskAssignment,
    processes: TaskProcesses,
    owned: TaskAssignment | None,
    version: KafkaVersion,
) -> StreamsMember:
    process_id = member.process_id
    change_role = Since.STREAMS_TASKS_CHANGE_ROLE.holds_in(version)

    def holds(holders: Mapping[TaskId, frozenset[str]], own: Tasks, subtopology_id: str, partition: int) -> bool:
        """Whether the process has the copy; the member's own copy does not count if it can change its role."""
        is_own = change_role and partition in own.get(subtopology_id, ())
        return process_id in holders.get((subtopology_id, partition), NO_PROCESSES) and not is_own

    def is_unreleased_active(subtopology_id: str, partition: int) -> bool:
        return (
            (subtopology_id, partition) in processes.active
            or holds(processes.standby, member.standby, subtopology_id, partition)
            or holds(processes.warmup, member.warmup, subtopology_id, partition)
        )

    def is_unreleased_standby(subtopology_id: str, partition: int) -> bool:
        is_own = change_role and partition in member.active.get(subtopology_id, ())
        return (
            (processes.active.get((subtopology_id, partition)) == process_id and not is_own)
            or holds(processes.standby, {}, subtopology_id, partition)
            or holds(processes.warmup, member.warmup, subtopology_id, partition)
        )

    def is_unreleased_warmup(subtopology_id: str, partition: int) -> bool:
        return (
            processes.active.get((subtopology_id, partition)) == process_id
            or holds(processes.standby, member.standby, subtopology_id, partition)
            or holds(processes.warmup, {}, subtopology_id, partition)
        )

    active = _difference(member.active, target.active, assignment_epoch, is_unreleased_active)
    standby = _difference(_numbered(member.standby), target.standby, 0, is_unreleased_standby)
    warmup = _difference(_numbered(member.warmup), target.warmup, 0, is_unreleased_warmup)
    kinds = (active, standby, warmup)
    if change_role:
        _grant_other_role(member.active, None, standby)
        _grant_other_role(_numbered(member.standby), standby, warmup)
        _grant_other_role(_numbered(member.warmup), warmup, standby)
        for own, kind in ((member.standby, standby), (member.warmup, warmup)):
            for subtopology_id, partition in _promoted(own, target):
                _take_out(kind.revoked, subtopology_id, partition)
    revoked = TaskAssignment(_plain(active.revoked), _plain(standby.revoked), _plain(warmup.revoked))
    must_revoke = any(kind.revoked for kind in kinds) and (owned is None or _has_any(owned, revoked))
    if change_role:
        for own, kind in ((member.standby, standby), (member.warmup, warmup)):
            for subtopology_id, partition in _promoted(own, target):
                if must_revoke or partition not in active.free.get(subtopology_id, {}):
                    kind.kept.setdefault(subtopology_id, {})[partition] = 0
    if must_revoke:
        return replace(
            member,
            state=UNREVOKED_TASKS,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            active=active.kept,
            standby=_plain(standby.kept),
            warmup=_plain(warmup.kept),
            active_pending_revocation=active.revoked,
            standby_pending_revocation=revoked.standby,
            warmup_pending_revocation=revoked.warmup,
        )
    has_unreleased = any(kind.has_unreleased for kind in kinds)
    return replace(
        member,
        state=UNRELEASED_TASKS if has_unreleased else STABLE_MEMBER,
        member_epoch=assignment_epoch,
        previous_member_epoch=member.member_epoch,
        active=_merged(active),
        standby=_plain(_merged(standby)),
        warmup=_plain(_merged(warmup)),
        active_pending_revocation={},
        standby_pending_revocation={},
        warmup_pending_revocation={},
    )


def _difference(
    current: ActiveTasks, target: Tasks, epoch: int, is_unreleased: Callable[[str, int], bool]
) -> _Difference:
    """Which tasks stay, go and come; new ones get this assignment epoch."""
    found = _Difference()
    for subtopology_id in {**target, **current}:
        has = current.get(subtopology_id, {})
        wanted = set(target.get(subtopology_id, ()))
        released = [
            partition for partition in sorted(wanted - has.keys()) if not is_unreleased(subtopology_id, partition)
        ]
        found.has_unreleased |= len(released) < len(wanted - has.keys())
        _put(found.kept, subtopology_id, {number: has[number] for number in has if number in wanted})
        _put(found.revoked, subtopology_id, {number: has[number] for number in has if number not in wanted})
        _put(found.free, subtopology_id, dict.fromkeys(released, epoch))
    return found


def _grant_other_role(own: ActiveTasks, was: _Difference | None, becomes: _Difference) -> None:
    """Change the role of tasks that the member has in one role and should have in another, which no other member has to
    release.
    """
    for subtopology_id, partitions in own.items():
        for partition in partitions:
            if partition in becomes.free.get(subtopology_id, {}):
                _take_out(becomes.free, subtopology_id, partition)
                becomes.kept.setdefault(subtopology_id, {})[partition] = 0
                if was is not None:
                    _take_out(was.revoked, subtopology_id, partition)


def _promoted(own: Tasks, target: TaskAssignment) -> list[tuple[str, int]]:
    """Copies that the member should have as active tasks: it keeps them until then."""
    return [
        (subtopology_id, partition)
        for subtopology_id, partitions in own.items()
        for partition in partitions
        if partition in target.active.get(subtopology_id, ())
    ]


def _take_out(tasks: dict[str, dict[int, int]], subtopology_id: str, partition: int) -> None:
    partitions = tasks.get(subtopology_id)
    if partitions is not None and partition in partitions:
        del partitions[partition]
        if not partitions:
            del tasks[subtopology_id]


def _put(tasks: dict[str, dict[int, int]], subtopology_id: str, partitions: dict[int, int]) -> None:
    if partitions:
        tasks[subtopology_id] = partitions


def _merged(kind: _Difference) -> dict[str, dict[int, int]]:
    return {
        subtopology_id: dict(sorted({**kind.kept.get(subtopology_id, {}), **kind.free.get(subtopology_id, {})}.items()))
        for subtopology_id in {**kind.kept, **kind.free}
    }


def _numbered(tasks: Tasks) -> ActiveTasks:
    return {subtopology_id: dict.fromkeys(partitions, 0) for subtopology_id, partitions in tasks.items()}


def _plain(tasks: ActiveTasks) -> Tasks:
    return {subtopology_id: tuple(sorted(partitions)) for subtopology_id, partitions in tasks.items()}


def _pending_revocation(member: StreamsMember) -> TaskAssignment:
    return TaskAssignment(
        _plain(member.active_pending_revocation),
        member.standby_pending_revocation,
        member.warmup_pending_revocation,
    )


def _has_any(owned: TaskAssignment, tasks: TaskAssignment) -> bool:
    """Whether one of the tasks is owned as a task of the same kind (TasksTuple.containsAny)."""
    return any(
        not set(partitions).isdisjoint(theirs.get(subtopology_id, ()))
        for mine, theirs in (
            (owned.active, tasks.active),
            (owned.standby, tasks.standby),
            (owned.warmup, tasks.warmup),
        )
        for subtopology_id, partitions in mine.items()
    )
