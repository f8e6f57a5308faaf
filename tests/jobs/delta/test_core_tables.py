"""Tests of the core's rows as Arrow tables."""

import numpy as np
import pyarrow as pa

from coordinator_core.history.rows import Assigned, AssignmentRows, AssignmentRun
from coordinator_core.replay.columnar.share_state_columnar import KeyDictionary
from coordinator_core.replay.columnar.share_state_rows import StateBatchRows, TransitionRows
from jobs.delta.core_tables import (
    ShareKeys,
    assignments_table,
    rows_table,
    share_batches_table,
    share_transitions_table,
)
from schemas.tables.silver import MEMBER_ASSIGNMENTS

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEYS = KeyDictionary(["g", "h"], [TOPIC_ID, "B" * 22], np.array([0, 7], np.int32))


def batch_rows(*states: int) -> StateBatchRows:
    """One row a delivery state; every other one of them is open."""
    count = len(states)
    offsets = np.arange(count)
    return StateBatchRows(
        key=(offsets % 2).astype(np.int32),
        first_offset=offsets,
        last_offset=offsets,
        delivery_state=np.array(states, np.int8),
        delivery_count=offsets.astype(np.int32),
        from_log_offset=offsets,
        valid_from_ms=offsets,
        to_log_offset=offsets + 5,
        valid_to_ms=offsets + 9,
        has_end=offsets % 2 == 0,
        is_complete=offsets % 3 == 0,
    )


def test_every_code_of_a_delivery_state_has_a_name_and_the_types_are_the_same() -> None:
    """A file takes tables of one type: codes which Kafka does not have may come in any of them."""
    usual = share_batches_table(batch_rows(0, 4, 2), ShareKeys(KEYS, {}), 3)
    unusual = share_batches_table(batch_rows(0, -1, 127), ShareKeys(KEYS, {}), 3)
    assert usual["delivery_state"].to_pylist() == ["AVAILABLE", "ARCHIVED", "ACKNOWLEDGED"]
    assert unusual["delivery_state"].to_pylist() == ["AVAILABLE", "UNKNOWN_-1", "UNKNOWN_127"]
    assert unusual["delivery_state_code"].to_pylist() == [0, -1, 127]
    assert usual.schema == unusual.schema


def test_assignments_reported_in_runs_are_the_rows_one_by_one() -> None:
    """What a run's rows share is in each of them, nulls and all."""
    rows = AssignmentRows()
    runs: tuple[tuple[str, str, int | None, Assigned], ...] = (
        ("CONSUMER", "m", 9, {TOPIC_ID: (0, 3)}),
        ("STREAMS", "n", None, {("ACTIVE", "t"): (1,)}),
        ("CLASSIC", "o", 8, {"s": (2, 4), "t": (0, 5, 6)}),
    )
    for group_type, member_id, to_log_offset, assigned in runs:
        run = AssignmentRun("g", group_type, member_id, "TARGET", 1, to_log_offset, 2, to_log_offset, 0, 5, 6)
        rows.append(run, assigned)
    made = assignments_table(rows, 3)
    assert (len(rows), made.num_rows) == (8, 8)
    columns = ("task_type", "topic_id", "topic", "partition")
    assert list(zip(*(made[name].to_pylist() for name in columns), strict=True))[1:4] == [
        (None, TOPIC_ID, None, 3),
        ("ACTIVE", None, "t", 1),
        (None, None, "s", 2),
    ]
    assert made.equals(rows_table(MEMBER_ASSIGNMENTS, list(rows), {"log_partition": 3}))


def test_what_is_not_known_is_null() -> None:
    """An open row has no end, and a topic without a name has none."""
    table = share_batches_table(batch_rows(0, 1, 2, 3), ShareKeys(KEYS, {TOPIC_ID: "t"}), 3)
    assert table["to_log_offset"].to_pylist() == [5, None, 7, None]
    assert table["valid_to"].cast(pa.int64()).to_pylist() == [9000, None, 11000, None]
    assert table["topic"].to_pylist() == ["t", None, "t", None]
    assert table["group_id"].to_pylist() == ["g", "h", "g", "h"]
    assert table["partition"].to_pylist() == [0, 7, 0, 7]
    assert table["is_complete"].to_pylist() == [True, False, False, True]
    table.validate(full=True)


def test_transitions_without_a_state_before() -> None:
    """State and count are null together."""
    offsets = np.arange(3)
    is_known = np.array([False, True, True])
    rows = TransitionRows(
        key=np.zeros(3, np.int32),
        log_offset=offsets,
        at_ms=offsets,
        first_offset=offsets,
        last_offset=offsets,
        has_from=is_known,
        from_state=np.array([0, 0, 2], np.int8),
        from_delivery_count=np.array([0, 1, 2], np.int32),
        has_to=~is_known,
        to_state=np.array([4, 0, 0], np.int8),
        to_delivery_count=np.array([5, 0, 0], np.int32),
        kind=np.array([0, 5, 6], np.int8),
        leader_changed=is_known,
    )
    table = share_transitions_table(rows, ShareKeys(KEYS, {}), 3)
    assert table["from_state"].to_pylist() == [None, "AVAILABLE", "ACKNOWLEDGED"]
    assert table["from_delivery_count"].to_pylist() == [None, 1, 2]
    assert table["to_state"].to_pylist() == ["ARCHIVED", None, None]
    assert table["to_delivery_count"].to_pylist() == [5, None, None]
    assert table["kind"].to_pylist() == ["FIRST_SEEN", "PASSED", "RESET"]
    assert table["topic"].type.value_type == pa.string()
    table.validate(full=True)
