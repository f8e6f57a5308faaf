"""Where the time of a log partition goes back, as bronze's batches tell: clocks of leaders that differ."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core.inference.broken_rules import TIME_WENT_BACK, LogAnomalyRow, time_went_back
from jobs.arrow_columns import epoch_ms_column, numbers_of
from jobs.arrow_schemas import arrow_schema, stored_column
from jobs.audit_work import AuditParts, AuditWork
from jobs.sinks import TableFile
from jobs.stores import filesystem_of
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.gold import LOG_ANOMALIES

COLUMNS = ("base_offset", "max_timestamp")


def clock_steps(work: AuditWork, log_partition: int, from_log_offset: int = 0) -> list[LogAnomalyRow]:
    """Steps back of a log partition from a place on, in log order. Of what lies before it, one file is read."""
    files = needed_files(work.batch_files.get(log_partition, ()), from_log_offset)
    schema = pa.schema([arrow_schema(RECORD_BATCHES).field(name).remove_metadata() for name in COLUMNS])
    parts = []
    for file in files:
        filesystem, path = filesystem_of(file.path)
        with filesystem.open_input_file(path) as source:
            rows = pq.ParquetFile(source).read(columns=list(COLUMNS), use_threads=False)
            parts.append(pa.Table.from_arrays([stored_column(rows, field) for field in schema], schema=schema))
    if not parts:
        return []
    rows = pa.concat_tables(parts)
    at_ms, offset = epoch_ms_column(rows["max_timestamp"]), numbers_of(rows["base_offset"])
    timed = np.flatnonzero(at_ms >= 0)
    timed = timed[np.argsort(offset[timed], kind="stable")]
    return time_went_back(log_partition, offset[timed], at_ms[timed], from_log_offset)


def needed_files(files: Sequence[TableFile], from_log_offset: int) -> list[TableFile]:
    """Files with batches from a place on, and of the others the one that goes furthest."""
    if not from_log_offset:
        return list(files)

    def last_offset(file: TableFile) -> int:
        return int(file.maximum.get("last_offset", from_log_offset))

    behind = [file for file in files if last_offset(file) < from_log_offset]
    return [file for file in files if last_offset(file) >= from_log_offset] + sorted(behind, key=last_offset)[-1:]


def steps_before(parts: AuditParts, log_partition: int, topic: str, to_log_offset: int) -> list[int]:
    """Places of the steps that the last audit found before a place."""
    return [
        row["log_offset"]
        for rows in parts.former_rows(LOG_ANOMALIES, log_partition)
        for row in rows.select(["rule", "log_topic", "log_offset"]).to_pylist()
        if row["rule"] == TIME_WENT_BACK and row["log_topic"] == topic and row["log_offset"] < to_log_offset
    ]
