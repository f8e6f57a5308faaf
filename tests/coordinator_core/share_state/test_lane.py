"""The compiled lane against the plain reference, over any log and however it is cut."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_core.lookup import SharePartitionKey
from coordinator_core.share_state.combine import StateBatch
from coordinator_core.share_state.state import ShareSnapshot, ShareUpdate
from tests.coordinator_core.share_state.reference import (
    Event,
    Rows,
    chunk_of,
    expected_rows,
    lane_outputs,
    lane_rows,
)

KEYS = (SharePartitionKey("g", "AAAAAAAAAAAAAAAAAAAAAQ", 0), SharePartitionKey("g:2", "BBBBBBBBBBBBBBBBBBBBBA", 7))

BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(-1, 24),
        st.integers(-1, 6),
        st.sampled_from([0, 0, 2, 2, 4, 3, 1, -7]),
        st.integers(-1, 3),
    ),
    max_size=6,
).map(tuple)
FINE_BATCHES = st.lists(st.integers(0, 30), max_size=8, unique=True).flatmap(
    lambda cuts: st.tuples(
        *(
            st.builds(StateBatch, st.just(a), st.just(b - 1), st.sampled_from([0, 2, 4]), st.integers(1, 3))
            for a, b in list(pairwise(sorted(cuts)))[::2]
        )
    )
)
START_OFFSETS = st.integers(-1, 20)
EPOCHS = st.integers(0, 2)
COUNTS = st.sampled_from([-1, 0, 0, 5])
SNAPSHOTS = st.builds(
    ShareSnapshot,
    snapshot_epoch=EPOCHS,
    state_epoch=st.integers(0, 1),
    leader_epoch=EPOCHS,
    start_offset=START_OFFSETS,
    delivery_complete_count=COUNTS,
    create_timestamp_ms=st.sampled_from([0, 5, 6]),
    write_timestamp_ms=st.sampled_from([0, 6]),
    state_batches=st.just(()) | FINE_BATCHES | BATCHES,
)
UPDATES = st.builds(
    ShareUpdate,
    snapshot_epoch=EPOCHS,
    leader_epoch=st.integers(-1, 2),
    start_offset=START_OFFSETS,
    delivery_complete_count=COUNTS,
    state_batches=FINE_BATCHES | BATCHES,
)
EVENTS = st.builds(
    Event,
    key=st.sampled_from(KEYS),
    value=st.one_of(UPDATES, UPDATES, UPDATES, SNAPSHOTS, st.none()),
    unknown_tags=st.sampled_from([(), (), (), ((3, b"later"),)]),
)
LOGS = st.lists(EVENTS, min_size=1, max_size=25)


def placed(events: list[Event]) -> list[tuple[int, int, Event]]:
    return [(100 + 3 * i, 10_000 + 7 * i, event) for i, event in enumerate(events)]


def check(rows: Rows, expected: Rows) -> None:
    assert rows.states == expected.states
    assert rows.transitions == expected.transitions
    assert rows.batches == expected.batches
    assert sorted(rows.findings) == sorted(expected.findings)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LOGS, st.sets(st.integers(0, 25)), st.booleans())
def test_lane_gives_the_rows_of_the_reference(events: list[Event], cuts: set[int], is_resumed: bool) -> None:
    """Any log, cut into chunks anywhere, in one run or in one run a chunk: always the reference's rows."""
    log = placed(events)
    raw = [(offset, at, event.encoded()) for offset, at, event in log]
    bounds = sorted({0, len(raw), *(cut for cut in cuts if cut <= len(raw))})
    chunks = [chunk_of(raw[start:end]) for start, end in pairwise(bounds)]
    outputs = lane_outputs(chunks, is_resumed=is_resumed)
    check(lane_rows(outputs), expected_rows(log))
    tombstones = sum(1 for event in events if event.value is None)
    assert sum(output.counts.tombstones for output in outputs) == tombstones
    assert sum(output.counts.decoded for output in outputs) == len(events) - tombstones
