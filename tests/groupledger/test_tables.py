"""Tables of a warehouse, read as whole runs left them."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import groupledger
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from schemas.tables import TABLES
from schemas.tables.state import RUN_STARTS
from tests.cases.harness import FIRST_NIGHT, Ledger
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import recording
from tests.lengths import takes_minutes

NAMES = ("silver.group_events", "silver.offset_commits", "gold.rebalances")


@dataclass(frozen=True)
class Asked:
    """Arguments of `read` besides the table's name."""

    warehouse: str | None = None
    cluster_id: str | None = None
    at: datetime | None = None


def test_options_of_a_write_leave_personal_columns_out(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """Delta's log has statistics of the key and the group alone: none of metadata or of members."""
    ledger, _ = recorded("full-a")
    name = "silver.offset_commits"
    rows = groupledger.read(spark, name, warehouse=str(ledger.root)).coalesce(1)
    rows.write.format("delta").options(**groupledger.write_options(name)).save(str(tmp_path / "commits"))
    log = (tmp_path / "commits" / "_delta_log" / f"{0:020}.json").read_text()
    (added,) = (action["add"] for action in map(json.loads, log.splitlines()) if "add" in action)
    assert json.loads(added["stats"])["minValues"].keys() == {
        "cluster_id",
        "log_partition",
        "log_offset",
        "group_id",
        "topic",
        "partition",
    }
    for name, table in TABLES.items():
        if table.layer in ("silver", "gold"):
            columns = set(groupledger.write_options(name)["delta.dataSkippingStatsColumns"].split(","))
            assert columns <= set(table.column_names)
            assert not columns & {column.name for column in table.columns if column.is_personal}


@takes_minutes
def test_last_whole_runs_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """What is read is what the newest whole run left, though another begins and writes; at a time, what was there then;
    of two clusters, each as its own run left it."""
    ledger = Ledger(tmp_path, "a")
    ledger.night(recording("codec-zstd"))
    first = {name: len(ledger.rows(name)) for name in NAMES}
    ledger.night(recording("old-40"), number=2, cluster_id="b")
    both = {name: len(ledger.rows(name)) for name in NAMES}
    root = str(tmp_path)

    def counts(cluster_id: str | None = None, at: datetime | None = None) -> dict[str, int]:
        frames = {name: groupledger.read(spark, name, warehouse=root, cluster_id=cluster_id, at=at) for name in NAMES}
        return {name: frame.count() for name, frame in frames.items()}

    assert counts() == both
    assert counts(cluster_id="a") == first
    assert counts(at=FIRST_NIGHT + timedelta(days=1)) == first

    pinned = groupledger.read(spark, "silver.group_events", warehouse=root)
    warehouse = Warehouse(root)
    start = warehouse.read(RUN_STARTS).filter(pa.compute.field("cluster_id") == "a").slice(0, 1).to_pylist()[0]
    begun = pa.Table.from_pylist([start | {"replay_version": 10, "run_id": "late"}], schema=arrow_schema(RUN_STARTS))
    warehouse.write(RUN_STARTS, begun, app_id="test", version=1)
    table = TABLES["silver.group_events"]
    rows = warehouse.read(table).slice(0, 5)
    warehouse.write(table, rows, app_id="test", version=1)
    assert pinned.count() == both["silver.group_events"]
    assert (
        groupledger.read(spark, "silver.group_events", warehouse=root, cluster_id="a").count()
        == first["silver.group_events"]
    )


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("silver.nothing", Asked(), "there is no table 'silver.nothing' that runs leave whole; there are: silver."),
        ("state.runs", Asked(), "there is no table 'state.runs'"),
        ("silver.group_events", Asked(warehouse="/nowhere"), "there is no table silver.group_events in '/nowhere'"),
        ("silver.group_events", Asked(cluster_id="z"), "has no whole run of cluster 'z': run nightly first"),
        ("gold.rebalances", Asked(at=FIRST_NIGHT), "has no whole run that had started by 2026-11-25T00:00:00+00:00"),
    ],
)
def test_what_is_not_there_is_said(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, name: str, asked: Asked, message: str
) -> None:
    """A table, a cluster or a run that is not there is one error with the remedy."""
    root = tmp_path_factory.getbasetemp() / "whole"
    if not root.exists():
        Ledger(root).night(recording("codec-zstd"))
    with pytest.raises(WarehouseError) as raised:
        groupledger.read(spark, name, warehouse=asked.warehouse or str(root), cluster_id=asked.cluster_id, at=asked.at)
    assert message in str(raised.value)
