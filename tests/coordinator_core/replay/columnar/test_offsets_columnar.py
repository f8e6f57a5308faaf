"""ColumnarOffsetReplay decides as the pure replay does, however the log is cut and whatever its bytes are."""

import json
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.errors import CoreError
from coordinator_core.replay.columnar.offsets_columnar import ColumnarOffsetReplay
from coordinator_core.replay.offsets.state import OffsetKey
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.offsets import (
    LEGACY_OFFSET_COMMIT_KEY,
    LEGACY_OFFSET_COMMIT_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from tests.coordinator_core.live.offsets.reference import (
    ABORT,
    COMMIT,
    LogBatch,
    LogRecord,
    Row,
    chunks_of,
    columnar_result,
    encode_batches,
    expected_result,
    marker,
    rows_of,
)
from tests.examples import examples
from tests.recorded import RECORDINGS

T1, T2, NO_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "A" * 22


def key_of(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    """A key of type 1."""
    return encode_key(
        TOPIC, RecordType.OFFSET_COMMIT, make(OFFSET_COMMIT_KEY, group=group, topic=topic, partition=partition)
    )


def value_of(offset: int, version: int = 4, **fields: object) -> bytes:
    """A value of type 1."""
    return encode_value(TOPIC, RecordType.OFFSET_COMMIT, version, make(OFFSET_COMMIT_VALUE, offset=offset, **fields))


def commit(offset: int | None, *, timestamp_ms: int = 1_000, producer_id: int = -1, group: str = "g") -> LogBatch:
    """A batch with one commit of group `g`, topic `t`, partition 0; None: a tombstone."""
    value = None if offset is None else value_of(offset)
    return LogBatch((LogRecord(key_of(group), value, timestamp_ms),), producer_id, producer_id != -1)


# --- any log ---


@st.composite
def struct_strings(draw: st.DrawFn, texts: list[bytes]) -> bytes:
    """A string of a key: int16 length, bytes; rarely with a length that lies."""
    text = draw(st.sampled_from(texts))
    length = len(text) if draw(st.integers(0, 19)) else draw(st.sampled_from([-1, 0, 1, len(text) + 1, 32767, -32768]))
    return struct.pack(">h", length) + text


GROUPS = [b"g", b"g2", "größe".encode(), b"", b"bad \xff", b"bad \xfe", b"\xed\xa0\x80"]
TOPICS = [b"t", b"t2", "käse".encode(), b"", b"bad \xff"]
PARTITIONS = [0, 1, -1, 2**31 - 1, -(2**31)]


@st.composite
def commit_keys(draw: st.DrawFn) -> bytes:
    """A key of type 0 or 1, as Kafka writes it or with bytes behind it."""
    key = draw(st.sampled_from([b"\0\0", b"\0\1", b"\0\1"])) + draw(struct_strings(GROUPS))
    key += draw(struct_strings(TOPICS)) + struct.pack(">i", draw(st.sampled_from(PARTITIONS)))
    return key + draw(st.sampled_from([b""] * 9 + [b"\0"]))


@st.composite
def commit_values(draw: st.DrawFn) -> bytes:
    """A value in any version; some with unknown tags, bytes behind them, or metadata that is not UTF-8."""
    version = draw(st.sampled_from([4, 4, 4, 3, 2, 1, 0, 5, -1]))
    numbers = st.sampled_from([0, 1, 2, 3, 50, -1, 2**63 - 1, -(2**63)])
    value = struct.pack(">hq", version, draw(numbers))
    if version >= 3:
        value += struct.pack(">i", draw(st.sampled_from([-1, 0, 7, -2])))
    metadata = draw(
        st.sampled_from(
            [b"", b"m", "é€😀".encode(), b"x" * 126, b"x" * 127, b"x" * 300, b"\xff", b"\xc0\x80", b"\xe2\x82"]
        )
        | st.binary(max_size=6)
    )
    if version >= 4:
        length = len(metadata) + 1
        value += bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    else:
        value += struct.pack(">h", draw(st.sampled_from([len(metadata)] * 9 + [-1, len(metadata) + 40])))
    value += metadata + struct.pack(">q", draw(st.integers(0, 3)))
    if version == 1:
        value += struct.pack(">q", draw(st.sampled_from([-1, 5])))
    if version >= 4:
        known = [b"\0\x10" + struct.pack(">qq", 0, number) for number in (0, 1, 2)]
        tags = draw(
            st.sampled_from(
                [
                    b"\0",
                    b"\1" + known[1],
                    b"\1" + known[2],
                    b"\1" + known[0],
                    b"\1\5\1x",
                    b"\2" + known[1] + b"\5\0",
                    b"\2",
                ]
            )
        )
        value += tags
    return value + draw(st.sampled_from([b""] * 9 + [b"\0"]))


@st.composite
def other_keys(draw: st.DrawFn) -> bytes | None:
    """Keys of groups, of unknown types, and what is hardly a key."""
    record_type = draw(st.sampled_from([2, 3, 11, 17, 2, 5, 8, 15, 23, 9, 18, 24, -1, 99]))
    key = struct.pack(">h", record_type) + draw(struct_strings(GROUPS)) + draw(st.sampled_from([b"", b"\0\1m"]))
    return draw(st.sampled_from([key] * 9 + [None, b"", b"\0", b"\0\1", b"\0\1\0", b"\0\2\0"]))


@st.composite
def bent(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Mostly whole; else cut short, or with one byte changed."""
    data = draw(whole)
    how = draw(st.integers(0, 24))
    if how == 0:
        return data[: draw(st.integers(0, len(data)))]
    if how == 1 and data:
        at = draw(st.integers(0, len(data) - 1))
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    return data


TIMESTAMPS = st.sampled_from([1_000, 1_000, 1_000, 1_001])
COMMITS = st.builds(LogRecord, bent(commit_keys()), bent(commit_values()) | st.none(), TIMESTAMPS)
OTHERS = st.builds(LogRecord, other_keys(), st.sampled_from([None, b"", b"\0\0value"]), TIMESTAMPS)
TAME = st.builds(
    LogRecord,
    st.sampled_from([key_of(), key_of("g", "t", 1), key_of("g2")]),
    st.sampled_from([value_of(1), value_of(2), value_of(3, topic_id=T1), value_of(3, metadata="m"), None]),
    TIMESTAMPS,
)
PRODUCERS = st.sampled_from([-1, 5, 6, -2])
WILD_BATCHES = st.builds(
    LogBatch, st.lists(COMMITS | OTHERS | TAME, max_size=6).map(tuple), PRODUCERS, st.booleans()
) | st.builds(marker, PRODUCERS, st.sampled_from([ABORT, COMMIT, 2, 77]), TIMESTAMPS)
TAME_BATCHES = st.builds(LogBatch, st.lists(TAME, max_size=3).map(tuple), PRODUCERS, st.booleans()) | st.builds(
    marker, PRODUCERS, st.sampled_from([ABORT, COMMIT, COMMIT]), TIMESTAMPS
)
MANY = examples(3)
SPLITS = st.lists(st.integers(1, 5), max_size=12)


@MANY
@given(batches=st.lists(WILD_BATCHES, max_size=12), sizes=SPLITS)
def test_columnar_replay_equals_replay_on_any_bytes(batches: list[LogBatch], sizes: list[int]) -> None:
    """Rows, findings, operations, touches and counts are those of codec and pure replay."""
    encoded = encode_batches(batches)
    assert columnar_result(ColumnarOffsetReplay(), chunks_of(encoded, sizes)) == expected_result(chunks_of(encoded, []))


@MANY
@given(batches=st.lists(TAME_BATCHES, min_size=4, max_size=30), sizes=SPLITS)
def test_columnar_replay_equals_replay_in_transactions(batches: list[LogBatch], sizes: list[int]) -> None:
    """Few keys and many producers: replaced, deleted, overtaken, aborted and open commits, cut anywhere."""
    encoded = encode_batches(batches)
    expected = expected_result(chunks_of(encoded, []))
    assert columnar_result(ColumnarOffsetReplay(), chunks_of(encoded, sizes)) == expected
    assert columnar_result(ColumnarOffsetReplay(), chunks_of(encoded, [1] * len(encoded))) == expected


@settings(deadline=None)
@given(batches=st.lists(TAME_BATCHES, min_size=2, max_size=12), cut=st.integers(0, 12))
def test_columnar_replay_goes_on_from_exported_state(batches: list[LogBatch], cut: int) -> None:
    """State kept between two runs is the whole state; `finish` in between changes nothing."""
    encoded = encode_batches(batches)
    columnar = ColumnarOffsetReplay()
    early = [rows_of(columnar.feed(chunk).commits) for chunk in chunks_of(encoded[:cut], [])]
    columnar.finish()
    columnar = ColumnarOffsetReplay(columnar.export_state())
    late = columnar_result(columnar, chunks_of(encoded[cut:], []))
    rows = {row.log_offset: row for part in early for row in part} | late.rows
    expected = expected_result(chunks_of(encoded, []))
    assert rows == expected.rows
    assert late.offsets == expected.offsets


# --- named cases ---


def decided(*batches: LogBatch) -> list[tuple[object, ...]]:
    """(committed offset, outcome, applied log offset, change, previous offset, delta) of each row; the log
    starts at offset 100."""
    result = columnar_result(ColumnarOffsetReplay(), chunks_of(encode_batches(batches), []))
    return [
        (row.committed_offset, row.outcome, row.applied_log_offset, row.change, row.previous_offset, row.delta)
        for row in result.rows.values()
    ]


def test_plain_commits_change_the_offset_in_force() -> None:
    """Each kind of change, against the value before; after a tombstone the next commit is a first one
    again."""
    assert decided(commit(5), commit(8), commit(8), commit(3), commit(None), commit(None), commit(4)) == [
        (5, "APPLIED", 100, "FIRST", None, None),
        (8, "APPLIED", 101, "ADVANCE", 5, 3),
        (8, "APPLIED", 102, "REPEAT", 8, 0),
        (3, "APPLIED", 103, "REWIND", 8, -5),
        (None, "APPLIED", 104, "DELETE", 3, None),
        (None, "APPLIED", 105, "DELETE", None, None),
        (4, "APPLIED", 106, "FIRST", None, None),
    ]


def test_transactional_commit_is_applied_by_its_marker() -> None:
    """Position and comparison are those at the marker; another producer's marker does nothing."""
    assert decided(commit(5), commit(9, producer_id=7), marker(8, COMMIT), marker(7, COMMIT), commit(10)) == [
        (5, "APPLIED", 100, "FIRST", None, None),
        (9, "APPLIED", 103, "ADVANCE", 5, 4),
        (10, "APPLIED", 104, "ADVANCE", 9, 1),
    ]


def test_plain_commit_before_the_marker_wins() -> None:
    """The record in force is later in the log than the transaction's, so the marker changes nothing."""
    assert decided(commit(9, producer_id=7), commit(5), marker(7, COMMIT)) == [
        (9, "SUPERSEDED", None, None, None, None),
        (5, "APPLIED", 101, "FIRST", None, None),
    ]


def test_replaced_and_deleted_pending_commits_are_superseded() -> None:
    """At once, so that a later ABORT does not make them aborted."""
    assert decided(
        commit(1, producer_id=7), commit(2, producer_id=7), commit(3, producer_id=8), commit(None), marker(7, ABORT)
    ) == [
        (1, "SUPERSEDED", None, None, None, None),
        (2, "SUPERSEDED", None, None, None, None),
        (3, "SUPERSEDED", None, None, None, None),
        (None, "APPLIED", 103, "DELETE", None, None),
    ]


def test_aborted_and_open_commits() -> None:
    """ABORT drops; without a marker the row comes out of `finish`, pending."""
    assert decided(commit(1, producer_id=7), marker(7, ABORT), commit(2, producer_id=7)) == [
        (1, "ABORTED", None, None, None, None),
        (2, "PENDING", None, None, None, None),
    ]


def test_producer_id_and_not_the_transactional_bit_makes_a_commit_pending() -> None:
    """As in OffsetMetadataManager.replay."""
    plain_bit = LogBatch((LogRecord(key_of(), value_of(1)),), 7, False)
    no_producer = LogBatch((LogRecord(key_of(), value_of(2)),), -1, True)
    assert [row[1] for row in decided(plain_bit, no_producer)] == ["PENDING", "APPLIED"]


def test_difference_beyond_int64_is_null() -> None:
    """A rewind from one end of int64 to the other is a rewind without a delta."""
    assert decided(commit(2**63 - 1), commit(-2))[1] == (-2, "APPLIED", 101, "REWIND", 2**63 - 1, None)


def test_row_holds_every_field_of_the_value() -> None:
    """Version 4 with everything, version 1 with an expiry, a legacy record."""
    legacy_key = encode_key(
        TOPIC,
        RecordType.LEGACY_OFFSET_COMMIT,
        make(LEGACY_OFFSET_COMMIT_KEY, group="old", topic="t", partition=3),
    )
    legacy_value = encode_value(
        TOPIC,
        RecordType.LEGACY_OFFSET_COMMIT,
        0,
        make(LEGACY_OFFSET_COMMIT_VALUE, offset=6, metadata="l", commit_timestamp=13),
    )
    batch = LogBatch(
        (
            LogRecord(
                key_of("g", "t", 2),
                value_of(4, leader_epoch=9, metadata="é" * 100, commit_timestamp=11, topic_id=T2),
                21,
            ),
            LogRecord(key_of("g", "t", 1), value_of(5, 1, commit_timestamp=12, expire_timestamp=99), 22),
            LogRecord(legacy_key, legacy_value, 23),
        )
    )
    rows = list(columnar_result(ColumnarOffsetReplay(), chunks_of(encode_batches([batch]), [])).rows.values())
    assert [row[:13] for row in rows] == [
        (100, "g", "t", T2, 2, 4, 9, "é" * 100, 11, None, 21, -1, False),
        (101, "g", "t", None, 1, 5, None, "", 12, 99, 22, -1, False),
        (102, "old", "t", None, 3, 6, None, "l", 13, None, 23, -1, False),
    ]


def test_types_0_and_1_are_one_key() -> None:
    """A legacy record and a new one commit for the same group, topic and partition."""
    old = LogBatch((LogRecord(b"\0\0" + key_of()[2:], value_of(1, 0)),))
    assert [row[3] for row in decided(old, commit(2))] == ["FIRST", "ADVANCE"]


def test_values_of_a_later_kafka_are_read_by_the_codec() -> None:
    """Unknown tags are skipped, together with the topic id that comes with them."""
    value = value_of(4)[:-1] + b"\2\0\x10" + struct.pack(">qq", 0, 1) + b"\x09\2??"
    chunks = chunks_of(encode_batches([LogBatch((LogRecord(key_of(), value),))]), [])
    result = columnar_result(ColumnarOffsetReplay(), chunks)
    assert [row.topic_id for row in result.rows.values()] == [T1]
    assert result.findings == []


def test_undecodable_commits_become_findings() -> None:
    """With the codec's own code; the commits around them are not disturbed."""
    batch = LogBatch(
        (
            LogRecord(key_of(), value_of(1)),
            LogRecord(key_of()[:-1], value_of(2)),
            LogRecord(key_of(), b"\0\x63" + value_of(3)[2:]),
            LogRecord(key_of(), b""),
            LogRecord(key_of(), value_of(4)[:-3]),
            LogRecord(key_of(), value_of(5)),
        )
    )
    result = columnar_result(ColumnarOffsetReplay(), chunks_of(encode_batches([batch]), []))
    assert [(offset, code) for offset, code, _ in result.findings] == [
        (101, "BUFFER_UNDERFLOW"),
        (102, "UNKNOWN_VALUE_VERSION"),
        (103, "BUFFER_UNDERFLOW"),
        (104, "BUFFER_UNDERFLOW"),
    ]
    assert result.findings[1][2] == b"\0\x63" + value_of(3)[2:]
    assert [(row.committed_offset, row.change) for row in result.rows.values()] == [(1, "FIRST"), (5, "ADVANCE")]
    assert result.quarantined_count == 4


def test_operations_and_touches() -> None:
    """A run of one group in one batch at one time is one operation, offset commits included; a group is
    touched again after its tombstone."""
    group_key = b"\0\2" + struct.pack(">h", 1) + b"g"
    batches = [
        LogBatch(
            (
                LogRecord(key_of(), value_of(1)),
                LogRecord(group_key, b"\0\3"),
                LogRecord(key_of("h"), value_of(1)),
                LogRecord(key_of(), value_of(2)),
                LogRecord(group_key, None, 1_001),
                LogRecord(b"\0\x63\0\1g", None, 1_001),
                LogRecord(group_key, None, 1_001),
            )
        ),
        commit(3),
        commit(4),
    ]
    result = columnar_result(ColumnarOffsetReplay(), chunks_of(encode_batches(batches), []))
    assert result.others == [(101, 101), (104, 104), (105, None), (106, 106)]
    assert result.touches == [(100, "g", 101, 1_000), (102, "h", 102, 1_000), (107, "g", 107, 1_000)]


@pytest.mark.parametrize("record_type", range(2, 24))
def test_only_tombstones_which_remove_groups_are_followed_by_a_touch(record_type: int) -> None:
    """GroupMetadata and the metadata of consumer, share and streams groups; their values are none."""
    other = struct.pack(">hh", record_type, 1) + b"g"
    batches = [
        commit(1),
        LogBatch((LogRecord(other, b"\0\0"),)),
        commit(2),
        LogBatch((LogRecord(other, None),)),
        commit(3),
        commit(4),
    ]
    result = columnar_result(ColumnarOffsetReplay(), chunks_of(encode_batches(batches), [3]))
    expected = [100, 104] if record_type in (2, 3, 11, 17) else [100]
    assert [touch[0] for touch in result.touches] == expected


def test_layouts_of_kafka_are_read_in_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The codec would give the same rows, many times slower: it is never asked."""
    fields = {"leader_epoch": 3, "commit_timestamp": 7}
    records = [
        LogRecord(key_of("größe", "t"), value_of(1, version, metadata=metadata, **(fields if version > 2 else {})))
        for version in range(5)
        for metadata in ("", "m", "é", "x" * 126, "x" * 127, "x" * 128, "x" * 300, "x" * 16_382)
    ]
    records += [LogRecord(key_of(), value_of(1, topic_id=topic_id)) for topic_id in (T1, T2)]
    records += [LogRecord(b"\0\0" + key_of()[2:], value_of(1, 0)), LogRecord(key_of(), None)]
    chunks = chunks_of(encode_batches([LogBatch(tuple(records))]), [])
    expected = expected_result(chunks)
    assert len(expected.rows) == len(records)

    def refuse(*_: object) -> None:
        raise AssertionError("the codec was asked")

    monkeypatch.setattr("coordinator_core.replay.columnar.offsets_columnar.decode_key", refuse)
    monkeypatch.setattr("coordinator_core.replay.columnar.offsets_columnar.decode_value", refuse)
    assert columnar_result(ColumnarOffsetReplay(), chunks) == expected


def test_tables_grow_inside_a_chunk() -> None:
    """More keys, groups, topics, topic ids and bytes than a new columnar replay has room for."""
    records = tuple(
        LogRecord(
            key_of(f"group {n}" + "g" * 100, f"topic {n}", n),
            value_of(n, topic_id=("A" * 16 + f"{n:05d}" + "A").translate(str.maketrans("0", "_"))),
        )
        for n in range(5_000)
    )
    chunks = chunks_of(encode_batches([LogBatch(records[:4_000]), LogBatch(records)]), [1])
    result = columnar_result(ColumnarOffsetReplay(), chunks)
    assert result == expected_result(chunks)
    assert result.offsets[OffsetKey("group 4999" + "g" * 100, "topic 4999", 4_999)] == (4_999, 100 + 8_999)


def test_repaired_text_beyond_int16_is_a_key_like_any_other() -> None:
    """Each bad byte becomes a character of three bytes: longer than the wire could hold, and still one
    key."""
    key = b"\0\1" + struct.pack(">h", 20_000) + b"\xff" * 20_000 + b"\0\1t\0\0\0\0"
    chunks = chunks_of(encode_batches([LogBatch((LogRecord(key, value_of(1)), LogRecord(key, value_of(2))))]), [])
    assert [row.change for row in columnar_result(ColumnarOffsetReplay(), chunks).rows.values()] == ["FIRST", "ADVANCE"]


def test_many_replacements_in_one_transaction_take_no_quadratic_time() -> None:
    """A producer which commits one key over and over keeps one pending row."""
    batches = [LogBatch(tuple(LogRecord(key_of(), value_of(n)) for n in range(5_000)), 7, True)]
    chunks = chunks_of(encode_batches([*batches, *batches, marker(7, COMMIT)]), [1])
    rows = list(columnar_result(ColumnarOffsetReplay(), chunks).rows.values())
    assert [row.outcome for row in rows] == ["SUPERSEDED"] * 9_999 + ["APPLIED"]


def test_chunk_with_positions_outside_its_data_is_refused() -> None:
    """The loops believe positions: a chunk that lies is the caller's fault, and nothing is read."""
    chunk = decode_chunk(b"".join(encode_batches([commit(1)])))
    bad = replace(chunk, records=replace(chunk.records, value_length=chunk.records.value_length + 1_000))
    with pytest.raises(CoreError):
        ColumnarOffsetReplay().feed(bad)
    bad = replace(chunk, records=replace(chunk.records, key_position=np.array([-5])))
    with pytest.raises(CoreError):
        ColumnarOffsetReplay().feed(bad)
    bad = replace(chunk, records=replace(chunk.records, batch_index=np.array([1], np.int32)))
    with pytest.raises(CoreError):
        ColumnarOffsetReplay().feed(bad)


def test_empty_log() -> None:
    """Nothing in, nothing out."""
    columnar = ColumnarOffsetReplay()
    output = columnar.feed(decode_chunk(b""))
    assert (len(output.commits), len(output.others), len(output.touches), len(columnar.finish())) == (0, 0, 0, 0)


# --- real logs ---


@pytest.mark.parametrize("recording", sorted(path.parent.name for path in RECORDINGS.glob("*/logs")))
def test_columnar_replay_equals_replay_on_recordings(recording: str) -> None:
    """Every log of a real broker, batch by batch and in one piece."""
    rows: list[Row] = []
    for directory in sorted((RECORDINGS / recording / "logs").glob("__consumer_offsets-*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        whole = [decode_chunk(data)]
        expected = expected_result(whole)
        assert columnar_result(ColumnarOffsetReplay(), whole) == expected
        batches = whole[0].batches
        cuts = [*batches.position.tolist(), len(data)]
        pieces = [decode_chunk(data[a:b]) for a, b in pairwise(cuts)]
        assert columnar_result(ColumnarOffsetReplay(), pieces) == expected
        assert expected.findings == []
        rows += expected.rows.values()
    assert rows


UNCOMPACTED = ("codec-gzip", "codec-lz4", "codec-snappy", "codec-zstd", "full-a", "old-40", "p50")


@pytest.mark.parametrize("recording", UNCOMPACTED)
def test_rows_tell_what_the_broker_answered_at_the_time(recording: str) -> None:
    """Whenever the broker was asked for a group's offsets, the rows applied by then give its answer.

    The log end before and after the question bounds what the broker had seen; one position between them must
    fit.
    """
    applied = {name: applied_rows(directory) for name, directory in offset_logs(recording).items()}
    log_of = {row.group: name for name, rows in applied.items() for row in rows}
    answers = 0
    with (RECORDINGS / recording / "truth" / "snapshots.jsonl").open(encoding="utf-8") as lines:
        for snapshot in map(json.loads, lines):
            for group, answer in snapshot["groups"].items():
                if "offsets" not in answer:
                    continue
                expected = {
                    name: (offset["offset"], offset["leader_epoch"], offset["metadata"])
                    for name, offset in answer["offsets"].items()
                }
                log = log_of.get(group)
                if log is None:
                    assert expected == {}
                    continue
                rows = [row for row in applied[log] if row.group == group]
                next_offsets = range(snapshot["leo_before"][log], snapshot["leo_after"][log] + 1)
                assert expected in [offsets_at(rows, next_offset) for next_offset in next_offsets], group
                answers += bool(expected)
    assert answers > 20


def offset_logs(recording: str) -> dict[str, Path]:
    """Name of each log of the offsets topic, and where it is."""
    return {path.name: path for path in sorted((RECORDINGS / recording / "logs").glob("__consumer_offsets-*"))}


def applied_rows(directory: Path) -> list[Row]:
    """Rows which took effect, in the order in which they did."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    columnar = ColumnarOffsetReplay()
    rows = rows_of(columnar.feed(decode_chunk(data)).commits) + rows_of(columnar.finish())
    return sorted(
        (row for row in rows if row.applied_log_offset is not None), key=lambda row: row.applied_log_offset or 0
    )


def offsets_at(rows: list[Row], next_offset: int) -> dict[str, tuple[int, int | None, str | None]]:
    """What rows of one group leave in force before log offset `next_offset`, as the broker's tools print
    it."""
    offsets: dict[str, tuple[int, int | None, str | None]] = {}
    for row in rows:
        if row.applied_log_offset is None or row.applied_log_offset >= next_offset:
            continue
        name = f"{row.topic}-{row.partition}"
        if row.committed_offset is None:
            offsets.pop(name, None)
        else:
            offsets[name] = (row.committed_offset, row.leader_epoch, row.metadata)
    return offsets
