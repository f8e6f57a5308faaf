"""gold.partition_owners: which member owned which partition of which topic, and when.

A member owns its current assignment, and still owns a partition while it has to revoke it (REVOKING): one interval. A
task of a streams group means its partition number in each topic that its subtopology reads and that has that many
partitions (there are as many tasks as the largest topic has partitions). The log shows what the coordinator assigned,
not when a client really stopped reading; and a share group has no owners.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from typing import Final

from coordinator_core.history.rows import AssignmentRow, EventRow, MemberRow
from coordinator_core.inference.facts.clock import is_time
from coordinator_core.inference.facts.life import GroupLife, PartitionCounts
from coordinator_core.inference.facts.log_facts import WHOLE
from coordinator_core.inference.facts.rows import OwnerRow
from schemas.group_types import GroupType

OWNED: Final = frozenset({"CURRENT", "REVOKING"})
ACTIVE: Final = "ACTIVE"
TARGET: Final = "TARGET"

REVOKED: Final = "REVOKED_IN_EPOCH"
"""The previous owner lost the partition though its target still had it: the coordinator revokes what a member no longer
subscribes to (CurrentAssignmentBuilder), without a new epoch."""
NOT_ASSIGNED: Final = "NOT_ASSIGNED"
"""The previous owner went, or a new assignment took the partition from it."""

OwnerPlace = tuple[str | None, str | None, int, int, str]
"""Topic, topic id, partition, `from_log_offset` and member id: identifies a row of gold.partition_owners within its
group.
"""

OwnedKey = tuple[str, str | None, str | None, int, str]
"""Group type, topic id, topic, partition, member id."""


def partition_of(row: AssignmentRow | OwnerRow) -> tuple[str, int]:
    """Topic (its id where the name is unknown) and partition: identifies a partition, whoever owns it."""
    return row.topic or row.topic_id or "", row.partition


def place_of(row: OwnerRow) -> OwnerPlace:
    """The key of an ownership interval within its group."""
    return row.topic, row.topic_id, row.partition, row.from_log_offset, row.member_id


def partition_owners(life: GroupLife) -> list[OwnerRow]:
    """Ownership intervals of one group, in the order of topic, partition and log offset."""
    members = MembersAt(life.members)
    topologies = _Topologies(life.events)
    rows = []
    for interval in _intervals(life.assignments):
        member = members.at(interval.member_id, interval.from_log_offset)
        if interval.group_type == GroupType.STREAMS:
            topics = _topics_of_task(interval, topologies, life.partition_counts)
            rows += [_owner(interval, topic, member) for topic in topics]
        else:
            rows.append(_owner(interval, interval.topic, member))
    rows.sort(key=lambda row: (row.topic or "", row.topic_id or "", row.partition, row.from_log_offset, row.member_id))
    return _with_handovers(rows, life)


def unread_places(life: GroupLife, to_log_offset: int = WHOLE) -> list[int]:
    """Where partitions without a known owner may have had one, ascending: in generations that have an unreadable
    assignment, and in missing parts of the log after the first generation."""
    first = life.generations[0].from_log_offset if life.generations else WHOLE
    places = [row.from_log_offset for row in life.generations if row.unread_members]
    places += [gap for gap in life.log.gaps if gap > first]
    return sorted(place for place in places if place < to_log_offset)


def is_gap_known(places: Sequence[int], from_log_offset: int, to_log_offset: int) -> bool:
    """Whether no `unread_places` are between the loss of a partition's owner and its next owner."""
    return bisect_left(places, from_log_offset) == bisect_left(places, to_log_offset)


def _with_handovers(rows: Sequence[OwnerRow], life: GroupLife) -> list[OwnerRow]:
    """The rows with the gap before each interval, marked if two members owned a partition at the same time. The
    length of a gap is known where both of its ends have a time, and all assignments between them are known.

    If records between two owners may be missing, so is the one by which the first owner gave the partition up
    (KAFKA-19862): that was before the second one got it, and its interval ends there.

    Classic groups identify a topic by name, others by id: where the name of the id is known, an interval after a
    conversion continues the one before it.
    """
    targets, timeless, unread = _Targets(life.assignments), life.timeless, unread_places(life)
    marked = list(rows)
    latest: dict[tuple[str, int], int] = {}
    """Partition -> the interval so far with the latest end."""
    for index in sorted(range(len(rows)), key=[row.from_log_offset for row in rows].__getitem__):
        row = rows[index]
        key = partition_of(row)
        before = latest.get(key)
        if before is None:
            latest[key] = index
            continue
        previous = rows[before]
        if previous.to_log_offset is None or row.from_log_offset < previous.to_log_offset:
            if not life.log.has_hole(previous.from_log_offset, row.from_log_offset):
                marked[before] = marked[before]._replace(is_double=True)
                marked[index] = marked[index]._replace(is_double=True)
            elif _ends_later(row, previous):
                marked[before] = _ended(marked[before], row)
        elif (
            is_time(previous.valid_to)
            and is_time(row.valid_from)
            and timeless.isdisjoint((previous.to_log_offset, row.from_log_offset))
            and is_gap_known(unread, previous.to_log_offset, row.from_log_offset)
        ):
            gap_ms = max(row.valid_from - previous.valid_to, 0)
            cause = None if not gap_ms else REVOKED if targets.outlast(previous) else NOT_ASSIGNED
            marked[index] = row._replace(gap_before_ms=gap_ms, gap_cause=cause)
        if _ends_later(row, previous):
            latest[key] = index
    return marked


def _ended(row: OwnerRow, by: OwnerRow) -> OwnerRow:
    """An interval that ended when another one began, at the latest."""
    valid_to = max(row.valid_from, by.valid_from)
    return row._replace(to_log_offset=by.from_log_offset, valid_to=valid_to, to_generation=by.from_generation)


class _Targets:
    """Target assignments of a consumer group, to see which of them outlasted the ownership interval that they led
    to."""

    def __init__(self, assignments: Iterable[AssignmentRow]) -> None:
        self._assignments = assignments

    @cached_property
    def _ends(self) -> dict[tuple[str | None, int, str], list[tuple[int, int | None]]]:
        """By topic id, partition and member: begin and end of targets. Computed on demand, since most groups never need
        it.
        """
        ends: dict[tuple[str | None, int, str], list[tuple[int, int | None]]] = {}
        for row in self._assignments:
            if row.group_type == GroupType.CONSUMER and row.assignment == TARGET:
                key = row.topic_id, row.partition, row.member_id
                ends.setdefault(key, []).append((row.from_log_offset, row.to_log_offset))
        return ends

    def outlast(self, owner: OwnerRow) -> bool:
        """Whether the member's target still had the partition when its ownership ended."""
        if owner.group_type != GroupType.CONSUMER or owner.to_log_offset is None:
            return False
        return any(
            begin < owner.to_log_offset and (end is None or end > owner.to_log_offset)
            for begin, end in self._ends.get((owner.topic_id, owner.partition, owner.member_id), ())
        )


def _ends_later(row: OwnerRow, other: OwnerRow) -> bool:
    if row.to_log_offset is None or other.to_log_offset is None:
        return row.to_log_offset is None
    return row.to_log_offset >= other.to_log_offset


class MembersAt:
    """Membership intervals, by member id and log offset."""

    def __init__(self, members: Iterable[MemberRow]) -> None:
        self._intervals: dict[str, tuple[list[int], list[MemberRow]]] = {}
        """Member id -> the starts of its intervals, and the intervals."""
        for member in sorted(members, key=lambda row: row.from_log_offset):
            begins, intervals = self._intervals.setdefault(member.member_id, ([], []))
            begins.append(member.from_log_offset)
            intervals.append(member)

    def at(self, member_id: str, log_offset: int) -> MemberRow | None:
        """The membership interval of a member at a log offset, or None."""
        begins, intervals = self._intervals.get(member_id, _NO_INTERVALS)
        index = bisect_right(begins, log_offset) - 1
        if index < 0:
            return None
        found = intervals[index]
        return found if found.to_log_offset is None or log_offset < found.to_log_offset else None


_NO_INTERVALS: Final[tuple[list[int], list[MemberRow]]] = ([], [])


def _intervals(assignments: Sequence[AssignmentRow]) -> Iterator[AssignmentRow]:
    """Owned partitions, with a REVOKING interval joined to the CURRENT one that it continues."""
    by_key: dict[OwnedKey, list[AssignmentRow]] = {}
    for row in assignments:
        if row.group_type == GroupType.SHARE or row.assignment not in OWNED or row.task_type not in (None, ACTIVE):
            continue
        by_key.setdefault((row.group_type, row.topic_id, row.topic, row.partition, row.member_id), []).append(row)
    for rows in by_key.values():
        if len(rows) > 1:  # most have one
            rows.sort(key=lambda row: (row.from_log_offset, row.assignment))
        joined = rows[0]
        for row in rows[1:]:
            if joined.to_log_offset is not None and row.from_log_offset > joined.to_log_offset:
                yield joined
                joined = row
            else:
                joined = _later_end(joined, row)
        yield joined


def _later_end(first: AssignmentRow, second: AssignmentRow) -> AssignmentRow:
    """The first interval, extended to the later of both ends."""
    if first.to_log_offset is None:
        return first
    if second.to_log_offset is not None and second.to_log_offset <= first.to_log_offset:
        return first
    # the clock of the leader that wrote the second one may be behind
    valid_to = None if second.valid_to is None else max(first.valid_from, second.valid_to)
    return first._replace(to_log_offset=second.to_log_offset, valid_to=valid_to, to_generation=second.to_generation)


class _Topologies:
    """The topics that subtopologies of a streams group read, over time."""

    def __init__(self, events: Iterable[EventRow]) -> None:
        changes = [event for event in events if event.event_type == "TOPOLOGY_CHANGED"]
        self._log_offsets = [event.log_offset for event in changes]
        self._topics = [json.loads(event.details.get("subtopologies", "{}")) for event in changes]

    def topics_of(self, subtopology_id: str, log_offset: int) -> Sequence[str]:
        """Topics that a subtopology read at a log offset; empty if the topology is unknown."""
        index = bisect_right(self._log_offsets, log_offset) - 1
        topics: Sequence[str] = self._topics[index].get(subtopology_id, ()) if index >= 0 else ()
        return topics

    @property
    def together(self) -> Set[str]:
        """Topics that a subtopology read together with others."""
        return {topic for read in self._topics for topics in read.values() if len(topics) > 1 for topic in topics}


def topics_read_together(life: GroupLife) -> Set[str]:
    """Topics that one subtopology read together with others: which of their partitions exist depends on their partition
    counts.
    """
    return _Topologies(life.events).together


def _has_partition(counts: Sequence[tuple[int, int]], interval: AssignmentRow) -> bool:
    """Whether a topic had the partition of an interval, as far as is known. Partitions are never removed."""
    known = [count for at_ms, count in counts if interval.valid_to is None or at_ms <= interval.valid_to]
    most = max(known or (count for _, count in counts), default=None)
    return most is None or interval.partition < most


def _topics_of_task(interval: AssignmentRow, topologies: _Topologies, counts: PartitionCounts) -> Sequence[str]:
    """The topics of which a task of a streams group reads a partition."""
    read = topologies.topics_of(interval.topic or "", interval.from_log_offset)
    # a single topic has as many partitions as there are tasks
    return read if len(read) == 1 else [it for it in read if _has_partition(counts.get(it, ()), interval)]


def _owner(interval: AssignmentRow, topic: str | None, member: MemberRow | None) -> OwnerRow:
    # positional arguments: keywords for so many fields take twice the time
    return OwnerRow(
        interval.group_id,
        interval.group_type,
        topic,
        interval.topic_id,
        interval.partition,
        interval.from_log_offset,
        interval.member_id,
        member.instance_id if member else None,
        member.client_id if member else None,
        member.client_host if member else None,
        interval.from_generation,
        interval.to_generation,
        interval.to_log_offset,
        interval.valid_from,
        interval.valid_to,
        None,
        False,
    )
