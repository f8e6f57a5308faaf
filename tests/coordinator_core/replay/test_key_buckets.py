"""A log partition replayed in buckets of its keys, by any number of them, makes what one replay makes."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from coordinator_core.bytes.log.chunk import Finding, RecordChunk, unreadable_record_count
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.rows import GroupRows
from coordinator_core.replay.columnar.offsets_columnar import ColumnarOffsetReplay, ColumnarState
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.columnar.share_state_columnar import ColumnarState as ColumnarShareState
from coordinator_core.replay.columnar.share_state_columnar_states import columnar_state_of
from coordinator_core.replay.key_buckets import (
    BUCKET_COUNT_MAX,
    SLOT_COUNT,
    SLOT_OF_OTHERS,
    KeyBucket,
    buckets_of,
    record_slots,
    shared_out,
    slot_weights,
)
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from tests.coordinator_core.history.histories import cuts_of, offsets_log, probe, share_log
from tests.coordinator_core.history.test_checkpoint import batches_of, by_group, chunk_of, segments, texts
from tests.coordinator_core.history.test_histories import HISTORIES
from tests.coordinator_core.live.offsets.reference import Row, rows_of
from tests.coordinator_core.live.share_state.reference import chunk_of as share_chunk_of
from tests.coordinator_core.live.share_state.reference import columnar_rows

NEVER_MS: Final = 2**63 - 1
PARTS: Final = 10
SEEDS: Final = HISTORIES // 5
"""Each history is replayed by several tasks in several runs."""


def dealt(random: Random, count: int) -> bytes:
    """Slots in buckets at random: at times a bucket gets none."""
    return bytes(random.choices(range(count), k=SLOT_COUNT))


class Runs:
    """Runs over one `__consumer_offsets` partition, each in buckets of its own, from what all buckets left before."""

    def __init__(self) -> None:
        self.columnar_states: list[ColumnarState] = []
        self.groups: dict[str, bytes] = {}
        self.commits: dict[int, Row] = {}
        self.counts = LedgerCounts()
        self.findings: list[Finding] = []
        self.names: dict[tuple[str, str, str], int] = {}
        self._settled = GroupRows()
        self._open: dict[str, GroupRows] = {}

    def run(self, chunks: Sequence[RecordChunk], owners: bytes | None = None) -> None:
        """`owners` None: without buckets."""
        columnar_states: list[ColumnarState] = []
        groups: dict[str, bytes] = {}
        left: dict[str, GroupRows] = {}
        buckets: Sequence[KeyBucket | None] = [None] if owners is None else buckets_of(owners, is_share=False)
        for bucket in buckets:
            state = OffsetsLogState.of(self.columnar_states, self.groups, bucket) if self.columnar_states else None
            replay = OffsetsLogReplay(state, bucket=bucket)
            for chunk in chunks:
                output = replay.feed(chunk if bucket is None else bucket.own_records(chunk))
                self.add(rows_of(output.commits))
                self.counts += output.counts
                self.findings += output.findings
                self._settled.extend(output.groups)
                for name in output.groups.topics:
                    place = name.topic_id, name.topic, name.learned_from
                    at_ms = name.at if name.at >= 0 else NEVER_MS
                    self.names[place] = min(self.names.get(place, at_ms), at_ms)
            exported = replay.export_state()
            columnar_states.append(exported.columnar)
            assert groups.keys().isdisjoint(exported.groups)
            groups |= exported.groups
            last = replay.finish()
            self.add(rows_of(last.commits))
            left |= {group_id: rows for group_id, rows in self._open.items() if group_id in replay.serialized}
            left |= by_group(last.groups)
        self.columnar_states, self.groups, self._open = columnar_states, groups, left

    def add(self, rows: Sequence[Row]) -> None:
        self.commits |= {row.log_offset: row for row in rows}

    def made(self) -> tuple[object, ...]:
        """All that a run says, in one order."""
        together = GroupRows()
        for rows in (self._settled, *self._open.values()):
            together.extend(rows)
        findings = sorted(self.findings, key=repr)
        together.topics.clear()  # as the driver takes them: the earliest of each
        return self.commits, sorted(texts(together)), self.groups, self.counts, findings, self.names


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_of_groups_in_buckets_and_runs(part: int) -> None:
    """Rows, state, counts and findings are those of one replay, however many buckets each run has."""
    for seed in range(part, SEEDS, PARTS):
        random = Random(f"groups/{seed}")
        batches = offsets_log(random)
        whole, runs = Runs(), Runs()
        whole.run([chunk_of(batches)])
        for first, end in pairwise(cuts_of(random, len(batches))):
            count = random.choice((1, 2, 3))
            runs.run([chunk_of(batches[first:end])], None if count == 1 else dealt(random, count))
        assert runs.made() == whole.made(), seed
        for each in (whole, runs):
            each.run([chunk_of(probe(len(batches)))])
        assert runs.commits == whole.commits, seed


@pytest.mark.parametrize("recording", ["full-a", "compact-partial", "old-40"])
@pytest.mark.parametrize("count", [2, 5])
def test_recorded_offsets_logs_in_buckets(recording: str, count: int) -> None:
    """Logs of real brokers, in two runs of different buckets."""
    for path in segments(recording, "__consumer_offsets"):
        batches = batches_of(path)
        random = Random(f"{path}/{count}")
        middle = len(batches) // 2
        whole, runs = Runs(), Runs()
        whole.run([chunk_of(batches[:middle]), chunk_of(batches[middle:])])
        runs.run([chunk_of(batches[:middle])], dealt(random, count))
        runs.run([chunk_of(batches[middle:])], dealt(random, count + 1))
        assert runs.made() == whole.made()


class ShareRuns:
    """The same of `__share_group_state`."""

    def __init__(self) -> None:
        self.states: list[ColumnarShareState] = []
        self.settled: list[ColumnarOutput] = []
        self.open: list[ColumnarOutput] = []
        self.counts: dict[str, int] = {}
        self.findings: list[str] = []

    def run(self, chunk: RecordChunk, owners: bytes | None = None) -> None:
        states: list[ColumnarShareState] = []
        self.open = []
        buckets: Sequence[KeyBucket | None] = [None] if owners is None else buckets_of(owners, is_share=True)
        for bucket in buckets:
            columnar = ColumnarShareReplay(columnar_state_of(self.states, bucket) if self.states else None)
            own = chunk if bucket is None else bucket.own_records(chunk)
            output = columnar.feed(own)
            self.settled.append(output)
            self.findings += map(repr, (*own.findings, *output.findings))
            counts = {name: getattr(output.counts, name) for name in output.counts.__slots__}
            counts |= {"records": int(own.batches.record_count.sum()), "unreadable": unreadable_record_count(own)}
            self.counts = {name: self.counts.get(name, 0) + value for name, value in counts.items()}
            states.append(columnar.export_state())
            self.open.append(columnar.finish())
        self.states = states

    def made(self) -> tuple[object, ...]:
        """All that a run says, in one order."""
        rows = columnar_rows([*self.settled, *self.open])
        return rows.states, rows.batches, rows.transitions, self.counts, sorted(self.findings)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_of_share_partitions_in_buckets_and_runs(part: int) -> None:
    """Rows of all three tables, counts and findings are those of one replay."""
    for seed in range(part, SEEDS, PARTS):
        random = Random(f"shares/{seed}")
        log, end = ([(offset, at, event.encoded()) for offset, at, event in it] for it in share_log(random))
        whole, runs = ShareRuns(), ShareRuns()
        whole.run(share_chunk_of([*log, *end]))
        for first, last in pairwise(cuts_of(random, len(log))):
            count = random.choice((1, 2, 3, 7))
            runs.run(share_chunk_of(log[first:last]), None if count == 1 else dealt(random, count))
        runs.run(share_chunk_of(end), dealt(random, 4))
        assert runs.made() == whole.made(), seed


@pytest.mark.parametrize("recording", ["full-a", "compact-partial"])
def test_recorded_share_logs_in_buckets(recording: str) -> None:
    """Logs of real brokers, in two runs of different buckets."""
    for path in segments(recording, "__share_group_state"):
        batches = batches_of(path)
        random = Random(str(path))
        middle = len(batches) // 2
        whole, runs = ShareRuns(), ShareRuns()
        for first, end, count in ((0, middle, 3), (middle, len(batches), 4)):
            whole.run(chunk_of(batches[first:end]))
            runs.run(chunk_of(batches[first:end]), dealt(random, count))
        assert runs.made() == whole.made()


def commit(offset: int, group_id: bytes, at_ms: int = 1) -> Record:
    """A commit of a group id of any bytes."""
    key = b"\x00\x01" + len(group_id).to_bytes(2, "big") + group_id + b"\x00\x01t" + bytes(4)
    value = bytes(2) + (7).to_bytes(8, "big") + bytes(2) + at_ms.to_bytes(8, "big")
    return Record(offset, at_ms, key, value, ())


@pytest.mark.parametrize("count", [2, 3, BUCKET_COUNT_MAX])
def test_slots_make_buckets_of_one_weight(count: int) -> None:
    """By a sample of some hundred groups, one of which has as much as fifty others; each slot is in one bucket."""
    records = [commit(offset, f"group-{offset % 400}".encode()) for offset in range(4_000)]
    records += [commit(4_000 + offset, b"large") for offset in range(500)]
    weights = slot_weights(decode_chunk(build_batch(records)), is_share=False)
    owners = shared_out(weights, count)
    filled = np.bincount(np.frombuffer(owners, np.uint8), weights=weights, minlength=count)
    assert len(filled) == count
    assert filled.max() <= max(1.05 * weights.sum() / count, weights.max())
    buckets = buckets_of(owners, is_share=False)
    names = [f"group-{number}" for number in range(400)]
    assert (np.sum([bucket.has_groups(names) for bucket in buckets], axis=0) == 1).all()


@pytest.mark.parametrize("count", [0, BUCKET_COUNT_MAX + 1])
def test_the_number_of_buckets_has_a_bound(count: int) -> None:
    """A bucket's number is a byte, and each task reads the whole log."""
    with pytest.raises(ValueError, match="buckets: 1 to 64"):
        shared_out(np.ones(SLOT_COUNT, np.int64), count)


@pytest.mark.parametrize("raw", [b"\xff", b"orders-\xe2\x28\xa1-17", b"\xed\xa0\x80", b"12345678\xc3"])
def test_bytes_that_are_read_as_one_group_id_are_of_one_bucket(raw: bytes) -> None:
    """Bytes that are not UTF-8 are read with U+FFFD, and other bytes hold that very text."""
    as_read = codec.decode_key("__consumer_offsets", commit(0, raw).key or b"").fields.group
    written = as_read.encode()
    assert raw != written
    chunk = decode_chunk(build_batch([commit(0, raw), commit(1, written), commit(2, b"plain")]))
    slots = record_slots(chunk, is_share=False).tolist()
    assert slots[:2] == [SLOT_OF_OTHERS] * 2
    owners = bytes(number % 7 for number in range(SLOT_COUNT))
    (has,) = (bucket for bucket in buckets_of(owners, is_share=False) if bucket.has_groups([as_read])[0])
    assert has.number == owners[SLOT_OF_OTHERS]


def test_group_ids_of_any_language_have_buckets_of_their_own() -> None:
    """Only where bytes are not read as they are written do group ids share one slot."""
    names = [f"\u0437\u0430\u043a\u0430\u0437-{number}" for number in range(100)]
    chunk = decode_chunk(build_batch([commit(offset, name.encode()) for offset, name in enumerate(names)]))
    slots = record_slots(chunk, is_share=False)
    assert len(set(slots.tolist())) > 90
    owners = bytes(number % 5 for number in range(SLOT_COUNT))
    for bucket in buckets_of(owners, is_share=False):
        assert bucket.own_records(chunk).records.offset.tolist() == np.flatnonzero(bucket.has_groups(names)).tolist()


def test_an_operation_ends_where_another_bucket_has_records() -> None:
    """Of one batch and one time, a group's tombstones around another group's commit are two operations."""
    records = [commit(0, b"a"), commit(1, b"b")]
    names = ["a", "b"]
    chunk = decode_chunk(build_batch([commit(0, b"a"), commit(1, b"b"), commit(2, b"a"), commit(3, b"a")]))
    owners = bytearray(SLOT_COUNT)
    owners[int(record_slots(decode_chunk(build_batch(records)), is_share=False)[1])] = 1
    first, second = buckets_of(bytes(owners), is_share=False)
    assert [first.has_groups(names).tolist(), second.has_groups(names).tolist()] == [[True, False], [False, True]]
    own = first.own_records(chunk)
    assert own.records.offset.tolist() == [0, 2, 3]
    assert ColumnarOffsetReplay().feed(own).operation_last_offset.tolist() == [0, 3]


def test_what_belongs_to_no_key_is_counted_once() -> None:
    """A marker acts in all buckets; its record, and those of a batch that cannot be read, count in the first one."""
    unreadable = bytearray(build_batch([commit(3, b"a"), commit(4, b"b")]))
    unreadable[-1] ^= 1  # its checksum is wrong
    marker = build_marker(
        offset=2, timestamp_ms=1, is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    data = build_batch([commit(0, b"a"), commit(1, b"b")], is_transactional=True, producer_id=1, producer_epoch=0)
    chunk = decode_chunk(data + marker + bytes(unreadable))
    whole = OffsetsLogReplay().feed(chunk)
    buckets = buckets_of(bytes(number % 3 for number in range(SLOT_COUNT)), is_share=False)
    outputs = [OffsetsLogReplay(bucket=bucket).feed(bucket.own_records(chunk)) for bucket in buckets]
    assert [output.counts.control_count for output in outputs] == [1, 0, 0]
    assert [len(output.findings) for output in outputs] == [1, 0, 0]
    assert outputs[0].counts + outputs[1].counts + outputs[2].counts == whole.counts
    assert whole.counts.quarantined_count == 2
    rows = [row for output in outputs for row in rows_of(output.commits)]
    assert sorted(row.log_offset for row in rows if row.outcome == "APPLIED") == [0, 1]


def test_names_are_of_the_earliest_commit_whatever_the_order() -> None:
    """A clock that went back: the name is known since the earlier time, in each cut of the log."""
    runs, whole = Runs(), Runs()
    batches = [_named_commit(offset, group, at_ms) for offset, (group, at_ms) in enumerate(NAMED_AT)]
    whole.run([chunk_of(batches)])
    for batch in batches:
        runs.run([chunk_of([batch])], bytes(number % 2 for number in range(SLOT_COUNT)))
    assert runs.names == whole.names == {(TOPIC_ID, "t", "OFFSET_COMMIT"): 3_000}


NAMED_AT: Final = (("a", 9_000), ("b", 5_000), ("a", -1), ("c", 3_000), ("b", 8_000))
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def _named_commit(offset: int, group_id: str, at_ms: int) -> bytes:
    """One of value version 4, which has the topic's id."""
    key_message, value_message = REGISTRY["__consumer_offsets"][RecordType.OFFSET_COMMIT]
    key = codec.make(key_message, group=group_id, topic="t", partition=0)
    value = codec.make(value_message, offset=1, metadata="", topic_id=TOPIC_ID, commit_timestamp=max(at_ms, 0))
    encoded = codec.encode_value("__consumer_offsets", RecordType.OFFSET_COMMIT, 4, value)
    encoded_key = codec.encode_key("__consumer_offsets", RecordType.OFFSET_COMMIT, key)
    return build_batch([Record(offset, at_ms, encoded_key, encoded, ())])
