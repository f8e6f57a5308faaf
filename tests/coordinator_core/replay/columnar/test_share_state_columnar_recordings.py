"""The columnar replay on the logs of real brokers, against what the brokers answered to ReadShareGroupState at the
time."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS
from coordinator_core.replay.lookup import SharePartitionKey, share_partition_partition
from coordinator_core.replay.share_state.combine import StateBatch
from tests.coordinator_core.live.share_state.reference import canonical_batches
from tests.recorded import RECORDINGS

TOPIC = "__share_group_state"


def replayed(logs: Path) -> dict[int, list[ColumnarOutput]]:
    """By log partition; one chunk a segment."""
    outputs: dict[int, list[ColumnarOutput]] = {}
    for folder in logs.glob(f"{TOPIC}-*"):
        columnar = ColumnarShareReplay()
        partition = int(folder.name.rpartition("-")[2])
        segments = sorted(folder.glob("*.log"))
        outputs[partition] = [columnar.feed(decode_chunk(np.fromfile(segment, np.uint8))) for segment in segments]
        outputs[partition].append(columnar.finish())
    return outputs


def answers(recording: Path, partition_count: int) -> Iterator[tuple[SharePartitionKey, int, dict[str, Any]]]:
    """What the broker said of a share partition, and the end of the log which it had then: only where that is sure."""
    topics = json.loads((recording / "truth" / "topics.json").read_text())["topics"]
    for line in (recording / "truth" / "snapshots.jsonl").read_text().splitlines():
        snapshot = json.loads(line)
        for group_id, group in snapshot["groups"].items():
            for topic_partition, answer in ((group or {}).get("coordinator_state") or {}).items():
                topic, _, partition = topic_partition.rpartition("-")
                if topic not in topics or answer["error"] != "NONE":
                    continue
                key = SharePartitionKey(group_id, topics[topic]["topic_id"], int(partition))
                log = f"{TOPIC}-{share_partition_partition(key, partition_count)}"
                if snapshot["leo_before"][log] == snapshot["leo_after"][log]:
                    yield key, snapshot["leo_before"][log], answer


def state_at(outputs: list[ColumnarOutput], key: SharePartitionKey, end_offset: int) -> tuple[int, int] | None:
    """Start offset and state epoch after all records below `end_offset`."""
    for output in outputs:
        rows = output.partition_states
        is_then = (rows.log_offset < end_offset) & (~rows.has_end | (rows.to_log_offset >= end_offset))
        for i in np.flatnonzero(is_then).tolist():
            if output.keys[int(rows.key[i])] == key and rows.has_state[i]:
                return int(rows.start_offset[i]), int(rows.state_epoch[i])
    return None


def batches_at(outputs: list[ColumnarOutput], key: SharePartitionKey, end_offset: int) -> set[StateBatch]:
    """The rows which are open after all records below `end_offset`."""
    batches = set()
    for output in outputs:
        rows = output.state_batches
        is_then = (rows.from_log_offset < end_offset) & (~rows.has_end | (rows.to_log_offset >= end_offset))
        for i in np.flatnonzero(is_then).tolist():
            if output.keys[int(rows.key[i])] == key:
                columns = (rows.first_offset, rows.last_offset, rows.delivery_state, rows.delivery_count)
                batches.add(StateBatch(*(int(column[i]) for column in columns)))
    return batches


@pytest.mark.parametrize(
    ("name", "answer_count"),
    [("full-a", 124), ("p50", 131), ("compact", 22), ("codec-gzip", 11), ("codec-zstd", 15)],
)
def test_intervals_hold_what_the_broker_answered(name: str, answer_count: int) -> None:
    """At the log position of each answer the rows in force are the start offset, the state epoch and the batches."""
    outputs = replayed(RECORDINGS / name / "logs")
    compared = 0
    for key, end_offset, answer in answers(RECORDINGS / name, len(outputs)):
        of_partition = outputs[share_partition_partition(key, len(outputs))]
        state = state_at(of_partition, key, end_offset)
        if state is None:
            continue
        compared += 1
        assert state == (answer["start_offset"], answer["state_epoch"]), key
        expected = canonical_batches(StateBatch(*batch) for batch in answer["batches"])
        assert batches_at(of_partition, key, end_offset) == set(expected), key
    assert compared == answer_count


def test_kinds_of_the_records_of_a_recording() -> None:
    """Two groups' offsets were altered (RESET); nothing of a real broker's log is odd."""
    outputs = [output for part in replayed(RECORDINGS / "full-a" / "logs").values() for output in part]
    kinds = Counter(RECORD_KINDS[kind] for output in outputs for kind in output.partition_states.record_kind)
    assert kinds == {"SNAPSHOT": 51, "UPDATE": 617, "RESET": 2, "TOMBSTONE": 5}
    assert [finding for output in outputs for finding in output.findings] == []
