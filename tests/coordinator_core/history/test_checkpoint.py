"""What a run leaves behind: a replay that goes on from it gives the rows of one that never stopped."""

import hashlib
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args
from zlib import crc32

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.errors import StateUnreadable
from coordinator_core.history import checkpoint
from coordinator_core.history.groups import GroupHistory
from coordinator_core.history.log_checkpoint import (
    pack_offset_state,
    pack_share_state,
    unpack_offset_state,
    unpack_share_state,
)
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.open_intervals import Open, OpenAssignment, OpenIntervals
from coordinator_core.history.operations import GroupRecord, Operation
from coordinator_core.history.rows import GroupRows, TopicKey
from coordinator_core.replay.columnar.offsets_columnar import NO_WRITER
from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from coordinator_core.replay.consumer.state import ConsumerGroup
from tests.coordinator_core.group_records import Record, any_records
from tests.coordinator_core.live.offsets.reference import Row, rows_of
from tests.coordinator_core.live.share_state.reference import columnar_rows
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS


def operations_of(records: Sequence[Record]) -> list[Operation]:
    """Each record an operation of its group, a second after the one before."""
    operations = []
    for offset, (record_type, key, value) in enumerate(records):
        group_id = str(getattr(key, "group_id", None) or getattr(key, "group", ""))
        made = GroupRecord(offset, record_type, key, value)
        operations.append(Operation(group_id, 1_000 * offset, offset, [made]))
    return operations


@dataclass
class Night:
    """Rows of several runs together: those settled, and by group the rows that the last run left open."""

    settled: GroupRows = field(default_factory=GroupRows)
    open: dict[str, GroupRows] = field(default_factory=dict)
    state: dict[str, bytes] = field(default_factory=dict)

    def run(self, operations: Iterable[Operation]) -> None:
        """Go on from the state of the run before."""
        history = GroupHistory(saved=self.state)
        for operation in operations:
            history.apply(operation)
        self.settled.extend(history.take())
        self.state = history.save()
        self.open = {group_id: rows for group_id, rows in self.open.items() if group_id in history.serialized}
        for group_id, rows in by_group(history.finish()).items():
            assert group_id not in self.open, "a group which slept was given again"
            self.open[group_id] = rows

    def rows(self) -> list[str]:
        """All of them, in an order of their own."""
        together = GroupRows()
        together.extend(self.settled)
        for rows in self.open.values():
            together.extend(rows)
        return texts(together)


def by_group(rows: GroupRows) -> dict[str, GroupRows]:
    parts: dict[str, GroupRows] = {}
    for name in ("generations", "members"):
        for row in getattr(rows, name):
            getattr(parts.setdefault(row.group_id, GroupRows()), name).append(row)
    for run, assigned in rows.assignments.by_run():
        parts.setdefault(run.group_id, GroupRows()).assignments.append(run, assigned)
    return parts


def texts(rows: GroupRows) -> list[str]:
    return sorted(map(repr, (*rows.generations, *rows.members, *rows.assignments, *rows.events)))


@settings(deadline=None)
@given(records=any_records(), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_groups_go_on_from_what_was_saved(records: list[Record], cuts: list[int]) -> None:
    """Any records, cut anywhere into runs: the rows are those of one run, and each open row is given once."""
    operations = operations_of(records)
    whole, parts = Night(), Night()
    whole.run(operations)
    ends = sorted({*cuts, len(operations)})
    for first, last in zip([0, *ends], ends, strict=False):
        parts.run(operations[first:last])
    assert parts.rows() == whole.rows()
    assert parts.state == whole.state


def segments(recording: str, topic: str) -> Iterator[Path]:
    for folder in sorted((RECORDINGS / recording / "logs").glob(f"{topic}-*")):
        yield from sorted(folder.glob("*.log"))


def batches_of(path: Path) -> list[bytes]:
    data = np.frombuffer(path.read_bytes(), np.uint8)
    scan = scan_segment(data, base_offset=int(path.stem), is_last=True)
    places = zip(scan.batches.position.tolist(), scan.batches.size.tolist(), strict=True)
    return [data[start : start + size].tobytes() for start, size in places]


def chunk_of(batches: Sequence[bytes]) -> RecordChunk:
    return decode_chunk(np.frombuffer(b"".join(batches), np.uint8), bytes_max=2**26, chunk_bytes_max=2**29, crc="skip")


def runs_of(batches: Sequence[bytes], size: int) -> Iterator[RecordChunk]:
    for start in range(0, len(batches), size):
        yield chunk_of(batches[start : start + size])


@pytest.mark.parametrize("recording", ["full-a", "compact-partial", "old-40"])
def test_offset_logs_go_on_from_bytes(recording: str) -> None:
    """Real logs with open transactions, a run every 97 batches, each begun from the bytes which the last one left."""
    paths = [path for path in segments(recording, "__consumer_offsets") if path.stat().st_size]
    assert paths
    for path in paths:
        batches = batches_of(path)
        whole = OffsetsLogReplay()
        output = whole.feed(chunk_of(batches))
        expected_state = whole.export_state()
        expected = {row.log_offset: row for part in (output.commits, whole.finish().commits) for row in rows_of(part)}
        state: OffsetsLogState | None = None
        commits: dict[int, Row] = {}
        events: list[str] = []
        for chunk in runs_of(batches, 97):
            replay = OffsetsLogReplay(state)
            part = replay.feed(chunk)
            events += map(repr, part.groups.events)
            left = replay.export_state()
            state = OffsetsLogState(unpack_offset_state(pack_offset_state(left.columnar)), left.groups)
            open_rows = replay.finish().commits
            commits |= {row.log_offset: row for columns in (part.commits, open_rows) for row in rows_of(columns)}
        assert state is not None
        assert commits == expected
        assert events == [repr(event) for event in output.groups.events]
        assert state.groups == expected_state.groups


@pytest.mark.parametrize("recording", [pytest.param("full-a", marks=takes_minutes), "compact-partial"])
def test_share_logs_go_on_from_bytes(recording: str) -> None:
    """The same of share partitions: rows settled in each run, with those open at the end, are the rows of one run."""
    for path in segments(recording, "__share_group_state"):
        batches = batches_of(path)
        whole = ColumnarShareReplay()
        expected = columnar_rows([whole.feed(chunk_of(batches)), whole.finish()])
        outputs = []
        columnar = ColumnarShareReplay()
        for chunk in runs_of(batches, 41):
            columnar = ColumnarShareReplay(unpack_share_state(pack_share_state(columnar.export_state())))
            outputs.append(columnar.feed(chunk))
        assert columnar_rows([*outputs, columnar.finish()]) == expected


def test_persistent_maps_are_saved_in_one_order() -> None:
    """By key, not in the order of a map in memory: that depends on hashes of texts, which differ between processes."""
    names = [f"member-{number:02}" for number in range(40)]
    owners: Map[tuple[str, int], str] = Map([((name, number), name) for name in names for number in (10, 9)])
    group = ConsumerGroup("g", static_members=Map(dict.fromkeys(names, "m")), owners=owners)
    checkpointed = checkpoint.GroupCheckpoint(group, None, None)
    packed = checkpoint.pack_group(checkpointed)
    _, *fields = msgspec.msgpack.decode(packed)[0]
    saved = dict(zip(ConsumerGroup.__struct_fields__, fields, strict=True))
    assert [*saved["static_members"]] == names
    assert [*saved["owners"]] == sorted(owners)
    assert checkpoint.unpack_group(packed) == checkpointed


def test_an_assignment_is_saved_as_it_is() -> None:
    """Whatever its keys are: topics, or task types with subtopologies."""
    keys_of_groups: tuple[list[TopicKey], ...] = (["t", "b", "a"], [("ACTIVE", "t"), ("STANDBY", "a"), ("ACTIVE", "a")])
    for keys in keys_of_groups:
        intervals = OpenIntervals(
            assignments={"m": {"TARGET": [OpenAssignment(Open(1, 2, 3, 4), dict.fromkeys(keys, (0, 3)))]}}
        )
        read = checkpoint.unpack_group(
            checkpoint.pack_group(checkpoint.GroupCheckpoint(None, None, intervals))
        ).intervals
        assert read == intervals
        assert [*read.assignments["m"]["TARGET"][0].assigned] == keys


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x00",
        b"PK\x03\x04 no archive",
        b"\xc1",
        b"\x80",
        b"\x91" * 100_000,
        msgspec.msgpack.encode([["NoGroup", "g"], None, None]),
        msgspec.msgpack.encode([["ClassicGroup"], None, None]),
        msgspec.msgpack.encode(
            [["ClassicGroup", "g", 1, None, None, None, 0, {"m": ["m", "fields are missing"]}], None, None]
        ),
        msgspec.msgpack.encode([["ClassicGroup", "g", 1, None, None, None, 0, ["no map"]], None, None]),
        msgspec.msgpack.encode([None, None]),
        msgspec.msgpack.encode([None, None, None, "a field too many"]),
        msgspec.msgpack.encode(
            [None, None, [0, None, {}, {}, {"m": {"TARGET": [[[1, 2, 3], {"t": [0]}]]}}, {}, {}, []]]
        ),
    ],
)
def test_what_is_no_state_is_unreadable(damage: bytes) -> None:
    """Bytes of somebody else are one error, whatever they are."""
    for read in (checkpoint.unpack_group, unpack_offset_state, unpack_share_state):
        with pytest.raises(StateUnreadable):
            read(damage)


@pytest.mark.parametrize("place", [0, 10, -1])
def test_a_changed_byte_of_a_columnar_replay_is_noticed(place: int) -> None:
    """The checksum finds what the disk changed, be it in the checksum itself."""
    packed = bytearray(pack_offset_state(OffsetsLogReplay().export_state().columnar))
    packed[place] ^= 1
    with pytest.raises(StateUnreadable, match="damaged"):
        unpack_offset_state(bytes(packed))


def test_a_columnar_replay_of_an_earlier_release_is_read() -> None:
    """It kept neither which coordinator wrote last nor versions of values: both are not known."""
    columns = msgspec.msgpack.decode(pack_offset_state(OffsetsLogReplay().export_state().columnar)[4:])
    del columns["writer"], columns["row.value_version"]
    earlier = msgspec.msgpack.encode(columns)
    state = unpack_offset_state(crc32(earlier).to_bytes(4, "big") + earlier)
    assert state.writer == NO_WRITER
    assert [len(column) for column in state.carried] == [0] * len(state.carried)


@pytest.mark.parametrize("columns", [{"a": ("|O", (1,), b"12345678")}, {"a": ("<i8", (2,), b"12345678")}, ["a"], {}])
def test_a_forged_columnar_replay_is_unreadable(columns: object) -> None:
    """Whoever writes a right checksum gets no objects made, nor an error of another kind."""
    forged = msgspec.msgpack.encode(columns)
    with pytest.raises(StateUnreadable):
        unpack_share_state(crc32(forged).to_bytes(4, "big") + forged)


def _collect(kind: Any, seen: dict[type[msgspec.Struct], None]) -> None:
    for argument in get_args(kind):
        _collect(argument, seen)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
        seen[kind] = None
        for hint in typing.get_type_hints(kind).values():
            _collect(hint, seen)


def fingerprint() -> str:
    """A checksum over the names and types of all saved fields."""
    seen: dict[type[msgspec.Struct], None] = {}
    _collect(checkpoint.GroupCheckpoint, seen)
    text = "\n".join(
        f"{kind.__qualname__}: "
        + ", ".join(f"{field.name} {hints[field.name]}" for field in msgspec.structs.fields(kind))
        for kind in seen
        if (hints := typing.get_type_hints(kind))
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_format_changes_with_its_number() -> None:
    """Whoever changes what is saved raises STATE_FORMAT, so that no run reads the other's state; then this sum."""
    assert (checkpoint.STATE_FORMAT, fingerprint()) == (8, "233005731fd418f1")
