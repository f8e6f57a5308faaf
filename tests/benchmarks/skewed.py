"""Logs of which one key, or the number of keys, is out of proportion; and what a night over them takes.

    python -m tests.benchmarks.skewed [SHAPE ...]

A few batches are encoded by the codec and repeated with other offsets, times and numbers, so that millions of records
are made in seconds. What a log holds follows from its numbers alone.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes import codec
from coordinator_core.bytes.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.bytes.log.batch import CRC_START_V2, Record, build_batch
from coordinator_core.live.classic.records import GROUP_METADATA_VALUE_VERSION
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import MEMBER_METADATA
from schemas.registry import REGISTRY
from schemas.share_group_state import STATE_BATCH, ShareStateRecordType
from tests.benchmarks.runs import run, step_seconds

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_TOPIC: Final = "__share_group_state"
START_MS: Final = 1_700_000_000_000
"""Of the first batch."""

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

WORKER_BYTES_MAX: Final = 2**30
JVM_BYTES_MAX: Final = 4 * 2**30
"""The aims: resident sets of one Python worker, and of the JVM."""

BATCHES_AT_ONCE: Final = 1 << 14
BATCH_PARTS_PER_SEGMENT: Final = 4
CRC_POSITION: Final = 17
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
"""In the header of a batch of magic 2."""

LOG_PARTITION_COUNT: Final = 8
COMMITS_PER_BATCH: Final = 25
PARTITION_COUNT: Final = 50
"""Of the topic whose offsets one group commits."""
COMMITS_PER_GROUP: Final = 3
GROUP_DIGITS: Final = 9
MS_PER_BATCH: Final = 10

UPDATES_PER_SNAPSHOT: Final = 99
STATE_BATCHES_PER_UPDATE: Final = 4
STATE_BATCH_OFFSETS: Final = 5
OFFSETS_PER_SNAPSHOT: Final = UPDATES_PER_SNAPSHOT * STATE_BATCHES_PER_UPDATE * STATE_BATCH_OFFSETS
RECORDS_PER_SNAPSHOT: Final = 1 + UPDATES_PER_SNAPSHOT
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
HOT_SHARE: Final = 5
"""One share partition has one record in so many."""

USER_DATA_BYTES: Final = 500
"""What a sticky assignor keeps of a member."""
LEAVING_COUNT: Final = 10
"""Members of the large group that are replaced with each generation."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A batch that is repeated with other values. `places`: where these stand in it, by name."""

    template: bytes
    places: Mapping[str, int]

    @classmethod
    def of(cls, records: Sequence[Record], marks: Mapping[str, bytes]) -> "Repeated":
        """`marks`: bytes that stand at one place in the batch alone, by the name of what will stand there."""
        template = build_batch(records, base_sequence=0)
        if any(template.count(mark) != 1 for mark in marks.values()):
            raise ValueError("a mark is nowhere in the batch, or at two places")
        return cls(template, {name: template.index(mark) for name, mark in marks.items()})

    def rows(self, base_offsets: I64, timestamps_ms: I64, values: Mapping[str, U8]) -> U8:
        """One batch a row, its checksum right. `values`: by name, one row of bytes a batch."""
        rows: U8 = np.tile(np.frombuffer(self.template, np.uint8), (len(base_offsets), 1))
        _put(rows, 0, _bytes_of(base_offsets, 8))
        for position in (BASE_TIMESTAMP_POSITION, MAX_TIMESTAMP_POSITION):
            _put(rows, position, _bytes_of(timestamps_ms, 8))
        for name, put in values.items():
            _put(rows, self.places[name], put)
        sums = [google_crc32c.value(row[CRC_START_V2:].tobytes()) for row in rows]
        _put(rows, CRC_POSITION, _bytes_of(np.array(sums, np.int64), 4))
        return rows


def _put(rows: U8, position: int, values: U8) -> None:
    rows[:, position : position + values.shape[1]] = values


def _bytes_of(numbers: I64, width: int) -> U8:
    """Big-endian, one row a number."""
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]


def _texts_of(numbers: I64) -> U8:
    """Decimal digits, `GROUP_DIGITS` of them, one row a number."""
    powers = 10 ** np.arange(GROUP_DIGITS - 1, -1, -1)
    return (ord("0") + numbers[:, None] // powers % 10).astype(np.uint8)


def _long_mark(number: int) -> bytes:
    """Marks a number of 8 bytes."""
    return b"\x5a\xa5\x5a" + number.to_bytes(5, "big")


def _short_mark(number: int) -> bytes:
    """Marks a number of 4 bytes."""
    return b"\x5a\xa4" + number.to_bytes(2, "big")


def _group_mark(number: int) -> bytes:
    """Marks the name of a group."""
    return f"{number:?>{GROUP_DIGITS}}".encode()


def _number(mark: bytes) -> int:
    return int.from_bytes(mark, "big")


def _segment(folder: Path, topic: str, partition: int, base_offset: int = 0) -> Path:
    segment = folder / f"{topic}-{partition}" / f"{base_offset:020d}.log"
    segment.parent.mkdir(parents=True, exist_ok=True)
    return segment


# --- commits


def _commits() -> Repeated:
    """A batch of plain commits: names `group-i`, `partition-i`, `offset-i` and `time-i`."""
    key_message, value_message = REGISTRY[OFFSETS_TOPIC][RecordType.OFFSET_COMMIT]
    records: list[Record] = []
    marks: dict[str, bytes] = {}
    for number in range(COMMITS_PER_BATCH):
        group, partition = _group_mark(number), _short_mark(number)
        offset, time = _long_mark(2 * number), _long_mark(2 * number + 1)
        key = codec.make(key_message, group=group.decode(), topic="orders", partition=_number(partition))
        value = codec.make(
            value_message, offset=_number(offset), leader_epoch=3, metadata="", commit_timestamp=_number(time)
        )
        marks |= {f"group-{number}": group, f"partition-{number}": partition}
        marks |= {f"offset-{number}": offset, f"time-{number}": time}
        encoded_key = codec.encode_key(OFFSETS_TOPIC, RecordType.OFFSET_COMMIT, key)
        encoded = codec.encode_value(OFFSETS_TOPIC, RecordType.OFFSET_COMMIT, 4, value)
        records.append(Record(number, 0, encoded_key, encoded))
    return Repeated.of(records, marks)


def _commit_rows(made: Repeated, batch: I64, groups: I64, partitions: I64, offsets: I64) -> bytes:
    """The batches of these numbers. What each commit is of has a row a batch and a column a commit of it."""
    at = START_MS + MS_PER_BATCH * batch
    values = {}
    for number in range(COMMITS_PER_BATCH):
        values[f"group-{number}"] = _texts_of(groups[:, number])
        values[f"partition-{number}"] = _bytes_of(partitions[:, number], 4)
        values[f"offset-{number}"] = _bytes_of(offsets[:, number], 8)
        values[f"time-{number}"] = _bytes_of(at, 8)
    return made.rows(COMMITS_PER_BATCH * batch, at, values).tobytes()


def hot_log_partition(folder: Path, commit_count: int = 10_000_000, group_count: int = 200) -> int:
    """All commits in one log partition, a batch a commit of a group in all its partitions by turns; gives how many
    records that makes. Which group comes next is at random, so that no bronze file is a repetition of another."""
    made = _commits()
    batch_count = commit_count // COMMITS_PER_BATCH
    groups = np.random.default_rng(group_count).integers(0, group_count, batch_count)
    turns = _turns_of(groups)
    # segments of about 100 MB, as brokers roll those of internal topics
    for number, first in enumerate(range(0, batch_count, BATCHES_AT_ONCE)):
        batch = np.arange(first, min(first + BATCHES_AT_ONCE, batch_count), dtype=np.int64)
        commit = COMMITS_PER_BATCH * turns[batch, None] + np.arange(COMMITS_PER_BATCH)
        group = np.broadcast_to(groups[batch, None], commit.shape)
        # groups move on by steps of their own
        moved = (commit // PARTITION_COUNT) * (17 + group) + commit % 7
        if number % BATCH_PARTS_PER_SEGMENT == 0:
            segment = _segment(folder, OFFSETS_TOPIC, 0, COMMITS_PER_BATCH * first)
        with segment.open("ab") as out:
            out.write(_commit_rows(made, batch, group, commit % PARTITION_COUNT, moved))
    return COMMITS_PER_BATCH * batch_count


def _turns_of(keys: I64) -> I64:
    """How often each key came before."""
    order = np.argsort(keys, kind="stable")
    turns = np.empty(len(keys), np.int64)
    turns[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return turns


def many_groups(folder: Path, group_count: int = 100_000) -> int:
    """Groups that each commit to partition 0, three times; gives how many records that makes."""
    made = _commits()
    round_count = group_count // LOG_PARTITION_COUNT // COMMITS_PER_BATCH
    batch = np.arange(COMMITS_PER_GROUP * round_count, dtype=np.int64)
    in_partition = batch[:, None] % round_count * COMMITS_PER_BATCH + np.arange(COMMITS_PER_BATCH)
    offsets = np.broadcast_to(100 * (1 + batch[:, None] // round_count), in_partition.shape)
    for partition in range(LOG_PARTITION_COUNT):
        groups = in_partition * LOG_PARTITION_COUNT + partition
        rows = _commit_rows(made, batch, groups, np.zeros_like(groups), offsets)
        _segment(folder, OFFSETS_TOPIC, partition).write_bytes(rows)
    return COMMITS_PER_GROUP * COMMITS_PER_BATCH * round_count * LOG_PARTITION_COUNT


# --- one large group


def large_group(folder: Path, member_count: int = 5_000, generation_count: int = 40) -> int:
    """Generations of a classic group, each one record with all members; each member has one partition, another one in
    each generation. Gives how many records that makes."""
    key_message, value_message = REGISTRY[OFFSETS_TOPIC][RecordType.GROUP_METADATA]
    key = codec.encode_key(OFFSETS_TOPIC, RecordType.GROUP_METADATA, codec.make(key_message, group="large"))
    subscription = encode_subscription(
        Subscription(version=1, topics=("orders",), user_data=bytes(range(250)) * (USER_DATA_BYTES // 250))
    )
    assignments = [
        encode_assignment(Assignment(version=1, assigned_partitions=(("orders", (partition,)),)))
        for partition in range(member_count)
    ]

    def parts() -> Iterator[bytes]:
        for generation in range(generation_count):
            at = START_MS + 60_000 * generation
            ids = [f"large-{number:06}" for number in range(member_count)]
            for number in range(LEAVING_COUNT * generation):
                ids[number % member_count] = f"large-{member_count + number:06}"
            members = [
                codec.make(
                    MEMBER_METADATA,
                    member_id=member_id,
                    client_id="worker",
                    client_host="/10.0.0.1",
                    rebalance_timeout=300_000,
                    session_timeout=45_000,
                    subscription=subscription,
                    assignment=assignments[(number + generation) % member_count],
                )
                for number, member_id in enumerate(ids)
            ]
            value = codec.make(
                value_message,
                protocol_type="consumer",
                generation=1 + generation,
                protocol="sticky",
                leader=ids[0],
                current_state_timestamp=at,
                members=members,
            )
            encoded = codec.encode_value(OFFSETS_TOPIC, RecordType.GROUP_METADATA, GROUP_METADATA_VALUE_VERSION, value)
            yield build_batch([Record(generation, at, key, encoded)], base_sequence=0)

    _segment(folder, OFFSETS_TOPIC, 0).write_bytes(b"".join(parts()))
    return generation_count


# --- share partitions


def hot_share_partition(folder: Path, record_count: int = 2_000_000, key_count: int = 20) -> int:
    """Share partitions, `key_count` in each log partition, and one with a fifth of all records; gives how many records
    that makes.

    A snapshot takes the start offset over all that was; 99 updates tell of 20 offsets each, in four state batches.
    """
    interval_count = record_count // RECORDS_PER_SNAPSHOT
    hot_count = interval_count // HOT_SHARE
    each_count = (interval_count - hot_count) // (LOG_PARTITION_COUNT * key_count)
    snapshot, updates = _share_batches()
    for partition in range(LOG_PARTITION_COUNT):
        keys = np.repeat(np.arange(key_count, dtype=np.int64), each_count)
        if partition == 0:
            keys = np.concatenate((keys, np.full(hot_count, key_count, np.int64)))
        keys = keys[np.random.default_rng(partition).permutation(len(keys))]
        with _segment(folder, SHARE_TOPIC, partition).open("wb") as out:
            out.writelines(_share_parts(snapshot, updates, keys))
    return RECORDS_PER_SNAPSHOT * (hot_count + LOG_PARTITION_COUNT * key_count * each_count)


def _share_parts(snapshot: Repeated, updates: Repeated, keys: I64) -> Iterator[bytes]:
    """One part a key in `keys`: a snapshot and what follows it."""
    of_key = _turns_of(keys)
    at_once = max(1, BATCHES_AT_ONCE // UPDATES_PER_SNAPSHOT)
    for first in range(0, len(keys), at_once):
        interval = np.arange(first, min(first + at_once, len(keys)), dtype=np.int64)
        offset, at = RECORDS_PER_SNAPSHOT * interval, START_MS + 1_000 * interval
        start, key = OFFSETS_PER_SNAPSHOT * of_key[interval], _bytes_of(keys[interval], 4)
        head = {"key-0": key, "start": _bytes_of(start, 8), "epoch-0": _bytes_of(of_key[interval], 4)}
        head |= {name: _bytes_of(at, 8) for name in ("created", "written")}
        values: dict[str, U8] = {}
        for number in range(UPDATES_PER_SNAPSHOT):
            values |= {f"key-{number}": key, f"epoch-{number}": head["epoch-0"]}
            for index in range(STATE_BATCHES_PER_UPDATE):
                place = STATE_BATCHES_PER_UPDATE * number + index
                begin = start + STATE_BATCH_OFFSETS * place
                values[f"first-{place}"] = _bytes_of(begin, 8)
                values[f"last-{place}"] = _bytes_of(begin + STATE_BATCH_OFFSETS - 1, 8)
        rows = (snapshot.rows(offset, at, head), updates.rows(offset + 1, at + 500, values))
        yield np.concatenate(rows, axis=1).tobytes()


def _share_batches() -> tuple[Repeated, Repeated]:
    """A snapshot without state batches, and the updates that follow it. Of an update's state batches every other one
    is AVAILABLE, handed back once; the others are ACKNOWLEDGED."""
    kind = ShareStateRecordType.SHARE_SNAPSHOT
    value_message = REGISTRY[SHARE_TOPIC][kind][1]
    fields = {name: _long_mark(number) for number, name in enumerate(("start", "created", "written"))}
    value = codec.make(
        value_message,
        snapshot_epoch=_number(_short_mark(1)),
        state_epoch=0,
        leader_epoch=1,  # with 0 it would be a reset
        start_offset=_number(fields["start"]),
        create_timestamp=_number(fields["created"]),
        write_timestamp=_number(fields["written"]),
        state_batches=(),
    )
    head = Record(0, 0, _share_key(kind, _short_mark(0)), codec.encode_value(SHARE_TOPIC, kind, 0, value))
    snapshot = Repeated.of([head], {"key-0": _short_mark(0), "epoch-0": _short_mark(1), **fields})

    kind = ShareStateRecordType.SHARE_UPDATE
    value_message = REGISTRY[SHARE_TOPIC][kind][1]
    records: list[Record] = []
    marks: dict[str, bytes] = {}
    for number in range(UPDATES_PER_SNAPSHOT):
        marks |= {f"key-{number}": _short_mark(2 * number), f"epoch-{number}": _short_mark(2 * number + 1)}
        batches = []
        for index in range(STATE_BATCHES_PER_UPDATE):
            place = STATE_BATCHES_PER_UPDATE * number + index
            first, last = _long_mark(2 * place), _long_mark(2 * place + 1)
            marks |= {f"first-{place}": first, f"last-{place}": last}
            batches.append(
                codec.make(
                    STATE_BATCH,
                    first_offset=_number(first),
                    last_offset=_number(last),
                    delivery_state=2 * (index % 2),
                    delivery_count=1,
                )
            )
        value = codec.make(
            value_message,
            snapshot_epoch=_number(marks[f"epoch-{number}"]),
            leader_epoch=-1,
            start_offset=-1,
            state_batches=tuple(batches),
        )
        encoded = codec.encode_value(SHARE_TOPIC, kind, 0, value)
        records.append(Record(number, 0, _share_key(kind, marks[f"key-{number}"]), encoded))
    return snapshot, Repeated.of(records, marks)


def _share_key(kind: ShareStateRecordType, partition: bytes) -> bytes:
    message = REGISTRY[SHARE_TOPIC][kind][0]
    fields = codec.make(message, group_id="workers", topic_id=TOPIC_ID, partition=_number(partition))
    return codec.encode_key(SHARE_TOPIC, kind, fields)


# --- nights over them

SHAPES: Final[Mapping[str, Callable[..., int]]] = {
    "hot log partition": hot_log_partition,
    "hot share partition": hot_share_partition,
    "large group": large_group,
    "many groups": many_groups,
    "one group": partial(hot_log_partition, group_count=1),
}


def compare(scratch: Path, names: Iterable[str] = SHAPES) -> None:
    """Print one line a shape: how long a night takes, and the largest processes."""
    for name in names:
        logs, warehouse = scratch / "logs", scratch / "warehouse"
        record_count = SHAPES[name](logs)
        size_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
        done = run(
            ["./spark-submit.sh", "nightly", "--segments", str(logs), "--warehouse", str(warehouse)], accepted=(0, 3)
        )
        reported = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in step_seconds(done.output).items())
        is_kept = done.used.worker_bytes <= WORKER_BYTES_MAX and done.used.jvm_bytes <= JVM_BYTES_MAX
        print(
            f"{name}: {record_count:,} records, {size_bytes / 1e6:,.0f} MB: {reported}; "
            f"largest Python worker {done.used.worker_bytes / 2**20:,.0f} MiB, "
            f"JVM {done.used.jvm_bytes / 2**20:,.0f} MiB: limits {'kept' if is_kept else 'NOT KEPT'}",
            flush=True,
        )
        for folder in (logs, warehouse):
            shutil.rmtree(folder)


def main() -> None:
    """Some shapes, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.skewed", description=__doc__)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []], metavar="SHAPE", help=", ".join(SHAPES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        compare(Path(scratch), options.shapes or SHAPES)


if __name__ == "__main__":
    main()
