"""Which columns are read of raw records, and what is said where they are not there."""

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from groupledger import RecordsError
from groupledger.records import read_records

SPARK = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "schema",
    [
        SPARK,
        "kafka_topic string, kafka_partition int, kafka_offset bigint, kafka_timestamp bigint, key binary, "
        "value binary",
        "key binary, value binary, _kafka_metadata_topic string, _kafka_metadata_partition int, "
        "_kafka_metadata_offset bigint, _kafka_metadata_timestamp bigint",
        SPARK + ", kafka_offset bigint, kafka_offset int",
        "KEY binary, VALUE binary, PARTITION smallint, `OFFSET` int, TIMESTAMP timestamp",
    ],
)
def test_usual_names_are_found(spark: SparkSession, schema: str) -> None:
    """Columns of Spark's Kafka source and of Connect's sinks need no argument."""
    read = read_records(spark.createDataFrame([], schema))
    assert {"log_partition", "log_offset", "timestamp_ms", "key", "value"} <= set(read.frame.columns)
    assert read.has_topic == ("topic" in schema)
    assert not read.has_markers


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        (
            SPARK.replace("offset bigint, ", ""),
            None,
            "records have no column 'offset': the record's offset, INT or BIGINT. They have "
            "key, value, topic, partition, timestamp, timestampType; say which one it is by columns={'offset': NAME}",
        ),
        (
            SPARK.replace("key binary", "key string"),
            None,
            "column 'key' of records is STRING, and the bytes of the record's key is BINARY: give an expression that "
            "makes it so, columns={'key': ...}: F.unbase64('key') where it is base64, F.unhex('key') where it is "
            "hexadecimal",
        ),
        (
            SPARK,
            {"offset": "place"},
            "columns takes offset from 'place', and records have key, value, topic, partition, offset, timestamp, "
            "timestampType",
        ),
        (SPARK, {"offset": "topic"}, "column 'topic', taken for offset, of records is STRING"),
        (SPARK, {"ofset": "offset"}, "columns names 'ofset', which is none of: key, value, partition, offset"),
        (SPARK.replace("timestamp timestamp", "timestamp string"), None, "F.to_timestamp('timestamp')"),
        (
            SPARK.replace("timestamp timestamp", "timestamp timestamp_ntz"),
            None,
            "F.to_timestamp('timestamp'), which takes it for a time of spark.sql.session.timeZone",
        ),
        (
            SPARK.replace("timestamp timestamp", "timestamp decimal(20,0)"),
            None,
            "F.col('timestamp').cast('bigint') where it is epoch milliseconds",
        ),
        (SPARK.replace("topic string", "topic binary"), None, "columns={'topic': ...}: F.col('topic').cast('string')"),
        (SPARK + ", KEY binary", None, "records have column 'key' 2 times, which names key: drop all but one"),
        (
            SPARK + ", place bigint, Place bigint",
            {"offset": "place"},
            "records have column 'place' 2 times, which names offset: drop all but one",
        ),
        ("topic string, partition int, base_offset bigint, batch string", None, "column 'batch' of records holds no"),
    ],
)
@pytest.mark.parametrize("function", ["decode", "replay_groups", "replay_share_partitions"])
def test_one_error_names_column_and_remedy(
    spark: SparkSession, function: str, schema: str, columns: dict[str, str] | None, message: str
) -> None:
    """A column that is missing or of another type is said before any job runs."""
    with pytest.raises(RecordsError) as raised:
        getattr(groupledger, function)(spark.createDataFrame([], schema), columns=columns)
    assert message in str(raised.value)


def test_own_expressions(spark: SparkSession) -> None:
    """What is there under another name or in another form is read by an expression."""
    rows = spark.createDataFrame(
        [("AAEAAWcAAXQAAAAA", None, 3, "7", 5)], "k string, v binary, p int, o string, ms bigint"
    )
    own: dict[str, str | Column] = {
        "key": F.unbase64("k"),
        "value": "v",
        "partition": "p",
        "offset": F.col("o").cast("bigint"),
        "timestamp": "ms",
    }
    (row,) = groupledger.decode(rows, columns=own).collect()
    assert (row.log_partition, row.log_offset, row.group_id, row.value) == (3, 7, "g", None)
    assert row.recorded_at.timestamp() == 0.005


@pytest.mark.parametrize("function", ["replay_groups", "replay_share_partitions"])
def test_a_stream_is_one_error(spark: SparkSession, function: str) -> None:
    """A replay begins at a key's first record: a stream is refused by name, before Spark says that it cannot sort."""
    rate = spark.readStream.format("rate").load()
    empty = F.lit(None).cast("binary")
    stream = rate.select("timestamp", F.col("value").alias("offset"), F.lit(0).alias("partition"), empty.alias("key"))
    with pytest.raises(RecordsError, match=r"records are a stream.*spark\.read in place of spark\.readStream"):
        getattr(groupledger, function)(stream.withColumn("value", empty))
    assert groupledger.decode(stream.withColumn("value", empty)).isStreaming


def test_topics_need_their_columns(spark: SparkSession) -> None:
    """Names of topic ids are rows of silver.topics, or one error says so."""
    records = spark.createDataFrame([], SPARK)
    with pytest.raises(RecordsError, match="topics have no column 'topic_id'"):
        groupledger.replay_groups(records, topics=records)
