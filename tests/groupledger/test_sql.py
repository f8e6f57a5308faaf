"""The API as SQL."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import groupledger
from tests.conftest import takes_minutes
from tests.groupledger.conftest import Recorded

pytestmark = pytest.mark.slow

REPLAY = """
    SELECT * FROM replay_group({name}
        TABLE(SELECT *, coordinator_key(key).group_id AS group_id FROM api_records WHERE {where})
        PARTITION BY (partition, group_id) ORDER BY offset)
"""


def named(table: str) -> str:
    """Arguments that name a table."""
    return f"name => '{table}', records =>"


RECORDING = "codec-gzip"


@pytest.fixture(scope="module")
def session(spark: SparkSession, recorded: Recorded) -> SparkSession:
    """A session with the functions, and a view of the records of a recording."""
    made = spark.newSession()
    groupledger.register(made)
    _, records = recorded(RECORDING)
    made.createDataFrame(records).createOrReplaceTempView("api_records")
    return made


def test_functions_decode(session: SparkSession) -> None:
    """A key and a value as structs, of either topic; null for a tombstone; a reason where bytes are none."""
    row = session.sql(
        "SELECT coordinator_key(key) AS k, coordinator_value(key, value) AS v FROM api_records "
        "WHERE topic = '__consumer_offsets' AND NOT is_control AND coordinator_key(key).record_type = 1 "
        "AND value IS NOT NULL ORDER BY partition, offset LIMIT 1"
    ).first()
    assert row is not None
    assert row.k.group_id == json.loads(row.k.fields)["group"]
    assert (row.v.record_name, row.v.error) == ("OffsetCommitValue", None)
    assert "offset" in json.loads(row.v.fields)
    share = session.sql(
        "SELECT coordinator_key(key, '__share_group_state') AS k, coordinator_value(key, NULL, topic) AS v "
        "FROM api_records WHERE topic = '__share_group_state' LIMIT 1"
    ).first()
    assert share is not None
    assert len(share.k.topic_id) == 22
    assert share.v is None
    bad = session.sql("SELECT coordinator_key(X'00') AS k, coordinator_key(NULL) AS n").first()
    assert bad is not None
    assert (bad.k.error, bad.n) == ("key is too short for a record type, at byte 1", None)


@pytest.mark.parametrize("table", ["silver.group_events", pytest.param("silver.group_members", marks=takes_minutes)])
def test_a_table_function_replays(session: SparkSession, recorded: Recorded, table: str) -> None:
    """The table function gives nightly's rows, but for names of topic ids and the cluster."""
    ledger, _ = recorded(RECORDING)
    where = "topic = '__consumer_offsets' AND NOT is_control"
    name = "" if table == "silver.group_events" else named(table)
    made = session.sql(REPLAY.format(where=where, name=name))
    expected = session.read.format("delta").load(ledger.folder(table)).drop("cluster_id")
    assert made.schema == expected.schema
    assert sorted(map(repr, made.collect())) == sorted(map(repr, expected.collect()))


def test_what_a_table_function_lacks_is_said(session: SparkSession) -> None:
    """A column that is missing and a table that no replay makes are said when the query is analysed."""
    with pytest.raises(AnalysisException, match=r"no table 'silver\.topics' is made by replay"):
        session.sql(REPLAY.format(where="true", name=named("silver.topics")))
    with pytest.raises(AnalysisException, match="records have no column 'offset'"):
        session.sql("SELECT * FROM replay_group(TABLE(SELECT key, value, partition FROM api_records))")
