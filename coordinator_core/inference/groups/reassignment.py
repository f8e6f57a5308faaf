"""Which partitions a rebalance moved.

The decision of a rebalance is its plan: the assignment of a classic generation, or the target assignment that was
computed for a group epoch. Plans are compared by partition (task of a streams group) and owner; a static member is
identified by its group instance id, so its restart moves nothing. If a plan leaves a partition out and a later one
assigns it to another member, it moved in the later one, as when cooperative members hand over in two steps.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.groups.owners import ACTIVE, MembersAt, partition_of
from schemas.group_types import GroupType

CURRENT: Final = "CURRENT"
TARGET: Final = "TARGET"
INSTANCE: Final = "group.instance.id="
EAGER_PROTOCOLS: Final = frozenset({"range", "roundrobin", "sticky"})
"""Built-in assignors with which every member revokes everything before it joins. They assign every partition of every
subscribed topic in one round."""

PlanKey = tuple[str, int]
"""Topic (its id where the name is unknown, the subtopology for streams) and partition."""


class Lost(NamedTuple):
    """A partition that lost its owner."""

    key: PlanKey
    owners: frozenset[str]
    """Its last owners: member ids, or `INSTANCE` and the group instance id."""


class Reassignment(NamedTuple):
    """What one plan changed compared with the plans before it."""

    total: int
    """Partitions with an owner after it."""
    moved: int
    """How many of those have another owner than their last one."""
    stayed: int
    """How many of those have the same owner."""
    came: int = 0
    """How many of those had no owner in the previous plan."""
    came_back: int = 0
    """How many of those in `came` had an owner in some earlier plan."""
    lost: frozenset[Lost] = frozenset()
    """Partitions with an owner in the previous plan and none now."""
    grown_topics: frozenset[str] = frozenset()
    """Topics with a partition that has an owner for the first time, and others that had one in the previous plan."""
    returned: int = 0
    """How many of those in `came_back` had lost their owner in the previous plan."""

    left_out: int = 0
    """How many of those that came back or were lost are below one of their topic that had an owner before and has one
    now: there were as many partitions all along, and a leader left them out. Counted of assignors that assign all."""

    @property
    def went(self) -> int:
        """How many had an owner in the previous plan, and have none now."""
        return len(self.lost)

    @property
    def stickiness(self) -> float | None:
        """Share of the partitions that stayed; None if none had an owner before."""
        had_owner = self.moved + self.stayed
        return self.stayed / had_owner if had_owner else None


class _Change(NamedTuple):
    log_offset: int
    at: int
    is_begin: bool
    key: PlanKey
    member_id: str


class Plans:
    """The plans of one group. Call it generation by generation, in log order."""

    def __init__(self, life: GroupLife) -> None:
        self._members = MembersAt(life.members)
        self._changes = sorted(_changes(life.assignments))
        self._offsets = [change.log_offset for change in self._changes]
        self._next = 0
        self._holders: dict[PlanKey, set[str]] = {}
        self._owners: dict[PlanKey, frozenset[str]] = {}
        """The last owners of each partition."""
        self._planned: set[PlanKey] = set()
        """The partitions with an owner in the last plan."""
        self._topics: Counter[str] = Counter()
        """The number of these partitions by topic."""
        self._lost: set[PlanKey] = set()
        """The partitions that lost their owner in the last plan."""
        self._touched: set[PlanKey] = set()
        self._targets: dict[int | None, list[EventRow]] = {}
        for event in life.events:
            if event.event_type == "TARGET_COMPUTED":
                self._targets.setdefault(event.generation, []).append(event)

    def reassignment(self, row: GenerationRow, *, is_empty: bool) -> Reassignment:
        """What the plan of a generation changed; empty if no target was ever computed for it."""
        self._apply(row.from_log_offset)
        if is_empty:
            self._holders.clear()
            self._owners.clear()
            self._planned.clear()
            self._topics.clear()
            self._lost.clear()
            self._touched.clear()
            return Reassignment(0, 0, 0)
        planned_at = self.planned_at(row)
        if planned_at is None:
            return Reassignment(len(self._holders), 0, 0)
        self._apply(planned_at)
        moved = new = returned = 0
        grown: set[str] = set()
        lost: set[PlanKey] = set()
        arrived: set[PlanKey] = set()
        back: set[PlanKey] = set()
        identities: dict[str, frozenset[str]] = {}
        """Member id -> identity, for the members that own partitions then."""
        for key in self._touched:
            holders = self._holders.get(key)
            if holders is None:
                if key in self._planned:
                    lost.add(key)
                continue
            returned += key in self._lost
            for member_id in holders:
                if member_id not in identities:
                    identities[member_id] = frozenset((self._identity(member_id, planned_at),))
            is_one = len(holders) == 1
            owners = identities[member_id] if is_one else frozenset().union(*map(identities.__getitem__, holders))
            before = self._owners.get(key)
            if key not in self._planned:
                arrived.add(key)
                if before is not None:
                    back.add(key)
            if before is None:
                new += 1
                if self._topics.get(key[0], 0) > 0:
                    grown.add(key[0])
            elif before != owners:
                moved += 1
            self._owners[key] = owners
        self._planned -= lost
        self._planned |= arrived
        self._touched.clear()
        self._topics.update(topic for topic, _ in arrived)
        self._topics.subtract(topic for topic, _ in lost)
        self._lost = lost
        return Reassignment(
            total=len(self._holders),
            moved=moved,
            stayed=len(self._holders) - moved - new,
            came=len(arrived),
            came_back=len(arrived) - new,
            lost=frozenset(Lost(key, self._owners[key]) for key in lost),
            grown_topics=frozenset(grown),
            returned=returned,
            left_out=self._left_out(lost | back, arrived) if row.protocol_name in EAGER_PROTOCOLS else 0,
        )

    def _left_out(self, keys: Set[PlanKey], arrived: Set[PlanKey]) -> int:
        """Of those that came back or were lost, how many are below one of their topic that is in both plans."""
        highest = dict.fromkeys((topic for topic, _ in keys), -1)
        for topic, partition in self._planned - arrived if keys else ():
            if topic in highest:
                highest[topic] = max(highest[topic], partition)
        return sum(partition < highest[topic] for topic, partition in keys)

    def planned_at(self, row: GenerationRow) -> int | None:
        """The last record of the operation that wrote the plan of a generation; None if there is no plan."""
        if row.group_type == GroupType.CLASSIC:
            return row.from_log_offset
        for event in self._targets.get(row.generation, ()):
            is_before_end = row.to_log_offset is None or event.log_offset < row.to_log_offset
            if event.at >= row.valid_from and is_before_end:
                place = bisect_left(self._offsets, event.log_offset)
                is_same = place < len(self._changes) and self._changes[place].at == event.at
                return self._offsets[place] if is_same else event.log_offset
        return None

    def _apply(self, log_offset: int) -> None:
        """Apply all changes up to a log offset, inclusive. Ends come before beginnings."""
        end = bisect_right(self._offsets, log_offset)
        for change in self._changes[self._next : end]:
            holders = self._holders.setdefault(change.key, set())
            if change.is_begin:
                holders.add(change.member_id)
            else:
                holders.discard(change.member_id)
            if not holders:
                del self._holders[change.key]
            self._touched.add(change.key)
        self._next = max(self._next, end)

    def _identity(self, member_id: str, log_offset: int) -> str:
        member = self._members.at(member_id, log_offset)
        return member_id if member is None else identity_of(member)


def identity_of(member: MemberRow) -> str:
    """A member's id; for a static member its instance id, whatever its member id."""
    return member.member_id if member.instance_id is None else f"{INSTANCE}{member.instance_id}"


def planned_rows(assignments: Iterable[AssignmentRow]) -> Iterator[tuple[PlanKey, AssignmentRow]]:
    """The assignment rows that make up plans."""
    for row in assignments:
        wanted = CURRENT if row.group_type == GroupType.CLASSIC else TARGET
        if row.assignment == wanted and row.task_type in (None, ACTIVE):
            yield partition_of(row), row


def _changes(assignments: Iterable[AssignmentRow]) -> Iterable[_Change]:
    for key, row in planned_rows(assignments):
        yield _make_change((row.from_log_offset, row.valid_from, True, key, row.member_id))
        if row.to_log_offset is not None and row.valid_to is not None:
            yield _make_change((row.to_log_offset, row.valid_to, False, key, row.member_id))


_make_change: Final = maker_of(_Change)


def sync_phase_ms(row: GenerationRow) -> int:
    """The time from the end of the join phase to the leader's assignment, in which no eager member owned anything."""
    if row.current_state_at is None or row.protocol_name not in EAGER_PROTOCOLS:
        return 0
    return max(row.valid_from - row.current_state_at, 0)
