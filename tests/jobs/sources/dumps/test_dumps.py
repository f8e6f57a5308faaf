"""Dumps: whatever the format, the same records make the same batches; what is no record is reported, with its place."""

import base64
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from coordinator_core.bytes.log.batch import Record
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.replay.lookup import group_partition
from jobs.delta.duckdb import connect
from jobs.errors import SettingsError, SourceError
from jobs.sources.dumps import pack, source, staging
from jobs.sources.dumps.files import read_lines
from jobs.sources.dumps.pack import DUPLICATE_OFFSET, read_dump_log
from jobs.sources.segments import DUMP, to_record_batches
from tests.jobs.dump_builders import KAFKA_SCHEMA, batches_of, kafka_rows, reads_of, unpacked, write_json_lines
from tests.recorded import RECORDINGS

FULL_A = RECORDINGS / "full-a"
OFFSETS = "__consumer_offsets"
KEY = bytes.fromhex("0001 0001 67 0001 74 00000000")
VALUE = bytes.fromhex("0003 0000000000000005 ffffffff 0000 0000000000000007")


@pytest.fixture(scope="module")
def recorded() -> pa.Table:
    """The records of a recording, as Spark's Kafka source gives them."""
    return kafka_rows(FULL_A / "logs")


@pytest.fixture(scope="module")
def expected(recorded: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], bytes]:
    """The batches of the recording's rows in one Parquet file."""
    folder = tmp_path_factory.mktemp("expected")
    pq.write_table(recorded, folder / "rows.parquet")
    return batches_of(unpacked(folder / "staging", folder / "rows.parquet"))


def records_of(batches: bytes) -> list[Record]:
    """The records of batches back to back."""
    if not batches:
        return []
    columns = scan_segment(batches, base_offset=0)
    assert not columns.findings
    spans = zip(columns.batches.position.tolist(), columns.batches.size.tolist(), strict=True)
    return [record for at, size in spans for record in iter_records(batches[at : at + size])]


def test_batches_hold_the_rows(recorded: pa.Table, expected: dict[tuple[str, int], bytes]) -> None:
    """Each log partition has the records of the dump, with offset, time, key and value."""
    rows: dict[tuple[str, int], list[Record]] = {}
    for row in recorded.sort_by("offset").to_pylist():
        at = int(row["timestamp"].timestamp() * 1000 + 0.5)
        rows.setdefault((row["topic"], row["partition"]), []).append(
            Record(row["offset"], at, row["key"], row["value"])
        )
    assert {place: records_of(data) for place, data in expected.items()} == rows


def many_files(rows: pa.Table, folder: Path) -> Path:
    """Rows in no order over several files, some empty."""
    folder.mkdir()
    order = np.random.default_rng(7).permutation(rows.num_rows)
    for number, part in enumerate(np.array_split(order, 7)):
        pq.write_table(rows.take(pa.array(part)), folder / f"part-{number}.parquet", row_group_size=50)
    pq.write_table(rows.slice(0, 0), folder / "part-9.parquet")
    (folder / "_SUCCESS").write_bytes(b"")
    return folder


def by_hive_folders(rows: pa.Table, folder: Path) -> Path:
    """Rows as `partitionBy("topic", "partition")` writes them."""
    pq.write_to_dataset(rows, folder, partition_cols=["topic", "partition"])
    return folder


def delta(rows: pa.Table, folder: Path) -> Path:
    """Rows in a Delta table which is partitioned by topic, written in two commits, one of them over another."""
    write_deltalake(str(folder), rows.slice(0, 10), partition_by=["topic"])
    write_deltalake(str(folder), rows, mode="overwrite")
    return folder


def other_types(rows: pa.Table, folder: Path) -> Path:
    """The same values in other types: epoch ms, a dictionary of topics, large binary, offsets as uint64."""
    columns = {
        "key": rows["key"].cast(pa.large_binary()),
        "value": rows["value"].cast(pa.large_binary()),
        "topic": rows["topic"].dictionary_encode(),
        "partition": rows["partition"].cast(pa.int64()),
        "offset": rows["offset"].cast(pa.uint64()),
        "timestamp": pc.divide(rows["timestamp"].cast(pa.int64()), 1000),
        "timestampType": pc.if_else(pc.equal(rows["timestampType"], 1), "LogAppendTime", "CreateTime"),
    }
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder


def as_texts(rows: pa.Table, folder: Path) -> Path:
    """Keys and values as columns of base64."""
    folder.mkdir()
    texts = {
        name: pa.array([None if v is None else base64.b64encode(v).decode() for v in rows[name].to_pylist()])
        for name in ("key", "value")
    }
    columns = {name: texts.get(name, rows[name]) for name in rows.column_names}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder


def json_base64(rows: pa.Table, folder: Path) -> Path:
    """JSON lines as Spark writes them."""
    folder.mkdir()
    return write_json_lines(rows, folder / "rows.json")


def json_hex_gzip(rows: pa.Table, folder: Path) -> Path:
    """JSON lines in hex, compressed, with Windows line ends and empty lines."""
    folder.mkdir()
    plain = write_json_lines(rows, folder / "rows.json", encoding="hex").read_bytes()
    (folder / "rows.json").unlink()
    (folder / "rows.json.gz").write_bytes(gzip.compress(b"\n" + plain.replace(b"\n", b"\r\n")))
    return folder


@pytest.mark.parametrize(
    "write",
    [many_files, by_hive_folders, delta, other_types, as_texts, json_base64, json_hex_gzip],
    ids=lambda write: write.__name__,
)
def test_every_format_gives_the_same_batches(
    write: Any,
    recorded: pa.Table,
    expected: dict[tuple[str, int], bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batches are the same to the byte, whatever the format and the order of the rows, in however small pieces."""
    monkeypatch.setattr(staging, "PIECE_BYTES_MAX", 50_000)
    monkeypatch.setattr(staging, "BLOCK_BYTES_MAX", 2_000)
    monkeypatch.setattr(pack, "READ_BYTES_MAX", 10_000)
    monkeypatch.setattr(source, "WORK_BYTES_MAX", 30_000)
    found = unpacked(tmp_path / "staging", write(recorded, tmp_path / "dump"))
    assert not found.faults
    assert batches_of(found) == expected


def test_what_a_dump_does_not_tell_is_null_and_said(recorded: pa.Table, tmp_path: Path) -> None:
    """Rows of bronze made of keys and values have no producers, transactions and markers; a note says so."""
    pq.write_table(recorded, tmp_path / "rows.parquet")
    found = unpacked(tmp_path / "staging", tmp_path / "rows.parquet")
    assert [note for note in found.notes if "no markers, producers and transactions" in note and "1,6" not in note]
    log = found.logs[0]
    (read,) = reads_of(found)[log.topic, log.partition]
    (rows,) = to_record_batches(read, log)
    row = rows.slice(0, 1).to_pylist()[0]
    assert (row["source"], row["source_kind"]) == (str(tmp_path / "rows.parquet"), DUMP)
    names = ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control", "control_type")
    assert [row[name] for name in (*names, "leader_epoch")] == [None] * 7


def test_kafka_dump_log_gives_the_log(tmp_path: Path) -> None:
    """Text of kafka-dump-log gives the segments themselves, byte for byte, where batches are not compressed."""
    found = unpacked(tmp_path / "staging", FULL_A / "decoded")
    assert not found.faults
    assert [note for note in found.notes if "metadata log" in note]
    for (topic, partition), data in batches_of(found).items():
        segments = b"".join(path.read_bytes() for path in sorted(FULL_A.glob(f"logs/{topic}-{partition}/*.log")))
        if topic != "__cluster_metadata":
            assert data == segments
    for log in found.logs:
        (read,) = reads_of(found)[log.topic, log.partition]
        assert read.segment.has_header


def test_formatter_lines_are_numbered_by_kafkas_own_partitions(tmp_path: Path) -> None:
    """A formatter tells neither offset nor partition: records of a group lie where Kafka puts the group, numbered."""
    text = (FULL_A / "truth" / "formatters" / "offsets.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    (tmp_path / "offsets.json").write_text("".join(text.split("\n")), encoding="utf-8")  # as the tool prints: no ends
    found = unpacked(tmp_path / "staging", tmp_path / "offsets.json", dump_partition_count=5)
    assert not found.faults
    assert not any(log.has_offsets for log in found.logs)
    records = {place: records_of(data) for place, data in batches_of(found).items()}
    for partition in range(5):
        groups = [line["key"]["data"]["group"] for line in lines]
        count = sum(group_partition(group, 5) == partition for group in groups)
        own = records.get((OFFSETS, partition), [])
        assert [record.offset for record in own] == list(range(count))
        assert {record.timestamp_ms for record in own} <= {-1}


def row(offset: Any = 0, **fields: Any) -> dict[str, Any]:
    """One row of JSON lines; a field of None is left out."""
    node = {
        "topic": OFFSETS,
        "partition": 0,
        "offset": offset,
        "timestamp": 5,
        "key": base64.b64encode(KEY).decode(),
        "value": base64.b64encode(VALUE).decode(),
        **fields,
    }
    return {name: value for name, value in node.items() if value is not None}


def text_of(*lines: Any) -> bytes:
    """JSON lines; bytes as they are."""
    return b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)


BAD_LINES = [
    ("bad base64", row(key="A!!=")),
    ("bad hex", row(key="0g")),
    ("cut base64", row(value="AAM")),
    ("key is a number", row(key=5)),
    ("negative offset", row(-1)),
    ("offset too large", row(2**63 - 1)),
    ("offset beyond 64 bits", row(2**70)),
    ("offset is no number", row("x")),
    ("offset is a fraction", row(1.5)),
    ("offset is true", row(True)),
    ("no offset", row(None)),
    ("negative partition", row(partition=-1)),
    ("partition no topic has", row(partition=2**31 - 1)),
    ("no partition", row(partition=None)),
    ("no key", row(key=None)),
    ("no topic", row(topic=None)),
    ("topic is a list", row(topic=[OFFSETS])),
    ("timestamp is junk", row(timestamp="yesterday")),
    ("timestamp beyond 64 bits", row(timestamp=2**70)),
    ("headers are junk", row(headers=[5])),
    ("headers have no name", row(headers=[{"value": "AA=="}])),
    ("not an object", [1, 2]),
    ("not JSON", b"{"),
    ("not UTF-8", b'{"topic": "\xff"}'),
    ("deeply nested", b'{"topic":' + b"[" * 200_000),
    ("a huge number", b'{"offset": ' + b"9" * 10_000 + b"}"),
    ("NaN", b'{"topic": "__consumer_offsets", "partition": NaN}'),
]


@pytest.mark.parametrize(("name", "line"), BAD_LINES, ids=[name for name, _ in BAD_LINES])
def test_a_bad_line_is_reported_and_the_others_are_read(name: str, line: Any, tmp_path: Path) -> None:
    """One line that is no record becomes one fault with its line, its place and its bytes."""
    data = text_of(row(4), line, row(5))
    (tmp_path / "rows.json").write_bytes(data)
    found = unpacked(tmp_path / "staging", tmp_path / "rows.json")
    (fault,) = found.faults
    assert fault.source == str(tmp_path / "rows.json")
    assert fault.row.message.startswith("line 2: ")
    assert fault.row.byte_position == len(text_of(row(4))) + 1
    assert text_of(line).startswith(fault.row.payload)
    assert [record.offset for record in records_of(batches_of(found)[OFFSETS, 0])] == [4, 5]


def test_bad_rows_of_parquet(tmp_path: Path) -> None:
    """Rows of a Parquet file which are no records are reported by their number in the file."""
    rows = [
        {"key": KEY, "value": VALUE, "topic": OFFSETS, "partition": 0, "offset": 0},
        {"key": None, "value": VALUE, "topic": OFFSETS, "partition": 0, "offset": 1},
        {"key": KEY, "value": None, "topic": OFFSETS, "partition": None, "offset": 2},
        {"key": KEY, "value": None, "topic": OFFSETS, "partition": 0, "offset": -3},
        {"key": KEY, "value": None, "topic": None, "partition": 0, "offset": 4},
        {"key": KEY, "value": None, "topic": "other", "partition": 0, "offset": 5},
        {"key": None, "value": b"\x01", "topic": "__cluster_metadata", "partition": 0, "offset": 6},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA), tmp_path / "rows.parquet", row_group_size=2)
    found = unpacked(tmp_path / "staging", tmp_path / "rows.parquet")
    assert [fault.row.message for fault in found.faults] == [
        "row 1: no key",
        "row 2: no partition that can be",
        "row 3: no offset that can be",
        "row 4: no topic",
    ]
    assert sorted(batches_of(found)) == [("__cluster_metadata", 0), (OFFSETS, 0)]
    assert [note for note in found.notes if "1 record of topics that are not chosen" in note]


def test_of_one_offset_the_first_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that comes twice is taken once; one that differs is reported. Offsets may come in any order."""
    monkeypatch.setattr(staging, "BLOCK_BYTES_MAX", 1)
    other = row(7, value=base64.b64encode(VALUE + b"x").decode())
    (tmp_path / "a.json").write_bytes(text_of(row(9), row(7), row(7), other, row(3)))
    (tmp_path / "b.json").write_bytes(text_of(row(3), row(9, key=base64.b64encode(KEY + b"y").decode()), row(8)))
    found = unpacked(tmp_path / "staging", tmp_path)
    reads = reads_of(found)[OFFSETS, 0]
    records = records_of(b"".join(read.data.to_pybytes() for read in reads))
    assert records == [Record(offset, 5, KEY, VALUE) for offset in (3, 7, 8, 9)]
    findings = [(finding.code, finding.offset) for read in reads for finding in read.scan.findings]
    assert findings == [(DUPLICATE_OFFSET, 7), (DUPLICATE_OFFSET, 9)]


def test_known_offsets_are_not_packed(tmp_path: Path) -> None:
    """What is captured already is left out record by record, so that no batch overlaps with what there is."""
    (tmp_path / "rows.json").write_bytes(text_of(*(row(offset) for offset in range(20))))
    (log,) = unpacked(tmp_path / "staging", tmp_path / "rows.json").logs
    reads = list(read_dump_log(log, known=((0, 2), (5, 5), (10, 14), (19, 30))))
    records = records_of(b"".join(read.data.to_pybytes() for read in reads))
    assert [record.offset for record in records] == [3, 4, 6, 7, 8, 9, 15, 16, 17, 18]


def test_a_line_without_end_is_read_in_bounded_memory() -> None:
    """Of an endless line the beginning is given, the rest passed over, and the next line is read."""

    class Endless:
        left = 40

        def read(self, size: int) -> bytes:
            self.left -= 1
            return b"x" * size if self.left > 0 else b"\nnext\n" if self.left == 0 else b""

    lines = list(read_lines(Endless(), bytes_max=1000))
    assert [(line.number, line.is_whole) for line in lines] == [(1, False), (2, True)]
    assert (len(lines[0].data), lines[1].data) == (1000, b"next")
    assert lines[1].position == 39 * 1024 * 1024 + 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_the_reads(size: int) -> None:
    """However the bytes arrive, the lines and their places are the same."""
    data = b'{"a":1}\r\n\n{"key":{}}{"key":{"x":"}{"}}\nlast'

    class Slow:
        position = 0

        def read(self, _: int) -> bytes:
            part = data[self.position : self.position + size]
            self.position += size
            return part

    lines = list(read_lines(Slow()))
    assert [line.data for line in lines] == [b'{"a":1}', b'{"key":{}}', b'{"key":{"x":"}{"}}', b"last"]
    assert all(data[line.position :].startswith(line.data) for line in lines)


def test_too_many_bad_lines_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file of junk some lines are kept one by one, and the last fault says how many there were besides."""
    monkeypatch.setattr(source, "BAD_ROWS_MAX", 3)
    (tmp_path / "rows.json").write_bytes(b"{junk}\n" * 10 + text_of(row(1)))
    found = unpacked(tmp_path / "staging", tmp_path / "rows.json")
    assert [fault.row.message for fault in found.faults[:3]] == [f"line {n}: not a JSON object" for n in (1, 2, 3)]
    assert found.faults[3].row.message == "more rows of this file that are no records: 7"
    assert len(found.logs) == 1


MAPPED_FIELD = {
    "name": "key",
    "type": "binary",
    "nullable": True,
    "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"},
}


def problems(tmp_path: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Dumps which stop the run, and what is said."""
    (tmp_path / "empty").mkdir()
    yield "no such dump", tmp_path / "nowhere", {}
    yield "has no files", tmp_path / "empty", {}
    (tmp_path / "junk.bin").write_bytes(b"\x00\x01")
    yield "neither|no file of", tmp_path / "junk.bin", {}
    table = pa.Table.from_pylist([{"k": KEY, "v": VALUE, "partition": 0, "offset": 0, "topic": OFFSETS}])
    pq.write_table(table, tmp_path / "names.parquet")
    yield "dump_columns.key", tmp_path / "names.parquet", {}
    pq.write_table(table.drop_columns(["topic"]), tmp_path / "topic.parquet")
    yield "dump_topic", tmp_path / "topic.parquet", {"key_column": "k", "value_column": "v"}
    floats = table.set_column(3, "offset", pa.array([1.0]))
    pq.write_table(floats, tmp_path / "floats.parquet")
    yield "holds double", tmp_path / "floats.parquet", {"key_column": "k", "value_column": "v"}
    yield "is a file", tmp_path / "names.parquet", {"dump_format": "delta"}
    yield "cannot read the Delta table", tmp_path / "empty", {"dump_format": "delta"}
    (tmp_path / "mapped" / "_delta_log").mkdir(parents=True)
    log = (
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "0",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": [MAPPED_FIELD]}),
                "partitionColumns": [],
                "configuration": {"delta.columnMapping.mode": "name"},
            }
        },
    )
    (tmp_path / "mapped" / "_delta_log" / f"{0:020d}.json").write_bytes(text_of(*log))
    yield "maps its columns", tmp_path / "mapped", {}


def test_dumps_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    """A dump that is not there, is nothing, or lacks a column stops the run, with the remedy in one line."""
    for reason, path, options in problems(tmp_path):
        with pytest.raises(SourceError, match=reason) as raised:
            unpacked(tmp_path / "staging", path, **options)
        assert "\n" not in str(raised.value)


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    """Names of columns, and a topic for all rows, come from the settings."""
    pq.write_table(pa.Table.from_pylist([{"k": KEY, "v": VALUE, "p": 3, "o": 9, "at": 5}]), tmp_path / "rows.parquet")
    names = {"key": "k", "value": "v", "partition": "p", "offset": "o", "timestamp": "at"}
    options = {f"{name}_column": column for name, column in names.items()}
    found = unpacked(tmp_path / "staging", tmp_path / "rows.parquet", dump_topic=OFFSETS, **options)
    assert records_of(batches_of(found)[OFFSETS, 3]) == [Record(9, 5, KEY, VALUE)]


NESTED = {"topic": OFFSETS, "partition": 3, "offset": 9, "timestamp": 5}


@pytest.mark.parametrize(
    "spelled",
    [
        {f"kafka_{name}": value for name, value in {**NESTED, "key": KEY, "value": VALUE}.items()},
        {"_kafka_metadata": NESTED, "key": KEY, "value": VALUE},
        {**{f"_kafka_metadata_{name}": value for name, value in NESTED.items()}, "key": KEY, "value": VALUE},
        {**{f"__{name}": value for name, value in {**NESTED, "key": KEY}.items()}, "value": VALUE},
    ],
    ids=["InsertField", "nested", "KafkaMetadataTransform", "underscores"],
)
def test_columns_of_connects_sinks_are_known(tmp_path: Path, spelled: dict[str, Any]) -> None:
    """Rows as Kafka Connect's sinks name their columns need no settings, in Parquet and in JSON."""
    pq.write_table(pa.Table.from_pylist([spelled]), tmp_path / "rows.parquet")
    texts = {name: base64.b64encode(it).decode() if isinstance(it, bytes) else it for name, it in spelled.items()}
    (tmp_path / "rows.json").write_bytes(text_of(texts))
    for name in ("rows.parquet", "rows.json"):
        found = unpacked(tmp_path / f"staging-{name}", tmp_path / name)
        assert records_of(batches_of(found)[OFFSETS, 3]) == [Record(9, 5, KEY, VALUE)]


def test_rows_of_another_cluster_are_left_out(tmp_path: Path) -> None:
    """Of a lake of several clusters the rows of one are read, and of those without a name; the others are counted."""
    rows = [row(offset, cluster_id=name) for offset, name in enumerate(("orders", "other", None, "other"))]
    (tmp_path / "a.json").write_bytes(text_of(*rows))
    there = [it | {"key": KEY, "value": VALUE, "offset": it["offset"] + 4, "timestamp": 0} for it in rows]
    pq.write_table(pa.Table.from_pylist(there), tmp_path / "b.parquet")
    found = unpacked(tmp_path / "staging", tmp_path, cluster_id="orders")
    assert [record.offset for record in records_of(batches_of(found)[OFFSETS, 0])] == [0, 2, 4, 6]
    assert any("other clusters than 'orders' (--cluster-id): 'other' (4)" in note for note in found.notes)


def test_a_table_with_rows_that_were_deleted_in_place_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Files of a Delta table with deletion vectors still have the deleted rows: the remedy is named."""
    place = f"delta.`{tmp_path}/lake`"
    spark.sql(f"create table {place} (a int) using delta tblproperties ('delta.enableDeletionVectors' = true)")
    spark.range(3).selectExpr("cast(id as int) as a").coalesce(1).write.format("delta").mode("append").save(
        f"{tmp_path}/lake"
    )
    spark.sql(f"delete from {place} where a = 1")
    with pytest.raises(SourceError, match="has deletion vectors"):
        unpacked(tmp_path / "staging", tmp_path / "lake")


def test_headers_come_along(tmp_path: Path) -> None:
    """Headers of a dump are headers of the records, from Parquet and from JSON."""
    (tmp_path / "a.json").write_bytes(text_of(row(0, headers=[{"key": "h", "value": "AAE="}, {"key": "n"}])))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = {"topic": [OFFSETS] * 2, "partition": [0] * 2, "offset": [1, 2], "key": [KEY] * 2, "value": [VALUE] * 2}
    headers = pa.array([[{"key": "h", "value": b"x"}], None], kind)
    pq.write_table(pa.table({**rows, "headers": headers}), tmp_path / "b.parquet")
    found = unpacked(tmp_path / "staging", tmp_path)
    assert [record.headers for record in records_of(batches_of(found)[OFFSETS, 0])] == [
        (("h", b"\x00\x01"), ("n", None)),
        (("h", b"x"),),
        (),
    ]


def test_a_damaged_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    """A Parquet file cut short and a gzip file cut short are faults of their own."""
    (tmp_path / "a.json").write_bytes(text_of(row(0)))
    pq.write_table(pa.table({"topic": [OFFSETS]}), tmp_path / "b.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-20])
    packed = gzip.compress(text_of(*(row(offset, timestamp=offset * 7919) for offset in range(1, 2000))))
    (tmp_path / "c.json.gz").write_bytes(packed[:-200])
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    found = unpacked(tmp_path / "staging", tmp_path)
    assert sorted((fault.row.code, Path(fault.source).name) for fault in found.faults) == [
        ("UNKNOWN_FORMAT", "d.png"),
        ("UNREADABLE_FILE", "b.parquet"),
        ("UNREADABLE_FILE", "c.json.gz"),
    ]
    assert records_of(batches_of(found)[OFFSETS, 0])[0].offset == 0


def test_where_takes_rows_by_any_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files and of folders' names; null is not true. A file that its folder excludes is not opened, and is read."""
    plain = {"topic": OFFSETS, "partition": 0, "timestamp": 5, "key": KEY, "value": VALUE}
    for number, day in enumerate(("2026-11-01", "2026-11-02", None)):
        folder = tmp_path / "lake" / f"day={day or '__HIVE_DEFAULT_PARTITION__'}"
        folder.mkdir(parents=True)
        offsets_of_day = range(number * 3, min(number * 3 + 3, 8))
        envs = (None, "test", "prod")
        of_day = [plain | {"offset": it, "env": {"of": envs[it % 3]}} for it in offsets_of_day]
        pq.write_table(pa.Table.from_pylist(of_day), folder / "a.parquet")
    opened: list[str] = []
    unpack = source._unpack_parquet

    def opening(file: Any, *more: Any) -> None:
        opened.append(Path(file.path).parent.name)
        unpack(file, *more)

    monkeypatch.setattr(source, "_unpack_parquet", opening)

    def offsets(where: str) -> list[int]:
        opened.clear()
        found = unpacked(tmp_path / f"staging-{len(where)}", tmp_path / "lake", dump_where=where)
        assert len(found.files_read) == 3
        assert any(it.endswith(f" match --where {where}") for it in found.notes)
        there = batches_of(found)
        return [it.offset for it in records_of(there[OFFSETS, 0])] if there else []

    assert offsets("env.of = 'prod'") == [2, 5]
    assert offsets("env.of <> 'prod' -- or none") == [1, 4, 7]
    assert len(opened) == 3
    assert offsets("day >= '2026-11-02'") == [3, 4, 5]
    assert opened == ["day=2026-11-02"]
    assert offsets("day = '2026-11-01' and \"offset\" > 0 and make_timestamp(0) < now()") == [1, 2]
    assert offsets("day = '2027-01-01'") == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("env = 'prod'", "no file has a column env. There are .*offset"),
        ('topic = "prod"', "no file has a column prod .texts take single quotes: 'prod'"),
        ("topic =", "--where 'topic =': .*syntax error"),
        ("topic in (select content from read_text('/etc/hostname'))", "--where .*"),
        ("topic", "is no condition, but VARCHAR"),
        ("null", "is no condition"),
        ("columns(*) is null", "is no condition"),
        ("true) as a, (false", "syntax error"),
        ("nosuch(partition)", "nosuch does not exist"),
        ("count(*) > 0", "aggregates"),
        ("row_number() over () = 1", "window functions"),
        ("unnest([true, false])", "UNNEST"),
        ("partition = 0 or RANDOM() < 0.5", r"random\(\) gives another value each time"),
        ("topic in (select cast(uuid() as text) from range(3))", r"uuid\(\) gives another value each time"),
    ],
)
def test_a_where_that_is_no_condition_of_a_row_stops_the_run(tmp_path: Path, where: str, words: str) -> None:
    """Before any row is read, with what is wrong in one line."""
    row_ = {"topic": OFFSETS, "partition": 0, "offset": 0, "timestamp": 5, "key": KEY, "value": VALUE}
    pq.write_table(pa.Table.from_pylist([row_]), tmp_path / "a.parquet")
    with pytest.raises(SettingsError, match=words) as raised:
        unpacked(tmp_path / "staging", tmp_path / "a.parquet", dump_where=where)
    assert "\n" not in str(raised.value)
    (tmp_path / "b.json").write_bytes(text_of(row(0)))
    with pytest.raises(SourceError, match="--where takes rows of Parquet files"):
        unpacked(tmp_path / "staging", tmp_path / "b.json", dump_where=where)


def with_kinds(rows: pa.Table) -> pa.Table:
    """Rows with a column of each kind that lakes are partitioned by."""
    numbers = range(rows.num_rows)
    days = [datetime(2026, 11, 20 + number % 3, tzinfo=UTC) for number in numbers]
    return (
        rows.append_column("env", pa.array([("prod", "dev", None)[number % 3] for number in numbers]))
        .append_column("num", pa.array([number % 12 for number in numbers]))
        .append_column("day", pa.array([it.date() for it in days]))
        .append_column("flag", pa.array([bool(number % 2) for number in numbers]))
        .append_column("since", pa.array(days, pa.timestamp("us", "UTC")))
    )


@pytest.mark.parametrize(
    "by", [["env", "num", "day"], ["env", "day", "num", "flag", "since"]], ids=["folders", "Delta"]
)
def test_where_compares_what_folders_tell_by_its_type(recorded: pa.Table, tmp_path: Path, by: list[str]) -> None:
    """Rows are those that DuckDB takes of the rows before they were partitioned."""
    rows = with_kinds(recorded.slice(0, 240))
    if "flag" in by:
        write_deltalake(str(tmp_path / "lake"), rows, partition_by=by)
    else:
        pq.write_to_dataset(rows, tmp_path / "lake", partition_cols=by)
    of_numbers = ("num < '3'", "num < 3", "num = 10", "flag", "flag = 'true'", "env is null")
    of_times = ("day >= '2026-11-21'", "day > date '2026-11-20' and flag", "since >= '2026-11-21T00:00:00Z'")
    for number, condition in enumerate((*of_numbers, *of_times, "since = '2026-11-21'")):
        expected = connect().from_arrow(rows).filter(condition).to_arrow_table()
        found = unpacked(tmp_path / f"staging-{number}", tmp_path / "lake", dump_where=condition)
        count = sum(len(records_of(data)) for data in batches_of(found).values())
        assert 0 < count == expected.num_rows < rows.num_rows, condition


def test_where_takes_folders_as_texts_unless_all_are_numbers_or_days(tmp_path: Path) -> None:
    """One folder that is neither makes a column of texts, and the folder's value counts before that of a file."""
    for number, env in enumerate(("1", "x", "10")):
        (tmp_path / "lake" / f"env={env}").mkdir(parents=True)
        row_ = {"topic": OFFSETS, "partition": 0, "offset": number, "timestamp": 5, "key": KEY, "value": VALUE}
        pq.write_table(pa.Table.from_pylist([row_ | {"env": "y"}]), tmp_path / "lake" / f"env={env}" / "a.parquet")
    found = unpacked(tmp_path / "staging", tmp_path / "lake", dump_where="env < '2' and \"offset\" >= 0")
    assert [it.offset for it in records_of(batches_of(found)[OFFSETS, 0])] == [0, 2]


@pytest.mark.parametrize("is_delta", [False, True])
def test_where_takes_a_column_as_null_that_a_file_lacks(tmp_path: Path, is_delta: bool) -> None:
    """Files from before a column was added; a column that no file has is an error."""
    lake = tmp_path / "lake"
    lake.mkdir()
    for number, more in enumerate(({}, {"env": "prod"}, {"env": "dev"}, {})):
        row_ = {"topic": OFFSETS, "partition": 0, "offset": number, "timestamp": 5, "key": KEY, "value": VALUE}
        rows = pa.Table.from_pylist([row_ | more])
        if is_delta:
            write_deltalake(str(lake), rows, mode="append", schema_mode="merge")
        else:
            pq.write_table(rows, lake / f"{number}.parquet")
    for condition, offsets in (
        ("env = 'prod'", [1]),
        ("env is null", [0, 3]),
        ("env is distinct from 'dev'", [0, 1, 3]),
    ):
        found = unpacked(tmp_path / f"staging-{len(condition)}", lake, dump_where=condition)
        assert [it.offset for it in records_of(batches_of(found)[OFFSETS, 0])] == offsets
    with pytest.raises(SettingsError, match=r"no file has a column nope\. There are .*env"):
        unpacked(tmp_path / "staging", lake, dump_where="nope = 1")


def test_a_where_that_takes_nothing_says_of_how_many_rows(recorded: pa.Table, tmp_path: Path) -> None:
    """So that a wrong condition is seen."""
    pq.write_table(recorded.slice(0, 90), tmp_path / "a.parquet")
    found = unpacked(tmp_path / "staging", tmp_path / "a.parquet", dump_where=" topic = 'Prod' ; ")
    assert not found.logs
    assert found.notes == (f"{tmp_path}/a.parquet: 0 of 90 rows match --where topic = 'Prod'",)


def test_an_empty_delta_table_is_a_lake_without_rows(recorded: pa.Table, tmp_path: Path) -> None:
    """Nothing is read, and nothing is wrong."""
    write_deltalake(str(tmp_path / "lake"), recorded.slice(0, 10))
    DeltaTable(str(tmp_path / "lake")).delete()
    for where in ("", "partition = 0"):
        found = unpacked(tmp_path / "staging", tmp_path / "lake", dump_where=where)
        assert (found.logs, found.faults, found.files_read) == ((), (), ())


def test_an_empty_parquet_file_is_damaged_and_an_empty_text_has_no_lines(recorded: pa.Table, tmp_path: Path) -> None:
    """With and without a condition."""
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(recorded.slice(0, 10), lake / "a.parquet")
    (lake / "b.parquet").write_bytes(b"")
    (lake / "c.json").write_bytes(b"")
    for where in ("", "partition >= 0"):
        found = unpacked(tmp_path / f"staging-{len(where)}", lake, dump_where=where)
        assert [(it.row.code, Path(it.source).name) for it in found.faults] == [("UNREADABLE_FILE", "b.parquet")]
        assert [Path(it.path).name for it in found.files_read] == ["a.parquet"]


def test_two_columns_of_one_name_stop_the_run(recorded: pa.Table, tmp_path: Path) -> None:
    """Which of them is the key is not to be guessed."""
    twice = pa.Table.from_arrays([*recorded.columns, recorded["key"]], names=[*recorded.column_names, "key"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="two columns key"):
        unpacked(tmp_path / "staging", tmp_path)
