"""Tables of Spark's catalog as dumps: records landed in one by a stream, and read by its name."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.bronze.capture import capture
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.settings import load_settings
from jobs.sources.dumps.catalog import located
from jobs.sources.kafka_log import KafkaLogDataSource
from jobs.spark.executors import Executor, SparkExecutor
from schemas.tables.bronze import RECORD_BATCHES
from tests.cases.harness import Ledger
from tests.conformance.recordings import CAPTURED_AT
from tests.recorded import RECORDINGS

FULL_A = RECORDINGS / "full-a" / "logs"


@pytest.fixture
def raw(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with a schema `raw`."""
    spark.dataSource.register(KafkaLogDataSource)
    spark.sql(f"create schema raw location '{tmp_path}/raw'")
    yield spark
    spark.sql("drop schema raw cascade")


def land(raw: SparkSession, tmp_path: Path, batch_count_max: int) -> None:
    """What came since the last time, as the recipe of docs/sources.md does it."""
    stream = raw.readStream.format("kafka_log").option("segments", str(FULL_A))
    (
        stream.option("maxBatchesPerTrigger", batch_count_max)
        .load()
        .writeStream.format("delta")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "progress"))
        .toTable("raw.log")
        .awaitTermination()
    )


def test_batches_landed_by_a_stream_are_the_log(raw: SparkSession, tmp_path: Path) -> None:
    """A capture reads the table by its name, and gets each batch of the log, to the byte; the next reads nothing."""
    land(raw, tmp_path, 2000)
    land(raw, tmp_path, 2000)
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    settings = load_settings({"cluster_id": "case", "dumps": ("raw.log",)}, environment={})
    notes = [
        capture(SparkExecutor(raw), warehouse, settings, capture_id=str(number), captured_at=CAPTURED_AT).notes
        for number in range(2)
    ]
    assert [any(re.search(r"unchanged: (\d+) of \1 files", it) for it in some) for some in notes] == [False, True]
    log = Ledger(tmp_path / "log")
    log.capture(FULL_A)
    names = ["topic", "partition", "base_offset", "batch", "leader_epoch", "producer_id", "control_type"]
    found = [it.read(RECORD_BATCHES, names).to_pylist() for it in (warehouse, log.warehouse)]
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1]))


def test_a_table_that_cannot_be_read_is_named_with_the_remedy(raw: SparkSession, no_spark: Executor) -> None:
    """One that is not there, is no table of files, or is asked for without Spark."""
    raw.sql("create table raw.texts (key string) using csv")
    raw.sql("create view raw.seen as select 1 as key")
    raw.sql("create table raw.plain (key string) using parquet")
    with pytest.raises(SourceError, match=r"neither a file raw.nowhere nor such a table .*TABLE_OR_VIEW_NOT_FOUND"):
        located(SparkExecutor(raw), "raw.nowhere")
    with pytest.raises(SourceError, match=r"raw.texts is of csv, .*: name the folder of its files, in .*/raw/texts"):
        located(SparkExecutor(raw), "raw.texts")
    with pytest.raises(SourceError, match=r"raw.seen is of an unknown format"):
        located(SparkExecutor(raw), "raw.seen")
    with pytest.raises(SourceError, match="only a night on Spark finds tables by name"):
        located(no_spark, "raw.plain")
    assert Path(located(SparkExecutor(raw), "raw.plain")).is_dir()
