"""The data source `kafka_log`: the same rows in a batch and in a stream, in any division, each batch once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from jobs.errors import SourceError
from jobs.sources.kafka_log import KafkaLogDataSource, KafkaLogStreamReader, selection
from jobs.sources.log_offsets import Limits
from jobs.sources.segments import SOURCE_SCHEMA, find_partitions, read_segment
from tests.jobs.builders import batch, write_segment
from tests.jobs.fake_kafka import TOPIC, FakeKafka
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

LOGS = RECORDINGS / "full-a" / "logs"


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """The session with the data source registered."""
    spark.dataSource.register(KafkaLogDataSource)
    return spark


def key_rows(frame: DataFrame) -> list[tuple[str, int, int, bytes]]:
    """What tells rows apart, sorted."""
    rows = frame.select("topic", "partition", "base_offset", "batch").collect()
    return sorted((row[0], row[1], row[2], bytes(row[3])) for row in rows)


def test_batch_read_gives_the_logs(source: SparkSession) -> None:
    """All topics by default; their batches joined are the segments."""
    frame = source.read.format("kafka_log").option("segments", str(LOGS)).load()
    assert frame.columns == SOURCE_SCHEMA.names
    rows = key_rows(frame)
    counts = {topic: sum(row[0] == topic for row in rows) for topic in {row[0] for row in rows}}
    assert counts == {
        "__cluster_metadata": 396,
        "__consumer_offsets": 777,
        "__share_group_state": 674,
        "__transaction_state": 338,
    }
    joined = b"".join(row[3] for row in rows if row[:2] == ("__share_group_state", 4))
    assert joined == (LOGS / "__share_group_state-4" / "00000000000000000000.log").read_bytes()


def test_options_choose_and_filters_stay_filters(source: SparkSession) -> None:
    """Options in any case choose partitions; a filter of one query is not kept for the next (a defect of 4.2.0)."""
    options = {"SEGMENTS": str(LOGS), "Topics": "__consumer_offsets", "partitions": "1, 2"}
    frame = source.read.format("kafka_log").options(**options).load()
    assert frame.count() == 136 + 243
    assert frame.where("partition = 1").count() == 136
    assert frame.count() == 136 + 243
    assert frame.where("partition = 2").union(frame.where("partition = 1")).count() == 136 + 243


@pytest.mark.parametrize("batch_count_max", [*(pytest.param(count, marks=takes_minutes) for count in (None, 100)), 333])
def test_stream_gives_each_batch_once(source: SparkSession, tmp_path: Path, batch_count_max: int | None) -> None:
    """With AvailableNow all batches come once, at most so many a micro-batch; a second run gives nothing more."""
    sizes: list[int] = []

    def run() -> None:
        reader = source.readStream.format("kafka_log").option("segments", str(LOGS))
        if batch_count_max is not None:
            reader = reader.option("maxBatchesPerTrigger", batch_count_max)
        query = (
            reader.load()
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda frame, _: collected.extend(note(key_rows(frame))))
            .start()
        )
        query.awaitTermination()

    def note(rows: list[tuple[str, int, int, bytes]]) -> list[tuple[str, int, int, bytes]]:
        sizes.append(len(rows))
        return rows

    collected: list[tuple[str, int, int, bytes]] = []
    run()
    whole = key_rows(source.read.format("kafka_log").option("segments", str(LOGS)).load())
    assert sorted(collected) == whole
    if batch_count_max is not None:
        assert max(sizes) <= batch_count_max
        assert len(sizes) == -(-len(whole) // batch_count_max)
    run()
    assert len(collected) == len(whole)


def stream_reader(root: Path, **options: str) -> KafkaLogStreamReader:
    """A stream reader over a folder."""
    return KafkaLogStreamReader(selection({"segments": str(root), **options}))


def given(reader: KafkaLogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Base offsets of the batches between two stream offsets."""
    parts = reader.partitions(start, end)
    return [offset for part in parts for rows in reader.read(part) for offset in rows["base_offset"].to_pylist()]


def test_stream_offsets_go_on_over_segments(tmp_path: Path) -> None:
    """Appended batches and new segments are found; the limit is kept; nothing new leaves the offset as it is."""
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0, 3) + batch(3))
    reader = stream_reader(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    assert first == {"__consumer_offsets-0": 3}
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {"__consumer_offsets-0": 4}
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0, 3) + batch(3) + batch(4))
    write_segment(tmp_path, "__consumer_offsets", 0, 5, batch(5, 2))
    write_segment(tmp_path, "__consumer_offsets", 1, 0, batch(0))
    third = reader.latestOffset(second, ReadAllAvailable())
    assert third == {"__consumer_offsets-0": 7, "__consumer_offsets-1": 1}
    assert given(reader, {}, first) == [0]
    assert given(reader, first, second) == [3]
    assert given(reader, second, third) == [4, 5, 0]
    assert reader.partitions(third, third) == []


def test_available_now_leaves_what_comes_later(tmp_path: Path) -> None:
    """The target is fixed when the run begins."""
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0))
    reader = stream_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    write_segment(tmp_path, "__consumer_offsets", 0, 0, batch(0) + batch(1))
    write_segment(tmp_path, "__consumer_offsets", 1, 0, batch(0))
    assert reader.latestOffset({}, ReadAllAvailable()) == {"__consumer_offsets-0": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "segments"),
        ({"segments": "/x", "topic": "a"}, "unknown option topic"),
        ({"segments": "/x", "partitions": "one"}, "whole numbers"),
        ({"segments": "/x", "bootstrapServers": "a:1"}, "either"),
        ({"bootstrapServers": "a:1", "maxBytesPerTrigger": "0"}, "above zero"),
        ({"bootstrapServers": "a:1", "startingOffsets": "[1]"}, "startingOffsets"),
        ({"bootstrapServers": "a:1", "startingOffsets": '{"a-0": -1}'}, "startingOffsets"),
        ({"bootstrapServers": "a:1", "sasl.password": "x"}, "unknown option sasl.password"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    """A misspelt option is not silently without effect."""
    with pytest.raises(SourceError, match=words):
        selection(options)


def test_limits_of_a_stream() -> None:
    """Spark gets one limit, and both are kept; without any, all there is comes."""
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "7"}, ReadMaxBytes(7)),
        ({"maxBatchesPerTrigger": "5", "maxBytesPerTrigger": "7"}, ReadMaxRows(5)),
    ):
        assert stream_reader(Path("/x"), **options).getDefaultReadLimit() == limit
    chosen = selection({"bootstrapServers": "a:1", "maxBatchesPerTrigger": "5", "maxBytesPerTrigger": "7"})
    assert chosen.limits == Limits(5, 7)


def test_a_stream_begins_where_it_is_reported() -> None:
    """Offsets of another reader's making, for a new checkpoint."""
    assert stream_reader(Path("/x"), startingOffsets='{"a-0": 5}').initialOffset() == {"a-0": 5}


def test_errors_reach_the_query(source: SparkSession, tmp_path: Path) -> None:
    """A folder which is not there fails the query with its name, in a batch and in a stream."""
    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(PySparkException, match="nowhere: no such folder"):
        source.read.format("kafka_log").option("segments", nowhere).load().count()
    query = (
        source.readStream.format("kafka_log")
        .option("segments", nowhere)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    with pytest.raises(StreamingQueryException, match="nowhere: no such folder"):
        query.start().awaitTermination()


@pytest.fixture(scope="module")
def live() -> Iterator[FakeKafka]:
    """A cluster with the offsets topic of the recording, as fake brokers serve it."""
    with FakeKafka(leaders=[1, 2, 1, 2, 1]) as kafka:
        for partition in kafka.logs:
            [segment] = (LOGS / f"{TOPIC}-{partition}").glob("*.log")
            read = read_segment(find_partitions(str(LOGS), [TOPIC], [partition])[0].segments[0])
            data, batches = segment.read_bytes(), read.scan.batches
            kafka.logs[partition] = [
                data[start : start + size]
                for start, size in zip(batches.position.tolist(), batches.size.tolist(), strict=True)
            ]
        yield kafka


def test_a_cluster_gives_what_its_segments_give(source: SparkSession, live: FakeKafka) -> None:
    """All columns but those which say where a batch was read, however the log is split between tasks."""

    def load(**options: str | int | bool) -> DataFrame:
        return source.read.format("kafka_log").options(topics=TOPIC, **options).load()

    expected = load(segments=str(LOGS)).drop("source", "source_kind")
    for bytes_max in (1 << 30, 20_000):
        found = load(bootstrapServers=live.address, bytesPerPartition=bytes_max)
        assert found.rdd.getNumPartitions() >= (5 if bytes_max > 20_000 else 10)
        assert {row[0] for row in found.select("source_kind").distinct().collect()} == {"KAFKA"}
        assert_df_equality(
            found.drop("source", "source_kind").orderBy("topic", "partition", "base_offset"),
            expected.orderBy("topic", "partition", "base_offset"),
        )


def test_streams_of_a_cluster(source: SparkSession, live: FakeKafka, tmp_path: Path) -> None:
    """With AvailableNow every batch comes once, in several micro-batches."""
    chosen = source.readStream.format("kafka_log").options(
        bootstrapServers=live.address, topics=TOPIC, maxBatchesPerTrigger=1500
    )
    collected: list[list[Row]] = []
    query = (
        chosen.load()
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda frame, _: collected.append(frame.collect()))
        .start()
    )
    query.awaitTermination()
    assert len(collected) > 1
    found = sorted((row["partition"], bytes(row["batch"])) for part in collected for row in part)
    assert found == sorted((partition, data) for partition, log in live.logs.items() for data in log)
