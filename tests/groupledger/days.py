"""Replay day after day, as a user keeps its rows: without pytest, since each Spark of `tests/sparks` runs it."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from groupledger.key_replay import topic_of
from groupledger.ledger import KEYS_OF
from groupledger.replay import GroupReplay, ShareReplay
from schemas.tables import TABLES
from schemas.tables.declare import Table

Rows = list[dict[str, Any]]
Replay = Callable[..., GroupReplay | ShareReplay]
PLACES = ("log_offset", "applied_log_offset", "from_log_offset", "to_log_offset")


def is_final(row: dict[str, Any], settled_offset: int) -> bool:
    """Did a row end up to this offset?"""
    is_open = row.get("to_log_offset", 0) is None or row.get("outcome") == "PENDING"
    return not is_open and all((row.get(name) or 0) <= settled_offset for name in PLACES)


def merged(left: Rows, new: Rows, table: Table) -> Rows:
    """Rows of a table after new ones, which replace those with the same key. `left`: all but those of keys with new
    records that were not final."""
    names = [column.name for column in table.columns if column.is_key]
    return list({tuple(row.get(name) for name in names): row for row in [*left, *new]}.values())


def texts(rows: Rows, name: str) -> list[str]:
    """Rows in one order."""
    columns = [column for column in TABLES[name].column_names if column != "cluster_id"]
    return sorted(repr([row[column] for column in columns]) for row in rows)


def kept(frame: DataFrame) -> DataFrame:
    """The rows of a DataFrame as a table of its own."""
    return frame.sparkSession.createDataFrame(frame.collect(), frame.schema)


def rows_of(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


class Days:
    """What a user keeps who replays day after day."""

    def __init__(self, replay: Replay, state: DataFrame | None = None) -> None:
        self._replay = replay
        self.state = state
        self.tables: dict[str, Rows] = {}

    def add(self, records: DataFrame) -> None:
        """Replay a day, and put its rows in place of those that were not final."""
        made = self._replay(records, state=self.state)
        before = {} if self.state is None else {key_of(row): row for row in rows_of(self.state)}
        self.state = kept(made.state)
        after = {key_of(row): row for row in rows_of(self.state)}
        changed = {
            key for key, row in before.items() if row["state"] and after[key]["last_offset"] > row["last_offset"]
        }
        settled = {key: before[key]["settled_offset"] for key in changed}
        for name, frame in made.tables.items():
            left = [
                row
                for row in self.tables.get(name, [])
                if (key := key_in(row, topic_of(name))) not in settled or is_final(row, settled[key])
            ]
            self.tables[name] = merged(left, rows_of(frame), TABLES[name])


def key_of(state: dict[str, Any]) -> tuple[Any, ...]:
    """The key of a row of a state."""
    return key_in(state, state["log_topic"])


def key_in(row: dict[str, Any], topic: str | None) -> tuple[Any, ...]:
    """The key of a row of silver."""
    assert topic is not None
    return tuple(row[name] for name in KEYS_OF[topic])
