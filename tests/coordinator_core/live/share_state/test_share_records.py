"""Records of the share coordinator: their bytes, and that the log alone gives the state, whatever was asked."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import DecodeError, InvalidRecord
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.coordinator import ShareCoordinator, empty_shard
from coordinator_core.live.share_state.messages import (
    DeletePartition,
    InitializePartition,
    ReadPartition,
    StateRequest,
    WritePartition,
)
from coordinator_core.live.share_state.records import ShareStateRecord, decode_record, encode_record, replay_record
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.state import ShareSnapshot, ShareUpdate
from tests.coordinator_core.logs import MemoryLog

KEY = SharePartitionKey("sg", "AAAAAAAAAAAAAAAAAAAAAQ", 0)
IMAGE = image_of([Topic("orders", KEY.topic_id, 4)])

NUMBER = st.integers(-1, 2**31 - 1)
OFFSET = st.integers(-1, 2**63 - 1)
BATCHES = st.lists(st.builds(StateBatch, OFFSET, OFFSET, st.integers(0, 4), st.integers(0, 2**15 - 1))).map(tuple)
VALUES = st.one_of(
    st.none(),
    st.builds(ShareSnapshot, NUMBER, NUMBER, NUMBER, OFFSET, NUMBER, OFFSET, OFFSET, BATCHES),
    st.builds(ShareUpdate, NUMBER, NUMBER, OFFSET, NUMBER, BATCHES),
)


@given(VALUES)
def test_a_record_survives_the_log(value: Any) -> None:
    """Encoded and decoded it is the same, tombstones too."""
    record = ShareStateRecord(KEY, value)
    assert decode_record(*encode_record(record)) == record


@given(st.sampled_from([b"", b"\x00\x00", b"\x00\x01", b"\x00\x02"]), st.binary(), st.none() | st.binary())
def test_any_bytes_are_a_record_or_a_decode_error(record_type: bytes, key: bytes, value: bytes | None) -> None:
    """The log is not trusted: nothing else may come out."""
    with contextlib.suppress(DecodeError):
        assert isinstance(decode_record(record_type + key, value), ShareStateRecord)


def test_an_update_has_no_tombstone() -> None:
    """Kafka never writes one, and could not replay it."""
    key, _ = encode_record(ShareStateRecord(KEY, ShareUpdate(0, 0, 0, 0, ())))
    with pytest.raises(InvalidRecord):
        decode_record(key, None)


# --- any sequence of requests ---

BATCH = st.builds(
    lambda first, count, state, deliveries: StateBatch(first, first + count, state, deliveries),
    st.integers(0, 20),
    st.integers(0, 4),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 3),
)
EPOCH = st.integers(-1, 4)
PARTITION = st.integers(-1, 4)
STEPS = st.one_of(
    st.tuples(st.just("initialize_state"), st.builds(InitializePartition, PARTITION, EPOCH, st.integers(-1, 10))),
    st.tuples(
        st.just("write_state"),
        st.builds(WritePartition, PARTITION, EPOCH, EPOCH, st.integers(-1, 10), EPOCH, st.lists(BATCH, max_size=4)),
    ),
    st.tuples(st.just("read_state"), st.builds(ReadPartition, PARTITION, EPOCH)),
    st.tuples(st.just("read_state_summary"), st.builds(ReadPartition, PARTITION, EPOCH)),
    st.tuples(st.just("delete_state"), st.builds(DeletePartition, PARTITION)),
)


@given(st.integers(0, 3), st.lists(STEPS, max_size=30))
def test_the_log_alone_gives_the_state(limit: int, steps: list[tuple[str, Any]]) -> None:
    """Whatever is asked: who replays the bytes has the coordinator's state, and an error wrote nothing."""
    config = ShareCoordinatorConfig(updates_per_snapshot=limit, cold_partition_snapshot_interval_ms=3)
    log = MemoryLog(7)
    coordinator = ShareCoordinator(now_ms=0, config=config, image=IMAGE, log=log)
    for now_ms, (operation, data) in enumerate(steps):
        key = KEY._replace(partition=data.partition)
        result, written = coordinator.run(operation, key, data, now_ms=now_ms)
        assert not (result.error_code and written)
        coordinator.snapshot_cold_partitions(now_ms=now_ms)
    shard = empty_shard(config)
    for entry in log.entries:
        shard = replay_record(shard, decode_record(*encode_record(entry.record)), entry.offset)
    assert shard == coordinator.shard


def test_a_request_object_of_any_kind_has_its_default() -> None:
    """As Kafka's generated classes: an absent count is unknown."""
    assert WritePartition(0).delivery_complete_count == -1
    assert StateRequest("sg").topics == ()
