"""The intervals of a group: one operation opens an interval, a later one closes it into a row."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.history import views
from coordinator_core.history.open_intervals import Open, OpenAssignment, OpenGeneration, OpenIntervals, in_runs, parted
from coordinator_core.history.operations import ReplayedOperation
from coordinator_core.history.rows import (
    LEFT_OR_EXPIRED,
    REPLACED_STATIC,
    Assigned,
    AssignmentRun,
    AttributesRow,
    GenerationRow,
    GroupRows,
    MemberRow,
)
from coordinator_core.history.views import Member
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer.subscriptions import preferred_assignor
from coordinator_core.replay.dispatch import Group

_Interval = tuple[int, int | None, int, int | None, int, int, int]


class Intervals(NamedTuple):
    """The open intervals of a group, and the rows that they become. A `step` of None means the end of the log."""

    group_id: str
    intervals: OpenIntervals
    rows: GroupRows

    def open_generation(
        self, step: ReplayedOperation, after: Group, *, previous: int | None, is_contiguous: bool
    ) -> None:
        intervals = self.intervals
        group_type, generation = views.group_type(after), views.generation(after)
        incarnation, newest = intervals.newest.get(group_type, (-1, 0))
        is_grown = views.generations_between(newest, generation) > 0
        if incarnation > intervals.incarnation or (incarnation == intervals.incarnation and not is_grown):
            # Not possible in a log written by Kafka. It keeps the table's key unique in any log.
            intervals.incarnation += 1
        intervals.newest[group_type] = (intervals.incarnation, generation)
        intervals.generation = OpenGeneration(
            group_type=group_type,
            incarnation=intervals.incarnation,
            generation=generation,
            log_offset=step.operation.last_offset,
            timestamp_ms=step.operation.timestamp_ms,
            previous_generation=previous,
            is_contiguous=is_contiguous,
            current_state_at=views.current_state_at(after),
        )

    def close_generation(self, group: Group, step: ReplayedOperation | None) -> None:
        """Close the generation; `group` is its last state."""
        opened, self.intervals.generation = self.intervals.generation, None
        if opened is None:
            return
        classic = group if isinstance(group, ClassicGroup) else None
        self.rows.generations.append(
            GenerationRow(
                group_id=self.group_id,
                group_type=opened.group_type,
                incarnation=opened.incarnation,
                generation=opened.generation,
                from_log_offset=opened.log_offset,
                to_log_offset=None if step is None else step.operation.last_offset,
                valid_from=opened.timestamp_ms,
                valid_to=_end_ms(opened.timestamp_ms, step),
                state=str(group.state),
                protocol_type=None if classic is None else classic.protocol_type,
                protocol_name=(
                    preferred_assignor_of(self.intervals.assignors) if classic is None else classic.protocol_name
                ),
                leader_member_id=None if classic is None else classic.leader,
                member_count=len(group.members),
                assignment_epoch=views.assignment_epoch(group) if classic is None else None,
                topology_epoch=views.topology_epoch(group),
                metadata_hash=views.metadata_hash(group),
                previous_generation=opened.previous_generation,
                is_contiguous=opened.is_contiguous,
                current_state_at=opened.current_state_at,
                unread_members=views.unread_members(group),
            )
        )

    def open_member(self, step: ReplayedOperation, after: Group, member_id: str) -> None:
        self.intervals.members[member_id] = self._opened(step, after)
        self.count_assignor(after.members[member_id], +1)

    def close_member(self, group: Group, member_id: str, step: ReplayedOperation | None, ended_by: str | None) -> None:
        """Close a removed member with its attributes; `group` is the state that still has it."""
        opened = self.intervals.members.pop(member_id)
        member = group.members[member_id]
        if step is not None:
            self.count_assignor(member, -1)
        of_member = views.member_fields(group, member)
        interval = _interval(opened, step, group)
        self.rows.members.append(
            _make_member_row((self.group_id, views.group_type(group), member_id, *interval, ended_by, *of_member))
        )
        opened_attributes = self.intervals.attributes.pop(member_id, None)
        if opened_attributes is not None:
            interval = _interval(opened_attributes, step, group)
        self._add_attributes(group, member_id, interval, of_member)

    def close_gone(
        self, step: ReplayedOperation, before: Group, gone: Iterable[str], replaced: Mapping[str, str]
    ) -> None:
        """Close members that are gone: they left, or a new member with the same group instance id replaced them."""
        taken_over = frozenset(replaced.values())
        for member_id in gone:
            ended_by = REPLACED_STATIC if member_id in taken_over else LEFT_OR_EXPIRED
            self.close_member(before, member_id, step, ended_by)
            if ended_by == LEFT_OR_EXPIRED:
                step.add_event("MEMBER_LEFT", step.member_at.get(member_id, step.generation_at), member_id=member_id)

    def change_attributes(self, step: ReplayedOperation, old: Member, new: Member) -> None:
        """Close an interval of attributes where they change during a membership."""
        before, after = step.before, step.after
        if before is None or after is None or new.member_id not in self.intervals.members:
            return
        had = views.member_fields(before, old)
        if views.attributes(had) == views.attributes(views.member_fields(after, new)):
            return
        member_id = new.member_id
        opened = self.intervals.attributes.get(member_id, self.intervals.members[member_id])
        self.intervals.attributes[member_id] = self._opened(step, after)
        self._add_attributes(before, member_id, _interval(opened, step, before), had)

    def count_assignor(self, member: Member, count: int) -> None:
        """Count how many members ask for each server assignor: add `count` for this member."""
        assignor = views.server_assignor(member)
        if assignor is not None:
            self.intervals.assignors[assignor] = self.intervals.assignors.get(assignor, 0) + count

    def change_assignment(
        self, step: ReplayedOperation, after: Group, member_id: str, kind: str, assigned: Assigned
    ) -> None:
        """Set a member's assignment of one kind to exactly `assigned`."""
        kinds = self.intervals.assignments.setdefault(member_id, {})
        kept, gone, come = parted(kinds.pop(kind, []), assigned)
        if come:
            kept.append(OpenAssignment(self._opened(step, after), come))
        if kept:
            kinds[kind] = kept
        elif not kinds:
            del self.intervals.assignments[member_id]
        if gone:
            self._close_assignments(after, member_id, kind, gone, step)

    def close_all(self, group: Group, step: ReplayedOperation | None, ended_by: str | None) -> None:
        """Close all open intervals of a group; `group` is its last state."""
        for member_id, kinds in self.intervals.assignments.items():
            for kind in views.ASSIGNMENT_KINDS:
                if kind in kinds:
                    self._close_assignments(group, member_id, kind, kinds[kind], step)
        self.intervals.assignments.clear()
        for member_id in list(self.intervals.members):
            self.close_member(group, member_id, step, ended_by)
        self.close_generation(group, step)

    def _opened(self, step: ReplayedOperation, after: Group) -> Open:
        if step.opened is None:
            step.opened = Open(
                log_offset=step.operation.last_offset,
                timestamp_ms=step.operation.timestamp_ms,
                incarnation=self.intervals.incarnation,
                generation=views.generation(after),
            )
        return step.opened

    def _add_attributes(self, group: Group, member_id: str, interval: _Interval, had: views.MemberFields) -> None:
        self.rows.attributes.append(
            _make_attributes_row((self.group_id, views.group_type(group), member_id, *interval, *views.attributes(had)))
        )

    def _close_assignments(
        self, group: Group, member_id: str, kind: str, gone: Sequence[OpenAssignment], step: ReplayedOperation | None
    ) -> None:
        group_type = views.group_type(group)
        for opened, assigned in in_runs(gone):
            run = _make_run((self.group_id, group_type, member_id, kind, *_interval(opened, step, group)))
            self.rows.assignments.append(run, assigned)


def preferred_assignor_of(asked: Mapping[str, int]) -> str | None:
    """The server assignor that most members ask for; on a tie, the first in the iteration order of Kafka's map."""
    wanted = Counter({name: count for name, count in asked.items() if count > 0})
    return preferred_assignor(wanted) if wanted else None


_make_member_row: Final = maker_of(MemberRow)
_make_attributes_row: Final = maker_of(AttributesRow)
_make_run: Final = maker_of(AssignmentRun)


def _end_ms(begin_ms: int, step: ReplayedOperation | None) -> int | None:
    """When an interval ended. It is never before its beginning, even if the clock of the leader that wrote its end is
    behind; log offsets give the true order."""
    if step is None:
        return None
    end_ms = step.operation.timestamp_ms
    return end_ms if end_ms < 0 else max(begin_ms, end_ms)


def _interval(opened: Open, step: ReplayedOperation | None, group: Group) -> _Interval:
    """Columns that rows of members and of assignments share: offsets and times of both ends, the incarnation, the first
    generation and the last, which is the one before the operation that ended the interval."""
    last = group if step is None else step.before
    generation, last_generation = opened.generation, -1 if last is None else views.generation(last)
    return (
        opened.log_offset,
        None if step is None else step.operation.last_offset,
        opened.timestamp_ms,
        _end_ms(opened.timestamp_ms, step),
        opened.incarnation,
        generation,
        last_generation if views.generations_between(generation, last_generation) > 0 else generation,
    )
