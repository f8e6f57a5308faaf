"""Which columns are read of raw records, and what is said where they are not there."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from groupledger import RecordsError
from groupledger.records import EXPECTED, read_records

SPARK = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


@pytest.mark.parametrize(
    "schema",
    [
        SPARK,
        "kafka_topic string, kafka_partition int, kafka_offset bigint, kafka_timestamp bigint, key binary, "
        "value binary",
        "key binary, value binary, _kafka_metadata_topic string, _kafka_metadata_partition int, "
        "_kafka_metadata_offset bigint, _kafka_metadata_timestamp bigint",
        "key binary, value binary, "
        "_kafka_metadata struct<topic: string, partition: int, offset: bigint, timestamp: bigint>",
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
        (
            SPARK,
            {"offset": "topic"},
            "column 'topic', taken for offset, of records is STRING, and the record's offset is INT or BIGINT: give an "
            "expression that makes it so, columns={'offset': ...}: F.expr('try_cast(`topic` as bigint)')",
        ),
        (
            "r struct<key: binary>",
            {"key": "r.key"},
            "columns takes key from 'r.key', and records have r: give one of these, or an expression, as F.col(",
        ),
        (
            SPARK + ", control_type string",
            None,
            "records have 'control_type' and no 'is_control', which says which rows are transaction markers: give it",
        ),
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
            "F.expr('try_cast(`timestamp` as bigint)') where it is epoch milliseconds",
        ),
        (
            SPARK.replace("topic string", "topic binary"),
            None,
            "columns={'topic': ...}: F.expr('try_cast(`topic` as string)')",
        ),
        (SPARK + ", KEY binary", None, "records have column 'key' 2 times, which names key: drop all but one"),
        (
            SPARK + ", place bigint, Place bigint",
            {"offset": "place"},
            "records have column 'place' 2 times, which names offset: drop all but one",
        ),
        (
            "topic string, partition int, base_offset bigint, batch string",
            None,
            "column 'batch' of records is STRING, and a whole batch, as kafka_log gives it is BINARY",
        ),
        (
            "topic int, partition int, base_offset bigint, batch binary",
            None,
            "column 'topic' of records is INT, and the internal topic is STRING",
        ),
        (
            "topic string, partition int, base_offset bigint, batch binary, crc_valid string",
            None,
            "column 'crc_valid' of records is STRING",
        ),
        (
            "topic string, partition int, base_offset bigint, batch binary, BATCH binary",
            None,
            "records have column 'batch' 2 times",
        ),
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


KINDS = (
    (
        "void string binary boolean tinyint int bigint double float decimal(20,0) date timestamp timestamp_ntz "
        "variant array<tinyint> map<string,string> struct<a:int> interval_day interval_year"
    )
    .replace("_day", " day")
    .replace("_year", " year")
)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_remedy_works(spark: SparkSession, name: str) -> None:
    """Whatever type a column has, what the error says to do about it leads to records that are taken."""
    every = ", ".join(f"{column} {expected.types[-1]}" for column, expected in EXPECTED.items())
    for kind in re.findall(r"interval \w+|\S+", KINDS):
        other = F.lit(None) if kind == "void" else F.lit(None).cast(kind)
        records = spark.createDataFrame([], every).withColumn(name, other)
        if kind in EXPECTED[name].types:
            read_records(records)
            continue
        with pytest.raises(RecordsError) as raised:
            read_records(records)
        message = str(raised.value)
        assert message.startswith(f"column {name!r} of records is {kind.upper()}, and {EXPECTED[name].meaning} is ")
        remedy = message.partition(": ")[2]
        expressions = re.findall(r"F\.\S+\([^()]*(?:\(None\))?[^()]*\)(?:\.\w+\('\w+'\)|'\))?", remedy)
        if remedy.startswith("give an expression") or kind == "void":
            for expression in expressions:
                read_records(records, {name: eval(expression)})
        else:
            assert remedy.startswith(f"name another column, columns={{{name!r}: NAME}}")
        if kind == "void" and not EXPECTED[name].is_required:
            assert remedy == f"it holds nulls alone, so leave {name} out"
            if name != "is_control":
                read_records(records.drop(name))
        elif kind == "void":
            assert remedy.startswith("it holds nulls alone, so name another column")
            assert bool(expressions) == (name in ("value", "timestamp"))
        assert bool(expressions) == ("F." in remedy)


@pytest.mark.parametrize("name", ["is_control", "is_transactional"])
def test_transactions_need_their_producers(spark: SparkSession, name: str) -> None:
    """Who gives what only producers make sense of learns so, where it is to be used; to decode, it is enough."""
    records = spark.createDataFrame([], f"{SPARK}, {name} boolean")
    with pytest.raises(RecordsError, match=f"records have '{name}' and no 'producer_id'.*or leave {name} out"):
        groupledger.replay_groups(records)
    assert groupledger.decode(records).count() == 0
    assert groupledger.replay_share_partitions(records).errors.count() == 0


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
    with pytest.raises(RecordsError, match=r"columns has what Spark cannot resolve: .*name `nope`"):
        groupledger.decode(rows, columns=own | {"key": F.col("nope")})


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
    for schema in (SPARK, "topic string, topic_id int", "topic string, topic_id string, TOPIC_ID string"):
        with pytest.raises(RecordsError, match="topics have not one column 'topic_id' of STRING"):
            groupledger.replay_groups(records, topics=spark.createDataFrame([], schema))
    assert groupledger.replay_groups(records, topics=spark.createDataFrame([], "TOPIC string, Topic_Id string"))


def test_what_is_no_dataframe_is_one_error(spark: SparkSession) -> None:
    """A path, rows in pandas or a list, raw records in place of silver: the error says what to give."""
    frame: Any = spark.createDataFrame([], SPARK)
    calls: list[tuple[Callable[[Any], object], str]] = [
        (groupledger.decode, "records"),
        (groupledger.replay_groups, "records"),
        (groupledger.replay_share_partitions, "records"),
        (lambda it: groupledger.replay_groups(frame, topics=it), "topics"),
        (lambda it: groupledger.replay_groups(frame, state=it), r"api\.key_states"),
        (lambda it: groupledger.audit_groups(groupledger.replay_groups(frame), coverage=it), r"bronze\.coverage"),
    ]
    wrong: list[tuple[Any, str]] = [
        ("lake/raw", r"a str: spark\.read\.parquet\('lake/raw'\)"),
        (Path("lake"), r"a PosixPath: spark\.read\.parquet\('lake'\)"),
        ([(b"", b"")], r"a list: spark\.createDataFrame"),
        (import_module("pandas").DataFrame({"key": []}), r"a DataFrame of pandas.*: spark\.createDataFrame"),
        (pa.table({"key": []}), r"a Table of pyarrow.*: spark\.createDataFrame"),
    ]
    for call, name in calls:
        for given, remedy in wrong:
            with pytest.raises(RecordsError, match=f"{name} must be a DataFrame of Spark, and is {remedy}"):
                call(given)
    for audit, replay in (
        (groupledger.audit_groups, "replay_groups"),
        (groupledger.audit_share_partitions, "replay_share_partitions"),
    ):
        with pytest.raises(RecordsError, match=rf"give what {replay} gave, of raw records {replay}\(records\)"):
            audit(frame)
    day: Any = "2026-11-21"
    with pytest.raises(RecordsError, match=r"at is a str: give a datetime, as datetime\(2026, 11, 22, tzinfo=UTC\)"):
        groupledger.read(spark, "silver.group_events", warehouse="no-such", at=day)


def test_an_error_may_be_raised(spark: SparkSession) -> None:
    """With on_error="raise" the first row of errors is an exception, where a table is asked for."""
    key, value = "000100016700017400000000", "00030000000000000005ffffffff00000000018bcfe56800"
    rows = [(bytes.fromhex(key), bytes.fromhex(value), 0, 0, 1000), (b"\x00", b"", 0, 1, 1000)]
    schema = "key binary, value binary, partition int, offset bigint, timestamp bigint"
    replay = groupledger.replay_groups(spark.createDataFrame(rows, schema), on_error="raise")
    with pytest.raises(RecordsError, match=r"BUFFER_UNDERFLOW in __consumer_offsets-0 at offset 1: .*on_error='row'"):
        _ = replay.commits
    assert groupledger.replay_groups(spark.createDataFrame(rows[:1], schema), on_error="raise").commits.count() == 1
    with pytest.raises(RecordsError, match="on_error is 'ignore': give 'row'"):
        groupledger.replay_groups(spark.createDataFrame(rows, schema), on_error="ignore")
