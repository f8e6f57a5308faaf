"""Logs of tables on a local disk, read and written here: they say what delta-rs reads in them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.delta.handles import Handles
from jobs.delta.local_log import LocalLog, delete_unfinished
from jobs.delta.part_files import write_parts
from jobs.delta.table_files import files_by_name
from jobs.delta.warehouse import MAINTAIN_APPLICATION, OVERWRITE, Warehouse
from jobs.errors import WarehouseError
from tests.jobs.table_rows import COMMITS, commits

CLUSTER = {"cluster_id": "c"}


def path_of(warehouse: Warehouse) -> str:
    """Of the table."""
    return warehouse.path(COMMITS)


def log_of(warehouse: Warehouse) -> LocalLog:
    """As it is now."""
    return LocalLog(path_of(warehouse), COMMITS, DeltaTable(path_of(warehouse)))


def made_here(warehouse: Warehouse) -> list[bool]:
    """Of each commit of the table, was it made here?"""
    files = sorted(Path(path_of(warehouse), "_delta_log").glob("*.json"))
    return ['"engineInfo":"groupledger"' in file.read_text() for file in files]


def stories(warehouse: Warehouse) -> Iterator[str]:
    """Commits of all kinds, one after another."""
    warehouse.write(COMMITS, commits(1, cluster_id="c"), app_id="a", version=3)
    yield "append"
    warehouse.write(COMMITS, commits(2, cluster_id="d \U0001f980/%41 \u2028\"'"), app_id="b", version=0)
    yield "another cluster"
    warehouse.write(COMMITS, commits(4, 5, cluster_id="c"), app_id="a", version=4, mode=OVERWRITE, replace=CLUSTER)
    yield "overwrite"
    (file,) = (file for file in warehouse.files(COMMITS) if file.partition_values["cluster_id"] == "c")
    parts = write_parts(warehouse.target(COMMITS), commits(6, cluster_id="c"))
    warehouse.commit(COMMITS, parts, app_id="a", version=5, removed=[file])
    yield "a file in place of another"
    write_deltalake(path_of(warehouse), commits(7, cluster_id="e"), mode="append")
    yield "by somebody else"
    DeltaTable(path_of(warehouse)).delete("cluster_id = 'e'")
    yield "taken out by somebody else"
    DeltaTable(path_of(warehouse)).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    yield "another property"
    warehouse.write(COMMITS, commits(), app_id="a", version=6, mode=OVERWRITE, replace=CLUSTER)
    yield "nothing in place of a cluster"


def test_a_log_says_what_delta_rs_reads_in_it(warehouse: Warehouse) -> None:
    """Files with their bounds and partitions, versions of applications: after each commit, of whomever, by a warehouse
    that reads it as it grows."""
    warehouse.ensure(COMMITS)
    reader = Warehouse(warehouse.root)
    for story in stories(warehouse):
        delta = DeltaTable(path_of(warehouse))
        expected = list(files_by_name(delta, path_of(warehouse), {}).values())
        for one in (warehouse, reader):
            assert one.files(COMMITS) == expected, story
            assert one.version(COMMITS) == delta.version(), story
            for app_id in ("a", "b", "none", MAINTAIN_APPLICATION):
                version = delta.transaction_version(app_id)
                assert one.last_version(COMMITS, app_id) == (-1 if version is None else version), story
    assert made_here(warehouse) == [False, True, True, True, True, False, False, False, True]
    assert all(file.minimum["recorded_at"].utcoffset() is not None for file in reader.files(COMMITS))


@pytest.mark.parametrize("at", [None, 0, 4, 9])
def test_a_log_knows_who_committed(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, at: int | None) -> None:
    """From the checkpoint and the commits behind it, whoever wrote them: delta-rs is asked for few applications."""
    warehouse.ensure(COMMITS)
    for number in range(10):
        if number == at:
            warehouse.checkpoint(COMMITS)
        warehouse.write(COMMITS, commits(number), app_id=f"a{number % 3}", version=number)
    write_deltalake(path_of(warehouse), commits(99), mode="append")
    delta = DeltaTable(path_of(warehouse))
    names = ["a0", "a1", "a2", "none"]
    expected = [-1 if (version := delta.transaction_version(name)) is None else version for name in names]
    assert expected == [9, 7, 8, -1]
    log = log_of(warehouse)
    assert [log.transaction_version(name) for name in ("x", "y")] == [-1, -1]
    monkeypatch.setattr(DeltaTable, "transaction_version", None)
    assert [log.transaction_version(name) for name in names] == expected


def test_where_commits_are_gone_delta_rs_is_asked(warehouse: Warehouse) -> None:
    """What the first commits said, without a checkpoint that is named or of one file, is delta-rs's to tell."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=5)
    warehouse.checkpoint(COMMITS)
    folder = Path(path_of(warehouse), "_delta_log")
    (folder / "00000000000000000001.json").unlink()
    named = json.loads((folder / "_last_checkpoint").read_text())
    for last in (None, "", "{}", json.dumps({**named, "version": 0})):
        (folder / "_last_checkpoint").unlink()
        log = log_of(warehouse)
        if last is not None:
            (folder / "_last_checkpoint").write_text(last)
        assert [log.transaction_version(name) for name in ("x", "y", "a", "z")] == [-1, -1, 5, -1]
        (folder / "_last_checkpoint").touch()


def test_what_a_killed_commit_left_is_deleted(warehouse: Warehouse) -> None:
    """By the next run that commits to the table; a young one may be of a commit under way."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    folder = Path(path_of(warehouse), "_delta_log")
    old, young, other = (folder / name for name in ("_commit_a.json.tmp", "_commit_b.json.tmp", "_commit_a.json"))
    for file in (old, young, other):
        file.write_bytes(b"{}")
    for file in (old, other):
        os.utime(file, (0, 0))
    Warehouse(warehouse.root).write(COMMITS, commits(2), app_id="a", version=2)
    assert (old.exists(), young.exists(), other.exists()) == (False, True, True)


def test_an_erasure_leaves_nothing_that_is_unfinished(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """However young: bounds of rows are in it. A commit that loses its file so is made by delta-rs."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    unfinished = Path(path_of(warehouse), "_delta_log", "_commit_b.json.tmp")
    unfinished.write_bytes(b"{}")
    warehouse.forget_history(COMMITS)
    assert not unfinished.exists()
    link = os.link

    def meanwhile(source: Path, name: str) -> None:
        delete_unfinished(path_of(warehouse), age_seconds_min=0)
        link(source, name)

    monkeypatch.setattr(os, "link", meanwhile)
    warehouse.write(COMMITS, commits(2), app_id="a", version=2)
    assert sorted(warehouse.read(COMMITS, ["log_offset"])["log_offset"].to_pylist()) == [1, 2]


def test_a_table_is_opened_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many commits there are, of this process and of others."""
    opened: list[str] = []
    newest = Handles.newest

    def noted(self: Handles, path: str) -> DeltaTable:
        opened.append(path)
        return newest(self, path)

    monkeypatch.setattr(Handles, "newest", noted)
    other = Warehouse(warehouse.root)
    for number in range(4):
        for one in (warehouse, other):
            one.write(COMMITS, commits(number), app_id=str(id(one)), version=number)
    count = len(opened)
    for number in range(4, 8):
        for one in (warehouse, other):
            one.write(COMMITS, commits(number), app_id=str(id(one)), version=number)
    assert len(warehouse.files(COMMITS)) == 16
    assert len(opened) == count


def test_the_commit_of_a_checkpoint_is_delta_rs_s(warehouse: Warehouse) -> None:
    """So that a log which is written here gets its checkpoints all the same."""
    warehouse.ensure(COMMITS)
    DeltaTable(path_of(warehouse)).alter.set_table_properties({"delta.checkpointInterval": "10"})
    for number in range(25):
        warehouse.write(COMMITS, commits(number), app_id="a", version=number)
    log = Path(path_of(warehouse), "_delta_log")
    assert len(list(log.glob("*.checkpoint.parquet"))) == 2
    assert sum(made_here(warehouse)) == 23
    assert len(Warehouse(warehouse.root).files(COMMITS)) == 25


def test_who_was_slower_changes_nothing(warehouse: Warehouse) -> None:
    """Of two commits of one number the first one stays; what was written for the other is not left behind."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    stale = log_of(warehouse)
    write_deltalake(path_of(warehouse), commits(2), mode="append")
    folder = Path(path_of(warehouse), "_delta_log")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert stale.commit([], [], {"a": 2}, OVERWRITE) is None
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert warehouse.last_version(COMMITS, "a") == 1


def test_who_was_slower_commits_behind_the_other(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not touch: delta-rs says whether they do."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    link = os.link

    def slower(source: Path, name: str) -> None:
        monkeypatch.setattr(os, "link", link)
        write_deltalake(path_of(warehouse), commits(2), mode="append")
        link(source, name)

    monkeypatch.setattr(os, "link", slower)
    committed = warehouse.write(COMMITS, commits(3), app_id="a", version=2)
    assert (committed.version, committed.skipped) == (3, False)
    assert sorted(warehouse.read(COMMITS, ["log_offset"])["log_offset"].to_pylist()) == [1, 2, 3]


def test_a_commit_that_cannot_be_written_leaves_nothing(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, which is said with the table."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    folder = Path(path_of(warehouse), "_delta_log")
    before = sorted(folder.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(WarehouseError, match=r"no space left on device: cannot write silver\.offset_commits"):
        warehouse.write(COMMITS, commits(2), app_id="a", version=2)
    assert sorted(folder.iterdir()) == before
    assert warehouse.last_version(COMMITS, "a") == 1


@pytest.mark.parametrize(
    "properties", [{"delta.appendOnly": "true"}, {"delta.enableChangeDataFeed": "true"}], ids=lambda it: next(iter(it))
)
def test_a_table_that_asks_for_more_is_delta_rs_s(warehouse: Warehouse, properties: dict[str, str]) -> None:
    """What somebody wants to hold for its commits, it knows."""
    warehouse.ensure(COMMITS)
    DeltaTable(path_of(warehouse)).alter.set_table_properties(properties)
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    assert made_here(warehouse) == [False] * 3
    assert len(warehouse.files(COMMITS)) == 1


def test_a_log_that_was_cleaned_up_is_opened_again(warehouse: Warehouse) -> None:
    """What it said since is in a checkpoint alone."""
    warehouse.write(COMMITS, commits(0), app_id="a", version=0)
    other = Warehouse(warehouse.root)
    for number in range(1, 5):
        other.write(COMMITS, commits(number), app_id="a", version=number)
    other.checkpoint(COMMITS)
    for file in Path(path_of(warehouse), "_delta_log").glob("*[0-4].json"):
        file.unlink()
    assert warehouse.version(COMMITS) == 5 and len(warehouse.files(COMMITS)) == 5
    assert warehouse.last_version(COMMITS, "a") == 4


def test_others_read_a_commit_that_was_made_here(warehouse: Warehouse) -> None:
    """With what Delta's protocol wants of each action."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    warehouse.write(COMMITS, commits(2), app_id="a", version=2, mode=OVERWRITE)
    delta = DeltaTable(path_of(warehouse))
    assert [entry["operation"] for entry in delta.history(2)] == ["WRITE"] * 2
    text = Path(path_of(warehouse), "_delta_log", f"{2:020}.json").read_text()
    actions = {kind: action for line in text.splitlines() for kind, action in json.loads(line).items()}
    assert set(actions) == {"commitInfo", "add", "remove", "txn"}
    assert set(actions["remove"]) >= {"path", "deletionTimestamp", "dataChange", "partitionValues", "size"}
    assert delta.to_pyarrow_table(columns=["log_offset"]) == pa.table({"log_offset": [2]})
