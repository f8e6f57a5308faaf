"""The API as SQL."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

import groupledger
from groupledger.sql import ReplayGroup
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import recording as logs_of
from tests.lengths import takes_minutes

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


def test_the_source_is_registered(session: SparkSession) -> None:
    """Who registers the functions, once or again, can read segment files, too."""
    groupledger.register(session)
    batches = session.read.format("kafka_log").option("segments", str(logs_of(RECORDING))).load()
    assert {"topic", "partition", "base_offset", "batch"} <= set(batches.columns)


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


SELECTED = "SELECT key, value, partition, offset, timestamp FROM api_bad"
BAD_TABLES = {
    "SELECT value, key AS KEY, key, partition, offset, timestamp FROM api_bad": "records have column 'key' 2 times",
    "SELECT null AS value, key, partition, offset, timestamp FROM api_bad": "column 'value' of records is VOID",
    "SELECT base64(key) AS key, value, partition, offset, timestamp FROM api_bad": "select it so, by unbase64 or unhex",
    f"SELECT *, true AS is_control FROM ({SELECTED})": "records have 'is_control' and no 'producer_id'",
    f"SELECT *, 'x' AS control_type FROM ({SELECTED})": "records have 'control_type' and no 'is_control'",
}


def test_bad_records_in_sql(own_session: SparkSession) -> None:
    """Rows without a place, or of another topic, are left out, and others replayed in order of offsets; a table of no
    records is one error with the column; what is no bytes has an error in its row."""
    groupledger.register(own_session)
    key = bytes.fromhex("000100016700017400000000")
    value = bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    places = [(0, 9), (None, 1), (0, None), (0, -1), (-1, 2), (1 << 40, 3), (0, 8)]
    rows = [(key, value, place, offset, 1000, "__consumer_offsets") for place, offset in places]
    rows.append((key, value, 0, 7, 1000, "orders"))
    schema = "key binary, value binary, partition bigint, offset bigint, timestamp bigint, topic string"
    own_session.createDataFrame(rows, schema).createOrReplaceTempView("api_bad")
    query = "SELECT * FROM replay_group({name} TABLE({table}) PARTITION BY 1)"
    commits = query.format(name=named("silver.offset_commits"), table="SELECT * FROM api_bad")
    found = [(row.log_offset, row.change) for row in own_session.sql(commits).collect()]
    assert found == [(8, "FIRST"), (9, "REPEAT")]
    for table, message in BAD_TABLES.items():
        with pytest.raises(AnalysisException, match=message):
            own_session.sql(query.format(name="", table=table))
    with pytest.raises(AnalysisException, match="replay_group takes a table of records"):
        own_session.sql("SELECT * FROM replay_group(1)")
    functions = ("coordinator_key('AAE=')", "coordinator_value(X'00', 1)", "coordinator_value('AAE=', X'00')")
    [row] = own_session.sql("SELECT " + ", ".join(f"{function}.error" for function in functions)).collect()
    of_text = "a key is BINARY, and this is a str"
    assert tuple(row) == (of_text, "a value is BINARY, and this is an int", of_text)


def test_the_first_producer_of_a_cluster_writes_transactions_too() -> None:
    """Producer ids begin at 0: only -1 and null are of no producer."""
    replay = ReplayGroup()
    place = {"key": b"k", "value": None, "partition": 0, "timestamp": 0}
    for offset, producer_id in enumerate((0, 7, -1, None)):
        replay.eval(Row(**place, offset=offset, producer_id=producer_id))
    assert [row["is_transactional"] for row in replay._rows] == [True, True, False, False]
