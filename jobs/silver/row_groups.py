"""Row groups of silver files: their statistics, and a cache of those that several log partitions share."""

from collections.abc import Hashable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.inference.facts.ordering import is_ascending
from jobs.delta.part_files import LOG_PARTITION, TO_LOG_OFFSET
from jobs.delta.scanner import Bounds, Scanner
from jobs.delta.table_files import TableFile

LOG_OFFSET: Final = "log_offset"
NO_LOG_PARTITION: Final = (0, -1)
"""Bounds of row groups without rows."""
END_OF_LOG: Final = 2**63 - 1
"""Greater than every log offset."""


class Footer(NamedTuple):
    """The footer of a file, read once."""

    metadata: Any
    row_counts: tuple[int, ...]
    """Number of rows of each row group."""
    bounds: tuple[Bounds, ...]
    """Least and greatest log partition of each row group; None where there are no statistics."""
    log_offsets: tuple[Bounds, ...]
    """Least and greatest log offset of each row group; None where there are no statistics."""
    ends: tuple[Bounds, ...]
    """Least and greatest end (log offset) of rows in each row group; None also where some rows are open."""

    @classmethod
    def of(cls, scanner: Scanner) -> "Footer":
        """Read a footer. Row groups without rows get the bounds NO_LOG_PARTITION."""
        counts = scanner.row_counts
        found = zip(counts, scanner.bounds(LOG_PARTITION), strict=True)
        bounds = tuple(known if count else NO_LOG_PARTITION for count, known in found)
        return cls(
            scanner.metadata, counts, bounds, tuple(scanner.bounds(LOG_OFFSET)), tuple(scanner.bounds(TO_LOG_OFFSET))
        )

    def wanted(self, log_partition: int, from_log_offset: int, to_log_offset: int, ended_after: int = -1) -> list[int]:
        """The row groups that may have rows of a log partition with `log_offset` within bounds, and that ended after
        `ended_after`.
        """
        return [
            index
            for index, (bounds, offsets, ends) in enumerate(zip(self.bounds, self.log_offsets, self.ends, strict=True))
            if (bounds is None or bounds[0] <= log_partition <= bounds[1])
            and (offsets is None or (offsets[1] >= from_log_offset and offsets[0] < to_log_offset))
            and (ends is None or ends[1] > ended_after)
        ]


class OpenFile(Scanner):
    """A silver file whose footer was read before."""

    def __init__(self, file: TableFile, footer: Footer, coded: tuple[str, ...]) -> None:
        super().__init__(file.path, coded, metadata=footer.metadata)
        self.footer = footer


SharedPlace = tuple[str, int, tuple[str, ...], tuple[str, ...]]
"""Path of a file, index of a row group, columns, and which of the columns are coded."""


def shared_place(source: OpenFile, index: int, schema: pa.Schema) -> SharedPlace:
    return source.path, index, tuple(schema.names), source.coded


class LogPartitions:
    """The log partition of each row in a row group: rows of one log partition are mostly contiguous."""

    def __init__(self, log_partition: I64) -> None:
        self._log_partition = log_partition
        self._is_sorted = is_ascending(log_partition)

    def rows_of(self, log_partition: int) -> slice | BoolArray:
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
        own = self._log_partitions.rows_of(log_partition)
        if isinstance(own, slice):
            return self.rows.slice(own.start, own.stop - own.start)
        return self.rows.filter(pa.array(own))


class _Sized(Protocol):
    size_bytes: int


Kept = TypeVar("Kept", bound=_Sized)


class Newest(Generic[Kept]):
    """LRU cache, by size in bytes, of data that several log partitions share."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._found: dict[Hashable, Kept] = {}
        self._size_bytes = 0

    def get(self, place: Hashable) -> Kept | None:
        """A cached item, which becomes the most recently used; None if it is not cached."""
        found = self._found.pop(place, None)
        if found is not None:
            self._found[place] = found
        return found

    def put(self, place: Hashable, one: Kept) -> None:
        """Cache an item and evict the least recently used ones; a large item is not cached."""
        if one.size_bytes > self._bytes_max // 4:
            return
        self._found[place] = one
        self._size_bytes += one.size_bytes
        while self._size_bytes > self._bytes_max:
            oldest = next(iter(self._found))
            self._size_bytes -= self._found.pop(oldest).size_bytes
