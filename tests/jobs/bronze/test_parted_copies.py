"""What is said of copies that part ways: one row for each tail, taken back where the log has the tail."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, Origin, with_checkpoint_epochs
from jobs.bronze.batches import BronzeBatches
from jobs.bronze.parted_copies import PartedCopies
from jobs.bronze.quarantine_rows import QuarantineRows
from jobs.bronze.writer import CaptureRun
from jobs.sources.segments import Segment, SegmentRead, read_segment

OLD, NEW = 0, 1
PARTED_AT = 2
LINEAGE = Lineage().with_checkpoint([(OLD, 0), (NEW, PARTED_AT)])


def batch(offset: int, leader_epoch: int, value: bytes = b"v") -> bytes:
    """A batch of one record."""
    return build_batch([Record(offset, 1_000, b"k", value)], leader_epoch=leader_epoch)


class InMemory(BronzeBatches):
    """Bronze with batches that no file has."""

    def __init__(self, contents: Mapping[int, bytes], leader_epoch: int = NEW) -> None:
        super().__init__([])
        offsets = np.array(sorted(contents), np.int64)
        epochs, ones = np.full(len(offsets), leader_epoch, np.int64), np.ones(len(offsets), np.int64)
        self.rows = BatchRows(offsets, offsets, epochs, ones, ones * int(Origin.LOG), ones > 0, -ones)
        self._contents = contents

    def content(self, row: int) -> bytes:
        """The bytes of a batch."""
        return self._contents[int(self.rows.base_offset[row])]

    def without_fills(self, row: int) -> tuple[bytes, bool]:
        """Nothing was put into them."""
        return self.content(row), False

    def source(self, row: int) -> str:
        """All of them have one source."""
        return "bronze's"


def parted(there: BronzeBatches) -> tuple[PartedCopies, list[dict[str, Any]]]:
    """What is to be tested, and the rows of quarantine that it adds."""
    rows: list[dict[str, Any]] = []
    run = CaptureRun("c", "r", datetime(2026, 1, 1, tzinfo=UTC))
    return PartedCopies(there, QuarantineRows(rows, run, "t", 0)), rows


def replica(folder: Path, *batches: bytes) -> tuple[SegmentRead, BatchRows]:
    """The batches of a replica that comes; a checkpoint says that those without an epoch are the old leader's."""
    path = folder / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    read = read_segment(Segment(str(path), path.name, 0, path.stat().st_size, is_last=True))
    return read, BatchRows.of(with_checkpoint_epochs(read.scan.batches, [(OLD, 0)]), Origin.LOG)


def test_a_tail_is_one_row(tmp_path: Path) -> None:
    """Its first batch is kept with its bytes, and who has the newer epoch is named."""
    read, come = replica(tmp_path, *(batch(offset, OLD) for offset in range(4)))
    for there, source in ((InMemory({PARTED_AT: b""}), "bronze's"), (InMemory({}), "another source")):
        copies, rows = parted(there)
        copies.note_tails(read, come, LINEAGE.is_cut(come), LINEAGE)
        (row,) = rows
        assert (row["base_offset"], row["bytes"]) == (PARTED_AT, read.content(PARTED_AT))
        assert row["message"].endswith(f"leader epoch {NEW} begins at offset {PARTED_AT} in {source}")
        assert not copies.has_doubtful_tails


def test_a_tail_that_the_log_has_is_taken_back(tmp_path: Path) -> None:
    """No epoch is written in it: where bronze has the same batch from another replica, there is no tail."""
    read, come = replica(tmp_path, *(batch(offset, UNKNOWN_EPOCH) for offset in range(4)))
    other = batch(PARTED_AT, UNKNOWN_EPOCH, b"another")
    for content, count in ((read.content(PARTED_AT), 0), (other, 1)):
        copies, rows = parted(InMemory({PARTED_AT: content}))
        copies.note_tails(read, come, LINEAGE.is_cut(come), LINEAGE)
        assert (len(rows), copies.has_doubtful_tails) == (1, True)
        copies.take_back_tails_of_the_log()
        assert len(rows) == count


def test_a_tail_of_bronze_is_taken_out() -> None:
    """A newer epoch that a source shows cuts it away: its first offset is given, and the source named."""
    there = InMemory({offset: batch(offset, OLD) for offset in range(4)}, OLD)
    copies, rows = parted(there)
    assert copies.cut_away(LINEAGE, "the new leader's") == [PARTED_AT]
    assert there.rows.base_offset.tolist() == [0, 1]
    (row,) = rows
    assert row["source"] == "bronze's" and row["message"].endswith("in the new leader's")


def test_batches_that_follow_each_other_part_once(tmp_path: Path) -> None:
    """Two others of the same offsets are one row where no epoch says why; the one that counts is named."""
    read, come = replica(tmp_path, *(batch(offset, UNKNOWN_EPOCH, b"come") for offset in range(4)))
    for is_taken, lost in ((True, "bronze's"), (False, read.segment.path)):
        copies, rows = parted(InMemory({offset: batch(offset, OLD) for offset in range(4)}, OLD))
        copies.note_parts(read, come, [(0, 0, is_taken), (1, 1, is_taken), (3, 3, is_taken)])
        assert [(row["base_offset"], row["source"]) for row in rows] == [(0, lost), (3, lost)]
