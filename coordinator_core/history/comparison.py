"""Compares the states of a group before and after one operation, and turns the differences into intervals and
events."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from coordinator_core.bytes.client_protocols import ConnectRound
from coordinator_core.history import views
from coordinator_core.history.client_families import client_family
from coordinator_core.history.intervals import Intervals, preferred_assignor_of
from coordinator_core.history.operations import (
    CURRENT_ASSIGNMENT_RECORDS,
    GENERATION_RECORDS,
    MEMBER_RECORDS,
    Operation,
    ReplayedOperation,
)
from coordinator_core.history.rows import (
    ASSIGNMENT_CONFIGS_CHANGED,
    CONVERTED,
    FORGOTTEN,
    GROUP_DELETED,
    NEXT_REBALANCE,
    PATTERNS_CHANGED,
    PATTERNS_NEW,
    TOPOLOGY_DESCRIPTION_CHANGED,
)
from coordinator_core.history.views import Member
from coordinator_core.limits import CLIENT_NOTES_MAX
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.streams.state import StreamsGroup, Topology
from schemas.consumer_offsets import RecordType
from schemas.group_types import GroupType

UNREAD_BYTES: Final = "EMBEDDED"
"""Anomaly code: a client's bytes are not a subscription or assignment."""
SHORT_BYTES: Final = "CLIENT_LAYOUT"
"""Anomaly code: only fields after the topics and partitions are missing."""

UNKNOWN_EPOCH: Final = "no record tells the group's epoch: it is that of a group just made"

NO_DESCRIPTION: Final = (-1, -1)
"""Stored and failed description epochs of a new streams group: the broker's plugin has neither stored nor rejected
one."""

FIRST_GENERATION_MAX: Final[Mapping[str, int]] = {
    GroupType.CLASSIC: 1,
    GroupType.CONSUMER: 2,
    GroupType.SHARE: 2,
    GroupType.STREAMS: 2,
}
"""Highest generation at which a group can start. A classic group starts at 0 (or 1, where offsets came first), a modern
group at the first bump of a new object: 2 since Kafka 4.3, 1 before (ModernGroup)."""


class Comparison(NamedTuple):
    """One operation, with the intervals that it opens and closes."""

    step: ReplayedOperation
    intervals: Intervals

    def compare(self) -> None:
        """Open and close intervals, and record events."""
        before, after = self.step.before, self.step.after
        if after is None:
            if before is not None:
                self.intervals.close_all(before, self.step, GROUP_DELETED)
                self.step.add_event("GROUP_DELETED", self.step.vanished_at)
            return
        if before is None:
            self._begin(after)
        elif _was_there_before(before, after, self.step.operation):
            self._see_first(after)
        elif type(before) is not type(after):
            self._convert(before, after)
        elif self.step.vanished:
            self.intervals.close_all(before, self.step, GROUP_DELETED)
            self.step.add_event("GROUP_DELETED", self.step.vanished_at, generation=views.generation(before))
            self._begin(after)
        else:
            self._advance(before, after)

    def reload(self) -> None:
        """A new leader loaded the log without records of the group: what was known of it ends, and what is left of it
        begins. Nobody left or joined."""
        before, after = self.step.before, self.step.after
        if before is not None:
            self.intervals.close_all(before, self.step, FORGOTTEN)
        if after is None:
            return
        self.intervals.intervals.incarnation += 1
        is_of_offsets = isinstance(after, ClassicGroup) and after.is_simple
        previous = None if is_of_offsets else views.generation(after)
        self.intervals.open_generation(self.step, after, previous=previous, is_contiguous=False)
        for member_id in sorted(after.members):
            self.intervals.open_member(self.step, after, member_id)
        self._compare_assignments(None, after, self._touched(None, after))

    def _begin(self, after: Group) -> None:
        """Start a group that did not exist before."""
        self.intervals.intervals.incarnation += 1
        is_contiguous = _is_first(after)
        self.intervals.open_generation(self.step, after, previous=None, is_contiguous=is_contiguous)
        details = {}
        if not is_contiguous:
            details["first_seen"] = "the log does not hold the group's beginning"
        elif not _is_epoch_known(after, self.step.operation):
            details["first_seen"] = UNKNOWN_EPOCH
        self.step.add_event("GROUP_CREATED", self.step.appeared_at, details=details)
        self._add_generation_event(None)
        self._compare_protocol(None, after)
        self._compare_members(None, after)

    def _see_first(self, after: Group) -> None:
        """Start a group that so far had only commits, and turns out to have existed before them. Its apparent
        generation 0 as a simple group never existed."""
        self.intervals.intervals.generation = None
        self.intervals.open_generation(self.step, after, previous=None, is_contiguous=_is_first(after))
        self._add_generation_event(None, **{views.COMMITTED_BEFORE: "only commits show the group before"})
        self._compare_protocol(None, after)
        self._compare_members(None, after)

    def _convert(self, before: Group, after: Group) -> None:
        """The id changes to another group type. With members it is the same group; an empty group counts as deleted and
        created again.

        A conversion that keeps members continues from the group's generation. If the generation falls, it was not a
        conversion.
        """
        is_online = (
            bool(before.members) and views.generations_between(views.generation(before), views.generation(after)) >= 0
        )
        replaced: dict[str, str] = {}
        previous = None
        if is_online:
            previous = views.generation(before)
            gone = [member_id for member_id in before.members if member_id not in after.members]
            replaced = _replacements(before.members, gone, after.members, after.members)
            self.intervals.close_gone(self.step, before, gone, replaced)
            self.intervals.close_all(before, self.step, CONVERTED)
            is_contiguous = views.generations_between(previous, views.generation(after)) in {0, 1}
        else:
            self.intervals.close_all(before, self.step, GROUP_DELETED)
            self.intervals.intervals.incarnation += 1
            is_contiguous = _is_first(after)
        self.intervals.open_generation(self.step, after, previous=previous, is_contiguous=is_contiguous)
        self.step.add_event(
            "GROUP_CONVERTED",
            self.step.appeared_at,
            details={
                "from": views.group_type(before),
                "to": views.group_type(after),
                "online": str(is_online).lower(),
            },
        )
        if is_online or _is_epoch_known(after, self.step.operation):
            self._add_generation_event(previous)
        else:
            self._add_generation_event(None, first_seen=UNKNOWN_EPOCH)
        self._compare_protocol(None, after)
        known = frozenset(before.members) if is_online else frozenset()
        self._compare_members(None, after, known=known, replaced=replaced)
        if is_online and not after.members:
            self.step.add_event("GROUP_EMPTIED", self.step.generation_at)

    def _advance(self, before: Group, after: Group) -> None:
        """Compare two states of the same group."""
        old, new = views.generation(before), views.generation(after)
        current = self.intervals.intervals.generation
        if current is not None and new != old:
            growth = views.generations_between(old, new)
            if growth < 0:
                self.step.add_event(
                    "ANOMALY",
                    self.step.generation_at,
                    details={
                        "code": "GENERATION_FELL",
                        "message": f"generation {old} is followed by {new} without a tombstone between",
                    },
                )
                self.intervals.close_all(before, self.step, GROUP_DELETED)
                self.intervals.open_generation(self.step, after, previous=None, is_contiguous=False)
                self._add_generation_event(old)
                self._compare_members(None, after)
                return
            self.intervals.close_generation(before, self.step)
            self.intervals.open_generation(self.step, after, previous=old, is_contiguous=not self.step.has_skipped)
            self._add_generation_event(old)
        self._compare_protocol(before, after)
        self._compare_members(before, after)
        if before.members and not after.members:
            self.step.add_event("GROUP_EMPTIED", self.step.generation_at)

    def _add_generation_event(self, previous: int | None, **details: str) -> None:
        if previous is not None:
            details["previous_generation"] = str(previous)
        connect = None if self.step.after is None else views.connect_round_of(self.step.after)
        if connect is not None:
            details["config_offset"] = str(connect.config_offset)
            details |= {name: str(count) for name, count in _what_follows(connect) if count}
        next_ms = None if self.step.after is None else views.next_rebalance_of(self.step.after)
        if next_ms is not None:
            details[NEXT_REBALANCE] = str(next_ms)
        details |= _patterns_resolved(self.step.before, self.step.after)
        self.step.add_event("GENERATION_STARTED", self.step.generation_at, details=details)

    def _compare_protocol(self, before: Group | None, after: Group) -> None:
        if isinstance(before, ClassicGroup) and isinstance(after, ClassicGroup):
            if before.protocol_name and after.protocol_name and before.protocol_name != after.protocol_name:
                self.step.add_event(
                    "PROTOCOL_CHANGED",
                    self.step.generation_at,
                    details={"from": before.protocol_name, "to": after.protocol_name},
                )
            if before.leader and after.leader and before.leader != after.leader:
                self.step.add_event(
                    "LEADER_CHANGED",
                    self.step.generation_at,
                    member_id=after.leader,
                    details={"from": before.leader, "to": after.leader},
                )
        elif isinstance(after, StreamsGroup):
            _add_topology_event(
                self.step, before.topology if isinstance(before, StreamsGroup) else None, after.topology
            )
            _add_description_event(self.step, before if isinstance(before, StreamsGroup) else None, after)
            if isinstance(before, StreamsGroup) and before.last_assignment_configs != after.last_assignment_configs:
                self.step.add_event(
                    ASSIGNMENT_CONFIGS_CHANGED,
                    self.step.generation_at,
                    details={
                        "from": json.dumps(dict(before.last_assignment_configs), sort_keys=True),
                        "to": json.dumps(dict(after.last_assignment_configs), sort_keys=True),
                    },
                )

    def _compare_members(
        self,
        before: Group | None,
        after: Group,
        *,
        known: frozenset[str] = frozenset(),
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        """Members that joined, left, were replaced or changed.

        A conversion compares with no state (`before` is None), and passes the members it keeps as `known` and those it
        replaces as `replaced`.
        """
        names = self._touched(before, after)
        old: Mapping[str, Member] = before.members if before is not None else {}
        gone = [m for m in names if m in old and m not in after.members]
        come = [m for m in names if m in after.members and m not in self.intervals.intervals.members]
        if replaced is None:
            replaced = _replacements(old, gone, after.members, come)
        is_classic = isinstance(after, ClassicGroup)
        asked_before = dict(self.intervals.intervals.assignors)
        if before is not None:
            self.intervals.close_gone(self.step, before, gone, replaced)
        for member_id in come:
            self.intervals.open_member(self.step, after, member_id)
            offset = self.step.member_at.get(member_id, self.step.generation_at)
            if member_id in replaced:
                details = {"replaced_member_id": replaced[member_id]}
                self.step.add_event("STATIC_MEMBER_REPLACED", offset, member_id=member_id, details=details)
            elif member_id not in known and (is_classic or member_id in self.step.described):
                # one that only an assignment names joined before, in a part of the log that is missing
                self.step.add_event("MEMBER_JOINED", offset, member_id=member_id)
        for member_id in names:
            if is_classic or member_id in self.step.described:
                self._compare_member(old.get(member_id), after.members.get(member_id))
        self._compare_assignments(before, after, names)
        if before is not None and before.members and after.members:
            _add_assignor_event(self.step, asked_before, self.intervals.intervals.assignors)
        self._add_anomalies_of_bytes(after)

    def _touched(self, before: Group | None, after: Group) -> list[str]:
        """Members to compare: all where the whole group state was replaced, else those in the keys of the operation's
        records.
        """
        if before is None or isinstance(after, ClassicGroup):
            if before is after:
                return []
            names = dict.fromkeys(before.members if before is not None else ())
            names.update(dict.fromkeys(after.members))
            if not isinstance(after, ClassicGroup):
                names.update(dict.fromkeys(after.target_assignment))
            return sorted(names)
        return list(self.step.touched)

    def _compare_member(self, old: Member | None, new: Member | None) -> None:
        if old is None or new is None or old is new:
            return
        member_id = new.member_id
        offset = self.step.member_at.get(member_id, self.step.generation_at)
        assert self.step.after is not None, "members are compared in groups that are there"
        was, now = (
            views.subscription(self.step.before or self.step.after, old),
            views.subscription(self.step.after, new),
        )
        if was != now and was is not None and now is not None and views.is_described(old):
            details = views.subscription_details(old, new)
            self.step.add_event("SUBSCRIPTION_CHANGED", offset, member_id=member_id, details=details)
        is_described_otherwise = views.description(old) != views.description(new)
        if is_described_otherwise:
            self.step.add_event("MEMBER_UPDATED", offset, member_id=member_id)
        if is_described_otherwise or was != now or views.describes_itself_otherwise(old, new):
            self.intervals.change_attributes(self.step, old, new)
        if views.server_assignor(old) != views.server_assignor(new):
            self.intervals.count_assignor(old, -1)
            self.intervals.count_assignor(new, +1)

    def _compare_assignments(self, before: Group | None, after: Group, member_ids: Iterable[str]) -> None:
        """Record what members have now and did not have before. `before`, if any, has the same type as `after`."""
        sources_of = views.sources_of(after)
        for member_id in member_ids:
            old = views.NO_SOURCES if before is None else sources_of(before, member_id)
            new = sources_of(after, member_id)
            for place, kind in enumerate(views.ASSIGNMENT_KINDS):
                was, now = old[place], new[place]
                if was is not now and was != now:
                    self.intervals.change_assignment(self.step, after, member_id, kind, views.assigned(now))

    def _add_anomalies_of_bytes(self, after: Group) -> None:
        """Report malformed bytes that clients put into the group's record, once for each kind of client instead of once
        for each member and generation."""
        if not isinstance(after, ClassicGroup) or after is self.step.before:
            return
        before = self.step.before if isinstance(self.step.before, ClassicGroup) else None
        for member, oddity in views.odd_bytes(after, before):
            client = " ".join(client_family(member.client_id))
            text = f"{after.protocol_name or ''}\n{client}\n{oddity.text}"
            # a digest: saved state must not contain words of client ids, which may be personal
            note = hashlib.sha256(text.encode()).hexdigest()[:16]
            if note in self.intervals.intervals.notes or len(self.intervals.intervals.notes) >= CLIENT_NOTES_MAX:
                continue
            self.intervals.intervals.notes.append(note)
            details = {
                "code": UNREAD_BYTES if oddity.is_unread else SHORT_BYTES,
                "message": oddity.text,
                "client_id": member.client_id,
                "protocol": after.protocol_name or "",
            }
            self.step.add_event("ANOMALY", self.step.generation_at, member_id=member.member_id, details=details)


def _is_first(group: Group) -> bool:
    """Whether the first visible generation of a group may be its first one ever."""
    return 0 <= views.generation(group) <= FIRST_GENERATION_MAX[views.group_type(group)]


def _is_epoch_known(group: Group, operation: Operation) -> bool:
    """Whether the operation's records contain the group's epoch, or the member epoch of a member that joined in it (a
    first member with a pattern does not bump the epoch), with nothing missing between that and the member's metadata.
    Otherwise it is a remainder after compaction: Kafka then creates the group with epoch 1 (ModernGroup)."""
    generation, first = views.generation(group), operation.records[0]
    return isinstance(group, ClassicGroup) or any(
        record.value is not None
        and (
            record.record_type in GENERATION_RECORDS
            or (
                record.record_type in CURRENT_ASSIGNMENT_RECORDS
                and record.value.member_epoch == generation
                and first.record_type in MEMBER_RECORDS
                and record.offset == first.offset + index
            )
        )
        for index, record in enumerate(operation.records)
    )


def _was_there_before(before: Group, after: Group, operation: Operation) -> bool:
    """Whether the first record of a group that so far only committed shows that it had earlier records, which the log
    lacks.

    A classic group shows it by its generation number. A group of another type is not a new group, unless the
    coordinator deleted the simple group in the same operation: its members committed, and their earlier records were
    compacted or not captured.
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
    """New member id -> the old member id whose group instance id it took over in the same operation."""
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


def _add_assignor_event(step: ReplayedOperation, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Report that another server assignor is preferred. A name of None is the broker's default, which no record
    names."""
    if before == after:
        return
    names = {"from": preferred_assignor_of(before), "to": preferred_assignor_of(after)}
    if names["from"] == names["to"]:
        return
    details = {name: assignor for name, assignor in names.items() if assignor is not None}
    if _is_tie(before) or _is_tie(after):
        details["tie"] = "true"
    step.add_event("PROTOCOL_CHANGED", step.operation.last_offset, details=details)


def _is_tie(asked: Mapping[str, int]) -> bool:
    """Whether several assignors are asked for by equally many members, so that the order of Kafka's hash map
    decides."""
    counts = sorted(asked.values(), reverse=True)
    return len(counts) > 1 and counts[0] == counts[1] > 0


def _patterns_resolved(before: Group | None, after: Group | None) -> dict[str, str]:
    """How many patterns have topics for the first time, and how many have other topics than before."""
    if not isinstance(before, ConsumerGroup) or not isinstance(after, ConsumerGroup) or not after.resolved_regexes:
        return {}
    old = before.resolved_regexes
    again = sum(set(now.topics) != set(old[it].topics) for it, now in after.resolved_regexes.items() if it in old)
    return {
        PATTERNS_NEW: str(sum(bool(now.topics) for it, now in after.resolved_regexes.items() if it not in old)),
        PATTERNS_CHANGED: str(again),
    }


def _what_follows(connect: ConnectRound) -> Iterable[tuple[str, int]]:
    """The values in a generation of Connect workers that cause another generation."""
    yield "revoked_count", connect.revoked_count
    yield "delay_ms", connect.delay_ms
    yield "has_error", int(connect.has_error)


def _add_topology_event(step: ReplayedOperation, before: Topology | None, after: Topology | None) -> None:
    if after is None or after == before:
        return
    offset = step.offset_of(RecordType.STREAMS_GROUP_TOPOLOGY)
    topics = {subtopology.subtopology_id: list(subtopology.input_topics) for subtopology in after.subtopologies}
    details = {"topology_epoch": str(after.epoch), "subtopologies": json.dumps(topics, sort_keys=True)}
    step.add_event("TOPOLOGY_CHANGED", offset, details=details)


def _add_description_event(step: ReplayedOperation, before: StreamsGroup | None, after: StreamsGroup) -> None:
    was = NO_DESCRIPTION if before is None else _described_epochs(before)
    now = _described_epochs(after)
    if now != was:
        details = {"stored_topology_epoch": str(now[0]), "failed_topology_epoch": str(now[1])}
        step.add_event(TOPOLOGY_DESCRIPTION_CHANGED, step.offset_of(RecordType.STREAMS_GROUP_METADATA), details=details)


def _described_epochs(group: StreamsGroup) -> tuple[int, int]:
    return group.stored_description_topology_epoch, group.failed_description_topology_epoch
