"""Storms: many rebalances in a short time, and who flaps."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.rows import RebalanceRow
from coordinator_core.inference.settings import InferenceSettings

CHANGES_MIN: Final = 3
"""To come and go once is no flapping; to come again is."""


def with_storms(
    rebalances: Sequence[RebalanceRow],
    explained: Sequence[Set[str]],
    members: Sequence[MemberRow],
    settings: InferenceSettings,
) -> list[RebalanceRow]:
    """The rebalances of one group, in order, marked where they are of a storm.

    A rebalance is of a storm if `storm_generation_count` of them, itself one, began within `storm_window_ms`. Storms
    that overlap are one. `explained` are, for each rebalance, ids of members that came or went for a known reason,
    which is no flapping.
    """
    marked = list(rebalances)
    names = {member.member_id: member.instance_id or member.client_id for member in members}
    for first, last in _storms([row.started_at for row in rebalances], settings):
        storm = slice(first, last + 1)
        flapping = _flapping(rebalances[storm], explained[storm], names)
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
    storm: Sequence[RebalanceRow], explained: Sequence[Set[str]], names: Mapping[str, str]
) -> tuple[str, ...]:
    """Who came and went again and again: by group instance id, or client id, since each time is another member id."""
    changes = Counter(
        names[member_id]
        for row, known in zip(storm, explained, strict=True)
        for member_id in (*row.members_joined, *row.members_left)
        if names.get(member_id) and member_id not in known
    )
    return tuple(sorted(name for name, count in changes.items() if count >= CHANGES_MIN))
