"""Capture: every byte of the sources is in bronze or in quarantine, once, in however many steps it runs."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.bytes.coverage import CoverageKind
from jobs.bronze import capture as capture_job
from jobs.bronze import tasks as capture_tasks
from jobs.bronze.capture import CaptureSummary, capture
from jobs.bronze.coverage import (
    COMPACTED_TOPICS,
    CRC_MISMATCH,
    HOLE,
    LOG_START,
    OVERLAPPING,
    SKIPPED,
    from_table,
)
from jobs.bronze.export_segments import export_segments
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.commits import OVERWRITE
from jobs.delta.warehouse import Warehouse
from jobs.errors import ExportError, SourceError, WarehouseError
from jobs.settings import load_settings
from jobs.sources.segments import UNREADABLE_FILE, find_partitions, read_segment
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.tables import TABLES
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES
from tests.jobs.builders import batch, damaged, write_segment
from tests.recorded import RECORDINGS

QUARANTINE = TABLES["bronze.quarantine"]
START = datetime(2024, 1, 1, tzinfo=UTC)
OFFSETS, SHARE = "__consumer_offsets", "__share_group_state"


NAMES = ("full-a", "compact", "codec-zstd", "old-40", "p50")
"""One of a kind; `test_segments` reads all."""


class Capturing:
    """Captures into one warehouse, run after run, each a minute later."""

    def __init__(self, executor: Executor, warehouse: Warehouse) -> None:
        self.executor = executor
        self.warehouse = warehouse
        self.runs = 0

    def __call__(self, *sources: Path, cluster_id: str = "c", **settings: Any) -> CaptureSummary:
        """One run."""
        self.runs += 1
        options = {"segments": tuple(map(str, sources)), "cluster_id": cluster_id, **settings}
        return capture(
            self.executor,
            self.warehouse,
            load_settings(options, environment={}),
            capture_id=f"run-{self.runs}",
            captured_at=START + timedelta(minutes=self.runs),
        )

    def rows(self, *columns: str, topic: str | None = None, cluster_id: str = "c") -> list[dict[str, Any]]:
        """Rows of bronze.record_batches, sorted by their key."""
        where = {"cluster_id": cluster_id} | ({"topic": topic} if topic else {})
        names = list(dict.fromkeys(["topic", "partition", "base_offset", *columns]))
        rows = self.warehouse.read(RECORD_BATCHES, names, where=where).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["base_offset"]))

    def offsets(self) -> list[int]:
        """Base offsets, of a log of one partition."""
        return [row["base_offset"] for row in self.rows()]

    def coverage(self, topic: str = OFFSETS, partition: int = 0) -> list[tuple[int, int, str, str | None]]:
        """(from, to, kind, reason) of one log partition."""
        found = from_table(self.warehouse.read(COVERAGE, where={"cluster_id": "c"}))
        return [(r.from_offset, r.to_offset, r.kind.name, r.reason) for r in found.get((topic, partition), [])]

    def quarantine(self) -> list[dict[str, Any]]:
        """Rows of bronze.quarantine."""
        rows: list[dict[str, Any]] = self.warehouse.read(QUARANTINE).to_pylist()
        return rows

    def versions(self) -> list[int]:
        """Versions of the three tables."""
        return [self.warehouse.version(table) for table in (RECORD_BATCHES, COVERAGE, QUARANTINE)]


@pytest.fixture
def run(no_spark: Executor, warehouse: Warehouse) -> Capturing:
    """Captures into an empty warehouse."""
    return Capturing(no_spark, warehouse)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """An empty log directory."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def segments_under(root: Path) -> dict[str, bytes]:
    """Bytes of the segments under a log directory that are not empty, by folder and name."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes() for path in root.glob("*-*/*.log") if path.stat().st_size
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_comes_back_byte_for_byte(run: Capturing, tmp_path: Path, name: str) -> None:
    """What was captured from a real broker and exported again is the input, file by file; a second run adds nothing."""
    source = RECORDINGS / name / "logs"
    summary = run(source)
    assert summary.quarantined_count == 0
    assert all(row["crc_valid"] for row in run.rows("crc_valid"))
    before = run.versions()
    again = run(source)
    assert (again.batch_count, again.record_count, run.versions()) == (0, 0, before)
    exported = export_segments(run.executor, run.warehouse, cluster_id="c", output=str(tmp_path / "out"), topics=None)
    wanted = {
        key: data
        for key, data in segments_under(source).items()
        if key.rpartition("-")[0] in load_settings(environment={}).topics
    }
    assert segments_under(tmp_path / "out") == wanted
    assert sum(item.size_bytes for item in exported) == summary.size_bytes == sum(map(len, wanted.values()))


def test_counts_are_those_of_kafkas_own_tool(run: Capturing) -> None:
    """Batches and records of the recording, as Kafka's DumpLogSegments counted them; control records included."""
    summary = run(RECORDINGS / "full-a" / "logs")
    counts = {topic: (count.batch_count, count.record_count) for topic, count in summary.topics.items()}
    assert counts[OFFSETS] == (777, 1598 + 81)
    assert counts[SHARE] == (674, 675)
    assert counts["__transaction_state"] == (338, 338)
    row = run.rows("captured_at", "capture_id", topic=OFFSETS)[0]
    assert (row["capture_id"], row["captured_at"]) == ("run-1", START + timedelta(minutes=1))


@pytest.mark.parametrize("step", [1, 7, 40])
def test_any_division_into_runs_gives_the_same_rows(run: Capturing, logs: Path, step: int) -> None:
    """A log captured while it grows, torn tails included, gives what one capture at the end gives."""
    batches = [batch(offset * 2, 2, value=bytes([offset])) for offset in range(60)]
    data = b"".join(batches)
    for count in range(step, 61, step):
        end = sum(map(len, batches[:count]))
        torn = data[end : end + 30]
        write_segment(logs, OFFSETS, 0, 0, data[:end] + torn)
        if step > 1 or count % 20 == 0:
            run(logs)
    write_segment(logs, OFFSETS, 0, 0, data)
    summary = run(logs)
    assert summary.is_clean
    rows = run.rows("batch", "last_offset")
    assert b"".join(row["batch"] for row in rows) == data
    assert run.coverage() == [(0, 119, "CAPTURED", None)]
    assert run.quarantine() == []


def test_torn_tail_is_kept_until_it_is_whole(run: Capturing, logs: Path) -> None:
    """The torn end of the newest segment is in quarantine, but no reason to say that something is wrong."""
    whole = batch(0) + batch(1)
    write_segment(logs, OFFSETS, 0, 0, whole[:-5])
    first = run(logs)
    assert (first.batch_count, first.quarantined_count) == (1, 0)
    assert [(row["stage"], row["code"]) for row in run.quarantine()] == [("FILE", "TRUNCATED_BATCH")]
    write_segment(logs, OFFSETS, 0, 0, whole)
    assert run(logs).batch_count == 1
    assert run.quarantine() == []


@pytest.fixture
def framed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were framed of each segment that was read."""
    counts: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        read = read_segment(*arguments, **named)
        counts.append(len(read.scan.batches))
        return read

    monkeypatch.setattr(capture_tasks, "read_segment", counted)
    return counts


def test_a_segment_that_has_grown_is_read_from_where_it_went_on(run: Capturing, logs: Path, framed: list[int]) -> None:
    """What is settled before is not looked at again; what quarantine has of it stays, whatever the end is like."""
    batches = [batch(offset) for offset in range(9)]
    torn = batches[4][:20]
    for data in (b"".join(batches[:4]) + torn, b"".join(batches[:6]) + torn, b"".join(batches)):
        write_segment(logs, OFFSETS, 0, 0, data)
        run(logs)
    assert (framed, run.offsets(), run.quarantine()) == ([4, 6, 4], list(range(9)), [])
    assert run.coverage() == [(0, 8, "CAPTURED", None)]
    before = run.versions()
    run(logs)
    assert (framed[-1], run.versions()) == (1, before)
    write_segment(logs, OFFSETS, 0, 0, b"".join(batches) + damaged(batch(9)) + batch(10))
    run(logs)
    write_segment(logs, OFFSETS, 0, 0, b"".join(batches) + damaged(batch(9)) + batch(10) + batch(11)[:20])
    run(logs)
    assert framed[-2:] == [11, 11]
    assert [row["code"] for row in run.quarantine()] == ["CRC_MISMATCH", "TRUNCATED_BATCH"]


def test_of_a_segment_with_offsets_missing_behind_it_the_end_is_read(
    run: Capturing, logs: Path, tmp_path: Path, framed: list[int]
) -> None:
    """Each night, since they may come: in the same file or in that of another source. In the middle of one: all."""
    first = [batch(offset) for offset in range(4)]
    write_segment(logs, SHARE, 0, 0, b"".join(first))
    write_segment(logs, SHARE, 0, 6, batch(6) + batch(7) + batch(9) + batch(10))
    write_segment(logs, SHARE, 0, 12, batch(12) + batch(13))
    run(logs)
    before = run.versions()
    run(logs)
    assert (framed, run.versions()) == ([4, 4, 2, 1, 4, 1], before)
    write_segment(logs, SHARE, 0, 0, b"".join(first) + batch(4))
    run(logs)
    assert framed[6:] == [2, 4, 1]
    other = tmp_path / "other"
    write_segment(other, SHARE, 0, 0, b"".join(first) + batch(4) + batch(5))
    run(logs, other)
    assert framed[9:] == [1, 4, 1, 6]
    assert run.coverage(SHARE) == [
        (0, 7, "CAPTURED", None),
        (8, 8, "MISSING", HOLE),
        (9, 10, "CAPTURED", None),
        (11, 11, "MISSING", HOLE),
        (12, 13, "CAPTURED", None),
    ]
    assert run.offsets() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13]


def test_damaged_batches_are_kept_once_and_named(run: Capturing, logs: Path) -> None:
    """A wrong checksum: the batch is in bronze marked so, in quarantine and in coverage; all again changes nothing."""
    write_segment(logs, OFFSETS, 0, 0, batch(0, 3) + damaged(batch(3, 2)) + batch(5))
    summary = run(logs)
    assert (summary.batch_count, summary.quarantined_count, summary.gap_count) == (3, 1, 1)
    assert [(r["base_offset"], r["crc_valid"]) for r in run.rows("crc_valid")] == [(0, True), (3, False), (5, True)]
    (row,) = run.quarantine()
    assert (row["stage"], row["code"], row["base_offset"], row["cluster_id"]) == ("BATCH", "CRC_MISMATCH", 3, "c")
    assert row["bytes"] == damaged(batch(3, 2))
    assert run.coverage() == [(0, 2, "CAPTURED", None), (3, 4, "CORRUPT", CRC_MISMATCH), (5, 5, "CAPTURED", None)]
    before = run.versions()
    assert run(logs).batch_count == 0
    assert run.versions() == before
    write_segment(logs, OFFSETS, 0, 0, batch(0, 3) + damaged(batch(3, 2)) + batch(5) + batch(6))
    run(logs)
    assert run.offsets() == [0, 3, 5, 6]
    assert run.quarantine()[0]["seen_at"] == START + timedelta(minutes=1)


def test_a_damaged_header_hides_nothing_that_follows(run: Capturing, logs: Path) -> None:
    """A batch whose header claims offsets far beyond does not make later batches look captured."""
    lying = bytearray(batch(3))
    lying[23:27] = (1_000_000).to_bytes(4, "big")
    write_segment(logs, OFFSETS, 0, 0, batch(0, 3) + bytes(lying))
    run(logs)
    write_segment(logs, OFFSETS, 0, 0, batch(0, 3) + batch(3) + batch(4))
    run(logs)
    assert {0, 4} <= set(run.offsets())


def test_skipped_bytes_are_quarantined_and_others_go_on(run: Capturing, logs: Path) -> None:
    """A file that is no segment is named; bytes between batches are CORRUPT offsets; other partitions are captured."""
    write_segment(logs, OFFSETS, 0, 0, batch(0) + b"\x01garbage" * 20 + batch(4))
    no_segment = write_segment(logs, OFFSETS, 1, 0, b"this is no segment" * 10)
    write_segment(logs, OFFSETS, 2, 0, batch(0))
    summary = run(logs)
    assert (summary.batch_count, summary.quarantined_count) == (3, 2)
    assert run.coverage(partition=0) == [
        (0, 0, "CAPTURED", None),
        (1, 3, "CORRUPT", SKIPPED),
        (4, 4, "CAPTURED", None),
    ]
    assert {row["stage"] for row in run.quarantine()} == {"FILE"}
    assert str(no_segment) in {row["source"] for row in run.quarantine()}


def test_files_that_look_like_segments_are_named(run: Capturing, logs: Path) -> None:
    """Also in a folder that has no segment at all; what Kafka itself sets aside is not named."""
    segment = write_segment(logs, OFFSETS, 0, 0, batch(0))
    for name in ("5.log", f"{6:021d}.log", f"{7:020d}.log.gz", f"{8:020d}.log.deleted", f"{8:020d}.index"):
        (segment.parent / name).write_bytes(batch(5))
    alone = logs / f"{OFFSETS}-1"
    alone.mkdir()
    (alone / "copy.log").write_bytes(batch(0))
    first, second = sorted(run(logs).notes)
    assert first.startswith(f"{segment.parent}: not read: {6:021d}.log, {7:020d}.log.gz, 5.log (3 files). ")
    assert second.startswith(f"{alone}: not read: copy.log (1 file). ")
    segment.unlink()
    with pytest.raises(SourceError, match=r"has no folder .*not read: copy\.log \(1 file\)"):
        run(logs)


def test_a_file_that_cannot_be_read_is_named(run: Capturing, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other segments are captured; the file is in quarantine by name until it can be read."""
    first = write_segment(logs, OFFSETS, 0, 0, batch(0))
    write_segment(logs, OFFSETS, 1, 0, batch(0))

    def found_before_it_went(*arguments: Any) -> Sequence[Any]:
        logs_found = find_partitions(*arguments)
        first.unlink()
        return logs_found

    monkeypatch.setattr(capture_job, "find_partitions", found_before_it_went)
    summary = run(logs)
    assert (summary.batch_count, summary.quarantined_count) == (1, 1)
    (row,) = run.quarantine()
    assert (row["code"], row["source"]) == ("UNREADABLE_FILE", str(first))
    monkeypatch.undo()
    write_segment(logs, OFFSETS, 0, 0, batch(0))
    assert run(logs).batch_count == 1
    (row,) = run.quarantine()
    assert (row["resolved_at"], row["resolved_by"]) == (
        START + timedelta(minutes=2),
        f"{row['source']}, read again, is good there",
    )


def test_a_file_that_cannot_be_read_is_no_hole(run: Capturing, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two segments of a compacted topic: what it holds is MISSING, not COMPACTED, and comes later."""
    for base_offset in (0, 1, 2):
        middle = write_segment(logs, OFFSETS, 0, base_offset, batch(base_offset))
        if base_offset == 1:
            gone = middle

    def found_before_it_went(*arguments: Any) -> Sequence[Any]:
        logs_found = find_partitions(*arguments)
        gone.unlink()
        return logs_found

    with monkeypatch.context() as patched:
        patched.setattr(capture_job, "find_partitions", found_before_it_went)
        run(logs)
    assert run.coverage() == [
        (0, 0, "CAPTURED", None),
        (1, 1, "MISSING", "between two captures"),
        (2, 2, "CAPTURED", None),
    ]
    write_segment(logs, OFFSETS, 0, 1, batch(1))
    assert run(logs).batch_count == 1
    assert run.coverage() == [(0, 2, "CAPTURED", None)]
    assert [row["resolved_at"] for row in run.quarantine()] == [START + timedelta(minutes=2)]


def test_what_was_lost_lies_between_two_times(run: Capturing, tmp_path: Path) -> None:
    """A MISSING row has the time of the last batch before it and of the first one after it."""
    early, late = tmp_path / "early", tmp_path / "late"
    write_segment(early, SHARE, 0, 0, batch(0, timestamp_ms=1_000) + batch(1, timestamp_ms=2_000))
    write_segment(late, SHARE, 0, 8, batch(8, timestamp_ms=9_000) + batch(9, timestamp_ms=10_000))
    run(early)
    run(late)
    rows = run.warehouse.read(COVERAGE, ["kind", "first_timestamp", "last_timestamp"]).to_pylist()
    seconds = [(row["kind"], row["first_timestamp"].timestamp(), row["last_timestamp"].timestamp()) for row in rows]
    assert seconds == [("CAPTURED", 1, 2.005), ("MISSING", 2.005, 9), ("CAPTURED", 9, 10.005)]


def test_holes_have_the_reason_of_their_topic(run: Capturing, logs: Path) -> None:
    """Between batches: compaction in a compacted topic, a loss in another. Before the first: deleted by Kafka."""
    for topic in (OFFSETS, SHARE):
        write_segment(logs, topic, 0, 10, batch(12) + batch(20))
        write_segment(logs, topic, 0, 30, batch(33))
    (logs / "log-start-offset-checkpoint").write_text(f"0\n1\n{SHARE} 0 10\n")
    run(logs)
    compacted = "compaction left no record here"
    assert run.coverage(OFFSETS) == [
        (0, 9, "MISSING", "before the first captured offset"),
        (10, 11, "COMPACTED", compacted),
        (12, 12, "CAPTURED", None),
        (13, 19, "COMPACTED", compacted),
        (20, 20, "CAPTURED", None),
        (21, 32, "COMPACTED", compacted),
        (33, 33, "CAPTURED", None),
    ]
    assert [(first, last, kind, reason) for first, last, kind, reason in run.coverage(SHARE)] == [
        (0, 9, "MISSING", LOG_START),
        (10, 11, "MISSING", HOLE),
        (12, 12, "CAPTURED", None),
        (13, 19, "MISSING", HOLE),
        (20, 20, "CAPTURED", None),
        (21, 32, "MISSING", HOLE),
        (33, 33, "CAPTURED", None),
    ]


def test_holes_inside_compacted_batches_are_found(run: Capturing) -> None:
    """Coverage of the compacted recording: captured offsets are exactly those of the records Kafka's tool printed."""
    run(RECORDINGS / "compact" / "logs")
    captured = 0
    for partition in range(3):
        ranges = run.coverage(OFFSETS, partition)
        assert ranges[0][0] == 0
        assert all(a[1] + 1 == b[0] for a, b in pairwise(ranges))
        captured += sum(last - first + 1 for first, last, kind, _ in ranges if kind == "CAPTURED")
    record_count = sum(row["record_count"] for row in run.rows("record_count", topic=OFFSETS))
    assert captured == record_count
    assert set(COMPACTED_TOPICS) >= {OFFSETS}


def test_a_gap_between_two_captures_is_missing_and_can_be_filled(run: Capturing, tmp_path: Path) -> None:
    """Offsets deleted between two runs are MISSING; found in another copy they are captured, in order."""
    copies = [tmp_path / name for name in ("early", "late", "whole")]
    write_segment(copies[0], SHARE, 0, 0, batch(0, 5))
    write_segment(copies[1], SHARE, 0, 8, batch(8, 2))
    write_segment(copies[2], SHARE, 0, 0, batch(0, 5) + batch(5, 3) + batch(8, 2) + batch(10))
    run(copies[0])
    run(copies[1])
    assert run.coverage(SHARE) == [
        (0, 4, "CAPTURED", None),
        (5, 7, "MISSING", "between two captures"),
        (8, 9, "CAPTURED", None),
    ]
    assert run(copies[2]).batch_count == 2
    assert [row["base_offset"] for row in run.rows()] == [0, 5, 8, 10]
    assert run.coverage(SHARE) == [(0, 10, "CAPTURED", None)]


def test_two_sources_of_one_partition_give_each_offset_once(run: Capturing, tmp_path: Path) -> None:
    """Replicas in one run: what the first has intact is taken from it, the rest from the second."""
    one, two = tmp_path / "one", tmp_path / "two"
    write_segment(one, OFFSETS, 0, 0, batch(0) + damaged(batch(1)) + batch(2))
    write_segment(two, OFFSETS, 0, 0, batch(0) + batch(1) + batch(2) + batch(3))
    summary = run(one, two)
    assert summary.batch_count == 4
    assert [(row["base_offset"], Path(row["source"]).parts[-3]) for row in run.rows("source")] == [
        (0, "one"),
        (1, "two"),
        (2, "one"),
        (3, "two"),
    ]
    assert [(row["code"], row["resolved_at"] is None) for row in run.quarantine()] == [("CRC_MISMATCH", False)]
    assert (summary.quarantined_count, run.coverage()) == (0, [(0, 3, "CAPTURED", None)])


def test_a_file_that_was_put_right_takes_the_place_of_its_damaged_batch(run: Capturing, logs: Path) -> None:
    """One bit flipped in a batch, then the good file: bronze is that of the good file, the finding is resolved."""
    good = batch(0) + batch(1) + batch(2)
    write_segment(logs, OFFSETS, 0, 0, batch(0) + damaged(batch(1)) + batch(2))
    assert run(logs).quarantined_count == 1
    assert run.coverage()[1][2] == "CORRUPT"
    write_segment(logs, OFFSETS, 0, 0, good)
    assert run(logs).is_clean
    assert [(row["base_offset"], row["crc_valid"]) for row in run.rows("crc_valid")] == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert run.coverage() == [(0, 2, "CAPTURED", None)]
    (row,) = run.quarantine()
    assert (row["code"], row["resolved_at"]) == ("CRC_MISMATCH", START + timedelta(minutes=2))
    before = run.versions()
    write_segment(logs, OFFSETS, 0, 0, batch(0) + damaged(batch(1)) + batch(2))
    assert run(logs).is_clean
    assert run.versions()[0] == before[0]


def test_compaction_after_a_capture_takes_nothing_back(run: Capturing) -> None:
    """The log before compaction, then after it: coverage and rows stay those of the whole log."""
    run(RECORDINGS / "compact" / "logs-before")
    ends = {partition: run.coverage(OFFSETS, partition)[-1][1] for partition in range(3)}
    rows = run.rows(topic=OFFSETS)
    run(RECORDINGS / "compact" / "logs")
    new = [row for row in run.rows(topic=OFFSETS) if row not in rows]
    assert new
    assert all(row["base_offset"] > ends[row["partition"]] for row in new)
    assert len(run.rows(topic=OFFSETS)) == len(rows) + len(new)
    for partition, end in ends.items():
        assert run.coverage(OFFSETS, partition)[0] == (0, end, "CAPTURED", None)
        assert run.coverage(OFFSETS, partition)[1][2] == "COMPACTED"


def test_batches_that_overlap_in_part_are_quarantined(run: Capturing, tmp_path: Path) -> None:
    """Two rows never share an offset: a batch that bronze has in part is kept in quarantine instead."""
    one, two = tmp_path / "one", tmp_path / "two"
    write_segment(one, OFFSETS, 0, 0, batch(0, 5))
    write_segment(two, OFFSETS, 0, 3, batch(3, 5))
    run(one)
    summary = run(two)
    assert (summary.batch_count, summary.quarantined_count) == (0, 1)
    (row,) = run.quarantine()
    assert (row["code"], row["base_offset"], row["bytes"]) == ("OVERLAPPING_BATCH", 3, batch(3, 5))
    assert run.coverage() == [(0, 4, "CAPTURED", None), (5, 7, "CORRUPT", OVERLAPPING)]


@pytest.mark.parametrize("task_bytes_max", [1, 400, 10**9])
def test_large_partitions_are_cut_at_segments(run: Capturing, logs: Path, task_bytes_max: int) -> None:
    """However a partition is cut between tasks, rows and coverage are the same, holes at the cuts included."""
    for base_offset in (0, 10, 20, 30):
        write_segment(logs, OFFSETS, 0, base_offset, batch(base_offset, 3) + batch(base_offset + 4, 2))
    run(logs, task_bytes_max=task_bytes_max)
    assert run.offsets() == [0, 4, 10, 14, 20, 24, 30, 34]
    kinds = [(first, last, kind) for first, last, kind, _ in run.coverage()]
    expected = []
    for base_offset in (0, 10, 20, 30):
        expected += [
            (base_offset, base_offset + 2, "CAPTURED"),
            (base_offset + 3, base_offset + 3, "COMPACTED"),
            (base_offset + 4, base_offset + 5, "CAPTURED"),
            (base_offset + 6, base_offset + 9, "COMPACTED"),
        ]
    assert kinds == expected[:-1]
    before = run.versions()
    run(logs, task_bytes_max=task_bytes_max)
    assert run.versions() == before


def test_clusters_share_a_warehouse_without_mixing(run: Capturing, logs: Path) -> None:
    """The same log under two names: each cluster has its own rows, coverage and quarantine."""
    write_segment(logs, OFFSETS, 0, 0, batch(0) + damaged(batch(1)))
    run(logs, cluster_id="a")
    run(logs, cluster_id="b/:%=")
    assert len(run.rows(cluster_id="a")) == len(run.rows(cluster_id="b/:%=")) == 2
    assert sorted(row["cluster_id"] for row in run.quarantine()) == ["a", "b/:%="]
    assert set(run.warehouse.read(COVERAGE, ["cluster_id"])["cluster_id"].to_pylist()) == {"a", "b/:%="}


def test_a_crash_between_the_commits_is_made_good(run: Capturing, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in, coverage is not: the next run reads again what coverage lacks, and doubles nothing."""
    write_segment(logs, OFFSETS, 0, 0, batch(0))
    write_segment(logs, OFFSETS, 0, 1, batch(1))
    with monkeypatch.context() as patched:
        patched.setattr(capture_job, "write_coverage", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(logs)
    assert run.offsets() == [0, 1]
    assert run.coverage() == []
    assert run(logs).batch_count == 0
    assert run.offsets() == [0, 1]
    assert run.coverage() == [(0, 1, "CAPTURED", None)]


def test_quarantine_rows_of_other_jobs_stay(run: Capturing, logs: Path) -> None:
    """A capture replaces its own findings about a file, never what replay found in its batches."""
    path = write_segment(logs, OFFSETS, 0, 0, batch(0) + damaged(batch(1)))
    run(logs)
    of_replay = run.quarantine()[0] | {"stage": "BATCH", "code": "DECOMPRESSION_FAILED", "source": str(path)}
    both = [*run.quarantine(), of_replay]
    schema = run.warehouse.read(QUARANTINE).schema
    run.warehouse.write(
        QUARANTINE,
        type(run.warehouse.read(QUARANTINE)).from_pylist(both, schema=schema),
        app_id="replay",
        version=1,
        mode=OVERWRITE,
    )
    write_segment(logs, OFFSETS, 0, 0, batch(0) + batch(2))
    run(logs)
    codes = {row["code"]: row["resolved_at"] is None for row in run.quarantine()}
    assert codes == {"DECOMPRESSION_FAILED": True, "CRC_MISMATCH": False}


def test_two_captures_at_once_do_not_double(run: Capturing, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower of two captures of one cluster fails and says so; a run after it finds all in place."""
    write_segment(logs, OFFSETS, 0, 0, batch(0))

    def meanwhile(*arguments: Any) -> Any:
        done = run_tasks(*arguments)
        monkeypatch.undo()
        run(logs)
        return done

    monkeypatch.setattr(capture_job, "run_tasks", meanwhile)
    with pytest.raises(WarehouseError, match="at the same time"):
        run(logs)
    assert run(logs).batch_count == 0
    assert run.offsets() == [0]


def test_a_source_that_is_not_there_fails_before_anything_is_written(run: Capturing, tmp_path: Path) -> None:
    """A mistyped folder leaves no trace."""
    with pytest.raises(SourceError, match="no such folder"):
        run(tmp_path / "nowhere")
    assert not Path(run.warehouse.root).exists()


def test_an_export_never_mixes_with_other_files(run: Capturing, logs: Path, tmp_path: Path) -> None:
    """It takes a new or empty folder, and says when there is nothing to write."""
    write_segment(logs, OFFSETS, 0, 0, batch(0))
    run(logs)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    for output, cluster_id, words in (("out", "c", "not an empty folder"), ("new", "other", "nothing of cluster")):
        with pytest.raises(ExportError, match=words):
            export_segments(run.executor, run.warehouse, cluster_id=cluster_id, output=str(tmp_path / output))


def test_a_log_captured_in_pieces_is_exported_whole(run: Capturing, tmp_path: Path) -> None:
    """Segments that grew between runs come back as one file; pieces captured out of order come back in order."""
    early, late, whole = (tmp_path / name for name in ("early", "late", "whole"))
    write_segment(early, SHARE, 0, 0, batch(0, 5))
    write_segment(late, SHARE, 0, 8, batch(8, 2))
    write_segment(whole, SHARE, 0, 0, batch(0, 5) + batch(5, 3))
    shutil.copytree(late / f"{SHARE}-0", whole / f"{SHARE}-0", dirs_exist_ok=True)
    for source in (early, late, whole):
        run(source)
    export_segments(run.executor, run.warehouse, cluster_id="c", output=str(tmp_path / "out"))
    assert segments_under(tmp_path / "out") == segments_under(whole)


def test_kinds_in_the_table_are_those_of_the_core() -> None:
    """The names users read are the core's."""
    assert {kind.name for kind in CoverageKind} == {"CAPTURED", "MISSING", "COMPACTED", "CORRUPT"}


@pytest.mark.parametrize(("copied_from", "is_resolved"), [(0, True), (1, False)])
def test_a_file_that_is_never_read_again_is_resolved_by_a_copy(
    run: Capturing, logs: Path, tmp_path: Path, copied_from: int, is_resolved: bool
) -> None:
    """Its name has the first offset: another copy must have everything from there to the end of what was captured. A
    row of before has no offsets of its own."""
    write_segment(logs, OFFSETS, 0, 0, batch(0))
    run(logs)
    (row,) = run.quarantine() or [dict.fromkeys(QUARANTINE.column_names)]
    source = f"/former/{OFFSETS}-0/{1:020}.log"
    row |= {"cluster_id": "c", "topic": OFFSETS, "partition": 0, "stage": "FILE", "code": UNREADABLE_FILE}
    row |= {"source": source, "message": f"{source} cannot be read: Input/output error", "seen_at": START}
    others = [row | {"source": f"{source}.gz"}, row | {"source": f"/former/{OFFSETS}-0/{9:020}.log"}]
    given = pa.Table.from_pylist([row, *others], schema=arrow_schema(QUARANTINE))
    run.warehouse.write(QUARANTINE, given, app_id="former", version=0)
    copy = tmp_path / "copy"
    write_segment(copy, OFFSETS, 0, 1 + copied_from, b"".join(batch(offset) for offset in range(1 + copied_from, 5)))
    run(copy)
    resolved = {it["source"]: it["resolved_by"] for it in run.quarantine() if it["resolved_at"] is not None}
    assert resolved == ({source: "bronze has these offsets from a good copy"} if is_resolved else {})
