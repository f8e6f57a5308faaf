"""The API over Spark Connect: a server of its own process, and a client without a JVM."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from schemas.tables import TABLES
from tests.conftest import PROJECT_ROOT
from tests.groupledger.conftest import Recorded

pytestmark = pytest.mark.slow

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
shares.state_batches.write.saveAsTable("state_batches")
spark.table("state_batches").write.parquet(f"{folder}/silver.share_state_batches")
groupledger.decode(records).where("error is null").write.parquet(f"{folder}/decoded")
try:
    groupledger.replay_groups(records.drop("offset"))
except groupledger.RecordsError as error:
    print(error)
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
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--class", SERVER]
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


def test_tables_over_connect(server: str, recorded: Recorded, tmp_path: Path) -> None:
    """A client that has no Java makes nightly's tables on a Connect server, saves one in its catalogue, and learns of a
    missing column before anything runs."""
    ledger, records = recorded("full-a")
    (tmp_path / "raw").mkdir()
    pq.write_table(records, tmp_path / "raw" / "records.parquet")
    environment = {name: value for name, value in os.environ.items() if not re.match("JAVA|SPARK|PYSPARK", name)}
    environment |= {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, server, str(tmp_path), ledger.cluster_id],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "records have no column 'offset'" in done.stdout
    for name in ("silver.offset_commits", "silver.group_members", "silver.group_events", "silver.share_state_batches"):
        columns = [column for column in TABLES[name].column_names if column != "topic"]
        expected = ledger.table(name).select(columns)
        made = pq.read_table(tmp_path / name).select(columns).cast(expected.schema)
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert pq.read_table(tmp_path / "decoded").num_rows > 2000
