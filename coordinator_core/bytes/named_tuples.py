"""Named tuples that are created at low cost."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Row = TypeVar("Row", bound=tuple[Any, ...])


def maker_of(kind: type[Row]) -> Callable[[tuple[Any, ...]], Row]:
    """A function that makes a named tuple from a tuple: like `kind._make`, without a Python function call."""
    return partial(tuple.__new__, kind)
