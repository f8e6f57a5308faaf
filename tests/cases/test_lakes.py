"""A Delta table in which records land day after day, as a source of nights."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.bronze import batches, identity
from jobs.delta.table_files import TableFile
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.cases.harness import Ledger
from tests.groupledger.raw import raw_records
from tests.recorded import RECORDINGS

FULL_A = RECORDINGS / "full-a" / "logs"
DAYS = 3
BATCHES = ["topic", "partition", "base_offset", "batch"]
OF_RUNS = ("captured_at", "written_at", "run_id")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """One night over the whole log."""
    ledger = Ledger(tmp_path_factory.mktemp("once") / "warehouse")
    ledger.night(FULL_A)
    return ledger


def batches_of(ledger: Ledger) -> pa.Table:
    """What the data source `kafka_log` gives of the log: its batches."""
    return ledger.warehouse.read(RECORD_BATCHES).select(BATCHES)


def days_of(rows: pa.Table) -> list[pa.Table]:
    """The rows by day; each log partition is cut between batches, at places of its own."""
    day = np.zeros(rows.num_rows, np.int64)
    base_offset, places = rows["base_offset"].to_numpy(), rows.select(["topic", "partition"]).to_pylist()
    for number, place in enumerate({tuple(it.values()): it for it in places}.values()):
        is_there = np.array([it == place for it in places])
        starts = np.unique(base_offset[is_there])
        bounds = [starts[len(starts) * (part + number % 2) // (DAYS + 1)] for part in (1, 2)]
        day[is_there] = np.searchsorted(bounds, base_offset[is_there], side="right")
    return [rows.filter(pa.array(day == number)) for number in range(DAYS)]


def differing(one: Ledger, other: Ledger, tables: Sequence[Table]) -> dict[str, int]:
    """Tables with different rows, and how many rows differ."""
    found = {}
    for table in tables:
        names = [column.name for column in table.columns if column.name not in OF_RUNS]
        rows = [Counter(map(repr, it.table(table.full_name).select(names).to_pylist())) for it in (one, other)]
        if rows[0] != rows[1]:
            found[table.full_name] = ((rows[0] - rows[1]) + (rows[1] - rows[0])).total()
    return found


def land(lake: Path, rows: pa.Table) -> None:
    """Append rows to a lake."""
    write_deltalake(lake, rows, mode="append")


@pytest.mark.parametrize("holds", ["batches", "records"])
def test_a_lake_landed_in_three_days_gives_the_tables_of_one_capture(tmp_path: Path, once: Ledger, holds: str) -> None:
    """Transactions cut by a day included, with files that are late, come twice or were rewritten. Batches give all
    tables of the log; records with producers, markers and batches those that one night over them gives, and its
    silver."""
    rows = batches_of(once) if holds == "batches" else raw_records(once.warehouse)
    days = days_of(rows)
    late = pc.equal(days[0]["partition"], 1)
    days = [days[0].filter(pc.invert(late)), pa.concat_tables([days[1], days[1]]), days[2]]
    lake, ledger, notes = tmp_path / "lake", Ledger(tmp_path / "warehouse"), []
    for number, some in enumerate(days):
        land(lake, some)
        notes.append(ledger.night(number=number + 1, dumps=(str(lake),)).text)
        DeltaTable(lake).optimize.compact()
    land(lake, days_of(rows)[0].filter(late))
    notes.append(ledger.night(number=4, dumps=(str(lake),)).text)
    assert ["read before, and unchanged: 1 of 2 files" in it for it in notes] == [False, True, True, True]
    assert once.rows("silver.offset_commits")
    assert not differing(once, ledger, [*SILVER_TABLES, *(GOLD_TABLES if holds == "batches" else ())])
    if holds == "records":
        land(tmp_path / "whole", rows)
        whole = Ledger(tmp_path / "whole-warehouse")
        whole.night(dumps=(str(tmp_path / "whole"),))
        assert not differing(whole, ledger, GOLD_TABLES)


def read_again(ledger: Ledger, lake: Path, number: int) -> tuple[int, int]:
    """How many of a lake's files a capture reads, and how many records are new."""
    summary = ledger.capture(number=number, dumps=(str(lake),))
    assert summary.quarantined_count == 0
    note = next((it for it in summary.notes if "read before" in it), ": 0 of")
    return len(DeltaTable(lake).file_uris()) - int(note.rpartition(": ")[2].partition(" of")[0]), summary.record_count


def test_a_rewritten_file_is_read_unless_all_its_rows_were(tmp_path: Path, once: Ledger) -> None:
    """OPTIMIZE of files that were read, even twice, gives nothing to read; of one that was not, or where rows changed
    or the log no more says of what a file was made, it is read, and nothing comes twice."""
    days, lake, ledger = days_of(batches_of(once)), tmp_path / "lake", Ledger(tmp_path / "warehouse")
    count = once.table("bronze.record_batches").num_rows
    land(lake, days[0].slice(0, 9))
    land(lake, days[0].slice(9))
    assert read_again(ledger, lake, 1)[0] == 2
    DeltaTable(lake).optimize.compact()
    land(lake, days[1].slice(0, 0))
    DeltaTable(lake).optimize.z_order(["base_offset"])
    assert read_again(ledger, lake, 2) == (0, 0)
    land(lake, days[1])
    DeltaTable(lake).optimize.compact()
    DeltaTable(lake).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert read_again(ledger, lake, 3)[0] == 1
    DeltaTable(lake).delete("topic = '__cluster_metadata' and base_offset < 50")
    assert read_again(ledger, lake, 4) == (1, 0)
    land(lake, days[2])
    assert read_again(ledger, lake, 5)[0] == 1
    assert ledger.table("bronze.record_batches").num_rows == count
    DeltaTable(lake).optimize.compact()
    DeltaTable(lake).create_checkpoint()
    for commit in (lake / "_delta_log").glob("*.json"):
        commit.unlink()
    assert read_again(ledger, lake, 6) == (1, 0)
    assert read_again(ledger, lake, 7) == (0, 0)


def test_a_day_that_a_lake_lost_is_a_hole(tmp_path: Path, once: Ledger) -> None:
    """Deleted from the lake before a night read it: coverage says so, until a later night finds it."""
    days, lake, ledger = days_of(batches_of(once)), tmp_path / "lake", Ledger(tmp_path / "warehouse")
    land(lake, days[0])
    land(lake, days[2])
    assert ledger.capture(dumps=(str(lake),)).gap_count
    land(lake, days[1])
    assert not ledger.capture(number=2, dumps=(str(lake),)).gap_count


def test_what_is_no_batch_is_a_bad_row(tmp_path: Path, once: Ledger) -> None:
    """A damaged, cut, missing or misplaced batch, or two in a row: in quarantine with its bytes; others are read."""
    log = batches_of(once).filter(pc.field("topic") == "__share_group_state")
    rows = log.filter(pc.equal(log["partition"], 4)).to_pylist()
    whole = [row["batch"] for row in rows]
    rows[3]["batch"] = whole[3][:-1] + bytes([whole[3][-1] ^ 1])
    rows[5]["batch"] = whole[5][:-1]
    rows[7]["batch"] = None
    rows[9]["base_offset"] += 10_000
    rows[11]["batch"] = whole[11] + whole[12]
    rows[13]["batch"] = b"\x00" * 70
    land(tmp_path / "lake", pa.Table.from_pylist(rows, schema=log.schema))
    ledger = Ledger(tmp_path / "warehouse")
    assert ledger.capture(dumps=(str(tmp_path / "lake"),)).quarantined_count == 6
    bad = {row["offset"]: row for row in ledger.rows("bronze.quarantine")}
    assert {row["code"] for row in bad.values()} == {"BAD_ROW"}
    assert bad[rows[3]["base_offset"]]["bytes"] == rows[3]["batch"]
    there = [row["batch"] for row in ledger.rows("bronze.record_batches")]
    assert sorted(there) == sorted(it for number, it in enumerate(whole) if number not in (3, 5, 7, 9, 11, 13))


@pytest.mark.parametrize("holds", ["batches", "records"])
def test_a_night_opens_nothing_of_bronze_before_its_new_records(
    tmp_path: Path, once: Ledger, holds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it costs what is new, however long the lake is read already; late records open what they may be in."""
    rows = batches_of(once) if holds == "batches" else raw_records(once.warehouse)
    days, lake, ledger = days_of(rows), tmp_path / "lake", Ledger(tmp_path / "warehouse")
    late = pc.less(days[1]["base_offset"], 100)
    there: set[str] = set()
    opened: list[str] = []
    headers, bronze_rows = batches._headers, identity._bronze_rows

    def opening(file: TableFile, index: int) -> Any:
        opened.extend({file.path} & there)
        return headers(file, index)

    def comparing(files: Sequence[TableFile], *more: Any) -> Any:
        opened.extend(file.path for file in files)
        return bronze_rows(files, *more)

    monkeypatch.setattr(batches, "_headers", opening)
    monkeypatch.setattr(identity, "_bronze_rows", comparing)
    for number, some in enumerate((days[0], days[1].filter(pc.invert(late)), days[2])):
        land(lake, some)
        there |= {str(path) for path in Path(ledger.folder("bronze.record_batches")).glob("*.parquet")}
        ledger.capture(number=number + 1, dumps=(str(lake),))
    assert not opened
    land(lake, days[1].filter(late))
    assert not ledger.capture(number=4, dumps=(str(lake),)).gap_count
    assert opened


def test_a_file_that_could_not_be_read_is_forgotten_when_a_lake_has_it_no_more(tmp_path: Path, once: Ledger) -> None:
    """One that is being written, is none, or is missing though the table names it: a fault while the lake has it."""
    days, folder, table = days_of(batches_of(once)), tmp_path / "folder", tmp_path / "table"
    land(table, days[0])
    land(table, days[1])
    folder.mkdir()
    pq.write_table(days[0], folder / "0.parquet")
    whole = (folder / "0.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(whole[:-50])
    (folder / "notes").write_text("of somebody")
    Path(DeltaTable(table).file_uris()[0]).unlink()

    def open_count(number: int) -> int:
        return ledger.capture(number=number, dumps=(str(folder), str(table))).quarantined_count

    ledger = Ledger(tmp_path / "warehouse")
    assert [open_count(1), open_count(2)] == [3, 3]
    (folder / "1.parquet").unlink()
    (folder / "notes").unlink()
    assert open_count(3) == 1
    DeltaTable(table).repair()
    assert open_count(4) == 0
