"""The log of a partition, chunk by chunk: records that are no offset commits."""

import numpy as np
import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.offsets_log import REMEMBERED_BYTES_MAX, OffsetsLogReplay
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE
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
