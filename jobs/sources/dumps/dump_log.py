"""A log partition of a dump, unpacked: where its pieces are and what they hold."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from jobs.sources.dumps.rows import BadRow
from jobs.sources.dumps.staging import Run

ROWS: Final = "rows"
BATCHES: Final = "batches"
FORMATTED: Final = "formatted"
BATCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("batch", pa.binary()),
    ]
)
"""Batches rebuilt from the output of kafka-dump-log."""


@dataclass(frozen=True, slots=True)
class DumpLog:
    """One log partition of one dump, unpacked. `read_dump_log` gives its batches."""

    topic: str
    partition: int
    uri: str
    """Of the whole dump: the source of the batches."""
    kind: str
    """ROWS, BATCHES or FORMATTED."""
    runs: tuple[Run, ...]
    unreported: tuple[tuple[int, int], ...] = ()
    """Offsets whose records the dump has, and does not tell: ascending, disjoint, both ends inclusive."""
    log_start_offset: None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of its rows."""
        return sum(run.size_bytes for run in self.runs)

    @property
    def is_rows(self) -> bool:
        """Is it of rows of keys and values, without headers of batches?"""
        return self.kind == ROWS

    @property
    def has_offsets(self) -> bool:
        """Are its offsets the log's? False: numbers of lines, which fit no other source."""
        return self.kind != FORMATTED


@dataclass(frozen=True, slots=True)
class DumpFault:
    """Something of a dump that is in no log: a row of bronze.quarantine, stage FILE."""

    source: str
    row: BadRow
