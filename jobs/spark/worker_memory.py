"""The memory of a worker process."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from jobs.spark.gc_freeze import is_loaded_for_good


class _Heap(ctypes.Structure):
    """struct mallinfo2: bytes and blocks of malloc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
_MALLINFO2: Final = getattr(ctypes.CDLL(None), "mallinfo2", None)
"""Functions of glibc (the latter since 2.33); other C libraries have none."""
if _MALLINFO2 is not None:
    _MALLINFO2.restype = _Heap

_KEPT_BYTES_MAX: Final = 64 << 20
"""Free memory that a process may keep for the next task of any kind: what a capture leaves suffices for a replay."""

_YOUNG_OBJECTS_MAX: Final = 200_000
"""The number of newly created objects, minus freed ones, at which Python searches for cycles: about 40 MiB. It
exceeds the number of group rows that a replay buffers (`tasks.BUFFERED_ROWS_MAX`), so that most objects are freed
before a search."""


def give_back() -> None:
    """Return freed memory to the system.

    The next allocations have other sizes, so otherwise both would be in memory at the same time.
    """
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


_made_room_for: Callable[..., object] | None = None
"""The function of the last task."""


def make_room_for(function: Callable[..., object]) -> None:
    """At the start of a task, return memory that a task of another kind left, if there is much: it has other sizes.

    Memory of a task of the same kind is reused, while the kernel would have to clear new memory.
    """
    global _made_room_for  # noqa: PLW0603
    if function is not _made_room_for:
        if free_bytes() > _KEPT_BYTES_MAX:
            give_back()
        _made_room_for = function


def free_bytes() -> int:
    """Freed memory that malloc keeps; where that is unknown, the maximum."""
    return sys.maxsize if _MALLINFO2 is None else int(_MALLINFO2().fordblks)


@contextmanager
def few_cycles() -> Iterator[None]:
    """Run garbage collection rarely: a task creates hundreds of thousands of rows and states, and hardly any cycles.

    With Python's own threshold (700) garbage collection takes a fifth of a replay. Objects that existed before
    (modules, compiled code) are frozen meanwhile, and permanently in forked workers, since scanning them would copy
    their memory. It is not disabled, so cycles in other code stay bounded.
    """
    young, middle, old = gc.get_threshold()
    is_loaded = is_loaded_for_good()
    if not is_loaded:
        gc.freeze()
    gc.set_threshold(max(young, _YOUNG_OBJECTS_MAX), middle, old)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        if not is_loaded:
            gc.unfreeze()
