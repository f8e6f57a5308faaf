"""Recordings after a night, and their raw records."""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from tests.cases.harness import Ledger
from tests.groupledger.raw import raw_records, recording
from tests.made_once import MadeOnce

Recorded = Callable[[str], tuple[Ledger, pa.Table]]


@pytest.fixture(scope="session")
def recorded(made_once: MadeOnce) -> Recorded:
    """Gives the tables of a recording after a night, and its raw records: to be read, and never changed."""

    def make(name: str) -> tuple[Ledger, pa.Table]:
        root = made_once(f"ledger-{name}", lambda root: Ledger(root).night(recording(name)))
        ledger = Ledger(root)
        return ledger, raw_records(ledger.warehouse)

    return cache(make)
