"""The columnar replay of share states: from records of one `__share_group_state` partition to rows of three silver
tables.

The compiled loops of `kernels` do the work. This module owns and enlarges their arrays, passes records in another
layout than Kafka 4.3's to the codec, and extracts the rows. A row is returned once it has ended; open rows are kept,
and `finish` returns them. So the rows depend neither on how the log is cut into chunks nor on how it is cut into runs:
`export_state` is all that a later columnar replay needs to continue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from coordinator_core.bytes import codec
from coordinator_core.bytes.interning import Interner
from coordinator_core.bytes.log.chunk import I32, I64, U8, Finding, RecordChunk
from coordinator_core.bytes.log.kernels import read_only
from coordinator_core.errors import ColumnarReplayError, DecodeError, NullNotAllowed, UnknownRecordType
from coordinator_core.replay.columnar import share_state_kernels as kernels
from coordinator_core.replay.columnar import share_state_layouts as layouts
from coordinator_core.replay.columnar.share_state_layouts import Rows
from coordinator_core.replay.columnar.share_state_rows import (
    PartitionStateRows,
    StateBatchRows,
    TransitionRows,
    batch_rows,
    ranges,
    state_rows,
    transition_rows,
)
from coordinator_core.replay.faults import Faults
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.record_findings import RecordFindings
from schemas.share_group_state import STATE_BATCH, TOPIC, ShareStateRecordType

DELIVERY_STATES: Final = ("AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED")
"""By Kafka's own code (RecordState). Bytes may have other codes: see `delivery_state_name`."""

_KNOWN_TYPES: Final = frozenset(int(record_type).to_bytes(2, "big") for record_type in ShareStateRecordType)

_FINDINGS: Final = (
    ("STALE_WRITER", "an update sets the start offset back from {before} to {after}"),
    ("SNAPSHOT_EPOCH_WENT_BACK", "a snapshot of epoch {after} follows one of epoch {before}"),
    ("ORPHAN_UPDATE", "an update of snapshot epoch {after} follows a snapshot of epoch {before}"),
    ("STATE_WENT_BACK", "a snapshot lowers or loses the state of offsets, and is no reset"),
    ("INVALID_STATE_BATCH", "a state batch is no range of offsets, and is left out"),
    ("UPDATE_TOMBSTONE", "a tombstone of a ShareUpdate, which Kafka never writes, is left out"),
)

_POOL_ROWS_START: Final = 1024
_ROWS_START: Final = 4096


def delivery_state_name(code: int) -> str:
    """Kafka's name of a delivery state; UNKNOWN_n for a code that Kafka does not have."""
    return DELIVERY_STATES[code] if 0 <= code < len(DELIVERY_STATES) else f"UNKNOWN_{code}"


@dataclass(frozen=True, slots=True)
class KeyDictionary:
    """The share partitions by their number in the column `key` of rows. It only grows: a later dictionary begins with
    the same entries.
    """

    group_ids: Sequence[str]
    topic_ids: Sequence[str]
    """22 characters each."""
    partitions: I32

    def __len__(self) -> int:
        return len(self.partitions)

    def __getitem__(self, key: int) -> SharePartitionKey:
        return SharePartitionKey(self.group_ids[key], self.topic_ids[key], int(self.partitions[key]))


@dataclass(frozen=True, slots=True)
class ColumnarCounts:
    """Record counts of a feed: every record of its chunk is in exactly one of them."""

    decoded: int = 0
    tombstones: int = 0
    control: int = 0
    unknown_type: int = 0
    quarantined: int = 0
    unknown_field: int = 0
    """Decoded records with tagged fields that no declaration has."""


@dataclass(frozen=True, slots=True)
class ColumnarOutput:
    """The results of one feed. Rows refer to their share partition by its number in `keys`."""

    keys: KeyDictionary
    partition_states: PartitionStateRows
    state_batches: StateBatchRows
    transitions: TransitionRows
    counts: ColumnarCounts
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ColumnarState:
    """The state of a columnar replay between two chunks, as arrays, from which a later run continues."""

    group_ids: Sequence[str]
    topic_ids: Sequence[str]
    partitions: I32
    keys: Rows
    batches: Rows
    """BATCH rows of all keys, concatenated in key order."""
    open_states: Rows
    """The open rows of share_partition_states: STATE rows."""
    open_changed: Rows
    """The changed batches of the open rows: RANGE rows."""


@dataclass(slots=True)
class _Keys:
    """Share partitions, numbered in order of appearance."""

    numbers: dict[SharePartitionKey, int] = field(default_factory=dict)
    group_ids: list[str] = field(default_factory=list)
    topic_ids: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)

    def number(self, key: SharePartitionKey) -> int:
        number = self.numbers.setdefault(key, len(self.numbers))
        if number == len(self.group_ids):
            self.group_ids.append(key.group_id)
            self.topic_ids.append(key.topic_id)
            self.partitions.append(key.partition)
        return number


class ColumnarShareReplay:
    """Replays one `__share_group_state` partition. Feed the chunks in log order, each record once."""

    def __init__(self, state: ColumnarState | None = None, *, after: "ColumnarShareReplay | None" = None) -> None:
        """Begin at the start of a log, or where another columnar replay's `export_state` was taken.

        `after`: a finished columnar replay whose buffers are reused. The operating system zeroes memory at its first
        use, which costs as much as the replay of a small log.
        """
        self.faults = Faults()
        """The share partitions that could not be replayed."""
        self._interner = Interner()
        self._keys = _Keys()
        self._columnar = kernels.ColumnarArrays(
            key_ids=np.zeros(0, np.int64),
            keys=np.zeros(0, layouts.KEY),
            pool=np.zeros(_POOL_ROWS_START, layouts.BATCH),
            states=np.zeros(_ROWS_START, layouts.STATE),
            changed=np.zeros(_ROWS_START, layouts.RANGE),
            batches=np.zeros(_ROWS_START, layouts.ENDED_BATCH),
            transitions=np.zeros(_ROWS_START, layouts.TRANSITION),
            findings=np.zeros(_ROWS_START, layouts.FINDING),
            counts=np.zeros(1, layouts.COUNTS),
            own=np.zeros(_POOL_ROWS_START, layouts.RANGE),
            merged=np.zeros(_POOL_ROWS_START, layouts.BATCH),
            fields=np.zeros(1, layouts.KEY),
        )
        self._quarantined = RecordFindings(is_share=True)
        self._unknown_field_count = 0
        self._is_finished = False
        if after is not None:
            self._take_over(after)
        if state is not None:
            self._import(state)

    def feed(self, chunk: RecordChunk) -> ColumnarOutput:
        """Replay the records of a chunk. Returns the rows that ended, and the transitions.

        The chunk's own findings are left to the caller. Raises ColumnarReplayError after `finish`.
        """
        if self._is_finished:
            raise ColumnarReplayError("the columnar replay is finished")
        columns = (getattr(chunk.records, name) for name in kernels.Records._fields[2:])
        records = kernels.Records(
            read_only(np.ascontiguousarray(chunk.data)),
            np.ascontiguousarray(chunk.batches.is_control),
            *map(np.ascontiguousarray, columns),
        )
        self._reserve(records)
        at = self._replay(records, 0)
        while at < len(records.offset):
            self._replay_unusual(chunk, records, at)
            at = self._replay(records, at + 1)
        output = self._output()
        if output.counts.unknown_type:
            output = replace(output, findings=(*output.findings, *_unknown_types(chunk)))
        return output

    def finish(self) -> ColumnarOutput:
        """The rows that are still open. The columnar replay accepts no more chunks; export its state before, if another
        one is to continue.
        """
        if self._is_finished:
            raise ColumnarReplayError("the columnar replay is finished")
        self._is_finished = True
        columnar = self._columnar
        return ColumnarOutput(
            keys=self._dictionary(),
            partition_states=state_rows(columnar.states, np.arange(self._count("states")), columnar.changed),
            state_batches=batch_rows(self._open_batches()),
            transitions=transition_rows(columnar.transitions[:0]),
            counts=ColumnarCounts(),
            findings=(),
        )

    def export_state(self) -> ColumnarState:
        """The state from which a new columnar replay continues here. Call it between two feeds."""
        count, columnar = len(self._keys.group_ids), self._columnar
        return ColumnarState(
            group_ids=tuple(self._keys.group_ids),
            topic_ids=tuple(self._keys.topic_ids),
            partitions=np.array(self._keys.partitions, np.int32),
            keys=columnar.keys[:count].copy(),
            batches=columnar.pool[self._pool_rows()],
            open_states=columnar.states[: self._count("states")].copy(),
            open_changed=columnar.changed[: self._count("changed")].copy(),
        )

    def _take_over(self, other: "ColumnarShareReplay") -> None:
        if not other._is_finished:
            raise ColumnarReplayError("only a finished columnar replay gives its buffers away")
        of_keys = self._columnar
        self._set_columnar(
            other._columnar._replace(
                key_ids=of_keys.key_ids, keys=of_keys.keys, counts=of_keys.counts, fields=of_keys.fields
            )
        )
        other._columnar = of_keys

    def _import(self, state: ColumnarState) -> None:
        named = zip(state.group_ids, state.topic_ids, state.partitions.tolist(), strict=True)
        for group_id, topic_id, partition in named:
            self._keys.number(SharePartitionKey(group_id, topic_id, partition))
        keys = state.keys.copy()
        keys["region"] = np.cumsum(keys["length"]) - keys["length"]
        keys["capacity"] = keys["length"]
        keys["head"] = 0
        counts = self._columnar.counts
        counts["pool"] = len(state.batches)
        counts["states"] = len(state.open_states)
        counts["changed"] = len(state.open_changed)
        self._columnar = self._columnar._replace(
            keys=keys,
            pool=np.concatenate((state.batches, np.zeros(_POOL_ROWS_START, layouts.BATCH))),
            states=_with_room(state.open_states, len(state.open_states), _ROWS_START),
            changed=_with_room(state.open_changed, len(state.open_changed), _ROWS_START),
        )

    def _count(self, name: str) -> int:
        return int(self._columnar.counts[name][0])

    # --- replay ---

    def _replay(self, records: kernels.Records, start: int) -> int:
        """Replay up to the next record that the codec must read. Returns its index, or the number of records."""
        at = start
        while True:
            status, at = kernels.replay_records(records, self._interner.table, self._columnar, at)
            if status == kernels.NEED_KEY:
                self._learn_keys(records, at)
            elif status == kernels.NEED_ROOM:
                self._make_room()
            else:
                return int(at)

    def _learn_keys(self, records: kernels.Records, start: int) -> None:
        """Number the keys of all records from `start` on, so that the loop does not stop at each new one."""
        known = len(self._interner)
        at = kernels.intern_keys(records, self._interner.table, start)
        while at < len(records.offset):
            self._interner.grow(int(records.key_length[at]))
            at = kernels.intern_keys(records, self._interner.table, at)
        numbers = []
        for raw in self._interner.keys(known):
            key = codec.decode_key(TOPIC, b"\x00\x00" + raw).fields
            numbers.append(self._keys.number(SharePartitionKey(key.group_id, key.topic_id, key.partition)))
        keys = self._columnar.keys
        missing = len(self._keys.group_ids) - len(keys)
        if missing > 0:
            fresh = np.zeros(missing + len(keys), layouts.KEY)
            fresh["passed"] = -1
            fresh["row"] = -1
            keys = np.concatenate((keys, fresh))
        key_ids = np.concatenate((self._columnar.key_ids, np.array(numbers, np.int64)))
        self._columnar = self._columnar._replace(key_ids=key_ids, keys=keys)

    def _reserve(self, records: kernels.Records) -> None:
        """Make room for what a chunk usually produces, so that the loop seldom stops. Where the room is too small, the
        loop stops.
        """
        columnar, used = self._columnar, self._count
        record_count = len(records.offset)
        values = records.value_length
        batch_count = int(values.sum(where=values > 0, dtype=np.int64)) // kernels.STATE_BATCH_BYTES
        self._set_columnar(
            columnar._replace(
                states=_with_room(columnar.states, used("states"), record_count),
                changed=_with_room(columnar.changed, used("changed"), batch_count),
                batches=_with_room(columnar.batches, used("batches"), batch_count),
                transitions=_with_room(columnar.transitions, used("transitions"), batch_count + record_count),
            )
        )

    def _set_columnar(self, columnar: kernels.ColumnarArrays) -> None:
        """Switch to larger arrays, and pass their sizes to the loops."""
        self._columnar = columnar
        for name in ("states", "changed", "batches", "transitions", "findings", "pool", "own", "merged"):
            columnar.counts[f"{name}_max"] = len(getattr(columnar, name))

    def _make_room(self) -> None:
        """Make room for the record at which the loop stopped, and at least double what was too small."""
        columnar, used = self._columnar, self._count
        count = used("needed_batches")
        length = int(columnar.keys["length"][used("needed_key")])
        pieces = length + 4 * count + 2
        pool = columnar.pool
        if used("pool") + 2 * pieces > len(pool):
            key_count = len(self._keys.group_ids)
            capacity = int(columnar.keys["capacity"][:key_count].sum())
            pool = np.empty(2 * (capacity + 2 * pieces), layouts.BATCH)
            kernels.pack_pool(columnar, pool, key_count)
        own, merged = columnar.own, columnar.merged
        if len(own) < 2 * count:
            own = np.empty(4 * count, layouts.RANGE)
        if len(merged) < 2 * pieces:
            merged = np.empty(4 * pieces, layouts.BATCH)
        self._set_columnar(
            columnar._replace(
                pool=pool,
                states=_with_room(columnar.states, used("states"), 1),
                changed=_with_room(columnar.changed, used("changed"), 2 * count),
                batches=_with_room(columnar.batches, used("batches"), length),
                transitions=_with_room(columnar.transitions, used("transitions"), 4 * pieces),
                findings=_with_room(columnar.findings, used("findings"), kernels.FINDINGS_PER_RECORD_MAX),
                own=own,
                merged=merged,
            )
        )

    def _replay_unusual(self, chunk: RecordChunk, records: kernels.Records, at: int) -> None:
        """Let the codec decide about a record: its type is unknown, it is unreadable, or it is valid and written in
        another layout.

        A valid one goes through the same loop, encoded as Kafka 4.3 would.
        """
        offset = int(records.offset[at])
        raw_key = _bytes(records.data, int(records.key_position[at]), int(records.key_length[at]))
        raw_value = _bytes(records.data, int(records.value_position[at]), int(records.value_length[at]))
        payload = raw_key or b""
        share_partition: SharePartitionKey | None = None
        try:
            if raw_key is None:
                raise NullNotAllowed("a record of a coordinator's log has a key")
            key = codec.decode_key(TOPIC, raw_key)
            share_partition = SharePartitionKey(key.fields.group_id, key.fields.topic_id, key.fields.partition)
            payload = raw_value or b""
            value = None
            if raw_value is not None:
                decoded = codec.decode_value(TOPIC, key.record_type, raw_value)
                value = _canonical_value(decoded)
                self._unknown_field_count += codec.has_unknown_tags(decoded)
            raw_key = codec.encode_key(TOPIC, key.record_type, key.fields)
            if self._replay(_one_record(raw_key, value, offset, int(records.timestamp_ms[at])), 0) != 1:
                raise ColumnarReplayError(f"the record at offset {offset} is not what its decoded form encodes to")
        except DecodeError as error:
            group_id = None if share_partition is None else share_partition.group_id
            self._quarantined.add(chunk, at, error, payload, group_id)
        except Exception as error:
            if share_partition is None:
                raise
            self.faults.note(error, share_partition, offset)

    # --- output ---

    def _output(self) -> ColumnarOutput:
        """Extract the rows that ended, and move the open ones to the front of their buffers."""
        columnar, used = self._columnar, self._count
        states = columnar.states[: used("states")]
        is_open = states["to_offset"] == kernels.OPEN
        output = ColumnarOutput(
            keys=self._dictionary(),
            partition_states=state_rows(states, np.flatnonzero(~is_open), columnar.changed),
            state_batches=batch_rows(columnar.batches[: used("batches")]),
            transitions=transition_rows(columnar.transitions[: used("transitions")]),
            counts=ColumnarCounts(
                decoded=used("decoded"),
                tombstones=used("tombstones"),
                control=used("control"),
                unknown_type=used("unknown_type"),
                quarantined=len(self._quarantined),
                unknown_field=self._unknown_field_count,
            ),
            findings=(*self._quarantined.taken(), *self._replay_findings()),
        )
        kept = states[is_open]
        changed = columnar.changed[ranges(kept["changed"], kept["changed_count"])]
        kept["changed"] = np.cumsum(kept["changed_count"]) - kept["changed_count"]
        columnar.keys["row"][kept["key"]] = np.arange(len(kept))
        columnar.states[: len(kept)] = kept
        columnar.changed[: len(changed)] = changed
        pool_end = used("pool")
        columnar.counts[:] = 0
        columnar.counts["pool"] = pool_end
        columnar.counts["states"] = len(kept)
        columnar.counts["changed"] = len(changed)
        self._set_columnar(columnar)
        self._quarantined = RecordFindings(is_share=True)
        self._unknown_field_count = 0
        return output

    def _dictionary(self) -> KeyDictionary:
        return KeyDictionary(self._keys.group_ids, self._keys.topic_ids, np.array(self._keys.partitions, np.int32))

    def _replay_findings(self) -> list[Finding]:
        findings = []
        rows = self._columnar.findings[: self._count("findings")]
        for key, code, offset, before, after in rows.tolist():
            name, text = _FINDINGS[code]
            place = (
                f"group {self._keys.group_ids[key]!r} topic id {self._keys.topic_ids[key]!r} "
                f"partition {self._keys.partitions[key]}"
            )
            message = f"{place}: {text.format(before=before, after=after)}"
            findings.append(Finding(stage="REPLAY", code=name, message=message, offset=offset))
        return findings

    def _pool_rows(self) -> I64:
        """The rows of the pool with batches, key by key."""
        keys = self._columnar.keys[: len(self._keys.group_ids)]
        return ranges(keys["region"] + keys["head"], keys["length"])

    def _open_batches(self) -> Rows:
        columnar, key_count = self._columnar, len(self._keys.group_ids)
        rows = np.empty(int(columnar.keys["length"][:key_count].sum()), layouts.ENDED_BATCH)
        kernels.open_batches(columnar.keys, columnar.pool, key_count, rows)
        return rows


def _unknown_types(chunk: RecordChunk) -> tuple[Finding, ...]:
    """The records that the loop skipped, like Kafka: those of a type that no declaration has."""
    found = RecordFindings(is_share=True)
    records, data = chunk.records, chunk.data
    is_data = ~chunk.batches.is_control[records.batch_index]
    for row in np.flatnonzero(is_data & (records.key_length >= 2)).tolist():
        position = int(records.key_position[row])
        raw_key = data[position : position + int(records.key_length[row])].tobytes()
        if raw_key[:2] in _KNOWN_TYPES:
            continue
        try:
            codec.decode_key(TOPIC, raw_key)
        except UnknownRecordType as error:
            found.add(chunk, row, error, raw_key)
    return found.taken()


def _with_room(rows: Rows, used: int, more: int) -> Rows:
    """The same rows, with room for `more`; the capacity at least doubles if it was too small."""
    capacity = len(rows)
    if used + more <= capacity:
        return rows
    larger = np.empty(max(2 * capacity, used + more), rows.dtype)
    larger[:used] = rows[:used]
    return larger


def _bytes(data: U8, position: int, length: int) -> bytes | None:
    return None if length < 0 else data[position : position + length].tobytes()


def _canonical_value(decoded: codec.CoordinatorValue) -> bytes:
    """Encode a value as this code would, without unknown tags."""
    batches = tuple(codec.make_from(STATE_BATCH, batch) for batch in decoded.fields.state_batches)
    fields = codec.make_from(decoded.message, decoded.fields, state_batches=batches)
    record_type = decoded.message.record_type
    assert record_type is not None, "a value of a record"
    return codec.encode_value(TOPIC, record_type, decoded.version, fields)


def _one_record(key: bytes, value: bytes | None, offset: int, timestamp_ms: int) -> kernels.Records:
    return kernels.Records(
        data=read_only(np.frombuffer(key + (value or b""), np.uint8)),
        is_control=np.zeros(1, np.bool_),
        batch_index=np.zeros(1, np.int32),
        offset=np.array([offset], np.int64),
        timestamp_ms=np.array([timestamp_ms], np.int64),
        key_position=np.zeros(1, np.int64),
        key_length=np.array([len(key)], np.int32),
        value_position=np.array([len(key)], np.int64),
        value_length=np.array([-1 if value is None else len(value)], np.int32),
    )
