"""Continuous capture of a real broker: exactly once, through crashes, lost checkpoints and other captures."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaProducer
from kafka.protocol.consumer import OffsetCommitRequest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.bronze import capture as capture_job
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.capture import capture
from jobs.bronze.coverage_merge import write_coverage
from jobs.bronze.writer import CaptureRun
from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.operations.continuous_capture import ContinuousCapture
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import BrokerAddress, Settings, load_settings
from jobs.sources.broker import Broker, Coordinator
from jobs.spark.executors import SparkExecutor
from jobs.spark.tasks import run_tasks
from schemas.tables.bronze import CONFIGS, COVERAGE, END_OFFSETS, RECORD_BATCHES, TOPICS
from schemas.tables.gold import LAG_HISTORY
from schemas.tables.silver import TOPICS as SILVER_TOPICS
from tests.live.broker import BrokerTopic, LiveBroker
from tests.live.kafka_home import KafkaHome

OFFSETS: Final = "__consumer_offsets"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT_S: Final = 240
EVERY_MS: Final = 500


@pytest.fixture(scope="module")
def broker(home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker with one topic that groups may read."""
    topics = [BrokerTopic("orders", "orders0000000000000AAA"[:21] + "A", [0, 0])]
    with LiveBroker(home, tmp_path_factory.mktemp("broker") / "broker", topics=topics) as running:
        yield running


@dataclass
class Stream:
    """A continuous capture in a thread, run after run over one warehouse."""

    executor: SparkExecutor
    warehouse: Warehouse
    settings: Settings
    broker: LiveBroker
    text: StringIO = field(default_factory=StringIO)
    commit_count: int = 0
    _count: int = 0

    def run_of(self) -> CaptureRun:
        """The next capture's id and time."""
        self._count += 1
        return CaptureRun("c", f"run-{self._count}", START + timedelta(seconds=self._count))

    def commit(self, count: int, group: str = "g") -> None:
        """Records for the log: a group without members commits."""
        with Broker.connect(BrokerAddress(self.broker.address)) as connection:
            for _ in range(count):
                self.commit_count += 1
                commit_offset(connection, group, self.commit_count)

    def while_running(self, act: Callable[[ContinuousCapture], None]) -> None:
        """Start, act, stop; what the run raised is raised."""
        steps = Steps(self.executor, Console(file=self.text, width=300))
        running = ContinuousCapture(
            self.executor, self.warehouse, self.settings, every_ms=EVERY_MS, new_run=self.run_of, steps=steps
        )
        failed: list[BaseException] = []

        def run() -> None:
            try:
                running.run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            act(running)
        finally:
            running.stop()
            thread.join()
        for error in failed:
            raise error

    def until_captured(self, _: object = None) -> None:
        """Wait until bronze has all that the broker wrote."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.rows() != self.on_disk():
            assert time.monotonic() < deadline, self.text.getvalue()
            time.sleep(0.1)

    def rows(self) -> list[bytes]:
        """The batches in bronze, by offset."""
        rows = self.warehouse.read(RECORD_BATCHES, ["topic", "partition", "base_offset", "batch"]).to_pylist()
        rows.sort(key=lambda row: (row["topic"], row["partition"], row["base_offset"]))
        return [row["batch"] for row in rows]

    def on_disk(self) -> list[bytes]:
        """The batches in the broker's segment files, by offset."""
        found = []
        for folder in sorted(self.broker.data.glob(f"{OFFSETS}-*"), key=lambda it: int(it.name.rpartition("-")[2])):
            for segment in sorted(folder.glob("*.log")):
                data = segment.read_bytes()
                position = 0
                while position < len(data):
                    end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                    found.append(data[position:end])
                    position = end
        return found

    def kinds(self) -> set[str]:
        """Of coverage."""
        return set(self.warehouse.read(COVERAGE, ["kind"])["kind"].to_pylist())


@pytest.fixture
def stream(spark: SparkSession, warehouse: Warehouse, broker: LiveBroker) -> Stream:
    """Over an empty warehouse, the log not empty."""
    options = {
        "bootstrap_servers": broker.address,
        "cluster_id": "c",
        "topics": (OFFSETS,),
        "end_offsets_every_ms": 1000,
        "lag_every_ms": 1,
    }
    made = Stream(SparkExecutor(spark), warehouse, load_settings(options, environment={}), broker)
    made.commit(10)
    return made


def commit_offset(connection: Broker, group: str, offset: int, partition: int = 0) -> None:
    """OffsetCommit of a group without members."""
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    committed = of_topic.OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        commit_timestamp=-1,
        committed_metadata="",
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[of_topic(name="orders", partitions=[committed])],
        max_version=8,
    )
    answer = connection.send(request, Coordinator(group), error_code=lambda it: it.topics[0].partitions[0].error_code)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_stream_takes_all_and_goes_on_where_it_ended(stream: Stream) -> None:
    """What was there, what came meanwhile, what came while it was stopped: each batch once, as on disk; the ends of the
    topics that groups read, names and configs come with it."""

    def more(_: object) -> None:
        stream.until_captured()
        stream.commit(20, "h")
        stream.until_captured()

    stream.while_running(more)
    stream.commit(5)
    stream.while_running(stream.until_captured)
    assert stream.kinds() == {"CAPTURED"}
    assert "behind: nothing" in stream.text.getvalue().splitlines()[-1]
    samples = stream.warehouse.read(END_OFFSETS).to_pylist()
    assert {(row["topic"], row["partition"], row["end_offset"]) for row in samples} == {
        ("orders", 0, 0),
        ("orders", 1, 0),
    }
    assert OFFSETS in first_topic_ids(ClusterTables(stream.warehouse, "c"))
    reported = {row["name"] for row in stream.warehouse.read(CONFIGS).to_pylist() if row["resource_type"] == "BROKER"}
    assert "group.share.delivery.count.limit" in reported
    rows = stream.warehouse.read(TOPICS).num_rows
    assert rows == len(set(stream.warehouse.read(TOPICS, ["topic_id"])["topic_id"].to_pylist()))


def test_a_round_that_failed_half_way_doubles_nothing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in, coverage is not: the next round adds it."""
    failures = iter([True])

    def fails_once(*arguments: Any) -> bool:
        if next(failures, False):
            raise OSError("the disk was away for a moment")
        return write_coverage(*arguments)

    def more(_: object) -> None:
        stream.until_captured()
        stream.commit(1)
        stream.until_captured()

    monkeypatch.setattr(capture_job, "write_coverage", fails_once)
    stream.while_running(more)
    assert "interrupted: " in stream.text.getvalue()
    assert stream.kinds() == {"CAPTURED"}


def test_bronze_has_the_last_word(stream: Stream) -> None:
    """What came while no capture ran comes once; where bronze is gone, everything comes again."""
    stream.while_running(stream.until_captured)
    stream.commit(3)
    stream.while_running(stream.until_captured)
    shutil.rmtree(Path(stream.warehouse.root) / "bronze")
    stream.while_running(stream.until_captured)
    assert stream.kinds() == {"CAPTURED"}


def test_lag_is_reported_from_samples_of_a_live_cluster(stream: Stream) -> None:
    """Ends are sampled before and after a commit, and gold knows how far it was behind; the topic has its name from
    Admin, since no log that was read tells it."""
    with KafkaProducer(bootstrap_servers=stream.broker.address) as producer:
        for _ in range(50):
            producer.send("orders", b"x", partition=1)
    capture(stream.executor, stream.warehouse, stream.settings, capture_id="before", captured_at=datetime.now(UTC))
    with Broker.connect(BrokerAddress(stream.broker.address)) as connection:
        commit_offset(connection, "lagging", 20, partition=1)
    steps = Steps(stream.executor, Console(file=stream.text, width=300))
    now = datetime.now(UTC)
    code = run_nightly(
        RunContext(stream.executor, stream.warehouse, stream.settings, run_id="n", started_at=now, steps=steps)
    )
    assert code == 0, stream.text.getvalue()
    rows = stream.warehouse.read(LAG_HISTORY, where={"group_id": "lagging"}).to_pylist()
    assert [(row["topic"], row["partition"], row["committed_offset"], row["lag"]) for row in rows] == [
        ("orders", 1, 20, 30)
    ]
    named = {row["topic"]: row["learned_from"] for row in stream.warehouse.read(SILVER_TOPICS).to_pylist()}
    assert named["orders"] == "ADMIN"


def test_another_capture_meanwhile_does_no_harm(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture which commits while a round is at work: the round looks again, and nothing doubles."""

    def meanwhile(*arguments: Any) -> Any:
        done = run_tasks(*arguments)
        monkeypatch.setattr(capture_job, "run_tasks", run_tasks)
        capture(stream.executor, stream.warehouse, stream.settings, capture_id="other", captured_at=START)
        return done

    monkeypatch.setattr(capture_job, "run_tasks", meanwhile)
    stream.while_running(stream.until_captured)
    assert "another capture of this cluster committed first" in stream.text.getvalue()
    assert len(set(stream.rows())) == len(stream.rows())
