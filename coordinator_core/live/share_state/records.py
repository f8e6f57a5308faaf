"""Records of the share coordinator (ShareCoordinatorRecordHelpers), and their replay."""

from typing import Final, NamedTuple

from coordinator_core.bytes.codec import decode_key, decode_value, encode_key, encode_value, make_from
from coordinator_core.errors import InvalidRecord
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatches
from coordinator_core.replay.share_state.replay import (
    replay_share_snapshot,
    replay_share_update,
    share_snapshot,
    share_update,
)
from coordinator_core.replay.share_state.state import ShareShard, ShareSnapshot, ShareUpdate
from schemas.share_group_state import (
    SHARE_SNAPSHOT_KEY,
    SHARE_SNAPSHOT_VALUE,
    SHARE_UPDATE_KEY,
    SHARE_UPDATE_VALUE,
    STATE_BATCH,
    TOPIC,
    ShareStateRecordType,
)
from schemas.wire import Message

VALUE_VERSION: Final = 0
"""The only version of both values in Kafka 4.3.1."""


class ShareStateRecord(NamedTuple):
    """One record. Its type follows from its value; a tombstone, None, always has the key of a snapshot."""

    key: SharePartitionKey
    value: ShareSnapshot | ShareUpdate | None

    @property
    def record_type(self) -> ShareStateRecordType:
        is_update = isinstance(self.value, ShareUpdate)
        return ShareStateRecordType.SHARE_UPDATE if is_update else ShareStateRecordType.SHARE_SNAPSHOT


class AppendedRecord(NamedTuple):
    """A record with its log offset. All records of one operation have the same timestamp."""

    offset: int
    timestamp_ms: int
    record: ShareStateRecord


def replay_record(shard: ShareShard, record: ShareStateRecord, offset: int) -> ShareShard:
    """The shard after a record at `offset` in the log (ShareCoordinatorShard.replay)."""
    key, value = record
    if isinstance(value, ShareUpdate):
        return replay_share_update(shard, key, value)
    return replay_share_snapshot(shard, key, value, offset)


def decode_record(key: bytes, value: bytes | None) -> ShareStateRecord:
    """Decode a record from the log. Raises DecodeError, also for an update's tombstone, which Kafka never writes."""
    decoded = decode_key(TOPIC, key)
    fields = decoded.fields
    share_partition = SharePartitionKey(fields.group_id, fields.topic_id, fields.partition)
    is_update = decoded.record_type == ShareStateRecordType.SHARE_UPDATE
    if value is None:
        if is_update:
            raise InvalidRecord("a ShareUpdate has no tombstone")
        return ShareStateRecord(share_partition, None)
    value_fields = decode_value(TOPIC, decoded.record_type, value).fields
    return ShareStateRecord(share_partition, share_update(value_fields) if is_update else share_snapshot(value_fields))


def encode_record(record: ShareStateRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as bytes in the log; the value of a tombstone is None."""
    value = record.value
    if isinstance(value, ShareUpdate):
        return _key(record, SHARE_UPDATE_KEY), _update_value(value)
    return _key(record, SHARE_SNAPSHOT_KEY), None if value is None else _snapshot_value(value)


def _key(record: ShareStateRecord, message: Message) -> bytes:
    return encode_key(TOPIC, record.record_type, make_from(message, record.key))


def _snapshot_value(snapshot: ShareSnapshot) -> bytes:
    fields = make_from(
        SHARE_SNAPSHOT_VALUE,
        snapshot,
        create_timestamp=snapshot.create_timestamp_ms,
        write_timestamp=snapshot.write_timestamp_ms,
        state_batches=_batches(snapshot.state_batches),
    )
    return encode_value(TOPIC, ShareStateRecordType.SHARE_SNAPSHOT, VALUE_VERSION, fields)


def _update_value(update: ShareUpdate) -> bytes:
    fields = make_from(SHARE_UPDATE_VALUE, update, state_batches=_batches(update.state_batches))
    return encode_value(TOPIC, ShareStateRecordType.SHARE_UPDATE, VALUE_VERSION, fields)


def _batches(batches: StateBatches) -> list[object]:
    return [make_from(STATE_BATCH, batch) for batch in batches]
