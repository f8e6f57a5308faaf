"""Audit watermarks: a place in a group's log before which its gold rows are final.

What is inferred for a rebalance depends on its neighbours: the members before it, the last owners of partitions,
whether it was part of a storm or a deployment. That reaches back over minutes; the days of a group, over one day. So if
two consecutive rebalances are on different days (UTC) and further apart than storms and deployments reach, the first
one and everything before it are final, provided that nothing was open between them:

* every rebalance until then was over; the second one does not follow up the first one;
* every partition that ever had an owner had one then, or the group was empty.

The next audit reads the rows of silver that were open at the watermark or came after it. In addition it needs what
those rows do not contain: the last events of the members at that time (`words`), and the ownership before it (`owned`,
`lost`). New records may still show that the watermark was wrong; then PastTooShort is raised, and the group is judged
from its beginning.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import PastTooShort
from coordinator_core.history.rows import EventRow, GenerationRow, MemberRow
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.leave_reasons import JOINED, NO_SIGNS_OF_LIFE, SIGNS_OF_LIFE
from coordinator_core.inference.groups.owners import (
    NOT_ASSIGNED,
    OWNED,
    MembersAt,
    OwnerPlace,
    is_gap_known,
    partition_of,
    place_of,
    unread_places,
)
from coordinator_core.inference.groups.reassignment import PlanKey, Plans, planned_rows
from coordinator_core.inference.groups.rebalance_completion import (
    PRESENCE,
    RECONCILED,
    STABLE,
    arrived_after,
    completion_times,
)
from coordinator_core.inference.groups.rebalances import Rebalances, begin_of
from coordinator_core.inference.groups.rollouts import FOLLOW_UPS
from coordinator_core.inference.groups.unowned import unowned_until
from schemas.group_types import GroupType

TOPOLOGY_CHANGED: Final = "TOPOLOGY_CHANGED"
OFFSETS_DELETED: Final = "OFFSETS_DELETED"
"""No inference about generations, members or owners uses this event, so it may occur at any time."""

Client = tuple[str | None, str, str]
"""Group instance id, client id and host of a member, as in gold rows."""


class OwnedBefore(NamedTuple):
    """What is kept about the time before a watermark, for an ownership interval that began before it."""

    gap_before_ms: int | None
    is_double: bool
    gap_cause: str | None
    unowned_partition_ms: int
    """Until the watermark."""


class AuditWatermark(NamedTuple):
    """A place between two generations of one group, before which everything is settled."""

    generation_at: int
    """`from_log_offset` of the generation before it. Rows that ended there or earlier are not needed."""
    next_at: int
    """`from_log_offset` of the generation after it."""
    next_ms: int
    """When the generation after it began."""
    events_from: int
    """Log offset of the first event of the operation that began the generation before it: events from there on are
    needed.
    """
    next_events_from: int
    """Log offset of the first event of the operation that began the generation after it."""
    at_ms: int
    """Latest time of anything before it."""
    begin_ms: int
    """Latest begin of all generations before it."""
    is_empty: bool
    """The group had no members there."""
    group_types: frozenset[str]
    words: tuple[EventRow, ...]
    """The last events of the members there, and of the group, before `events_from`, in log order."""
    owned: Mapping[OwnerPlace, OwnedBefore]
    """Ownership intervals that began before it."""
    lost: Mapping[PlanKey, int]
    """For partitions without an owner there: when the last owner lost them (ms)."""
    unplanned: frozenset[PlanKey]
    """Partitions that had an owner in a plan before the last plan, and have none in the last one."""

    @property
    def day(self) -> int:
        """First instant (ms) of the last day that is settled except for its commits."""
        return self.at_ms // DAY_MS * DAY_MS

    def is_after(self, at_ms: int, settings: InferenceSettings) -> bool:
        """Whether a time is far enough from everything before the watermark."""
        return _are_apart(self.at_ms, at_ms, settings)


def reach_ms(settings: InferenceSettings) -> int:
    """How long after a rebalance another one may still change what is inferred for it."""
    return max(settings.rollout_pause_ms, settings.storm_window_ms)


def since(life: GroupLife, watermark: AuditWatermark) -> GroupLife:
    """The rows that are needed to judge a group from a watermark on. `life`: its rows in log order."""
    place = watermark.generation_at
    return life._replace(
        generations=tuple(row for row in life.generations if _holds_after(row.to_log_offset, place)),
        members=tuple(row for row in life.members if _holds_after(row.to_log_offset, place)),
        assignments=tuple(row for row in life.assignments if _holds_after(row.to_log_offset, place)),
        events=watermark.words + tuple(row for row in life.events if row.log_offset >= watermark.events_from),
    )


def _holds_after(to_log_offset: int | None, place: int) -> bool:
    return to_log_offset is None or to_log_offset > place


def require_watermark(
    life: GroupLife, watermark: AuditWatermark, settings: InferenceSettings, new_log_offsets: I64
) -> None:
    """Raises PastTooShort if new rows show that the watermark is wrong. `life`: the result of `since`;
    `new_log_offsets`: log offsets of the commits to be judged."""
    begins = {row.from_log_offset for row in life.generations}
    if not {watermark.generation_at, watermark.next_at} <= begins:
        raise PastTooShort("a generation is no more")
    if (new_log_offsets <= watermark.generation_at).any():
        raise PastTooShort("a commit from before the settled past was decided")
    changed = (at_ms for place, at_ms in _changes(life) if place >= watermark.next_at)
    event_times = (event.at for event in _timed(life.events) if event.log_offset >= watermark.next_events_from)
    # if the earliest is far enough, all are
    earliest_ms = min(chain(changed, event_times), default=_NEVER)
    if not watermark.is_after(earliest_ms, settings):
        raise PastTooShort("times went back behind the settled past")
    planned = {key for key, row in planned_rows(life.assignments) if row.from_log_offset >= watermark.next_at}
    if planned & watermark.unplanned:
        raise PastTooShort("a partition is assigned again that had an owner long ago")


def unowned_before(watermark: AuditWatermark | None) -> tuple[Mapping[OwnerPlace, int] | None, int]:
    """For each ownership interval at a watermark, how long its partition had no owner until then; and the place."""
    if watermark is None:
        return None, -1
    return {place: before.unowned_partition_ms for place, before in watermark.owned.items()}, watermark.next_at


def with_past(owners: Sequence[OwnerRow], watermark: AuditWatermark, unread: Sequence[int] = ()) -> list[OwnerRow]:
    """Ownership intervals, completed with what is kept of the time before the watermark. `unread`: the `unread_places`
    since.

    Raises PastTooShort if a kept interval no longer exists, or if a gap begins before the watermark and ends
    after it.
    """
    joined = list(owners)
    owned = {place: index for index, row in enumerate(owners) if (place := place_of(row)) in watermark.owned}
    if owned.keys() != watermark.owned.keys():
        raise PastTooShort("an ownership interval is no more")
    for place, index in owned.items():
        before, row = watermark.owned[place], joined[index]
        joined[index] = row._replace(
            gap_before_ms=before.gap_before_ms,
            gap_cause=before.gap_cause,
            is_double=before.is_double or row.is_double,
        )
    for index in _firsts(owners, watermark.next_at):
        key = partition_of(owners[index])
        if key in watermark.lost and is_gap_known(unread, watermark.next_at, joined[index].from_log_offset):
            gap_ms = max(joined[index].valid_from - watermark.lost[key], 0)
            joined[index] = joined[index]._replace(gap_before_ms=gap_ms, gap_cause=NOT_ASSIGNED if gap_ms else None)
    later = (row for row in joined if row.from_log_offset >= watermark.next_at)
    if not _are_gaps_later(later, watermark.begin_ms if watermark.is_empty else watermark.next_ms):
        raise PastTooShort("a partition has an owner again that had none for long")
    return joined


def _are_gaps_later(owners: Iterable[OwnerRow], from_ms: int) -> bool:
    """Whether all gaps before ownership intervals began at `from_ms` or later. Then they count for no earlier
    rebalance; nor, if the group was empty, do gaps that began with the empty generation."""
    return all(not row.gap_before_ms or row.valid_from - row.gap_before_ms >= from_ms for row in owners)


def newest_watermark(
    life: GroupLife,
    owners: Sequence[OwnerRow],
    rebalances: Rebalances,
    settings: InferenceSettings,
    before: AuditWatermark | None = None,
) -> AuditWatermark | None:
    """The newest watermark; `before` if there is none after it.

    `life`: all of it, or the result of `since`, its rows in log order; `owners` and `rebalances`: of `life`, without
    the rebalances before.
    """
    numbers = [number for number in range(len(rebalances.rows) - 1, 0, -1) if _may_part(rebalances, number, settings)]
    if not numbers:
        return before
    times, seeker = _Times(life, rebalances), _Seeker(life, owners, rebalances, before)
    indices = {row.from_log_offset: index for index, row in enumerate(life.generations)}
    for number in numbers:
        index = indices[rebalances.log_offsets[number]]
        if life.generations[index - 1].from_log_offset != rebalances.log_offsets[number - 1]:
            continue
        at_ms, next_ms = times.around(number)
        if not _are_apart(at_ms, next_ms, settings):
            continue
        found = seeker.at(index, at_ms, is_empty=not rebalances.rows[number - 1].member_count)
        if found is not None:
            return found
    return before


def _may_part(rebalances: Rebalances, number: int, settings: InferenceSettings) -> bool:
    """Whether a watermark before a rebalance is possible, judging only by it and the one before it."""
    before, row = rebalances.rows[number - 1 : number + 1]
    return FOLLOW_UPS.isdisjoint(row.cause_methods) and _are_apart(before.started_at, row.started_at, settings)


def _are_apart(at_ms: int, next_ms: int, settings: InferenceSettings) -> bool:
    return next_ms - at_ms > reach_ms(settings) and next_ms // DAY_MS > at_ms // DAY_MS


class _Times:
    """Times of changes before and after each rebalance of one group."""

    def __init__(self, life: GroupLife, rebalances: Rebalances) -> None:
        changes = sorted(_changes(life))
        places = np.array([place for place, _ in changes], np.int64)
        at_ms = np.array([at for _, at in changes], np.int64)
        begins = np.array(rebalances.log_offsets, np.int64)
        bounds = np.searchsorted(places, begins)
        self._before = np.maximum.accumulate(np.append(_LONG_AGO, at_ms))[bounds]
        self._after = np.minimum.accumulate(np.append(at_ms, _NEVER)[::-1])[::-1][bounds]
        offsets, timed = [event.log_offset for event in life.events], list(_timed(life.events))
        of_events = np.array([event.at for event in timed], np.int64)
        rows = {row.from_log_offset: row for row in life.generations}
        begun = np.searchsorted(
            np.array([event.log_offset for event in timed], np.int64),
            [begin_of(life.events, offsets, rows[place]) for place in rebalances.log_offsets],
        )
        self._before = np.maximum(self._before, np.maximum.accumulate(np.append(_LONG_AGO, of_events))[begun])
        self._after = np.minimum(self._after, np.minimum.accumulate(np.append(of_events, _NEVER)[::-1])[::-1][begun])
        over = [_NEVER if row.completed_at is None else row.completed_at for row in rebalances.rows]
        self._over = np.maximum.accumulate(np.array(over, np.int64))

    def around(self, number: int) -> tuple[int, int]:
        """The latest time of anything before a rebalance (earlier rebalances being over), and the earliest time of
        anything else.
        """
        return max(int(self._before[number]), int(self._over[number - 1])), int(self._after[number])


def _timed(events: Iterable[EventRow]) -> Iterator[EventRow]:
    return (event for event in events if event.event_type != OFFSETS_DELETED)


_LONG_AGO: Final = np.iinfo(np.int64).min // 2
_NEVER: Final = np.iinfo(np.int64).max // 2


def _changes(life: GroupLife) -> Iterator[tuple[int, int]]:
    """Log offsets where something about a group changed, with the times."""
    for generation in life.generations:
        yield generation.from_log_offset, generation.valid_from
        if generation.current_state_at is not None:
            yield generation.from_log_offset, generation.current_state_at
    for rows in (life.members, life.assignments):
        for row in rows:
            yield row.from_log_offset, row.valid_from
            if row.to_log_offset is not None and row.valid_to is not None:
                yield row.to_log_offset, row.valid_to


class _Seeker:
    """Collects what has to be kept of a group at a place between two generations, or finds that the place is not
    settled.
    """

    def __init__(
        self, life: GroupLife, owners: Sequence[OwnerRow], rebalances: Rebalances, before: AuditWatermark | None
    ) -> None:
        self._life = life
        self._owners = owners
        self._windows = rebalances.windows
        self._before = before
        self._offsets = [event.log_offset for event in life.events]
        self._completed = completion_times(life.events)

    def at(self, index: int, at_ms: int, *, is_empty: bool) -> AuditWatermark | None:
        """The watermark before the generation with an index; None if something was open there."""
        life, before = self._life, self._before
        last, following = life.generations[index - 1 : index + 1]
        place, next_at, next_ms = last.from_log_offset, following.from_log_offset, following.valid_from
        members = tuple(row for row in life.members if _holds_after(row.to_log_offset, place))
        member_ids = frozenset(row.member_id for row in members if row.from_log_offset < next_at)
        begin, next_begin = (begin_of(life.events, self._offsets, row) for row in (last, following))
        if not self._is_over(next_begin):
            return None
        owned = self._owned(place, next_at, MembersAt(members))
        begin_ms = max(row.valid_from for row in life.generations[:index])
        begin_ms = begin_ms if before is None else max(begin_ms, before.begin_ms)
        lost = self._lost(next_at)
        if lost and unread_places(life, next_at):
            return None  # their later owners are unknown, and a watermark would claim that there were none
        unplanned = frozenset() if is_empty else self._unplanned(last)
        later = (row for row in self._owners if row.from_log_offset >= next_at)
        if owned is None or unplanned is None or not _are_gaps_later(later, begin_ms if is_empty else next_ms):
            return None
        first, end = (bisect_left(self._offsets, offset) for offset in (begin, next_begin))
        words = _words(life.events[:first], life.events, member_ids, self._first_owned(place, next_at))
        if arrived_after((*words, *life.events[first:end])) != arrived_after(life.events[:end]):
            return None
        types = {row.group_type for row in life.generations[:index]}
        types |= {row.group_type for row in life.members if row.from_log_offset < next_at}
        return AuditWatermark(
            generation_at=place,
            next_at=next_at,
            next_ms=next_ms,
            events_from=begin,
            next_events_from=next_begin,
            at_ms=at_ms,
            begin_ms=begin_ms,
            is_empty=is_empty,
            group_types=frozenset(types if before is None else types | before.group_types),
            words=words,
            owned=owned,
            lost=lost,
            unplanned=unplanned,
        )

    def _is_over(self, log_offset: int) -> bool:
        """Whether all members had reached every generation whose event is before a log offset. Classic generations
        begin with that.
        """
        started = (event for event in self._life.events if event.event_type == "GENERATION_STARTED")
        return all(
            event.group_type == GroupType.CLASSIC or event.log_offset in self._completed
            for event in started
            if event.log_offset < log_offset
        )

    def _first_owned(self, place: int, next_at: int) -> int:
        """First log offset of the intervals of streams tasks that were assigned at a place."""
        begins = (
            row.from_log_offset
            for row in self._life.assignments
            if row.group_type == GroupType.STREAMS
            and row.from_log_offset < next_at
            and _holds_after(row.to_log_offset, place)
        )
        return min(begins, default=next_at)

    def _owned(self, place: int, next_at: int, members: MembersAt) -> dict[OwnerPlace, OwnedBefore] | None:
        """What has to be kept of the ownership intervals at a place; None if the silver rows that are read later
        would give an interval another beginning or another owner."""
        begins = {
            (row.topic_id, row.partition, row.from_log_offset, row.member_id)
            for row in self._life.assignments
            if row.assignment in OWNED and _holds_after(row.to_log_offset, place)
        }
        owned: dict[OwnerPlace, OwnedBefore] = {}
        for row in self._owners:
            if row.from_log_offset >= next_at or not _holds_after(row.to_log_offset, place):
                continue
            member = members.at(row.member_id, row.from_log_offset)
            if member is None or _client_of(member) != (row.instance_id, row.client_id, row.client_host):
                return None
            if (row.topic_id, row.partition, row.from_log_offset, row.member_id) not in begins:
                return None
            unowned_ms = unowned_until(row, self._windows, next_at)
            owned[place_of(row)] = OwnedBefore(row.gap_before_ms, row.is_double, row.gap_cause, unowned_ms)
        return owned

    def _lost(self, next_at: int) -> dict[PlanKey, int]:
        """Partitions that had an owner before a place and none at it, with the time when they lost it."""
        latest: dict[PlanKey, tuple[int, int]] = {}
        owned: set[PlanKey] = set()
        for row in self._owners:
            if row.from_log_offset >= next_at:
                continue
            if row.to_log_offset is None or row.valid_to is None or row.to_log_offset >= next_at:
                owned.add(partition_of(row))
            else:
                ended = row.to_log_offset, row.valid_to
                latest[partition_of(row)] = max(latest.get(partition_of(row), ended), ended)
        lost = {} if self._before is None else dict(self._before.lost)
        lost |= {key: valid_to for key, (_, valid_to) in latest.items()}
        return {key: valid_to for key, valid_to in lost.items() if key not in owned}

    def _unplanned(self, last: GenerationRow) -> frozenset[PlanKey] | None:
        """Partitions that had an owner in plans before the plan of a generation, and none in it. None if it has no
        plan, where a later plan has one of these partitions, or where a planned member's instance id changed."""
        life = self._life
        planned_at = Plans(life).planned_at(last)
        if planned_at is None:
            return None
        members = MembersAt(life.members)
        once, planned, later = set(), set(), set()
        for key, row in planned_rows(life.assignments):
            if row.from_log_offset > planned_at:
                later.add(key)
            elif not _holds_after(row.to_log_offset, planned_at):
                once.add(key)
            else:
                planned.add(key)
                begun, now = (members.at(row.member_id, at) for at in (row.from_log_offset, planned_at))
                if (begun and begun.instance_id) != (now and now.instance_id):
                    return None
        once |= frozenset() if self._before is None else self._before.unplanned
        return None if later & (once - planned) else frozenset(once - planned)


def _words(
    events: Sequence[EventRow], all_events: Sequence[EventRow], member_ids: frozenset[str], topologies_from: int
) -> tuple[EventRow, ...]:
    """The events to keep, out of `events` (the first ones of `all_events`), since later ones do not replace them: for
    the group and for each current member, the newest of each kind by log offset and by time; the newest that shows a
    member with its whole assignment; and what streams groups read from a place on."""
    rebuilt = {event.at for event in all_events if event.event_type in NO_SIGNS_OF_LIFE}
    of_group: dict[tuple[str, str], EventRow] = {}
    of_members: dict[str, dict[tuple[str, str], EventRow]] = {}
    topologies: list[EventRow] = []
    for event in events:
        kind, member_id = event.event_type, event.member_id
        if kind == TOPOLOGY_CHANGED:
            if event.log_offset <= topologies_from:
                topologies.clear()
            topologies.append(event)
        of_group["newest", ""] = event
        if event.at >= of_group.get(("latest", ""), event).at:
            of_group["latest", ""] = event
        if member_id is None:
            of_group["newest", kind] = event
            continue
        if member_id not in member_ids or kind not in PRESENCE | SIGNS_OF_LIFE:
            continue
        is_alive = kind in SIGNS_OF_LIFE and event.at not in rebuilt
        if is_alive and kind == JOINED:
            of_members[member_id] = {}  # earlier events belong to another membership interval
        kept = of_members.setdefault(member_id, {})
        kept["newest", kind] = event
        if kind == RECONCILED and event.details.get("state") == STABLE:
            kept[STABLE, kind] = event
        if is_alive:
            kept["alive", kind] = event
            if event.at >= kept.get(("latest", ""), event).at:
                kept["latest", ""] = event
    newest = [*of_group.values(), *(event for kept in of_members.values() for event in kept.values())]
    times = {event.at for event in newest}
    again = (event for event in events if event.event_type in NO_SIGNS_OF_LIFE and event.at in times)
    found = {(event.log_offset, event.event_index): event for event in (*newest, *topologies, *again)}
    return tuple(found[place] for place in sorted(found))


def _client_of(member: MemberRow) -> Client:
    return member.instance_id, member.client_id, member.client_host


def _firsts(owners: Iterable[OwnerRow], next_at: int) -> Iterable[int]:
    """For each partition, the index of its first ownership interval that begins at a place or later."""
    firsts: dict[PlanKey, tuple[int, int]] = {}
    for index, row in enumerate(owners):
        at = row.from_log_offset, index
        if row.from_log_offset >= next_at:
            firsts[partition_of(row)] = min(firsts.get(partition_of(row), at), at)
    return [index for _, index in firsts.values()]
