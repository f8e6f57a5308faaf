"""How long partitions had no owner: one computation for gold.partition_owners, gold.rebalances and gold.group_summary.

A partition that had an owner is unowned

* between two ownership intervals, while the group has members (`OwnerRow.gap_before_ms`);
* in the sync phase of an eager rebalance, from the end of the join phase to the leader's assignment, since every member
  has revoked everything by then. Join phases are not in the log, so for classic groups this is a lower bound.

Each ms counts for one ownership interval (the next one, or the one that contains it), for one rebalance (of the
generation in force; for a sync phase, the rebalance that it ends in), and for one day (UTC): three sums of the same
time.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from coordinator_core.inference.facts.calendar import cut_by_day
from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.groups.owners import REVOKED, OwnerPlace, partition_of, place_of


class Window(NamedTuple):
    """The time of one rebalance: from its generation's beginning to the beginning of the next."""

    log_offset: int
    """`from_log_offset` of its generation."""
    begin_ms: int
    """Never before the beginning of the previous window."""
    has_members: bool
    sync_from_ms: int
    """Where the sync phase of an eager rebalance began; equal to `sync_to_ms` if there was none."""
    sync_to_ms: int


class UnownedTime(NamedTuple):
    """Sums of one group."""

    by_owner: Sequence[int]
    """One for each ownership interval."""
    by_rebalance: Sequence[int]
    """One for each window."""
    revoked_by_rebalance: Sequence[int]
    """The part of it after revocations within an epoch (`owners.REVOKED`)."""
    by_day: Mapping[int, Counter[tuple[str, int]]]
    """First instant of a day -> topic and partition -> ms."""


def unowned_time(
    owners: Sequence[OwnerRow],
    windows: Sequence[Window],
    past: Mapping[OwnerPlace, int] | None = None,
    past_end: int = -1,
) -> UnownedTime:
    """All sums. `owners`: intervals with their gaps. `past`: earlier sums of intervals from before a settled place, up
    to `past_end` (a log offset, exclusive); new time is added to them."""
    phases = _SyncPhases(windows)
    by_owner = [0] * len(owners)
    by_rebalance, revoked = [0] * len(windows), [0] * len(windows)
    days: dict[int, Counter[tuple[str, int]]] = {}
    begins_ms = [window.begin_ms for window in windows]
    changes = [0] * (len(windows) + 1)
    """For each window, the change in the number of ownership intervals that contain its sync phase."""
    for index, row in enumerate(owners):
        kept = None if past is None else past.get(place_of(row))
        if kept is not None:
            by_owner[index] = kept
        elif row.gap_before_ms:
            for window, from_ms, to_ms in _cut(row.valid_from - row.gap_before_ms, row.valid_from, begins_ms):
                if windows[window].has_members:
                    by_owner[index] += to_ms - from_ms
                    by_rebalance[window] += to_ms - from_ms
                    revoked[window] += (to_ms - from_ms) * (row.gap_cause == REVOKED)
                    for day, ms in cut_by_day(from_ms, to_ms):
                        days.setdefault(day, Counter())[partition_of(row)] += ms
        if not phases.windows:
            continue
        first, end = phases.within(row, past_end if kept is not None else row.from_log_offset)
        if first < end:
            changes[phases.windows[first]] += 1
            changes[phases.windows[end - 1] + 1] -= 1
            by_owner[index] += phases.sum_ms(first, end)
            for day, ms in phases.days(first, end):
                days.setdefault(day, Counter())[partition_of(row)] += ms
    for window, count in enumerate(accumulate(changes[:-1])):
        by_rebalance[window] += count * (windows[window].sync_to_ms - windows[window].sync_from_ms)
    return UnownedTime(by_owner, by_rebalance, revoked, days)


def unowned_until(owner: OwnerRow, windows: Sequence[Window], log_offset: int) -> int:
    """The part of `OwnerRow.unowned_partition_ms` before a log offset, which the interval contains."""
    later = [window for window in windows if window.log_offset >= log_offset]
    phases = _SyncPhases(later)
    return owner.unowned_partition_ms - phases.sum_ms(*phases.within(owner, log_offset))


class _SyncPhases:
    """Sync phases of eager rebalances, in log order."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = [
            index
            for index, window in enumerate(windows)
            if window.has_members and window.sync_to_ms > window.sync_from_ms
        ]
        phases = [windows[index] for index in self.windows]
        self._log_offsets = [phase.log_offset for phase in phases]
        self._sums_ms = list(accumulate((phase.sync_to_ms - phase.sync_from_ms for phase in phases), initial=0))
        self._pieces = [list(cut_by_day(phase.sync_from_ms, phase.sync_to_ms)) for phase in phases]

    def within(self, row: OwnerRow, from_log_offset: int) -> tuple[int, int]:
        """Which of them lie in an ownership interval from a log offset on: first, and end (exclusive).

        The first generation of an interval counts only where another interval ended with it: within a gap the partition
        was unowned anyway, and without an earlier interval there was no owner to lose.
        """
        first = bisect_left(self._log_offsets, max(row.from_log_offset, from_log_offset))
        if (
            first < len(self._log_offsets)
            and self._log_offsets[first] == row.from_log_offset
            and row.gap_before_ms != 0
        ):
            first += 1
        if row.to_log_offset is None:
            return first, len(self._log_offsets)
        return first, bisect_left(self._log_offsets, row.to_log_offset)

    def sum_ms(self, first: int, end: int) -> int:
        """Total duration of some phases."""
        return self._sums_ms[end] - self._sums_ms[first] if first < end else 0

    def days(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The pieces of some phases as (day, ms)."""
        for pieces in self._pieces[first:end]:
            yield from pieces


def _cut(from_ms: int, to_ms: int, begins_ms: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """A span of time cut at the beginnings of windows, as (index of the window, from, to). The last window has no end,
    and time before the first belongs to none."""
    index = max(bisect_right(begins_ms, from_ms) - 1, 0)
    while index < len(begins_ms) and begins_ms[index] < to_ms:
        end_ms = begins_ms[index + 1] if index + 1 < len(begins_ms) else to_ms
        first, last = max(from_ms, begins_ms[index]), min(end_ms, to_ms)
        if last > first:
            yield index, first, last
        index += 1
