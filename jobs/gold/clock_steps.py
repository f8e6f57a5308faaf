"""Clock steps: where the timestamps of bronze's batches in a log partition go back, since clocks of leaders differ."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.audit.log_anomalies import TIME_WENT_BACK, LogAnomalyRow, clock_step, time_went_back
from jobs.delta.arrow_columns import epoch_ms_column, numbers_of
from jobs.delta.part_files import LOG_PARTITION
from jobs.delta.table_files import TableFile, read_file
from jobs.delta.times import epoch_ms
from jobs.gold.task import AuditParts, AuditWork
from schemas.tables.bronze import RECORD_BATCHES

COLUMNS = ("base_offset", "max_timestamp", "crc_valid")


def clock_steps(
    work: AuditWork, parts: AuditParts, log_partition: int, from_log_offset: int = 0
) -> list[LogAnomalyRow]:
    """The clock steps of a log partition from a log offset on, in log order.

    Where retention deleted batches, those that the last audit found stay: they may have been in what is deleted.
    """
    steps = _steps_seen(work, log_partition, from_log_offset)
    if log_partition not in work.shortened:
        return steps
    known = {step.log_offset for step in steps}
    former = (
        clock_step(log_partition, row["log_offset"], epoch_ms(row["at"]), row["details"])
        for row in _former_steps(parts, log_partition, work.topic)
        if row["log_offset"] >= from_log_offset and row["log_offset"] not in known
    )
    return sorted([*steps, *former], key=lambda step: step.log_offset)


def _former_steps(parts: AuditParts, log_partition: int, topic: str) -> Iterator[dict[str, Any]]:
    """Rows of gold.log_anomalies in which the last audit reported the clock steps of a log partition."""
    rows = parts.former_log_anomalies()
    is_step = pc.and_(pc.equal(rows["rule"], TIME_WENT_BACK), pc.equal(rows["log_topic"], topic))
    is_own = pc.and_(is_step, pc.equal(rows[LOG_PARTITION], log_partition))
    yield from rows.filter(is_own).select(["log_offset", "at", "details"]).to_pylist()


def _steps_seen(work: AuditWork, log_partition: int, from_log_offset: int) -> list[LogAnomalyRow]:
    """The clock steps in bronze. Before the log offset, only as many files are read as are needed to find a timestamp:
    mostly one."""
    behind, others = split_files(work.batch_files.get(log_partition, ()), from_log_offset)
    parts = [_times_of(file) for file in others]
    for file in behind:
        parts.append(_times_of(file))
        if len(parts[-1][0]):
            break
    if not parts:
        return []
    offset, at_ms = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(offset, kind="stable")
    return time_went_back(log_partition, offset[order], at_ms[order], from_log_offset)


def _times_of(file: TableFile) -> tuple[I64, I64]:
    """Base offsets and max timestamps (ms) of the intact batches of a file that have a timestamp.

    The timestamps of batches with a wrong CRC prove nothing about a clock.
    """
    rows = read_file(file, RECORD_BATCHES, COLUMNS)
    at_ms, offset = epoch_ms_column(rows["max_timestamp"]), numbers_of(rows["base_offset"])
    timed = (at_ms >= 0) & rows["crc_valid"].to_numpy()
    return offset[timed], at_ms[timed]


def split_files(files: Sequence[TableFile], from_log_offset: int) -> tuple[list[TableFile], list[TableFile]]:
    """Files that end before a log offset, in descending order, and the other files."""
    if not from_log_offset:
        return [], list(files)

    def last_offset(file: TableFile) -> int:
        return int(file.maximum.get("last_offset", from_log_offset))

    behind = [file for file in files if last_offset(file) < from_log_offset]
    return sorted(behind, key=last_offset, reverse=True), [
        file for file in files if last_offset(file) >= from_log_offset
    ]


def steps_before(parts: AuditParts, log_partition: int, topic: str, to_log_offset: int) -> list[int]:
    """Log offsets of the steps that the last audit found before a log offset, ascending."""
    offsets = (row["log_offset"] for row in _former_steps(parts, log_partition, topic))
    return sorted(offset for offset in offsets if offset < to_log_offset)
