"""export-segments: bronze -> .log files that Kafka's own tools read.

Batches of one log partition in offset order, back to back. Where bronze knows the segment file of a batch, the export
uses the name and bounds of that file again. So an export equals the captured input byte for byte, except for torn
tails, preallocated zeros and bytes that were no batch: these are not in bronze.record_batches.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.segment import parse_partition_folder
from jobs.bronze.reader import rows_in_order
from jobs.console.names import or_some
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, ExportError, writing
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.tables.bronze import RECORD_BATCHES

SEGMENT_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Kafka's default log.segment.bytes: the maximum size of an exported file whose batches come from no segment file."""

COLUMNS: Final = ("base_offset", "last_offset", "source", "batch")
OFFSET_DIGITS: Final = 20

SEGMENT_NAME: Final = re.compile(r"([0-9]{20})\.log(\.swap)?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportWork:
    """One log partition."""

    topic: str
    partition: int
    files: tuple[TableFile, ...]
    folder: str

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written of one log partition."""

    topic: str
    partition: int
    segment_count: int
    batch_count: int
    size_bytes: int


def export_segments(
    executor: Executor, warehouse: Warehouse, *, cluster_id: str, output: str, topics: Sequence[str] | None = None
) -> list[Exported]:
    """Write `<output>/<topic>-<partition>/<20-digit base offset>.log`. `output` is a local folder, new or empty.

    Raises ExportError if the folder is not empty, if there is nothing to export, or for an unknown topic.
    """
    root = Path(output)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ExportError(
            f"{output} is not an empty folder, and an export never mixes with other files: name a new one"
        )
    by_partition: dict[tuple[str, int], list[TableFile]] = {}
    known = set()
    for file in warehouse.files(RECORD_BATCHES):
        values = file.partition_values
        if values["cluster_id"] == cluster_id:
            known.add(values["topic"])
            if topics is None or values["topic"] in topics:
                by_partition.setdefault((values["topic"], values["partition"]), []).append(file)
    for topic in known and set(topics or ()) - known:
        raise ArgumentError(f"there is no topic {or_some(topic, known)} in bronze of cluster {cluster_id!r}")
    if not by_partition:
        raise ExportError(f"{warehouse.path(RECORD_BATCHES)} has nothing of cluster {cluster_id} to export")
    for topic, _ in by_partition:
        if parse_partition_folder(f"{topic}-0") is None:
            raise ExportError(f"{topic[:100]!r} is not the name of a topic: no folder can be named after it")
    work = [
        ExportWork(topic, partition, tuple(files), str(root.resolve() / f"{topic}-{partition}"))
        for (topic, partition), files in sorted(by_partition.items())
    ]
    return run_tasks(executor, export_log, work, "writing segments")


def export_log(work: ExportWork) -> Exported:
    """Write the segments of one log partition, a few row groups at a time. A repetition writes the same files."""
    with writing("segments", work.folder):
        return _export_log(work)


def _export_log(work: ExportWork) -> Exported:
    writer = _SegmentWriter(Path(work.folder))
    batch_count = 0
    try:
        for rows in rows_in_order(work.files, COLUMNS):
            batch_count += rows.num_rows
            sources = pc.dictionary_encode(rows["source"].combine_chunks())
            names = [_segment_name(source) for source in sources.dictionary.to_pylist()]
            codes = sources.indices.to_numpy()
            breaks = np.flatnonzero(codes[1:] != codes[:-1]) + 1
            base_offsets = rows["base_offset"].to_numpy()
            last_offsets = rows["last_offset"].to_numpy()
            for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), rows.num_rows], strict=True):
                writer.write(
                    _bytes_of(rows["batch"].slice(first, last - first)),
                    name=names[codes[first]],
                    base_offset=int(base_offsets[first]),
                    last_offset=int(last_offsets[last - 1]),
                )
    finally:
        writer.close()
    return Exported(work.topic, work.partition, writer.segment_count, batch_count, writer.size_bytes)


class _SegmentWriter:
    """Writes runs of batches of one log partition, each into the segment that it came from or into the next free
    one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._sink: BinaryIO | None = None
        self._name: str | None = None
        self._segment_bytes = 0
        self._last_offset = -1
        self.segment_count = 0
        self.size_bytes = 0

    def write(self, data: bytes, *, name: str | None, base_offset: int, last_offset: int) -> None:
        """Append a run. `name`: the segment file that it came from, or None."""
        is_full = name is None and self._segment_bytes + len(data) > SEGMENT_BYTES_MAX
        if self._sink is None or is_full or (name is not None and name != self._name):
            self.close()
            # the name of a source's segment can be used if its offset is above everything written so far
            is_free = name is not None and self._last_offset < int(name[:OFFSET_DIGITS]) <= base_offset
            self._name = name
            self._sink = (self._folder / (name if name and is_free else f"{base_offset:020d}.log")).open("wb")
            self._segment_bytes = 0
            self.segment_count += 1
        self._sink.write(data)
        self._segment_bytes += len(data)
        self.size_bytes += len(data)
        self._last_offset = max(self._last_offset, last_offset)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None


def _segment_name(source: str | None) -> str | None:
    match = SEGMENT_NAME.search(source or "")
    return f"{match[1]}.log" if match else None


def _bytes_of(batches: pa.ChunkedArray) -> bytes:
    """The bytes of a binary column back to back."""
    parts = []
    for chunk in batches.chunks:
        _, positions, data = chunk.buffers()
        ends = np.frombuffer(positions, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        parts.append(data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes())
    return b"".join(parts)
