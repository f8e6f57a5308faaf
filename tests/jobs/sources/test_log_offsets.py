"""How far a micro-batch goes: within its limits, not beyond its target, and on in any case."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.bytes_per_offset import bytes_per_offset, estimated_bytes, split_ranges
from jobs.sources.fetch import LogRange
from jobs.sources.log_offsets import NO_LIMITS, BrokerOffsets, Limits, SegmentOffsets, shares
from tests.jobs.builders import batch, write_segment
from tests.jobs.fake_kafka import TOPIC, FakeKafka

BATCH_BYTES = len(batch(0))
ID = "AAAAAAAAAAAAAAAAAAAABw"


def key(partition: int) -> str:
    """Of a log partition."""
    return f"{TOPIC}-{partition}"


@pytest.fixture
def segments(tmp_path: Path) -> SegmentOffsets:
    """Three batches in two segments of one log, one batch in another."""
    write_segment(tmp_path, TOPIC, 0, 0, batch(0) + batch(1))
    write_segment(tmp_path, TOPIC, 0, 2, batch(2))
    write_segment(tmp_path, TOPIC, 1, 0, batch(0))
    return SegmentOffsets(str(tmp_path), [TOPIC], None)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (NO_LIMITS, {0: 3, 1: 1}),
        (Limits(batch_count_max=1), {0: 1}),
        (Limits(batch_count_max=3), {0: 3}),
        (Limits(bytes_max=1), {0: 1}),
        (Limits(bytes_max=BATCH_BYTES), {0: 1}),
        (Limits(bytes_max=2 * BATCH_BYTES + 1), {0: 2}),
        (Limits(bytes_max=4 * BATCH_BYTES), {0: 3, 1: 1}),
        (Limits(batch_count_max=1, bytes_max=4 * BATCH_BYTES), {0: 1}),
        (Limits(batch_count_max=4, bytes_max=2 * BATCH_BYTES), {0: 2}),
    ],
)
def test_segments_keep_to_limits(segments: SegmentOffsets, limits: Limits, expected: dict[int, int]) -> None:
    """To the batch and to the byte; the first batch always comes."""
    assert segments.next({}, limits, None) == {key(partition): offset for partition, offset in expected.items()}


def test_segments_keep_to_the_target(segments: SegmentOffsets) -> None:
    """What lies beyond the target is left, and the end is reached in steps."""
    target = {key(0): 2, key(1): 1}
    first = segments.next({}, Limits(batch_count_max=2), target)
    assert first == {key(0): 2}
    assert segments.next(first, Limits(batch_count_max=2), target) == target
    assert segments.next(target, NO_LIMITS, target) == target


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """Two log partitions of 100 and 300 batches, a record each, and one without any."""
    with FakeKafka(leaders=[1, 2, 1]) as cluster:
        cluster.logs[0] = [batch(offset) for offset in range(100)]
        cluster.logs[1] = [batch(offset) for offset in range(300)]
        yield cluster


@pytest.fixture
def live(kafka: FakeKafka) -> Iterator[BrokerOffsets]:
    """Offsets of that cluster."""
    offsets = BrokerOffsets(BrokerAddress(kafka.address), [TOPIC], None, 10_000)
    yield offsets
    offsets.close()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (NO_LIMITS, {0: 100, 1: 300}),
        (Limits(batch_count_max=40), {0: 10, 1: 30}),
        (Limits(batch_count_max=1), {0: 1}),
        (Limits(bytes_max=200 * BATCH_BYTES), {0: 50, 1: 150}),
        (Limits(bytes_max=1), {0: 1}),
        (Limits(batch_count_max=40, bytes_max=20 * BATCH_BYTES), {0: 5, 1: 15}),
        (Limits(batch_count_max=40, bytes_max=200 * BATCH_BYTES), {0: 10, 1: 30}),
    ],
)
def test_a_cluster_is_taken_in_proportion(live: BrokerOffsets, limits: Limits, expected: dict[int, int]) -> None:
    """Each log gives its share of what is new, and with any limit there is progress."""
    assert live.next({}, limits, None) == {key(partition): offset for partition, offset in expected.items()}


def test_steps_reach_the_target(kafka: FakeKafka, live: BrokerOffsets) -> None:
    """From step to step every offset up to the target comes, and nothing that was appended meanwhile."""
    target = live.next({}, NO_LIMITS, None)
    kafka.logs[0].append(batch(100))
    kafka.logs[2].append(batch(0))
    at: dict[str, int] = {}
    steps = 0
    while (after := live.next(at, Limits(batch_count_max=77), target)) != at:
        taken = sum(it.to_offset - it.from_offset for it in live.between(at, after))
        assert 0 < taken <= 77
        at = after
        steps += 1
    assert (at, steps) == (target, 6)
    assert live.next(at, NO_LIMITS, None) == {key(0): 101, key(1): 300, key(2): 1}


def test_pruned_offsets_are_skipped_and_reported(kafka: FakeKafka, live: BrokerOffsets) -> None:
    """Limits count what is left; the range says where it was to begin."""
    kafka.log_starts[0] = 90
    kafka.logs[0] = kafka.logs[0][90:]
    after = live.next({key(0): 20, key(1): 300}, Limits(batch_count_max=4), None)
    assert after == {key(0): 94, key(1): 300}
    [chosen] = live.between({key(0): 20, key(1): 300}, after)
    assert chosen == LogRange(TOPIC, 0, ID, 20, 94)
    [first] = live.between({}, {key(0): 94})
    assert first.from_offset == 90


def test_a_log_which_ends_too_early_is_an_error(kafka: FakeKafka, live: BrokerOffsets) -> None:
    """A checkpoint beyond the end of a log is of another log, or of one that was cut."""
    with pytest.raises(BrokerError, match="ends at offset 100, and was read up to 101") as caught:
        live.next({key(0): 101}, NO_LIMITS, None)
    assert caught.value.code == "LOG_CUT"
    with pytest.raises(BrokerError, match="ends at offset 300"):
        live.between({}, {key(1): 301})


def test_a_lost_connection_is_rebuilt(kafka: FakeKafka) -> None:
    """After an error the next look connects again."""
    offsets = BrokerOffsets(BrokerAddress(kafka.address), [TOPIC], [1], 1_000)
    assert [log.partition for log in offsets.find()] == [1]
    topic = kafka.topics.pop()
    with pytest.raises(BrokerError):
        offsets.find()
    kafka.topics.add(topic)
    assert len(offsets.find()) == 1
    copy = pickle.loads(pickle.dumps(offsets))
    assert copy.next({}, NO_LIMITS, None) == {key(1): 300}
    copy.close()
    offsets.close()


@given(st.lists(st.integers(0, 1000)), st.integers(1, 2000))
def test_shares(wanted: list[int], most: int) -> None:
    """Never more than wanted, together the most that is allowed or all, and in proportion but for rounding."""
    given_ = shares(wanted, most)
    assert sum(given_) == min(most, sum(wanted))
    for got, want in zip(given_, wanted, strict=True):
        assert got <= want
        assert sum(wanted) <= most or abs(got - want * most / sum(wanted)) <= 1


def test_density_and_parts(kafka: FakeKafka, live: BrokerOffsets) -> None:
    """Samples tell how many bytes a range has, about; parts lie side by side and cover it."""
    kafka.logs[0] = [batch(offset, value=b"v" * (100 if offset < 50 else 300)) for offset in range(100)]
    ranges = [log.range() for log in live.find() if log.next_offset]
    broker = live._connected()
    samples = bytes_per_offset(broker, ranges)
    sizes = [sum(map(len, kafka.logs[partition])) for partition in (0, 1)]
    for chosen, size in zip(ranges, sizes, strict=True):
        assert 0.7 * size < estimated_bytes(samples, chosen) < 1.4 * size
    parts = split_ranges(broker, ranges, sizes[0] // 3)
    for chosen in ranges:
        own = [it for it in parts if it.partition == chosen.partition]
        assert (own[0].from_offset, own[-1].to_offset) == (chosen.from_offset, chosen.to_offset)
        assert [it.to_offset for it in own[:-1]] == [it.from_offset for it in own[1:]]
    assert len(parts) > len(ranges)
    assert split_ranges(broker, ranges, 1 << 30) == ranges
    assert {it.topic_id for it in parts} == {ID}
