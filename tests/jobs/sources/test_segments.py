"""Segment files: found by name, mapped without a copy, and given back byte for byte as rows."""

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coordinator_core.bytes.log import scan
from jobs.errors import SourceError
from jobs.sources import segments
from jobs.sources.segments import SOURCE_SCHEMA, PartitionLog, find_partitions, read_segment, to_record_batches
from tests.jobs.builders import batch, damaged, write_segment
from tests.recorded import RECORDINGS

TOPICS = ("__consumer_offsets", "__share_group_state", "__transaction_state", "__cluster_metadata")
NAMES = sorted(path.parent.name for path in RECORDINGS.glob("*/logs"))


def rows_of(log: PartitionLog) -> pa.Table:
    """All rows of a log partition."""
    parts = [batch for segment in log.segments for batch in to_record_batches(read_segment(segment), log)]
    return pa.Table.from_batches(parts, schema=SOURCE_SCHEMA)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_segments_byte_for_byte(name: str) -> None:
    """Every batch of every recording is in a row, whole and in order, with the offsets of its header."""
    for log in find_partitions(str(RECORDINGS / name / "logs"), TOPICS):
        rows = rows_of(log)
        assert b"".join(rows["batch"].to_pylist()) == b"".join(Path(s.path).read_bytes() for s in log.segments)
        assert rows["base_offset"].to_pylist() == [int.from_bytes(b[:8], "big") for b in rows["batch"].to_pylist()]
        assert rows["crc_valid"].to_pylist() == [True] * rows.num_rows
        assert set(rows["source"].to_pylist()) <= {s.path for s in log.segments}


def test_headers_become_columns(tmp_path: Path) -> None:
    """Each column is its field of the header, codes by their names, nulls where a format has no such field."""
    path = write_segment(tmp_path, "__consumer_offsets", 3, 0, batch(0, 2, timestamp_ms=1_700_000_000_123))
    (row,) = rows_of(find_partitions(str(tmp_path), TOPICS)[0]).to_pylist()
    assert row["base_timestamp"].timestamp() == 1_700_000_000.123
    assert row["max_timestamp"].timestamp() == 1_700_000_000.128
    del row["batch"], row["base_timestamp"], row["max_timestamp"]
    assert row == {
        "topic": "__consumer_offsets",
        "partition": 3,
        "base_offset": 0,
        "last_offset": 1,
        "leader_epoch": 3,
        "record_count": 2,
        "magic": 2,
        "codec": "NONE",
        "timestamp_type": "CREATE_TIME",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": 0,
        "is_transactional": False,
        "is_control": False,
        "control_type": None,
        "source": str(path),
        "source_kind": "SEGMENT",
        "crc_valid": True,
    }


def test_markers_and_codecs_have_names() -> None:
    """Transaction markers say what they are; compressed batches say how."""
    found = find_partitions(str(RECORDINGS / "full-a" / "logs"), TOPICS[:1])
    rows = [row for log in found for row in rows_of(log).to_pylist()]
    assert {row["control_type"] for row in rows} == {None, "COMMIT", "ABORT"}
    assert all((row["control_type"] is not None) == row["is_control"] for row in rows)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        found = find_partitions(str(RECORDINGS / f"codec-{codec}" / "logs"), TOPICS[:1])
        assert {name for log in found for name in rows_of(log)["codec"].to_pylist()} <= {codec.upper(), "NONE"}
        assert any(codec.upper() in rows_of(log)["codec"].to_pylist() for log in found)


def test_chunks_are_bounded_and_skip_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All chosen batches come once, in order; a chunk passes its bound only for one large batch."""
    all_batches = [batch(offset, value=b"x" * (10 + 37 * (offset % 5))) for offset in range(50)]
    write_segment(tmp_path, "__consumer_offsets", 0, 0, b"".join(all_batches))
    log = find_partitions(str(tmp_path), TOPICS)[0]
    read = read_segment(log.segments[0])
    chosen = np.arange(50) % 7 != 3
    for bytes_max in (1, 200, 1000, 10**6):
        monkeypatch.setattr(segments, "CHUNK_BYTES_MAX", bytes_max)
        parts = list(to_record_batches(read, log, chosen))
        given = [b for part in parts for b in part["batch"].to_pylist()]
        assert given == [b for b, is_chosen in zip(all_batches, chosen, strict=True) if is_chosen]
        for part in parts:
            sizes = [len(b) for b in part["batch"].to_pylist()]
            assert len(sizes) == 1 or sum(sizes) <= bytes_max


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is in memory of a mapping")
def test_what_was_read_of_a_segment_leaves_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Framed, checked and written chunk by chunk: never more than a window and a chunk of the file are there."""
    path = write_segment(
        tmp_path, "__consumer_offsets", 0, 0, b"".join(batch(offset, value=b"x" * 5_000) for offset in range(2_000))
    )
    monkeypatch.setattr(scan, "WINDOW_BYTES", 1 << 20)
    monkeypatch.setattr(segments, "KEPT_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(segments, "CHUNK_BYTES_MAX", 1 << 20)
    log = find_partitions(str(tmp_path), TOPICS)[0]
    assert log.segments[0].size_bytes > 9 << 20
    read = read_segment(log.segments[0])
    found = [resident_bytes(path)]
    for rows in to_record_batches(read, log):
        rows["batch"].to_pylist()
        found.append(resident_bytes(path))
    assert len(found) > 9
    assert max(found) < 6 << 20, "a page may have 2 MiB"
    assert bytes(read.data) == path.read_bytes()


def resident_bytes(path: Path) -> int:
    """What is in memory of the mappings of a file."""
    reported = re.findall(rf"{path}\n(?:\w+: .*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text())
    assert reported, "the file is mapped"
    return 1024 * sum(map(int, reported))


def test_damage_is_kept_and_said(tmp_path: Path) -> None:
    """A batch with a wrong checksum is a row; its neighbours are as before."""
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0) + damaged(batch(1)) + batch(2))
    rows = rows_of(find_partitions(str(tmp_path), TOPICS)[0])
    assert rows["crc_valid"].to_pylist() == [True, False, True]


def test_only_wanted_folders_are_read(tmp_path: Path) -> None:
    """Other topics, deleted partitions, files and partitions without segments are left out; checkpoints are used."""
    write_segment(tmp_path, "__consumer_offsets", 10, 0, batch(0))
    write_segment(tmp_path, "__consumer_offsets", 9, 5, batch(5))
    write_segment(tmp_path, "orders", 0, 0, batch(0))
    (tmp_path / "__consumer_offsets-3.0123456789abcdef0123456789abcdef-delete").mkdir()
    (tmp_path / "__consumer_offsets-4").mkdir()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 9 5\n")
    (tmp_path / "__consumer_offsets-9" / "00000000000000000099.log.deleted").write_bytes(b"x")
    found = find_partitions(str(tmp_path), TOPICS)
    assert [(log.partition, log.log_start_offset, len(log.segments)) for log in found] == [(9, 5, 1), (10, None, 1)]
    assert [log.partition for log in find_partitions(str(tmp_path), TOPICS, partitions=[10])] == [10]
    assert find_partitions(f"file://{tmp_path}", TOPICS)[0].segments[0].size_bytes == len(batch(5))


@pytest.mark.parametrize("case", ["missing", "empty", "other", "partition", "file"])
def test_what_is_no_source_is_said(tmp_path: Path, case: str) -> None:
    """Each mistake has its own words, and names the folder."""
    uri, words = tmp_path / "logs", "has no folder"
    if case == "missing":
        words = "no such folder"
    elif case == "empty":
        uri.mkdir()
        words = "is empty"
    elif case == "file":
        uri.write_text("x")
        words = "is a file, and a source is a folder"
    else:
        write_segment(uri, "orders" if case == "other" else "__consumer_offsets", 0, 0, batch(0))
        if case == "partition":
            uri, words = uri / "__consumer_offsets-0", "give the folder above it"
    with pytest.raises(SourceError, match=words) as caught:
        find_partitions(str(uri), TOPICS)
    assert str(uri) in str(caught.value)


def test_a_broken_checkpoint_is_no_obstacle(tmp_path: Path) -> None:
    """It only explains a gap: the log is read without it."""
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0))
    (tmp_path / "log-start-offset-checkpoint").write_bytes(os.urandom(40))
    assert find_partitions(str(tmp_path), TOPICS)[0].log_start_offset is None
