"""Capture of a live log from fake brokers: what is asked for, what is lost, what joins. Tasks run without Spark."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from coordinator_core.bytes.log.batch import Record, build_batch
from jobs.bronze.capture import CaptureSummary, capture, capture_logs, find_sources, refuse_other_logs
from jobs.bronze.cluster_watch import ClusterWatch, watch_once
from jobs.bronze.coverage import COMPACTION, CRC_MISMATCH, HOLE, LOG_START, from_table
from jobs.bronze.identity import CLUSTER, Identity, keep_identities
from jobs.bronze.plan import Sources
from jobs.bronze.snapshot import Bronze
from jobs.bronze.writer import CaptureRun
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import BrokerError, SourceError
from jobs.operations.continuous_capture import ContinuousCapture, next_offset
from jobs.settings import BrokerAddress, Settings, load_settings
from jobs.sources.broker import Broker
from schemas.tables import TABLES
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES
from tests.jobs import fake_kafka
from tests.jobs.builders import batch, damaged, write_segment
from tests.jobs.fake_kafka import TOPIC, FakeKafka, code, then
from tests.jobs.in_process import in_process

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SESSION: Final = in_process()
LOG: Final = [batch(0, 3), batch(3), batch(4, 6), batch(10)]

pytestmark = [
    pytest.mark.usefixtures("left_sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """A broker with one log partition."""
    with FakeKafka() as cluster:
        cluster.logs[0] = list(LOG)
        yield cluster


class Capturing:
    """Captures run after run."""

    def __init__(self, warehouse: Warehouse, kafka: FakeKafka) -> None:
        self.warehouse = warehouse
        self.kafka = kafka
        self.runs = 0

    def __call__(
        self, *segments: Path, to: dict[int, int] | None = None, ids: dict[str, str] | None = None, **options: Any
    ) -> CaptureSummary:
        """Once; `to`: only a piece of the live log, up to an offset, as a micro-batch takes it. `ids`: of topics, as
        they were first captured."""
        self.runs += 1
        values = {
            "bootstrap_servers": self.kafka.address,
            "segments": tuple(map(str, segments)),
            "cluster_id": "c",
            "topics": (TOPIC,),
            "request_timeout_ms": 5_000,
        }
        settings = load_settings(values | options, environment={})
        sources = find_sources(settings)
        bronze = Bronze.load(ClusterTables(self.warehouse, "c"))
        refuse_other_logs(sources.live, bronze, ids or {})
        if to is not None:
            live = [_up_to(log, to[log.partition]) for log in sources.live if log.partition in to]
            starts = {(log.topic, log.partition): next_offset(log, bronze) for log in live}
            sources = Sources(live=live, pieces_from=starts)
        run = CaptureRun("c", f"run-{self.runs}", START + timedelta(minutes=self.runs))
        return capture_logs(SESSION, self.warehouse, settings, bronze, sources, run)[0]

    def rows(self) -> list[bytes]:
        """The batches in bronze, by offset."""
        rows = self.warehouse.read(RECORD_BATCHES, ["base_offset", "last_offset", "batch"]).to_pylist()
        rows.sort(key=lambda row: row["base_offset"])
        assert all(before["last_offset"] < after["base_offset"] for before, after in pairwise(rows))
        return [row["batch"] for row in rows]

    def coverage(self) -> list[tuple[int, int, str, str | None]]:
        """(from, to, kind, reason)."""
        found = from_table(self.warehouse.read(COVERAGE)).get((TOPIC, 0), [])
        return [(r.from_offset, r.to_offset, r.kind.name, r.reason) for r in found]

    def quarantined(self) -> list[tuple[str, int | None, str]]:
        """(code, base offset, source)."""
        rows = self.warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
        return [(row["code"], row["base_offset"], row["source"]) for row in rows]


def _up_to(log: Any, offset: int) -> Any:
    return type(log)(log.address, log.topic, log.partition, log.topic_id, log.log_start_offset, offset)


@pytest.fixture
def run(warehouse: Warehouse, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> Capturing:
    """Captures into an empty warehouse."""
    return Capturing(warehouse, kafka)


def test_only_what_is_new_is_fetched(run: Capturing, kafka: FakeKafka) -> None:
    """The second capture begins with the last batch of the first, and a third one of an idle log fetches nothing."""
    assert run().batch_count == 4
    kafka.logs[0].append(batch(11, 2))
    kafka.fetches.clear()
    assert run().batch_count == 1
    assert kafka.fetches == [(1, [(0, 10)])]
    kafka.fetches.clear()
    assert run().batch_count == 0
    assert kafka.fetches == []
    assert run.rows() == kafka.logs[0]
    assert run.coverage() == [(0, 12, "CAPTURED", None)]


@pytest.mark.parametrize("step", [1, 2, 5])
def test_pieces_may_end_in_the_middle_of_a_batch(run: Capturing, kafka: FakeKafka, step: int) -> None:
    """Micro-batches of any size: a batch comes with the piece its last offset lies in, and nothing is said to be a hole
    which is only not yet read."""
    kafka.logs[0] = [batch(0, 3), batch(3), batch(7, 6), batch(13)]
    for end in range(step, 15, step):
        run(to={0: min(end, 14)})
        assert {kind for _, _, kind, _ in run.coverage()} <= {"CAPTURED", "COMPACTED"}
    run(to={0: 14})
    assert run.rows() == kafka.logs[0]
    assert run.coverage() == [(0, 3, "CAPTURED", None), (4, 6, "COMPACTED", COMPACTION), (7, 13, "CAPTURED", None)]


@pytest.mark.parametrize("task_bytes_max", [100, 300, 500])
def test_a_large_log_is_read_in_parts(run: Capturing, kafka: FakeKafka, task_bytes_max: int) -> None:
    """Parts that are cut anywhere give each batch once, and one coverage."""
    run(task_bytes_max=task_bytes_max)
    assert run.rows() == kafka.logs[0]
    assert run.coverage() == [(0, 10, "CAPTURED", None)]


def test_what_kafka_deleted_meanwhile_is_lost_between_two_times(
    run: Capturing, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning outran the capture: the offsets between what was captured and the log's new start are named, with the
    times of the batches around them; a hole behind that is one of a topic which is never compacted."""
    share = "__share_group_state"
    monkeypatch.setattr(fake_kafka, "TOPIC", share)
    kafka.topics = {share}
    kafka.logs[0] = [batch(0, timestamp_ms=1_000), batch(1, timestamp_ms=2_000)]
    run(topics=(share,))
    kafka.logs[0] = [batch(20, timestamp_ms=60_000), batch(23, timestamp_ms=61_000)]
    kafka.log_starts[0] = 20
    run(topics=(share,))
    rows = run.warehouse.read(COVERAGE).to_pylist()
    observed = [
        (row["from_offset"], row["to_offset"], row["reason"], *_seconds(row["first_timestamp"], row["last_timestamp"]))
        for row in rows
        if row["kind"] == "MISSING"
    ]
    assert observed == [(2, 19, LOG_START, 2.005, 60.0), (21, 22, HOLE, 60.005, 61.0)]


def test_a_log_whose_start_moves_while_it_is_read(run: Capturing, kafka: FakeKafka) -> None:
    """OFFSET_OUT_OF_RANGE in the middle: what was deleted before it could be fetched is MISSING, not COMPACTED."""

    def prune(cluster: FakeKafka, node_id: int, request: Any) -> Any:
        cluster.logs[0] = cluster.logs[0][2:]
        cluster.log_starts[0] = 4
        return code(1)(cluster, node_id, request)

    kafka.on_fetch.append(prune)
    run()
    assert run.coverage() == [(0, 3, "MISSING", LOG_START), (4, 10, "CAPTURED", None)]
    assert run.rows() == LOG[2:]


def test_an_idle_log_that_was_pruned_is_reported_too(run: Capturing, kafka: FakeKafka) -> None:
    """Nothing is there to be read, and still the log says where it starts."""
    kafka.logs[0] = []
    kafka.log_starts[0] = 5
    kafka.high_watermarks[0] = 5
    run()
    assert run.coverage() == [(0, 4, "MISSING", LOG_START)]


def test_files_of_a_dead_broker_then_a_live_one(run: Capturing, kafka: FakeKafka, tmp_path: Path) -> None:
    """What the files have is not fetched, but for their last batch, which shows that they are of this log; what Kafka
    deleted since comes from them; each batch is there once."""
    write_segment(tmp_path, TOPIC, 0, 0, b"".join(LOG[:3]))
    kafka.logs[0] = [*LOG[2:], batch(11)]
    kafka.log_starts[0] = 4
    assert run(tmp_path).batch_count == 5
    assert kafka.fetches == [(1, [(0, 4)])]
    assert run.rows() == [*LOG, batch(11)]
    assert run.coverage() == [(0, 11, "CAPTURED", None)]
    assert run.quarantined() == []


def of_epoch(epoch: int, first: int, count: int = 1) -> bytes:
    """A batch of a leader epoch."""
    records = [Record(first + index, 1_000 * (first + index), b"k", b"%d" % epoch) for index in range(count)]
    return build_batch(records, leader_epoch=epoch)


@pytest.mark.parametrize("way", ["files and broker", "broker, then its successor", "a shorter log first"])
def test_the_tail_of_a_dead_broker_makes_way_for_the_live_log(
    run: Capturing, kafka: FakeKafka, tmp_path: Path, way: str
) -> None:
    """A newer leader never had the end of what bronze has: the live log counts, from where it parts ways."""
    dead = [of_epoch(0, 0, 3), of_epoch(0, 3), of_epoch(0, 4, 2)]
    live = [of_epoch(0, 0, 3), of_epoch(1, 3, 3), of_epoch(1, 6), of_epoch(1, 7)]
    if way == "files and broker":
        write_segment(tmp_path, TOPIC, 0, 0, b"".join(dead))
        kafka.logs[0] = live
        run(tmp_path)
    else:
        kafka.logs[0] = dead
        run()
        if way == "a shorter log first":
            kafka.logs[0] = live[:1]
            run(ids={TOPIC: topic_id(kafka)})
            assert run.rows() == dead
        kafka.logs[0] = live
        run()
    assert run.rows() == live
    assert run.coverage() == [(0, 7, "CAPTURED", None)]
    assert {(code, offset) for code, offset, _ in run.quarantined()} == {("COPIES_PART", 3)}
    kafka.fetches.clear()
    assert run().batch_count == 0
    assert kafka.fetches == []


@pytest.mark.parametrize("ends", [(8,), (4, 8), (4, 6, 8), (6, 7, 8)])
def test_pieces_follow_a_newer_leader_too(run: Capturing, kafka: FakeKafka, ends: tuple[int, ...]) -> None:
    """A running capture finds that the last batch of bronze is another one now, or that the log ends before it, and
    gives what one capture of the whole log gives."""
    dead = [of_epoch(0, 0, 3), of_epoch(0, 3), of_epoch(0, 4, 2)]
    live = [of_epoch(0, 0, 3), of_epoch(1, 3), of_epoch(1, 4, 2), of_epoch(1, 6), of_epoch(1, 7)]
    kafka.logs[0] = dead
    run(to={0: 6})
    for end in ends:
        kafka.logs[0] = live[: {4: 2, 6: 3, 7: 4, 8: 5}[end]]
        run(to={0: end}, ids={TOPIC: topic_id(kafka)})
    assert run.rows() == live
    assert run.coverage() == [(0, 7, "CAPTURED", None)]
    # each batch that makes way is named, as in a nightly capture: how many depends on what was there at each look
    places = sorted({(code, offset) for code, offset, _ in run.quarantined()})
    assert places in ([("COPIES_PART", 3)], [("COPIES_PART", 3), ("COPIES_PART", 4)])


def topic_id(kafka: FakeKafka) -> str:
    """As the cluster names it."""
    settings = load_settings({"bootstrap_servers": kafka.address, "topics": (TOPIC,)}, environment={})
    (log, *_) = find_sources(settings).live
    assert log.topic_id is not None
    return log.topic_id


def test_compaction_takes_nothing_back(run: Capturing, kafka: FakeKafka) -> None:
    """A batch that was captured whole stays so when the log has lost records of it and the batches next to it."""
    run()
    kafka.logs[0] = [batch(10), batch(11)]
    run()
    assert run.rows() == [*LOG, batch(11)]
    assert run.coverage() == [(0, 11, "CAPTURED", None)]


def test_a_damaged_batch_is_kept_and_said_once(run: Capturing, kafka: FakeKafka) -> None:
    """A broker does not look at checksums: the batch is in bronze, marked, in quarantine and in coverage, once; each
    run says that it is still damaged."""
    kafka.logs[0] = [batch(0), damaged(batch(1, 2)), batch(3)]
    assert run().quarantined_count == 1
    again = run()
    assert (again.batch_count, again.quarantined_count) == (0, 1)
    assert run.quarantined() == [("CRC_MISMATCH", 1, f"kafka://{kafka.address}")]
    assert run.coverage() == [(0, 0, "CAPTURED", None), (1, 2, "CORRUPT", CRC_MISMATCH), (3, 3, "CAPTURED", None)]


def test_a_log_that_went_back_is_refused(run: Capturing, kafka: FakeKafka) -> None:
    """Recreated or cut: its offsets mean something else now, and nothing of it is taken."""
    run()
    kafka.logs[0] = [batch(0)]
    with pytest.raises(SourceError, match=r"ends at offset 1, and bronze has it up to 10"):
        run()
    assert run.rows() == LOG


def test_a_broker_that_refuses_is_reported_as_it_said(run: Capturing, kafka: FakeKafka) -> None:
    """The task's error comes back as it is, with its code; nothing is written."""
    kafka.on_fetch.append(code(29))
    with pytest.raises(BrokerError, match="ACLs Describe and Read") as raised:
        run()
    assert raised.value.code == "TOPIC_AUTHORIZATION_FAILED"
    assert run.rows() == []
    assert run().batch_count == 4


def _seconds(*times: datetime) -> list[float]:
    return [time.timestamp() for time in times]


def test_a_running_capture_follows_a_log_that_was_cut(run: Capturing, kafka: FakeKafka) -> None:
    """It says so, and takes the log as it is now in place of what bronze had."""
    said: list[str] = []
    live = [of_epoch(0, 0, 3), of_epoch(1, 3)]
    kafka.logs[0] = [of_epoch(0, 0, 3), of_epoch(0, 3), of_epoch(0, 4, 2)]
    run(to={0: 6})
    kafka.logs[0] = live
    settings = load_settings(
        {
            "bootstrap_servers": kafka.address,
            "cluster_id": "c",
            "warehouse": run.warehouse.root,
            "topics": (TOPIC,),
        },
        environment={},
    )
    steps = SimpleNamespace(say=said.append)
    running = ContinuousCapture(
        SESSION,
        run.warehouse,
        settings,
        every_ms=1_000,
        new_run=lambda: CaptureRun("c", "again", START + timedelta(days=9)),
        steps=steps,  # type: ignore[arg-type]
    )
    after = running._follow_cut(find_sources(settings).live, Bronze.load(ClusterTables(run.warehouse, "c")))
    assert run.rows() == live
    assert run.coverage() == [(0, 3, "CAPTURED", None)]
    assert after.known[TOPIC, 0] == ((0, 3),)
    assert "the log ends before the end of bronze" in said[0]
    assert f"{TOPIC}-0 at offset 4" in said[0]
    assert running._follow_cut(find_sources(settings).live, after) is after


def continuing(
    run: Capturing, kafka: FakeKafka, clock: Callable[[], datetime], say: Callable[[str], object]
) -> ContinuousCapture:
    """A continuous capture of the log, after a first one."""
    values = {"bootstrap_servers": kafka.address, "cluster_id": "c", "topics": (TOPIC,)}
    running = ContinuousCapture(
        SESSION,
        run.warehouse,
        load_settings(values | {"warehouse": run.warehouse.root}, environment={}),
        every_ms=1_000,
        new_run=lambda: CaptureRun("c", "again", clock()),
        steps=SimpleNamespace(say=say, facts={}, is_terminal=False),  # type: ignore[arg-type]
    )
    running._bronze = Bronze.load(ClusterTables(run.warehouse, "c"))
    return running


def test_what_another_cluster_at_the_address_says_is_not_of_the_ledger(run: Capturing, kafka: FakeKafka) -> None:
    """Its log ends before that of bronze, so nothing seems to be behind: no log partition is whole up to now for that,
    and none of its topics and end offsets are kept."""
    run()
    keep_identities(ClusterTables(run.warehouse, "c"), [Identity(CLUSTER, "", "fake", "kafka")], START)
    kafka.cluster_id = "standby"
    kafka.logs[0] = [batch(0)]
    said: list[str] = []
    running = continuing(run, kafka, lambda: START + timedelta(days=9), said.append)
    running._watcher.tick()
    running._watcher.report()
    running._watcher.close()
    notes = watch_once(run.warehouse, running._settings, START + timedelta(days=9))
    for text in (*said, *notes):
        assert "is of another Kafka cluster: its cluster id is standby" in text
    assert len(said) == 2
    assert notes
    for table in ("bronze.log_partitions", "bronze.topics", "bronze.configs", "bronze.end_offsets"):
        assert run.warehouse.read(TABLES[table]).num_rows == 0


def test_a_log_is_whole_up_to_when_its_end_was_asked_for(run: Capturing, kafka: FakeKafka) -> None:
    """Not up to when the answer came: what was written meanwhile was not captured."""
    run()
    times = [START + timedelta(days=9), START + timedelta(days=9, minutes=1)]
    running = continuing(run, kafka, lambda: times[0], lambda _: None)
    kafka.on_any[ListOffsetsRequest.API_KEY] = [then(lambda _: times.pop(0))]
    running._watcher.report()
    running._watcher.close()
    rows = run.warehouse.read(TABLES["bronze.log_partitions"]).to_pylist()
    assert [row["read_until"] for row in rows] == [START + timedelta(days=9)]
    assert times == [START + timedelta(days=9, minutes=1)]


def test_a_sample_has_the_time_at_which_ends_were_asked_for(
    run: Capturing, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find out which topics groups consume took seven seconds: the end offset is not of before."""
    seconds = [0.0, 7.0]
    monkeypatch.setattr("jobs.bronze.cluster_watch.monotonic", lambda: seconds.pop(0))
    monkeypatch.setattr(ClusterWatch, "consumed_topics", lambda _: ({TOPIC}, ()))
    with Broker.connect(BrokerAddress(kafka.address)) as broker:
        ClusterWatch(ClusterTables(run.warehouse, "c"), broker).sample_end_offsets(START)
    rows = run.warehouse.read(TABLES["bronze.end_offsets"]).to_pylist()
    assert [(row["sampled_at"], row["end_offset"]) for row in rows] == [(START + timedelta(seconds=7), 11)]


def test_a_capture_asks_what_is_so_when_it_asks(
    run: Capturing, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the run began: reading the log may have taken minutes."""
    asked: list[datetime] = []

    def watched(_: Warehouse, __: Settings, asked_at: datetime) -> tuple[str, ...]:
        asked.append(asked_at)
        return ()

    monkeypatch.setattr("jobs.bronze.cluster_watch.watch_once", watched)
    values = {"bootstrap_servers": kafka.address, "cluster_id": "c", "topics": (TOPIC,)}
    began = perf_counter()
    capture(SESSION, run.warehouse, load_settings(values, environment={}), capture_id="run", captured_at=START)
    assert len(asked) == 1 and START < asked[0] <= START + timedelta(seconds=perf_counter() - began)
