"""The rows that a log must come to, worked out record by record from the pure replay; and logs to try it
on."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.errors import DecodeError
from coordinator_core.replay.columnar.offsets_columnar import (
    CHANGES,
    OUTCOMES,
    ColumnarOffsetReplay,
    ColumnarOutput,
    CommitColumns,
)
from coordinator_core.replay.offsets.replay import replay_end_transaction_marker, replay_offset_commit
from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey, OffsetsState
from schemas.consumer_offsets import TOPIC

ABORT, COMMIT = 0, 1
KNOWN_TYPES = {*range(24)} - {9, 18}
GROUP_TYPES = {2, 3, 11, 17}


class LogRecord(NamedTuple):
    """A record before it has an offset."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_000


class LogBatch(NamedTuple):
    """A batch before it has offsets. `control_type` None: a data batch."""

    records: tuple[LogRecord, ...]
    producer_id: int = -1
    is_transactional: bool = False
    control_type: int | None = None


def marker(producer_id: int, control_type: int, timestamp_ms: int = 1_000) -> LogBatch:
    """The control batch which ends a transaction."""
    record = LogRecord(struct.pack(">hh", 0, control_type), struct.pack(">hi", 0, 0), timestamp_ms)
    return LogBatch((record,), producer_id, True, control_type)


def encode_batches(batches: Iterable[LogBatch], base_offset: int = 100, base_sequence: int = -1) -> list[bytes]:
    """As a broker would write them, offsets without holes; a batch without records still takes one. `base_sequence`: 0
    where the coordinator since Kafka 4.0 wrote them."""
    encoded = []
    offset = base_offset
    for batch in batches:
        records = [
            Record(offset=offset + index, timestamp_ms=r.timestamp_ms, key=r.key, value=r.value)
            for index, r in enumerate(batch.records)
        ]
        last_offset = offset + max(len(records), 1) - 1
        encoded.append(
            build_batch(
                records,
                base_offset=offset,
                last_offset=last_offset,
                is_transactional=batch.is_transactional,
                is_control=batch.control_type is not None,
                producer_id=batch.producer_id,
                producer_epoch=0,
                base_sequence=base_sequence,
            )
        )
        offset = last_offset + 1
    return encoded


class Row(NamedTuple):
    """A row of silver.offset_commits, None for null."""

    log_offset: int
    group: str
    topic: str
    topic_id: str | None
    partition: int
    committed_offset: int | None
    leader_epoch: int | None
    metadata: str | None
    commit_time_ms: int | None
    expire_time_ms: int | None
    recorded_at_ms: int
    producer_id: int
    is_transactional: bool
    outcome: str = "PENDING"
    applied_log_offset: int | None = None
    applied_at_ms: int | None = None
    change: str | None = None
    previous_offset: int | None = None
    delta: int | None = None


def rows_of(columns: CommitColumns) -> list[Row]:
    """The columns read row by row."""
    data = columns.metadata_data.tobytes()
    assert len(columns.metadata_offsets) == len(columns) + 1
    rows = []
    for i in range(len(columns)):
        is_value = bool(columns.is_value[i])
        is_applied = bool(columns.applied_valid[i])
        start, end = columns.metadata_offsets[i], columns.metadata_offsets[i + 1]
        assert is_value or start == end
        rows.append(
            Row(
                log_offset=int(columns.log_offset[i]),
                group=columns.groups[columns.group[i]],
                topic=columns.topics[columns.topic[i]],
                topic_id=columns.topic_ids[columns.topic_id[i]] if columns.topic_id[i] >= 0 else None,
                partition=int(columns.partition[i]),
                committed_offset=int(columns.committed_offset[i]) if is_value else None,
                leader_epoch=int(columns.leader_epoch[i]) if columns.leader_epoch_valid[i] else None,
                metadata=data[start:end].decode() if is_value else None,
                commit_time_ms=int(columns.commit_time_ms[i]) if is_value else None,
                expire_time_ms=int(columns.expire_time_ms[i]) if columns.expire_time_valid[i] else None,
                recorded_at_ms=int(columns.recorded_at_ms[i]),
                producer_id=int(columns.producer_id[i]),
                is_transactional=bool(columns.is_transactional[i]),
                outcome=OUTCOMES[columns.outcome[i]],
                applied_log_offset=int(columns.applied_log_offset[i]) if is_applied else None,
                applied_at_ms=int(columns.applied_at_ms[i]) if is_applied else None,
                change=CHANGES[columns.change[i]] if columns.change[i] >= 0 else None,
                previous_offset=int(columns.previous_offset[i]) if columns.previous_offset_valid[i] else None,
                delta=int(columns.delta[i]) if columns.delta_valid[i] else None,
            )
        )
    return rows


@dataclass
class Result:
    """What a whole log came to, in a form that does not depend on chunks."""

    rows: dict[int, Row] = field(default_factory=dict)
    others: list[tuple[int, int | None]] = field(default_factory=list)
    """(log offset, last offset of its operation or None)."""
    touches: list[tuple[int, str, int, int]] = field(default_factory=list)
    findings: list[tuple[int | None, str, bytes]] = field(default_factory=list)
    decoded_count: int = 0
    tombstone_count: int = 0
    control_count: int = 0
    quarantined_count: int = 0
    offsets: dict[OffsetKey, tuple[int, int]] = field(default_factory=dict)


def expected_result(chunks: Sequence[RecordChunk]) -> Result:
    """Replay with the pure functions; every outcome is read off the states before and after."""
    result = Result()
    state = OffsetsState()
    touched: set[str] = set()
    for chunk in chunks:
        records = list(_records(chunk))
        operations = _operation_ends(records)
        for record, operation_end in zip(records, operations, strict=True):
            if record.control_type is not None:
                result.control_count += 1
                if record.control_type in (ABORT, COMMIT):
                    after = replay_end_transaction_marker(state, record.producer_id, record.control_type == COMMIT)
                    _decide_pending(result.rows, state, after, record)
                    state = after
                continue
            if record.type not in (0, 1):
                result.others.append((record.offset, operation_end))
                if record.type in GROUP_TYPES and record.value is None and record.group is not None:
                    touched.discard(record.group)
                continue
            payload = record.key
            try:
                key = decode_key(TOPIC, record.key).fields
                if record.value is not None:
                    payload = record.value
                value = None if record.value is None else decode_value(TOPIC, record.type, record.value).fields
            except DecodeError as error:
                result.findings.append((record.offset, error.code, payload))
                result.quarantined_count += 1
                continue
            if value is None:
                result.tombstone_count += 1
            else:
                result.decoded_count += 1
                if key.group not in touched:
                    touched.add(key.group)
                    assert operation_end is not None
                    result.touches.append((record.offset, key.group, operation_end, record.timestamp_ms))
            after = replay_offset_commit(state, key, value, offset=record.offset, producer_id=record.producer_id)
            _add_row(result.rows, state, after, record, OffsetKey(key.group, key.topic, key.partition), value)
            state = after
    result.offsets = {key: (v.committed_offset, v.record_offset) for key, v in state.offsets.items()}
    return result


def columnar_result(columnar: ColumnarOffsetReplay, chunks: Sequence[RecordChunk]) -> Result:
    """The same from the compiled columnar replay; checks on the way what must hold for every output."""
    result = Result()
    for chunk in chunks:
        output = columnar.feed(chunk)
        _check_output(chunk, output)
        _add_rows(result, output.commits)
        offsets = chunk.records.offset[output.others].tolist()
        ends = [None if op < 0 else int(output.operation_last_offset[op]) for op in output.other_operations]
        result.others += zip(offsets, ends, strict=True)
        result.touches += zip(
            output.touches.log_offset.tolist(),
            [output.commits.groups[group] for group in output.touches.group],
            output.touches.operation_last_offset.tolist(),
            output.touches.timestamp_ms.tolist(),
            strict=True,
        )
        result.findings += [(finding.offset, finding.code, finding.payload) for finding in output.findings]
        result.decoded_count += output.counts.decoded_count
        result.tombstone_count += output.counts.tombstone_count
        result.control_count += output.counts.control_count
        result.quarantined_count += output.counts.quarantined_count
    last = columnar.finish()
    assert all(row.outcome == "PENDING" for row in rows_of(last))
    _add_rows(result, last)
    result.rows = dict(sorted(result.rows.items()))
    keys = columnar._key_arrays
    result.offsets = {
        OffsetKey(
            columnar._group_names[keys.group[key_id]],
            columnar._topic_names[keys.topic[key_id]],
            int(keys.partition[key_id]),
        ): (int(keys.committed_offset[key_id]), int(keys.record_offset[key_id]))
        for key_id in np.flatnonzero(keys.has_offset[: len(columnar._keys)]).tolist()
    }
    return result


def chunks_of(batches: Sequence[bytes], sizes: Sequence[int]) -> list[RecordChunk]:
    """Chunks of `sizes` batches each, the rest in one more."""
    chunks = []
    start = 0
    for size in [*sizes, len(batches)]:
        part = b"".join(batches[start : start + size])
        if part:
            chunks.append(decode_chunk(part))
        start += size
    return chunks


def _add_rows(result: Result, columns: CommitColumns) -> None:
    rows = rows_of(columns)
    assert [row.log_offset for row in rows] == sorted(row.log_offset for row in rows)
    for row in rows:
        assert row.log_offset not in result.rows
        result.rows[row.log_offset] = row


def _check_output(chunk: RecordChunk, output: ColumnarOutput) -> None:
    counts = output.counts
    assert counts.record_count == len(chunk.records)
    assert counts.record_count == (
        counts.decoded_count
        + counts.tombstone_count
        + counts.control_count
        + counts.quarantined_count
        + counts.other_count
    )
    assert counts.other_count == len(output.others) == len(output.other_operations)
    assert "PENDING" not in {row.outcome for row in rows_of(output.commits)}
    assert all(finding.stage == "VALUE" for finding in output.findings)


class _Placed(NamedTuple):
    offset: int
    batch: int
    timestamp_ms: int
    producer_id: int
    is_transactional: bool
    control_type: int | None
    key: bytes
    value: bytes | None
    type: int | None
    group: str | None


def _records(chunk: RecordChunk) -> Iterable[_Placed]:
    records, batches = chunk.records, chunk.batches
    data = chunk.data.tobytes()
    for i in range(len(records)):
        batch = int(records.batch_index[i])
        position, length = int(records.key_position[i]), int(records.key_length[i])
        key = b"" if length < 0 else data[position : position + length]
        position, length = int(records.value_position[i]), int(records.value_length[i])
        value = None if length < 0 else data[position : position + length]
        record_type = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else None
        group = None
        if record_type in KNOWN_TYPES and len(key) >= 4:
            size = int.from_bytes(key[2:4], "big", signed=True)
            if 0 <= size <= len(key) - 4:
                group = str(key[4 : 4 + size], "utf-8", "groupledger-java")
        yield _Placed(
            int(records.offset[i]),
            batch,
            int(records.timestamp_ms[i]),
            int(batches.producer_id[batch]),
            bool(batches.is_transactional[batch]),
            int(batches.control_type[batch]) if batches.is_control[batch] else None,
            key,
            value,
            record_type,
            None if batches.is_control[batch] else group,
        )


def _operation_ends(records: Sequence[_Placed]) -> list[int | None]:
    """Per record the last offset of its operation: found backwards, from where each run ends."""
    ends: list[int | None] = []
    later: _Placed | None = None
    for record in reversed(records):
        if record.group is None:
            ends.append(None)
        elif (
            later is not None
            and ends[-1] is not None
            and (later.batch, later.timestamp_ms, later.group) == (record.batch, record.timestamp_ms, record.group)
        ):
            ends.append(ends[-1])
        else:
            ends.append(record.offset)
        later = record
    return ends[::-1]


def _decide_pending(rows: dict[int, Row], before: OffsetsState, after: OffsetsState, record: _Placed) -> None:
    for key, pending in before.pending.get(record.producer_id, {}).items():
        row = rows[pending.record_offset]
        if record.control_type == ABORT:
            rows[row.log_offset] = row._replace(outcome="ABORTED")
        elif after.offsets[key] is pending:
            rows[row.log_offset] = _applied(row, before.offsets.get(key), record)
        else:
            rows[row.log_offset] = row._replace(outcome="SUPERSEDED")


def _add_row(
    rows: dict[int, Row],
    before: OffsetsState,
    after: OffsetsState,
    record: _Placed,
    key: OffsetKey,
    value: object | None,
) -> None:
    for producer_id, pending in before.pending.items():
        still = after.pending.get(producer_id)
        if key in pending and (still is None or still.get(key) is not pending[key]):
            gone = rows[pending[key].record_offset]
            rows[gone.log_offset] = gone._replace(outcome="SUPERSEDED")
    row = Row(
        log_offset=record.offset,
        **key._asdict(),
        topic_id=None,
        committed_offset=None,
        leader_epoch=None,
        metadata=None,
        commit_time_ms=None,
        expire_time_ms=None,
        recorded_at_ms=record.timestamp_ms,
        producer_id=record.producer_id,
        is_transactional=record.is_transactional,
    )
    if value is None:
        rows[record.offset] = _applied(row, before.offsets.get(key), record)
        return
    is_plain = record.producer_id == -1
    committed = after.offsets[key] if is_plain else after.pending[record.producer_id][key]
    row = row._replace(
        topic_id=committed.topic_id,
        committed_offset=committed.committed_offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_time_ms=committed.commit_timestamp_ms,
        expire_time_ms=committed.expire_timestamp_ms,
    )
    rows[record.offset] = _applied(row, before.offsets.get(key), record) if is_plain else row


def _applied(row: Row, in_force: CommittedOffset | None, by: _Placed) -> Row:
    row = row._replace(
        outcome="APPLIED",
        applied_log_offset=by.offset,
        applied_at_ms=by.timestamp_ms,
        previous_offset=None if in_force is None else in_force.committed_offset,
    )
    if row.committed_offset is None:
        return row._replace(change="DELETE")
    if row.previous_offset is None:
        return row._replace(change="FIRST")
    delta = row.committed_offset - row.previous_offset
    change = "ADVANCE" if delta > 0 else "REPEAT" if delta == 0 else "REWIND"
    return row._replace(change=change, delta=delta if -(2**63) <= delta < 2**63 else None)
