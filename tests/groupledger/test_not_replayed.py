"""A group that cannot be replayed keeps no other of the Python API from its rows, without Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from groupledger import key_replay
from groupledger.key_replay import arrow_function, replay_of
from jobs.delta.core_tables import rows_table
from schemas.consumer_offsets import TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.silver import GROUP_GENERATIONS, OFFSET_COMMITS, SHARE_PARTITION_STATES
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_not_replayed import first_log, planted, planting
from tests.groupledger.raw import raw_records
from tests.groupledger.test_one_key import SCHEMA, keyed

Keys = dict[tuple[Any, ...], list[dict[str, Any]]]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Records of groups and share partitions by key; some of theirs are bad."""
    ledger, log, shares = Ledger(tmp_path / "warehouse"), first_log(), SmallLog(0, SHARE_TOPIC)
    for group_id in ("bad-share", "good-share"):
        shares.snapshot(group_id, NOON_MS, ((0, 9, 0, 1),))
    shares.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    return keyed(raw_records(ledger.warehouse))


class Drained:
    """Arrow batches that say whether they were read to their end."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self.is_done = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches
        self.is_done = True


def made_by(table: Table, keys: Keys, topic: str) -> list[dict[str, Any]]:
    """What Spark gets of all keys; each is read to its end, as Spark hands over the next one behind it."""
    function: Callable[[Any], Any] = arrow_function(replay_of(table, topic, has_markers=True))
    made: list[dict[str, Any]] = []
    for (of_topic, _, group_id, *_), rows in keys.items():
        if of_topic == topic:
            given = pa.Table.from_pylist(rows, schema=SCHEMA)
            given = given.append_column("group_id", pa.repeat(pa.scalar(group_id), len(rows)))
            batches = Drained(given.to_batches(max_chunksize=1))
            for batch in function(iter(batches)):
                made += batch.to_pylist()
            assert batches.is_done
    return made


@pytest.mark.parametrize("depth", ["history", "open rows", "columns", "commits"])
def test_a_group_that_cannot_be_replayed_keeps_no_other_from_its_rows(
    keys: Keys, depth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others have theirs, and its failure is among the errors with its place in the log and in the code."""
    with planting(depth, ValueError):
        if depth == "columns":
            failing = planted(ValueError, rows_table, lambda _, rows, *__: any(it.group_id == "bad" for it in rows))
            monkeypatch.setattr(key_replay, "rows_table", failing)
        generations = made_by(GROUP_GENERATIONS, keys, TOPIC)
        commits = made_by(OFFSET_COMMITS, keys, TOPIC)
        errors = made_by(QUARANTINE, keys, TOPIC)
    assert {row["group_id"] for row in generations} >= {"good", "also"}
    assert {row["group_id"] for row in commits} >= {"good", "also", "good-simple"}
    assert {(row["stage"], row["code"]) for row in errors} == {("REPLAY", "NOT_REPLAYED")}
    assert "bad" in {row["group_id"] for row in errors} <= {"bad", "bad-simple"}
    for row in errors:
        assert row["offset"] is not None and row["partition"] == 0
        assert f"group {row['group_id']!r}" in row["message"] and "ValueError: planted" in row["message"]
        assert ".py:" in row["message"]


def test_nothing_is_an_error_where_all_can_be_replayed(keys: Keys) -> None:
    """The errors of groups and share partitions are empty, though every table of them was made."""
    assert made_by(QUARANTINE, keys, TOPIC) == []
    assert made_by(QUARANTINE, keys, SHARE_TOPIC) == []


def test_a_share_partition_that_cannot_be_replayed(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of share groups."""
    feed = ColumnarShareReplay.feed
    failing = planted(OverflowError, feed, lambda _, chunk: b"bad-share" in chunk.data.tobytes())
    monkeypatch.setattr(ColumnarShareReplay, "feed", failing)
    states = made_by(SHARE_PARTITION_STATES, keys, SHARE_TOPIC)
    assert {row["group_id"] for row in states} == {"good-share"}
    (error,) = made_by(QUARANTINE, keys, SHARE_TOPIC)
    assert (error["code"], error["group_id"]) == ("NOT_REPLAYED", "bad-share")


def test_a_fault_of_the_machine_is_none_of_a_group(keys: Keys) -> None:
    """Where memory or a disk fails, the job fails: no group is left out for it."""
    with planting("history", MemoryError), pytest.raises(MemoryError):
        made_by(GROUP_GENERATIONS, keys, TOPIC)
