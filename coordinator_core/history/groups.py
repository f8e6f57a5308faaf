"""GroupHistory: the operations of one `__consumer_offsets` partition become rows.

Theory of operation. The log gives records; the coordinator wrote them in operations, and only the states between
operations ever existed. So each operation is replayed whole, and its state before is compared with its state after.
What differs closes open intervals and opens new ones, and is said in words as events. Only what the operation's keys
name is compared, so the cost follows the change and not the size of the group.

An interval is keyed by what it is about; `Open` holds where it began. All rows of a closed interval carry the
attributes at its end. `finish` gives the intervals that are still open.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from coordinator_core.classic.state import ClassicGroup
from coordinator_core.client_families import client_family
from coordinator_core.client_protocols import ConnectRound
from coordinator_core.codec import Struct
from coordinator_core.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.consumer.subscriptions import preferred_assignor
from coordinator_core.frozen import maker_of
from coordinator_core.history import views
from coordinator_core.history.rows import (
    Assigned,
    AssignmentRows,
    AssignmentRun,
    AttributesRow,
    EventRow,
    GenerationRow,
    MemberRow,
    TopicKey,
    TopicName,
)
from coordinator_core.history.saved import SavedGroup, pack_group, unpack_group
from coordinator_core.history.tracks import Held, Open, OpenGeneration, Track
from coordinator_core.history.views import Member
from coordinator_core.kafka_versions import DEFAULT_VERSION
from coordinator_core.limits import CLIENT_NOTES_MAX
from coordinator_core.member_epochs import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from coordinator_core.offsets.state import OffsetKey
from coordinator_core.replay import (
    REPLAY,
    SHARE_PARTITIONS_RECORD,
    Anomaly,
    Group,
    GroupShard,
    replay_share_partitions,
    simple_group,
    with_group,
)
from coordinator_core.share.state import ShareGroup, ShareGroupStatePartitions
from coordinator_core.streams.state import StreamsGroup, Topology
from schemas.consumer_offsets import RecordType

LEFT_OR_EXPIRED: Final = "LEFT_OR_EXPIRED"
REPLACED_STATIC: Final = "REPLACED_STATIC"
GROUP_DELETED: Final = "GROUP_DELETED"
ASSIGNMENT_CONFIGS_CHANGED: Final = "ASSIGNMENT_CONFIGS_CHANGED"
CONVERTED: Final = "CONVERTED"

UNREAD_BYTES: Final = "EMBEDDED"
"""Code of the anomaly that bytes of a client are no subscription or assignment."""
SHORT_BYTES: Final = "CLIENT_LAYOUT"
"""The same where only what comes after topics and partitions is missing."""

FIRST_GENERATION_MAX: Final = {"CLASSIC": 1, "CONSUMER": 2, "SHARE": 2, "STREAMS": 2}
"""A group seen from its beginning starts at or below this: classic groups at 0 (or 1, where offsets came first), modern
groups at the first bump of a fresh object: 2 since Kafka 4.3, 1 before (ModernGroup)."""

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


class OffsetsDeleted(NamedTuple):
    """One step of the coordinator for one group, of nothing but tombstones of offsets: no group can change by it."""

    group_id: str
    timestamp_ms: int
    offsets: Sequence[int]
    """Of the tombstones in the log."""
    topics: Sequence[str]
    partitions: Sequence[int]


@dataclass(slots=True)
class _Step:
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
                    0,
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


@dataclass(slots=True)
class GroupRows:
    """Rows made so far, and not yet taken."""

    generations: list[GenerationRow] = field(default_factory=list)
    members: list[MemberRow] = field(default_factory=list)
    attributes: list[AttributesRow] = field(default_factory=list)
    assignments: AssignmentRows = field(default_factory=AssignmentRows)
    events: list[EventRow] = field(default_factory=list)
    topics: list[TopicName] = field(default_factory=list)

    def __len__(self) -> int:
        of_members = len(self.members) + len(self.attributes)
        return len(self.generations) + of_members + len(self.assignments) + len(self.events)

    def extend(self, other: "GroupRows") -> None:
        """Append another's rows."""
        self.generations += other.generations
        self.members += other.members
        self.attributes += other.attributes
        self.assignments.extend(other.assignments)
        self.events += other.events
        self.topics += other.topics


class GroupHistory:
    """History of all groups of one `__consumer_offsets` partition. Feed operations in log order.

    `saved`: groups as an earlier history of the same log left them, by group id (`save`). They sleep as bytes until
    records of theirs come; that offsets are deleted does not wake them. One that sleeps on stays as it was, and so does
    what was open of it.
    """

    def __init__(self, shard: GroupShard | None = None, *, saved: Mapping[str, bytes] | None = None) -> None:
        self.shard = shard if shard is not None else GroupShard()
        self._tracks: dict[str, Track] = {}
        self._asleep: dict[str, bytes] = dict(saved or {})
        self._asleep_told: dict[str, _Told] = {}
        """What deletions of offsets tell of groups asleep."""
        self._rows = GroupRows()
        self._names: dict[tuple[str, str, str], int] = {}

    def take(self) -> GroupRows:
        """Rows closed since the last call."""
        rows, self._rows = self._rows, GroupRows()
        return rows

    def apply(self, operation: Operation | OffsetsDeleted) -> None:
        """Replay one operation and write down what it changed."""
        if isinstance(operation, OffsetsDeleted):
            self._rows.events.extend(_offsets_deleted(operation, *self._told(operation.group_id)))
            return
        if operation.group_id in self._asleep:
            self._wake(operation.group_id)
        step = self._replay(operation)
        if step.after is step.before and step.partitions_after is step.partitions_before:
            # tombstones of offsets, or of what compaction had taken before: no group changed
            self._rows.events.extend(_numbered(step.events))
            return
        track = self._tracks.get(operation.group_id)
        if track is None:
            track = self._tracks[operation.group_id] = Track()
        self._compare_group(track, step)
        self._compare_share_partitions(step)
        self._learn_topics(step)
        self._rows.events.extend(_numbered(step.events))

    def save(self) -> dict[str, bytes]:
        """By group id, what a later history needs to go on. Those still asleep are given as they came."""
        groups, partitions = self.shard.groups, self.shard.share_partitions
        return self._asleep | {
            group_id: pack_group(SavedGroup(groups.get(group_id), partitions.get(group_id), self._tracks.get(group_id)))
            for group_id in sorted({*groups, *partitions, *self._tracks})
        }

    @property
    def asleep(self) -> Set[str]:
        """Groups of which no records came: what was open of them is open, and as it was."""
        return self._asleep.keys()

    def _told(self, group_id: str) -> "_Told":
        """What deletions of its offsets tell of a group, which sleeps on if it does."""
        if group_id not in self._asleep:
            return _told_of(self.shard.groups.get(group_id))
        told = self._asleep_told.get(group_id)
        if told is None:
            told = self._asleep_told[group_id] = _told_of(unpack_group(self._asleep[group_id]).group)
        return told

    def _wake(self, group_id: str) -> None:
        saved = unpack_group(self._asleep.pop(group_id))
        shard = self.shard
        if saved.group is not None:
            shard = replace(shard, groups=shard.groups.set(group_id, saved.group))
        if saved.share_partitions is not None:
            partitions = shard.share_partitions.set(group_id, saved.share_partitions)
            shard = replace(shard, share_partitions=partitions)
        if saved.track is not None:
            self._tracks[group_id] = saved.track
        self.shard = shard

    def finish(self) -> GroupRows:
        """Rows of everything still open, groups asleep aside, with the newest attributes; the history may not go on
        afterwards."""
        for group_id, track in self._tracks.items():
            group = self.shard.groups.get(group_id)
            if group is None:
                continue
            self._close_all_assignments(track, group_id, group, None)
            for member_id in list(track.members):
                self._close_member(track, group_id, group, member_id, None, None)
            self._close_generation(track, group_id, group, None)
        return self.take()

    def _replay(self, operation: Operation) -> _Step:
        group_id = operation.group_id
        before = self.shard.groups.get(group_id)
        partitions = self.shard.share_partitions.get(group_id)
        step = _Step(
            operation=operation,
            before=before,
            after=before,
            partitions_before=partitions,
            partitions_after=partitions,
            appeared_at=operation.last_offset,
            vanished_at=operation.last_offset,
            generation_at=operation.last_offset,
            vanished=False,
        )
        group = before
        for record in operation.records:
            previous = group
            group = self._replay_record(step, group, record)
            if type(group) is not type(previous):
                if previous is not None:
                    step.vanished, step.vanished_at = True, record.offset
                if group is not None:
                    step.appeared_at = record.offset
        step.after = group
        self.shard = with_group(self.shard, group_id, before, group)
        return step

    def _replay_record(self, step: _Step, group: Group | None, record: GroupRecord) -> Group | None:
        """The group after one record more."""
        offset, record_type, key, value = record
        if record_type in OFFSET_RECORDS:
            group_id = step.operation.group_id
            if isinstance(key, LastOffsetGone):
                return None if _is_of_offsets_only(group) else group
            if not isinstance(key, OffsetKey):
                return simple_group(group, group_id)
            deleted = OffsetsDeleted(group_id, step.operation.timestamp_ms, [offset], [key.topic], [key.partition])
            step.events.extend(_offsets_deleted(deleted, *_told_of(group)))
            return group
        assert isinstance(key, Struct), "only offset commits come with less than the codec's key"
        step.replaying = offset
        group = REPLAY[record_type](group, key, value, step.report, DEFAULT_VERSION)
        if record_type == SHARE_PARTITIONS_RECORD:
            partitions = replay_share_partitions(self.shard.share_partitions, key, value)
            self.shard = replace(self.shard, share_partitions=partitions)
            step.partitions_after = partitions.get(step.operation.group_id)
        self._note_record(step, offset, record_type, key, value)
        return group

    def _note_record(
        self, step: _Step, offset: int, record_type: RecordType, key: Struct, value: Struct | None
    ) -> None:
        """Remember which record speaks of what, and say what is one event a record by definition."""
        if record_type in KEYED_BY_MEMBER:
            member_id: str = key.member_id
            step.touched.setdefault(member_id)
            if record_type in MEMBER_RECORDS:
                step.described.add(member_id)
                step.member_at[member_id] = offset
                return
            step.member_at.setdefault(member_id, offset)
            if value is not None and record_type in CURRENT_ASSIGNMENT_RECORDS:
                details = {
                    "previous_member_epoch": str(value.previous_member_epoch),
                    "state": _MEMBER_STATE_NAMES[record_type].get(value.state, "UNKNOWN"),
                }
                epoch = value.member_epoch
                step.say("MEMBER_RECONCILED", offset, generation=epoch, member_id=member_id, details=details)
                if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                    step.say("STATIC_MEMBER_LEFT", offset, member_id=member_id)
        elif value is None:
            return
        elif record_type in GENERATION_RECORDS:
            step.generation_at = offset
        elif record_type in TARGET_METADATA_RECORDS:
            details = {"kept": "true"} if _keeps_targets(step, value) else {}
            step.say("TARGET_COMPUTED", offset, generation=value.assignment_epoch, details=details)

    def _compare_group(self, track: Track, step: _Step) -> None:
        before, after = step.before, step.after
        if after is None:
            if before is not None:
                self._end(track, step, before, GROUP_DELETED)
                step.say("GROUP_DELETED", step.vanished_at)
            return
        if before is None:
            self._begin(track, step, after)
        elif _was_there_before(before, after, step.operation):
            self._see_first(track, step, after)
        elif type(before) is not type(after):
            self._convert(track, step, before, after)
        elif step.vanished:
            self._end(track, step, before, GROUP_DELETED)
            step.say("GROUP_DELETED", step.vanished_at, generation=views.generation(before))
            self._begin(track, step, after)
        else:
            self._advance(track, step, before, after)

    def _begin(self, track: Track, step: _Step, after: Group) -> None:
        """A group that was not there."""
        track.incarnation += 1
        is_contiguous = _is_first(after)
        self._open_generation(track, step, after, previous=None, is_contiguous=is_contiguous)
        details = {}
        if not is_contiguous:
            details["first_seen"] = "the log does not hold the group's beginning"
        elif not _is_epoch_told(after, step.operation):
            details["first_seen"] = "no record tells the group's epoch: it is that of a group just made"
        step.say("GROUP_CREATED", step.appeared_at, details=details)
        self._say_generation(step, None)
        self._compare_protocol(step, None, after)
        self._compare_members(track, step, None, after)

    def _see_first(self, track: Track, step: _Step, after: Group) -> None:
        """A group that was known by its commits alone and shows now that it had been there before these: what the
        commits seemed to begin, generation 0 of a simple group, never was."""
        track.generation = None
        self._open_generation(track, step, after, previous=None, is_contiguous=_is_first(after))
        self._say_generation(step, None)
        self._compare_protocol(step, None, after)
        self._compare_members(track, step, None, after)

    def _convert(self, track: Track, step: _Step, before: Group, after: Group) -> None:
        """Another group type under the same id. With members it is the same group; an empty one is made anew.

        A conversion that keeps its members goes on from the generation it has; where that falls it was none.
        """
        is_online = bool(before.members) and views.generation(before) <= views.generation(after)
        replaced: dict[str, str] = {}
        previous = None
        if is_online:
            previous = views.generation(before)
            gone = [member_id for member_id in before.members if member_id not in after.members]
            replaced = _replacements(before.members, gone, after.members, after.members)
            self._close_gone(track, step, before, gone, replaced)
            self._end(track, step, before, CONVERTED)
            is_contiguous = views.generation(after) in {previous, previous + 1}
        else:
            self._end(track, step, before, GROUP_DELETED)
            track.incarnation += 1
            is_contiguous = _is_first(after)
        self._open_generation(track, step, after, previous=previous, is_contiguous=is_contiguous)
        step.say(
            "GROUP_CONVERTED",
            step.appeared_at,
            details={
                "from": views.group_type(before),
                "to": views.group_type(after),
                "online": str(is_online).lower(),
            },
        )
        self._say_generation(step, previous)
        self._compare_protocol(step, None, after)
        known = frozenset(before.members) if is_online else frozenset()
        self._compare_members(track, step, None, after, known=known, replaced=replaced)
        if is_online and not after.members:
            step.say("GROUP_EMPTIED", step.generation_at)

    def _advance(self, track: Track, step: _Step, before: Group, after: Group) -> None:
        """The same group, one operation on."""
        old, new = views.generation(before), views.generation(after)
        current = track.generation
        if current is not None and new != old:
            if new < old:
                step.say(
                    "ANOMALY",
                    step.generation_at,
                    details={
                        "code": "GENERATION_FELL",
                        "message": f"generation {old} is followed by {new} without a tombstone between",
                    },
                )
                self._end(track, step, before, GROUP_DELETED)
                self._open_generation(track, step, after, previous=None, is_contiguous=False)
                self._say_generation(step, old)
                self._compare_members(track, step, None, after)
                return
            self._close_generation(track, step.operation.group_id, before, step)
            self._open_generation(track, step, after, previous=old, is_contiguous=new == old + 1)
            self._say_generation(step, old)
        self._compare_protocol(step, before, after)
        self._compare_members(track, step, before, after)
        if before.members and not after.members:
            step.say("GROUP_EMPTIED", step.generation_at)

    def _say_generation(self, step: _Step, previous: int | None) -> None:
        details = {} if previous is None else {"previous_generation": str(previous)}
        connect = None if step.after is None else views.connect_round_of(step.after)
        if connect is not None:
            details["config_offset"] = str(connect.config_offset)
            details |= {name: str(count) for name, count in _what_follows(connect) if count}
        step.say("GENERATION_STARTED", step.generation_at, details=details)

    def _compare_protocol(self, step: _Step, before: Group | None, after: Group) -> None:
        if isinstance(before, ClassicGroup) and isinstance(after, ClassicGroup):
            if before.protocol_name and after.protocol_name and before.protocol_name != after.protocol_name:
                step.say(
                    "PROTOCOL_CHANGED",
                    step.generation_at,
                    details={"from": before.protocol_name, "to": after.protocol_name},
                )
            if before.leader and after.leader and before.leader != after.leader:
                step.say(
                    "LEADER_CHANGED",
                    step.generation_at,
                    member_id=after.leader,
                    details={"from": before.leader, "to": after.leader},
                )
        elif isinstance(after, StreamsGroup):
            _say_topology(step, before.topology if isinstance(before, StreamsGroup) else None, after.topology)
            if isinstance(before, StreamsGroup) and before.last_assignment_configs != after.last_assignment_configs:
                step.say(
                    ASSIGNMENT_CONFIGS_CHANGED,
                    step.generation_at,
                    details={
                        "from": json.dumps(dict(before.last_assignment_configs), sort_keys=True),
                        "to": json.dumps(dict(after.last_assignment_configs), sort_keys=True),
                    },
                )

    def _compare_members(
        self,
        track: Track,
        step: _Step,
        before: Group | None,
        after: Group,
        *,
        known: frozenset[str] = frozenset(),
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        """Members that came, went, were replaced or changed.

        A conversion, which compares with nothing, says itself who was `known` and who was `replaced`.
        """
        names = self._touched(step, before, after)
        old: Mapping[str, Member] = before.members if before is not None else {}
        gone = [m for m in names if m in old and m not in after.members]
        come = [m for m in names if m in after.members and m not in track.members]
        if replaced is None:
            replaced = _replacements(old, gone, after.members, come)
        is_classic = isinstance(after, ClassicGroup)
        asked_before = dict(track.assignors)
        if before is not None:
            self._close_gone(track, step, before, gone, replaced)
        for member_id in come:
            self._open_member(track, step, after, member_id)
            offset = step.member_at.get(member_id, step.generation_at)
            if member_id in replaced:
                details = {"replaced_member_id": replaced[member_id]}
                step.say("STATIC_MEMBER_REPLACED", offset, member_id=member_id, details=details)
            elif member_id not in known:
                step.say("MEMBER_JOINED", offset, member_id=member_id)
        for member_id in names:
            if is_classic or member_id in step.described:
                self._compare_member(track, step, old.get(member_id), after.members.get(member_id))
        self._compare_assignments(track, step, before, after, names)
        if before is not None and before.members and after.members:
            _say_assignor(step, asked_before, track.assignors)
        self._say_odd_bytes(track, step, after)

    def _close_gone(
        self, track: Track, step: _Step, before: Group, gone: Iterable[str], replaced: Mapping[str, str]
    ) -> None:
        """Members which are no more: away, or replaced by a new member of the same group instance id."""
        taken_over = frozenset(replaced.values())
        for member_id in gone:
            ended_by = REPLACED_STATIC if member_id in taken_over else LEFT_OR_EXPIRED
            self._close_member(track, step.operation.group_id, before, member_id, step, ended_by)
            if ended_by == LEFT_OR_EXPIRED:
                offset = step.member_at.get(member_id, step.generation_at)
                step.say("MEMBER_LEFT", offset, member_id=member_id)

    def _touched(self, step: _Step, before: Group | None, after: Group) -> list[str]:
        """Members to compare: all where the whole picture was replaced, else those the operation's keys name."""
        if before is None or isinstance(after, ClassicGroup):
            if before is after:
                return []
            names = dict.fromkeys(before.members if before is not None else ())
            names.update(dict.fromkeys(after.members))
            if not isinstance(after, ClassicGroup):
                names.update(dict.fromkeys(after.target_assignment))
            return sorted(names)
        return list(step.touched)

    def _compare_member(self, track: Track, step: _Step, old: Member | None, new: Member | None) -> None:
        if old is None or new is None or old is new:
            return
        member_id = new.member_id
        offset = step.member_at.get(member_id, step.generation_at)
        assert step.after is not None, "members are compared in groups that are there"
        was, now = views.subscription(step.before or step.after, old), views.subscription(step.after, new)
        if was != now and was is not None and now is not None:
            details = views.subscription_details(old, new)
            step.say("SUBSCRIPTION_CHANGED", offset, member_id=member_id, details=details)
        is_described_otherwise = views.description(old) != views.description(new)
        if is_described_otherwise:
            step.say("MEMBER_UPDATED", offset, member_id=member_id)
        if is_described_otherwise or was != now or views.is_told_otherwise(old, new):
            self._compare_attributes(track, step, old, new)
        if views.server_assignor(old) != views.server_assignor(new):
            self._count_assignor(track, old, -1)
            self._count_assignor(track, new, +1)

    def _compare_attributes(self, track: Track, step: _Step, old: Member, new: Member) -> None:
        """Attributes that change within a member's time in the group end an interval of their own."""
        before, after = step.before, step.after
        if before is None or after is None or new.member_id not in track.members:
            return
        had = views.member_fields(before, old)
        if views.attributes(had) == views.attributes(views.member_fields(after, new)):
            return
        member_id, group_id = new.member_id, step.operation.group_id
        opened = track.attributes.get(member_id, track.members[member_id])
        track.attributes[member_id] = self._opened(track, step, after)
        self._add_attributes(group_id, before, member_id, opened, step, had)

    def _add_attributes(
        self, group_id: str, group: Group, member_id: str, opened: Open, step: _Step | None, had: views.MemberFields
    ) -> None:
        interval = _interval(opened, step, self._last_generation(group_id, step))
        self._rows.attributes.append(
            _make_attributes_row((group_id, views.group_type(group), member_id, *interval, *views.attributes(had)))
        )

    def _compare_assignments(
        self, track: Track, step: _Step, before: Group | None, after: Group, member_ids: Iterable[str]
    ) -> None:
        """What members have now and had not before. `before` is of the same type, if there is any."""
        sources_of = views.sources_of(after)
        for member_id in member_ids:
            old = views.NO_SOURCES if before is None else sources_of(before, member_id)
            new = sources_of(after, member_id)
            for place, kind in enumerate(views.ASSIGNMENT_KINDS):
                was, now = old[place], new[place]
                if was is not now and was != now:
                    self._compare_held(track, step, after, member_id, kind, views.assigned(now))

    def _compare_held(
        self, track: Track, step: _Step, after: Group, member_id: str, kind: str, assigned: Assigned
    ) -> None:
        kinds = track.assignments.setdefault(member_id, {})
        before = kinds.pop(kind, [])
        kept, gone, come = _parted(before, assigned)
        if come:
            kept.append(Held(self._opened(track, step, after), come))
        if kept:
            kinds[kind] = kept
        elif not kinds:
            del track.assignments[member_id]
        if gone:
            self._close_assignments(step.operation.group_id, after, member_id, kind, gone, step)

    def _opened(self, track: Track, step: _Step, after: Group) -> Open:
        if step.opened is None:
            step.opened = Open(
                log_offset=step.operation.last_offset,
                timestamp_ms=step.operation.timestamp_ms,
                incarnation=track.incarnation,
                generation=views.generation(after),
            )
        return step.opened

    def _open_generation(
        self, track: Track, step: _Step, after: Group, *, previous: int | None, is_contiguous: bool
    ) -> None:
        group_type, generation = views.group_type(after), views.generation(after)
        if track.newest.get(group_type, (-1, 0)) >= (track.incarnation, generation):
            # Never so in a log of Kafka's own. It keeps the table's key unique whatever the log says.
            track.incarnation += 1
        track.newest[group_type] = (track.incarnation, generation)
        track.generation = OpenGeneration(
            group_type=group_type,
            incarnation=track.incarnation,
            generation=generation,
            log_offset=step.operation.last_offset,
            timestamp_ms=step.operation.timestamp_ms,
            previous_generation=previous,
            is_contiguous=is_contiguous,
            current_state_at=views.current_state_at(after),
        )

    def _open_member(self, track: Track, step: _Step, after: Group, member_id: str) -> None:
        track.members[member_id] = self._opened(track, step, after)
        self._count_assignor(track, after.members[member_id], +1)

    def _count_assignor(self, track: Track, member: Member, count: int) -> None:
        assignor = views.server_assignor(member)
        if assignor is not None:
            track.assignors[assignor] += count

    def _end(self, track: Track, step: _Step, before: Group, reason: str) -> None:
        """Close everything of a group; `before` is its last state."""
        group_id = step.operation.group_id
        self._close_all_assignments(track, group_id, before, step)
        for member_id in list(track.members):
            self._close_member(track, group_id, before, member_id, step, reason)
        self._close_generation(track, group_id, before, step)

    def _close_all_assignments(self, track: Track, group_id: str, group: Group, step: _Step | None) -> None:
        for member_id, kinds in track.assignments.items():
            for kind in views.ASSIGNMENT_KINDS:
                if kind in kinds:
                    self._close_assignments(group_id, group, member_id, kind, kinds[kind], step)
        track.assignments.clear()

    def _close_assignments(
        self, group_id: str, group: Group, member_id: str, kind: str, gone: Sequence[Held], step: _Step | None
    ) -> None:
        group_type, last_generation = views.group_type(group), self._last_generation(group_id, step)
        for opened, assigned in _in_runs(gone):
            run = _make_run((group_id, group_type, member_id, kind, *_interval(opened, step, last_generation)))
            self._rows.assignments.append(run, assigned)

    def _close_member(
        self,
        track: Track,
        group_id: str,
        group: Group,
        member_id: str,
        step: _Step | None,
        ended_by: str | None,
    ) -> None:
        opened = track.members.pop(member_id)
        member = group.members[member_id]
        if step is not None:
            self._count_assignor(track, member, -1)
        interval = _interval(opened, step, self._last_generation(group_id, step))
        of_member = views.member_fields(group, member)
        self._rows.members.append(
            _make_member_row((group_id, views.group_type(group), member_id, *interval, ended_by, *of_member))
        )
        since = track.attributes.pop(member_id, opened)
        self._add_attributes(group_id, group, member_id, since, step, of_member)

    def _close_generation(self, track: Track, group_id: str, group: Group, step: _Step | None) -> None:
        opened, track.generation = track.generation, None
        if opened is None:
            return
        is_classic = isinstance(group, ClassicGroup)
        self._rows.generations.append(
            GenerationRow(
                group_id=group_id,
                group_type=opened.group_type,
                incarnation=opened.incarnation,
                generation=opened.generation,
                from_log_offset=opened.log_offset,
                to_log_offset=None if step is None else step.operation.last_offset,
                valid_from=opened.timestamp_ms,
                valid_to=_end_ms(opened.timestamp_ms, step),
                state=str(group.state),
                protocol_type=group.protocol_type if isinstance(group, ClassicGroup) else None,
                protocol_name=(
                    group.protocol_name if isinstance(group, ClassicGroup) else _preferred_assignor(track.assignors)
                ),
                leader_member_id=group.leader if isinstance(group, ClassicGroup) else None,
                member_count=len(group.members),
                assignment_epoch=None if is_classic else views.assignment_epoch(group),
                topology_epoch=views.topology_epoch(group),
                metadata_hash=views.metadata_hash(group),
                previous_generation=opened.previous_generation,
                is_contiguous=opened.is_contiguous,
                current_state_at=opened.current_state_at,
                unread_members=views.unread_members(group),
            )
        )

    def _last_generation(self, group_id: str, step: _Step | None) -> int:
        """The last generation in which an interval held: the one before the operation that ended it."""
        group = self.shard.groups.get(group_id) if step is None else step.before
        return views.generation(group) if group is not None else -1

    def _compare_share_partitions(self, step: _Step) -> None:
        before, after = step.partitions_before, step.partitions_after
        if after is before or after is None:
            return
        old = before if before is not None else ShareGroupStatePartitions()
        offset = step.offset_of(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA)
        for event_type, was, now in (
            ("SHARE_PARTITIONS_INITIALIZING", old.initializing, after.initializing),
            ("SHARE_PARTITIONS_INITIALIZED", old.initialized, after.initialized),
        ):
            for topic_id in sorted(now):
                topic, partitions = now[topic_id]
                added = sorted(set(partitions) - set(was[topic_id][1] if topic_id in was else ()))
                self._learn(topic_id, topic, step.operation.timestamp_ms, "SHARE_PARTITIONS")
                if added:
                    step.say(
                        event_type,
                        offset,
                        topic=topic,
                        details={"topic_id": topic_id, "partitions": ",".join(map(str, added))},
                    )
        for topic_id in sorted(after.deleting):
            self._learn(topic_id, after.deleting[topic_id], step.operation.timestamp_ms, "SHARE_PARTITIONS")
            if topic_id not in old.deleting:
                step.say(
                    "SHARE_PARTITIONS_DELETING",
                    offset,
                    topic=after.deleting[topic_id],
                    details={"topic_id": topic_id},
                )

    def _learn_topics(self, step: _Step) -> None:
        """Names which a target proves: a member that subscribes to one topic alone can only be given that one.

        Only where the target was computed in this operation for the epoch in force: an older target may stem from an
        older subscription.
        """
        after = step.after
        if not isinstance(after, ConsumerGroup | ShareGroup) or after.group_epoch != after.assignment_epoch:
            return
        types = {record.record_type for record in step.operation.records if record.value is not None}
        if not types & TARGET_METADATA_RECORDS:
            return
        for record in step.operation.records:
            if record.record_type not in TARGET_MEMBER_RECORDS or record.value is None:
                continue
            assert isinstance(record.key, Struct)
            member = after.members.get(record.key.member_id)
            if member is None:
                continue
            names, learned_from = set(member.subscribed_topic_names), "SUBSCRIPTION"
            if isinstance(member, ConsumerMember) and (regex := member.subscribed_topic_regex):
                assert isinstance(after, ConsumerGroup)
                resolved = after.resolved_regexes.get(regex)
                if resolved is None:
                    continue
                names, learned_from = names | set(resolved.topics), "REGEX"
            if len(names) == 1:
                (name,) = names
                for topic_id in after.target_assignment.get(member.member_id, {}):
                    self._learn(topic_id, name, step.operation.timestamp_ms, learned_from)

    def _learn(self, topic_id: str, topic: str, at: int, learned_from: str) -> None:
        known = (topic_id, topic, learned_from)
        if known not in self._names:
            self._names[known] = at
            self._rows.topics.append(TopicName(topic_id, topic, at, learned_from))

    def _say_odd_bytes(self, track: Track, step: _Step, after: Group) -> None:
        """What is odd about the bytes that clients put into the group's record: once a kind of client, not once a
        member and generation."""
        if not isinstance(after, ClassicGroup) or after is step.before:
            return
        before = step.before if isinstance(step.before, ClassicGroup) else None
        for member, oddity in views.odd_bytes(after, before):
            client = " ".join(client_family(member.client_id))
            text = f"{after.protocol_name or ''}\n{client}\n{oddity.text}"
            # a digest: saved state keeps no words of client ids, which may be personal
            note = hashlib.sha256(text.encode()).hexdigest()[:16]
            if note in track.notes or len(track.notes) >= CLIENT_NOTES_MAX:
                continue
            track.notes.append(note)
            details = {
                "code": UNREAD_BYTES if oddity.is_unread else SHORT_BYTES,
                "message": oddity.text,
                "client_id": member.client_id,
                "protocol": after.protocol_name or "",
            }
            step.say("ANOMALY", step.generation_at, member_id=member.member_id, details=details)


def _parted(before: Sequence[Held], assigned: Assigned) -> tuple[list[Held], list[Held], Assigned]:
    """Of what a member had: what it keeps and what it has not any more, if `assigned` is all it has now; and what of
    that is new."""
    if not before:
        return [], [], assigned
    had: Mapping[TopicKey, Collection[int]] = before[0].assigned
    has: Mapping[TopicKey, Collection[int]] = assigned
    if len(before) > 1:
        had, has = _together([held.assigned for held in before]), _together([assigned])
    elif had == has:
        return list(before), [], views.NOTHING
    kept: list[Held] = []
    gone: list[Held] = []
    for held in before:
        left, lost = _split(held.assigned, has)
        if not lost:
            kept.append(held)
            continue
        gone.append(Held(held.opened, lost))
        if left:
            kept.append(Held(held.opened, left))
    return kept, gone, _split(assigned, had)[1]


def _split(assigned: Assigned, other: Mapping[TopicKey, Collection[int]]) -> tuple[Assigned, Assigned]:
    """What of `assigned` is in `other` too, and what is not."""
    both: dict[TopicKey, tuple[int, ...]] = {}
    rest: dict[TopicKey, tuple[int, ...]] = {}
    for key, partitions in assigned.items():
        others = other.get(key)
        if others is None:
            rest[key] = partitions
        elif partitions == others:
            both[key] = partitions
        else:
            known = frozenset(others)
            common = tuple([partition for partition in partitions if partition in known])
            if common:
                both[key] = common
            if len(common) < len(partitions):
                rest[key] = tuple([partition for partition in partitions if partition not in known])
    return both, rest


def _together(parts: Iterable[Assigned]) -> Mapping[TopicKey, frozenset[int]]:
    """All of it, made to be looked up."""
    partitions: dict[TopicKey, set[int]] = {}
    for assigned in parts:
        for key, some in assigned.items():
            partitions.setdefault(key, set()).update(some)
    return {key: frozenset(every) for key, every in partitions.items()}


def _in_runs(gone: Sequence[Held]) -> Iterator[tuple[Open, Assigned]]:
    """By topic and partition, cut wherever the next one was given at another time."""
    if len(gone) == 1:
        assigned = gone[0].assigned
        yield gone[0].opened, assigned if len(assigned) == 1 else dict(sorted(assigned.items()))
        return
    opened = {
        (key, partition): held.opened
        for held in gone
        for key, partitions in held.assigned.items()
        for partition in partitions
    }
    for at, places in groupby(sorted(opened), opened.__getitem__):
        topics = groupby(places, itemgetter(0))
        yield at, {key: tuple([partition for _, partition in some]) for key, some in topics}


class _Told(NamedTuple):
    """Type and generation of a group, None where there is none."""

    group_type: str | None
    generation: int | None


def _told_of(group: Group | None) -> _Told:
    return _Told(None, None) if group is None else _Told(views.group_type(group), views.generation(group))


def _offsets_deleted(deleted: OffsetsDeleted, group_type: str | None, generation: int | None) -> Iterable[EventRow]:
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


_NO_DETAILS: Final[dict[str, str]] = {}
_make_event: Final = maker_of(EventRow)
_make_member_row: Final = maker_of(MemberRow)
_make_attributes_row: Final = maker_of(AttributesRow)
_make_run: Final = maker_of(AssignmentRun)


def _numbered(events: list[EventRow]) -> Iterable[EventRow]:
    """Events of one operation by record, each record's counted from 0."""
    if len(events) < 2:
        return events
    events.sort(key=_log_offset)
    numbered = []
    offset, index = -1, 0
    for event in events:
        if event.log_offset != offset:
            offset, index = event.log_offset, 0
            numbered.append(event)
            continue
        index += 1
        numbered.append(_make_event((offset, index, *event[2:])))
    return numbered


_log_offset = attrgetter("log_offset")


def _is_first(group: Group) -> bool:
    """Whether a group's first visible generation can be its first one ever."""
    return 0 <= views.generation(group) <= FIRST_GENERATION_MAX[views.group_type(group)]


def _is_epoch_told(group: Group, operation: Operation) -> bool:
    """Whether the operation tells a group's epoch, or the member epoch of one that joined at it (a first member with a
    pattern raises no epoch). Members' metadata alone are what compaction left of an operation: Kafka gives the group
    that it makes of them epoch 1 (ModernGroup)."""
    generation = views.generation(group)
    return isinstance(group, ClassicGroup) or any(
        record.value is not None
        and (
            record.record_type in GENERATION_RECORDS
            or (record.record_type in CURRENT_ASSIGNMENT_RECORDS and record.value.member_epoch == generation)
        )
        for record in operation.records
    )


def _is_of_offsets_only(group: Group | None) -> bool:
    """A group that no record but commits made: it is there as long as it has offsets (GroupMetadataManager.scala writes
    no tombstone of generation 0)."""
    return isinstance(group, ClassicGroup) and group.is_simple and group.generation_id == 0


def _was_there_before(before: Group, after: Group, operation: Operation) -> bool:
    """Does the first record of a group that only committed so far tell of earlier ones, which the log does not hold?

    The number of a classic generation does. One of another type is no simple group made anew, where the coordinator did
    not delete that one in the same operation: its members committed, and what they did before was compacted or not
    captured.
    """
    if after is before or not isinstance(before, ClassicGroup) or before != ClassicGroup(before.group_id):
        return False
    if isinstance(after, ClassicGroup):
        return views.generation(after) > FIRST_GENERATION_MAX[views.group_type(after)]
    return not any(
        record.record_type == RecordType.GROUP_METADATA and record.value is None for record in operation.records
    )


def _replacements(
    old: Mapping[str, Member], gone: Iterable[str], members: Mapping[str, Member], come: Iterable[str]
) -> dict[str, str]:
    """New member id -> the old one whose group instance id it took over in the same operation."""
    by_instance = {
        instance: member_id for member_id in gone if (instance := views.instance_id(old[member_id])) is not None
    }
    if not by_instance:
        return {}
    return {
        member_id: by_instance[instance]
        for member_id in come
        if (instance := views.instance_id(members[member_id])) is not None and instance in by_instance
    }


def _preferred_assignor(asked: Mapping[str, int]) -> str | None:
    """The server assignor that most members ask for; of equals the first in the order of Kafka's map of them."""
    wanted = Counter({name: count for name, count in asked.items() if count > 0})
    return preferred_assignor(wanted) if wanted else None


def _say_assignor(step: _Step, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Another server assignor is preferred; one that is not named is the broker's default, of which no record tells."""
    names = {"from": _preferred_assignor(before), "to": _preferred_assignor(after)}
    if names["from"] == names["to"]:
        return
    details = {name: assignor for name, assignor in names.items() if assignor is not None}
    if _is_tie(before) or _is_tie(after):
        details["tie"] = "true"
    step.say("PROTOCOL_CHANGED", step.operation.last_offset, details=details)


def _is_tie(asked: Mapping[str, int]) -> bool:
    """Do as many members ask for another one, so that the order of Kafka's hash map decides?"""
    counts = sorted(asked.values(), reverse=True)
    return len(counts) > 1 and counts[0] == counts[1] > 0


def _keeps_targets(step: _Step, value: Struct) -> bool:
    """Does a streams group come to a new epoch with the targets that it has (Kafka 4.4)? Then their time stays too."""
    before = step.before
    return (
        isinstance(before, StreamsGroup)
        and value.assignment_epoch > before.assignment_epoch
        and value.assignment_timestamp == before.assignment_timestamp_ms != 0
    )


def _what_follows(connect: ConnectRound) -> Iterable[tuple[str, int]]:
    """Of a generation of Connect workers, what makes another one follow."""
    yield "revoked_count", connect.revoked_count
    yield "delay_ms", connect.delay_ms
    yield "has_error", int(connect.has_error)


def _say_topology(step: _Step, before: Topology | None, after: Topology | None) -> None:
    if after is None or after == before:
        return
    offset = step.offset_of(RecordType.STREAMS_GROUP_TOPOLOGY)
    topics = {subtopology.subtopology_id: list(subtopology.input_topics) for subtopology in after.subtopologies}
    details = {"topology_epoch": str(after.epoch), "subtopologies": json.dumps(topics, sort_keys=True)}
    step.say("TOPOLOGY_CHANGED", offset, details=details)


_MEMBER_STATE_NAMES: Final[Mapping[RecordType, Mapping[int, str]]] = {
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: {
        0: "STABLE",
        1: "UNREVOKED_PARTITIONS",
        2: "UNRELEASED_PARTITIONS",
    },
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: {0: "STABLE"},
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"},
}
"""MemberState by its code in the record: streams groups count from 1."""


def _end_ms(begin_ms: int, step: _Step | None) -> int | None:
    """When an interval ended: not before it began, though the clock of the leader that wrote its end be behind. Places
    in the log tell the true order."""
    if step is None:
        return None
    end_ms = step.operation.timestamp_ms
    return end_ms if end_ms < 0 else max(begin_ms, end_ms)


def _interval(
    opened: Open, step: _Step | None, last_generation: int
) -> tuple[int, int | None, int, int | None, int, int, int]:
    """What rows of members and of assignments tell alike: from where and when to where and when, the incarnation, the
    first generation and the last."""
    generation = opened.generation
    return (
        opened.log_offset,
        None if step is None else step.operation.last_offset,
        opened.timestamp_ms,
        _end_ms(opened.timestamp_ms, step),
        opened.incarnation,
        generation,
        last_generation if last_generation > generation else generation,
    )


__all__ = ["GroupHistory", "GroupRecord", "GroupRows", "OffsetsDeleted", "Operation"]
