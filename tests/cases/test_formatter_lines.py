"""Whole nights of what the console consumer's formatters print: keys and values, without offsets, times or markers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.cli_enums import Listing, View
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.answers.audit_report import run_audit_report
from jobs.queries.answers.describe import run_describe
from jobs.queries.answers.findings import findings, lines
from jobs.queries.answers.owner import find_owners
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from tests.answers import printed
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.recorded import RECORDINGS

FULL_A: Final = RECORDINGS / "full-a"
FORMATTERS: Final = FULL_A / "truth" / "formatters"


def offsets_now(ledger: Ledger) -> dict[tuple[str, str, int], int]:
    """What silver says is committed, by the place in the log: rows of transactions left out."""
    newest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in sorted(ledger.rows("silver.offset_commits"), key=lambda row: int(row["log_offset"])):
        newest[row["group_id"], row["topic"], row["partition"]] = row
    return {place: row["committed_offset"] for place, row in newest.items() if row["committed_offset"] is not None}


def owned(ledger: Ledger) -> set[tuple[str, str, int, str, int]]:
    """Who had which partition of a classic group, from which generation on. The consumer that printed the lines is in
    them, and left after the last one."""
    return {
        (row["group_id"], row["topic"], row["partition"], row["member_id"], row["from_generation"])
        for row in ledger.rows("gold.partition_owners")
        if row["group_type"] == "CLASSIC" and not row["group_id"].startswith("console-consumer")
    }


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night of the formatters' lines of a recording."""
    ledger = Ledger(tmp_path_factory.mktemp("formatted"))
    ledger.night(dumps=(str(FORMATTERS),))
    return ledger


def test_offsets_and_owners_are_those_of_the_log(formatted: Ledger, tmp_path: Path) -> None:
    """The order of the lines is the order of the log: what holds at the end is what the segments say. The tools read
    committed records alone, so offsets of transactions that were aborted are not among the lines."""
    whole = Ledger(tmp_path / "whole")
    whole.night(FULL_A / "logs")
    aborted = {
        (row["group_id"], row["topic"], row["partition"])
        for row in whole.rows("silver.offset_commits")
        if row["is_transactional"]
    }
    expected = {place: offset for place, offset in offsets_now(whole).items() if place not in aborted}
    got = {place: offset for place, offset in offsets_now(formatted).items() if place not in aborted}
    assert expected and got == expected
    reported = {row[0] for row in owned(formatted)}
    assert len(reported) > 10
    assert owned(formatted) == {row for row in owned(whole) if row[0] in reported}


def test_no_time_is_said_and_nothing_is_left_unjudged(formatted: Ledger) -> None:
    """Records have no time of their own, so no rebalance, day or interval has one; every group has its gold."""
    rows = formatted.rows("gold.log_anomalies")
    assert not [row for row in rows if row["category"] in {"AUDIT", "COORDINATOR"}]
    assert {row["recorded_at"] for row in formatted.rows("silver.offset_commits")} == {None}
    rebalances = formatted.rows("gold.rebalances")
    assert rebalances and all(row["duration_ms"] is None for row in rebalances)


@pytest.mark.parametrize("output_format", ["table", "csv"])
def test_every_answer_goes_by_the_place_in_the_log(formatted: Ledger, output_format: str) -> None:
    """Lists, descriptions, owners, the report and what is found, at the end and at a time: none raises anything."""
    tables = formatted.tables
    for listing in Listing:
        assert printed(run_audit_report, tables, output_format, listing=listing)[0]
    if output_format != "csv":
        for view in View:
            printed(run_describe, tables, output_format, view=view, verbose=True)


def test_owner_report_and_findings(formatted: Ledger) -> None:
    """`owner` names each open owner; the page and the night's lines are made."""
    warehouse = formatted.warehouse
    still = [row for row in formatted.rows("gold.partition_owners") if row["to_log_offset"] is None]
    for row in still:
        found = find_owners(
            ClusterTables(warehouse, CLUSTER_ID), topic=row["topic"], partition=row["partition"], at_ms=None
        )
        assert row["member_id"] in {it.row.member_id for it in found.owners}
    assert still
    make_report(warehouse, Scope(CLUSTER_ID), made_at=datetime(2026, 11, 25, tzinfo=UTC))
    assert list(lines(findings(ClusterTables(warehouse, CLUSTER_ID))))


def test_another_night_of_the_same_lines_brings_nothing(formatted: Ledger) -> None:
    """Lines are numbered by their place in the file: the second night finds the same records."""
    before = {name: len(formatted.rows(name)) for name in ("silver.group_events", "silver.offset_commits")}
    formatted.night(dumps=(str(FORMATTERS),), number=2)
    assert {name: len(formatted.rows(name)) for name in before} == before
    assert all(before.values())
