"""Errors that are one line: of a full disk the one that came first, with the table and the folder."""

import errno
import os
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake.exceptions import DeltaError

from jobs import exit_codes
from jobs.bronze.export_segments import ExportWork, export_log
from jobs.cli import outcome
from jobs.console.new_files import new_file
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.filesystems import write_whole
from jobs.delta.locks import only_one
from jobs.delta.part_files import PartTarget, PartWriter
from jobs.delta.warehouse import LOCKS, Warehouse
from jobs.errors import JobError, NoSpaceLeft, NotWritable, TableDamaged, is_no_space, writing
from jobs.operations.clusters import night_of
from jobs.settings import load_settings
from schemas.tables.state import RUNS

FULL = OSError(errno.ENOSPC, "No space left on device")


class FullDisk:
    """A file of which nothing can be written, and which cannot be closed either."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def write_table(self, *_: Any) -> None:
        """No."""
        raise FULL

    def close(self) -> None:
        """As Arrow's files say it after that."""
        raise ValueError("I/O operation on closed file")


def test_the_error_of_writing_is_reported_and_not_that_of_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the table and its folder; so it does after a task's way through pickle."""
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", FullDisk)
    schema = arrow_schema(RUNS)
    row = pa.Table.from_pylist([dict.fromkeys(schema.names)], schema=pa.schema([f.with_nullable(True) for f in schema]))
    target = PartTarget(RUNS.full_name, str(tmp_path / "runs"), "zstd")
    values = dict.fromkeys(RUNS.partition_by, "c")
    with pytest.raises(NoSpaceLeft) as raised, PartWriter(target, "part", values) as writer:
        writer._write(row)
    assert str(raised.value) == (
        f"no space left on device: cannot write state.runs in {tmp_path}/runs. Free some space there and run the same "
        "command again"
    )
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (NoSpaceLeft, str(raised.value))


@pytest.mark.parametrize("step", ["_commit", "_create"])
def test_deltas_log_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """delta-rs says it in several lines."""
    warehouse = Warehouse(str(tmp_path))
    reported = DeltaError(
        "Generic LocalFileSystem error: Unable to copy data to file:\n  No space left on device (os error 28)"
    )

    def full(*_: Any, **__: Any) -> None:
        raise reported

    if step == "_commit":
        warehouse.ensure(RUNS)
        monkeypatch.setattr(Warehouse, step, full)
    else:
        monkeypatch.setattr("jobs.delta.warehouse.DeltaTable.create", full)
    with pytest.raises(NoSpaceLeft, match=r"cannot write state\.runs in .*/state/runs\. Free") as raised:
        warehouse.commit(RUNS, [], app_id="a", version=1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("is_commit", [True, False])
def test_locks_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_commit: bool) -> None:
    """What is to be written when a file of a lock cannot be made is named as well."""
    warehouse = Warehouse(str(tmp_path), takes_turns=True)
    mkdir = Path.mkdir

    def full(self: Path, *words: Any, **options: Any) -> None:
        if self.name == LOCKS:
            raise FULL
        mkdir(self, *words, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    if is_commit:
        with pytest.raises(NoSpaceLeft, match=r"cannot write state\.runs in .*/state/runs\. Free"):
            warehouse.commit(RUNS, [], app_id="a", version=1)
    else:
        since = datetime(2026, 11, 26, tzinfo=UTC)
        with (
            pytest.raises(NoSpaceLeft, match=r"cannot write a lock in .*/_locks\. Free"),
            only_one(warehouse, "replay", "c", since=since),
        ):
            raise AssertionError("without a lock")


def test_a_report_goes_to_where_a_link_points_and_into_a_pipe(tmp_path: Path) -> None:
    """What is no plain file stays what it is: a device would be lost for everybody on the machine."""
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    link.symlink_to(target)
    write_whole(link, b"linked")
    assert link.is_symlink()
    assert target.read_bytes() == b"linked"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"piped")
        assert os.read(reader, 100) == b"piped"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_file_is_written_whole_or_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk what was there stays, and no part of the new one."""
    file = tmp_path / "report.html"
    write_whole(file, b"before")

    def full(*_: Any) -> None:
        raise FULL

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"after")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("report.html", b"before")]


def test_a_part_of_a_file_that_resets_offsets_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would reset some partitions alone, and keep the next try from its name."""
    file = tmp_path / "reset.csv"

    def on_a_full_disk(self: Path, *_: Any, **__: Any) -> Any:
        self.touch()
        return open("/dev/full", "w", encoding="utf-8")  # noqa: PTH123  (`Path.open` is replaced)

    monkeypatch.setattr(Path, "open", on_a_full_disk)
    with (
        pytest.raises(JobError, match=r"cannot write .*reset\.csv: No space left on device"),
        new_file(str(file)) as out,
    ):
        out.write("g,t,0,1\n")
    assert not file.exists()


def test_an_export_on_a_full_disk_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the log partition."""

    def full(*_: Any) -> None:
        raise FULL

    monkeypatch.setattr("jobs.bronze.export_segments.rows_in_order", full)
    with pytest.raises(NoSpaceLeft, match=r"cannot write segments in .*/t-0\. Free"):
        export_log(ExportWork("t", 0, (), str(tmp_path / "t-0")))


def test_a_night_of_a_list_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line says so, wherever that was."""

    def full(*_: Any) -> None:
        raise FULL

    monkeypatch.setattr("jobs.operations.cluster_night.run_nightly", full)
    settings = load_settings({"cluster_id": "c", "warehouse": str(tmp_path)}, environment={})
    night = night_of(settings, "r", datetime(2026, 11, 26, tzinfo=UTC))
    assert night.error.startswith("no space left on device: free some, ")


def failing(error: Exception) -> Callable[[], int]:
    """A job."""

    def job() -> int:
        raise error

    return job


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoSpaceLeft("gold.rebalances", "/w/gold/rebalances"), "cannot write gold.rebalances in /w/gold/rebalances."),
        (
            RuntimeError(
                "Traceback (most recent call last):\n  File x\nOSError: [Errno 28] Error writing bytes\n\nThe above "
                f"exception was\n\njobs.errors.NoSpaceLeft: {NoSpaceLeft('state.runs', '/w')}\n\tat java.lang.Thread"
            ),
            "cannot write state.runs in /w.",
        ),
        (RuntimeError("java.io.IOException: No space left on device\n\tat java.io"), "the temporary folder too"),
    ],
)
def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, said: str) -> None:
    """Exit code 1, whether the driver met it, a task or the JVM."""
    with pytest.raises(typer.Exit) as exited:
        outcome.run_job(failing(error), debug=False)
    lines = capsys.readouterr().err.splitlines()
    assert exited.value.exit_code == exit_codes.FAILED
    assert len(lines) == 1 and lines[0].startswith("error: no space left on device: ") and said in lines[0]


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "no"), DeltaError("Permission denied (os error 13)")])
def test_a_folder_that_must_not_be_written_is_named(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever refuses it, also in a task, whose error Spark passes on as text."""
    with pytest.raises(NotWritable) as raised, writing("state.runs", "/w"):
        raise error
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (NotWritable, str(raised.value))
    for met in (again, RuntimeError(f"Traceback (most recent call last):\njobs.errors.NotWritable: {again}\n\tat x")):
        with pytest.raises(typer.Exit):
            outcome.run_job(failing(met), debug=False)
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("error: not writable: cannot write state.runs in /w, which is read-only")


def test_damage_that_a_task_meets_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is found in the text of Spark's error, whatever else that has; the line has the remedy."""
    path = f"{tmp_path}/a b/silver/group_events/part-1.parquet"
    damage = TableDamaged("silver.group_events", path, "the file is gone")
    again = pickle.loads(pickle.dumps(damage))
    assert (type(again), str(again)) == (TableDamaged, str(damage))
    met = RuntimeError(
        f"Job aborted\nTraceback (most recent call last):\n  File x\njobs.errors.TableDamaged: {again}\n"
    )
    with pytest.raises(typer.Exit) as exited:
        outcome.run_job(failing(met), debug=False)
    assert exited.value.exit_code == exit_codes.FAILED
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: silver.group_events is damaged: {path}: the file is gone. Rebuild the table: ")


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    """Nor is one that merely has the number in it."""
    assert not is_no_space(JobError("28 partitions")) and not is_no_space(OSError(errno.EACCES, "Permission denied"))
    assert not is_no_space(DeltaError("os error 281"))
