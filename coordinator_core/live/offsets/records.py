"""The record of a committed offset: OffsetCommit, type 1 (GroupCoordinatorRecordHelpers)."""

from typing import Final

from coordinator_core.bytes.codec import Struct, make
from coordinator_core.bytes.kafka_versions import KafkaVersion, Since
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.offsets.replay import NO_EXPIRE_TIMESTAMP, NO_LEADER_EPOCH, ZERO_UUID
from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE

VALUE_VERSION: Final = 4
VALUE_VERSION_WITHOUT_TOPIC_ID: Final = 3
EXPIRING_VALUE_VERSION: Final = 1
"""The only version with an expiry."""


def offset_commit_record(key: OffsetKey, committed: CommittedOffset, kafka_version: KafkaVersion) -> CoordinatorRecord:
    """The record of a commit as a release writes it; `record_offset` is not part of it."""
    expires = committed.expire_timestamp_ms is not None
    keeps_topic_id = Since.COMMITS_KEEP_TOPIC_IDS.holds_in(kafka_version) and not expires
    value = make(
        OFFSET_COMMIT_VALUE,
        offset=committed.committed_offset,
        leader_epoch=NO_LEADER_EPOCH if committed.leader_epoch is None or expires else committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms if expires else NO_EXPIRE_TIMESTAMP,
        topic_id=committed.topic_id if committed.topic_id is not None and keeps_topic_id else ZERO_UUID,
    )
    version = VALUE_VERSION if keeps_topic_id else VALUE_VERSION_WITHOUT_TOPIC_ID
    version = EXPIRING_VALUE_VERSION if expires else version
    return CoordinatorRecord(RecordType.OFFSET_COMMIT, _key(key), value, version)


def offset_commit_tombstone(key: OffsetKey) -> CoordinatorRecord:
    return CoordinatorRecord(RecordType.OFFSET_COMMIT, _key(key), None)


def _key(key: OffsetKey) -> Struct:
    return make(OFFSET_COMMIT_KEY, group=key.group, topic=key.topic, partition=key.partition)
