"""What a process loads as it starts stays until its end: Python need not look for garbage in it, then or later."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_is_loaded = False


@contextmanager
def loaded_for_good() -> Iterator[None]:
    """Load without looking for cycles, which takes a fifth of the time, and never look at what was loaded."""
    global _is_loaded  # noqa: PLW0603
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        _is_loaded = True


def is_loaded_for_good() -> bool:
    """Did this process load so, or the one that it was forked from?

    gc.get_freeze_count would know it as well, and walks over all that was loaded to tell: twenty milliseconds.
    """
    return _is_loaded
