"""The batch combiner: Kafka's own answers, and what holds of each offset."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.replay.share_state.combine import (
    UNSET_OFFSET,
    CleanBatches,
    StateBatch,
    combine_state_batches,
)
from tests.conformance.families import combiner
from tests.coordinator_core.live.share_state.reference import canonical_batches

TRACE = Path(__file__).parents[3] / "data" / "traces" / "combiner.jsonl.gz"

Numbers = list[tuple[int, int, int, int]]


def batches(numbers: Numbers) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*batch) for batch in numbers)


def test_combiner_agrees_with_kafka() -> None:
    """Every case of Kafka's own trace gives the same batches in the same order."""
    assert combiner.run(TRACE) == (3000, 3000, [])


BATCH = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 8),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 3),
)
LISTS = st.lists(BATCH, max_size=8)


def by_offset(parts: Sequence[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    ranks: dict[int, tuple[int, int]] = {}
    for batch in parts:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            ranks[offset] = max(ranks.get(offset, batch.rank), batch.rank)
    return ranks


@given(LISTS, LISTS, st.integers(-1, 35))
def test_canonical_batches_hold_the_highest_rank_of_each_offset(
    so_far: list[StateBatch], update: list[StateBatch], start_offset: int
) -> None:
    """Sorted, disjoint, joined, and for each offset the best of all batches which cover it."""
    both = [*so_far, *update]
    canonical = canonical_batches(both, start_offset)
    assert by_offset(canonical, UNSET_OFFSET) == by_offset(both, start_offset)
    for left, right in pairwise(canonical):
        assert left.last_offset < right.first_offset
        assert left.last_offset + 1 < right.first_offset or left.rank != right.rank


@given(LISTS, LISTS, st.integers(-1, 35))
def test_the_order_of_arrival_does_not_matter(
    so_far: list[StateBatch], update: list[StateBatch], start_offset: int
) -> None:
    """Which list a batch is in is nothing to the combiner."""
    assert combine_state_batches(so_far, update, start_offset) == combine_state_batches(update, so_far, start_offset)


def test_canonical_batches_leave_out_what_covers_nothing() -> None:
    """A batch which ends before it begins, or begins below 0, is no range of offsets."""
    assert canonical_batches(batches([(5, 4, 0, 1), (-3, 2, 0, 1), (7, 7, 2, 1)])) == batches([(7, 7, 2, 1)])


@given(LISTS, st.lists(st.tuples(LISTS, st.integers(-1, 40)), max_size=12))
def test_what_is_clean_already_is_combined_as_anything_else(
    so_far: list[StateBatch], updates: list[tuple[list[StateBatch], int]]
) -> None:
    """The short way, for states which a combination made, gives what the long one gives, update by update."""
    state = combine_state_batches((), so_far, UNSET_OFFSET)
    for update, start_offset in updates:
        long_way = combine_state_batches(tuple(state), update, start_offset)
        state = combine_state_batches(state, update, start_offset)
        assert state == long_way


@given(LISTS, st.integers(-1, 40))
def test_clean_batches_are_clean(so_far: list[StateBatch], start_offset: int) -> None:
    """What is called clean has no two batches which overlap or could be joined."""
    combined = combine_state_batches((), so_far, start_offset)
    if isinstance(combined, CleanBatches):
        for before, after in pairwise(combined):
            assert before.last_offset < after.first_offset
            assert before.last_offset + 1 < after.first_offset or before.rank != after.rank


def test_a_batch_which_covers_nothing_is_never_clean() -> None:
    """Kafka passes a batch which ends before it begins on, and the short way must not meet it."""
    backwards = StateBatch(5, 4, 2, 1)
    assert combine_state_batches((), [backwards], UNSET_OFFSET) == (backwards,)
    assert not isinstance(combine_state_batches((), [backwards], UNSET_OFFSET), CleanBatches)
    clean = combine_state_batches((), batches([(0, 3, 0, 1)]), UNSET_OFFSET)
    combined = combine_state_batches(clean, [backwards], UNSET_OFFSET)
    assert combined == combine_state_batches(tuple(clean), [backwards], UNSET_OFFSET) == (clean[0], backwards)


@given(LISTS, LISTS, st.integers(-1, 40))
def test_since_4_4_the_combination_is_canonical(
    so_far: list[StateBatch], update: list[StateBatch], start_offset: int
) -> None:
    """Kafka 4.4 always joins equal neighbours, and each offset has the state that releases before give it."""
    combined = combine_state_batches(so_far, update, start_offset, KafkaVersion(4, 4))
    assert combined == canonical_batches([*so_far, *update], start_offset)
    assert combined == canonical_batches(combine_state_batches(so_far, update, start_offset, KafkaVersion(4, 3)))
