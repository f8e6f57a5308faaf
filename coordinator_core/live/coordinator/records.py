"""Records that commands write: key, value and the version of the value (CoordinatorRecord).

`CoordinatorRecord` has no bytes; `encode_record` makes them, for a log and for comparisons.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_core.bytes.codec import Struct, encode_key, encode_value, make, make_from
from coordinator_core.replay.record_families import RecordFamily
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record. A `value` of None is a tombstone; `value_version` then has no meaning."""

    record_type: RecordType
    key: Struct
    value: Struct | None
    value_version: int = 0


def record_of(
    record_type: RecordType, key: Mapping[str, object], source: object = None, /, **fields: object
) -> CoordinatorRecord:
    """The record with this key, whose value has version 0: the given fields, and for the others the attributes of
    `source`, or their defaults where there is no source.
    """
    key_message, message = REGISTRY[TOPIC][record_type]
    value = make(message, **fields) if source is None else make_from(message, source, **fields)
    return CoordinatorRecord(record_type, make(key_message, **key), value)


def tombstone(record_type: RecordType, **key: object) -> CoordinatorRecord:
    return CoordinatorRecord(record_type, make(REGISTRY[TOPIC][record_type][0], **key), None)


def member_tombstones(
    record_types: Iterable[RecordType], group_id: str, member_ids: Iterable[str]
) -> list[CoordinatorRecord]:
    """The tombstones of some members, one record type after the other."""
    ids = list(member_ids)
    return [tombstone(it, group_id=group_id, member_id=member_id) for it in record_types for member_id in ids]


def target_epoch_record(
    family: RecordFamily, group_id: str, assignment_epoch: int, timestamp_ms: int
) -> CoordinatorRecord:
    """*TargetAssignmentMetadata (6, 12, 20): the group epoch of the targets, and when they were computed."""
    key = {"group_id": group_id}
    return record_of(family.target_metadata, key, assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms)


def group_tombstones(
    family: RecordFamily,
    group_id: str,
    member_ids: Collection[str],
    target_ids: Collection[str],
    *others: CoordinatorRecord,
) -> tuple[CoordinatorRecord, ...]:
    """Tombstones of a group, from the leaves up, as replay requires; last the `others`."""
    return (
        *member_tombstones([family.current], group_id, member_ids),
        *member_tombstones([family.target], group_id, target_ids),
        tombstone(family.target_metadata, group_id=group_id),
        *member_tombstones([family.member], group_id, member_ids),
        *others,
    )


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
