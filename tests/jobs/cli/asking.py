"""What a command shows, to a terminal or a pipe."""

import io
from collections.abc import Callable
from typing import NamedTuple


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Asks = Callable[..., Shown]
