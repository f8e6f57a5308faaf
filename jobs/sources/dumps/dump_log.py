"""An unpacked log partition of a dump: where its sorted pieces are and what they contain."""

from dataclasses import dataclass
from typing import Final

from jobs.sources.dumps.rows import BadRow
from jobs.sources.dumps.staging import Run

ROWS: Final = "rows"
BATCHES: Final = "batches"
FORMATTED: Final = "formatted"


@dataclass(frozen=True, slots=True)
class DumpLog:
    """One unpacked log partition of one dump. `read_dump_log` yields its batches."""

    topic: str
    partition: int
    uri: str
    """URI of the whole dump: the source of the batches."""
    kind: str
    """ROWS, BATCHES or FORMATTED."""
    runs: tuple[Run, ...]
    unreported: tuple[tuple[int, int], ...] = ()
    """Offsets whose records the dump has but does not print: ascending, disjoint, both ends inclusive."""
    log_start_offset: None = None

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)

    @property
    def first_offset(self) -> int:
        """Of its records; 0 where it has none."""
        return min((run.first_offset for run in self.runs), default=0)

    @property
    def is_rows(self) -> bool:
        """Does it consist of keys and values, without batch headers?"""
        return self.kind == ROWS

    @property
    def has_offsets(self) -> bool:
        """Are its offsets those of the log? False: line numbers, which match no other source."""
        return self.kind != FORMATTED


@dataclass(frozen=True, slots=True)
class DumpFault:
    """A part of a dump that belongs to no log: a row of bronze.quarantine, stage FILE."""

    source: str
    row: BadRow
