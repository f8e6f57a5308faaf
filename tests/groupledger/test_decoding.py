"""Records decoded, one row each."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import groupledger
from coordinator_core.bytes.printed.formatter_output import encode_formatter_json
from groupledger.decoding import DECODED, decode_record
from schemas.consumer_offsets import TOPIC as GROUPS
from schemas.share_group_state import TOPIC as SHARES
from tests.groupledger.conftest import Recorded


def test_every_record_reads_back(recorded: Recorded) -> None:
    """The JSON of each record of a recording, encoded again, is the record; all that are about groups name one."""
    _, records = recorded("full-a")
    seen = 0
    for row in records.to_pylist():
        if row["is_control"] or row["topic"] not in (GROUPS, SHARES):
            continue
        made = decode_record(row["topic"], row["key"], row["value"])
        assert made.error is None
        assert made.group_id and made.key is not None
        key = {"type": made.record_type, "data": json.loads(made.key)}
        value = None if made.value is None else {"version": made.value_version, "data": json.loads(made.value)}
        assert encode_formatter_json(row["topic"], key, value, assignment_version=3) == (row["key"], row["value"])
        assert (made.topic_id is None) == (row["topic"] == GROUPS)
        seen += 1
    assert seen > 2000


@pytest.mark.parametrize(
    ("topic", "key", "value", "code", "message"),
    [
        (GROUPS, None, b"", "NULL_NOT_ALLOWED", "a record of a coordinator's log has a key"),
        (GROUPS, b"\x00", b"", "BUFFER_UNDERFLOW", "key is too short for a record type, at byte 1"),
        (GROUPS, b"\x00\x09", b"", "UNKNOWN_RECORD_TYPE", "record type 9 is not one of __consumer_offsets, at byte 0"),
        (GROUPS, bytes.fromhex("00020001 67"), b"\x00\x63", "UNKNOWN_VALUE_VERSION", "has no version 99"),
        ("orders", b"", b"", "OTHER_TOPIC", "a record of 'orders'"),
        (None, b"", b"", "OTHER_TOPIC", "a record of None"),
        ("__cluster_metadata", None, b"\xff", "BUFFER_UNDERFLOW", "at byte"),
    ],
)
def test_what_cannot_be_read_says_why(
    topic: str | None, key: bytes | None, value: bytes, code: str, message: str
) -> None:
    """A record that cannot be read is a row with the reason, and never an exception."""
    made = decode_record(topic, key, value)
    assert made.error_code == code
    assert message in (made.error or "")


def test_one_row_a_record(spark: SparkSession, recorded: Recorded) -> None:
    """Every record is a row, with what the declared columns say."""
    _, records = recorded("full-a")
    made = groupledger.decode(spark.createDataFrame(records))
    assert made.columns == list(DECODED.column_names)
    rows = {(row.topic, row.log_partition, row.log_offset): row for row in made.collect()}
    assert len(rows) == len(records)
    markers = records.filter(records["is_control"])
    for row in markers.select(["topic", "partition", "offset"]).to_pylist():
        assert rows[tuple(row.values())].error is None
    commit = next(row for row in rows.values() if row.record_name == "OffsetCommitValue" and row.value)
    assert json.loads(commit.key).keys() == {"group", "topic", "partition"}
    assert commit.group_id == json.loads(commit.key)["group"]
    assert isinstance(records, pa.Table)
