"""The night of the project's recording, and commands that ask about it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cases.harness import Ledger
from tests.jobs.cli.asking import Asks, answered
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
    """Runs a command on it, once however often it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(recorded_warehouse)
        yield cache(answered)
