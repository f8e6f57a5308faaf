"""Row types of the arrays that the compiled replay of share states uses, as NumPy structured types.

Rows from which a later run continues (`KEY`, `BATCH`, `STATE`, `RANGE`) have only int64 fields: a checkpoint stores
them as tables of numbers, with one column for each field. Rows that are only output are narrow, because the replay is
bound by memory bandwidth.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.log.chunk import I64

Rows = NDArray[Any]
"""An array of one of the row types below: `rows[i].field` in a compiled loop, `rows["field"]` elsewhere."""
Row = Any
"""A row of such an array, as a view: assignments change the array."""


def _of_numbers(*fields: str) -> "np.dtype[Any]":
    return np.dtype([(field, np.int64) for field in fields])


KEY: Final = _of_numbers(
    "flags",
    "snapshot_epoch",
    "state_epoch",
    "leader_epoch",
    "start",
    "complete_count",
    "created",
    "written",
    "passed",  # The furthest start offset since the state began: a stale writer may have set the start offset back.
    "region",  # The key's batches in the pool: start of its region, capacity, first row in use, and number of rows.
    "capacity",
    "head",
    "length",
    "available",  # Offsets by delivery state. Sums may overflow and return.
    "acknowledged",
    "archived",
    "row",  # The key's open row of share_partition_states, or -1.
    "archiving",
)

RANGE: Final = _of_numbers("first", "last", "rank")
"""A state batch as it is in a record."""

BATCH: Final = _of_numbers("first", "last", "rank", "from_offset", "from_at", "is_complete")
"""A current state batch, with the record that opened its row of share_state_batches."""

STATE: Final = _of_numbers(
    "key",
    "offset",
    "at",
    "to_offset",
    "to_at",
    "kind",
    "snapshot_epoch",
    "state_epoch",
    "leader_epoch",
    "start",
    "effective_start",
    "complete_count",
    "created",
    "written",
    "changed",  # Index of the row's first changed batch in `ColumnarArrays.changed`.
    "changed_count",
    "batch_count",
    "available",
    "acknowledged",
    "archived",
    "is_complete",
    "archiving",
)
"""A row of share_partition_states."""

ENDED_BATCH: Final = np.dtype(
    [
        ("first", np.int64),
        ("last", np.int64),
        ("from_offset", np.int64),
        ("from_at", np.int64),
        ("to_offset", np.int64),
        ("to_at", np.int64),
        ("key", np.int32),
        ("delivery_count", np.int16),
        ("delivery_state", np.int8),
        ("is_complete", np.bool_),
    ]
)
"""A row of share_state_batches."""

TRANSITION: Final = np.dtype(
    [
        ("offset", np.int64),
        ("at", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("key", np.int32),
        ("from_count", np.int16),
        ("to_count", np.int16),
        ("from_state", np.int8),
        ("to_state", np.int8),
        ("kind", np.int8),
        ("has_from", np.bool_),
        ("has_to", np.bool_),
        ("leader_changed", np.bool_),
    ],
    align=True,
)
"""A row of share_batch_transitions."""

FINDING: Final = _of_numbers("key", "code", "offset", "before", "after")

COUNTS: Final = _of_numbers(
    *("states", "changed", "batches", "transitions", "findings", "pool"),  # Rows in use.
    *("decoded", "tombstones", "control", "unknown_type"),  # Records.
    *("needed_key", "needed_batches"),  # With NEED_ROOM: the key, and how many batches its record has.
    # Capacities, in rows.
    *(
        "states_max",
        "changed_max",
        "batches_max",
        "transitions_max",
        "findings_max",
        "pool_max",
        "own_max",
        "merged_max",
    ),
)


def as_numbers(rows: Rows) -> I64:
    """The rows as a table of numbers, with one column for each field, for row types with only int64 fields."""
    assert rows.dtype.names is not None
    numbers: I64 = np.ascontiguousarray(rows).view(np.int64).reshape(len(rows), len(rows.dtype.names))
    return numbers


def as_rows(numbers: I64, row_type: "np.dtype[Any]") -> Rows:
    return np.ascontiguousarray(numbers, np.int64).view(row_type).reshape(len(numbers))
