"""The record which a committed offset is: OffsetCommit, type 1 (GroupCoordinatorRecordHelpers)."""

from typing import Final

from coordinator_core.codec import Struct, make
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.offsets.replay import NO_EXPIRE_TIMESTAMP, NO_LEADER_EPOCH, ZERO_UUID
from coordinator_core.offsets.state import CommittedOffset, OffsetKey
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE

VALUE_VERSION: Final = 4
EXPIRING_VALUE_VERSION: Final = 1
"""The only version that can hold an expiry."""


def offset_commit_record(key: OffsetKey, committed: CommittedOffset) -> CoordinatorRecord:
    """The record of a commit; `record_offset` is not in it."""
    expires = committed.expire_timestamp_ms is not None
    value = make(
        OFFSET_COMMIT_VALUE,
        offset=committed.committed_offset,
        leader_epoch=NO_LEADER_EPOCH if committed.leader_epoch is None or expires else committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms if expires else NO_EXPIRE_TIMESTAMP,
        topic_id=ZERO_UUID if committed.topic_id is None or expires else committed.topic_id,
    )
    version = EXPIRING_VALUE_VERSION if expires else VALUE_VERSION
    return CoordinatorRecord(RecordType.OFFSET_COMMIT, _key(key), value, version)


def offset_commit_tombstone(key: OffsetKey) -> CoordinatorRecord:
    """The end of a committed offset."""
    return CoordinatorRecord(RecordType.OFFSET_COMMIT, _key(key), None)


def _key(key: OffsetKey) -> Struct:
    return make(OFFSET_COMMIT_KEY, group=key.group, topic=key.topic, partition=key.partition)
