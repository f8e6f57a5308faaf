"""sql: Spark SQL over the tables by their names, such as `select * from silver.offset_commits`; one query or a shell.

Tables are registered in Spark's catalogue through the API, views and functions with constant statements (`views`): no
path and no value is put into SQL text.

While a replay or an audit is running, or after one failed, table names refer to the versions of the last whole run
(`pinned`). Names in a metastore do not: its tables are shared with programs that know nothing about runs.

Statements that write are refused (`read_only`), unless `sql --write` allows them.
"""

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from itertools import islice
from math import isfinite
from typing import Any, Final, Protocol, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from jobs.console.output import csv_cell, csv_line, json_line, printable
from jobs.delta.filesystems import spark_uri
from jobs.delta.pinned_versions import Pinned, pinned_versions
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError
from jobs.queries.interrupts import interruptible
from jobs.queries.read_only import set_unsafe_functions, unsafe_function_of, writing_part
from jobs.queries.views import DEFINITIONS, Definition, Kind, definitions_named_in
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.silver import COORDINATOR_PARTITIONS

NEWEST: Final = "newest"
"""Database of the newest versions of tables, where their own names refer to a whole run."""
QUERIES: Final = ("select", "with", "from", "table", "values")
"""First words of statements that change nothing and may be planned twice."""
REFUSED: Final = (
    "the ledger is read-only here, and this statement may change something ({part}): nothing was done. A temporary "
    "view may hold what you need; `sql --write` runs it all the same"
)
TABLE_ROWS_MAX: Final = 1000
"""Maximum number of rows in a table for people; json and csv have all."""


class Catalogue:
    """The tables, views and functions of a warehouse in Spark's catalogue, registered when a statement names them.

    Registering a table takes Spark half a second, and a statement names few. With a metastore they stay registered;
    otherwise they show only whole runs.
    """

    def __init__(
        self, session: SparkSession, warehouse: Warehouse, *, cluster_id: str | None = None, may_write: bool = False
    ) -> None:
        """`cluster_id`: table names refer to rows of this cluster only. `may_write`: allow statements that write."""
        self.session = session
        self._warehouse = warehouse
        self._may_write = may_write
        self._tables = [table for table in TABLES.values() if warehouse.exists(table)]
        self._pinned: Mapping[Table, Pinned] = {}
        self._known: dict[Table, Pinned] = {}
        """Registered tables, with their pinned versions."""
        self._defined: set[Definition] = set()
        self._is_persistent = has_metastore(session)
        # tables in a metastore are shared, and show all rows
        self._cluster_id = None if self._is_persistent else cluster_id
        self.table_names = tuple(table.full_name for table in self._tables)
        for layer in dict.fromkeys(table.layer for table in self._tables):
            if not session.catalog.databaseExists(layer):  # with IF NOT EXISTS alone a metastore logs an error
                # a layer is one of our own names
                session.sql("CREATE DATABASE IF NOT EXISTS IDENTIFIER(:layer)", args={"layer": layer})

    def answer(self, statement: str) -> "SparkAnswer":
        """The result of a statement, to be printed. Raises SqlError."""
        try:
            return interruptible(lambda: SparkAnswer(self.frame(statement)))
        except (PySparkException, Py4JJavaError) as error:
            raise SqlError(one_line(error)) from error

    def frame(self, statement: str) -> DataFrame:
        """The result of a statement.

        Spark determines table versions while it plans: if a run begins meanwhile, it plans again. Raises SqlError for a
        statement that writes, unless that is allowed.
        """
        set_unsafe_functions(self.session, are_allowed=self._may_write)
        if not self._may_write:
            writing = writing_part(self.session, statement)
            if writing is not None:
                raise SqlError(REFUSED.format(part=writing))
        try:
            return self._planned(statement)
        except PySparkException as error:
            function = None if self._may_write else unsafe_function_of(error)
            if function is None:
                raise
            raise SqlError(REFUSED.format(part=function)) from error

    def _planned(self, statement: str) -> DataFrame:
        self.prepare(statement)
        frame = self.session.sql(statement)
        if statement.lower().lstrip(" (").startswith(QUERIES) and self._pinned_now() != self._pinned:
            self.prepare(statement)
            frame = self.session.sql(statement)
        return frame

    def prepare(self, statement: str) -> None:
        """Register what the statement may name; all tables for SHOW, which names none."""
        text = statement.lower().lstrip(" (")
        named = definitions_named_in(text)
        sources = {table for definition in named for table in definition.tables}
        sources |= {COORDINATOR_PARTITIONS} if named else set()
        sources |= {LOG_ANOMALIES} if any(definition.kind is Kind.FUNCTION for definition in named) else set()
        is_all = text.startswith("show")
        self._make_known([table for table in self._tables if is_all or table.name in text or table in sources])
        for definition in named:
            self._define(definition)

    def prepare_all(self) -> None:
        """Register everything that exists: for a metastore that others read."""
        self._make_known(self._tables)
        for definition in DEFINITIONS:
            self._define(definition)

    def _make_known(self, tables: Iterable[Table]) -> None:
        # Spark's internal catalogue: pyspark's Catalog has no locations, and fails where the folder of a table is gone
        state = self.session._jsparkSession.sessionState()
        self._pinned = self._pinned_now()
        for table in tables:
            wanted = self._pinned.get(table, {})
            if self._known.get(table) == wanted:
                continue
            path = spark_uri(self._warehouse.path(table))
            identifier = state.sqlParser().parseTableIdentifier(table.full_name)
            is_there = state.catalog().tableExists(identifier)
            if is_there and self._is_persistent:
                _require_location(table, state.catalog().getTableMetadata(identifier).location().toString(), path)
            elif is_there:  # registered with other versions, or for another warehouse of this session
                self._forget(table.full_name)
                is_there = False
            if wanted or self._cluster_id is not None:
                self._hold(table, path, wanted)
            elif not is_there:
                self.session.catalog.createTable(table.full_name, path=path, source="delta")
            self._known[table] = wanted

    def _pinned_now(self) -> Mapping[Table, Pinned]:
        return {} if self._is_persistent else pinned_versions(self._warehouse)

    def _forget(self, name: str) -> None:
        """Remove a name from the catalogue. The files stay, since Spark does not manage them."""
        state = self.session._jsparkSession.sessionState()
        state.catalog().dropTable(state.sqlParser().parseTableIdentifier(name), True, False)

    def _hold(self, table: Table, path: str, pinned: Pinned) -> None:
        """Register a table as of the last whole runs, and only of one cluster if requested."""
        newest = f"{NEWEST}.{table.layer}_{table.name}"
        self.session.sql(f"CREATE DATABASE IF NOT EXISTS {NEWEST}")
        self._forget(newest)
        self.session.catalog.createTable(newest, path=path, source="delta")
        fields = self.session.table(newest).schema.fields
        parts = [f"SELECT * FROM {newest} WHERE {self._newest_rows(pinned)}"]
        for cluster_id, version in pinned.items():
            if version is not None and self._cluster_id in (None, cluster_id):
                of_version = f"{newest} VERSION AS OF {version}"
                stored = set(self.session.sql(f"SELECT * FROM {of_version}").columns)
                columns = ", ".join(
                    field.name if field.name in stored else f"CAST(NULL AS {field.dataType.simpleString()})"
                    for field in fields
                )
                parts.append(f"SELECT {columns} FROM {of_version} WHERE cluster_id = {_literal(cluster_id)}")
        self.session.sql(f"CREATE OR REPLACE VIEW {table.full_name} AS {' UNION ALL '.join(parts)}")

    def _newest_rows(self, pinned: Pinned) -> str:
        """The condition for rows at the newest version."""
        is_other = f"cluster_id NOT IN ({', '.join(map(_literal, pinned))})" if pinned else "true"
        return is_other if self._cluster_id is None else f"cluster_id = {_literal(self._cluster_id)} AND {is_other}"

    def _define(self, definition: Definition) -> None:
        """Create a view or function, unless it exists or a table that it reads does not."""
        statement = definition.statement(self.table_names, is_persistent=self._is_persistent)
        if statement is not None and definition not in self._defined:
            self.session.sql(statement)
            self._defined.add(definition)


class Answer(Protocol):
    columns: Sequence[str]

    def rows(self) -> Iterator[Sequence[Any]]: ...

    def head(self, count: int) -> Sequence[Sequence[Any]]: ...


class Answering(Protocol):
    """An engine that executes statements."""

    def answer(self, statement: str) -> Answer:
        """Execute a statement. Raises SqlError."""
        ...


class SparkAnswer:
    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.columns: Sequence[str] = frame.columns

    def rows(self) -> Iterator[Row]:
        return interruptible(self._frame.toLocalIterator)

    def head(self, count: int) -> list[Row]:
        return interruptible(lambda: self._frame.limit(count).collect())


def _literal(text: str) -> str:
    """A string as a SQL expression of hexadecimal digits, so that none of it can be SQL."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def has_metastore(session: SparkSession) -> bool:
    """Is a Hive metastore configured? Otherwise Spark's catalogue ends with the session."""
    return session.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"


def publish(session: SparkSession, warehouse: Warehouse) -> None:
    """Register or refresh tables, views and functions in the metastore: its readers need nothing else of this project.

    Raises SqlError.
    """
    try:
        Catalogue(session, warehouse).prepare_all()
    except (PySparkException, Py4JJavaError) as error:
        raise SqlError(f"the tables are made, but the metastore does not take them: {one_line(error)}") from error


def _require_location(table: Table, location: str, path: str) -> None:
    """Check the location: a metastore identifies a table by name only, whatever its warehouse. Raises SqlError."""
    if _plain_uri(location) != _plain_uri(path):
        raise SqlError(
            f"the metastore has {table.full_name} at {location}, and this warehouse has it at {path}: give each "
            "warehouse a metastore of its own, or drop the table from the metastore first"
        )


def _plain_uri(uri: str) -> str:
    """Normalize a URI: Hadoop writes `file:/a`, others `file:///a`."""
    return uri.replace("file:///", "file:/", 1).rstrip("/")


HINT: Final = "statements end with ; as in: show tables in gold; or: select * from current_groups limit 5; Ctrl-D ends"
"""The greeting of a shell on a terminal."""
CANCELLED: Final = "\x03"
"""Returned instead of a line on Ctrl-C at the prompt: the unfinished statement is dropped."""


def ddl(warehouse: Warehouse) -> Iterator[str]:
    """Yield statements, each ended by `;`, that register the tables, views and table functions of a warehouse in a
    catalogue of Spark or Databricks. They can be repeated.
    """
    there = {table.full_name for table in TABLES.values() if warehouse.exists(table)}
    for layer in dict.fromkeys(name.partition(".")[0] for name in TABLES if name in there):
        yield f"CREATE SCHEMA IF NOT EXISTS {layer};"
    for name, table in TABLES.items():
        if name in there:
            location = warehouse.path(table).replace("\\", "\\\\").replace("'", "\\'")
            yield f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{location}';"
    for definition in DEFINITIONS:
        if (made := definition.statement(there, is_persistent=True)) is not None:
            yield f"{made.strip()};"


def run_query(answering: Answering, query: str, output_format: str, out: TextIO | None = None) -> None:
    """Execute one statement and print its result. Raises SqlError."""
    out = out or sys.stdout
    try:
        write_rows(answering.answer(query.strip().rstrip(";")), output_format, out)
    except (PySparkException, Py4JJavaError) as error:
        raise SqlError(one_line(error)) from error
    except (ValueError, OverflowError) as error:
        # Spark supports more years than Python, to which it passes the rows
        raise SqlError(
            f"a value of the result cannot be shown ({error}): select a time as cast(... as string)"
        ) from error


def shell(answering: Answering, output_format: str, lines: Iterable[str] | None = None) -> None:
    """Execute statements, each ended by `;`, until the input ends or `exit`.

    An error or Ctrl-C ends only the current statement.
    """
    for query in _statements(lines if lines is not None else _Prompt()):
        try:
            run_query(answering, query, output_format)
        except SqlError as error:
            print(f"error: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)


def _statements(lines: Iterable[str]) -> Iterator[str]:
    statement = ""
    for line in lines:
        if line == CANCELLED:
            statement = ""
            continue
        if not statement and line.strip().rstrip(";").lower() in ("exit", "quit"):
            return
        statement = f"{statement}\n{line}".strip()
        if isinstance(lines, _Prompt):
            lines.is_inside = bool(statement) and not statement.endswith(";")
        if statement.endswith(";"):
            yield statement
            statement = ""
    if statement:
        yield statement


class _Prompt:
    """Lines of standard input; on a terminal with prompt, history and line editing."""

    def __init__(self) -> None:
        self.is_inside = False
        """In the middle of a statement, which the prompt shows."""

    def __iter__(self) -> Iterator[str]:
        if not sys.stdin.isatty():
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        print(HINT, file=sys.stderr)
        with suppress(ImportError):
            import_module("readline")  # importing it gives input() history and line editing
        while True:
            try:
                yield input("     ...> " if self.is_inside else "groupledger> ")
            except KeyboardInterrupt:
                print()
                self.is_inside = False
                yield CANCELLED
            except EOFError:
                print()
                return


def write_rows(result: Answer, output_format: str, out: TextIO) -> None:
    """Print rows as a table for people, as JSON (one object per line), or as CSV with a header."""
    columns = result.columns
    if not columns:
        return
    if output_format == "json":
        for row in result.rows():
            out.write(json_line(dict(zip(columns, map(json_value, row), strict=True))))
    elif output_format == "csv":
        out.write(csv_line(columns))
        for row in result.rows():
            out.write(csv_line(map(_csv_value, row)))
    else:
        _print_table(columns, result.head(TABLE_ROWS_MAX + 1), out)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], out: TextIO) -> None:
    console = Console(file=out, highlight=False, width=None if out.isatty() else 10_000)
    table = RichTable(show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(printable(name), overflow="fold")
    for row in islice(rows, TABLE_ROWS_MAX):
        # a cell may contain anything a client sent: markup and control codes must have no effect
        table.add_row(*(_plain(value) for value in row))
    console.print(table, markup=False)
    if len(rows) > TABLE_ROWS_MAX:
        console.print(f"... more than {TABLE_ROWS_MAX} rows: add a LIMIT, or take --format csv", markup=False)


def _plain(value: Any) -> Any:
    if value is None:
        return Text("NULL", style="dim")
    text = value if isinstance(value, str) else json_value(value)
    return Text(printable(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)))


def json_value(value: Any) -> Any:
    """A Spark value as JSON: times as ISO 8601 in UTC, bytes as base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case datetime():
            # Spark returns naive local times of the driver's zone
            at = value.astimezone(UTC)
            return (
                at.strftime("%Y-%m-%dT%H:%M:%S")
                + (f".{at.microsecond:06d}".rstrip("0") if at.microsecond else "")
                + "Z"
            )
        case date():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return str(value)
        case Row():
            return {name: json_value(item) for name, item in value.asDict().items()}
        case dict():
            return {str(json_value(name)): json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return str(value)


def _csv_value(value: Any) -> Any:
    plain = json_value(value)
    text = json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else plain
    # NULL becomes an empty cell, as in Spark
    return csv_cell(text) if isinstance(text, str) else text


def one_line(error: Exception) -> str:
    """The message of an error in one line, without stacks; for an error in the JVM or in a task, its cause."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.getMessage() or cause.toString()
    _, in_python, stack = text.partition("Traceback (most recent call last):")
    lines = [line for line in (stack if in_python else text).splitlines() if line.strip()]
    if in_python:
        # the error is the first line after the indented stack frames
        lines = [line for line in lines if not line.startswith((" ", "\t"))]
    return printable(lines[0].strip()) if lines else type(error).__name__
