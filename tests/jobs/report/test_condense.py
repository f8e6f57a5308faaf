"""What is put together: nothing is lost of it, and all that is left fits."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.chunk import I64
from jobs.report.condense import (
    OPEN,
    SEVERAL,
    STEP_MS,
    Condensed,
    DeliveryStates,
    Marks,
    Ownership,
    delivery_states,
    deltas,
    flow,
    marks,
)
from jobs.report.reader import shared_out

TIMES = st.integers(0, 100_000)
MOST = st.integers(0, 30)


def column(numbers: list[int]) -> I64:
    """A column."""
    return np.array(numbers, np.int64)


@st.composite
def ownerships(draw: st.DrawFn) -> Ownership:
    """Intervals of a few partitions, which follow one another; the last of a partition may be open."""
    found: list[tuple[int, int, int, int]] = []
    for row in range(draw(st.integers(1, 4))):
        at = draw(TIMES)
        lengths = draw(st.lists(st.integers(0, 5_000), min_size=1, max_size=20))
        for length in lengths:
            found.append((row, draw(st.integers(0, 3)), at, at + length))
            at += length + draw(st.integers(0, 1_000))
        if draw(st.booleans()):
            found[-1] = (*found[-1][:3], OPEN)
    rows, members, starts, ends = (column(list(values)) for values in zip(*found, strict=True))
    return Ownership(rows, members, starts, ends, np.ones(len(found), np.int64))


@given(ownerships(), MOST)
def test_ownership_put_together_covers_the_same(whole: Ownership, most: int) -> None:
    """Each partition begins and ends as it did, every interval is in one that is left, and none but joined ones are of
    several members."""
    condensed = Condensed(whole)
    left = condensed.at_most(most)
    assert len(left) <= max(most, len(np.unique(whole.rows)) * 2)
    assert left.counts.sum() == len(whole)
    for row in np.unique(whole.rows):
        before, after = whole.rows == row, left.rows == row
        assert left.starts[after][0] == whole.starts[before][0]
        assert left.ends[after][-1] == whole.ends[before][-1]
    assert ((left.members == SEVERAL) == (left.counts > 1)).all()
    if len(whole) <= most:
        assert condensed.step == 0 and left is whole


@st.composite
def marked(draw: st.DrawFn) -> pa.Table:
    """Rows with a time, a cause, a partition and offsets."""
    rows = draw(st.lists(st.tuples(TIMES, st.sampled_from("ab"), st.integers(0, 2), st.integers(1, 9)), max_size=50))
    at, causes, partitions, offsets = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "at": pa.array([time * 1000 for time in at], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "cause": pa.array(causes, pa.string()).dictionary_encode(),
            "partition": pa.array(partitions, pa.int32()),
            "first_offset": pa.array(range(len(rows)), pa.int64()),
            "last_offset": pa.array([first + count - 1 for first, count in enumerate(offsets)], pa.int64()),
        }
    )


@given(marked(), MOST)
def test_marks_put_together_count_the_same(rows: pa.Table, most: int) -> None:
    """Of each kind as many, with as many offsets, in the order of time; none moves by more than the step."""
    condensed = Condensed(marks(rows, "at", ["cause"], ["partition"]))
    left = condensed.at_most(most)
    kinds = list(zip(left.kind_columns["cause"], left.kind_columns["partition"], strict=True))
    assert len(kinds) == len(set(kinds)) <= max(len(left), len(kinds))
    assert len(left) <= max(most, len(kinds))
    for number, (cause, partition) in enumerate(kinds):
        own = rows.filter(
            (pa.compute.field("cause") == cause) & (pa.compute.field("partition") == partition)
        ).to_pylist()
        is_kind = left.kinds == number
        assert left.counts[is_kind].sum() == len(own)
        assert left.offsets[is_kind].sum() == sum(row["last_offset"] - row["first_offset"] + 1 for row in own)
    assert left.counts.sum() == rows.num_rows
    assert (np.diff(left.at_ms) >= 0).all()
    assert list(accumulate(left.json()["at"])) == left.at_ms.tolist()


@given(st.lists(st.tuples(TIMES, st.integers(0, 5_000) | st.none()), max_size=50), MOST)
def test_flow_put_together_has_the_same_sum(intervals: list[tuple[int, int | None]], most: int) -> None:
    """All who came and went are counted, and at each moment that is left as many are there as were."""
    starts = column([start for start, _ in intervals])
    ends = column([OPEN if length is None else start + length for start, length in intervals])
    condensed = Condensed(flow(starts, ends))
    left = condensed.at_most(most)
    assert len(left) <= max(most, 1)
    assert (left.came.sum(), left.went.sum()) == (len(starts), (ends != OPEN).sum())
    for at_ms, there in zip(left.at_ms[1:], np.cumsum(left.came - left.went)[:-1], strict=True):
        assert there == (starts < at_ms).sum() - ((ends < at_ms) & (ends != OPEN)).sum()


@st.composite
def states(draw: st.DrawFn) -> DeliveryStates:
    """Intervals of delivery states."""
    one = st.tuples(
        st.integers(0, 10_000), st.integers(0, 50), st.integers(0, 3), st.integers(1, 5), TIMES,
        st.integers(0, 5_000) | st.none(), st.integers(0, 1)
    )  # fmt: skip
    rows = draw(st.lists(one, min_size=1, max_size=60))
    return delivery_states(
        [
            column([first for first, *_ in rows]),
            column([first + more for first, more, *_ in rows]),
            column([row[2] for row in rows]),
            column([row[3] for row in rows]),
            column([row[4] for row in rows]),
            column([OPEN if row[5] is None else row[4] + row[5] for row in rows]),
            column([row[6] for row in rows]),
        ]
    )


@given(states(), MOST)
def test_delivery_states_put_together_cover_the_same(whole: DeliveryStates, most: int) -> None:
    """Each interval lies in one of its own state that is left; what was not certain is not certain afterwards."""
    condensed = Condensed(whole)
    left = condensed.at_most(most)
    assert len(left) <= max(most, 8)
    assert left.counts.sum() == len(whole)
    for index in range(len(whole)):
        covers = (
            (left.states == whole.states[index])
            & (left.firsts <= whole.firsts[index])
            & (left.lasts >= whole.lasts[index])
            & (left.starts <= whole.starts[index])
            & ((left.ends == OPEN) == (whole.ends[index] == OPEN))
            & (left.ends >= whole.ends[index])
            & (left.deliveries >= whole.deliveries[index])
            & (left.is_sure <= whole.is_sure[index])
        )
        assert covers.any()


def test_a_page_that_is_still_too_large_goes_on_from_there() -> None:
    """Asked for less and less, it comes to what it had come to at once."""
    at_ms = np.arange(1_000) * 100
    ones = np.ones(1_000, np.int64)
    whole = Marks(at_ms, ones - 1, ones, ones, ones, {"cause": ["a"]})
    slowly = Condensed(whole)
    for most in (900, 90, 9):
        left = slowly.at_most(most)
    at_once = Condensed(whole)
    assert (left.json(), slowly.step) == (at_once.at_most(9).json(), at_once.step) and slowly.step * STEP_MS >= 10_000


@pytest.mark.parametrize(
    ("total", "needs", "shares"),
    [
        (10, [3, 3], [3, 3]),
        (10, [100, 1], [9, 1]),
        (10, [100, 1, 100], [4, 1, 5]),
        (10, [], []),
        (1, [5, 5], [0, 1]),
    ],
)
def test_who_needs_little_gets_it(total: int, needs: list[int], shares: list[int]) -> None:
    """The others share what is left, and no more is given out than there is."""
    assert shared_out(total, needs) == shares


@given(st.lists(st.integers(0, 1 << 50)))
def test_deltas_are_summed_up_again(numbers: list[int]) -> None:
    """As the page does."""
    assert list(accumulate(deltas(column(numbers)))) == numbers
