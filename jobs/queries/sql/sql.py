"""sql: one statement, or a shell of them, over the tables by their names, such as `silver.offset_commits`.

The dialect is DuckDB's (`sql_duckdb`) or Spark's (`sql_spark`). This module has what both share.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from itertools import islice
from math import isfinite
from typing import Any, Final, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.cli_enums import Engine
from jobs.console.names import or_nearest
from jobs.console.output import Bars, csv_cell, csv_line, json_line, printable, write_table
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError, StatementError
from jobs.queries.views.all_views import DEFINITIONS
from schemas.tables import TABLES

TABLE_ROWS_MAX: Final = 1000
"""Maximum number of rows in a table for people; json and csv have all."""
BARS: Final = Bars(" ┃ ", "━╇━", " │ ")


class Answer(Protocol):
    columns: Sequence[str]

    def rows(self) -> Iterator[Sequence[Any]]: ...

    def head(self, count: int) -> Sequence[Sequence[Any]]: ...

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...


class Answering(Protocol):
    """An engine that executes statements."""

    engine: Engine
    table_names: tuple[str, ...]

    def answer(self, statement: str) -> Answer:
        """Execute a statement. Raises SqlError."""
        ...


HINT: Final = (
    "statements end with ; as in: select * from current_groups limit 5; or: describe gold.rebalances; "
    ".tables lists what there is, .help says more, Ctrl-D ends"
)
"""The greeting of a shell on a terminal."""
HELP: Final = """.tables           names of the tables, views and functions
.help             this text
.exit             ends the shell, as Ctrl-D and exit do; Ctrl-C ends a statement
describe TABLE;   its columns; docs/tables.md says what they mean
select ...;       a statement may have several lines and ends with ;"""
TOKENS: Final = {
    engine: re.compile(
        rf"{quoted}|`[^`]*(?:`|\Z)|\$(\w*)\$.*?(?:\$\1\$|\Z)|(?P<comment>--[^\n]*|/\*.*?\*/)|/\*.*|\S", re.DOTALL
    )
    for engine, quoted in (
        (Engine.DUCKDB, r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)"""),
        (Engine.SPARK, r"""'(?:\\.|[^'\\])*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\Z)"""),
    )
}
"""What a statement consists of: a semicolon in a text, a name or a comment does not end it."""
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
        if (made := definition.statement(there, Engine.SPARK, is_persistent=True)) is not None:
            yield f"{made.strip()};"


def nearest_name(missing: str, known: Iterable[str], kind: str = "table, view or function") -> str | None:
    """The error about a name that is not known, with the nearest one; None: none is near."""
    nearest = or_nearest(missing, known)
    return f"there is no {kind} {nearest}" if nearest.endswith("?)") else None


def run_query(answering: Answering, query: str, output_format: str, out: TextIO | None = None) -> None:
    """Execute one statement, or a command that begins with a dot, and print its result. Raises SqlError."""
    out = out or sys.stdout
    statement = query.strip().rstrip(";")
    if statement.startswith("."):
        print(_dot_command(answering, statement), file=out)
        return
    try:
        write_rows(answering.answer(statement), output_format, out)
    except (ValueError, OverflowError) as error:
        # both engines support more years than Python, to which they pass the rows
        raise SqlError(
            f"a value of the result cannot be shown ({error}): select a time as cast(... as string)"
        ) from error


def _dot_command(answering: Answering, command: str) -> str:
    if command == ".tables":
        functions = (f"{each.name}{each.signature.replace('`', '')}" for each in DEFINITIONS)
        return "\n".join((*sorted(answering.table_names), *functions))
    if command == ".help":
        return HELP
    raise StatementError(f"no command {printable(command)}: .help lists them")


def shell(answering: Answering, output_format: str, lines: Iterable[str] | None = None) -> int:
    """Execute statements, each ended by `;`, until the input ends or `exit`. Returns how many had an error.

    An error or Ctrl-C ends only the current statement.
    """
    failed_count = 0
    for query in _statements(lines if lines is not None else _Prompt(), TOKENS[answering.engine]):
        try:
            run_query(answering, query, output_format)
        except SqlError as error:
            failed_count += 1
            print(f"error: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    return failed_count


def _statements(lines: Iterable[str], tokens: re.Pattern[str]) -> Iterator[str]:
    rest = ""
    for line in lines:
        if line == CANCELLED:
            rest = ""
            continue
        if not rest and line.strip().rstrip(";").lower().lstrip(".") in ("exit", "quit"):
            return
        if not rest and line.strip().startswith("."):
            yield line.strip()
            continue
        ended, rest = _ended(f"{rest}\n{line}".strip(), tokens)
        if isinstance(lines, _Prompt):
            lines.is_inside = bool(rest)
        yield from ended
    if rest:
        yield rest


def _ended(text: str, tokens: re.Pattern[str]) -> tuple[list[str], str]:
    """The statements of a text that have ended, each with its `;`, and the begin of the next one."""
    ended, begin, is_begun = [], 0, False
    for token in tokens.finditer(text):
        if token[0] == ";":
            ended += [text[begin : token.end()].strip()] if is_begun else []
            begin, is_begun = token.end(), False
        else:
            is_begun |= token["comment"] is None
    return ended, text[begin:].strip() if is_begun else ""


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


def write_rows(result: Answer, output_format: str, out: TextIO, first: Sequence[str] = ()) -> None:
    """Print rows as a table for people, as JSON (one object per line), as CSV with a header, or as Parquet. `first`:
    the columns that are the answer, by importance."""
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
    elif output_format == "parquet":
        with pq.ParquetWriter(out.buffer, result.schema) as writer:
            for batch in result.batches():
                writer.write_batch(batch)
    else:
        _print_table(columns, result.head(TABLE_ROWS_MAX + 1), out, first)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], out: TextIO, first: Sequence[str]) -> None:
    shown = [list(map(_plain, row)) for row in islice(rows, TABLE_ROWS_MAX)]
    write_table(list(map(printable, columns)), shown, out, first=first, bars=BARS)
    if len(rows) > TABLE_ROWS_MAX:
        out.write(f"... more than {TABLE_ROWS_MAX} rows: add a LIMIT, or take --format csv\n")


def _plain(value: Any) -> str:
    if value is None:
        return "NULL"
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def json_value(value: Any) -> Any:
    """A value as JSON: times as ISO 8601 in UTC, bytes as base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case datetime():
            # Spark returns naive local times of the driver's zone
            at = value.astimezone(UTC).replace(tzinfo=None)
            return at.isoformat(timespec="microseconds" if at.microsecond % 1000 else "milliseconds") + "Z"
        case date():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return str(value)
        case tuple() if hasattr(value, "asDict"):  # a Row of Spark
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
    cause: Any = getattr(error, "java_exception", None)
    if cause is not None:
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.getMessage() or cause.toString()
    _, in_python, stack = text.partition("Traceback (most recent call last):")
    lines = [line for line in (stack if in_python else text).splitlines() if line.strip()]
    if in_python:
        # the error is the first line after the indented stack frames
        lines = [line for line in lines if not line.startswith((" ", "\t"))]
    return printable(lines[0].strip()) if lines else type(error).__name__
