"""Committed offsets: record types 0 and 1.

The version of an offset commit is in its value's prefix; the two record types have the same values and differ only in
the history of their keys.
"""

from typing import Final

from schemas.consumer_offsets import TOPIC, RecordType
from schemas.wire import Field, Int32, Int64, Message, Prefix, Role, String, Uuid

LEGACY_OFFSET_COMMIT_KEY: Final = Message(
    "LegacyOffsetCommitKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.LEGACY_OFFSET_COMMIT,
    fields=(
        Field("group", String, about="The group."),
        Field("topic", String, about="Topic whose offset is committed."),
        Field("partition", Int32, about="Partition of that topic."),
    ),
)

LEGACY_OFFSET_COMMIT_VALUE: Final = Message(
    "LegacyOffsetCommitValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.LEGACY_OFFSET_COMMIT,
    fields=(
        Field("offset", Int64, about="Committed offset: the next one to read."),
        Field("metadata", String, about="Free text of the client."),
        Field("commit_timestamp", Int64, about="When it was committed, epoch milliseconds."),
    ),
)

OFFSET_COMMIT_KEY: Final = Message(
    "OffsetCommitKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.OFFSET_COMMIT,
    fields=(
        Field("group", String, about="The group."),
        Field("topic", String, about="Topic whose offset is committed."),
        Field("partition", Int32, about="Partition of that topic."),
    ),
)

OFFSET_COMMIT_VALUE: Final = Message(
    "OffsetCommitValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0-4",
    flexible="4+",
    topic=TOPIC,
    record_type=RecordType.OFFSET_COMMIT,
    fields=(
        Field("offset", Int64, about="Committed offset: the next one to read."),
        Field(
            "leader_epoch",
            Int32,
            versions="3+",
            default=-1,
            ignorable=True,
            about="Leader epoch of the last record read, -1 for none.",
        ),
        Field("metadata", String, about="Free text of the client."),
        Field("commit_timestamp", Int64, about="When it was committed, epoch milliseconds."),
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
            tagged="4+",
            ignorable=True,
            about="Id of the topic; zero when not known, as in transactional commits.",
        ),
    ),
)
