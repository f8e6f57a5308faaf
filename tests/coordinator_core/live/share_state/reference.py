"""The rows of the columnar replay of share states, made the slow and plain way: a dictionary of offsets, compared
before and after.

Built on `combine` and `replay`, which agree with Kafka. Only for small offsets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.chunk import BatchColumns, RecordChunk, RecordColumns
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, TRANSITION_KINDS, StateBatchLists
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import UNSET_OFFSET, StateBatch, StateBatches, combine_state_batches
from coordinator_core.replay.share_state.replay import apply_share_update
from coordinator_core.replay.share_state.state import SharePartition, ShareSnapshot, ShareUpdate
from schemas.share_group_state import SHARE_SNAPSHOT_KEY, SHARE_SNAPSHOT_VALUE, SHARE_UPDATE_VALUE, STATE_BATCH, TOPIC

Row = tuple[Any, ...]
Rank = tuple[int, int]
TERMINAL = (2, 4)


@dataclass(frozen=True)
class Raw:
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    is_control: bool = False


@dataclass(frozen=True)
class Event:
    """A record as what it means. `value` None: a tombstone."""

    key: SharePartitionKey
    value: ShareSnapshot | ShareUpdate | None
    unknown_tags: tuple[tuple[int, bytes], ...] = ()

    def encoded(self) -> Raw:
        record_type = 1 if isinstance(self.value, ShareUpdate) else 0
        key = codec.make(
            SHARE_SNAPSHOT_KEY, group_id=self.key.group_id, topic_id=self.key.topic_id, partition=self.key.partition
        )
        raw_key = codec.encode_key(TOPIC, 0, key)[2:]
        if self.value is None:
            return Raw(b"\x00\x00" + raw_key, None)
        fields = {name: getattr(self.value, name) for name in self.value.__slots__}
        for name in ("create_timestamp", "write_timestamp"):
            if f"{name}_ms" in fields:
                fields[name] = fields.pop(f"{name}_ms")
        fields["state_batches"] = tuple(
            codec.make(STATE_BATCH, **{name: getattr(batch, name) for name in batch.__slots__})
            for batch in self.value.state_batches
        )
        message = SHARE_UPDATE_VALUE if record_type else SHARE_SNAPSHOT_VALUE
        value = codec.make(message, **fields, unknown_tags=self.unknown_tags)
        return Raw(record_type.to_bytes(2, "big") + raw_key, codec.encode_value(TOPIC, record_type, 0, value))


def canonical_batches(batches: Iterable[StateBatch], start_offset: int = UNSET_OFFSET) -> StateBatches:
    """The canonical form of a state by offset: sorted, disjoint, neighbours of equal rank joined.

    A batch whose last offset is before its first, or that begins below 0, covers no offset and is left out.
    """
    batches = (batch for batch in batches if 0 <= batch.first_offset <= batch.last_offset)
    joined: list[StateBatch] = []
    for batch in combine_state_batches((), batches, start_offset):
        before = joined[-1] if joined else None
        if before is not None and before.last_offset + 1 == batch.first_offset and before.rank == batch.rank:
            joined[-1] = StateBatch(before.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        else:
            joined.append(batch)
    return tuple(joined)


@dataclass
class _Key:
    is_seen: bool = False
    state: SharePartition | None = None
    passed: int = -1
    is_orphan_reported: bool = False
    open_state: dict[str, Any] | None = None
    open_batches: dict[StateBatch, Row] = field(default_factory=dict)


@dataclass
class Rows:
    """All rows of a log, open ones included, in an order that does not depend on how they were made."""

    states: set[Row] = field(default_factory=set)
    batches: set[Row] = field(default_factory=set)
    transitions: set[Row] = field(default_factory=set)
    findings: list[tuple[str, int]] = field(default_factory=list)


def expected_rows(events: Iterable[tuple[int, int, Event]]) -> Rows:
    """The rows of (offset, timestamp, event)s."""
    rows = Rows()
    keys: dict[SharePartitionKey, _Key] = {}
    for offset, at, event in events:
        _replay(rows, keys.setdefault(event.key, _Key()), offset, at, event)
    for name, key in keys.items():
        if key.open_state is not None:
            _put_state(rows, key.open_state, None, None)
        for batch, opened in key.open_batches.items():
            _put_batch(rows, name, batch, opened, None, None)
    return rows


def _replay(rows: Rows, key: _Key, offset: int, at: int, event: Event) -> None:
    before, value = key.state, event.value
    own: tuple[StateBatch, ...] = ()
    if value is not None:
        own = canonical_batches(value.state_batches)
        if any(not 0 <= b.first_offset <= b.last_offset for b in value.state_batches):
            rows.findings.append(("INVALID_STATE_BATCH", offset))
        value = replace(value, state_batches=own)
    after: SharePartition | None = None
    if isinstance(value, ShareSnapshot):
        after = SharePartition.of(value)
        kind = "SNAPSHOT" if value.create_timestamp_ms == value.write_timestamp_ms else "COLD_SNAPSHOT"
        if before is not None and not own:
            is_initial = (
                value.create_timestamp_ms == value.write_timestamp_ms
                and value.leader_epoch == 0
                and value.delivery_complete_count in (-1, 0)
            )
            if is_initial or (before.has_snapshot and value.state_epoch != before.state_epoch):
                kind = "RESET"
        if before is not None and before.has_snapshot and value.snapshot_epoch < before.snapshot_epoch:
            rows.findings.append(("SNAPSHOT_EPOCH_WENT_BACK", offset))
    elif isinstance(value, ShareUpdate):
        after = apply_share_update(before, value)
        kind = "UPDATE"
        if before is not None:
            is_orphan = before.has_snapshot and value.snapshot_epoch != before.snapshot_epoch
            if is_orphan and not key.is_orphan_reported:
                key.is_orphan_reported = True
                rows.findings.append(("ORPHAN_UPDATE", offset))
            if value.start_offset != -1 and value.start_offset < before.start_offset:
                rows.findings.append(("STALE_WRITER", offset))
    else:
        kind = "TOMBSTONE"
    if after is not None:
        after = replace(after, state_batches=canonical_batches(after.state_batches, after.start_offset))
    _transitions(rows, key, offset, at, event, after, own, kind)
    _batches(rows, key, offset, at, event.key, after)
    _states(rows, key, offset, at, event.key, after, own, kind)
    if after is None:
        key.passed, key.is_orphan_reported = -1, False
    elif before is None or kind == "RESET":
        key.passed = after.start_offset
    else:
        key.passed = max(key.passed, after.start_offset)
    key.state, key.is_seen = after, True


def _by_offset(state: SharePartition | None) -> dict[int, Rank]:
    if state is None:
        return {}
    return {o: b.rank for b in state.state_batches for o in range(b.first_offset, b.last_offset + 1)}


def _transitions(
    rows: Rows,
    key: _Key,
    offset: int,
    at: int,
    event: Event,
    after: SharePartition | None,
    own: tuple[StateBatch, ...],
    kind: str,
) -> None:
    old, new = _by_offset(key.state), _by_offset(after)
    changes: dict[int, tuple[str, Rank | None, Rank | None]] = {}
    if after is None or kind == "RESET":
        changes = {o: ("RESET", rank, None) for o, rank in old.items()}
    else:
        own_terminal = {
            o for b in own if b.delivery_state in TERMINAL for o in range(b.first_offset, b.last_offset + 1)
        }
        own_available = {
            o: b.rank for b in own if b.delivery_state == 0 for o in range(b.first_offset, b.last_offset + 1)
        }
        if key.state is not None and key.passed >= 0:
            for o in range(key.passed, after.start_offset):
                rank = old.get(o)
                if (rank is None or rank[1] not in TERMINAL) and o not in own_terminal:
                    changes[o] = ("PASSED", rank, None)
        for o in old.keys() | new.keys():
            rank, new_rank = old.get(o), new.get(o)
            if kind == "UPDATE" and rank == new_rank == own_available.get(o, 0):
                changes[o] = ("RETURNED", rank, rank)
            if rank == new_rank or (after.start_offset != -1 and o < after.start_offset):
                continue
            changes[o] = (_kind(rank, new_rank, is_first=not key.is_seen and kind != "UPDATE"), rank, new_rank)
            went_back = new_rank is None or (rank is not None and new_rank < rank)
            if went_back and ("STATE_WENT_BACK", offset) not in rows.findings:
                rows.findings.append(("STATE_WENT_BACK", offset))
    leader_changed = key.state is not None and after is not None and key.state.leader_epoch != after.leader_epoch
    ranges: list[list[Any]] = []
    for o in sorted(changes):
        if ranges and ranges[-1][1] == o - 1 and ranges[-1][2] == changes[o]:
            ranges[-1][1] = o
        else:
            ranges.append([o, o, changes[o]])
    for first, last, (what, rank, new_rank) in ranges:
        rows.transitions.add((event.key, offset, at, first, last, rank, new_rank, what, leader_changed))


def _kind(rank: Rank | None, new_rank: Rank | None, *, is_first: bool) -> str:
    if new_rank is None:
        return "RESET"
    if is_first:
        return "FIRST_SEEN"
    if new_rank[1] in (3, 4):
        return "ARCHIVING" if new_rank[1] == 3 else "ARCHIVED"
    if new_rank[1] == 2:
        return "ACKNOWLEDGED"
    is_available = rank is not None and rank[1] == 0 and new_rank[1] == 0
    return "RETRIED" if rank is not None and is_available and new_rank > rank else "REDELIVERABLE"


def _batches(
    rows: Rows, key: _Key, offset: int, at: int, name: SharePartitionKey, after: SharePartition | None
) -> None:
    merged = () if after is None else after.state_batches
    for batch in [b for b in key.open_batches if b not in merged]:
        _put_batch(rows, name, batch, key.open_batches.pop(batch), offset, at)
    for batch in merged:
        if batch not in key.open_batches:
            assert after is not None
            key.open_batches[batch] = (offset, at, after.has_snapshot)


def _put_batch(
    rows: Rows, name: SharePartitionKey, batch: StateBatch, opened: Row, to: int | None, to_at: int | None
) -> None:
    from_offset, at, is_complete = opened
    place = (batch.first_offset, batch.last_offset, batch.rank)
    rows.batches.add((name, *place, from_offset, at, to, to_at, is_complete))


def _states(
    rows: Rows,
    key: _Key,
    offset: int,
    at: int,
    name: SharePartitionKey,
    after: SharePartition | None,
    own: tuple[StateBatch, ...],
    kind: str,
) -> None:
    if key.open_state is not None:
        _put_state(rows, key.open_state, offset, at)
    row: dict[str, Any] = {"name": name, "offset": offset, "at": at, "kind": kind, "state": None}
    ranks = list(_by_offset(after).values())
    row["counts"] = (
        0 if after is None else len(after.state_batches),
        *(sum(1 for rank in ranks if rank[1] == state) for state in (0, 2, 3, 4)),
    )
    row["is_complete"] = after is None or after.has_snapshot
    row["changed"] = tuple((b.first_offset, b.last_offset, b.rank) for b in own)
    if after is not None:
        effective = after.start_offset
        offsets = _by_offset(after)
        while effective >= 0 and effective in offsets and offsets[effective][1] in TERMINAL:
            effective += 1
        row["state"] = (
            after.snapshot_epoch,
            after.state_epoch,
            after.leader_epoch,
            after.start_offset,
            min(effective, 2**63 - 1),
            None if after.delivery_complete_count == -1 else after.delivery_complete_count,
            after.create_timestamp_ms or None,
            after.write_timestamp_ms or None,
        )
    key.open_state = row


def _put_state(rows: Rows, row: Mapping[str, Any], to: int | None, to_at: int | None) -> None:
    rows.states.add((*row.values(), to, to_at))


# --- the same of the columnar replay ---


def chunk_of(records: Iterable[tuple[int, int, Raw]]) -> RecordChunk:
    """A chunk with one batch a record."""
    data = bytearray()
    columns: list[tuple[int, ...]] = []
    controls: list[bool] = []
    for index, (offset, at, raw) in enumerate(records):
        place = [index, offset, at]
        for part in (raw.key, raw.value):
            place += [len(data), -1 if part is None else len(part)]
            data += part or b""
        columns.append(tuple(place))
        controls.append(raw.is_control)
    table = np.array(columns, np.int64).reshape(len(columns), 7).T
    zeros = np.zeros(len(columns), np.int64)
    small = zeros.astype(np.int8)
    return RecordChunk(
        data=np.frombuffer(bytes(data), np.uint8),
        batches=BatchColumns(
            base_offset=table[1].copy(),
            last_offset=table[1].copy(),
            leader_epoch=zeros.astype(np.int32),
            magic=small + np.int8(2),
            codec=small,
            is_log_append_time=small.astype(np.bool_),
            is_transactional=small.astype(np.bool_),
            is_control=np.array(controls, np.bool_),
            control_type=small,
            base_timestamp_ms=table[2].copy(),
            max_timestamp_ms=table[2].copy(),
            has_delete_horizon=small.astype(np.bool_),
            producer_id=zeros - 1,
            producer_epoch=zeros.astype(np.int16),
            base_sequence=zeros.astype(np.int32),
            record_count=zeros.astype(np.int32) + np.int32(1),
            position=zeros,
            size=zeros,
        ),
        records=RecordColumns(
            batch_index=table[0].astype(np.int32),
            offset=table[1].copy(),
            timestamp_ms=table[2].copy(),
            key_position=table[3].copy(),
            key_length=table[4].astype(np.int32),
            value_position=table[5].copy(),
            value_length=table[6].astype(np.int32),
        ),
        findings=(),
    )


def columnar_outputs(chunks: Iterable[RecordChunk], *, is_resumed: bool = False) -> list[ColumnarOutput]:
    """Everything a columnar replay gives for the chunks; `is_resumed`: a new columnar replay for each, from the state
    of the one before."""
    columnar = ColumnarShareReplay()
    outputs = []
    for chunk in chunks:
        if is_resumed:
            columnar = ColumnarShareReplay(columnar.export_state())
        outputs.append(columnar.feed(chunk))
    outputs.append(columnar.finish())
    return outputs


def columnar_rows(outputs: Iterable[ColumnarOutput]) -> Rows:
    """The rows of a columnar replay in the form of `expected_rows`. Fails where a row comes twice."""
    rows = Rows()
    count = 0
    for output in outputs:
        states, batches, transitions = output.partition_states, output.state_batches, output.transitions
        count += len(states.key) + len(batches.key) + len(transitions.key)
        for i in range(len(states.key)):
            rows.states.add(_state_row(output, i))
        for i in range(len(batches.key)):
            has_end = bool(batches.has_end[i])
            rows.batches.add(
                (
                    output.keys[int(batches.key[i])],
                    int(batches.first_offset[i]),
                    int(batches.last_offset[i]),
                    (int(batches.delivery_count[i]), int(batches.delivery_state[i])),
                    int(batches.from_log_offset[i]),
                    int(batches.valid_from_ms[i]),
                    int(batches.to_log_offset[i]) if has_end else None,
                    int(batches.valid_to_ms[i]) if has_end else None,
                    bool(batches.is_complete[i]),
                )
            )
        for i in range(len(transitions.key)):
            rank = (int(transitions.from_delivery_count[i]), int(transitions.from_state[i]))
            new_rank = (int(transitions.to_delivery_count[i]), int(transitions.to_state[i]))
            rows.transitions.add(
                (
                    output.keys[int(transitions.key[i])],
                    int(transitions.log_offset[i]),
                    int(transitions.at_ms[i]),
                    int(transitions.first_offset[i]),
                    int(transitions.last_offset[i]),
                    rank if transitions.has_from[i] else None,
                    new_rank if transitions.has_to[i] else None,
                    TRANSITION_KINDS[transitions.kind[i]],
                    bool(transitions.leader_changed[i]),
                )
            )
        rows.findings += [(f.code, f.offset or 0) for f in output.findings if f.stage == "REPLAY"]
    assert count == len(rows.states) + len(rows.batches) + len(rows.transitions)
    return rows


def _state_row(output: ColumnarOutput, i: int) -> Row:
    states = output.partition_states
    state = None
    if states.has_state[i]:
        state = (
            int(states.snapshot_epoch[i]),
            int(states.state_epoch[i]),
            int(states.leader_epoch[i]),
            int(states.start_offset[i]),
            int(states.effective_start_offset[i]),
            int(states.delivery_complete_count[i]) if states.has_delivery_complete_count[i] else None,
            int(states.create_time_ms[i]) if states.has_create_time[i] else None,
            int(states.write_time_ms[i]) if states.has_write_time[i] else None,
        )
    counts = (
        states.batch_count,
        states.available_count,
        states.acknowledged_count,
        states.archiving_count,
        states.archived_count,
    )
    has_end = bool(states.has_end[i])
    return (
        output.keys[int(states.key[i])],
        int(states.log_offset[i]),
        int(states.valid_from_ms[i]),
        RECORD_KINDS[states.record_kind[i]],
        state,
        tuple(int(column[i]) for column in counts),
        bool(states.is_complete[i]),
        _changed(states.changed_batches, i),
        int(states.to_log_offset[i]) if has_end else None,
        int(states.valid_to_ms[i]) if has_end else None,
    )


def _changed(lists: StateBatchLists, i: int) -> tuple[Row, ...]:
    return tuple(
        (
            int(lists.first_offset[j]),
            int(lists.last_offset[j]),
            (int(lists.delivery_count[j]), int(lists.delivery_state[j])),
        )
        for j in range(lists.offsets[i], lists.offsets[i + 1])
    )
