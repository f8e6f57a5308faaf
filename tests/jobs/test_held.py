"""Readers see whole runs only: while one is under way, after one that broke off, and when one begins as they read."""

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from jobs.errors import WarehouseError
from jobs.runs import WholeRun
from jobs.silver_format import require_current_silver
from jobs.sinks import Warehouse
from jobs.sql import Catalogue
from schemas.tables.silver import OFFSET_COMMITS
from schemas.tables.state import RUNS, STARTS
from tests.jobs.test_sinks import rows

HOSTILE: Final = "b'); drop table x; --"
"""A cluster id."""


def begin(warehouse: Warehouse, cluster_id: str, version: int) -> None:
    """A replay says that it begins."""
    start = rows(STARTS, {"cluster_id": cluster_id, "replay_version": version, "is_rebuild": False})
    warehouse.write(STARTS, start, app_id=f"start/{cluster_id}", version=version)


def commits(warehouse: Warehouse, cluster_id: str, *offsets: int) -> int:
    """Write commits of a cluster; the version of the table."""
    made = rows(OFFSET_COMMITS, *({"cluster_id": cluster_id, "log_partition": 0, "log_offset": o} for o in offsets))
    return warehouse.write(OFFSET_COMMITS, made, app_id=f"rows/{cluster_id}", version=offsets[0]).version


def end(warehouse: Warehouse, cluster_id: str, version: int, table_version: int) -> None:
    """A replay is whole."""
    run = {
        "cluster_id": cluster_id,
        "run_id": f"r{version}",
        "replay_version": version,
        "table_versions": [(OFFSET_COMMITS.full_name, table_version)],
    }
    warehouse.write(RUNS, rows(RUNS, run), app_id=f"end/{cluster_id}", version=version)


@pytest.mark.spark
def test_each_cluster_is_held_at_a_version_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """One is whole, one at work on its second run, one on its first: the shell that is open sees all of it change."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    catalogue = Catalogue(spark, warehouse)

    def seen() -> list[tuple[str, int]]:
        query = f"select cluster_id, log_offset from {OFFSET_COMMITS.full_name} order by all"
        return [tuple(row) for row in catalogue.frame(query).collect()]

    for cluster_id in ("a", HOSTILE):
        begin(warehouse, cluster_id, 1)
        end(warehouse, cluster_id, 1, commits(warehouse, cluster_id, 1))
    catalogue = Catalogue(spark, warehouse)
    assert seen() == [("a", 1), (HOSTILE, 1)]
    for cluster_id in (HOSTILE, "c"):
        begin(warehouse, cluster_id, 2)
    held = commits(warehouse, HOSTILE, 2)
    commits(warehouse, "c", 2)
    commits(warehouse, "a", 2)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1)]
    end(warehouse, HOSTILE, 2, held)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1), (HOSTILE, 2)]
    end(warehouse, "c", 2, held)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1), (HOSTILE, 2), ("c", 2)]


def test_a_first_run_that_has_not_ended_has_no_readers(warehouse: Warehouse) -> None:
    """What it has written already is not all: whoever asks is told to wait."""
    require_current_silver(warehouse, "a")
    begin(warehouse, "a", 1)
    with pytest.raises(WarehouseError, match=r"the first replay of cluster 'a' .* has not ended"):
        require_current_silver(warehouse, "a")
    require_current_silver(warehouse, "b")


def test_a_run_that_begins_while_tables_are_read(warehouse: Warehouse) -> None:
    """Whoever began to read a whole run reads that one to its end, whatever was written since."""
    begin(warehouse, "a", 1)
    end(warehouse, "a", 1, commits(warehouse, "a", 1))
    reader, writer = WholeRun.newest(warehouse, "a"), WholeRun.newest(warehouse, "a", is_writer=True)
    assert reader.version_of(OFFSET_COMMITS) is None, "the newest, while nobody is at work"
    begin(warehouse, "a", 2)
    commits(warehouse, "a", 2)
    assert reader.read(OFFSET_COMMITS, ["log_offset"])["log_offset"].to_pylist() == [1]
    assert len(reader.files(OFFSET_COMMITS)) == 1
    assert len(writer.files(OFFSET_COMMITS)) == 2
