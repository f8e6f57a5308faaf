"""A night over a simulated log with dead letter topics: causes, refusals and copies are those of the truth."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.cli_enums import Listing
from jobs.delta.times import epoch_ms
from jobs.laboratory.simulate import simulate
from jobs.queries.answers.audit_payload import run_payload
from jobs.queries.answers.audit_report import Span, listed
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.jobs.report.tables import tables_of
from tests.simulator.simulation.simulations import SCENARIOS

Place = tuple[str, str, int, int]
"""Group, topic, partition and offset."""


def places(facts: dict[str, Any], group: str = "group") -> Iterator[Place]:
    for offset in range(facts["first_offset"], facts["last_offset"] + 1):
        yield facts[group], facts["topic"], facts["partition"], offset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario, simulated."""
    root = tmp_path_factory.mktemp("simulated") / "dead-letters"
    simulate(str(SCENARIOS / "dead-letters.toml"), str(root))
    return root


@pytest.fixture(scope="module")
def night(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """One night over it."""
    ledger = Ledger(tmp_path_factory.mktemp("warehouse"))
    result = ledger.night(root / "logs")
    assert result.exit_code == 0, result.text
    return ledger


def truth(root: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "truth" / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_each_record_is_given_up_once_for_the_true_cause(night: Ledger, root: Path) -> None:
    """All that was given up is there and nothing else; what is CERTAIN is true, and so is each refused copy."""
    why = {place: line["why"] for line in truth(root, "archived") for place in places(line)}
    rows = {place: row for row in night.rows("gold.archived_records") for place in places(row, "group_id")}
    assert rows.keys() == why.keys()
    assert sum(row["last_offset"] - row["first_offset"] + 1 for row in night.rows("gold.archived_records")) == len(rows)
    for place, row in rows.items():
        assert row["likely_cause"] in (None, why[place]) or row["confidence"] != "CERTAIN", (place, row)
    certain = {place[0] for place, row in rows.items() if row["likely_cause"] and row["confidence"] == "CERTAIN"}
    assert certain >= {"rejects", "refused"}  # ARCHIVING excludes a gap
    assert {(place[0], row["dead_letter"]) for place, row in rows.items()} == {
        ("rejects", "TRIED"),
        ("gives-up", "TRIED"),
        ("times-out", "TRIED"),
        ("refused", "REFUSED"),
        ("without", None),
    }
    names, listing = listed(night.tables, None, Listing.WITHOUT_COPY, Span())
    assert {row[names.index("group_id")] for row in listing} == {"refused"}


def test_copies_make_causes_certain(night: Ledger, root: Path) -> None:
    """`audit --payload` finds each copy where the truth says that it lies, and what it says is the cause, CERTAIN."""
    out = io.StringIO()
    options: dict[str, Any] = {"group_ids": None, "sources": [str(root / "logs")], "output_format": "json", "out": out}
    run_payload(night.tables, span=Span(), **options)
    rows = [json.loads(line) for line in out.getvalue().splitlines()[1:]]
    found = {(row["group_id"], row["topic"], row["partition"], row["offset"]): row for row in rows}
    why = {place: line["why"] for line in truth(root, "archived") for place in places(line)}
    copied = {
        place: f"{line['dead_letter_topic']}-{line['log'][0]}:{line['log'][1] + index}"
        for line in truth(root, "dead_letters")
        if line["error"] is None
        for index, place in enumerate(places(line))
    }
    assert found.keys() == why.keys()
    assert {place for place, row in found.items() if row["dead_letter"] == "FOUND"} == copied.keys()
    for place, lies_at in copied.items():
        row = found[place]
        assert (row["likely_cause"], row["confidence"]) == (why[place], "CERTAIN")
        assert row["dead_letter_place"] == lies_at
    assert {row["dead_letter"] for place, row in found.items() if place[0] == "refused"} == {"REFUSED"}


def test_copies_to_a_deleted_topic_are_refused(tmp_path: Path) -> None:
    """While the dead letter topic is not there: its config ended with it, and began again with the next one."""
    text = (SCENARIOS / "dead-letters.toml").read_text(encoding="utf-8")
    for kind, at in (("delete_topic", "60s"), ("create_topic", "120s")):
        text += f'\n[[fault]]\nkind = "{kind}"\nat = "{at}"\ntopic = "dlq.orders"\n'
    (tmp_path / "scenario.toml").write_text(text, encoding="utf-8")
    simulate(str(tmp_path / "scenario.toml"), str(tmp_path / "simulated"))
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(tmp_path / "simulated" / "logs")
    refused = {
        place: line["error"] is not None
        for line in truth(tmp_path / "simulated", "dead_letters")
        for place in places(line)
    }
    rows = {place: row for row in ledger.rows("gold.archived_records") for place in places(row, "group_id")}
    kinds = {(row["dead_letter"], refused[place]) for place, row in rows.items() if place in refused}
    # shortly before the next topic is made, a broker that tries again may find it
    assert kinds == {("TRIED", False), ("REFUSED", True), ("TRIED", True)}


def test_a_report_counts_what_is_archiving_as_given_up(night: Ledger) -> None:
    """Also where it ends between ARCHIVING and ARCHIVED: as many offsets as gold has, each once, by its SQL, too."""
    moments = {
        epoch_ms(row["at"])
        for row in night.rows("silver.share_batch_transitions")
        if row["kind"] == "ARCHIVING" and row["group_id"] == "gives-up"
    }
    given_up = [row for row in night.rows("gold.archived_records") if row["group_id"] == "gives-up"]
    for to_ms in (sorted(moments)[len(moments) // 2] + 1, None):
        text, _ = make_report(
            night.warehouse, Scope(CLUSTER_ID, ("gives-up",), None, to_ms), made_at=datetime(2026, 11, 3, tzinfo=UTC)
        )
        (counts,) = (it for it in tables_of(text) if it.columns == ["delivery_count", "acknowledged", "archived"])
        expected = sum(
            row["last_offset"] - row["first_offset"] + 1
            for row in given_up
            if to_ms is None or epoch_ms(row["at"]) < to_ms
        )
        assert sum(archived for _, _, archived in counts.rows) == expected > 10
        answer = DuckDb(night.warehouse).answer(counts.sql)
        assert [tuple(row) for row in answer.rows()] == counts.rows
