"""Committed offsets: record types 0 and 1.

The version of an offset commit is in its value's prefix; the two record types have the same values and differ only in
the history of their keys.
"""

from typing import Final

from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.common import record_key, record_value
from schemas.wire import Field, Int32, Int64, String, Uuid

COMMITTED: Final = (
    Field("group", String, about="The group."),
    Field("topic", String, about="Topic whose offset is committed."),
    Field("partition", Int32, about="Partition of that topic."),
)
OFFSET: Final = Field("offset", Int64, about="Committed offset: the next one to read.")
METADATA: Final = Field("metadata", String, about="Free text of the client.")
COMMIT_TIMESTAMP: Final = Field("commit_timestamp", Int64, about="When it was committed, epoch milliseconds.")
LEGACY_OFFSET_COMMIT_KEY: Final = record_key(RecordType.LEGACY_OFFSET_COMMIT, *COMMITTED)

LEGACY_OFFSET_COMMIT_VALUE: Final = record_value(
    RecordType.LEGACY_OFFSET_COMMIT,
    OFFSET,
    METADATA,
    COMMIT_TIMESTAMP,
    flexible="none",
)

OFFSET_COMMIT_KEY: Final = record_key(RecordType.OFFSET_COMMIT, *COMMITTED)

OFFSET_COMMIT_VALUE: Final = record_value(
    RecordType.OFFSET_COMMIT,
    OFFSET,
    Field(
        "leader_epoch",
        Int32,
        versions="3+",
        default=-1,
        ignorable=True,
        about="Leader epoch of the last record read, -1 for none.",
    ),
    METADATA,
    COMMIT_TIMESTAMP,
    Field(
        "expire_timestamp",
        Int64,
        versions="1",
        default=-1,
        ignorable=True,
        about="When it expires, epoch milliseconds, where the client gave a retention time; else -1.",
    ),
    Field(
        "topic_id",
        Uuid,
        versions="4+",
        tag=0,
        ignorable=True,
        about="Id of the topic; zero when not known, as in transactional commits.",
    ),
    versions="0-4",
    flexible="4+",
)
