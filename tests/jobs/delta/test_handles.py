"""Tables that are opened once: whoever asks sees the newest version, and asks the log only where something came."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from jobs.delta import handles
from jobs.delta.handles import Handles
from jobs.errors import TableDamaged


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each time that a handle is brought up to date."""
    noted: list[str] = []
    updated = handles._updated

    def counted(table: DeltaTable) -> DeltaTable | None:
        noted.append(table.table_uri)
        return updated(table)

    monkeypatch.setattr(handles, "_updated", counted)
    return noted


def append(path: str, number: int) -> None:
    """One row more, by another writer."""
    write_deltalake(path, pa.table({"n": [number]}), mode="append")


def rows(table: DeltaTable) -> list[int]:
    """Of the version that a handle has."""
    return sorted(table.to_pyarrow_table()["n"].to_pylist())


def test_a_table_that_did_not_change_is_not_looked_at_again(tmp_path: Path, updates: list[str]) -> None:
    """It is after each commit of anybody, once."""
    path, opened = str(tmp_path / "t"), Handles()
    append(path, 0)
    assert [opened.newest(path).version() for _ in range(3)] == [0, 0, 0]
    assert updates == []
    for number in (1, 2):
        append(path, number)
        assert [rows(opened.newest(path)) for _ in range(3)] == [list(range(number + 1))] * 3
    assert len(updates) == 2


def test_a_commit_in_the_same_moment_is_seen(tmp_path: Path) -> None:
    """Where the time of the log's folder is as it was."""
    path, opened = str(tmp_path / "t"), Handles()
    append(path, 0)
    log = tmp_path / "t" / "_delta_log"
    times = log.stat().st_atime_ns, log.stat().st_mtime_ns
    assert opened.newest(path).version() == 0
    append(path, 1)
    os.utime(log, ns=times)
    assert opened.newest(path).version() == 1


def test_a_log_that_was_cleaned_up_is_opened_again(tmp_path: Path) -> None:
    """What it said since is in a checkpoint alone."""
    path, opened = str(tmp_path / "t"), Handles()
    append(path, 0)
    assert opened.newest(path).version() == 0
    for number in range(1, 5):
        append(path, number)
    other = DeltaTable(path)
    other.create_checkpoint()
    for file in (tmp_path / "t" / "_delta_log").glob("*[0-3].json"):
        file.unlink()
    assert rows(opened.newest(path)) == [0, 1, 2, 3, 4]


def test_a_table_in_a_store_is_always_asked(tmp_path: Path, updates: list[str]) -> None:
    """Its folders have no times."""
    path = (tmp_path / "t").as_uri()
    opened = Handles()
    append(path, 0)
    assert [opened.newest(path).version() for _ in range(3)] == [0, 0, 0]
    assert len(updates) == 2


def test_a_table_that_was_just_created_is_looked_at(tmp_path: Path) -> None:
    """Somebody else may have written to it meanwhile."""
    path, opened = str(tmp_path / "t"), Handles()
    append(path, 0)
    opened.put(path, DeltaTable(path))
    append(path, 1)
    assert opened.newest(path).version() == 1


def test_an_applications_version_is_looked_up_once_for_each_version_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of anybody, and another table at the same path, are seen."""
    path, opened, asked = str(tmp_path / "t"), Handles(), list[str]()
    transaction_version = DeltaTable.transaction_version

    def noted(table: DeltaTable, app_id: str) -> int | None:
        asked.append(app_id)
        version: int | None = transaction_version(table, app_id)
        return version

    monkeypatch.setattr(DeltaTable, "transaction_version", noted)

    def commit(number: int, **versions: int) -> None:
        transactions = [Transaction(app_id, version) for app_id, version in versions.items()]
        rows, properties = pa.table({"n": [number]}), CommitProperties(app_transactions=transactions)
        write_deltalake(path, rows, mode="append", commit_properties=properties)

    def seen() -> list[int]:
        return [opened.last_version(path, app_id) for app_id in "abab"]

    commit(0, a=7)
    assert seen() == [7, -1, 7, -1]
    commit(1, b=3)
    assert seen() == [7, 3, 7, 3]
    assert asked == ["a", "b"] * 2
    shutil.rmtree(path)
    opened.forget(path)
    commit(0, a=1)
    commit(1, a=2)
    assert seen() == [2, -1, 2, -1]


LOG_FAULTS: Final[Mapping[str, tuple[Callable[[Path], Any], str]]] = {
    "half": (lambda file: file.write_bytes(file.read_bytes()[:40]), "it is not what was written"),
    "gone": (Path.unlink, "the file is gone"),
    "empty": (lambda file: file.write_bytes(b""), "it is empty"),
    "folder": (lambda file: file.rename(file.with_suffix(".old")).with_name(file.name).mkdir(), "it is a folder"),
}


@pytest.mark.parametrize("fault", LOG_FAULTS)
@pytest.mark.parametrize("pattern", ["*00.json", "*01.json", "*02.json", "*.checkpoint.parquet", "_last_checkpoint"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_damaged_file_of_a_log_is_named(tmp_path: Path, has_checkpoint: bool, pattern: str, fault: str) -> None:
    """If the newest version needs it: not a commit before a checkpoint, nor the hint where the last one is. A newest
    commit that is gone is a table set back, which others find."""
    path = tmp_path / "silver" / "group_events"
    for number in range(3):
        append(str(path), number)
    if has_checkpoint:
        DeltaTable(str(path)).create_checkpoint()
    files = list((path / "_delta_log").glob(pattern))
    do, said = LOG_FAULTS[fault]
    for file in files:
        do(file)
    is_needed = has_checkpoint == ("checkpoint." in pattern) and bool(files)
    if is_needed and (pattern, fault) != ("*02.json", "gone"):
        with pytest.raises(TableDamaged) as raised:
            Handles().newest(str(path))
        assert str(raised.value) == f"silver.group_events is damaged: {files[0]}: {said}"
    else:
        assert Handles().newest(str(path)).version() == (1 if is_needed else 2)
