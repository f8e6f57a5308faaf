"""Rows which the tables should hold, worked out from a dump's text by short rules over plain dicts.

Written once more and as simply as can be: no bytes, no compiled loops, one offset at a time. So the tables and the
dump tool are compared record by record, and the replay's answers with those of rules that fit on a page.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from coordinator_core.lookup import SharePartitionKey
from tests.conformance.dump import DumpBatch, DumpRecord

NO_PRODUCER_ID: Final = -1
OFFSET_COMMIT_TYPES: Final = frozenset({0, 1})
GROUP_METADATA: Final = 2
GROUP_TYPE_OF_RECORD: Final = {2: "CLASSIC", 3: "CONSUMER", 11: "SHARE", 17: "STREAMS"}
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


class Generation(NamedTuple):
    """A row of silver.group_generations, as far as the records alone say it."""

    log_partition: int
    group_id: str
    group_type: str
    generation: int
    from_log_offset: int
    to_log_offset: int | None


class _Group(NamedTuple):
    """A group between two of its records."""

    group_type: str
    generation: int
    is_simple: bool
    """A classic group without a protocol type and members."""


class Reconciled(NamedTuple):
    """A MEMBER_RECONCILED event."""

    log_partition: int
    log_offset: int
    group_id: str
    member_id: str
    generation: int


def reconciliations(batches: Iterable[DumpBatch]) -> Iterator[Reconciled]:
    """One for each value of record types 8, 14 and 22."""
    for batch in batches:
        for record in batch.records:
            if record.record_type in CURRENT_ASSIGNMENT_TYPES and record.value is not None:
                assert record.key is not None
                named = record.key["data"]
                epoch = record.value["data"]["memberEpoch"]
                yield Reconciled(
                    batch.place.partition, record.offset, named["groupId"], named["memberId"], epoch
                )


def generations(batches: Iterable[DumpBatch]) -> Iterator[Generation]:
    """The stretches of group epochs and generations of a dump of __consumer_offsets.

    Operations are runs of records of one batch, one timestamp and one group; only what stands after an operation
    counts. A group is there from its first value (of an offset commit too: a simple classic group) to the tombstone
    of its metadata record.
    """
    for place, of_place in groupby(in_log_order(batches), key=lambda batch: batch.place):
        state: dict[str, _Group] = {}
        opened: dict[str, Generation] = {}
        for group_id, records in _operations(of_place):
            before = state.get(group_id)
            removed = False
            for record in records:
                after = _group_after(state.get(group_id), record)
                removed = removed or (after is None and group_id in state)
                if after is None:
                    state.pop(group_id, None)
                else:
                    state[group_id] = after
            now, last_offset = state.get(group_id), records[-1].offset
            is_anew = removed and before is not None and now is not None
            if (now and now[:2]) == (before and before[:2]) and not is_anew:
                continue
            if group_id in opened:
                yield opened.pop(group_id)._replace(to_log_offset=last_offset)
            if now is not None:
                opened[group_id] = Generation(
                    place.partition, group_id, now.group_type, now.generation, last_offset, None
                )
        yield from opened.values()


def _operations(batches: Iterable[DumpBatch]) -> Iterator[tuple[str, list[DumpRecord]]]:
    for batch in batches:
        data = [record for record in batch.records if record.control is None]
        for (group_id, _), records in groupby(data, key=lambda record: (_group_id(record), record.timestamp_ms)):
            yield group_id, list(records)


def _group_id(record: DumpRecord) -> str:
    assert record.key is not None
    named = record.key["data"]
    group_id: str = named["groupId"] if "groupId" in named else named["group"]
    return group_id


def _group_after(group: _Group | None, record: DumpRecord) -> _Group | None:
    """What a group is after one more of its records; None: there is no group."""
    kind, value = record.record_type, None if record.value is None else record.value["data"]
    if kind in OFFSET_COMMIT_TYPES:
        return _Group("CLASSIC", 0, True) if group is None and value is not None else group
    if kind == GROUP_METADATA:
        if value is None:
            return None
        return _Group("CLASSIC", value["generation"], not value["protocolType"] and not value["members"])
    family = FAMILY_OF_RECORD[kind]
    if group is not None and group.is_simple and family != "SHARE":
        # Kafka replaces a simple group before it looks at the record, so tombstones do that too
        group = _Group(family, FIRST_EPOCH, False)
    if kind in GROUP_TYPE_OF_RECORD:
        return None if value is None else _Group(family, value["epoch"], False)
    if value is None or (group is not None and group.group_type == family):
        return group
    return _Group(family, FIRST_EPOCH, False)


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
    is_initialize = not value["stateBatches"] and before is not None and value["stateEpoch"] != before.state_epoch
    return "RESET" if is_initialize else "SNAPSHOT"


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
        state_epoch=None if before is None else before.state_epoch,
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
        "archived_count": counts.count(4),
        "is_complete": state.is_complete,
    }
