"""A warehouse on HDFS and on S3: the same tables, by the same writer."""

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyarrow import fs
from pyspark.sql import SparkSession

from jobs.delta.filesystems import delete_folder, filesystem_of
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.operations.maintain import maintain
from tests.cases.harness import CASES, CLUSTER_ID, FIRST_NIGHT, Ledger
from tests.faults.harness import differences, digests
from tests.jobs.delta.test_warehouse import offsets
from tests.jobs.frames import frame
from tests.jobs.in_process import in_process
from tests.jobs.table_rows import COMMITS, commits
from tests.lengths import takes_minutes
from tests.live.job import Job

LOGS: Final = CASES / "X-compaction"
POINTS: Final = ("before bronze.record_batches", "after silver.offset_commits", "before gold.partition_owners")


def test_files(store: str) -> None:
    """What is written is read, listed and deleted, whatever is in its name."""
    filesystem, folder = filesystem_of(f"{store}/files/a b=1%ü")
    data = bytes(range(256)) * 50_000
    with filesystem.open_output_stream(f"{folder}/x/part") as out:
        for start in range(0, len(data), 1 << 20):
            out.write(data[start : start + (1 << 20)])
    with filesystem.open_input_file(f"{folder}/x/part") as source:
        assert source.size() == len(data)
        assert source.read() == data
        assert source.read_at(300, 1_000_000) == data[1_000_000:1_000_300]
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    assert {(info.path, info.type) for info in found} == {
        (f"{folder}/x", fs.FileType.Directory),
        (f"{folder}/x/part", fs.FileType.File),
    }
    delete_folder(f"{store}/files")
    # on HDFS empty folders stay
    left = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    assert [info.path for info in left if info.type != fs.FileType.Directory] == []


def test_commits_race(store: str) -> None:
    """Many writers at one time: each commit is there once; one that read an older version is refused."""
    root = f"{store}/race"
    Warehouse(root).ensure(COMMITS)

    def write(number: int) -> None:
        Warehouse(root).write(COMMITS, commits(number), app_id=f"writer-{number}", version=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    warehouse = Warehouse(root)
    assert offsets(warehouse) == list(range(16))
    assert warehouse.write(COMMITS, commits(3), app_id="writer-3", version=1).skipped
    stale, files = warehouse.version(COMMITS), warehouse.files(COMMITS)
    DeltaTable(warehouse.path(COMMITS)).create_write_transaction(
        [],
        mode="append",
        schema=DeltaTable(warehouse.path(COMMITS)).schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("writer-1", 2)]),
    )
    with pytest.raises(WarehouseError, match="another run wrote to it meanwhile"):
        warehouse.swap(
            COMMITS,
            files,
            [],
            version=stale,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            writers=["writer-1"],
            changes_rows=True,
        )
    assert offsets(warehouse) == list(range(16))


@takes_minutes
def test_nights_are_those_of_a_local_disk(store: str, tmp_path: Path) -> None:
    """Two nights and maintenance: every table as on a local disk."""
    ledgers = [Ledger(tmp_path / "local"), Ledger(f"{store}/nights")]
    for ledger in ledgers:
        for number, copy in enumerate(sorted(path for path in LOGS.iterdir() if path.is_dir())[:2]):
            ledger.night(copy, number=number)
        settings = ledger.settings()
        summary = maintain(
            in_process(),
            ledger.warehouse,
            replace(settings, maintain=replace(settings.maintain, merge_file_count_min=2)),
            started_at=FIRST_NIGHT + timedelta(days=9),
            vacuum_after_ms=0,
            allows_short_retention=True,
        )
        assert any(done.file_count < done.file_count_before for done in summary.tables)
        assert any(done.deleted_count for done in summary.tables)
    local, distributed = (digests(ledger.warehouse) for ledger in ledgers)
    assert differences(distributed, local) == []
    assert local["silver.offset_commits"][0] > 0


@takes_minutes
def test_spark_reads_it(spark: SparkSession, store: str) -> None:
    """Spark's own Delta reader, by Hadoop's client, sees the rows."""
    if store.startswith("s3"):
        pytest.skip("Hadoop's client of S3 is no part of Spark's own jars")
    warehouse = Warehouse(f"{store}/spark")
    warehouse.write(COMMITS, commits(1, 2), app_id="a", version=1)
    rows = frame(spark, warehouse, COMMITS).collect()
    assert sorted(row["log_offset"] for row in rows) == [1, 2]


@takes_minutes
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_is_killed(store: str, tmp_path: Path, point: str) -> None:
    """kill -9 at three places of a night: one run later the tables are as if nothing had been."""
    root = f"{store}/killed/{point.replace(' ', '-')}"
    words = ("--warehouse", root, "--cluster-id", CLUSTER_ID, "--segments", str(LOGS / "full"))
    with Job(tmp_path, "nightly", *words, environment={"GROUPLEDGER_FAULT": f"SIGKILL {point}"}) as job:
        assert job.wait() == -signal.SIGKILL, job.end_of_said()
    undisturbed = Ledger(tmp_path / "undisturbed")
    undisturbed.night(LOGS / "full")
    expected = digests(undisturbed.warehouse)
    assert differences(digests(Warehouse(root)), expected), "the fault came too late to prove anything"
    with Job(tmp_path, "nightly", *words) as job:
        assert job.wait() == 0, job.end_of_said()
    assert differences(digests(Warehouse(root)), expected) == []
