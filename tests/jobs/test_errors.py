"""Errors that are one line: of a full disk the one that came first, with the table and the folder."""

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake.exceptions import DeltaError

from jobs.cli import outcome
from jobs.delta import part_files
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.part_files import PartTarget, PartWriter
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, NoSpaceLeft, is_no_space
from schemas.tables.state import RUNS

FULL = OSError(errno.ENOSPC, "No space left on device")


class FullDisk:
    """A file of which nothing can be written, and which cannot be closed either."""

    bounds: dict[str, Any] = {}  # noqa: RUF012
    size_bytes = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def write(self, *_: Any) -> None:
        """No."""
        raise FULL

    def close(self) -> None:
        """As Arrow's files say it after that."""
        raise ValueError("I/O operation on closed file")


def test_the_error_of_writing_is_reported_and_not_that_of_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the table and its folder; so it does after a task's way through pickle."""
    monkeypatch.setattr(part_files, "ParquetFileWriter", FullDisk)
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
    assert exited.value.exit_code == outcome.FAILED
    assert len(lines) == 1 and lines[0].startswith("error: no space left on device: ") and said in lines[0]


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    """Nor is one that merely has the number in it."""
    assert not is_no_space(JobError("28 partitions")) and not is_no_space(OSError(errno.EACCES, "Permission denied"))
    assert not is_no_space(DeltaError("os error 281"))
