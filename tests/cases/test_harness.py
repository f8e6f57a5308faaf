"""The harness itself: a case runs to its end and its tables can be read."""

import json
from pathlib import Path
from typing import Any

from schemas.tables import TABLES
from tests.cases.harness import CASES, MADE_WHEN_NEEDED, Ledger


def test_a_night_over_a_case_fills_the_tables(ledger: Ledger) -> None:
    """One night over a small log ends well, and silver has its commits."""
    night = ledger.night(CASES / "X-compaction" / "full")
    assert night.exit_code == 0
    assert len(ledger.rows("silver.offset_commits")) == 10
    assert night.facts["found"]["headline"] in night.text


def test_a_prepared_ledger_is_what_a_first_night_makes(tmp_path: Path) -> None:
    """The same tables with the same schema and properties, and the same rows: only their ids and times differ."""
    prepared, created = Ledger(tmp_path / "prepared"), Ledger(tmp_path / "created", is_prepared=False)

    def actions_of(ledger: Ledger, name: str) -> list[dict[str, Any]]:
        text = Path(ledger.folder(name), "_delta_log", f"{0:020d}.json").read_text()
        actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        for action in actions:
            for field in ("id", "createdTime"):
                action.get("metaData", {}).pop(field, None)
        return [action for action in actions if "commitInfo" not in action]

    for ledger in (prepared, created):
        ledger.night(CASES / "X-compaction" / "full")
    for name in TABLES:
        is_there = Path(created.folder(name)).exists()
        assert is_there == Path(prepared.folder(name)).exists() == (name not in MADE_WHEN_NEEDED), name
        if is_there:
            assert actions_of(prepared, name) == actions_of(created, name)
            if not name.startswith("state."):
                assert prepared.rows(name) == created.rows(name), name
