"""The night of the project's recording, and commands that ask about it."""

import io
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import app as cli
from tests.cases.harness import Ledger
from tests.jobs.cli.asking import Asks, Screen, Shown
from tests.made_once import MadeOnce
from tests.recorded import RECORDINGS


@pytest.fixture(scope="module")
def recorded_warehouse(made_once: MadeOnce) -> Path:
    """The night of the project's recording."""
    return made_once(
        "recorded-night",
        lambda root: Ledger(root / "warehouse", cluster_id="kafka").night(RECORDINGS / "full-a" / "logs"),
    )


@pytest.fixture(scope="module")
def ask(recorded_warehouse: Path) -> Iterator[Asks]:
    """Runs a command on it, for a terminal of a width or (None) for a pipe, once however often it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(recorded_warehouse)

        @cache
        def run(words: str, columns: int | None = None) -> Shown:
            kind: Any = io.StringIO if columns is None else Screen
            with pytest.MonkeyPatch.context() as own:
                own.setenv("COLUMNS", str(columns or 0))
                own.setattr("sys.stdout", out := kind())
                own.setattr("sys.stderr", err := kind())
                code = cli.main(shlex.split(words))
            return Shown(code, out.getvalue(), err.getvalue())

        yield run
