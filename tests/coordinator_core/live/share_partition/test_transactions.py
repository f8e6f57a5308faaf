"""Aborted transactions: which batches they are, and what is left of an acquisition."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.share_partition.state import AbortedTransaction, AcquiredRecords, LogBatch
from coordinator_core.live.share_partition.transactions import aborted_batches, without_batches


def data(first_offset: int, last_offset: int, producer_id: int) -> LogBatch:
    return LogBatch(first_offset, last_offset, producer_id, is_transactional=True)


def abort(offset: int, producer_id: int) -> LogBatch:
    return LogBatch(offset, offset, producer_id, is_transactional=True, is_abort_marker=True)


def test_transactions_come_in_any_order() -> None:
    """The list of aborted transactions need not be sorted."""
    log = [data(0, 1, 7), data(2, 3, 8), abort(4, 7), data(5, 6, 8), data(7, 8, 7)]
    assert aborted_batches(log, [AbortedTransaction(8, 2), AbortedTransaction(7, 0)]) == [log[0], log[1], log[3]]


RANGES = (
    st.lists(st.integers(0, 30), unique=True, max_size=12)
    .map(sorted)
    .map(lambda cuts: list(zip(cuts[::2], cuts[1::2], strict=False)))
)


@given(RANGES, RANGES)
def test_without_batches_is_a_difference_of_sets(
    acquired: list[tuple[int, int]], removed: list[tuple[int, int]]
) -> None:
    """The same offsets as a plain difference, each with its own delivery count, in ascending ranges."""
    records = [AcquiredRecords(first, last, number) for number, (first, last) in enumerate(acquired)]
    kept = without_batches(records, [LogBatch(first, last) for first, last in removed])
    gone = {offset for first, last in removed for offset in range(first, last + 1)}
    expected = [
        (o, r.delivery_count) for r in records for o in range(r.first_offset, r.last_offset + 1) if o not in gone
    ]
    assert [(o, r.delivery_count) for r in kept for o in range(r.first_offset, r.last_offset + 1)] == expected
