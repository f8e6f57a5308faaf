"""What a run changed: with it the rows of before become those of after, in every table."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from jobs.cli import app as cli
from jobs.errors import ArgumentError
from jobs.queries.answers.changes import (
    AFTER,
    BEFORE,
    BOOKKEEPING,
    DELETE,
    FOLLOWED,
    INSERT,
    changes_of,
    compared,
    summary,
    table_named,
)
from schemas.tables.state import RUN_METRICS
from tests.cases.harness import CASES, CLUSTER_ID, Ledger
from tests.jobs.slices import slices_of

Rows = dict[str, Counter[str]]
CUTS = (0.4, 0.8)


def rows_of(ledger: Ledger) -> Rows:
    """The rows of each table of silver and gold."""
    return {
        table.full_name: Counter(map(as_text, ledger.rows(table.full_name)))
        for table in FOLLOWED
        if ledger.warehouse.exists(table)
    }


def as_text(row: dict[str, Any]) -> str:
    """A row, to be counted."""
    maps = {name: dict(value) for name, value in row.items() if name == "details" and value is not None}
    return json.dumps(row | maps, default=str, sort_keys=True)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, Sequence[Rows]]:
    """Three nights of one cluster, with the rows after each; another cluster's night lies between them."""
    folder = tmp_path_factory.mktemp("changes")
    ledger = Ledger(folder / "warehouse")
    found: list[Rows] = []
    for number, part in enumerate(slices_of(CASES / "kafka-4.4" / "logs", folder, lambda _: CUTS), 1):
        ledger.night(*[folder / f"part-{index}" for index in range(number)], number=number)
        found.append(rows_of(ledger))
        if number == 1:
            Ledger(ledger.root, "another").night(part, number=number)
    return ledger, found


def changed(ledger: Ledger, name: str, run_id: str | None = None, since: str | None = None) -> list[dict[str, Any]]:
    """The changes of a table."""
    pair = compared(ledger.tables, table_named(name), run_id, since)
    answer = changes_of(ledger.tables, pair)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]


def applied(before: Counter[str], changes: Sequence[dict[str, Any]]) -> Counter[str]:
    """The rows after the changes."""
    rows = Counter(before)
    for change in changes:
        row = as_text({name: value for name, value in change.items() if not name.startswith("_")})
        rows[row] += 1 if change["_change_type"] in (INSERT, AFTER) else -1
    return +rows


@pytest.mark.parametrize(
    ("run_id", "since", "first", "last"),
    [("night-1", None, None, 0), (None, None, 1, 2), ("night-3", "night-1", 0, 2)],
)
def test_changes_lead_from_one_run_to_another(
    nights: tuple[Ledger, Sequence[Rows]], run_id: str | None, since: str | None, first: int | None, last: int
) -> None:
    """From nothing to the first night, from night to night, over several: no row is missing, or listed in vain."""
    ledger, rows = nights
    assert len(rows[last]) > 15
    for name, after in rows[last].items():
        before = Counter() if first is None else own(rows[first][name])
        changes = changed(ledger, name, run_id, since)
        assert applied(before, changes) == own(after), name
        went = [as_text(without(change)) for change in changes if change["_change_type"] in (DELETE, BEFORE)]
        came = [as_text(without(change)) for change in changes if change["_change_type"] in (INSERT, AFTER)]
        assert not set(went) & set(came), name
        keys = [
            [
                tuple(change[key] for key in table_named(name).key)
                for change in changes
                if change["_change_type"] == kind
            ]
            for kind in (BEFORE, AFTER)
        ]
        assert set(keys[0]) == set(keys[1]), name


def own(rows: Counter[str]) -> Counter[str]:
    """Those of the cluster."""
    return Counter({row: count for row, count in rows.items() if json.loads(row)["cluster_id"] == CLUSTER_ID})


def without(change: dict[str, Any]) -> dict[str, Any]:
    """The row alone."""
    return {name: value for name, value in change.items() if not name.startswith("_")}


def test_the_summary_counts_them(nights: tuple[Ledger, Sequence[Rows]]) -> None:
    """Of each table, with the runs that are compared."""
    ledger, _ = nights
    (sentence,), rows = summary(ledger.tables, None, None)
    counts = {row[0]: row[1:] for row in rows}
    inserted, updated, deleted = (sum(row[place] for row in rows) for place in (3, 4, 5))
    assert sentence == (
        "silver and gold: run night-3 of 2026-11-28T00:00Z against run night-2 of 2026-11-27T00:00Z: "
        f"{inserted:,} rows inserted, {updated:,} updated, {deleted:,} deleted"
    )
    assert set(counts) == {table.full_name for table in FOLLOWED if ledger.warehouse.exists(table)}
    for name, (run_id, since, inserted, updated, deleted) in counts.items():
        kinds = Counter(change["_change_type"] for change in changed(ledger, name))
        assert (run_id, since) == ("night-3", "night-2")
        assert (inserted, updated, deleted) == (kinds[INSERT], kinds[AFTER], kinds[DELETE])
    assert counts["silver.offset_commits"][2] > 0 and sum(row[3] for row in counts.values()) > 0


def test_a_newer_run_that_changed_nothing_is_named(nights: tuple[Ledger, Sequence[Rows]], tmp_path: Path) -> None:
    """Else the run before it would be taken for the newest."""
    ledger = Ledger(tmp_path / "warehouse")
    copytree(nights[0].root, ledger.root)
    row = {"run_id": "night-4", "job": "replay", "started_at": datetime(2026, 11, 29, tzinfo=UTC)}
    ledger.tables.write(RUN_METRICS, [row], app_id="test")
    first, second = summary(ledger.tables, None, None)[0]
    assert first == "the newest run, night-4 of 2026-11-29T00:00Z, changed nothing; the last one that did:"
    assert second.startswith("silver and gold: run night-3 ")


def test_what_is_not_known_is_refused(nights: tuple[Ledger, Sequence[Rows]]) -> None:
    """Runs and tables, with those that there are."""
    ledger, _ = nights
    for run_id, since, said in (
        ("night-9", None, "the newest are night-3, night-2, night-1"),
        ("night-1", "night-2", "not before the run night-1"),
        (None, "night-9", "no run night-9"),
    ):
        with pytest.raises(ArgumentError, match=said):
            compared(ledger.tables, table_named("gold.rebalances"), run_id, since)
    for name, said in (("gold.nothing", "of silver or gold"), ("bronze.record_batches", "capture_id")):
        with pytest.raises(ArgumentError, match=said):
            table_named(name)


def test_the_job_prints_them(nights: tuple[Ledger, Sequence[Rows]], capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, one row a line, with the names of Delta's change data feed; and a table of counts."""
    ledger, _ = nights
    words = ["changes", "--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID, "--format", "json"]
    assert cli.main([*words, "--table", "silver.offset_commits"]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == len(changed(ledger, "silver.offset_commits"))
    assert {row["_run_id"] for row in rows} == {
        "night-3"
    } and "silver.offset_commits: run night-3 of 2026-11-28T00:00Z against run night-2 of " in err
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[0]).keys() == {"TABLE", "RUN", "SINCE", "INSERTED", "UPDATED", "DELETED"}
    assert cli.main(words[:-2]) == 0
    assert ["TABLE", "INSERTED", "UPDATED", "DELETED"] in map(str.split, capsys.readouterr().out.splitlines())
    assert cli.main([*words[:-2], "--table", "gold.rebalances"]) == 0
    [header] = (line for line in capsys.readouterr().out.splitlines() if line.startswith("_change_type"))
    names = header.replace("┃", " ").split()
    assert names[1:6] == ["group_id", "started_at", "cause", "confidence", "members_left"]
    assert set(names[-4:]) == {"_run_id", *BOOKKEEPING}
