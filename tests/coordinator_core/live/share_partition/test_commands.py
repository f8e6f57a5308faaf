"""What each command does, case by case, on a small share partition.

Unless a test says otherwise the limit is 5 deliveries, a lock runs 1000 ms, and every write succeeds.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.live.share_partition.acknowledge import complete_write, release
from coordinator_core.live.share_partition.archive import update_log_start_offset
from coordinator_core.live.share_partition.errors import (
    InvalidReadState,
    InvalidRecordState,
    InvalidRequest,
    RefusedRequest,
    UnknownWrite,
)
from coordinator_core.live.share_partition.initialize import begin_initialization, complete_initialization
from coordinator_core.live.share_partition.state import (
    BATCH_OFFSETS_MAX,
    Acquired,
    LogBatch,
    ReadState,
    SharePartition,
    SharePartitionConfig,
)
from coordinator_core.live.share_partition.states import SharePartitionState
from coordinator_core.replay.share_state.combine import StateBatch
from tests.conformance.families import share_partition
from tests.coordinator_core.live.share_partition.live import (
    ACCEPT,
    ACK,
    ACQ,
    ARC,
    AV,
    FAILED,
    RELEASE,
    Live,
    written,
)

# --- start-up ---


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([StateBatch(4, 9, AV, 1)], id="below-the-start"),
        pytest.param([StateBatch(5, 9, AV, 1), StateBatch(9, 10, AV, 1)], id="overlap"),
        pytest.param([StateBatch(9, 8, AV, 1)], id="ends-before-it-begins"),
        pytest.param([StateBatch(5, 9, 3, 1)], id="unknown-state"),
        pytest.param([StateBatch(5, 5 + BATCH_OFFSETS_MAX, AV, 1)], id="too-long"),
    ],
)
def test_start_up_fails_on_a_state_which_cannot_be(batches: list[StateBatch]) -> None:
    """It raises, the share partition is FAILED, and nothing of the state was taken over."""
    partition = SharePartition(SharePartitionConfig())
    begin_initialization(partition)
    with pytest.raises(InvalidReadState):
        complete_initialization(partition, ReadState(5, 1, tuple(batches)))
    assert partition.partition_state is SharePartitionState.FAILED
    assert (partition.start_offset, len(partition.cached)) == (0, 0)


# --- acquire ---


def test_a_limit_before_the_first_batch_acquires_nothing() -> None:
    """Kafka 4.3.1 fails here: the window is full and the log has a hole from the fetch offset to beyond its end."""
    live = Live(in_flight_max=4)
    live.acquire("m", (0, 3))
    live.release("m")
    assert live.acquire("n", (6, 9), at=0) == []
    assert [state for _, state, _ in live.states] == [ARC] * 4


def test_an_aborted_batch_around_the_start_offset_is_archived_from_there() -> None:
    """Kafka 4.3.1 fails here, and leaves the records acquired."""
    live = Live(12)
    log = LogBatch(10, 14, 9, True), LogBatch(15, 15, 9, True, True), LogBatch(16, 19)
    assert live.acquire("m", *log, aborted=[(9, 10)], committed=True) == [(15, 19, 1)]
    assert [state for _, state, _ in live.states] == [ARC] * 3 + [ACQ] * 5
    assert live.partition.delivery_complete_count == 3


# --- acknowledge ---


@pytest.mark.parametrize(
    ("request_batches", "error"),
    [
        pytest.param([("n", 0, 4, [ACCEPT])], InvalidRecordState, id="another-member"),
        pytest.param([("n", 1, 2, [ACCEPT])], InvalidRecordState, id="another-member-part"),
        pytest.param([("m", 5, 9, [ACCEPT])], InvalidRecordState, id="not-acquired"),
        pytest.param([("m", 6, 7, [ACCEPT])], InvalidRecordState, id="not-acquired-part"),
        pytest.param([("m", 0, 4, [9])], InvalidRequest, id="unknown-type"),
        pytest.param([("m", 0, 4, [ACCEPT, ACCEPT])], InvalidRequest, id="too-few-types"),
        pytest.param([("m", 4, 3, [ACCEPT])], InvalidRequest, id="backwards"),
        pytest.param([("m", 10, 12, [ACCEPT])], InvalidRequest, id="never-fetched"),
        pytest.param([("m", 3, 12, [ACCEPT])], InvalidRequest, id="goes-beyond"),
        pytest.param([("m", 0, 4, [ACCEPT]), ("m", 0, 4, [ACCEPT])], InvalidRecordState, id="twice"),
        pytest.param([("m", 0, 4, [RELEASE]), ("m", 2, 3, [9])], InvalidRequest, id="second-is-unknown"),
    ],
)
def test_refused_acknowledgements_have_no_effect(
    request_batches: list[tuple[str, int, int, list[int]]], error: type[RefusedRequest]
) -> None:
    """The whole request is refused: states, counts and locks are as before, and nothing is written."""
    live = Live()
    live.acquire("m", (0, 4))
    live.acquire("x", (5, 9))
    live.release("x")
    before = live.states, live.window, [live.state_of(offset).member_id for offset in range(10)]
    with pytest.raises(error) as raised:
        live.begin(request_batches[0][0], *[batch[1:] for batch in request_batches])
    assert raised.value.error_class == f"{error.__name__}Exception"
    assert (live.states, live.window, [live.state_of(offset).member_id for offset in range(10)]) == before
    assert not live.partition.writes_under_way
    assert written(release(live.partition, "m")) != ()


def test_acknowledgement_before_all_that_is_in_flight_is_refused() -> None:
    """Kafka 4.3.1 fails here: the start offset lies in a gap, and in the range acknowledged."""
    live = Live(5, [(10, 14, AV, 1)])
    with pytest.raises(InvalidRecordState):
        live.begin("m", (2, 12, [ACCEPT]))
    with pytest.raises(InvalidRecordState):
        live.begin("m", (6, 7, [ACCEPT]))


# --- release, locks, results of writes ---


def test_the_result_of_a_write_comes_once() -> None:
    """A second result, or one for a write which never was, raises."""
    live = Live()
    live.acquire("m", (0, 4))
    write = live.begin("m", (0, 4, [RELEASE]))
    live.finish(write)
    for write_id in (0, 1, -1):
        with pytest.raises(UnknownWrite):
            complete_write(live.partition, write_id, None)
    assert live.window == (0, 4, 0, 0)


# --- the start of the log ---


def test_release_under_way_survives_a_split() -> None:
    """Kafka 4.3.1 forgets it: the log start moves into a batch whose release is being written."""
    live = Live()
    live.acquire("m", (0, 4))
    write = live.begin("m", (0, 4, [RELEASE]))
    update_log_start_offset(live.partition, 2)
    assert live.acquire("n", (0, 4), at=2) == []
    live.finish(write)
    assert live.states == [(0, ARC, 1), (1, ARC, 1), (2, AV, 1), (3, AV, 1), (4, AV, 1)]
    assert live.acquire("n", (0, 4)) == [(2, 4, 2)]
    assert len(live.partition.locks) == 3


def test_release_under_way_which_fails_after_a_split_returns_to_the_member() -> None:
    """Only what the log still has; the rest stays archived."""
    live = Live()
    live.acquire("m", (0, 4))
    write = live.begin("m", (0, 4, [RELEASE]))
    update_log_start_offset(live.partition, 2)
    live.finish(write, FAILED)
    assert live.states == [(0, ARC, 1), (1, ARC, 1), (2, ACQ, 1), (3, ACQ, 1), (4, ACQ, 1)]
    assert live.release("m") == tuple((offset, offset, AV, 1) for offset in (2, 3, 4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SharePartitionConfig(leader_epoch=-1),
        lambda: SharePartitionConfig(delivery_count_limit=0),
        lambda: SharePartitionConfig(delivery_count_limit=2**15),
        lambda: SharePartitionConfig(in_flight_records_max=0),
        lambda: SharePartitionConfig(record_lock_duration_ms=0),
        lambda: LogBatch(5, 4),
        lambda: LogBatch(0, BATCH_OFFSETS_MAX),
        lambda: LogBatch(-1, 4),
    ],
)
def test_what_cannot_be_is_not_made(make: Callable[[], object]) -> None:
    """Configurations and log batches check themselves."""
    with pytest.raises(ValueError, match=r"\d"):
        make()


def test_defaults_are_kafkas() -> None:
    """2000 records, 5 deliveries, 30 seconds; throttling from the third failed delivery on."""
    config = SharePartitionConfig()
    assert (config.in_flight_records_max, config.delivery_count_limit, config.record_lock_duration_ms) == (
        2000,
        5,
        30_000,
    )
    assert [SharePartitionConfig(delivery_count_limit=limit).throttle_delivery_count for limit in (1, 2, 5, 6, 10)] == [
        2,
        2,
        3,
        3,
        5,
    ]
    assert Acquired((), 0).record_count == 0


def test_nothing_is_acquired_of_a_fetch_which_lies_below_the_start_offset() -> None:
    """The gap window asks for what was lost at the failover, but the log begins behind it by now."""
    live = Live(10, [(20, 24, ACK, 1)])
    assert live.acquire("a", (10, 12), at=10) == [(10, 12, 1)]
    update_log_start_offset(live.partition, 22)
    assert live.acquire("a", (13, 15), at=13) == []


def test_lives_agree_with_kafkas() -> None:
    """Every step of Kafka's own 250 share partitions gives the same result, writes, answers and state."""
    trace = Path(__file__).parents[3] / "data" / "traces" / "share_partition.jsonl.gz"
    assert share_partition.run(trace) == (250, 250, [])
