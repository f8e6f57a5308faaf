"""A table of gold with rows of groups is one entry: docs/internals/extending.md."""

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_core.inference.audit.groups import GroupGold
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.rows import OwnerRow
from jobs.delta import other_writers, part_files
from jobs.gold import audit, audit_groups, former_rows, group_tables
from jobs.gold.group_tables import EVERY_PLACE, GROUP_TABLES, equal_until
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    COMMIT_ANOMALIES,
    GOLD_TABLES,
    LOG_ANOMALIES,
    PARTITION_OWNERS,
    REBALANCES,
    REDELIVERIES,
    SHARE_OFFSET_CHANGES,
)
from tests.cases.harness import CASES, Ledger
from tests.jobs.slices import slices_of

LOGS = CASES / "kafka-4.4" / "logs"
OWNER = OwnerRow("g", "CLASSIC", "t", None, 0, 5, "m", None, "c", "/h", 1, 1, 9, 0, 0, None, False)
MODELS = (PARTITION_OWNERS, REBALANCES, COMMIT_ANOMALIES)


def test_each_table_has_a_writer() -> None:
    """A table that is declared and that nothing writes would stay empty without a word."""
    of_shares = {REDELIVERIES, ARCHIVED_RECORDS, SHARE_OFFSET_CHANGES}
    assert {*GROUP_TABLES, *of_shares, *audit.DRIVER_TABLES, LOG_ANOMALIES} == set(GOLD_TABLES)


def test_rows_of_two_audits_are_equal_until_a_day() -> None:
    """The first day that has other rows, or more, or fewer; open ones come after all days."""
    first, second, still = OWNER, OWNER._replace(valid_to=DAY_MS), OWNER._replace(valid_to=None)
    entry = GROUP_TABLES[PARTITION_OWNERS]
    before = entry.sums(GroupGold(owners=[first, second, still]))
    assert list(before) == [0, DAY_MS, EVERY_PLACE]
    for owners, until in (
        ([first, second, still], EVERY_PLACE),
        ([first, second, still._replace(member_id="n")], EVERY_PLACE - 1),
        ([first, second], EVERY_PLACE - 1),
        ([first, second._replace(is_double=True), still], DAY_MS - 1),
        ([first, still], DAY_MS - 1),
        ([first, second, OWNER._replace(valid_to=2 * DAY_MS), still], 2 * DAY_MS - 1),
        ([second, still], -1),
    ):
        gold = GroupGold(owners=list(owners))
        assert equal_until(before, entry.sums(gold)) == until
        entry.leave_out(gold, until)
        assert gold.owners == [row for row in owners if until < (EVERY_PLACE if row.valid_to is None else row.valid_to)]
    assert list(entry.sums(GroupGold(owners=[first, second, still]), after=0)) == [DAY_MS, EVERY_PLACE]


@pytest.mark.nights
def test_a_new_table_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared and entered as others are, tables get the same rows, whether their log came in one night or in three."""
    models = {replace(model, name=f"new_{model.name}"): model for model in MODELS}
    entries = {**GROUP_TABLES, **{new: replace(GROUP_TABLES[model], table=new) for new, model in models.items()}}
    for module in (group_tables, audit_groups, former_rows):
        monkeypatch.setattr(module, "GROUP_TABLES", entries)
    declared = dict(TABLES) | {new.full_name: new for new in models}
    for other in (part_files, other_writers):
        monkeypatch.setattr(other, "TABLES", declared)
    for name in ("GOLD_TABLES", "TASK_TABLES", "ALL_TABLES"):
        monkeypatch.setattr(audit, name, (*getattr(audit, name), *models))
    whole, nights = Ledger(tmp_path / "whole"), Ledger(tmp_path / "nights")
    whole.night(LOGS)
    for number, part in enumerate(slices_of(LOGS, tmp_path / "parts", lambda _: (0.4, 0.7)), start=1):
        nights.night(part, number=number)
    for new, model in models.items():
        rows = rows_of(whole, new)
        assert rows == rows_of(whole, model) == rows_of(nights, model) == rows_of(nights, new)
        assert rows or model is COMMIT_ANOMALIES


def rows_of(ledger: Ledger, table: Table) -> list[str]:
    """Sorted rows of a table."""
    return sorted(map(repr, ledger.warehouse.read(table).to_pylist()))
