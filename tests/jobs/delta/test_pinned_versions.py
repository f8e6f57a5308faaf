"""Readers see whole runs only: while one is under way, after one that broke off, and when one begins as they read."""

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.pinned_versions import ASKED_MAX, of_one_run, pinned_versions
from jobs.delta.replay_runs import Start, WholeRun
from jobs.delta.silver_format import require_current_silver
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.queries.answers.findings import findings
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.sql.sql import run_query
from jobs.queries.sql.sql_spark import Catalogue
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.gold import GOLD_TABLES, REBALANCES
from schemas.tables.silver import OFFSET_COMMITS, SILVER_TABLES
from schemas.tables.state import RUN_STARTS, RUNS
from tests.answers import owners_at
from tests.jobs.silver.test_incremental_replay import BrokenOffError, break_off
from tests.jobs.silver.test_replay import CLUSTER, STARTED_AT, Jobs
from tests.jobs.slices import slices_of
from tests.jobs.table_rows import rows
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

LOGS: Final = RECORDINGS / "codec-gzip" / "logs"
TOPIC: Final = "r02-consumer-live"
OF_SILVER: Final = tuple(table.full_name for table in SILVER_TABLES)
OF_GOLD: Final = tuple(table.full_name for table in GOLD_TABLES)
ASKED: Final = ("silver.offset_commits", "silver.group_events", "gold.partition_owners", "gold.group_summary")
"""Of each layer a table that a run which breaks off has written already, and one that it has not."""
QUERIES: Final = {
    "current_offsets": "select * from current_offsets order by all",
    "owner_at": f"select * from owner_at('{TOPIC}', 0, timestamp'2030-01-01T00:00:00Z') order by all",
}
READ_GOLD: Final = ("gold.partition_owners", "gold.group_summary", "owner_at", "rebalances", "findings")
"""Answers made of gold."""
HOSTILE: Final = "b'); drop table x; --"
"""A cluster id."""


def answers(session: SparkSession, warehouse: Warehouse) -> dict[str, Any]:
    """The answers that readers of all kinds get, by a catalogue of their own."""
    catalogue = Catalogue(session, warehouse)
    newest = SilverAt(ClusterTables(warehouse, CLUSTER))
    reported: dict[str, Any] = {
        "describe": newest.groups(with_offsets=True),
        "owner": owners_at(warehouse, CLUSTER, topic=TOPIC, partition=0),
        "rebalances": sorted(map(repr, newest.scan(REBALANCES, ["group_id", "started_at", "cause"]).to_pylist())),
        "findings": findings(ClusterTables(warehouse, CLUSTER)),
    }
    sums = " union all ".join(f"select '{name}', sum(hash(to_json(struct(*)))) from {name}" for name in ASKED)
    reported |= dict(map(tuple, catalogue.frame(sums).collect()))
    for name, query in QUERIES.items():
        out = io.StringIO()
        run_query(catalogue, query, "csv", out)
        reported[name] = out.getvalue()
    return reported


@takes_minutes
@pytest.mark.parametrize("application", ["replay", "audit"])
def test_a_run_broken_off_between_two_tables_changes_no_answer(
    own_session: SparkSession, no_spark: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, application: str
) -> None:
    """SQL, its views and functions, describe, owner and what is found: all as before, until the next run is whole."""
    parts = slices_of(LOGS, tmp_path / "parts", lambda name: [0.6])
    jobs = Jobs(no_spark, tmp_path / "warehouse", parts[0])
    jobs.nightly("night-0")
    before = answers(own_session, jobs.warehouse)
    assert pinned_versions(jobs.warehouse) == {}
    jobs.settings = replace(jobs.settings, segments=(str(parts[1]),))
    break_off(monkeypatch, 5, application)
    with pytest.raises(BrokenOffError):
        jobs.nightly("night-1")
    monkeypatch.undo()
    of_run = OF_SILVER if application == "replay" else OF_GOLD
    pinned = {table.full_name: versions[CLUSTER] for table, versions in pinned_versions(jobs.warehouse).items()}
    written = [name for name in of_run if pinned[name] != jobs.warehouse.version(TABLES[name])]
    assert 0 < len(written) < len(of_run), "it broke off between two tables"
    now = answers(own_session, jobs.warehouse)
    # after an audit that broke off silver is whole, and its readers have what is new
    same = now.keys() if application == "replay" else READ_GOLD
    assert {name: now[name] for name in same} == {name: before[name] for name in same}
    jobs.nightly("night-2")
    assert pinned_versions(jobs.warehouse) == {}
    after = answers(own_session, jobs.warehouse)
    assert {name for name in written if name in ASKED and after[name] != before[name]}


def begin(warehouse: Warehouse, cluster_id: str, version: int) -> None:
    """A replay says that it begins."""
    start = rows(RUN_STARTS, {"cluster_id": cluster_id, "replay_version": version, "is_rebuild": False})
    warehouse.write(RUN_STARTS, start, app_id=f"start/{cluster_id}", version=version)


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


def test_each_cluster_is_pinned_at_a_version_of_its_own(own_session: SparkSession, tmp_path: Path) -> None:
    """One is whole, one at work on its second run, one on its first: the shell that is open sees all of it change."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    catalogue = Catalogue(own_session, warehouse)

    def seen() -> list[tuple[str, int]]:
        query = f"select cluster_id, log_offset from {OFFSET_COMMITS.full_name} order by all"
        return [tuple(row) for row in catalogue.frame(query).collect()]

    for cluster_id in ("a", HOSTILE):
        begin(warehouse, cluster_id, 1)
        end(warehouse, cluster_id, 1, commits(warehouse, cluster_id, 1))
    catalogue = Catalogue(own_session, warehouse)
    assert seen() == [("a", 1), (HOSTILE, 1)]
    for cluster_id in (HOSTILE, "c"):
        begin(warehouse, cluster_id, 2)
    pinned = commits(warehouse, HOSTILE, 2)
    commits(warehouse, "c", 2)
    commits(warehouse, "a", 2)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1)]
    end(warehouse, HOSTILE, 2, pinned)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1), (HOSTILE, 2)]
    end(warehouse, "c", 2, pinned)
    assert seen() == [("a", 1), ("a", 2), (HOSTILE, 1), (HOSTILE, 2), ("c", 2)]


def test_a_first_run_that_has_not_ended_has_no_readers(warehouse: Warehouse) -> None:
    """What it has written already is not all: whoever asks has to wait."""
    require_current_silver(ClusterTables(warehouse, "a"))
    begin(warehouse, "a", 1)
    with pytest.raises(WarehouseError, match=r"the first replay of cluster 'a' .* has not ended"):
        require_current_silver(ClusterTables(warehouse, "a"))
    require_current_silver(ClusterTables(warehouse, "b"))


def test_a_run_that_begins_while_tables_are_read(warehouse: Warehouse) -> None:
    """Whoever began to read a whole run reads that one to its end, whatever was written since."""
    begin(warehouse, "a", 1)
    end(warehouse, "a", 1, commits(warehouse, "a", 1))
    reader, writer = (
        WholeRun.newest(ClusterTables(warehouse, "a")),
        WholeRun.newest(ClusterTables(warehouse, "a"), is_writer=True),
    )
    assert reader.version_of(OFFSET_COMMITS) is None, "the newest, while nobody is at work"
    begin(warehouse, "a", 2)
    commits(warehouse, "a", 2)
    assert reader.read(OFFSET_COMMITS, ["log_offset"])["log_offset"].to_pylist() == [1]
    assert len(reader.files(OFFSET_COMMITS)) == 1
    assert len(writer.files(OFFSET_COMMITS)) == 2


def test_an_answer_that_a_run_crossed_is_made_again(warehouse: Warehouse) -> None:
    """Its first reads may be of another run than its last ones; one that is crossed each time is an error."""
    made: list[int] = []

    @of_one_run
    def ask(tables: ClusterTables, crossed: int) -> int:
        made.append(len(made))
        if len(made) <= crossed:
            start = Start(len(made), "r", STARTED_AT, 0, -1, -1, False)
            tables.write(RUN_STARTS, [asdict(start)], app_id="a", version=len(made))
        return made[-1]

    assert ask(ClusterTables(warehouse, "c"), 2) == 2
    with pytest.raises(WarehouseError, match="ask again"):
        ask(ClusterTables(warehouse, "c"), 99)
    assert len(made) == 3 + ASKED_MAX
