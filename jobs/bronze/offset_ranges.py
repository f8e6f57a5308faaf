"""Look-ups in offset ranges, for all batches of a read at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.log.chunk import BatchColumns
from coordinator_core.bytes.log_partitions import OffsetRange


class OffsetRanges:
    """Ascending, disjoint offset ranges, prepared for many look-ups."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._firsts = np.array([first for first, _ in ranges], np.int64)
        self._lasts = np.array([last for _, last in ranges], np.int64)

    def last_from(self, first: int) -> int:
        """The last offset of the range that contains `first`; less than `first` where none does."""
        index = int(np.searchsorted(self._firsts, first, side="right")) - 1
        return int(self._lasts[index]) if index >= 0 else -1

    def compared(self, batches: BatchColumns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(is within one range, overlaps with ranges but is not within one), one bool a batch."""
        if not len(self._firsts):
            nothing = np.zeros(len(batches), np.bool_)
            return nothing, nothing.copy()
        nearest = np.searchsorted(self._firsts, batches.last_offset, side="right") - 1
        overlaps = (nearest >= 0) & (self._lasts[nearest] >= batches.base_offset)
        within = (
            overlaps & (self._firsts[nearest] <= batches.base_offset) & (self._lasts[nearest] >= batches.last_offset)
        )
        return within, overlaps & ~within
