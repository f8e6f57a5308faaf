"""Rows which the tables should hold, worked out from a dump's text by short rules over plain dicts.

Written once more and as simply as can be: no bytes, no compiled loops, one offset at a time. So the tables and the
dump tool are compared record by record, and the replay's answers with those of rules that fit on a page.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from coordinator_core.replay.lookup import SharePartitionKey
from schemas.group_types import GroupType
from tests.conformance.dump import DumpBatch, DumpRecord

NO_PRODUCER_ID: Final = -1
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
SHARE_SNAPSHOT: Final = 0
DELIVERY_STATES: Final = {0: "AVAILABLE", 2: "ACKNOWLEDGED", 3: "ARCHIVING", 4: "ARCHIVED"}
AVAILABLE: Final = 0
UNSET_OFFSET: Final = -1
TERMINAL_STATES: Final = frozenset({2, 4})


def in_log_order(batches: Iterable[DumpBatch]) -> list[DumpBatch]:
    """Batches by place and offset: a dump lists segments in the order of its arguments."""
    return sorted(batches, key=lambda batch: (batch.place, batch.base_offset))


# --- offset commits ---


class CommitKey(NamedTuple):
    """What an offset is committed for, inside one log partition."""

    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class _Offsets:
    """Offsets of one log partition: in force, and written in transactions that are still open."""

    in_force: dict[CommitKey, tuple[int, int]] = field(default_factory=dict)
    """Record offset and committed offset."""
    pending: dict[int, dict[CommitKey, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))


def offset_commits(batches: Iterable[DumpBatch]) -> Iterator[dict[str, Any]]:
    """The rows of silver.offset_commits of a dump of __consumer_offsets (OffsetMetadataManager's rules)."""
    for place, of_place in groupby(in_log_order(batches), key=lambda batch: batch.place):
        offsets = _Offsets()
        rows: list[dict[str, Any]] = []
        for batch in of_place:
            for record in batch.records:
                if record.control is not None:
                    _end_transaction(offsets, batch, record)
                elif record.record_type in OFFSET_COMMIT_TYPES:
                    rows.append(_commit(offsets, batch, record, place.partition))
        yield from rows


def _commit(offsets: _Offsets, batch: DumpBatch, record: DumpRecord, log_partition: int) -> dict[str, Any]:
    assert record.key is not None
    named = record.key["data"]
    key = CommitKey(named["group"], named["topic"], named["partition"])
    value = None if record.value is None else record.value["data"]
    row: dict[str, Any] = {
        "log_partition": log_partition,
        "log_offset": record.offset,
        **key._asdict(),
        "topic_id": None if value is None else value.get("topicId"),
        "committed_offset": None if value is None else value["offset"],
        "leader_epoch": _unless(-1, None if value is None else value.get("leaderEpoch")),
        "metadata": None if value is None else value["metadata"],
        "commit_time": None if value is None else value["commitTimestamp"],
        "expire_time": _unless(-1, None if value is None else value.get("expireTimestamp")),
        "recorded_at": record.timestamp_ms,
        "producer_id": batch.producer_id,
        "is_transactional": batch.is_transactional,
        "outcome": "PENDING",
        "applied_log_offset": None,
        "applied_at": None,
        "change": None,
        "previous_offset": None,
        "delta": None,
    }
    if value is None:
        for open_rows in offsets.pending.values():
            if key in open_rows:
                open_rows.pop(key)["outcome"] = "SUPERSEDED"
        _apply(offsets, key, row, record)
    elif batch.producer_id == NO_PRODUCER_ID:
        _apply(offsets, key, row, record)
    else:
        open_rows = offsets.pending[batch.producer_id]
        if key in open_rows:
            open_rows[key]["outcome"] = "SUPERSEDED"
        open_rows[key] = row
    return row


def _end_transaction(offsets: _Offsets, batch: DumpBatch, marker: DumpRecord) -> None:
    """A marker decides every pending offset of its producer (recordings, fact 3: by the record's place)."""
    for key, row in offsets.pending.pop(batch.producer_id, {}).items():
        if marker.control == "ABORT":
            row["outcome"] = "ABORTED"
        elif key in offsets.in_force and offsets.in_force[key][0] > row["log_offset"]:
            row["outcome"] = "SUPERSEDED"
        else:
            _apply(offsets, key, row, marker)


def _apply(offsets: _Offsets, key: CommitKey, row: dict[str, Any], by: DumpRecord) -> None:
    previous = offsets.in_force.pop(key, None)
    committed = row["committed_offset"]
    row["outcome"], row["applied_log_offset"], row["applied_at"] = "APPLIED", by.offset, by.timestamp_ms
    row["previous_offset"] = None if previous is None else previous[1]
    if committed is None:
        row["change"] = "DELETE"
        return
    offsets.in_force[key] = (row["log_offset"], committed)
    if previous is None:
        row["change"] = "FIRST"
        return
    row["delta"] = committed - previous[1]
    row["change"] = "REPEAT" if row["delta"] == 0 else "ADVANCE" if row["delta"] > 0 else "REWIND"


def _unless(none: int, value: int | None) -> int | None:
    return None if value == none else value


# --- groups ---


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


# --- share state ---


@dataclass(slots=True)
class _ShareState:
    """Merged state of a share partition, one offset at a time."""

    snapshot_epoch: int | None
    state_epoch: int | None
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    deliveries: dict[int, tuple[int, int]]
    """Offset -> (delivery state, delivery count)."""
    is_complete: bool


def share_states(batches: Iterable[DumpBatch]) -> Iterator[dict[str, Any]]:
    """The rows of silver.share_partition_states of a dump of __share_group_state, with `deliveries` after each.

    The rule is fact 10 of the recordings: a snapshot replaces; an update overwrites per offset; offsets below the
    start offset go.
    """
    states: dict[SharePartitionKey, _ShareState] = {}
    for batch in in_log_order(batches):
        for record in batch.records:
            assert record.key is not None
            named = record.key["data"]
            key = SharePartitionKey(named["groupId"], named["topicId"], named["partition"])
            value = None if record.value is None else record.value["data"]
            kind = _record_kind(record, value, states.get(key))
            own = {} if value is None else _deliveries(value["stateBatches"])
            if value is None:
                if record.record_type == SHARE_SNAPSHOT:
                    states.pop(key, None)
            else:
                states[key] = _merged(states.get(key), record, value, own)
            yield _share_row(batch.place.partition, record, key, kind, states.get(key), own)


def _record_kind(record: DumpRecord, value: Mapping[str, Any] | None, before: _ShareState | None) -> str:
    if value is None:
        return "TOMBSTONE"
    if record.record_type != SHARE_SNAPSHOT:
        return "UPDATE"
    if value["createTimestamp"] != value["writeTimestamp"]:
        return "COLD_SNAPSHOT"
    # A write never changes the state epoch, and always counts: what does neither was initialised, maybe once more.
    is_initialize = before is not None and (
        value["stateEpoch"] != before.state_epoch or "deliveryCompleteCount" not in value
    )
    return "RESET" if is_initialize and not value["stateBatches"] else "SNAPSHOT"


def _deliveries(state_batches: Iterable[Mapping[str, int]]) -> dict[int, tuple[int, int]]:
    return {
        offset: (batch["deliveryState"], batch["deliveryCount"])
        for batch in state_batches
        for offset in range(batch["firstOffset"], batch["lastOffset"] + 1)
    }


def _merged(
    before: _ShareState | None, record: DumpRecord, value: Mapping[str, Any], own: dict[int, tuple[int, int]]
) -> _ShareState:
    start, complete_count = value["startOffset"], value.get("deliveryCompleteCount", -1)
    if record.record_type == SHARE_SNAPSHOT:
        return _ShareState(
            value["snapshotEpoch"], value["stateEpoch"], value["leaderEpoch"], start, complete_count, own, True
        )
    if before is not None and start == -1:
        start = before.start_offset
    deliveries = {**(before.deliveries if before is not None else {}), **own}
    return _ShareState(
        snapshot_epoch=value["snapshotEpoch"],
        state_epoch=0 if before is None else before.state_epoch,  # ShareGroupOffset.fromRecord(ShareUpdateValue)
        leader_epoch=value["leaderEpoch"],
        start_offset=start,
        delivery_complete_count=complete_count,
        deliveries={offset: delivery for offset, delivery in deliveries.items() if offset >= start},
        is_complete=before is not None and before.is_complete,
    )


def _share_row(
    log_partition: int,
    record: DumpRecord,
    key: SharePartitionKey,
    kind: str,
    state: _ShareState | None,
    own: dict[int, tuple[int, int]],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        **key._asdict(),
        "log_partition": log_partition,
        "log_offset": record.offset,
        "valid_from": record.timestamp_ms,
        "record_kind": kind,
        "changed": own,
        "deliveries": {} if state is None else state.deliveries,
    }
    if kind == "TOMBSTONE" or state is None:
        return row
    counts = [of_offset for of_offset, _ in state.deliveries.values()]
    effective_start = state.start_offset
    while state.deliveries.get(effective_start, (0, 0))[0] in TERMINAL_STATES:
        effective_start += 1
    return row | {
        "snapshot_epoch": state.snapshot_epoch,
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "effective_start_offset": effective_start,
        "delivery_complete_count": _unless(-1, state.delivery_complete_count),
        "available_count": counts.count(0),
        "acknowledged_count": counts.count(2),
        "archiving_count": counts.count(3),
        "archived_count": counts.count(4),
        "is_complete": state.is_complete,
    }


def share_transitions(batches: Iterable[DumpBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of silver.share_batch_transitions, one an offset: key, log offset, offset, from, to (delivery state and
    count, None where unknown) and kind."""
    rows: dict[SharePartitionKey, dict[str, Any]] = {}
    start_offsets: dict[SharePartitionKey, int] = {}
    for row in share_states(batches):
        key = SharePartitionKey(row["group_id"], row["topic_id"], row["partition"])
        before = rows.get(key, {"deliveries": {}})
        was, now = before["deliveries"], row["deliveries"]
        is_reset = row["record_kind"] in {"RESET", "TOMBSTONE"}
        # an update tells what changed, also where the log begins with it
        is_first = key not in rows and row["record_kind"] != "UPDATE"
        for offset in sorted({*was, *now}):
            kind = _transition_kind(was.get(offset), now.get(offset), is_reset, is_first)
            if row["record_kind"] == "UPDATE" and was.get(offset) == now.get(offset) == row["changed"].get(offset):
                kind = "RETURNED" if was[offset][0] == AVAILABLE else kind
            if kind is not None:
                yield (*key, row["log_offset"], offset, was.get(offset), now.get(offset), kind)
        start_offset = row.get("start_offset", UNSET_OFFSET)
        passed_from = start_offsets.get(key, UNSET_OFFSET)
        if not is_reset and passed_from != UNSET_OFFSET:
            for offset in range(passed_from, start_offset):
                if offset not in was:
                    yield (*key, row["log_offset"], offset, None, None, "PASSED")
        start_offsets[key] = start_offset if is_reset else max(start_offset, passed_from)
        rows[key] = row


def _transition_kind(
    was: tuple[int, int] | None, now: tuple[int, int] | None, is_reset: bool, is_first: bool
) -> str | None:
    if was == now:
        return None
    if now is None:
        # a terminal offset which the start offset passes is no news
        return "RESET" if is_reset else "PASSED" if was is not None and was[0] not in TERMINAL_STATES else None
    if is_first:
        return "FIRST_SEEN"
    if now[0] == AVAILABLE:
        return "REDELIVERABLE" if was is None else "RETRIED"
    return DELIVERY_STATES[now[0]]
