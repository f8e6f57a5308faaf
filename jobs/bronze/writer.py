"""Part files of bronze.record_batches. Batches share a file only if its offset range then says what is captured."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.bytes.log_partitions import OffsetRange
from jobs.bronze.coverage import COMPACTED_TOPICS
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, arrow_schema
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile
from jobs.delta.table_files import TableFile
from jobs.sources.segments import LogPlace, SegmentRead, to_record_batches
from schemas.tables.bronze import RECORD_BATCHES

BATCHES: Final = "batches"
DAMAGED: Final = "damaged"
"""Name of the part file of a batch with a wrong CRC; each has a file of its own."""

FILLED_TYPE: Final = arrow_schema(RECORD_BATCHES).field("filled_offsets").type


def offsets_of(file: TableFile) -> OffsetRange:
    """The first and last offset of a file."""
    return file.minimum["base_offset"], file.maximum["last_offset"]


def is_damaged(file: TableFile) -> bool:
    """Is it the file of a damaged batch? The offsets in its header cannot be trusted."""
    return file.path.rpartition("/")[2].startswith(DAMAGED)


@dataclass(frozen=True, slots=True)
class CaptureRun:
    """Values that every row of a capture has."""

    cluster_id: str
    capture_id: str
    captured_at: datetime


class LogWriter:
    """Writes the chosen batches of one log partition. A file ends where another source could have offsets in a gap."""

    def __init__(self, target: PartTarget, log: LogPlace, run: CaptureRun) -> None:
        self._target = target
        self._log = log
        self._run = run
        self._values = {"cluster_id": run.cluster_id, "topic": log.topic, "partition": log.partition}
        self.files: list[WrittenFile] = []
        self.damaged_files: dict[int, tuple[int, WrittenFile]] = {}
        """Files of damaged batches, by base offset, with the last offset that the header claims."""
        self._writer: PartWriter | None = None
        self._next_offset = -1
        self._first_offset = -1
        self._may_continue = False
        self.ranges: list[OffsetRange] = []
        """Offsets of the files written, without damaged batches."""
        self.damaged: set[int] = set()
        """Base offsets of the damaged batches written."""

    def write(self, read: SegmentRead, chosen: NDArray[np.bool_]) -> None:
        valid = read.scan.crc_valid
        for rows, is_new_file in self._file_parts(read, chosen & valid):
            if is_new_file:
                self.close()
            self._write_rows(read, rows)
        for row in np.flatnonzero(chosen & ~valid).tolist():
            only = np.zeros(len(chosen), np.bool_)
            only[row] = True
            base_offset, last_offset = int(read.scan.batches.base_offset[row]), int(read.scan.batches.last_offset[row])
            self.damaged.add(base_offset)
            with PartWriter(self._target, DAMAGED, self._values) as writer:
                for batch in to_record_batches(read, self._log, only):
                    writer.write(self._with_run(batch))
                self.damaged_files[base_offset] = last_offset, writer.close()
        skips_end = max((end for _, end in read.scan.skipped), default=-1)
        if len(chosen):
            self._may_continue = bool((chosen & valid)[-1]) and skips_end < read.scan.end_position
        else:
            self._may_continue = self._may_continue and skips_end < 0

    def close(self) -> None:
        if self._writer is not None:
            self.files.append(self._writer.close())
            self._writer = None
            self.ranges.append((self._first_offset, self._next_offset - 1))

    def _file_parts(self, read: SegmentRead, chosen: NDArray[np.bool_]) -> Iterable[tuple[NDArray[np.bool_], bool]]:
        """The chosen rows in parts, each with whether it begins a new file."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        batches = read.scan.batches
        base_offset = batches.base_offset[rows]
        expected = np.empty(len(rows), np.int64)
        expected[0] = self._next_offset
        expected[1:] = batches.last_offset[rows[:-1]] + 1
        is_gap = base_offset != expected
        if self._log.topic in COMPACTED_TOPICS:
            # compaction explains a gap between two adjacent batches, but not one where batches or bytes were left out
            neighbours = np.empty(len(rows), np.bool_)
            neighbours[0] = rows[0] == 0 and self._may_continue
            neighbours[1:] = rows[1:] == rows[:-1] + 1
            starts = batches.position[rows]
            after_skip = np.isin(starts, [end for _, end in read.scan.skipped])
            is_gap &= ~neighbours | after_skip
        cuts = np.flatnonzero(is_gap[1:]) + 1
        for part_index, part in enumerate(np.split(rows, cuts)):
            mask = np.zeros(len(chosen), np.bool_)
            mask[part] = True
            yield mask, part_index > 0 or bool(is_gap[0])

    def _write_rows(self, read: SegmentRead, rows: NDArray[np.bool_]) -> None:
        if self._writer is None:
            self._writer = PartWriter(self._target, BATCHES, self._values)
            self._first_offset = int(read.scan.batches.base_offset[rows][0])
        for batch in to_record_batches(read, self._log, rows):
            self._writer.write(self._with_run(batch))
        self._next_offset = int(read.scan.batches.last_offset[rows][-1]) + 1

    def _with_run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        of_run = {
            "captured_at": pa.scalar(self._run.captured_at, TIMESTAMP_TYPE),
            "capture_id": pa.scalar(self._run.capture_id),
            "redacted_at": pa.scalar(None, TIMESTAMP_TYPE),
            "filled_offsets": pa.scalar(None, FILLED_TYPE),
        }
        for name, value in of_run.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch
