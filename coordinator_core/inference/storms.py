"""Storms: many rebalances in a short time, and who flaps."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final

from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.rows import RebalanceRow
from coordinator_core.inference.settings import InferenceSettings

CHANGES_MIN: Final = 3
"""To come and go once is no flapping; to come again is."""


def with_storms(
    rebalances: Sequence[RebalanceRow],
    log_offsets: Sequence[int],
    explained: Sequence[Set[str]],
    members: Iterable[MemberRow],
    settings: InferenceSettings,
) -> list[RebalanceRow]:
    """The rebalances of one group, in order, marked where they are of a storm.

    A rebalance is of a storm if `storm_generation_count` of them, itself one, began within `storm_window_ms`. Storms
    that overlap are one. `log_offsets` are those of the generations they led to, and `explained`, for each rebalance,
    ids of members that came or went for a known reason, which is no flapping.
    """
    marked = list(rebalances)
    names = _Names(members)
    for first, last in _storms([row.started_at for row in rebalances], settings):
        storm = slice(first, last + 1)
        flapping = _flapping(rebalances[storm], log_offsets[storm], explained[storm], names)
        for index in range(first, last + 1):
            marked[index] = marked[index]._replace(in_storm=True, flapping_members=flapping)
    return marked


def _storms(starts_ms: Sequence[int], settings: InferenceSettings) -> list[tuple[int, int]]:
    """First and last index of each storm."""
    storms: list[tuple[int, int]] = []
    count = max(settings.storm_generation_count, 1)
    for last in range(count - 1, len(starts_ms)):
        first = last - count + 1
        if starts_ms[last] - starts_ms[first] > settings.storm_window_ms:
            continue
        if storms and first <= storms[-1][1]:
            storms[-1] = storms[-1][0], last
        else:
            storms.append((first, last))
    return storms


def _flapping(
    storm: Sequence[RebalanceRow], log_offsets: Sequence[int], explained: Sequence[Set[str]], names: "_Names"
) -> tuple[str, ...]:
    """Who came and went again and again: by group instance id, or client id, since each time is another member id."""
    changes = Counter[str]()
    for row, place, known in zip(storm, log_offsets, explained, strict=True):
        changes.update(names.at(member_id, place + 1) for member_id in row.members_joined if member_id not in known)
        changes.update(names.at(member_id, place) for member_id in row.members_left if member_id not in known)
    return tuple(sorted(name for name, count in changes.items() if name and count >= CHANGES_MIN))


class _Names:
    """Group instance ids, or client ids, of members. One member id may come back under another name."""

    def __init__(self, members: Iterable[MemberRow]) -> None:
        self._begins: dict[str, list[tuple[int, str]]] = {}
        for member in members:
            name = member.instance_id or member.client_id
            self._begins.setdefault(member.member_id, []).append((member.from_log_offset, name))
        for begins in self._begins.values():
            begins.sort()

    def at(self, member_id: str, log_offset: int) -> str:
        """The name of the member that began last before a place in the log; none where none did."""
        begins = self._begins.get(member_id, ())
        index = bisect_left(begins, (log_offset, "")) - 1
        return begins[index][1] if index >= 0 else ""
