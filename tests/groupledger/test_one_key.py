"""What happens to the records of one key in a worker, without Spark: the rows of nightly, however they come."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.bytes import codec
from coordinator_core.errors import DecodeError
from groupledger import chunks
from groupledger.chunks import chunk_of, key_rows
from groupledger.key_replay import ReplayKey, replay_of
from jobs.silver.tasks import TABLES_OF_TOPIC
from schemas.consumer_offsets import TOPIC as GROUPS
from schemas.share_group_state import TOPIC as SHARES
from schemas.tables import TABLES
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import RECORDINGS
from tests.lengths import takes_minutes

QUICK = ("full-a", "compact-partial", "old-40")


def replays(topic: str) -> dict[str, ReplayKey]:
    """By table, the function that makes its rows."""
    return {table.full_name: replay_of(table, topic, has_markers=True) for table in TABLES_OF_TOPIC[topic]}


OF_GROUPS, OF_SHARES = replays(GROUPS), replays(SHARES)
NAMES_OF_IDS = {
    "silver.member_assignments": ("topic",),
    "silver.share_partition_states": ("topic",),
    "silver.share_state_batches": ("topic",),
    "silver.share_batch_transitions": ("topic",),
}
"""Columns of names of topic ids, which records of one key do not tell."""


def keyed(records: pa.Table) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The records of each group and share partition, sorted by offset; markers go to all groups of their partition."""
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    markers = defaultdict(list)
    for row in sorted(records.to_pylist(), key=lambda row: row["offset"]):
        made = {
            "log_partition": row["partition"],
            "log_offset": row["offset"],
            "timestamp_ms": -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            "key": row["key"],
            "value": row["value"],
            "operation": row["base_offset"],
            "producer_id": row["producer_id"],
            "is_transactional": row["is_transactional"],
            "control_type": {None: -1, "ABORT": 0, "COMMIT": 1}[row["control_type"]],
        }
        if row["is_control"]:
            markers[row["topic"], row["partition"]].append(made)
            continue
        if row["topic"] not in (GROUPS, SHARES):
            continue
        try:
            key = codec.decode_key(row["topic"], row["key"]).fields
        except DecodeError:
            continue
        group_id = getattr(key, "group_id", getattr(key, "group", None))
        of_share = (key.topic_id, key.partition) if row["topic"] == SHARES else ()
        by_key[row["topic"], row["partition"], group_id, *of_share].append(made)
    for (topic, partition, *_), rows in by_key.items():
        rows.extend(markers[topic, partition])
        rows.sort(key=lambda row: row["log_offset"])
    return by_key


SCHEMA = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("operation", pa.int64()),
        ("producer_id", pa.int64()),
        ("is_transactional", pa.bool_()),
        ("control_type", pa.int8()),
    ]
)


def in_batches(rows: list[dict[str, Any]], sizes: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Rows in Arrow batches of some sizes."""
    table, start = pa.Table.from_pylist(rows, schema=SCHEMA), 0
    while start < len(rows):
        size = sizes()
        yield from table.slice(start, size).to_batches()
        start += size


def rows_of(replay: ReplayKey, batches: Iterator[pa.RecordBatch], name: str) -> list[str]:
    """What a replay makes, as texts that can be compared."""
    left_out = NAMES_OF_IDS.get(name, ())
    columns = [column for column in TABLES[name].column_names if column not in ("cluster_id", *left_out)]
    made = [rows.select(columns).to_pylist() for _, rows in replay(batches) if rows.num_rows]
    return [repr(row) for some in made for row in some]


@pytest.mark.parametrize(
    "recording",
    [name if name in QUICK else pytest.param(name, marks=takes_minutes) for name in RECORDINGS],
)
def test_rows_of_keys_are_those_of_nightly(recorded: Recorded, recording: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one key at a time, in Arrow batches of random sizes and chunks of a few rows, give nightly's rows."""
    ledger, records = recorded(recording)
    random = Random(recording)
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MIN", 16)
    keys = keyed(records)
    for topic, tables in ((GROUPS, OF_GROUPS), (SHARES, OF_SHARES)):
        for name, replay in tables.items():
            made: list[str] = []
            for key, rows in keys.items():
                if key[0] == topic:
                    made += rows_of(replay, in_batches(rows, lambda: random.randint(1, 40)), name)
            left_out = ("cluster_id", *NAMES_OF_IDS.get(name, ()))
            columns = [column for column in TABLES[name].column_names if column not in left_out]
            expected = [repr(row) for row in ledger.table(name).select(columns).to_pylist()]
            assert sorted(made) == sorted(expected), name


def one(offset: int, value: bytes | None, *, timestamp_ms: int = 0) -> dict[str, Any]:
    """A record of some key."""
    return {
        "log_partition": 3,
        "log_offset": offset,
        "timestamp_ms": timestamp_ms,
        "key": b"key",
        "value": value,
        "operation": offset,
        "producer_id": -1,
        "is_transactional": False,
        "control_type": -1,
    }


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_copies_of_a_record_count_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of copies of an offset one is replayed; of different content the same one, in whatever order they come."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MIN", 2)
    rows = [one(0, b"a"), one(0, b"a"), one(1, b"x"), one(1, b"b"), one(1, b"x"), one(1, None), one(2, b"c")]
    for order in (rows, [*rows[:2], *reversed(rows[2:6]), rows[6]]):
        found = []
        for chunk in map(chunk_of, key_rows(in_batches(order, lambda: size), keeps_operations=True)):
            records, data = chunk.records.records, chunk.records.data
            for offset, position, length in zip(
                records.offset, records.value_position, records.value_length, strict=True
            ):
                found.append((int(offset), None if length < 0 else bytes(data[position : position + length])))
        assert found == [(0, b"a"), (1, None), (2, b"c")]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_operation_is_never_cut(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one operation are in one chunk and one batch of it, though Spark cuts between them."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MIN", 1)
    rows = [one(offset, b"", timestamp_ms=offset // 4) | {"operation": offset // 4} for offset in range(20)]
    together = list(map(chunk_of, key_rows(in_batches(rows, lambda: size), keeps_operations=True)))
    found = [[offset // 4 for offset in chunk.records.records.offset.tolist() if offset % 4 == 0] for chunk in together]
    assert list(chain.from_iterable(found)) == [0, 1, 2, 3, 4]
    for chunk in together:
        assert len(chunk.records.records) % 4 == 0
        assert len(chunk.records.batches) == len(chunk.records.records) // 4


LARGE = 2**53
"""From here on floats differ from whole numbers."""


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([LARGE, LARGE + 1, None], [0, 1, 2]),
        ([LARGE, LARGE, None, None, LARGE], [0, 2, 4]),
        ([None, None, -1, -1], [0, 2]),
    ],
)
def test_an_operation_may_be_unknown(operations: list[int | None], expected: list[int]) -> None:
    """A known operation is exact although others are unknown; contiguous records of one time without one form one."""
    rows = [one(LARGE + place, b"") | {"operation": operation} for place, operation in enumerate(operations)]
    (chunk,) = map(chunk_of, key_rows(in_batches(rows, lambda: 100), keeps_operations=True))
    assert (chunk.records.batches.base_offset - LARGE).tolist() == expected


COMMIT = bytes.fromhex("000100016700017400000000"), bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
SHARE_KEY = bytes.fromhex("0000000167") + bytes(20)
ODD_VALUES: list[dict[str, Any]] = [
    {"log_offset": -5},
    {"log_offset": 2**63 - 1},
    {"timestamp_ms": None},
    {"timestamp_ms": 2**62},
    {"timestamp_ms": -(2**63)},
    {"producer_id": None, "is_transactional": None},
    {"producer_id": -9, "is_transactional": True},
    {"control_type": None},
    {"operation": None},
    {"operation": 99},
    {"key": None},
    {"key": b""},
    {"key": None, "value": None},
    {"value": b""},
    {"control_type": 1, "key": None, "value": None, "producer_id": 5},
]


@pytest.mark.parametrize("odd", ODD_VALUES, ids=str)
def test_no_value_of_a_column_is_an_exception(odd: dict[str, Any]) -> None:
    """Whatever a column holds, the records of the key are replayed and the worker goes on."""
    key, value = COMMIT
    good = one(7, value) | {"log_partition": 0, "key": key}
    for name, replay in {**OF_GROUPS, **OF_SHARES}.items():
        of_share = {"key": SHARE_KEY} if name in OF_SHARES else {}
        rows = sorted([good | of_share, good | {"log_offset": 3} | of_share | odd], key=lambda row: row["log_offset"])
        made = rows_of(replay, in_batches(rows, lambda: 5), name)
        if name == "silver.offset_commits":
            assert any("'log_offset': 7" in row and "'committed_offset': 5" in row for row in made)
