"""Operations: the records of one step of the coordinator for one group, and what is found out as they are replayed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Final, NamedTuple

from coordinator_core.codec import Struct
from coordinator_core.frozen import maker_of
from coordinator_core.history import views
from coordinator_core.history.open_intervals import Open
from coordinator_core.history.rows import EventRow
from coordinator_core.offsets.state import OffsetKey
from coordinator_core.replay import Anomaly, Group
from coordinator_core.share.state import ShareGroupStatePartitions
from schemas.consumer_offsets import RecordType

GENERATION_RECORDS: Final = frozenset(
    {
        RecordType.GROUP_METADATA,
        RecordType.CONSUMER_GROUP_METADATA,
        RecordType.SHARE_GROUP_METADATA,
        RecordType.STREAMS_GROUP_METADATA,
    }
)
MEMBER_RECORDS: Final = frozenset(
    {
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.SHARE_GROUP_MEMBER_METADATA,
        RecordType.STREAMS_GROUP_MEMBER_METADATA,
    }
)
TARGET_MEMBER_RECORDS: Final = frozenset(
    {
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    }
)
TARGET_METADATA_RECORDS: Final = frozenset(
    {
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    }
)
CURRENT_ASSIGNMENT_RECORDS: Final = frozenset(
    {
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    }
)
KEYED_BY_MEMBER: Final = MEMBER_RECORDS | TARGET_MEMBER_RECORDS | CURRENT_ASSIGNMENT_RECORDS
OFFSET_RECORDS: Final = frozenset({RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT})


class LastOffsetGone(NamedTuple):
    """In place of a key: a group has no offset any more."""


LAST_OFFSET_GONE: Final = LastOffsetGone()


class GroupRecord(NamedTuple):
    """One record of an operation.

    Offset commits come in three cut-down forms only: a tombstone (`value` None); the first value committed to a group
    the coordinator did not know (`key` and `value` None), which makes a simple group; and `LAST_OFFSET_GONE` as the
    key, after the tombstone of the last offset of a group that the coordinator of before Kafka 4.0 wrote.
    """

    offset: int
    record_type: RecordType
    key: Struct | OffsetKey | LastOffsetGone | None
    value: Struct | None


class Operation(NamedTuple):
    """One step of the coordinator for one group: records of one batch and one timestamp, in order."""

    group_id: str
    timestamp_ms: int
    last_offset: int
    """Of the whole operation, offset commits included."""
    records: Sequence[GroupRecord]
    event_index: int = 0
    """Of its first event: where several groups have an operation at one place of the log, each has its own."""


class OffsetsDeleted(NamedTuple):
    """One step of the coordinator for one group, of nothing but tombstones of offsets: no group can change by it."""

    group_id: str
    timestamp_ms: int
    offsets: Sequence[int]
    """Of the tombstones in the log."""
    topics: Sequence[str]
    partitions: Sequence[int]


_NO_DETAILS: Final[dict[str, str]] = {}
_make_event: Final = maker_of(EventRow)


@dataclass(slots=True)
class ReplayedOperation:
    """One operation while it is compared: state before and after, and where in it things happened."""

    operation: Operation
    before: Group | None
    after: Group | None
    partitions_before: ShareGroupStatePartitions | None
    partitions_after: ShareGroupStatePartitions | None
    appeared_at: int
    vanished_at: int
    generation_at: int
    vanished: bool
    """Gone, or of another type, at some point within the operation."""
    replaying: int = -1
    """Offset of the record that is being replayed."""
    member_at: dict[str, int] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    """Members named by the operation's keys, in order."""
    described: set[str] = field(default_factory=set)
    """Those whose description and subscription may be others: what a modern group's member is, one record tells."""
    events: list[EventRow] = field(default_factory=list)
    opened: Open | None = None
    """Where every interval begins that this operation opens."""

    def report(self, anomaly: Anomaly) -> None:
        """Note an anomaly of the record that is being replayed."""
        self.say("ANOMALY", self.replaying, details={"code": anomaly.code, "message": anomaly.message})

    def offset_of(self, record_type: RecordType) -> int:
        """Offset of the operation's last record of a type; of its last record where there is none."""
        records = reversed(self.operation.records)
        return next((r.offset for r in records if r.record_type == record_type), self.operation.last_offset)

    def say(
        self,
        event_type: str,
        offset: int,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        details: dict[str, str] | None = None,
    ) -> None:
        """Note an event; indexes are given when the operation is done."""
        group = self.after if self.after is not None else self.before
        if generation is None and group is not None:
            generation = views.generation(group)
        self.events.append(
            _make_event(
                (
                    offset,
                    self.operation.event_index,
                    self.operation.group_id,
                    None if group is None else views.group_type(group),
                    event_type,
                    self.operation.timestamp_ms,
                    generation,
                    member_id,
                    topic,
                    partition,
                    details or _NO_DETAILS,
                )
            )
        )


def offsets_deleted(deleted: OffsetsDeleted, group_type: str | None, generation: int | None) -> Iterable[EventRow]:
    """The events of deleted offsets, of a group of a type and generation; None where there is no group."""
    return map(
        _make_event,
        zip(
            deleted.offsets,
            repeat(0),
            repeat(deleted.group_id),
            repeat(group_type),
            repeat("OFFSETS_DELETED"),
            repeat(deleted.timestamp_ms),
            repeat(generation),
            repeat(None),
            deleted.topics,
            deleted.partitions,
            repeat(_NO_DETAILS),
            strict=False,  # `repeat` has no end
        ),
    )


def numbered(events: list[EventRow]) -> Iterable[EventRow]:
    """Events of one operation by record, each record's counted from 0."""
    if len(events) < 2:
        return events
    events.sort(key=_log_offset)
    in_order = []
    offset, index = -1, 0
    for event in events:
        if event.log_offset != offset:
            offset, index = event.log_offset, 0
            in_order.append(event)
            continue
        index += 1
        in_order.append(_make_event((offset, index, *event[2:])))
    return in_order


_log_offset = attrgetter("log_offset")
