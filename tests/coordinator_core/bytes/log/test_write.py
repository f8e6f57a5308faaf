"""Tests of the files of a partition folder. What is expected of indexes was compared with Kafka's LogSegment."""

import struct

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.segment import parse_checkpoint, select_segments
from coordinator_core.bytes.log.write import (
    LogFile,
    SegmentRules,
    leader_epoch_checkpoint,
    offset_checkpoint,
    partition_metadata,
    segment_files,
)
from coordinator_core.errors import EncodeError

BATCH_BYTES = 1000


def batch(offset: int, timestamp_ms: int = 1, count: int = 1, size: int = BATCH_BYTES) -> bytes:
    """A batch of exactly `size` bytes: the last record is as long as it takes."""
    records = [Record(offset + index, timestamp_ms, None, b"") for index in range(count)]
    empty = len(build_batch(records))
    for padding in range(size - empty - 6, size - empty + 1):
        records[-1] = Record(offset + count - 1, timestamp_ms, None, bytes(padding))
        data = build_batch(records)
        if len(data) == size:
            return data
    raise AssertionError("no such size")


def folder(batches: list[bytes], start_offset: int = 0, rules: SegmentRules | None = None) -> dict[str, bytes]:
    """File name -> bytes."""
    files = list(segment_files(batches, start_offset=start_offset, rules=rules))
    assert len({file.name for file in files}) == len(files)
    return {file.name: file.data for file in files}


def index_entries(data: bytes, layout: str) -> list[tuple[int, ...]]:
    """The entries of an index."""
    return list(struct.iter_unpack(layout, data))


def test_a_log_is_its_batches_back_to_back() -> None:
    """In one segment, named by its first offset, while nothing ends it."""
    batches = [batch(7), batch(8, count=3), batch(20)]
    files = folder(batches, start_offset=7)
    name = "00000000000000000007"
    assert list(files) == [f"{name}.log", f"{name}.index", f"{name}.timeindex"]
    assert files[f"{name}.log"] == b"".join(batches)


def test_without_batches_there_is_an_empty_segment() -> None:
    """As a broker has for a new partition."""
    assert folder([], start_offset=3) == {
        "00000000000000000003.log": b"",
        "00000000000000000003.index": b"",
        "00000000000000000003.timeindex": b"",
    }


def test_a_segment_ends_before_the_batch_which_passes_its_size() -> None:
    """Exactly full is fine; a batch which alone is too large has a segment of its own."""
    rules = SegmentRules(segment_bytes=2 * BATCH_BYTES)
    files = folder([batch(0), batch(1), batch(2), batch(3, size=3000), batch(4)], rules=rules)
    assert {name: len(data) for name, data in files.items() if name.endswith(".log")} == {
        "00000000000000000000.log": 2000,
        "00000000000000000002.log": 1000,
        "00000000000000000003.log": 3000,
        "00000000000000000004.log": 1000,
    }


def test_a_segment_ends_when_it_is_too_old() -> None:
    """By the timestamps: a batch more than `segment_ms` after the first one begins the next."""
    rules = SegmentRules(segment_ms=100)
    files = folder([batch(0, 1000), batch(1, 1100), batch(2, 1101)], rules=rules)
    assert [name for name in files if name.endswith(".log")] == ["00000000000000000000.log", "00000000000000000002.log"]


def test_a_segment_ends_where_its_indexes_cannot_name_an_offset() -> None:
    """Indexes hold 31-bit distances from the segment's first offset."""
    files = folder([batch(0), batch(2**31 - 1), batch(2**31)])
    assert [name for name in files if name.endswith(".log")] == ["00000000000000000000.log", "00000000002147483648.log"]


def test_a_segment_ends_when_an_index_is_full() -> None:
    """The time index keeps a place for the last entry."""
    rules = SegmentRules(index_interval_bytes=0, index_bytes_max=36)
    files = folder([batch(offset, offset + 1) for offset in range(5)], rules=rules)
    assert [name for name in files if name.endswith(".log")] == ["00000000000000000000.log", "00000000000000000003.log"]
    assert len(files["00000000000000000000.timeindex"]) == 24


def test_the_offset_index_points_at_every_so_many_bytes() -> None:
    """More than 4096 bytes after the last entry: relative offset of the batch's last record, position of the batch."""
    batches = [batch(10 + 2 * number, count=2) for number in range(12)]
    files = folder(batches, start_offset=10)
    assert index_entries(files["00000000000000000010.index"], ">ii") == [(11, 5000), (21, 10000)]


def test_the_time_index_has_the_largest_timestamp_so_far() -> None:
    """One entry with each of the offset index where it grew, and one at the end."""
    times = [5, 9, 7, 7, 7, 8, 8, 8, 8, 8, 8, 12]
    files = folder([batch(number, time) for number, time in enumerate(times)])
    assert index_entries(files["00000000000000000000.timeindex"], ">qi") == [(9, 1), (12, 11)]


def test_a_log_whose_batches_have_no_times_has_no_time_index() -> None:
    """-1 is no timestamp."""
    files = folder([batch(number, -1) for number in range(12)])
    assert files["00000000000000000000.timeindex"] == b""


def test_batches_out_of_order_are_refused() -> None:
    """A file which says otherwise would be a lie."""
    with pytest.raises(EncodeError):
        folder([batch(0, count=2), batch(1)])
    with pytest.raises(EncodeError):
        folder([batch(0)], start_offset=1)


def test_the_names_are_those_of_segments() -> None:
    """The reader of folders finds them, in order, and nothing else."""
    files = folder([batch(offset) for offset in range(5)], rules=SegmentRules(segment_bytes=1500))
    assert [segment.base_offset for segment in select_segments(files)] == [0, 1, 2, 3, 4]


def test_the_leader_epoch_checkpoint() -> None:
    """Version 0, the count, then epoch and first offset."""
    assert leader_epoch_checkpoint([(0, 0), (3, 17)]) == LogFile("leader-epoch-checkpoint", b"0\n2\n0 0\n3 17\n")
    assert leader_epoch_checkpoint([]).data == b"0\n0\n"


def test_partition_metadata() -> None:
    """The topic's id; without it a broker takes the folder for a stray one."""
    assert partition_metadata("gtL3kYVnQ9q2W0rZ8sXyDg") == LogFile(
        "partition.metadata", b"version: 0\ntopic_id: gtL3kYVnQ9q2W0rZ8sXyDg\n"
    )


def test_checkpoints_are_read_back() -> None:
    """What the reader of checkpoints makes of them is what was written."""
    offsets = {("t", 0): 5, ("__share_group_state", 49): 2**40}
    file = offset_checkpoint("log-start-offset-checkpoint", offsets)
    assert file.name == "log-start-offset-checkpoint"
    assert parse_checkpoint(file.data.decode()) == offsets
