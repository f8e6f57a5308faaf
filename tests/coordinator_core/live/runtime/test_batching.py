"""Tests of how records of several operations come into one batch."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import BatchHeader, Record, build_batch, parse_header
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.records import NO_PRODUCER, Producer
from coordinator_core.live.runtime.batching import Batcher, PendingBatch, record_size
from schemas.error_codes import ErrorCode

PRODUCER = Producer(9, 1)
NOW_MS = 1_700_000_000_000


class Log:
    """A log which keeps batches, and refuses them while `refusal` is set. States are numbers."""

    def __init__(
        self, *, linger_ms: int | None = None, batch_bytes_max: int = 10_000, codec_id: int = Codec.NONE
    ) -> None:
        self.batches: list[bytes] = []
        self.refusal: ErrorCode | None = None
        self.state = 0
        self.events: list[str] = []
        self.batcher = Batcher(
            partition=0,
            write=self.write,
            delete_records=lambda offset: offset,
            encode=lambda record: (record, b"value"),
            state=lambda: self.state,
            next_offset=100,
            on_begun=lambda batch: self.events.append(f"begun {batch.epoch}"),
            on_written=lambda batch, end: self.events.append(f"written {batch.epoch} to {end}"),
            on_lost=self.lost,
            batch_bytes_max=batch_bytes_max,
            linger_ms=linger_ms,
            codec_id=codec_id,
        )

    def write(self, batch: bytes) -> int:
        if self.refusal is not None:
            raise Refused(self.refusal)
        self.batches.append(batch)
        header = parse_header(batch)
        return header.last_offset + 1

    def lost(self, batch: PendingBatch, error: Refused) -> None:
        self.events.append(f"lost {batch.epoch} at {batch.base_state}: {error.code.name}")

    def append(self, *keys: bytes, producer: Producer = NO_PRODUCER, now_ms: int = NOW_MS) -> int:
        """Append and replay: the state counts the records."""
        offset = self.batcher.append(keys, producer, now_ms)
        self.state += len(keys)
        self.batcher.flush_if_due(now_ms)
        return offset

    def headers(self) -> list[BatchHeader]:
        return [parse_header(batch) for batch in self.batches]


def test_operations_share_a_batch_until_it_is_flushed() -> None:
    """Offsets are given at once; the batch is Kafka's: base sequence 0, create time, each record its own time."""
    log = Log()
    assert [log.append(b"a", b"b"), log.append(b"c", now_ms=NOW_MS + 7)] == [100, 102]
    assert log.batches == []
    log.batcher.flush()
    (header,) = log.headers()
    assert (header.base_offset, header.last_offset, header.base_sequence) == (100, 102, 0)
    assert (header.producer_id, header.is_transactional, header.is_log_append_time) == (-1, False, False)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 7)
    assert [(record.offset, record.timestamp_ms, record.key) for record in iter_records(log.batches[0])] == [
        (100, NOW_MS, b"a"),
        (101, NOW_MS, b"b"),
        (102, NOW_MS + 7, b"c"),
    ]
    assert log.events == ["begun 1", "written 1 to 103"]
    log.batcher.flush()
    assert len(log.batches) == 1


def test_a_transactional_operation_has_a_batch_of_its_own() -> None:
    """What came before is written first, and it is written at once."""
    log = Log()
    log.append(b"a")
    log.append(b"b", b"c", producer=PRODUCER)
    log.append(b"d")
    before, transactional = log.headers()
    assert (before.record_count, before.is_transactional) == (1, False)
    assert (transactional.producer_id, transactional.producer_epoch, transactional.base_sequence) == (9, 1, 0)
    assert (transactional.record_count, transactional.is_transactional) == (2, True)


def test_compressed_batches_are_thought_larger_than_they_are() -> None:
    """Kafka reckons with no saving, and 5 % on top; so fewer records go together, but they are compressed."""
    plain, compressed = Log(batch_bytes_max=2000), Log(batch_bytes_max=2000, codec_id=Codec.ZSTD)
    for log in (plain, compressed):
        for _ in range(40):
            log.append(b"k" * 90)
        log.batcher.flush()
    assert plain.headers()[0].record_count > compressed.headers()[0].record_count
    assert compressed.headers()[0].codec_id == Codec.ZSTD
    assert compressed.headers()[0].size < plain.headers()[0].size


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=200), st.none() | st.binary(max_size=9000), st.integers(0, 2**40), st.integers(1, 90)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_record_size_is_what_is_written(rows: list[tuple[bytes, bytes | None, int, int]]) -> None:
    """The estimate of a batch is exact while it is not compressed."""
    records: list[Record] = []
    size = 61
    offset = 0
    for key, value, timestamp_ms, step in rows:
        records.append(Record(offset, timestamp_ms, key, value))
        size += record_size(key, value, offset, timestamp_ms - records[0].timestamp_ms)
        offset += step
    assert len(build_batch(records)) == size
