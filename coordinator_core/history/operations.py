"""Operations: the records that a coordinator wrote in one step for one group, and what replaying them yields."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Final, NamedTuple

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.history import views
from coordinator_core.history.open_intervals import Open
from coordinator_core.history.rows import EventRow
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.offsets.state import OffsetKey
from coordinator_core.replay.record_families import FAMILIES
from coordinator_core.replay.share.state import ShareGroupStatePartitions
from schemas.consumer_offsets import RecordType

GENERATION_RECORDS: Final = frozenset({RecordType.GROUP_METADATA, *(family.metadata for family in FAMILIES)})
MEMBER_RECORDS: Final = frozenset(family.member for family in FAMILIES)
TARGET_MEMBER_RECORDS: Final = frozenset(family.target for family in FAMILIES)
TARGET_METADATA_RECORDS: Final = frozenset(family.target_metadata for family in FAMILIES)
CURRENT_ASSIGNMENT_RECORDS: Final = frozenset(family.current for family in FAMILIES)
KEYED_BY_MEMBER: Final = MEMBER_RECORDS | TARGET_MEMBER_RECORDS | CURRENT_ASSIGNMENT_RECORDS
OFFSET_RECORDS: Final = frozenset({RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT})


class LastOffsetGone(NamedTuple):
    """In place of a key: the group has no offset left."""


LAST_OFFSET_GONE: Final = LastOffsetGone()


class GroupRecord(NamedTuple):
    """One record of an operation.

    Offset commits come in three reduced forms only: a tombstone (`value` None); the first value committed to a group
    that the coordinator did not know (`key` and `value` None), which creates a simple group; and `LAST_OFFSET_GONE` as
    the key, after a tombstone by a coordinator before Kafka 4.0 that deleted a group's last offset.
    """

    offset: int
    record_type: RecordType
    key: Struct | OffsetKey | LastOffsetGone | None
    value: Struct | None


class Operation(NamedTuple):
    """One step of the coordinator for one group: records of one batch and one timestamp, in log order."""

    group_id: str
    timestamp_ms: int
    last_offset: int
    """The last offset of the whole operation, including offset commits."""
    records: Sequence[GroupRecord]
    event_index: int = 0
    """Index of its first event. Where several groups have an operation at one log offset, each has a different one."""


class OffsetsDeleted(NamedTuple):
    """One step of the coordinator for one group with only tombstones of offsets: it cannot change the group."""

    group_id: str
    timestamp_ms: int
    offsets: Sequence[int]
    """Log offsets of the tombstones."""
    topics: Sequence[str]
    partitions: Sequence[int]


_NO_DETAILS: Final[dict[str, str]] = {}
_make_event: Final = maker_of(EventRow)


@dataclass(slots=True)
class ReplayedOperation:
    """One operation during comparison: the states before and after it, and where within it changes happened."""

    operation: Operation
    before: Group | None
    after: Group | None
    partitions_before: ShareGroupStatePartitions | None
    partitions_after: ShareGroupStatePartitions | None
    appeared_at: int
    vanished_at: int
    generation_at: int
    vanished: bool
    """The group was deleted, or had another type, at some point within the operation."""
    has_skipped: bool = False
    """A generation did not follow the one before it in the log."""
    replaying: int = -1
    """Offset of the record that is being replayed."""
    member_at: dict[str, int] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    """Members named in the record keys, in log order."""
    described: set[str] = field(default_factory=set)
    """Members whose description and subscription may have changed. For a modern group's member one record has both."""
    events: list[EventRow] = field(default_factory=list)
    opened: Open | None = None
    """Where all intervals begin that this operation opens."""

    def report(self, anomaly: Anomaly) -> None:
        """Record an anomaly of the record that is being replayed."""
        self.add_event("ANOMALY", self.replaying, details={"code": anomaly.code, "message": anomaly.message})

    def offset_of(self, record_type: RecordType) -> int:
        """Offset of the operation's last record of a type, or of its last record where it has none of that type."""
        records = reversed(self.operation.records)
        return next((r.offset for r in records if r.record_type == record_type), self.operation.last_offset)

    def add_event(
        self,
        event_type: str,
        offset: int,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        topic: str | None = None,
        details: dict[str, str] | None = None,
    ) -> None:
        """Record an event. Event indexes are assigned when the operation is done."""
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
                    None,  # only deletions of offsets have a partition
                    details or _NO_DETAILS,
                )
            )
        )


def offsets_deleted(deleted: OffsetsDeleted, group_type: str | None, generation: int | None) -> Iterable[EventRow]:
    """The events of deleted offsets. `group_type` and `generation` are None if the group does not exist."""
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
            strict=False,  # `repeat` is infinite
        ),
    )


def numbered(events: list[EventRow]) -> Iterable[EventRow]:
    """Number the events of one operation, from 0 for each record."""
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
