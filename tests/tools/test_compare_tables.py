"""Tables of two versions compared: what is the same, what differs, and what only one of them has."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cases.harness import CASES, Ledger
from tests.conftest import PROJECT_ROOT
from tools.compare_tables import changed_columns, differences, make_warehouses, recorded_nights, report

COMMITS = "silver.offset_commits"


def commits(*rows: tuple[int, int | None], **more: list[Any]) -> pa.Table:
    """Log offsets and committed offsets, with the table's key."""
    columns = {
        "cluster_id": ["c"] * len(rows),
        "log_partition": [0] * len(rows),
        "log_offset": [offset for offset, _ in rows],
        "committed_offset": pa.array([committed for _, committed in rows], pa.int64()),
    }
    return pa.table(columns | more)


def test_order_plays_no_part() -> None:
    """Rows are sorted before they are compared."""
    assert differences(COMMITS, commits((1, 10), (2, None)), commits((2, None), (1, 10))) == []


def test_a_value_that_differs_is_named_by_column_and_key() -> None:
    """A null is no zero, and a number no text of it."""
    (found,) = differences(COMMITS, commits((1, 10), (2, None)), commits((1, 11), (2, 0)))
    assert (found.column, found.row_count) == ("committed_offset", 2)
    assert found.examples[0] == "'c' 0 1: 10 -> 11" and found.examples[1].endswith("None -> 0")
    of_text = commits((1, 10)).set_column(3, "committed_offset", pa.array(["10"]))
    assert differences(COMMITS, commits((1, 10)), of_text)


def test_rows_of_one_version_alone() -> None:
    """One that went and one that came; of a table without a known key all rows are compared as they are."""
    for table in (COMMITS, "gold.of_a_later_version"):
        (found,) = differences(table, commits((1, 10), (2, 5)), commits((1, 10), (3, 5)))
        assert (found.column, found.row_count) == ("", 2)
        assert [line[0] for line in found.examples] == ["-", "+"]
    (found,) = differences("gold.of_a_later_version", commits((1, 10)), commits((1, 10), (1, 10)))
    assert found.row_count == 1


def test_columns_that_came_went_or_changed_their_name() -> None:
    """A column with the values of one that went is that one."""
    old = commits((1, 10), (2, 5), asked_at=[7, 8], gone=[1, 1])
    new = commits((1, 10), (2, 5), observed_at=[7, 8], more=[None, None])
    assert changed_columns(old, new) == ["asked_at: now observed_at", "gone: gone", "more: added"]
    assert differences(COMMITS, old, new) == []


def test_each_log_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sources whose tables are the same, that differ, and a table which one version alone has."""
    for version, committed in (("old", 10), ("new", 11)):
        write_deltalake(str(tmp_path / version / "same" / "silver" / "offset_commits"), commits((1, 10)))
        write_deltalake(str(tmp_path / version / "other" / "silver" / "offset_commits"), commits((1, committed)))
    write_deltalake(str(tmp_path / "new" / "same" / "gold" / "more"), commits((1, 10)))
    sources = {name: (tmp_path / "old" / name, tmp_path / "new" / name) for name in ("same", "other")}
    assert report(sources) == 1
    assert capsys.readouterr().out.splitlines() == [
        "same: 1 rows, 0 differences",
        "other: 1 rows, 1 differences",
        "  silver.offset_commits.committed_offset: 1 rows differ",
        "    'c' 0 1: 10 -> 11",
        "gold.more: only in the new version (1 of 2 logs)",
    ]


@pytest.mark.nights
def test_a_version_is_asked_in_its_own_checkout(tmp_path: Path) -> None:
    """Nights of this checkout, in a process of their own, make what they make here; one that fails says why."""
    logs = CASES / "S-skew" / "logs"
    make_warehouses(PROJECT_ROOT, tmp_path / "new", {"skew": [logs]})
    ledger = Ledger(tmp_path / "ledger", "c")
    ledger.night(logs)
    there = Ledger(tmp_path / "new" / "skew", "c")
    for name in ("silver.offset_commits", "gold.commit_anomalies"):
        assert differences(name, ledger.table(name), there.table(name)) == []
    with pytest.raises(SystemExit, match="its nights failed"):
        make_warehouses(PROJECT_ROOT, tmp_path / "none", {"none": [tmp_path / "nowhere"]})


def test_logs_before_the_cleaner_are_read_first() -> None:
    """Every recording has its nights, and the one that was compacted two of them."""
    found = dict(recorded_nights([]))
    assert {name: [path.name for path in nights] for name, nights in found.items() if len(nights) > 1}.keys() >= {
        "compact"
    }
    assert [path.name for path in found["compact"]] == ["logs-before", "logs"]
    assert dict(recorded_nights(["full-a"])).keys() == {"full-a"}
