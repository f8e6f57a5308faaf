"""Records that commands write: key, value and the version of the value (CoordinatorRecord).

`CoordinatorRecord` has no bytes; `encode_record` makes them, for a log and for comparisons.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coordinator_core.codec import Struct, encode_key, encode_value, make
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record. A `value` of None is a tombstone; `value_version` then has no meaning."""

    record_type: RecordType
    key: Struct
    value: Struct | None
    value_version: int = 0


def record_of(record_type: RecordType, value: Struct | None, **key: object) -> CoordinatorRecord:
    """The record with this key, whose value has version 0."""
    return CoordinatorRecord(record_type, make(REGISTRY[TOPIC][record_type][0], **key), value)


def tombstone(record_type: RecordType, **key: object) -> CoordinatorRecord:
    return record_of(record_type, None, **key)


def member_tombstones(
    record_types: Iterable[RecordType], group_id: str, member_ids: Iterable[str]
) -> list[CoordinatorRecord]:
    """The tombstones of some members, one record type after the other."""
    ids = list(member_ids)
    return [tombstone(it, group_id=group_id, member_id=member_id) for it in record_types for member_id in ids]


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER: Final = Producer(-1, -1)
"""RecordBatch.NO_PRODUCER_ID and NO_PRODUCER_EPOCH: no transaction."""


@dataclass(frozen=True, slots=True)
class AppendedRecord:
    """A record with its log offset. All records of one operation have the same timestamp."""

    offset: int
    timestamp_ms: int
    record: CoordinatorRecord
    producer: Producer = NO_PRODUCER


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as bytes in the log; the value of a tombstone is None."""
    key = encode_key(TOPIC, record.record_type, record.key)
    if record.value is None:
        return key, None
    return key, encode_value(TOPIC, record.record_type, record.value_version, record.value)
