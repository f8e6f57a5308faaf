"""nightly from end to end: what it says last is what the tables hold, and a metastore knows all that there is."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.exit_codes import DONE
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import load_settings
from jobs.spark.executors import Executor, SparkExecutor
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

SMALL: Final = RECORDINGS / "codec-zstd"
FULL: Final = RECORDINGS / "full-a"


def nightly(executor: Executor, root: Path, recording: Path, run_id: str = "r1") -> list[str]:
    """What a run over a recording says, line by line."""
    settings = load_settings(
        {"warehouse": str(root), "cluster_id": "night", "segments": (str(recording / "logs"),)}, environment={}
    )
    warehouse = Warehouse(settings.warehouse)
    out = StringIO()
    steps = Steps(executor, Console(file=out, width=200))
    started_at = datetime(2026, 1, 1, tzinfo=UTC)
    assert (
        run_nightly(RunContext(executor, warehouse, settings, run_id=run_id, started_at=started_at, steps=steps))
        == DONE
    )
    return out.getvalue().splitlines()


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table, as delta-rs reads them."""
    found: list[dict[str, Any]] = DeltaTable(str(root / table.replace(".", "/"))).to_pyarrow_table().to_pylist()
    return found


@pytest.mark.first
def test_spark_makes_the_tables_that_are_made_without(spark: SparkSession, no_spark: Executor, tmp_path: Path) -> None:
    """Of a small recording: other tests of nights leave Spark out."""
    with_spark, without = tmp_path / "with", tmp_path / "without"
    for executor, root in ((SparkExecutor(spark), with_spark), (no_spark, without)):
        nightly(executor, root, SMALL)
    for table in (*SILVER_TABLES, *GOLD_TABLES):
        name = table.full_name
        assert sorted(map(repr, rows(with_spark, name))) == sorted(map(repr, rows(without, name))), name
    assert rows(with_spark, "gold.rebalances") and rows(with_spark, "silver.offset_commits")


def test_it_ends_with_what_it_found(spark: SparkSession, tmp_path: Path) -> None:
    """The numbers are those of gold, counted another way; at most 25 lines of 120 characters, and five on a second
    night over the same log."""
    said = nightly(SparkExecutor(spark), tmp_path, FULL)
    begin = next(index for index, line in enumerate(said) if line.startswith("Night of 2026-11-21, cluster night: "))
    assert said[begin].endswith(" (4,000 records, 0 quarantined)") and " COMPLETE to 02:57:53 " in said[begin]
    assert len(said) - begin <= 25 and max(map(len, said[begin:-2])) <= 120
    assert " groups need attention: " in said[begin + 1] and said[begin + 2] == "NEW tonight"
    reported = {line.split()[0]: int(line.split()[1]) for line in said[begin + 3 : -2]}
    archived = rows(tmp_path, "gold.archived_records")
    offsets = Counter[str | None]()
    for row in archived:
        offsets[row["likely_cause"]] += row["last_offset"] - row["first_offset"] + 1
    no_records = sum(offsets[cause] for cause in ("TRANSACTION_MARKER", "ABORTED_TRANSACTION", "GAP"))
    assert reported["archived"] == offsets.total() - no_records > 0 < no_records
    rebalances = rows(tmp_path, "gold.rebalances")
    assert reported["flapping"] == sum(row["in_storm"] for row in rebalances)
    assert reported["share-offsets"] == len(rows(tmp_path, "gold.share_offset_changes"))
    anomalies = rows(tmp_path, "gold.commit_anomalies")
    back = [row for row in anomalies if (row["to_offset"] or 0) < (row["from_offset"] or 0)]
    assert reported["rewinds"] == sum(row["kind"] == "REWIND" for row in back)
    assert reported["deleted"] == sum(
        row["kind"] == "DELETED" and row["likely_cause"] not in ("TOPIC_DELETED", "GROUP_DELETED", "EXPIRED")
        for row in anomalies
    )
    place = f"--warehouse {tmp_path} --cluster-id night"
    assert said[-2:] == [
        f"Each command needs {place}",
        f"Report: ./spark-submit.sh report --output report.html {place}",
    ]
    again = nightly(SparkExecutor(spark), tmp_path, FULL, "r2")
    begin = next(index for index, line in enumerate(again) if line.startswith("Night of "))
    assert "(0 records, 0 quarantined)" in again[begin]
    assert again[begin + 1].startswith(said_of := said[said.index("NEW tonight") - 1]) and said_of
    assert again[begin + 2] == "Nothing new tonight" and len(again) - begin <= 5


METASTORE_SESSION = """
import json, sys
from pathlib import Path
from jobs.spark.session import start_session
from tests.spark_defaults import spark_defaults
from jobs.settings import PROJECT_ROOT
from jobs.delta.warehouse import Warehouse
from jobs.spark.executors import SparkExecutor
from jobs.errors import SqlError
from jobs.queries.sql.sql_spark import Catalogue, publish
from tests.jobs.operations.test_nightly import SMALL, nightly

root, scratch = Path(sys.argv[1]), sys.argv[2]
overrides = spark_defaults() | {
    "spark.master": "local[2]",
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile=file:{PROJECT_ROOT}/conf/log4j2.properties"
        f" -Dderby.system.home={scratch} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    ),
}
session = start_session("metastore", overrides)
executor = SparkExecutor(session)
said = nightly(executor, root / "here", SMALL)
other = session.newSession()
counts = {
    name: other.sql(f"SELECT count(*) FROM {name}").first()[0]
    for name in (
        "gold.partition_owners", "current_groups", "group_at(timestamp'2100-01-01 00:00:00Z')", "current_offsets"
    )
}
publish(executor, Warehouse(str(root / "here")))
elsewhere = Warehouse(str(root / "elsewhere"))
(root / "here").rename(root / "elsewhere")
try:
    Catalogue(other, elsewhere).prepare("select * from gold.rebalances")
    error_text = ""
except SqlError as error:
    error_text = str(error)
print(json.dumps([counts, [line for line in said if line.startswith("tables, views")], error_text]))
"""


@takes_minutes
def test_a_metastore_knows_all_that_there_is(tmp_path: Path) -> None:
    """After nightly, a session that knows the metastore alone finds tables, views and functions; one metastore takes
    one warehouse, and says so."""
    done = subprocess.run(
        [sys.executable, "-c", METASTORE_SESSION, str(tmp_path / "wh"), str(tmp_path)],
        cwd=PROJECT_ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts, said, reported = json.loads(done.stdout.splitlines()[-1])
    root = tmp_path / "wh" / "elsewhere"
    newest = [row for row in rows(root, "silver.group_generations") if row["valid_to"] is None]
    assert counts["gold.partition_owners"] == len(rows(root, "gold.partition_owners")) > 0
    assert counts["current_groups"] == counts["group_at(timestamp'2100-01-01 00:00:00Z')"] == len(newest) > 0
    assert counts["current_offsets"] > 0
    assert len(said) == 1
    assert "gold.rebalances" in reported and "a metastore of its own" in reported
