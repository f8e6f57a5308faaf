"""Compile the loops at set-up, so that no run waits for it: `python -m jobs.operations.compile_kernels`.

numba stores compiled code in NUMBA_CACHE_DIR. The loops are compiled by running them on a small log, so that the types
are those of a real run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np

from coordinator_core.bytes import codec
from coordinator_core.bytes.interning import Interner
from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from coordinator_core.bytes.log.fill import KeyValues, compare
from coordinator_core.bytes.log.pack import NO_HEADERS, PackableRecords, pack_records
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.history.log_checkpoint import pack_offset_state, unpack_offset_state
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.inference.audit.group_past import kept_commits
from coordinator_core.inference.audit.groups import judge_group
from coordinator_core.inference.audit.share_past import kept_of
from coordinator_core.inference.commits.commit_anomalies import applied_by_partition
from coordinator_core.inference.commits.last_commit_times import add_commit_times, latest_of, owners_of_commits
from coordinator_core.inference.facts.configs import NO_CONFIGS
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.facts.ordering import ordered_by
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_log import (
    ShareKeys,
    ShareLog,
    ShareStates,
    ShareTransitions,
    sorted_share_log,
)
from coordinator_core.inference.shares.shares import audit_share_log
from coordinator_core.replay.columnar.offsets_columnar import CHANGES
from coordinator_core.replay.columnar.offsets_columnar_states import columnar_state_of
from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from coordinator_core.replay.key_buckets import buckets_of, shared_out, slot_weights
from coordinator_core.replay.offsets.operations import operation_first_offsets
from jobs.silver.coordinator_keys import GroupKeys, ShareStateKeys
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from schemas.share_group_state import STATE_BATCH, ShareStateRecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BATCHES_WITHOUT_ROOM = 1_000
"""More than the initial capacity of a columnar replay."""
SHARE_STATES: Final = "share-states"
"""The only argument of the process that compiles just the loops for share states."""


def offsets_log() -> bytes:
    """A log with a plain commit, a transactional one with its marker, and a tombstone."""
    key_message, value_message = REGISTRY[OFFSETS_TOPIC][RecordType.OFFSET_COMMIT]
    key = codec.encode_key(
        OFFSETS_TOPIC, RecordType.OFFSET_COMMIT, codec.make(key_message, group="g", topic="t", partition=0)
    )
    fields = codec.make(value_message, offset=1, metadata="m", topic_id=TOPIC_ID)
    value = codec.encode_value(OFFSETS_TOPIC, RecordType.OFFSET_COMMIT, 4, fields)
    return b"".join(
        (
            build_batch([Record(0, 1, key, value, ())]),
            build_batch([Record(1, 2, key, value, ())], is_transactional=True, producer_id=1, producer_epoch=0),
            build_marker(
                offset=2, timestamp_ms=3, is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0
            ),
            build_batch([Record(3, 4, key, None, ())]),
        )
    )


def share_log(batch_count: int = 1) -> bytes:
    """A log with a snapshot of `batch_count` state batches, an update of it, and a tombstone."""
    snapshot, update = ShareStateRecordType.SHARE_SNAPSHOT, ShareStateRecordType.SHARE_UPDATE
    batches = tuple(
        codec.make(STATE_BATCH, first_offset=first, last_offset=first + 4, delivery_state=0, delivery_count=1)
        for first in range(0, 10 * batch_count, 10)
    )
    records = []
    for offset, record_type in enumerate((snapshot, update)):
        key_message, value_message = REGISTRY[SHARE_TOPIC][record_type]
        key = codec.make(key_message, group_id="g", topic_id=TOPIC_ID, partition=0)
        value = codec.make(value_message, start_offset=0, state_batches=batches)
        records.append(
            Record(
                offset,
                offset,
                codec.encode_key(SHARE_TOPIC, record_type, key),
                codec.encode_value(SHARE_TOPIC, record_type, 0, value),
                (),
            )
        )
    records.append(Record(2, 2, records[0].key, None, ()))
    return build_batch(records)


def dump_records() -> PackableRecords:
    data = np.frombuffer(NO_HEADERS, np.uint8)
    parts = (data, np.zeros(1, np.int64), np.ones(1, np.int32))
    numbers, flags = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    return PackableRecords(numbers, numbers, flags, flags, flags, numbers, numbers, *parts, *parts, *parts)


def share_rows() -> ShareLog:
    """The audit's input for a share partition: two records, one of which releases a range."""
    two, one, of_kind = np.arange(2), np.zeros(1, np.int64), np.zeros(1, np.int8)
    states = ShareStates(
        key=np.zeros(2, np.int64),
        log_offset=two,
        at_ms=two,
        record_kind=np.zeros(2, np.int8),
        leader_epoch=two,
        start_offset=two,
        effective_start_offset=two,
        delivery_complete_count=two,
        terminal_count=two,
        is_complete=np.ones(2, np.bool_),
        last_persisted=-np.ones(2, np.int64),
    )
    transitions = ShareTransitions(
        log_offset=one + 1,
        first_offset=one,
        last_offset=one,
        from_state=of_kind,
        from_delivery_count=np.ones(1, np.int32),
        to_state=of_kind,
        to_delivery_count=np.ones(1, np.int32),
        kind=of_kind,
        released=of_kind - np.int8(1),
    )
    return sorted_share_log(ShareKeys(["g"], one, [TOPIC_ID], [None], one), states, transitions)


def commits() -> GroupCommits:
    """A commit, its repetition, and a tombstone."""
    of_partition, applied, three = np.zeros(3, np.int32), np.zeros(3, np.int8), np.arange(3)
    change = np.array([CHANGES.index(name) for name in ("FIRST", "REPEAT", "DELETE")], np.int8)
    return GroupCommits(
        ("t",), of_partition, of_partition, three, three, three, three, three, three, applied, change, applied > 0
    )


def compile_kernels() -> None:
    """Run every compiled loop once."""
    use_all_but_share_states()
    use_share_states()


def use_all_but_share_states() -> None:
    """Run every loop once, except those that only a replay of share states needs."""
    log = share_rows()
    audit = audit_share_log(log, NO_CONFIGS, {}, InferenceSettings())
    audit.counted.counts(2)
    kept_of(log, audit.evidence, 2, NO_CONFIGS, {})
    one, bounds, latest = np.zeros(1, np.int64), np.array([0, 1]), latest_of([()])
    owner = owners_of_commits(one, one.astype(np.int32), bounds, one, one, one + 1, one)
    for owned_by in (owner, one):
        add_commit_times(one, one, one, owned_by, one > 0, latest)
    ordered_by(np.zeros(2, np.int32), 1, np.array([1, 0]))
    judge_group(GroupLife("g", 0, commits=commits()), InferenceSettings(stalled_ms=0))
    kept_commits(commits(), applied_by_partition(commits()), 0)
    pack_records(dump_records())
    compare(*[KeyValues.of(decode_chunk(offsets_log()))] * 2)
    for segment in (offsets_log(), share_log()):
        scan_segment(segment, base_offset=0)
        scan_segment(
            b"\x01" + segment[1:] + bytes(100) + segment[:70], base_offset=0
        )  # damaged: searches for the next batch
    replay = OffsetsLogReplay()
    GroupKeys().add(replay.feed(decode_chunk(offsets_log())).commits, ())
    for is_share, batches in ((False, offsets_log()), (True, share_log())):
        chunk = decode_chunk(batches)
        for bucket in buckets_of(shared_out(slot_weights(chunk, is_share=is_share), 2), is_share=is_share):
            bucket.own_records(chunk)
    operation_first_offsets(decode_chunk(offsets_log()))  # records of batches, for the API
    state = replay.export_state()
    replay.finish()
    # as on a later night, with more state than the initial capacity
    columnar_state_of([state.columnar, state.columnar])
    OffsetsLogReplay(OffsetsLogState(unpack_offset_state(pack_offset_state(state.columnar)), state.groups))
    Interner(key_capacity=1).reserve(2, 0)


def use_share_states() -> None:
    """Run the loops of a replay of share states once: compiling them takes nearly as long as all others."""
    ColumnarShareReplay().feed(decode_chunk(share_log(BATCHES_WITHOUT_ROOM)))
    columnar = ColumnarShareReplay()
    output = columnar.feed(decode_chunk(share_log()))
    ShareStateKeys().add(output.keys, output.partition_states)
    columnar.finish()


def compile_in_two_processes(kept: Path) -> None:
    """Compile all loops into the folder `kept`, which is this process's NUMBA_CACHE_DIR, on two cores.

    The second process uses its own folder, since numba numbers the files of a function without a lock. numba has a
    folder for each package: this process moves those that it did not create itself.
    """
    part = kept / "part"
    command = [sys.executable, "-m", str(__spec__.name), SHARE_STATES]
    with subprocess.Popen(command, env={**os.environ, "NUMBA_CACHE_DIR": str(part)}) as process:
        use_all_but_share_states()
    if process.returncode:
        raise SystemExit(process.returncode)
    for made in part.iterdir():
        if not (kept / made.name).exists():
            made.rename(kept / made.name)
    shutil.rmtree(part)
    use_share_states()


if __name__ == "__main__":
    cache = os.environ.get("NUMBA_CACHE_DIR")
    if sys.argv[1:] == [SHARE_STATES]:
        use_share_states()
    elif cache:
        compile_in_two_processes(Path(cache))
    else:
        compile_kernels()
