"""A fresh ledger for each case."""

from pathlib import Path

import pytest

from tests.cases.harness import Ledger
from tests.cases.judged import Judged


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty warehouse."""
    return Ledger(tmp_path / "warehouse")


@pytest.fixture
def judged() -> Judged:
    """A log of which nothing is captured yet."""
    return Judged()
