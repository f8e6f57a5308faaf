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
    """struct mallinfo2: bytes and blocks that malloc has."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
_MALLINFO2: Final = getattr(ctypes.CDLL(None), "mallinfo2", None)
"""Of the GNU C library (the latter since 2.33); others have none."""
if _MALLINFO2 is not None:
    _MALLINFO2.restype = _Heap

_KEPT_BYTES_MAX: Final = 64 << 20
"""Free memory that the next task may begin with, whatever it does: what a capture leaves serves a replay."""

_YOUNG_OBJECTS_MAX: Final = 200_000
"""How many more objects a task makes than it drops before Python looks for cycles among them: 40 MiB or so. It is more
than the rows of groups that a replay holds until it writes them (`replay_tasks.BUFFERED_ROWS_MAX`), so that most are
gone before anyone looks at them."""


def give_back() -> None:
    """Give the system the memory that was freed and kept for what comes next: that is of other sizes, and both would be
    in memory at a time."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


_made_room_for: Callable[..., object] | None = None
"""What the task before this one did."""


def make_room_for(function: Callable[..., object]) -> None:
    """At the start of a task, give back what one of another kind left, where that is much: it is of other sizes. What
    one of the same kind left is of use again, while new memory would have to be cleared by the kernel."""
    global _made_room_for  # noqa: PLW0603
    if function is not _made_room_for:
        if free_bytes() > _KEPT_BYTES_MAX:
            give_back()
        _made_room_for = function


def free_bytes() -> int:
    """What was freed and is kept for what comes next; where that is unknown, as much as can be."""
    return sys.maxsize if _MALLINFO2 is None else int(_MALLINFO2().fordblks)


@contextmanager
def few_cycles() -> Iterator[None]:
    """Look for cycles seldom: a task makes rows and states by the hundred thousand, and hardly a cycle among them.

    With Python's own threshold (700) a fifth of the time of a replay goes into looking. What was there before (modules,
    compiled code) is passed over meanwhile, and for good in workers that are forked from where it is: to look at it is
    to copy the memory of it. Seldom, not never: cycles that others make stay bounded.
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
