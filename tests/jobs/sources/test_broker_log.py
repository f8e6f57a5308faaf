"""Logs read from brokers which move, stop, throttle, prune and forget: each batch once, or a clear error in time."""

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from jobs.sources.broker_log import BrokerLog, find_broker_logs, list_broker_logs, read_ranges
from jobs.sources.fetch import LogRange
from jobs.sources.segments import SegmentRead, to_record_batches
from tests.jobs.broker_reads import read_broker_log
from tests.jobs.builders import batch, damaged
from tests.jobs.fake_kafka import (
    CLOSE,
    OTHER_ID,
    SILENT,
    TOPIC,
    FakeKafka,
    code,
    fetched,
    fetched_partition,
    fetched_topic,
    then,
)

pytestmark = [
    pytest.mark.usefixtures("left_sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TIMEOUT_MS = 1_500
SLACK_S = 2.0
LOG = [batch(0, 3), batch(3), batch(4, 6), batch(10)]
GARBAGE = b"\xff" * 100


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """Two brokers; the first leads the one log partition, which has LOG."""
    with FakeKafka(leaders=[1], node_count=2) as cluster:
        cluster.logs[0] = list(LOG)
        yield cluster


def logs_of(kafka: FakeKafka) -> list[BrokerLog]:
    """As they are now."""
    return find_broker_logs(BrokerAddress(kafka.address), [TOPIC], timeout_ms=10_000)


def read(
    kafka: FakeKafka, *, timeout_ms: int = 10_000, fetch_bytes_max: int = 1 << 20, ranges: list[LogRange] | None = None
) -> list[tuple[LogRange, SegmentRead]]:
    """Everything."""
    address = BrokerAddress(kafka.address)
    with Broker.connect(address, timeout_ms=timeout_ms) as broker:
        chosen = [log.range() for log in list_broker_logs(broker, [TOPIC])] if ranges is None else ranges
        return list(read_ranges(broker, chosen, fetch_bytes_max=fetch_bytes_max))


def bytes_of(reads: list[tuple[LogRange, SegmentRead]], partition: int = 0) -> bytes:
    """Of one log partition."""
    return b"".join(read.data.to_pybytes() for chosen, read in reads if chosen.partition == partition)


def test_logs_are_found(kafka: FakeKafka) -> None:
    """Start and end of each; topics that are not there are left out, the controllers' is not asked for."""
    kafka.log_starts[0] = 3
    [log] = find_broker_logs(BrokerAddress(kafka.address), [TOPIC, "__share_group_state", "__cluster_metadata"])
    assert (log.topic, log.partition, log.log_start_offset, log.next_offset) == (TOPIC, 0, 3, 11)
    assert log.range() == LogRange(TOPIC, 0, log.topic_id, 3, 11)
    assert log.range(5, 7) == LogRange(TOPIC, 0, log.topic_id, 5, 7)
    with pytest.raises(BrokerError, match="none of the topics __share_group_state"):
        find_broker_logs(BrokerAddress(kafka.address), ["__share_group_state"])


@pytest.mark.parametrize("fetch_bytes_max", [1, 100, 150, 300, 1 << 20])
def test_answers_of_any_size(kafka: FakeKafka, fetch_bytes_max: int) -> None:
    """Batches which are cut come whole the next time, and one larger than an answer may be comes all the same."""
    reads = read(kafka, fetch_bytes_max=fetch_bytes_max)
    assert bytes_of(reads) == b"".join(LOG)
    assert not any(read.scan.findings for _, read in reads)


def test_rows_of_an_answer(kafka: FakeKafka) -> None:
    """Rows say where they come from: the leader's address, and the kind KAFKA."""
    [read] = read_broker_log(logs_of(kafka)[0], 3, 10)
    [rows] = list(to_record_batches(read, logs_of(kafka)[0]))
    assert rows["base_offset"].to_pylist() == [3, 4]
    assert set(rows["source"].to_pylist()) == {f"kafka://{kafka.address}"}
    assert set(rows["source_kind"].to_pylist()) == {"KAFKA"}
    assert rows["batch"].to_pylist() == LOG[1:3]
    assert read.segment.base_offset == 3
    assert read.log_start_offset == 0


def test_only_what_is_replicated_is_read(kafka: FakeKafka) -> None:
    """Reading ends at the high watermark, and what is appended meanwhile is left for the next time."""
    kafka.high_watermarks[0] = 4
    [log] = logs_of(kafka)
    assert log.next_offset == 4
    kafka.high_watermarks.clear()
    assert bytes_of(read(kafka, ranges=[log.range()])) == b"".join(LOG[:2])


def test_one_fetch_asks_for_many(kafka: FakeKafka) -> None:
    """Small logs of one leader come with one request; those of another with one of its own."""
    with FakeKafka(leaders=[1, 2, 1, 2]) as many:
        for partition in many.logs:
            many.logs[partition] = [batch(0, partition + 1)]
        reads = read(many)
        assert [(chosen.partition, read.scan.next_offset) for chosen, read in reads] == [(0, 1), (2, 3), (1, 2), (3, 4)]
        assert many.fetches == [(1, [(0, 0), (2, 0)]), (2, [(1, 0), (3, 0)])]


@pytest.mark.parametrize("fetch_bytes_max", [100, 250, 1000])
def test_ranges_come_one_after_another(fetch_bytes_max: int) -> None:
    """Whatever answers hold of later ranges, the batches of a range come together, and all of them."""
    with FakeKafka(leaders=[1, 1, 1]) as kafka:
        for partition in kafka.logs:
            kafka.logs[partition] = [batch(offset) for offset in range(7 + partition)]
        reads = read(kafka, fetch_bytes_max=fetch_bytes_max)
        order = [chosen.partition for chosen, _ in reads]
        assert order == sorted(order)
        assert all(bytes_of(reads, partition) == b"".join(kafka.logs[partition]) for partition in kafka.logs)


def test_compaction_leaves_holes(kafka: FakeKafka) -> None:
    """Batches after a hole come; a log whose end was compacted away is read to its end."""
    kafka.logs[0] = [batch(2), batch(7)]
    kafka.high_watermarks[0] = 12
    kafka.on_fetch = []
    reads = read(kafka, ranges=[LogRange(TOPIC, 0, "AAAAAAAAAAAAAAAAAAAABw", 0, 8)])
    assert [read.scan.batches.base_offset.tolist() for _, read in reads] == [[2, 7]]


def moves_and_ends(kafka: FakeKafka) -> None:
    """Broker 1 leads from now on, and broker 2 is gone."""
    kafka.leaders[0] = 1
    kafka.stop(2)


PASSING: dict[str, Callable[[FakeKafka], Any]] = {
    "moved": lambda kafka: kafka.on_fetch.append(then(lambda it: it.leaders.__setitem__(0, 2))),
    "fenced": lambda kafka: kafka.on_fetch.extend([code(74), code(75)]),
    "not ready": lambda kafka: kafka.on_fetch.extend([code(5), code(9), code(56), code(3)]),
    "closed": lambda kafka: kafka.on_fetch.append(then(lambda _: None, CLOSE)),
    "empty": lambda kafka: kafka.on_fetch.append(lambda *_: fetched([])),
    "throttled": lambda kafka: kafka.on_fetch.append(lambda *_: fetched([], throttle_time_ms=300)),
    "dead, and another leads": lambda kafka: kafka.on_fetch.append(then(moves_and_ends, CLOSE)),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_waited_for(kafka: FakeKafka, name: str) -> None:
    """Moved and dead leaders, closed connections and quotas lose nothing and double nothing."""
    if "dead" in name:
        kafka.leaders[0] = 2
    ranges = [log.range() for log in logs_of(kafka)]
    PASSING[name](kafka)
    reads = read(kafka, fetch_bytes_max=150, ranges=ranges)
    assert bytes_of(reads) == b"".join(LOG)


def test_a_quota_is_kept(kafka: FakeKafka) -> None:
    """Nothing is asked before the time which the broker gave is over, and the wait is no time-out."""
    ranges = [log.range() for log in logs_of(kafka)]
    kafka.on_fetch.append(lambda *_: fetched([], throttle_time_ms=2_000))
    started = time.monotonic()
    assert bytes_of(read(kafka, ranges=ranges, timeout_ms=TIMEOUT_MS)) == b"".join(LOG)
    assert time.monotonic() - started >= 2.0


def test_what_was_pruned_meanwhile_is_said(kafka: FakeKafka) -> None:
    """Reading goes on at the new log start offset, and a read without batches says where that is."""

    def prune(to: int) -> Callable[[FakeKafka], None]:
        def change(it: FakeKafka) -> None:
            it.log_starts[0] = to
            it.logs[0] = [batch for batch in LOG if int.from_bytes(batch[:8], "big") >= to]

        return change

    ranges = [log.range() for log in logs_of(kafka)]
    kafka.on_fetch = [then(prune(4))]
    reads = read(kafka, ranges=ranges)
    assert [(read.scan.batches.base_offset.tolist(), read.log_start_offset) for _, read in reads] == [
        ([], 4),
        ([4, 10], 4),
    ]
    kafka.on_fetch = [then(prune(10))]
    [(_, only)] = read(kafka, ranges=[LogRange(TOPIC, 0, ranges[0].topic_id, 4, 10)])
    assert (len(only.scan.batches), only.log_start_offset) == (0, 10)


def garbage(kafka: FakeKafka, _: int, request: Any) -> Any:
    """An answer with bytes which are no batch."""
    topic = request.topics[0]
    return fetched([fetched_topic(topic.topic_id, [fetched_partition(kafka, 0, GARBAGE)])])


@pytest.mark.parametrize(
    ("plan", "error_code", "words"),
    [
        (
            lambda it: it.on_fetch.append(code(29)),
            "TOPIC_AUTHORIZATION_FAILED",
            "Describe and Read on topic __consumer",
        ),
        (lambda it: setattr(it, "topic_id", OTHER_ID), "TOPIC_RECREATED", "deleted and recreated"),
        (lambda it: (it.topics.clear(), it.on_fetch.append(code(100))), "UNKNOWN_TOPIC", "no topic __consumer_offsets"),
        (lambda it: it.logs.__setitem__(0, LOG[:1]), "LOG_CUT", "ends at offset 3, and was to be read from 4"),
        (lambda it: it.on_fetch.extend([code(6)] * 99), "TIMEOUT", "offset 4 for 1500 ms: NOT_LEADER"),
        (
            lambda it: it.on_fetch.extend([then(lambda _: None, SILENT)] * 9),
            "TIMEOUT",
            "does not answer within 1500 ms",
        ),
        (lambda it: it.on_fetch.append(then(lambda _: it.stop(1), CLOSE)), "CONNECTION_REFUSED", "-0 at offset 4: 127"),
        (lambda it: it.on_fetch.append(garbage), "DAMAGED_LOG", "read its segment files"),
    ],
    ids=["no right", "recreated", "gone", "cut", "never leads", "silent", "dead", "damaged"],
)
def test_what_does_not_pass_is_reported(
    kafka: FakeKafka, plan: Callable[[FakeKafka], object], error_code: str, words: str
) -> None:
    """One line each, in time, with the place and the remedy."""
    [log] = logs_of(kafka)
    chosen = log.range(4)
    address = BrokerAddress(kafka.address)
    with Broker.connect(address, timeout_ms=TIMEOUT_MS) as broker:
        broker.leader(TOPIC, 0)
        plan(kafka)
        started = time.monotonic()
        with pytest.raises(BrokerError) as caught:
            list(read_ranges(broker, [chosen]))
    assert time.monotonic() - started < TIMEOUT_MS / 1000 + SLACK_S
    assert caught.value.code == error_code
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_batches_are_read_and_found(kafka: FakeKafka) -> None:
    """A wrong checksum is no reason to stop: the batch comes with its finding, as from a segment file."""
    kafka.logs[0] = [LOG[0], damaged(LOG[1]), *LOG[2:]]
    [(_, only)] = read(kafka)
    assert only.scan.crc_valid.tolist() == [True, False, True, True]
    assert [finding.code for finding in only.scan.findings] == ["CRC_MISMATCH"]


def test_the_next_answer_is_on_its_way(kafka: FakeKafka) -> None:
    """While a caller works on an answer, the next one is fetched."""
    [log] = logs_of(kafka)
    reads = read_broker_log(log, fetch_bytes_max=1)
    assert isinstance(reads, Generator)
    next(reads)
    deadline = time.monotonic() + 5
    while len(kafka.fetches) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [asked for _, asked in kafka.fetches] == [[(0, 0)], [(0, 3)]]
    reads.close()
