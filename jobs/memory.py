"""The memory of a worker process."""

import ctypes
from typing import Final

import pyarrow as pa

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Of the GNU C library; others have none."""


def give_back() -> None:
    """Give the system the memory that was freed and kept for what comes next: that is of other sizes, and both would be
    held at a time."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
