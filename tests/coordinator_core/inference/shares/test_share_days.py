"""Days of share groups: columns that say what adding up row by row says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.shares.share_days import (
    ARCHIVED,
    COUNTED,
    INT64_MAX,
    ShareCounts,
    SharePlace,
    merged_days,
)
from schemas.group_types import GroupType
from tests.coordinator_core.inference.share_logs import counts_of

Row = tuple[SharePlace, int, tuple[int, ...]]
"""A share partition, a day, and what `COUNTED` names."""

places = st.builds(
    SharePlace, st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2), st.sampled_from((None, "s", "t"))
)
numbers = st.integers(0, 3) | st.sampled_from((INT64_MAX - 1, INT64_MAX))
rows_of_a_part = st.lists(
    st.tuples(places, st.integers(19_000, 19_003), st.tuples(*[numbers] * len(COUNTED))),
    max_size=6,
    unique_by=lambda row: (key_of(row[0]), row[1]),
)


def key_of(place: SharePlace) -> tuple[str, str, int]:
    """What tells a share partition from others."""
    return place.group_id, place.topic_id, place.partition


def columns_of(rows: Sequence[Row]) -> ShareCounts:
    """In any order; a share partition has one name in it."""
    named = {key_of(place): place for place, *_ in rows}
    codes = {key: code for code, key in enumerate(named)}
    counts = np.array([counts for *_, counts in rows], np.int64).reshape(-1, len(COUNTED))
    return ShareCounts(
        tuple(named.values()),
        np.array([codes[key_of(place)] for place, *_ in rows], np.int64),
        np.array([day for _, day, _ in rows], np.int64),
        np.ascontiguousarray(counts.T),
    )


def added_up(parts: Sequence[Sequence[Row]]) -> dict[tuple[tuple[str, str, int], int], list[int]]:
    """By share partition and day."""
    found: dict[tuple[tuple[str, str, int], int], list[int]] = {}
    for place, day, counts in (row for part in parts for row in part):
        sums = found.setdefault((key_of(place), day), [0] * len(COUNTED))
        sums[:] = [min(one + other, INT64_MAX) for one, other in zip(sums, counts, strict=True)]
    return found


def names(parts: Sequence[Sequence[Row]]) -> dict[tuple[str, str, int], str | None]:
    """The last one that a part has."""
    found: dict[tuple[str, str, int], str | None] = {}
    for part in parts:
        for place in columns_of(part).places:
            found[key_of(place)] = place.topic or found.get(key_of(place))
    return found


@given(st.lists(rows_of_a_part, max_size=4))
def test_parts_together(parts: list[list[Row]]) -> None:
    """Sums by share partition and day, in order; what was put together before may be put together with more."""
    columns = [columns_of(part) for part in parts]
    for found in (
        ShareCounts.together(columns),
        ShareCounts.together([ShareCounts.together(columns[:2]), *columns[2:]]),
    ):
        rows = [((key_of(place), day), counts) for place, day, counts in counts_of(found)]
        assert rows == sorted(added_up(parts).items())
        assert {key_of(place): place.topic for place in found.places} == names(parts)
        assert list(found.places) == sorted(found.places, key=key_of)


@given(st.lists(rows_of_a_part, max_size=3), st.sets(st.tuples(st.sampled_from("abc"), st.integers(19_000, 19_003))))
def test_days_of_groups(parts: list[list[Row]], reported: set[tuple[str, int]]) -> None:
    """All share partitions of a group together, and what the log of groups knows; the worst one is named."""
    group_days = [
        ShareGroupDayRow(group_id, GroupType.SHARE, day * DAY_MS, generation_count=2, member_count_max=5)
        for group_id, day in sorted(reported)
    ]
    named = names(parts)
    expected: dict[tuple[str, int], ShareGroupDayRow] = {}
    counts = added_up(parts)
    for group_id, day in sorted(reported | {(key[0], day) for key, day in counts}):
        of_day = {key: sums for (key, on), sums in counts.items() if (key[0], on) == (group_id, day)}
        sums = [min(sum(column), INT64_MAX) for column in zip(*of_day.values(), strict=True)] or [0] * len(COUNTED)
        archived = {key: sums[ARCHIVED] for key, sums in of_day.items() if sums[ARCHIVED]}
        worst = min(((-count, named[key] or "", key[2]) for key, count in archived.items()), default=None)
        of_day_row: dict[str, Any] = dict(zip(COUNTED, sums, strict=True))
        if (group_id, day) in reported:
            of_day_row |= {"generation_count": 2, "member_count_max": 5}
        if worst is not None:
            of_day_row |= {"worst_topic": worst[1] or None, "worst_partition": worst[2]}
        expected[group_id, day] = ShareGroupDayRow(group_id, GroupType.SHARE, day * DAY_MS, **of_day_row)
    assert merged_days(list(map(columns_of, parts)), group_days) == list(expected.values())
