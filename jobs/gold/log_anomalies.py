"""Rows of gold.log_anomalies, and what the share state of a log partition contradicts."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from coordinator_core.confidence import CERTAIN, LIKELY
from coordinator_core.inference.audit.log_anomalies import (
    RULES,
    STATE_EPOCH_UNSET,
    LogAnomalyRow,
    ShareBreak,
    ShareEpochs,
    share_breaks,
)
from coordinator_core.inference.facts.log_facts import is_any_between
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS
from jobs.delta.arrow_columns import epoch_ms_column, indices_in, numbers_of
from jobs.delta.core_tables import rows_table
from jobs.gold.share_reader import StateRows
from jobs.gold.task import AuditParts
from schemas.group_types import GroupType
from schemas.tables.gold import LOG_ANOMALIES

EPOCH_COLUMNS: Final = ("start_offset", "state_epoch", "snapshot_epoch", "leader_epoch")


def write_log_anomalies(rows: list[LogAnomalyRow], log_topic: str, parts: AuditParts) -> None:
    """Write rows of gold.log_anomalies, of either coordinator topic."""
    if rows:
        parts.write(LOG_ANOMALIES, rows_table(LOG_ANOMALIES, rows, {"log_topic": log_topic}))


def share_anomalies(states: StateRows, log_partition: int, holes: Sequence[int] = ()) -> list[LogAnomalyRow]:
    """Broken rules of the share partitions of one log partition, in log order.

    `holes`: where missing parts of the log partition begin, ascending. A reset or a deletion may be in them.
    """
    table = states.rows
    epochs = ShareEpochs(
        key=states.key,
        log_offset=numbers_of(table["log_offset"]),
        record_kind=indices_in(table["record_kind"], RECORD_KINDS),
        **{name: numbers_of(table[name]) for name in EPOCH_COLUMNS},
    )
    rows = [row for broken in share_breaks(epochs) for row in _rows_of_break(table, broken, log_partition, holes)]
    return sorted(rows, key=lambda row: (row.log_offset, row.rule))


def _rows_of_break(
    states: pa.Table, broken: ShareBreak, log_partition: int, holes: Sequence[int]
) -> list[LogAnomalyRow]:
    found = states.take(pa.array(broken.rows)).to_pylist()
    before = states[broken.column].take(pa.array(broken.previous)).to_pylist()
    begins = states["log_offset"].take(pa.array(broken.previous)).to_pylist()
    at = epoch_ms_column(states["valid_from"].take(pa.array(broken.rows))).tolist()
    return [
        LogAnomalyRow(
            row["group_id"],
            GroupType.SHARE,
            broken.rule,
            log_partition,
            row["log_offset"],
            0,
            at[number],
            row["topic"],
            row["topic_id"],
            row["partition"],
            None,
            f"{broken.column} {row[broken.column]} after {before[number]}, in a record of kind {row['record_kind']}",
            *RULES[broken.rule],
            "SUCCESSIVE_STATES",
            LIKELY if is_behind_hole else CERTAIN,
        )
        for number, row in enumerate(found)
        # a record that is missing between the two explains a number that fell, but not what the second one has itself
        if not (is_behind_hole := is_any_between(holes, begins[number], row["log_offset"]))
        or broken.rule == STATE_EPOCH_UNSET
    ]
