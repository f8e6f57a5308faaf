"""The API over Spark Connect: a server of its own process, and a client without a JVM."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from tests.conftest import PROJECT_ROOT
from tests.groupledger.conftest import Recorded
from tests.lengths import takes_minutes
from tests.spark_defaults import spark_defaults

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_SECONDS_MAX = 120

CLIENT = """
import sys
from pyspark.sql import SparkSession
import groupledger

url, folder, cluster_id = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
records = spark.read.parquet(f"{folder}/raw")
groups = groupledger.replay_groups(records, cluster_id=cluster_id)
shares = groupledger.replay_share_partitions(records, cluster_id=cluster_id, topics=groups.topics)
for name in ("silver.offset_commits", "silver.group_members", "silver.group_events"):
    groups.tables[name].write.parquet(f"{folder}/{name}")
shares.state_batches.write.mode("overwrite").saveAsTable("state_batches")
spark.table("state_batches").write.parquet(f"{folder}/silver.share_state_batches")
groupledger.decode(records).where("error is null").write.parquet(f"{folder}/decoded")
try:
    groupledger.replay_groups(records.drop("offset"))
except groupledger.RecordsError as error:
    print(error)
from pyspark.sql import functions as F
for own in ({"key": F.col("nope")}, {"topic": F.lit(None)}):
    try:
        groupledger.replay_groups(records, columns=own)
    except groupledger.RecordsError as error:
        print(error)
from pyspark import SparkContext
assert SparkContext._gateway is None and SparkContext._jvm is None
"""

MORE = """
import sys
from pyspark.sql import SparkSession
import groupledger

url, folder, cluster_id, warehouse = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()

def read(name):
    return groupledger.read(spark, name, warehouse=warehouse, cluster_id=cluster_id)

read("gold.rebalances").write.parquet(f"{folder}/read")
try:
    groupledger.read(spark, "gold.rebalances", warehouse=f"{folder}/nowhere")
except Exception as error:
    print(type(error).__name__, error)
records = spark.read.parquet(f"{folder}/raw")
topics, configs, counts = read("silver.topics"), read("silver.configs"), read("silver.partition_counts")
groups = groupledger.replay_groups(records, cluster_id=cluster_id, topics=topics)
shares = groupledger.replay_share_partitions(records, cluster_id=cluster_id, topics=topics)
batches = spark.read.format("delta").load(f"{warehouse}/bronze/record_batches")
of_groups = groupledger.audit_groups(
    groups, topics=topics, configs=configs, partition_counts=counts, batches=batches
)
of_groups.rebalances.write.parquet(f"{folder}/gold.rebalances")
of_shares = groupledger.audit_share_partitions(shares, groups=groups, configs=configs)
of_shares.redeliveries.write.parquet(f"{folder}/gold.redeliveries")
groupledger.register(spark)
records.where("topic = '__consumer_offsets' and not is_control").createOrReplaceTempView("api_records")
spark.sql('''
    SELECT * FROM replay_group(name => 'silver.group_members', records =>
        TABLE(SELECT *, coordinator_key(key).group_id AS group_id FROM api_records)
        PARTITION BY (partition, group_id) ORDER BY offset)
''').write.parquet(f"{folder}/silver.group_members")
from pyspark import SparkContext
assert SparkContext._gateway is None and SparkContext._jvm is None
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Connect server of two cores on a free port of this machine: its address."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {name: value for name, value in spark_defaults().items() if not name.startswith("spark.driver")} | {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # as in the session of the other tests: compiling queries takes longer than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--class", SERVER, "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    environment = os.environ | {
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(submit.parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*words, "spark-internal"], env=environment, cwd=folder, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_client(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a client where there is no Java."""
    environment = {name: value for name, value in os.environ.items() if not re.match("JAVA|SPARK|PYSPARK", name)}
    environment |= {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def assert_same_rows(made: Path, expected: pa.Table, left_out: Sequence[str] = ()) -> None:
    """The rows of Parquet files are those of a table of nightly, some columns left out."""
    expected = expected.select([name for name in expected.column_names if name not in left_out])
    rows = pq.read_table(made).select(expected.column_names).cast(expected.schema)
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.parametrize("recording", ["codec-gzip", pytest.param("full-a", marks=takes_minutes)])
def test_tables_over_connect(server: str, recorded: Recorded, tmp_path: Path, recording: str) -> None:
    """A client that has no Java makes nightly's tables on a Connect server, saves one in its catalogue, and learns of a
    missing column before anything runs."""
    ledger, records = recorded(recording)
    (tmp_path / "raw").mkdir()
    pq.write_table(records, tmp_path / "raw" / "records.parquet")
    done = run_client(CLIENT, server, str(tmp_path), ledger.cluster_id)
    assert "records have no column 'offset'" in done.stdout
    assert "columns has what Spark cannot resolve" in done.stdout
    assert "it holds nulls alone, so leave topic out" in done.stdout
    for name in ("silver.offset_commits", "silver.group_members", "silver.group_events", "silver.share_state_batches"):
        assert_same_rows(tmp_path / name, ledger.table(name), ["topic"])
    assert pq.read_table(tmp_path / "decoded").num_rows > len(records) / 2 > 200


@takes_minutes
def test_gold_warehouse_and_sql_over_connect(server: str, recorded: Recorded, tmp_path: Path) -> None:
    """The same client makes nightly's gold of a replay, reads a table of the warehouse as the last run left it, gets an
    error where there is none, and replays in SQL."""
    ledger, records = recorded("full-a")
    (tmp_path / "raw").mkdir()
    pq.write_table(records, tmp_path / "raw" / "records.parquet")
    done = run_client(MORE, server, str(tmp_path), ledger.cluster_id, str(ledger.root))
    assert "WarehouseError there is no table gold.rebalances in" in done.stdout
    assert_same_rows(tmp_path / "read", ledger.table("gold.rebalances"))
    assert_same_rows(tmp_path / "gold.rebalances", ledger.table("gold.rebalances"))
    assert_same_rows(tmp_path / "gold.redeliveries", ledger.table("gold.redeliveries"), ["is_settled"])
    assert_same_rows(tmp_path / "silver.group_members", ledger.table("silver.group_members"), ["cluster_id"])
