"""Text of kafka-dump-log before Kafka 3.8: each record comes back or is a fault; what is not printed is not known."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.codec import decode_key, decode_value
from coordinator_core.dump_log_output import (
    NOT_PRINTED,
    UNKNOWN_LINE,
    DumpedBatch,
    DumpedFault,
    DumpedGap,
    read_dump_log_output,
)
from coordinator_core.dump_log_text import text_record
from coordinator_core.errors import EncodeError
from coordinator_core.log.batch import Record
from coordinator_core.log.records import iter_records
from coordinator_core.log.scan import scan_segment
from schemas.consumer_offsets import TOPIC
from tests.older_dumps import LOGS, MAGIC_0, MAGIC_1, MAGIC_2, STATE, commit, printed_files

LEFT_OUT = {
    "commit_timestamp",
    "expire_timestamp",
    "leader_epoch",
    "current_state_timestamp",
    "transaction_start_timestamp_ms",
}
PRINTS_JSON = "3.8.1"
WITHOUT_KEYS_OF_TOMBSTONES = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.2.2")
WITHOUT_TYPE_OF_EMPTY_GROUPS = ("0.10.2.2", "0.11.0.3")


@dataclass
class Read:
    """What came of the lines of a dump."""

    batches: list[DumpedBatch]
    faults: list[DumpedFault]
    gaps: list[DumpedGap]

    @property
    def records(self) -> dict[int, Record]:
        """By offset."""
        return {it.offset: it for batch in self.batches for it in iter_records(batch.data)}

    @property
    def missing(self) -> set[int]:
        """Offsets of gaps."""
        return {offset for gap in self.gaps for offset in range(gap.first_offset, gap.last_offset + 1)}


def read(text: str) -> Read:
    """The lines of a dump, without the empty ones."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line]
    found = list(read_dump_log_output(lines))
    return Read(
        [it for it in found if isinstance(it, DumpedBatch)],
        [it for it in found if isinstance(it, DumpedFault)],
        [it for it in found if isinstance(it, DumpedGap)],
    )


def logged(name: str) -> dict[int, Record]:
    """The records of one of the logs."""
    data = b"".join(LOGS[name][1]())
    batches = scan_segment(data, base_offset=0).batches
    starts = batches.position.tolist()
    return {
        it.offset: it
        for start, end in zip(starts, [*starts[1:], len(data)], strict=True)
        for it in iter_records(data[start:end])
    }


def plain(topic: str, record: Record) -> tuple[Any, ...]:
    """Key and fields of a record, without those that are not printed; partitions in no order."""
    assert record.key is not None
    if (topic == TOPIC and len(record.key) == 4) or record.value is None:
        return record.timestamp_ms, record.key, record.value
    value = decode_value(topic, decode_key(topic, record.key).record_type, record.value).fields
    names_of_fields: Sequence[str] = value.__slots__
    fields: dict[str, Any] = {name: getattr(value, name) for name in names_of_fields if name not in LEFT_OUT}
    if "transaction_partitions" in fields:
        of_topics = fields["transaction_partitions"] or ()
        fields["transaction_partitions"] = {it.topic: sorted(it.partition_ids) for it in of_topics}
    return record.timestamp_ms, record.key, fields


def offsets_not_printed(version: str, name: str) -> set[int]:
    """Offsets of records of which a tool does not print enough."""
    if version == PRINTS_JSON:
        return set()
    found = set()
    for offset, record in logged(name).items():
        assert record.key is not None
        is_group = LOGS[name][0] == TOPIC and record.key[:2] == b"\x00\x02"
        has_members = is_group and record.value is not None and b"/127.0.0.1" in record.value
        is_empty = is_group and record.value is not None and not has_members
        if (
            (record.value is None and version in WITHOUT_KEYS_OF_TOMBSTONES)
            or has_members
            or (is_empty and version in WITHOUT_TYPE_OF_EMPTY_GROUPS)
        ):
            found.add(offset)
    return found


@pytest.mark.parametrize("path", printed_files(), ids=lambda path: path.stem)
def test_each_record_comes_back_or_is_a_fault(path: Path) -> None:
    """Keys, times and printed fields are the log's; a record that is not printed is a fault with line, offset and
    remedy, and a gap; nothing else is."""
    version, _, name = path.stem.partition("-")
    log, not_printed = logged(name), offsets_not_printed(version, name)
    found = read(path.read_text(encoding="utf-8"))
    assert found.records.keys() == log.keys() - not_printed
    topic = LOGS[name][0]
    for offset, record in found.records.items():
        assert plain(topic, record) == plain(topic, log[offset]), offset
    assert {it.offset for it in found.faults} == found.missing == not_printed
    lines = path.read_text(encoding="utf-8").split("\n")
    for fault in found.faults:
        assert fault.code == NOT_PRINTED
        assert f"offset: {fault.offset} " in lines[fault.line_number - 1]
        assert "run kafka-dump-log of Kafka 4.0 or later" in fault.message
    assert {it.group_id for it in found.faults} <= {None, "g", "connect"}


@pytest.mark.parametrize("version", ["0.11.0.3", "1.1.1", "2.0.1", "2.2.2", "2.4.1", "2.8.2", "3.5.2", "3.8.1"])
def test_who_wrote_a_batch_is_known_as_far_as_it_is_printed(version: str) -> None:
    """The transaction and its end have their producer in every release; leader epochs are in lines of batches alone."""
    found = read((printed_files()[0].parent / f"{version}-{MAGIC_2}.txt").read_text(encoding="utf-8"))
    batches = scan_segment(b"".join(it.data for it in found.batches), base_offset=0).batches
    of_writer = batches.producer_id == 7
    assert batches.base_offset[of_writer].tolist() == [11, 12]
    assert batches.is_transactional[of_writer].tolist() == [True, True]
    assert batches.is_control[of_writer].tolist() == [False, True]
    assert set(batches.producer_epoch[of_writer].tolist()) == {2}
    has_lines = version not in WITHOUT_KEYS_OF_TOMBSTONES or version == "2.2.2"
    assert set(batches.leader_epoch.tolist()) == ({3} if has_lines else {-1})


@pytest.mark.parametrize("path", printed_files(), ids=lambda path: path.stem)
def test_messages_keep_their_magic(path: Path) -> None:
    """Which shows that the coordinator before Kafka 4.0 wrote them."""
    name = path.stem.partition("-")[2]
    magic = {MAGIC_0: 0, MAGIC_1: 1}.get(name, 2)
    for batch in read(path.read_text(encoding="utf-8")).batches:
        assert set(scan_segment(batch.data, base_offset=batch.base_offset).batches.magic.tolist()) == {magic}


def test_fields_that_are_not_printed_are_those_of_none() -> None:
    """Commit and expiry time, and the leader epoch, are -1, whichever version the value has."""
    for size, version in ((20, 2), (28, 1), (24, 3)):
        text = " key: offset_commit::group=g,partition=orders-0 payload: offset=5"
        _, value = text_record(TOPIC, text, 17, size)
        assert value is not None
        found = decode_value(TOPIC, 1, value)
        fields = found.fields
        assert (found.version, fields.offset, fields.commit_timestamp) == (version, 5, -1)
        assert (fields.expire_timestamp, fields.leader_epoch) == (-1, -1)


REFUSED = {
    "another key size": (" key: offset::g:orders:0 payload: 5", 18, 28),
    "another value size": (" key: offset::g:orders:0 payload: 5", 17, 29),
    "a metadata text cut off": (" key: offset::g:orders:0 payload: 5:two", 17, 37),
    "characters that the console lost": (" key: offset::g:orders:0 payload: 5:????", 17, 28),
    "a value where there is none": (" key: offset::g:orders:0 payload: 5", 17, -1),
    "no payload": (" key: offset::g:orders:0", 17, 28),
    "no decoder": (" key: \x00\x01\x00\x01g payload: \x00\x01", 17, 28),
    "an offset too large": (" key: offset::g:orders:0 payload: 9999999999999999999", 17, 28),
    "a partition too large": (" key: offset::g:orders:9999999999 payload: 5", 17, 28),
    "JSON that is no group": (' key: {"metadata":"g"} payload: {"protocolType":1}', 5, 24),
    "an empty group of a type not printed": (" key: metadata::g payload: :null:2:{}", 5, 24),
}


@pytest.mark.parametrize(("text", "key_size", "value_size"), REFUSED.values(), ids=REFUSED)
def test_a_text_that_the_sizes_do_not_prove_is_no_record(text: str, key_size: int, value_size: int) -> None:
    """Nothing is guessed: an error is raised."""
    with pytest.raises(EncodeError):
        text_record(TOPIC, text, key_size, value_size)


names = st.text(st.sampled_from("g:=,-1 ?é\n") | st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
texts = names | st.sampled_from(["offset=1,metadata=", " payload: 5", " key: offset::g:t:0 payload: 7"])


@given(
    group=names,
    metadata=texts,
    topic=st.sampled_from(["t", "a-1", "x_y.z"]),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    is_old=st.booleans(),
)
def test_any_commit_comes_back_or_is_refused(
    group: str, metadata: str, topic: str, partition: int, offset: int, is_old: bool
) -> None:
    """Whatever the names and the metadata: the record that was printed, or none; never another one."""
    key, value = commit(group, topic, partition, offset, 5, metadata)
    assert value is not None
    if is_old:
        text = f" key: offset::{group}:{topic}:{partition} payload: {offset}" + (f":{metadata}" if metadata else "")
    else:
        more = f",metadata={metadata}" if metadata else ""
        text = f" key: offset_commit::group={group},partition={topic}-{partition} payload: offset={offset}{more}"
    try:
        found_key, found_value = text_record(TOPIC, text, len(key), len(value))
    except EncodeError:
        assert "?" in metadata or "\N{REPLACEMENT CHARACTER}" in metadata
        return
    assert found_value is not None
    fields = decode_value(TOPIC, 1, found_value).fields
    assert (found_key, fields.offset, fields.metadata) == (key, offset, metadata)


@pytest.mark.parametrize(
    "text",
    [
        " key: offset::" + "g payload: " * 200_000,
        ' key: {"metadata":"' + "} payload: " * 200_000,
        " key: metadata::g payload: consumer:range:1:{" + "m=[t-0]:1FF," * 100_000 + "}",
        " key: metadata::g payload: " + "a:1:" * 300_000,
    ],
    ids=["separators", "json", "a-large-group", "colons"],
)
@pytest.mark.parametrize("key_size", [5, 60_000, 10**12])
def test_any_text_is_read_in_time_that_grows_with_it(text: str, key_size: int) -> None:
    """Whatever it repeats, it is refused within seconds."""
    began = time.process_time()
    with pytest.raises(EncodeError):
        text_record(TOPIC, text, key_size, 10**7)
    assert time.process_time() - began < 5


def test_text_that_is_no_more_of_the_record_is_said() -> None:
    """A trace of the tool's own failure behind a whole record does not change it, and is an unknown line."""
    (path,) = (it for it in printed_files() if it.stem == f"2.0.1-{MAGIC_2}")
    head = path.read_text(encoding="utf-8").split("\n")[:5]
    found = read("\n".join([*head, "Exception in thread main", "\tat kafka.tools.DumpLogSegments"]))
    assert sorted(found.records) == [1, 2]
    assert [it.code for it in found.faults] == [NOT_PRINTED, UNKNOWN_LINE, UNKNOWN_LINE]
    assert [it.line_number for it in found.faults[1:]] == [6, 7]


def test_lines_of_batches_without_records_say_how_to_get_them() -> None:
    """The tools before 2.2 print records with --deep-iteration alone: each batch is a gap, a compressed message with
    all offsets since the one before."""
    head = "Dumping x/__consumer_offsets-7/00000000000000000100.log\nStarting offset: 100\n"
    legacy = "offset: {} position: 0 CreateTime: 7 isvalid: true size: 79 magic: 1 compresscodec: {} crc: 32"
    batch = (
        "baseOffset: 4 lastOffset: 6 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 3 isTransactional: false position: 0 CreateTime: 7 isvalid: true size: 285 magic: 2 "
        "compresscodec: NONE crc: 27"
    )
    wrapper = "offset: 103 position: 9 CreateTime: 7 isvalid: true payloadsize: 104 magic: 1 compresscodec: GZIP crc: 3"
    for lines, gaps in (
        ([legacy.format(100, "NONE"), legacy.format(103, "GZIP")], [(100, 100), (101, 103)]),
        ([batch], [(4, 6)]),
        ([wrapper], [(100, 103)]),
    ):
        found = read(head + "\n".join(lines))
        assert found.records == {}
        assert [(it.first_offset, it.last_offset) for it in found.gaps] == gaps
        assert all("--deep-iteration" in it.message for it in found.faults)
        assert len(found.faults) == len(gaps)


def test_a_line_with_a_wrong_checksum_is_a_fault_and_a_gap() -> None:
    """What the tool calls invalid is not read."""
    (path,) = (it for it in printed_files() if it.stem == "1.1.1-magic-2")
    found = read(path.read_text(encoding="utf-8").replace("isvalid: true keysize: 17", "isvalid: false keysize: 17", 1))
    assert 1 not in found.records
    assert 1 in found.missing
    assert [it.offset for it in found.faults if it.code == "CRC_MISMATCH"] == [1]


@given(
    st.lists(
        st.sampled_from([line for path in printed_files() for line in path.read_text(encoding="utf-8").split("\n")])
        | st.text(max_size=40),
        max_size=12,
    )
)
def test_any_lines_in_any_order_give_batches_faults_and_gaps(lines: list[str]) -> None:
    """Nothing is raised, and every batch has a good checksum."""
    for batch in read("\n".join(lines)).batches:
        assert not scan_segment(batch.data, base_offset=batch.base_offset).findings


def test_states_of_transactions_come_back() -> None:
    """With every partition, from both ways of printing a set."""
    for version in ("0.11.0.3", "3.5.2"):
        (path,) = (it for it in printed_files() if it.stem == f"{version}-{STATE}")
        records = read(path.read_text(encoding="utf-8")).records
        assert records[1].value is not None
        fields = decode_value(LOGS[STATE][0], 0, records[1].value).fields
        assert sorted((it.topic, sorted(it.partition_ids)) for it in fields.transaction_partitions) == [
            (TOPIC, [7]),
            ("orders", [0, 12]),
        ]
