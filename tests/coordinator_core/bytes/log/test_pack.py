"""Packing: what goes in as records comes out of the batches, cut where no operation can be cut."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import NO_PRODUCER_ID, Record, build_batch, parse_header
from coordinator_core.bytes.log.pack import (
    BATCH_BYTES_MAX,
    BATCH_BYTES_TARGET,
    NO_HEADERS,
    PackableRecords,
    pack_records,
)
from coordinator_core.bytes.log.records import decode_chunk, iter_records
from coordinator_core.bytes.log.scan import scan_segment


class PackCase(NamedTuple):
    """Records as (offset, time in ms, value size), and the offsets with which batches must begin."""

    name: str
    records: Sequence[tuple[int, int, int]]
    first_offsets: Sequence[int]
    is_log_append_time: bool = False


BIG = BATCH_BYTES_TARGET
CASES = [
    PackCase("times differ, all small", [(0, 5, 1), (1, 6, 1), (2, 4, 1)], [0]),
    PackCase("a hole begins a batch", [(3, 5, 1), (4, 5, 1), (6, 5, 1)], [3, 6]),
    PackCase("a full batch ends where the time changes", [(0, 5, BIG), (1, 5, 1), (2, 6, 1)], [0, 2]),
    PackCase("one time goes on beyond the target", [(0, 5, BIG), (1, 5, BIG), (2, 5, BIG)], [0]),
    PackCase("but not beyond the largest batch", [(0, 5, BATCH_BYTES_MAX - 80), (1, 5, 100)], [0, 1]),
    PackCase("without a time each is a batch of its own", [(0, -1, 1), (1, -1, 1), (2, 5, 1)], [0, 1, 2]),
    PackCase("log append time is one for a batch", [(0, 5, 1), (1, 5, 1), (2, 6, 1)], [0, 2], True),
]


def packable(records: Sequence[Record], *, is_log_append_time: bool = False) -> PackableRecords:
    """Columns of records without headers."""

    def column(parts: Sequence[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lengths = np.array([-1 if part is None else len(part) for part in parts], np.int32)
        ends = np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
        data = np.frombuffer(b"".join(part or b"" for part in parts), np.uint8)
        return data, ends - np.maximum(lengths, 0), lengths

    key_data, key_start, key_length = column([record.key for record in records])
    value_data, value_start, value_length = column([record.value for record in records])
    header_data, header_start, header_length = column([NO_HEADERS for _ in records])
    return PackableRecords(
        offset=np.array([record.offset for record in records], np.int64),
        timestamp_ms=np.array([record.timestamp_ms for record in records], np.int64),
        is_log_append_time=np.full(len(records), is_log_append_time),
        is_transactional=np.zeros(len(records), np.bool_),
        is_control=np.zeros(len(records), np.bool_),
        producer_id=np.full(len(records), NO_PRODUCER_ID),
        base_offset=np.full(len(records), -1),
        key_data=key_data,
        key_start=key_start,
        key_length=key_length,
        value_data=value_data,
        value_start=value_start,
        value_length=value_length,
        header_data=header_data,
        header_start=header_start,
        header_length=header_length,
    )


def batches_of(data: np.ndarray) -> list[bytes]:
    """Whole batches, each with a good checksum."""
    base_offset = parse_header(data.tobytes()).base_offset if len(data) else 0
    scan = scan_segment(data, base_offset=base_offset)
    assert not scan.findings
    positions, sizes = scan.batches.position.tolist(), scan.batches.size.tolist()
    return [data[at : at + size].tobytes() for at, size in zip(positions, sizes, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batches_are_cut_where_no_operation_can_be_cut(case: PackCase) -> None:
    """Holes, kinds of time and size cut a batch; between two records of one time only the largest size does."""
    records = [Record(offset, time, b"k", bytes(size)) for offset, time, size in case.records]
    data, count = pack_records(packable(records, is_log_append_time=case.is_log_append_time))
    batches = batches_of(data)
    assert count == len(records)
    assert [parse_header(batch).base_offset for batch in batches] == list(case.first_offsets)
    assert [record for batch in batches for record in iter_records(batch)] == records


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Ascending offsets with holes, times in any order, keys and values with nulls."""
    steps = draw(st.lists(st.integers(1, 3), max_size=30))
    offsets = np.cumsum([draw(st.integers(0, 2**62)), *steps]).tolist()
    blob = st.none() | st.binary(max_size=200)
    times = st.integers(-1, 5) | st.integers(-(2**63), 2**63 - 1)
    return [Record(offset, draw(times), draw(blob), draw(blob)) for offset in offsets]


@given(record_lists())
def test_packing_is_what_the_plain_encoder_writes(records: list[Record]) -> None:
    """Each batch equals the one which build_batch makes of the same records, to the byte."""
    batches = batches_of(pack_records(packable(records))[0])
    by_offset = {record.offset: record for record in records}
    for batch in batches:
        header = parse_header(batch)
        inside = [by_offset[offset] for offset in range(header.base_offset, header.last_offset + 1)]
        delta_fits = all(abs(record.timestamp_ms - inside[0].timestamp_ms) < 2**63 for record in inside)
        if delta_fits:
            assert build_batch(inside, leader_epoch=-1) == batch
        assert (header.producer_id, header.is_transactional, header.is_control) == (NO_PRODUCER_ID, False, False)
    chunk = decode_chunk(b"".join(batches))
    assert not chunk.findings
    assert chunk.records.offset.tolist() == [record.offset for record in records]
    assert chunk.records.timestamp_ms.tolist() == [record.timestamp_ms for record in records]


@given(record_lists(), st.data())
def test_the_cuts_do_not_depend_on_how_records_are_fed(records: list[Record], data: st.DataObject) -> None:
    """Fed in two parts, what the first leaves out in front of the second, the batches are the same."""
    whole, _ = pack_records(packable(records))
    cut = data.draw(st.integers(0, len(records)))
    first, count = pack_records(packable(records[:cut]), is_end=False)
    second, _ = pack_records(packable(records[count:]))
    assert first.tobytes() + second.tobytes() == whole.tobytes()


def test_headers_travel() -> None:
    """Headers as on the wire come out as headers."""
    records = packable([Record(0, 1, b"k", None)])
    wire = b"\x02\x02h\x04ab"
    with_headers = PackableRecords(
        **{name: getattr(records, name) for name in records.__slots__ if not name.startswith("header")},
        header_data=np.frombuffer(wire, np.uint8),
        header_start=np.zeros(1, np.int64),
        header_length=np.array([len(wire)], np.int32),
    )
    (batch,) = batches_of(pack_records(with_headers)[0])
    assert list(iter_records(batch)) == [Record(0, 1, b"k", None, (("h", b"ab"),))]


def test_known_batches_are_cut_as_the_broker_did() -> None:
    """One base offset is one batch, whatever its holes and times; a producer, a transaction and a marker begin one."""
    times, offsets = (5, 6, -1, 5, 5, 5, 5, 5), (0, 3, 4, 5, 6, 7, 8, 9)
    columns = packable([Record(offset, at, b"k", b"v") for offset, at in zip(offsets, times, strict=True)])
    known = replace(
        columns,
        base_offset=np.array([0, 0, 0, 5, 5, 7, 8, -1]),
        producer_id=np.array([-1, -1, -1, 7, 7, 7, 7, 7]),
        is_transactional=np.array([False, False, False, True, True, True, True, False]),
        is_control=np.array([False, False, False, False, False, True, True, False]),
    )
    headers = [parse_header(batch) for batch in batches_of(pack_records(known)[0])]
    found = [(it.base_offset, it.last_offset, it.producer_id, it.is_transactional, it.is_control) for it in headers]
    assert found == [
        (0, 4, NO_PRODUCER_ID, False, False),
        (5, 6, 7, True, False),
        (7, 7, 7, True, True),
        (8, 8, 7, True, True),
        (9, 9, 7, False, False),
    ]


def test_no_records_make_no_batch() -> None:
    """Nothing in, nothing out, at the end or not."""
    for is_end in (True, False):
        data, count = pack_records(packable([]), is_end=is_end)
        assert (len(data), count) == (0, 0)
