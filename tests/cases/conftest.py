"""A fresh ledger for each case."""

from pathlib import Path

import pytest

from tests.cases.harness import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty warehouse."""
    return Ledger(tmp_path / "warehouse")
