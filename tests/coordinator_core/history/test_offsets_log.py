"""The log of a partition, chunk by chunk: records that are no offset commits."""

from typing import Any

import numpy as np
import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history import groups
from coordinator_core.history.intervals import Intervals
from coordinator_core.history.offsets_log import REMEMBERED_BYTES_MAX, OffsetsLogReplay
from coordinator_core.replay.columnar import offsets_columnar
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from tests.coordinator_core.live.offsets.reference import LogBatch, LogRecord, encode_batches


@pytest.mark.parametrize("group_id", ["g", "g" * REMEMBERED_BYTES_MAX])
def test_a_group_is_read_whatever_the_length_of_its_id(group_id: str) -> None:
    """A long key is not remembered, and read all the same, each time."""
    key = encode_key(TOPIC, RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=group_id))
    values = [make(GROUP_METADATA_VALUE, generation=number) for number in (1, 2)]
    records = [LogRecord(key, encode_value(TOPIC, RecordType.GROUP_METADATA, 3, value)) for value in values]
    batches = encode_batches([LogBatch((record,)) for record in records])
    replay = OffsetsLogReplay()
    closed = replay.feed(decode_chunk(np.frombuffer(b"".join(batches), np.uint8))).groups.generations
    rows = [*closed, *replay.finish().groups.generations]
    assert [(row.group_id, row.generation) for row in rows] == [(group_id, 1), (group_id, 2)]


def test_keys_are_remembered_as_long_as_their_log_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is one log partition's: the next one of a task would carry those of all before."""
    key = encode_key(TOPIC, RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group="g"))
    value = encode_value(TOPIC, RecordType.GROUP_METADATA, 3, make(GROUP_METADATA_VALUE, generation=1))
    batches = encode_batches([LogBatch((LogRecord(key, value),))])
    chunk = decode_chunk(np.frombuffer(b"".join(batches), np.uint8))
    decoded: list[bytes] = []
    decode_key = codec.decode_key

    def noted(topic: str, data: bytes) -> codec.CoordinatorKey:
        decoded.append(data)
        return decode_key(topic, data)

    monkeypatch.setattr(codec, "decode_key", noted)
    for log_count in (1, 2):
        replay = OffsetsLogReplay()
        replay.feed(chunk)
        replay.feed(chunk)
        assert decoded == [key] * log_count


def generation_of(group_id: str, generation: int) -> LogRecord:
    key = encode_key(TOPIC, RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=group_id))
    value = encode_value(TOPIC, RecordType.GROUP_METADATA, 3, make(GROUP_METADATA_VALUE, generation=generation))
    return LogRecord(key, value)


def commit_of(group_id: str) -> LogRecord:
    """With a byte behind its fields, so that the compiled loop lets the codec read it."""
    key = encode_key(TOPIC, RecordType.OFFSET_COMMIT, make(OFFSET_COMMIT_KEY, group=group_id, topic="t", partition=0))
    value = encode_value(TOPIC, RecordType.OFFSET_COMMIT, 3, make(OFFSET_COMMIT_VALUE, offset=7, metadata="m"))
    return LogRecord(key, value[:-1] + (b"" if group_id == "bad" else value[-1:]))


def failing(function: Any, is_bad: Any) -> Any:
    """The function, which fails for the bad group."""

    def made(*args: Any) -> Any:
        if is_bad(*args):
            raise TypeError("planted")
        return function(*args)

    return made


FAULTS = {
    "a value": (codec, "decode_value", lambda *args: args[2] == generation_of("bad", 3).value, 101),
    "an operation": (groups.GroupHistory, "apply", lambda _, step: step.group_id == "bad", 100),
    "a state": (groups, "pack_group", lambda saved: saved.group.group_id == "bad", None),
    "open rows": (Intervals, "close_all", lambda _, group, *__: group.group_id == "bad", None),
}


@pytest.mark.parametrize("place", FAULTS)
def test_a_fault_of_one_group_is_noted_and_all_others_go_on(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place has the group, and where a record is at fault its offset; the first fault of a group counts."""
    owner, name, is_bad, log_offset = FAULTS[place]
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), is_bad))
    records = [generation_of(*group) for group in (("bad", 1), ("bad", 3), ("good", 1), ("good", 2))]
    batches = encode_batches([LogBatch((record,)) for record in records])
    replay = OffsetsLogReplay()
    rows = replay.feed(decode_chunk(np.frombuffer(b"".join(batches), np.uint8))).groups.generations
    state = replay.export_state()
    rows += replay.finish().groups.generations
    assert [row.generation for row in rows if row.group_id == "good"] == [1, 2]
    assert "good" in state.groups
    assert [(key, fault.log_offset) for key, fault in replay.faults.items()] == [("bad", log_offset)]
    assert isinstance(replay.faults["bad"].__cause__, TypeError)


def test_a_fault_of_memory_is_none_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the replay."""

    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(groups.GroupHistory, "apply", fails)
    (batch,) = encode_batches([LogBatch((generation_of("g", 1),))])
    with pytest.raises(MemoryError):
        OffsetsLogReplay().feed(decode_chunk(np.frombuffer(batch, np.uint8)))


def test_a_fault_of_the_codec_in_a_commit_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled loop lets the codec read a value that it does not know; the commits of other groups are replayed."""
    monkeypatch.setattr(offsets_columnar, "decode_value", failing(codec.decode_value, lambda *_: True))
    batches = encode_batches([LogBatch((commit_of(group_id),)) for group_id in ("bad", "good")])
    replay = OffsetsLogReplay()
    replay.feed(decode_chunk(np.frombuffer(b"".join(batches), np.uint8)))
    commits = replay.finish().commits
    assert list(replay.faults) == ["bad"]
    assert replay.faults["bad"].log_offset == 100
    assert "good" in commits.groups
