"""Text of kafka-dump-log: the batches of real brokers come back from it to the byte."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import Record, build_batch, parse_header, stored_crc
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.bytes.printed.dump_log_output import (
    NOT_PRINTED,
    UNKNOWN_LINE,
    Dumped,
    DumpedBatch,
    DumpedFault,
    read_dump_log_output,
)
from tests.conftest import PROJECT_ROOT
from tests.recorded import RECORDINGS

KAFKA_44 = PROJECT_ROOT / "tests" / "cases" / "kafka-4.4"
DUMPS = sorted([*RECORDINGS.glob("*/decoded/*.dump.txt.gz"), *KAFKA_44.glob("decoded/*.dump.txt.gz")])
DUMPING = "Dumping logs/__consumer_offsets-3/00000000000000000000.log"
HEADER = (
    "baseOffset: {base} lastOffset: {last} count: {count} baseSequence: 0 lastSequence: 0 producerId: -1 "
    "producerEpoch: -1 partitionLeaderEpoch: 4 isTransactional: false isControl: {control} "
    "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 7 size: 1 magic: 2 compresscodec: none crc: {crc} "
    "isvalid: {valid}"
)
RECORD = (
    "| offset: {offset} CreateTime: 7 keySize: 13 valueSize: 26 sequence: 0 headerKeys: [{headers}]"
    ' key: {{"type":"1","data":{{"group":"g","topic":"t","partition":0}}}} payload: {payload}'
)
VALUE = '{"version":"3","data":{"offset":5,"leaderEpoch":-1,"metadata":" payload: ","commitTimestamp":7}}'


def header(base: int = 0, last: int = 0, *, count: int = 1, crc: int = 0, valid: bool = True, control: str = "") -> str:
    """A header line."""
    return HEADER.format(
        base=base, last=last, count=count, crc=crc, valid=str(valid).lower(), control=control or "false"
    )


def record(offset: int = 0, payload: str = VALUE, headers: str = "") -> str:
    """A record line."""
    return RECORD.format(offset=offset, payload=payload, headers=headers)


def read(*lines: str) -> list[Dumped]:
    """What the lines give."""
    return list(read_dump_log_output(enumerate(lines, 1)))


def segment_batches(recording: Path, topic: str) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Each batch of a topic of a recording, by partition and base offset."""
    for path in sorted(recording.glob(f"logs/{topic}-*/*.log")):
        data = path.read_bytes()
        batches = scan_segment(data, base_offset=int(path.stem)).batches
        for row in range(len(batches)):
            start = int(batches.position[row])
            place = int(path.parent.name.rpartition("-")[2]), int(batches.base_offset[row])
            yield place, data[start : start + int(batches.size[row])]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: f"{path.parent.parent.name}-{path.name.split('.')[0]}")
def test_batches_of_real_brokers_come_back(path: Path) -> None:
    """All that was not compressed is the log to the byte, of compressed batches the records; only records of the
    metadata log whose types are not read are left out."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        printed = list(read_dump_log_output(enumerate((line.rstrip("\n") for line in lines), 1)))
    batches = [item for item in printed if isinstance(item, DumpedBatch)]
    assert len(batches) == len(printed)
    topic = path.name.split(".")[0]
    logged = dict(segment_batches(path.parent.parent, topic))
    assert {(batch.partition, batch.base_offset) for batch in batches} == logged.keys()
    for batch in batches:
        original = logged[batch.partition, batch.base_offset]
        assert batch.is_exact == (batch.data == original)
        if topic == "__cluster_metadata":
            records = {record.offset: record for record in iter_records(original)}
            rebuilt = list(iter_records(batch.data))
            assert len(rebuilt) + batch.unread_count == len(records)
            assert all(records[record.offset].value == record.value for record in rebuilt)
        elif parse_header(original).codec_id:
            assert list(iter_records(batch.data)) == list(iter_records(original))
        else:
            assert batch.is_exact


def test_the_checksum_of_the_line_says_if_a_batch_is_exact() -> None:
    """With the right checksum the batch is known to be the broker's own."""
    key = bytes.fromhex("0001 0001 67 0001 74 00000000")
    value = bytes.fromhex("0003 0000000000000005 ffffffff 000a") + b" payload: " + bytes.fromhex("0000000000000007")
    original = build_batch([Record(0, 7, key, value), Record(1, 7, key, None)], leader_epoch=4, base_sequence=0)
    crc = parse_header(original).crc
    for reported, is_exact in ((crc, True), (crc ^ 1, False)):
        (batch,) = read(DUMPING, header(0, 1, count=2, crc=reported), record(0), record(1, "<DELETE>"))
        assert isinstance(batch, DumpedBatch)
        assert (batch.data, batch.is_exact) == (original, is_exact)
        assert (batch.topic, batch.partition, batch.record_count) == ("__consumer_offsets", 3, 2)


TAGGED = '{"version":"4","data":{"offset":5,"leaderEpoch":-1,"metadata":"","commitTimestamp":7,"later":{"a":1}}}'


def test_a_field_of_a_later_kafka_does_not_lose_the_record() -> None:
    """The record is read without it, the field is named, and the batch is not said to be the log's own."""
    (batch,) = read(DUMPING, header(0, 1, count=2), record(0, TAGGED), record(1, TAGGED.replace("later", "newer")))
    assert isinstance(batch, DumpedBatch)
    assert (batch.record_count, batch.is_exact, batch.left_out) == (2, False, (("later", 1), ("newer", 1)))
    known = TAGGED.replace(',"later":{"a":1}', "")
    (plain,) = read(DUMPING, header(0, 1, count=2), record(0, known), record(1, known))
    assert isinstance(plain, DumpedBatch)
    assert (plain.data, plain.left_out) == (batch.data, ())


FAULTS = [
    (
        "a field that no later Kafka can have",
        [DUMPING, header(), record(0, VALUE.replace("leader", "later"))],
        NOT_PRINTED,
    ),
    ("no partition", [header(), record()], NOT_PRINTED),
    ("no such record type", [DUMPING, header(), record().replace('"type":"1"', '"type":"99"')], NOT_PRINTED),
    ("decoder failed", [DUMPING, header(), record().split(" key: ")[0] + " key: Error at offset 0"], NOT_PRINTED),
    ("no data printed", [DUMPING, header(), record().split(" key: ")[0]], NOT_PRINTED),
    ("no decoder", [DUMPING, header(), record().split(" key: ")[0] + " key: \x00\x01g payload: \x00"], NOT_PRINTED),
    ("headers without values", [DUMPING, header(), record(headers="h")], NOT_PRINTED),
    ("no metadata", [DUMPING, header(), "| key: {} payload: {}"], NOT_PRINTED),
    ("checksum", [DUMPING, header(valid=False), record()], "CRC_MISMATCH"),
    ("offset outside", [DUMPING, header(5, 5), record(9)], "INVALID_BATCH"),
    ("offsets go back", [DUMPING, header(0, 1), record(1), record(0)], "INVALID_BATCH"),
    ("no number", [DUMPING, header().replace("producerId: -1", "producerId: x"), record()], "INVALID_BATCH"),
    ("number too large", [DUMPING, header().replace("producerId: -1", f"producerId: {10**30}")], "INVALID_BATCH"),
    ("torn tail", [DUMPING, "Found 12 invalid bytes at the end of 00000000000000000000.log"], "TRUNCATED_BATCH"),
    ("junk", [DUMPING, "java.lang.OutOfMemoryError"], UNKNOWN_LINE),
    ("a record alone", [DUMPING, record()], UNKNOWN_LINE),
    ("a snapshot", ["Dumping logs/__cluster_metadata-0/00000000000000000010-0000000001.checkpoint"], UNKNOWN_LINE),
]


@pytest.mark.parametrize(("name", "lines", "code"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_what_a_dump_does_not_tell_is_said(name: str, lines: list[str], code: str) -> None:
    """Each line which tells no record is a fault with its code and line, and the next batch is read all the same."""
    *faults, last = read(*lines, DUMPING, header(7, 7), record(7))
    assert isinstance(last, DumpedBatch)
    assert (last.base_offset, last.record_count) == (7, 1)
    (fault,) = [item for item in faults if isinstance(item, DumpedFault)]
    assert fault.code == code
    assert 1 <= fault.line_number <= len(lines)


def test_indexes_are_passed_over() -> None:
    """Lines of index files say nothing of records and are no faults."""
    index = ["Dumping a/__consumer_offsets-3/00000000000000000000.index", "offset: 4 position: 300", "is empty."]
    (batch,) = read(*index, DUMPING, header(), record())
    assert isinstance(batch, DumpedBatch)


def test_the_log_partition_may_be_reported_from_outside() -> None:
    """A dump made inside the partition's folder names the file alone: then the caller says which partition it is."""
    lines = ["Dumping 00000000000000000000.log", header(), record()]
    (batch,) = read_dump_log_output(enumerate(lines, 1), log=("__consumer_offsets", 9))
    assert isinstance(batch, DumpedBatch)
    assert batch.partition == 9


def test_legacy_messages_come_back() -> None:
    """A message of magic 1 has a shorter header line; it is one of magic 1 again, and its checksum proves it."""
    (line,) = [record(4)]
    legacy = line.replace(" sequence: 0 headerKeys: []", " isValid: true crc: 5")
    header_line = "offset: 4 position: 0 CreateTime: 7 size: 9 magic: 1 compresscodec: none crc: {} isvalid: true"
    (packed,) = read(DUMPING, header_line.format(5), legacy)
    assert isinstance(packed, DumpedBatch)
    (batch,) = read(DUMPING, header_line.format(stored_crc(packed.data)), legacy)
    assert isinstance(batch, DumpedBatch)
    assert [item.offset for item in iter_records(batch.data)] == [4]
    assert parse_header(batch.data).magic == 1
    assert (batch.base_offset, batch.last_offset, packed.is_exact, batch.is_exact) == (4, 4, False, True)


@given(st.lists(st.sampled_from([DUMPING, header(), record(), "|", "", "baseOffset: 1"]) | st.text(max_size=40)))
def test_any_lines_give_batches_or_faults(lines: list[str]) -> None:
    """Whatever the lines, nothing is raised, and every batch has a good checksum."""
    for item in read(*lines):
        if isinstance(item, DumpedBatch):
            assert not scan_segment(item.data, base_offset=item.base_offset).findings
