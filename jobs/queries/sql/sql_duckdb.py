"""`sql` in DuckDB's dialect: the tables, views and functions by their names, without Spark.

DuckDB gets the files in Delta's log as Arrow datasets, at the versions of the last whole runs, so that names mean the
same as in Spark (`jobs.queries.sql.sql_spark.Catalogue`). It has no other way to a file: its access to files, the
network, extensions, secrets and Python's variables is off, and its configuration is locked. Statements other than
queries are refused by the type that DuckDB's own parser gives them, although there is nothing that they could change.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from coordinator_core.text import counted
from jobs.cli_enums import Engine
from jobs.console.output import printable
from jobs.delta.arrow_columns import columns_read
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.duckdb import connect, duckdb_module
from jobs.delta.pinned_versions import Pinned, pinned_versions, runs_state
from jobs.delta.scanner import dataset_of, read_whole
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError, StatementError
from jobs.queries.sql.interrupts import interruptible
from jobs.queries.sql.sql import nearest_name
from jobs.queries.views.all_views import DEFINITIONS, named_in
from schemas.tables import TABLES
from schemas.tables.declare import Table

BATCH_ROWS: Final = 10_000
MIN_READER_VERSION_MAX: Final = 1
"""Tables that need a higher Delta reader version may have features that only Spark's reader supports."""
READING: Final = frozenset({"SELECT", "EXPLAIN"})
"""Types of statements that read; DuckDB's parser makes DESCRIBE, SHOW and SUMMARIZE of type SELECT."""
COMMENTS: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
TEMPORARY: Final = re.compile(
    COMMENTS + r"create\s+(or\s+replace\s+)?temp(orary)?\s+(view|macro|function)\b", re.IGNORECASE | re.DOTALL
)
"""CREATE statements that live in the session."""
EXPLAINED: Final = re.compile(COMMENTS + r"explain\s+(analyze\b|\([^)]*\))?", re.IGNORECASE | re.DOTALL)
REFUSED: Final = (
    "the ledger is read-only here, and DuckDB calls this {part}: nothing was done. Allowed are select, describe, show, "
    "summarize, explain, and create temporary view or macro, one statement at a time"
)
RESERVED: Final = frozenset({"at", "offset"})
"""Columns of ours that are words of DuckDB's grammar."""
COLUMN_IN_ERROR: Final = re.compile(r'(?:have a column named|Referenced column) "([^"]+)"')
STREAM_IN_ERROR: Final = re.compile(r"stream registered as '(\w+)' failed")
NAMED_IN_ERROR: Final = re.compile(r'with name "?([^"\s]+)"? does not exist')


@contextmanager
def naming_damage(files: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Context in which DuckDB reads files, registered by these names. Raises TableDamaged for a damaged one."""
    try:
        yield
    except Exception as error:
        failed = STREAM_IN_ERROR.search(str(error))
        read_whole(files.get(failed[1], ()) if failed is not None else ())
        raise


class DuckDbAnswer:
    """The result of a statement. Times are aware, and sums are integers, as Spark's are.

    `files`: paths of the files that it may read, by the name under which they are registered.
    """

    def __init__(
        self, connection: Any, text: str, files: Mapping[str, Sequence[str]], values: Sequence[Any] = ()
    ) -> None:
        self._connection = connection
        self._values = values or None
        self._files = files
        self.columns: Sequence[str] = ()
        self._reader: pa.RecordBatchReader | None = None
        with naming_damage(files):
            interruptible(lambda: self._begin(text), connection.interrupt)
        # errors in the first rows must occur before anything is printed
        first = self._computed()
        self._first = () if first is None else (first,)

    def _begin(self, text: str) -> None:
        relation = self._connection.sql(text, params=self._values)
        if relation is not None and TEMPORARY.match(text) is None:
            self.columns = tuple(relation.columns)
            self._reader = relation.to_arrow_reader(BATCH_ROWS)

    def close(self) -> None:
        """End the statement: a connection has one at a time."""
        self._reader = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._first
        while (batch := self._next()) is not None:
            yield batch

    @property
    def schema(self) -> pa.Schema:
        assert self._reader is not None
        return self._reader.schema

    def rows(self) -> Iterator[list[Any]]:
        for batch in self.batches():
            yield from map(list, zip(*map(_values, batch.columns), strict=True))

    def _next(self) -> pa.RecordBatch | None:
        try:
            return self._computed()
        except (pa.ArrowException, OSError) as error:
            raise SqlError(f"DuckDB could not go on: {_first_line(error)}") from error

    def _computed(self) -> pa.RecordBatch | None:
        reader = self._reader
        with naming_damage(self._files):
            return None if reader is None else interruptible(lambda: next(reader, None), self._connection.interrupt)

    def head(self, count: int) -> list[list[Any]]:
        return list(islice(self.rows(), count))


def _values(values: pa.Array) -> list[Any]:
    plain = values.to_pylist(maps_as_pydicts="strict")
    is_simple = pa.types.is_integer(values.type) or pa.types.is_string(values.type) or pa.types.is_boolean(values.type)
    return plain if is_simple else [_value(value) for value in plain]


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value
        case Decimal():  # of a sum of integers
            return int(value) if value.as_tuple().exponent == 0 else value
        case dict():
            return {name: _value(item) for name, item in value.items()}
        case list():
            return [_value(item) for item in value]
    return value


def refused_part(statement: str) -> str | None:
    """What DuckDB's parser calls a statement that does more than read; None where it reads. Raises DuckDB's errors."""
    try:
        types = [each.type.name for each in duckdb_module().extract_statements(statement)]
    except ValueError:  # a type that DuckDB's Python has no name for
        return "a statement of another kind"
    if len(types) != 1:
        return counted(len(types), "statement")
    if types[0] == "EXPLAIN":
        head = EXPLAINED.match(statement)
        return types[0] if head is None else refused_part(statement[head.end() :])
    is_reading = types[0] in READING or (types[0] == "CREATE" and TEMPORARY.match(statement) is not None)
    return None if is_reading else types[0]


class DuckDb:
    """DuckDB over a warehouse, for one session. `cluster_id`: table names refer to rows of this cluster only.

    `has_all`: tables and columns that are not there are empty, and others than ours are left out, as for our own
    statements.
    """

    engine = Engine.DUCKDB

    def __init__(self, warehouse: Warehouse, *, cluster_id: str | None = None, has_all: bool = False) -> None:
        self._warehouse = warehouse
        self._cluster_id = cluster_id
        self._has_all = has_all
        self._tables = [table for table in TABLES.values() if has_all or warehouse.exists(table)]
        self._last: DuckDbAnswer | None = None
        self._pinned: tuple[tuple[int, ...], Mapping[Table, Pinned]] | None = None
        """With the state of the runs in which they were read."""
        self._known: dict[Table, tuple[int | None, Pinned]] = {}
        self._files: dict[str, Sequence[str]] = {}
        self.table_names = tuple(table.full_name for table in self._tables)

    @cached_property
    def _connection(self) -> Any:
        return connect()

    def rows_of(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a statement. Raises SqlError."""
        answer = self.answer(statement, *values)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]

    def answer(self, statement: str, *values: Any) -> DuckDbAnswer:
        """Execute a statement with values of its parameters, `$1`. Raises SqlError."""
        duckdb = duckdb_module()
        try:
            part = refused_part(statement)
            if part is not None:
                raise StatementError(REFUSED.format(part=part))
            try:
                return self._of_whole_runs(statement, values, self._tables if _is_of_all(statement) else None)
            except duckdb.CatalogException:  # it may name a table in another way: known are all then
                return self._of_whole_runs(statement, values, self._tables)
        except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
            raise StatementError(self._with_remedy(error, statement)) from error
        except (duckdb.Error, pa.ArrowException, DeltaError, OSError) as error:
            raise SqlError(_first_line(error)) from error

    def _of_whole_runs(self, statement: str, values: Sequence[Any], tables: Sequence[Table] | None) -> DuckDbAnswer:
        if self._last is not None:
            self._last.close()
        pinned = self._pinned_now()
        while True:
            definitions, named = named_in(statement.lower(), self._tables)
            for table in named if tables is None else tables:
                self._make_known(table, pinned.get(table, {}))
            for definition in definitions if tables is None else DEFINITIONS:
                text = definition.statement(self.table_names, Engine.DUCKDB)
                if text is not None:
                    self._connection.execute(text)
            self._last = DuckDbAnswer(self._connection, statement, self._files, values)
            now = self._pinned_now()
            if now == pinned:
                return self._last
            self._last.close()
            pinned = now  # a run began meanwhile: the former files may be a part of it

    def _pinned_now(self) -> Mapping[Table, Pinned]:
        state = runs_state(self._warehouse)
        if self._pinned is None or self._pinned[0] != state:
            self._pinned = state, pinned_versions(self._warehouse, self._cluster_id)
        return self._pinned[1]

    def _make_known(self, table: Table, pinned: Pinned) -> None:
        """A view of a table's rows: for clusters without a whole run now, those of the last whole run."""
        state = self._warehouse.version(table), pinned
        if self._known.get(table) == state:
            return
        conditions = [f"cluster_id <> {_text(cluster_id)}" for cluster_id in pinned]
        if self._cluster_id is not None:
            conditions.append(f"cluster_id = {_text(self._cluster_id)}")
        parts = [f"SELECT * FROM {self._register(table, None)} WHERE {' AND '.join(conditions) or 'true'}"]
        for cluster_id, version in pinned.items():
            if version is not None and self._cluster_id in (None, cluster_id):
                registered = self._register(table, version)
                parts.append(f"SELECT * FROM {registered} WHERE cluster_id = {_text(cluster_id)}")
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {table.layer}")
        self._connection.execute(f"CREATE OR REPLACE VIEW {table.full_name} AS {' UNION ALL BY NAME '.join(parts)}")
        self._known[table] = state

    def _register(self, table: Table, version: int | None) -> str:
        """Register a version of a table with DuckDB. Returns its name there."""
        schema = arrow_schema(table)
        if not self._has_all:
            stored = self._warehouse.columns(table, version, reader_version_max=MIN_READER_VERSION_MAX)
            if stored is None or not set(stored) <= set(table.column_names):
                raise SqlError(f"{table.full_name} has columns or features that are not ours: --engine spark reads it")
            schema = columns_read(table, stored)
        name = f"files_{table.layer}_{table.name}_{'newest' if version is None else version}"
        self.register(name, self._warehouse.files(table, version), schema)
        return name

    def register(self, name: str, files: Sequence[TableFile], schema: pa.Schema) -> None:
        """Files of a table, of which statements may speak by this name."""
        paths, values = [file.path for file in files], [file.partition_values for file in files]
        self.register_rows(name, dataset_of(paths, schema, values))
        self._files[name] = paths

    def register_rows(self, name: str, rows: Any) -> None:
        """Rows of Arrow, of which statements may speak by this name."""
        self._connection.register(name, rows)

    def _with_remedy(self, error: Exception, statement: str) -> str:
        """DuckDB's words in one line, with the nearest name where it has none."""
        text = " ".join(str(error).partition("\n\nLINE ")[0].split())
        names = [*self.table_names, *(definition.name for definition in DEFINITIONS)]
        columns = {name for table in named_in(statement.lower(), self._tables)[1] for name in table.column_names}
        for kind, pattern, known in (
            ("table, view or function", NAMED_IN_ERROR, names),
            ("column", COLUMN_IN_ERROR, columns),
        ):
            missing = pattern.search(text)
            if missing is not None:
                text = nearest_name(missing[1], known, kind) or text
        words = RESERVED.intersection(re.findall(r"\w+", statement.lower()))
        if isinstance(error, duckdb_module().ParserException) and words:
            quoted = " or ".join(f'"{word}"' for word in sorted(words))
            text += f" (a column of this name is written in double quotes: {quoted})"
        return printable(text)


def _is_of_all(statement: str) -> bool:
    """Does a statement list what there is?"""
    return re.search(r"\bshow\b|\bdescribe\b|information_schema|duckdb_|pg_|pragma_", statement.lower()) is not None


def _first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0])


def _text(text: str) -> str:
    """A DuckDB string literal: quotes are doubled, and nothing else has a meaning in it."""
    return "'" + text.replace("'", "''") + "'"
