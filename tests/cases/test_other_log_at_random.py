"""A recreated topic among random copies of a log: refused whatever the order, and nothing is written."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.bronze.capture import capture
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.settings import load_settings
from schemas.tables import TABLES
from tests.cases.test_copies_at_random import (
    NIGHT,
    Copy,
    Written,
    batches_from,
    copies_of_a_log,
    in_nights,
    sources_of,
)
from tests.jobs.in_process import in_process

DAY_MS = 86_400_000


def another_log(random: Random) -> tuple[Written, ...]:
    """Offsets and epochs begin again, a day later."""
    batches: Sequence[Written] = list(batches_from(random, 0, random.randint(2, 12), 0))
    return tuple(
        replace(it, records=tuple(replace(record, timestamp_ms=record.timestamp_ms + DAY_MS) for record in it.records))
        for it in batches
    )


def rows(warehouse: Warehouse) -> list[dict[str, Any]]:
    """All that a capture wrote."""
    names = ("bronze.record_batches", "bronze.coverage", "bronze.quarantine", "state.offset_ranges")
    return [row for name in names for row in warehouse.read(TABLES[name]).to_pylist()]


@pytest.mark.parametrize("seed", range(4))
def test_a_recreated_topic_is_refused_in_any_order(tmp_path: Path, seed: int) -> None:
    """Before, between, behind and together with copies of the log that bronze has, which stays as it was."""
    session = in_process()
    random = Random(f"another log {seed}")
    # a copy that was cleaned may share no offset with another log: then nothing proves it
    copies = [
        it
        for it in copies_of_a_log(random)
        if not it.is_dump and it.batches[0].offsets[:1] == (0,) and it.batches[0].epoch == 0
    ] or [Copy(tuple(batches_from(random, 0, 4, 0)))]
    sources = [copy.write(tmp_path / f"copy-{index}") for index, copy in enumerate(copies)]
    other = Copy(another_log(random)).write(tmp_path / "other")

    def night(warehouse: Warehouse, number: int, *values: dict[str, tuple[str, ...]]) -> None:
        together = sources_of(range(len(values)), values)
        settings = load_settings({"cluster_id": "c", "warehouse": warehouse.root, **together}, environment={})
        at = NIGHT + timedelta(days=number)
        capture(session, warehouse, settings, capture_id=f"night-{number}", captured_at=at)

    warehouse = Warehouse(str(tmp_path / "log-first"))
    for number, indices in enumerate(in_nights(random, range(len(copies)), is_one_run=False)):
        night(warehouse, number, *(sources[index] for index in indices))
        before = rows(warehouse)
        for found in ((other,), (sources[0], other), (other, sources[0])):
            with pytest.raises(SourceError, match="is another log than"):
                night(warehouse, 100, *found)
        assert rows(warehouse) == before
    warehouse = Warehouse(str(tmp_path / "other-first"))
    night(warehouse, 0, other)
    before = rows(warehouse)
    for source in sources:
        with pytest.raises(SourceError, match="is another log than"):
            night(warehouse, 1, source)
    assert rows(warehouse) == before
