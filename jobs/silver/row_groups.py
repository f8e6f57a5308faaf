"""Row groups of silver files: what their footers tell, and a cache of those that several log partitions share."""

from collections.abc import Hashable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.inference.ordering import is_ascending
from coordinator_core.log.chunk import I64, BoolArray
from jobs.delta.part_files import LOG_PARTITION, TO_LOG_OFFSET
from jobs.delta.scanner import Bounds, Scanner
from jobs.delta.table_files import TableFile

LOG_OFFSET: Final = "log_offset"
NO_LOG_PARTITION: Final = (0, -1)
"""Bounds of row groups without rows."""
END_OF_LOG: Final = 2**63 - 1
"""Behind every log offset."""


class Footer(NamedTuple):
    """What the end of a file tells, read once."""

    metadata: Any
    """Of Parquet."""
    row_counts: tuple[int, ...]
    """Of each row group."""
    bounds: tuple[Bounds, ...]
    """Lowest and highest log partition of each row group; None where the file does not say."""
    log_offsets: tuple[Bounds, ...]
    """Lowest and highest log offset of each row group; None where the file does not say."""
    ends: tuple[Bounds, ...]
    """The same of where rows ended; None, too, where some are open."""

    @classmethod
    def of(cls, scanner: Scanner) -> "Footer":
        """What the footer of a file tells. Row groups without rows hold no log partition."""
        counts = scanner.row_counts
        found = zip(counts, scanner.bounds(LOG_PARTITION), strict=True)
        bounds = tuple(known if count else NO_LOG_PARTITION for count, known in found)
        return cls(
            scanner.metadata, counts, bounds, tuple(scanner.bounds(LOG_OFFSET)), tuple(scanner.bounds(TO_LOG_OFFSET))
        )

    def wanted(self, log_partition: int, from_log_offset: int, to_log_offset: int, ended_after: int = -1) -> list[int]:
        """The row groups that may hold rows of a log partition whose `log_offset` is within bounds, and that did not
        end until a place in the log."""
        return [
            index
            for index, (bounds, offsets, ends) in enumerate(zip(self.bounds, self.log_offsets, self.ends, strict=True))
            if (bounds is None or bounds[0] <= log_partition <= bounds[1])
            and (offsets is None or (offsets[1] >= from_log_offset and offsets[0] < to_log_offset))
            and (ends is None or ends[1] > ended_after)
        ]


class OpenFile(Scanner):
    """A file of silver, whose footer was read before."""

    def __init__(self, file: TableFile, footer: Footer, coded: tuple[str, ...]) -> None:
        super().__init__(file.path, coded, metadata=footer.metadata)
        self.footer = footer


SharedPlace = tuple[str, int, tuple[str, ...], tuple[str, ...]]
"""Path of a file, number of a row group, columns, those of them that are coded."""


def shared_place(source: OpenFile, index: int, schema: pa.Schema) -> SharedPlace:
    return source.path, index, tuple(schema.names), source.coded


class LogPartitions:
    """Of which log partition each row of a row group is: those of one are mostly neighbours."""

    def __init__(self, log_partition: I64) -> None:
        self._log_partition = log_partition
        self._is_sorted = is_ascending(log_partition)

    def rows_of(self, log_partition: int) -> slice | BoolArray:
        """Which rows are of one log partition."""
        if not self._is_sorted:
            is_own: BoolArray = self._log_partition == log_partition
            return is_own
        return slice(*np.searchsorted(self._log_partition, (log_partition, log_partition + 1)).tolist())


class SharedRows:
    """A row group of several log partitions."""

    def __init__(self, rows: pa.Table, log_partition: I64) -> None:
        self.rows = rows
        self._log_partitions = LogPartitions(log_partition)
        self.size_bytes: int = rows.nbytes

    def of(self, log_partition: int) -> pa.Table:
        """The rows of one log partition."""
        own = self._log_partitions.rows_of(log_partition)
        if isinstance(own, slice):
            return self.rows.slice(own.start, own.stop - own.start)
        return self.rows.filter(pa.array(own))


class _Sized(Protocol):
    size_bytes: int


Kept = TypeVar("Kept", bound=_Sized)


class Newest(Generic[Kept]):
    """What was read for one log partition and tells of others, too: the newest, of so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._found: dict[Hashable, Kept] = {}
        self._size_bytes = 0

    def get(self, place: Hashable) -> Kept | None:
        """One that is kept, if it is; it is the newest then."""
        found = self._found.pop(place, None)
        if found is not None:
            self._found[place] = found
        return found

    def put(self, place: Hashable, one: Kept) -> None:
        """Keep one, and let go of the oldest for it; a large one is not kept."""
        if one.size_bytes > self._bytes_max // 4:
            return
        self._found[place] = one
        self._size_bytes += one.size_bytes
        while self._size_bytes > self._bytes_max:
            oldest = next(iter(self._found))
            self._size_bytes -= self._found.pop(oldest).size_bytes
