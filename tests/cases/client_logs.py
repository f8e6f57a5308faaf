"""Logs of classic groups whose clients put any bytes into their records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_core.bytes.codec import encode_key, encode_value
from coordinator_core.replay.lookup import key_partition
from schemas.consumer_offsets import TOPIC, RecordType
from tests.coordinator_core.group_records import record
from tests.coordinator_core.live.offsets.reference import LogBatch, LogRecord, encode_batches
from tests.jobs.builders import write_segment

LOG_PARTITION_COUNT: Final = 50
FIRST_MS: Final = 1_780_000_000_000


class Client(NamedTuple):
    """A member as it is in a generation."""

    subscription: bytes
    assignment: bytes
    client_id: str = "app-1"


class Generation(NamedTuple):
    """A generation of a group, so many ms after the first one."""

    number: int
    members: Mapping[str, Client]
    at_ms: int
    protocol: str = "range"
    protocol_type: str = "consumer"
    joined_ms: int = 0
    """How long before the record the join phase ended."""


def batches_of(group_id: str, generations: Sequence[Generation], base_offset: int = 0) -> list[bytes]:
    """A batch of each generation."""
    batches = [LogBatch((_record_of(group_id, generation),)) for generation in generations]
    return encode_batches(batches, base_offset)


def log_of(root: Path, group_id: str, generations: Sequence[Generation], base_offset: int = 0) -> Path:
    """A folder of one log partition with these generations."""
    data = b"".join(batches_of(group_id, generations, base_offset))
    write_segment(root, TOPIC, key_partition(group_id, LOG_PARTITION_COUNT), base_offset, data)
    return root


def _record_of(group_id: str, generation: Generation) -> LogRecord:
    at_ms = FIRST_MS + generation.at_ms
    members = [
        {
            "member_id": member_id,
            "client_id": client.client_id,
            "client_host": "/10.0.0.1",
            "rebalance_timeout": 60_000,
            "session_timeout": 10_000,
            "subscription": client.subscription,
            "assignment": client.assignment,
        }
        for member_id, client in generation.members.items()
    ]
    value = {
        "protocol_type": generation.protocol_type,
        "generation": generation.number,
        "protocol": generation.protocol if members else None,
        "leader": next(iter(generation.members), None),
        "current_state_timestamp": at_ms - generation.joined_ms,
        "members": members,
    }
    record_type, key, struct = record(RecordType.GROUP_METADATA, {"group": group_id}, value)
    assert struct is not None, "a generation has a value"
    return LogRecord(encode_key(TOPIC, record_type, key), encode_value(TOPIC, record_type, 3, struct), at_ms)
