"""replay: assignments under the names of topics that some log partition tells, whichever task it is in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.coordinator.records import encode_record
from jobs.silver import replay
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from schemas.tables.silver import MEMBER_ASSIGNMENTS, SILVER_TABLES
from tests.coordinator_core.live.consumer.members import A, B, Members
from tests.jobs.silver.test_replay import Jobs, log_folder

TOPIC_IDS = {"a": A, "b": B}


def joined(members: Members, member_id: str, offset: int = 0) -> bytes:
    """What the coordinator writes, from `offset` on, when a consumer joins a group: one operation. It subscribes to two
    topics, so that its target tells no name."""
    members.join(member_id, *TOPIC_IDS)
    return build_batch(
        [
            Record(offset + index, it.timestamp_ms, *encode_record(it.record), ())
            for index, it in enumerate(members.records)
        ]
    )


def telling(topic: str, offset: int) -> bytes:
    """A commit, of another group, that has the name of a topic next to its id."""
    key = make(OFFSET_COMMIT_KEY, group="other", topic=topic, partition=0)
    value = make(OFFSET_COMMIT_VALUE, offset=1, metadata="", commit_timestamp=1000, topic_id=TOPIC_IDS[topic])
    commit = RecordType.OFFSET_COMMIT
    return build_batch(
        [Record(offset, 1000, encode_key(TOPIC, commit, key), encode_value(TOPIC, commit, 4, value), ())]
    )


def assigned(jobs: Jobs) -> set[tuple[str, str | None]]:
    """Topic ids of all assignments with the names that they have."""
    rows = jobs.warehouse.read(MEMBER_ASSIGNMENTS, ["topic_id", "topic"]).to_pylist()
    return {(row["topic_id"], row["topic"]) for row in rows}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each round of a replay has, once it ran."""
    counts: list[int] = []

    def counted(executor: Executor, function: Any, work: Sequence[Any], what: str) -> list[Any]:
        counts.append(len(work))
        return run_tasks(executor, function, work, what)

    monkeypatch.setattr(replay, "run_tasks", counted)
    return counts


@pytest.mark.parametrize("reported", [(), ("a",), ("a", "b")], ids=["none", "one", "both"])
def test_names_that_another_task_learned(
    no_spark: Executor, tmp_path: Path, rounds: list[int], reported: Sequence[str]
) -> None:
    """Assignments are written under the names that their task knows, and once more where another one learned more: the
    files of before are gone."""
    commits = b"".join(telling(topic, offset) for offset, topic in enumerate(reported))
    logs = log_folder(tmp_path / "logs", [joined(Members(), "m"), *([commits] if reported else [])])
    run = Jobs(no_spark, tmp_path / "warehouse", logs)
    run.nightly()
    assert assigned(run) == {(topic_id, topic if topic in reported else None) for topic, topic_id in TOPIC_IDS.items()}
    assert rounds == ([2, 1] if reported else [1, 0])
    for table in SILVER_TABLES:
        assert run.warehouse.unreferenced(table, retention_hours=0, orphans_only=True) == [], table.full_name


def test_names_that_the_task_knows(no_spark: Executor, tmp_path: Path, rounds: list[int]) -> None:
    """From the log partition itself, or from a run before: there is nothing to write once more."""
    members = Members()
    first = joined(members, "m") + telling("a", 100) + telling("b", 101)
    logs = log_folder(tmp_path / "logs", [first])
    run = Jobs(no_spark, tmp_path / "warehouse", logs)
    run.nightly("r1")
    before = run.warehouse.read(MEMBER_ASSIGNMENTS).num_rows
    (segment,) = logs.rglob("*.log")
    segment.write_bytes(first + joined(members, "m2", 200))
    run.nightly("r2")
    assert run.warehouse.read(MEMBER_ASSIGNMENTS).num_rows > before
    assert assigned(run) == {(topic_id, topic) for topic, topic_id in TOPIC_IDS.items()}
    assert rounds == [1, 0, 1, 0]
