"""Choose the engine for a statement: DuckDB for what means the same to both, Spark for everything else.

Spark starts with the first statement that needs it. A statement that is not a query (SET, USE, CREATE TEMPORARY VIEW
...) may change the meaning of later ones: after it, Spark executes everything.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from jobs.cli_enums import Engine
from jobs.errors import SqlError
from jobs.queries.sql import QUERIES, Answer, Catalogue
from jobs.queries.sql_duckdb import DuckDb
from jobs.queries.sql_subset import OutsideSubset

SHOW_TABLES: Final = re.compile(r"show\s+tables\s+(?:in|from)\s+(\w+)", re.IGNORECASE | re.ASCII)
"""The statement that nightly suggests first."""


class TablesOf:
    """The tables of a layer, in the form of Spark's list."""

    columns: Sequence[str] = ("namespace", "tableName", "isTemporary")

    def __init__(self, layer: str, table_names: Iterable[str]) -> None:
        """`table_names`: full names of all existing tables."""
        self._rows = [(layer, name.partition(".")[2], False) for name in sorted(table_names) if _layer(name) == layer]

    def rows(self) -> Iterator[tuple[str, str, bool]]:
        return iter(self._rows)

    def head(self, count: int) -> list[tuple[str, str, bool]]:
        return self._rows[:count]


def _layer(name: str) -> str:
    return name.partition(".")[0]


class Engines:
    """Executes statements. `start`: starts Spark and returns its catalogue. `say`: reports why Spark starts."""

    def __init__(
        self, duckdb: DuckDb, start: Callable[[], Catalogue], *, engine: Engine, say: Callable[[str], None]
    ) -> None:
        self._duckdb = duckdb
        self._start = start
        self._engine = engine
        self._say = say
        self._catalogue: Catalogue | None = None

    def answer(self, statement: str) -> Answer:
        """Execute a statement. Raises SqlError."""
        if self._engine is not Engine.SPARK:
            shown = SHOW_TABLES.fullmatch(statement.strip())
            layer = "" if shown is None else shown[1].lower()
            if any(_layer(name) == layer for name in self._duckdb.table_names):
                return TablesOf(layer, self._duckdb.table_names)
            try:
                return self._duckdb.answer(statement)
            except OutsideSubset as left:
                if self._engine is Engine.DUCKDB:
                    raise SqlError(f"DuckDB does not answer this as Spark would ({left}): leave out --engine") from left
                if self._catalogue is None:
                    self._say(f"Spark answers this ({left})")
        if not statement.lower().lstrip(" (\n\t").startswith(QUERIES):
            self._engine = Engine.SPARK
        if self._catalogue is None:
            self._catalogue = self._start()
        return self._catalogue.answer(statement)
