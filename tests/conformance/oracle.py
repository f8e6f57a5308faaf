"""Rows of groups which the tables should hold, worked out from a dump's text by short rules over plain dicts.

Written once more and as simply as can be: no bytes, and one operation at a time. So the tables and the dump tool are
compared record by record, and the replay's answers with those of rules that fit on a page. Commits and share states
have such a reference in the tests of the core.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from schemas.group_types import GroupType
from tests.conformance.dump import DumpBatch, DumpRecord

OFFSET_COMMIT_TYPES: Final = frozenset({0, 1})
GROUP_METADATA: Final = 2
METADATA_TYPES: Final = frozenset({3, 11, 17})
MEMBER_TYPES: Final = frozenset({5, 10, 19})
TARGET_MEMBER_TYPES: Final = frozenset({7, 13, 21})
FAMILY_OF_RECORD: Final = {
    **dict.fromkeys(range(3, 9), "CONSUMER"),
    **dict.fromkeys(range(10, 16), "SHARE"),
    16: "CONSUMER",
    **dict.fromkeys(range(17, 24), "STREAMS"),
}
CURRENT_ASSIGNMENT_TYPES: Final = frozenset({8, 14, 22})
FIRST_EPOCH: Final = 1
"""A modern group object starts at epoch 1 (ModernGroup)."""


def in_log_order(batches: Iterable[DumpBatch]) -> list[DumpBatch]:
    """Batches by place and offset: a dump lists segments in the order of its arguments."""
    return sorted(batches, key=lambda batch: (batch.place, batch.base_offset))


class Interval(NamedTuple):
    """A row of an interval table: what it is about, and where it holds."""

    log_partition: int
    group_id: str
    group_type: str
    about: tuple[Any, ...]
    """Of a generation: itself. Of an assignment: member, topic id, topic, partition, assignment, task type. Of a
    membership: the member, and its fields at the end as sorted pairs."""
    from_generation: int
    to_generation: int
    from_log_offset: int
    to_log_offset: int | None


class Reconciled(NamedTuple):
    """A MEMBER_RECONCILED event."""

    log_partition: int
    log_offset: int
    group_id: str
    member_id: str
    generation: int


class Intervals(NamedTuple):
    """Rows of the three interval tables of groups."""

    generations: list[Interval]
    members: list[Interval]
    assignments: list[Interval]


@dataclass(frozen=True, slots=True)
class _Group:
    """A group between two of its records. Values are those of the dump; none is ever changed in place."""

    group_type: str
    generation: int
    is_simple: bool
    """A classic group without a protocol type and members."""
    is_known_by_commits: bool = False
    """No record of its own was read."""
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Member id -> its columns."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Member id -> member epoch."""
    current: Mapping[str, frozenset[tuple[Any, ...]]] = field(default_factory=dict)
    """Member id -> (topic id, topic, partition, assignment, task type) owned and to be given up."""
    target: Mapping[str, frozenset[tuple[Any, ...]]] = field(default_factory=dict)

    def intervals(self) -> dict[tuple[str, tuple[Any, ...]], Any]:
        """What holds now: (table, about) -> fields."""
        facts: dict[tuple[str, tuple[Any, ...]], Any] = {("generations", (self.generation,)): ()}
        for member_id, fields in self.members.items():
            epoch = {} if self.group_type == GroupType.CLASSIC else {"member_epoch": self.epochs.get(member_id, 0)}
            facts["members", (member_id,)] = tuple(sorted({**fields, **epoch}.items()))
        for of_member in (self.current, self.target):
            for member_id, parts in of_member.items():
                for part in parts:
                    facts["assignments", (member_id, *part)] = ()
        return facts


def reconciliations(batches: Iterable[DumpBatch]) -> Iterator[Reconciled]:
    """One for each value of record types 8, 14 and 22."""
    for batch in batches:
        for record in batch.records:
            if record.record_type in CURRENT_ASSIGNMENT_TYPES and record.value is not None:
                named = _named(record)
                epoch = record.value["data"]["memberEpoch"]
                yield Reconciled(batch.place.partition, record.offset, named["groupId"], named["memberId"], epoch)


def spans(batches: Iterable[DumpBatch]) -> Intervals:
    """The intervals of generations, memberships and assignments of a dump of __consumer_offsets.

    Operations are runs of records of one batch, one timestamp and one group; only the state after an operation counts.
    A group is there from its first value (of an offset commit too: a simple classic group) to the tombstone of its
    metadata record.
    """
    found = Intervals([], [], [])
    for place, of_place in groupby(in_log_order(batches), key=lambda batch: batch.place):
        groups: dict[str, _Group] = {}
        opened: dict[str, dict[tuple[str, tuple[Any, ...]], Interval]] = defaultdict(dict)
        for group_id, records in _operations(of_place):
            before = groups.get(group_id)
            after, was_removed = before, False
            for record in records:
                was_there = after is not None
                after = _group_after(after, record)
                was_removed = was_removed or (was_there and after is None)
            is_another = was_removed or before is None or after is None or before.group_type != after.group_type
            old, new = before.intervals() if before else {}, after.intervals() if after else {}
            if _never_was(before, after, was_removed):
                opened[group_id].clear()
                old = {}
            for key, fields in old.items():
                if is_another or key not in new:
                    assert before is not None
                    closed = opened[group_id].pop(key)
                    to_generation = max(closed.from_generation, before.generation)
                    _keep(found, key, fields, closed, to_generation, records[-1].offset)
            for key in new:
                if is_another or key not in old:
                    assert after is not None
                    start = (after.generation, after.generation, records[-1].offset, None)
                    opened[group_id][key] = Interval(place.partition, group_id, after.group_type, key[1], *start)
            groups.pop(group_id, None)
            if after is not None:
                groups[group_id] = after
        for group_id, group in groups.items():
            for key, fields in group.intervals().items():
                still = opened[group_id].pop(key)
                _keep(found, key, fields, still, max(still.from_generation, group.generation), None)
    return found


def _never_was(before: _Group | None, after: _Group | None, was_removed: bool) -> bool:
    """Did a group that was known by commits alone have earlier generations, which the log does not hold? Then there was
    no generation 0 of a simple group before them."""
    if before is None or after is None or not before.is_simple or after.is_simple:
        return False
    if after.group_type == GroupType.CLASSIC:
        return before.is_known_by_commits and after.generation > 1
    return not was_removed


def _keep(
    found: Intervals, key: tuple[str, tuple[Any, ...]], fields: Any, row: Interval, to_generation: int, to: int | None
) -> None:
    table, about = key
    about = (*about, fields) if table == "members" else about
    rows: list[Interval] = getattr(found, table)
    rows.append(row._replace(about=about, to_generation=to_generation, to_log_offset=to))


def _operations(batches: Iterable[DumpBatch]) -> Iterator[tuple[str, list[DumpRecord]]]:
    for batch in batches:
        data = [record for record in batch.records if record.control is None]
        for (group_id, _), records in groupby(data, key=lambda record: (_group_id(record), record.timestamp_ms)):
            yield group_id, list(records)


def _named(record: DumpRecord) -> Mapping[str, Any]:
    assert record.key is not None
    data: Mapping[str, Any] = record.key["data"]
    return data


def _group_id(record: DumpRecord) -> str:
    named = _named(record)
    group_id: str = named["groupId"] if "groupId" in named else named["group"]
    return group_id


def _group_after(group: _Group | None, record: DumpRecord) -> _Group | None:
    """A group after one more of its records; None: there is no group."""
    kind, value = record.record_type, None if record.value is None else record.value["data"]
    if kind in OFFSET_COMMIT_TYPES:
        return _Group(GroupType.CLASSIC, 0, True, True) if group is None and value is not None else group
    if kind == GROUP_METADATA:
        return None if value is None else _classic_group(value)
    family = FAMILY_OF_RECORD[kind]
    if group is not None and group.is_simple and family != "SHARE":
        # Kafka replaces a simple group before it looks at the record, so tombstones do that too
        group = _Group(family, FIRST_EPOCH, False)
    if group is None or group.group_type != family:
        if value is None:
            return group
        group = _Group(family, FIRST_EPOCH, False)
    if kind in METADATA_TYPES:
        return None if value is None else replace(group, generation=value["epoch"])
    member_id = _named(record).get("memberId")
    if kind in MEMBER_TYPES:
        return replace(group, members=_with(group.members, member_id, value and _modern_member(value)))
    if kind in CURRENT_ASSIGNMENT_TYPES:
        members = group.members
        if value is not None:
            members = _with(members, member_id, members.get(str(member_id), {}))
        return replace(
            group,
            members=members,
            epochs=_with(group.epochs, member_id, value and value["memberEpoch"]),
            current=_with(group.current, member_id, value and frozenset(_current(value))),
        )
    if kind in TARGET_MEMBER_TYPES:
        return replace(group, target=_with(group.target, member_id, value and frozenset(_target(value))))
    return group


def _with(mapping: Mapping[str, Any], name: Any, value: Any) -> dict[str, Any]:
    """The mapping with one entry replaced, or without it where the value is None (a tombstone)."""
    others = {key: kept for key, kept in mapping.items() if key != name}
    return others if value is None else {**others, name: value}


def _classic_group(value: Mapping[str, Any]) -> _Group:
    members, current = {}, {}
    is_consumer = value["protocolType"] == "consumer"
    for member in value["members"]:
        subscription = member["subscription"] if is_consumer else {"topics": None}
        members[member["memberId"]] = {
            "instance_id": member.get("groupInstanceId"),
            "client_id": member["clientId"],
            "client_host": member["clientHost"],
            "rack_id": subscription.get("rackId"),
            "subscribed_topics": _sorted(subscription["topics"]),
            "subscribed_regex": None,
            "server_assignor": None,
            "rebalance_timeout_ms": member["rebalanceTimeout"],
            "session_timeout_ms": member["sessionTimeout"],
        }
        if is_consumer and member["assignment"]:
            current[member["memberId"]] = frozenset(
                (None, topic["topic"], partition, "CURRENT", None)
                for topic in member["assignment"]["assignedPartitions"]
                for partition in topic["partitions"]
            )
    is_simple = not value["protocolType"] and not members
    return _Group(GroupType.CLASSIC, value["generation"], is_simple, members=members, current=current)


def _modern_member(value: Mapping[str, Any]) -> dict[str, Any]:
    classic = value.get("classicMemberMetadata")
    return {
        "instance_id": value.get("instanceId"),
        "client_id": value["clientId"],
        "client_host": value["clientHost"],
        "rack_id": value["rackId"],
        "subscribed_topics": _sorted(value.get("subscribedTopicNames")),
        "subscribed_regex": value.get("subscribedTopicRegex") or None,
        "server_assignor": value.get("serverAssignor"),
        "rebalance_timeout_ms": value.get("rebalanceTimeoutMs"),
        "session_timeout_ms": classic["sessionTimeoutMs"] if classic else None,
    }


def _sorted(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))


def _current(value: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    yield from _partitions(value.get("assignedPartitions", ()), "CURRENT")
    yield from _partitions(value.get("partitionsPendingRevocation", ()), "REVOKING")
    yield from _tasks(value, "Tasks", "CURRENT")
    yield from _tasks(value, "TasksPendingRevocation", "REVOKING")


def _target(value: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    yield from _partitions(value.get("topicPartitions", ()), "TARGET")
    yield from _tasks(value, "Tasks", "TARGET")


def _partitions(topics: Iterable[Mapping[str, Any]], assignment: str) -> Iterator[tuple[Any, ...]]:
    for topic in topics:
        for partition in topic["partitions"]:
            yield topic["topicId"], None, partition, assignment, None


def _tasks(value: Mapping[str, Any], suffix: str, assignment: str) -> Iterator[tuple[Any, ...]]:
    for task_type in ("active", "standby", "warmup"):
        for subtopology in value.get(f"{task_type}{suffix}", ()):
            for partition in subtopology["partitions"]:
                yield None, subtopology["subtopologyId"], partition, assignment, task_type.upper()
