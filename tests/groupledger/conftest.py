"""Recordings after a night, and their raw records."""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from tests.cases.harness import Ledger
from tests.groupledger.raw import raw_records, recording

Recorded = Callable[[str], tuple[Ledger, pa.Table]]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Gives the tables of a recording after a night, and its raw records."""

    def make(name: str) -> tuple[Ledger, pa.Table]:
        ledger = Ledger(tmp_path_factory.mktemp(name))
        ledger.night(recording(name))
        return ledger, raw_records(ledger.warehouse)

    return cache(make)
