"""What a command shows, to a terminal or a pipe."""

import io
import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from jobs.cli import app as cli

WIDTHS: Final = (100, 120, 160)
"""Of terminals, in columns."""


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Asks = Callable[..., Shown]


def answered(words: str, columns: int | None = None) -> Shown:
    """Runs a command on the warehouse in this folder, for a terminal of a width or (None) for a pipe."""
    kind: Any = io.StringIO if columns is None else Screen
    with pytest.MonkeyPatch.context() as own:
        own.setenv("COLUMNS", str(columns or 0))
        own.setattr("sys.stdout", out := kind())
        own.setattr("sys.stderr", err := kind())
        code = cli.main(shlex.split(words))
    return Shown(code, out.getvalue(), err.getvalue())


def wider_than(columns: int, shown: Shown) -> list[str]:
    """Lines that a terminal has to break, but for commands to copy."""
    lines = f"{shown.out}{shown.err}".splitlines()
    return [line for line in lines if len(line) > columns and "./spark-submit.sh" not in line]
