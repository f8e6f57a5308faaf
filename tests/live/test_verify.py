"""verify against real brokers: no difference where the ledger is right, the planted one where it is not."""

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import CoordinatorNotAvailableError, NoError
from kafka.structs import OffsetAndMetadata
from pyspark.sql import SparkSession

from coordinator_core.history.comparison_with_broker import Verdict
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.warehouse import Warehouse
from jobs.queries.verify.verify import run_verify
from jobs.settings import Settings, load_settings
from jobs.spark.executors import SparkExecutor
from schemas.tables.declare import Table
from schemas.tables.silver import GROUP_MEMBERS, OFFSET_COMMITS, SHARE_STATE_BATCHES
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes
from tests.live.broker import CLIENT_SETTINGS, BrokerTopic, LiveBroker
from tests.live.clients import LiveClients
from tests.live.conftest import Played
from tests.live.kafka_home import KafkaHome
from tests.live.ledger import CLUSTER_ID, Ledger

KINDS: Final = {"group", "member", "assignment", "offset", "share-offset", "share-state"}
CHURN_GROUPS: Final = 16
CHURN_S: Final = 20
ROUNDS: Final = 3
JOB_TIMEOUT_S: Final = 600
"""The first job after a change compiles the hot loops."""
COORDINATOR_TRIES_MAX: Final = 100

Row = dict[str, Any]


def ledger_of(spark: SparkSession, root: Path, **sources: Any) -> Ledger:
    return Ledger(SparkExecutor(spark), root, **sources)


def settings_of(address: str, warehouse: Path) -> Settings:
    """As the command line makes them."""
    options = {"bootstrap_servers": address, "warehouse": str(warehouse), "cluster_id": CLUSTER_ID}
    return load_settings(options, environment={})


def verified(
    address: str, warehouse: Path, ledger: Callable[[], Any] = lambda: None, **options: Any
) -> tuple[Verdict, list[Row]]:
    """The worst verdict, and the rows which verify prints; `ledger` makes the warehouse when the broker was asked."""
    out = io.StringIO()

    def made() -> ClusterTables:
        ledger()
        return ClusterTables(Warehouse(str(warehouse)), CLUSTER_ID)

    asked = {"group_ids": None, "output_format": "json", "verbose": True, **options}
    worst = run_verify(settings_of(address, warehouse), made, say=lambda _: None, out=out, **asked)
    return worst, [json.loads(line) for line in out.getvalue().splitlines()]


def unequal(rows: list[Row]) -> list[Row]:
    """What is not equal."""
    return [row for row in rows if row["VERDICT"] != "EQUAL"]


@dataclass(frozen=True)
class Verified:
    """A ledger of the broker whose groups rest, made while it was verified, and what came of that."""

    warehouse: Path
    worst: Verdict
    rows: list[Row]


@pytest.fixture(scope="module")
def first(played: Played, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Verified:
    """As the command does it: the broker is asked, then its log captured and replayed, then both compared."""
    root, address = tmp_path_factory.mktemp("verify") / "warehouse", played.broker.address
    return Verified(root, *verified(address, root, lambda: ledger_of(spark, root, bootstrap_servers=address)))


def test_the_ledger_of_a_live_broker_is_what_the_broker_says(played: Played, first: Verified) -> None:
    """Groups of every kind, with rebalances, transactions of every end and redeliveries behind them: all is equal."""
    assert (first.worst, unequal(first.rows)) == (Verdict.EQUAL, [])
    assert {row["WHAT"] for row in first.rows} == KINDS
    assert {row["GROUP"] for row in first.rows if row["WHAT"] == "group"} >= played.groups.keys()


PLANTED: Final[Mapping[str, tuple[Table, Callable[[Row], bool], str, Callable[[Any], Any], tuple[str, str]]]] = {
    "one offset": (
        OFFSET_COMMITS,
        lambda row: row["group_id"].startswith("consumer-range") and row["outcome"] == "APPLIED",
        "committed_offset",
        lambda offset: offset + 1,
        ("offset", "offset"),
    ),
    "one member": (
        GROUP_MEMBERS,
        lambda row: row["group_type"] == "CLASSIC" and row["to_log_offset"] is None,
        "client_host",
        lambda _: "/10.9.9.9",
        ("member", "client_host"),
    ),
    "one share batch": (
        SHARE_STATE_BATCHES,
        lambda row: row["to_log_offset"] is None,
        "delivery_count",
        lambda count: count + 1,
        ("share-state", "batches"),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found_and_named(played: Played, first: Verified, tmp_path: Path, name: str) -> None:
    """One cell of silver was changed: that thing is different, with both values, and nothing else is."""
    table, is_it, column, change, (what, field) = PLANTED[name]
    root = tmp_path / "warehouse"
    shutil.copytree(first.warehouse, root)
    planted = plant(Warehouse(str(root)), table, is_it, column, change)
    worst, rows = verified(played.broker.address, root)
    (found,) = unequal(rows)
    assert worst is Verdict.DIFFERENT
    assert (found["VERDICT"], found["WHAT"], found["FIELD"]) == ("DIFFERENT", what, field)
    assert found["GROUP"] == planted["group_id"]
    assert found["OF"] == (planted.get("member_id") or f"{planted['topic']}-{planted['partition']}")
    assert found["BROKER"] != found["LEDGER"]


def plant(
    warehouse: Warehouse, table: Table, is_it: Callable[[Row], bool], column: str, change: Callable[[Any], Any]
) -> Row:
    """Change the newest row that is such a one, through the door by which replay writes; gives the row."""
    rows = warehouse.read(table, where={"cluster_id": CLUSTER_ID}).to_pylist()
    row = max(filter(is_it, rows), key=lambda row: row.get("applied_log_offset") or row.get("from_log_offset") or 0)
    row[column] = change(row[column])
    app_id = "planted"
    warehouse.write(
        table,
        pa.Table.from_pylist(rows, schema=arrow_schema(table)),
        app_id=app_id,
        version=warehouse.last_version(table, app_id) + 1,
        mode=OVERWRITE,
        replace={"cluster_id": CLUSTER_ID},
    )
    return dict(row)


def test_one_group_alone(played: Played, first: Verified) -> None:
    """With --group the others are not asked for, and none of theirs is missed; one that is nowhere is no difference."""
    group_id = next(name for name, group in played.groups.items() if group.kind == "share")
    worst, rows = verified(played.broker.address, first.warehouse, group_ids=[group_id, "nobody"])
    assert (worst, {row["GROUP"] for row in rows}) == (Verdict.EQUAL, {group_id})


@takes_minutes
def test_one_more_commit_than_was_captured(home: KafkaHome, spark: SparkSession, tmp_path: Path) -> None:
    """A ledger that is behind is different with --captured, and says how far; brought up to date it is equal."""
    topic = BrokerTopic("orders", "tmyj-FEYST-VyJ_du8dc1w", (0,))
    root = tmp_path / "warehouse"
    with LiveBroker(home, tmp_path / "broker", topics=[topic]) as broker:
        commit(broker.address, 5)
        ledger_of(spark, root, bootstrap_servers=broker.address)
        assert verified(broker.address, root)[0] is Verdict.EQUAL
        commit(broker.address, 6)
        worst, rows = verified(broker.address, root)
        assert worst is Verdict.DIFFERENT
        (found,) = unequal(rows)
        assert (found["GROUP"], found["OF"]) == ("billing", "orders-0")
        assert (found["BROKER"], found["LEDGER"]) == (6, 5)
        assert "the warehouse at" in found["REASON"]
        caught_up = verified(broker.address, root, lambda: ledger_of(spark, root, bootstrap_servers=broker.address))
        assert (caught_up[0], unequal(caught_up[1])) == (Verdict.EQUAL, [])


def commit(address: str, offset: int) -> None:
    """An offset of a group without members, by a Python client."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        for _ in range(COORDINATOR_TRIES_MAX):
            with suppress(CoordinatorNotAvailableError):
                asked = {TopicPartition("orders", 0): OffsetAndMetadata(offset, "", -1)}
                if set(admin.alter_group_offsets("billing", asked).values()) == {NoError}:
                    return
            time.sleep(0.2)  # the first question makes __consumer_offsets
        raise AssertionError("the group has no coordinator")
    finally:
        admin.close()


@takes_minutes
def test_groups_that_do_not_hold_still(home: KafkaHome, spark: SparkSession, tmp_path: Path) -> None:
    """While groups of all kinds rebalance, commit and redeliver, no answer of the broker is called different."""
    root = tmp_path / "warehouse"
    with (
        LiveBroker(home, tmp_path / "broker", settings=CLIENT_SETTINGS) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        clients.churn(seed=11, group_count=CHURN_GROUPS, pause_ms_max=200)
        for _ in range(ROUNDS):
            time.sleep(CHURN_S)
            worst, rows = verified(
                broker.address, root, lambda: ledger_of(spark, root, bootstrap_servers=broker.address)
            )
            assert worst <= Verdict.MOVED_ON, unequal(rows)
        clients.calm()
        worst, rows = verified(broker.address, root, lambda: ledger_of(spark, root, bootstrap_servers=broker.address))
        assert (worst, unequal(rows)) == (Verdict.EQUAL, [])


@takes_minutes
def test_the_command(played: Played, tmp_path: Path) -> None:
    """Captures, replays and compares in one go: exit code 0; 1 once a difference is planted; names the one."""
    root = tmp_path / "warehouse"
    words = ["--bootstrap-server", played.broker.address, "--warehouse", str(root), "--cluster-id", CLUSTER_ID]
    first = submit("verify", *words)
    assert (first.returncode, first.stdout.splitlines()[0].split()[0]) == (0, "WHAT"), first.stderr
    table, is_it, column, change, _ = PLANTED["one offset"]
    planted = plant(Warehouse(str(root)), table, is_it, column, change)
    second = submit("verify", *words, "--captured", "--format", "csv")
    assert second.returncode == 1, second.stderr
    (line,) = second.stdout.splitlines()[1:]
    assert line.startswith(f"DIFFERENT,offset,{planted['group_id']},")


def submit(*words: str) -> subprocess.CompletedProcess[str]:
    """./spark-submit.sh, with the environment of this test run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GROUPLEDGER_")}
    return subprocess.run(
        [str(PROJECT_ROOT / "spark-submit.sh"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_TIMEOUT_S,
        env=environment | {"PYSPARK_PYTHON": sys.executable},
    )
