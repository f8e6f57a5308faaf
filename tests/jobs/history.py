"""A small silver made by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from jobs.delta.warehouse import Warehouse
from schemas.tables import TABLES
from tests.jobs.table_rows import rows

CLUSTER: Final = "c"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
START_MS: Final = int(START.timestamp()) * 1000


def at(minute: float) -> datetime:
    """A moment after the start."""
    return START + timedelta(minutes=minute)


def at_ms(minute: float) -> int:
    """The same as epoch milliseconds."""
    return START_MS + int(minute * 60_000)


def between(first: int, last: int | None) -> dict[str, Any]:
    """Columns of an interval, in minutes; offsets in the log are the minutes, too."""
    return {
        "cluster_id": CLUSTER,
        "log_partition": 0,
        "valid_from": at(first),
        "valid_to": None if last is None else at(last),
        "from_log_offset": first,
        "to_log_offset": last,
    }


def commit(group_id: str, minute: int, offset: int | None, **more: Any) -> dict[str, Any]:
    """A row of silver.offset_commits: an applied commit to t-0, or (None) its deletion."""
    return {
        "cluster_id": CLUSTER,
        "log_partition": 0,
        "log_offset": minute,
        "group_id": group_id,
        "topic": "t",
        "partition": 0,
        "committed_offset": offset,
        "recorded_at": at(minute),
        "is_transactional": False,
        "outcome": "APPLIED",
        "applied_log_offset": minute,
        "applied_at": at(minute),
        "change": "DELETE" if offset is None else "ADVANCE",
    } | more


def event(group_id: str, minute: int, event_type: str, **more: Any) -> dict[str, Any]:
    """A row of silver.group_events."""
    return {
        "cluster_id": CLUSTER,
        "log_partition": 0,
        "log_offset": minute,
        "event_index": 0,
        "group_id": group_id,
        "event_type": event_type,
        "at": at(minute),
        "details": [],
    } | more


def write(warehouse: Warehouse, tables: dict[str, list[dict[str, Any]]]) -> None:
    """Add rows to tables, by full name."""
    for name, values in tables.items():
        table = TABLES[name]
        version = warehouse.last_version(table, "history") + 1
        warehouse.write(table, rows(table, *values), app_id="history", version=version)
