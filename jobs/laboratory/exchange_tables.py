"""The exchange of a simulation as Delta tables: `simulation.requests` and `simulation.states`, for `sql`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.part_files import write_parts
from jobs.delta.warehouse import Warehouse
from schemas.tables import simulation
from schemas.tables.declare import Table
from simulator.simulation.exchange import REQUESTS, STATES

Line = Mapping[str, Any]
Row = dict[str, Any]

APPLICATION: Final = "groupledger/simulate"
ROWS_AT_ONCE: Final = 50_000
"""Lines that are in memory at a time."""


def write_exchange(root: Path, lines_of: Callable[[str], Iterable[Line]], scenario: str) -> None:
    """Write an exchange into a new warehouse. `lines_of`: the lines of a file of the truth; `scenario`: its name."""
    warehouse = Warehouse(str(root.resolve()))
    for table, file, row in TABLES:
        numbered = enumerate(lines_of(file), 1)
        of_scenario = ({"cluster_id": scenario, **row(number, line)} for number, line in numbered)
        target, schema = warehouse.target(table), arrow_schema(table)
        files = [
            written
            for rows in _in_turns(of_scenario)
            for written in write_parts(target, pa.Table.from_pylist(rows, schema))
        ]
        warehouse.commit(table, files, app_id=APPLICATION, version=0)


def _in_turns(rows: Iterable[Row]) -> Iterator[list[Row]]:
    each = iter(rows)
    while some := list(islice(each, ROWS_AT_ONCE)):
        yield some


def _request(_: int, line: Line) -> Row:
    return {
        "number": line["number"],
        "group_id": line["group"],
        "asked_at": _time(line["asked_ms"]),
        "answered_at": _time(line["ts_ms"]) if line["waited_ms"] is not None else None,
        "request": json.dumps(line["request"]),
        "response": None if line["response"] is None else json.dumps(line["response"]),
        "last_at": _time(line["last_ms"]),
        **{name: line[name] for name in ("waited_ms", "client_id", "from_broker", "broker", "api", "version")},
        **{name: line[name] for name in ("error", "count")},
    }


def _state(number: int, line: Line) -> Row:
    return {
        "number": number,
        "group_id": line["group"],
        "changed_at": _time(line["ts_ms"]),
        "from_state": line["from"],
        "to_state": line["to"],
        **{name: line[name] for name in ("kind", "name", "why")},
    }


def _time(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)


TABLES: Final[tuple[tuple[Table, str, Callable[[int, Line], Row]], ...]] = (
    (simulation.REQUESTS, REQUESTS, _request),
    (simulation.STATES, STATES, _state),
)
