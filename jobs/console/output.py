"""How answers are printed: as a table in the manner of Kafka's tools, as JSON (one object a line), or as CSV.

A value is a number, a text, a bool, or None for what is not known: `-` in tables and CSV, null in JSON. Any text may
hold whatever a client sent: no terminal obeys it, and no spreadsheet takes it for a formula.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

Value = str | int | float | bool | None

UNKNOWN: Final = "-"
"""As Kafka's tools print what is missing."""
FORMULA_STARTS: Final = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
ESCAPE: Final = "'"
"""Before a text that a spreadsheet would calculate; also before one that begins with it, so that none is ambiguous."""
QUOTED_ENDS: Final = "\r\n"
OTHER_ENDS: Final = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Which JSON leaves as they are, and some readers take for the end of a line."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its least width, and whether it grows with its cells. Width 0: as wide as need be, the
    last one."""

    name: str
    width: int = 0
    grows: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[str]:
    """The header and the rows, padded as Java's `%-15s` does it."""
    cells = [list(map(text_cell, values)) for values in zip(*rows, strict=True)] or [[] for _ in columns]
    padded = map(_padded, columns, cells)
    return [" ".join(line).rstrip() for line in zip(*padded, strict=True)]


def text_cell(value: Value) -> str:
    """A cell of a table."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return UNKNOWN if value is None else str(value)


def time_text(timestamp_ms: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds."""
    if timestamp_ms is None:
        return None
    at = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def printable(text: str) -> str:
    """The text with control characters shown as escapes, so that no terminal obeys them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def csv_cell(value: Value) -> str:
    """A cell of CSV for people: a text that begins like a formula gets an apostrophe in front."""
    if not isinstance(value, str):
        return text_cell(value)
    return ESCAPE + value if value[:1] in FORMULA_STARTS or value.startswith(ESCAPE) else value


def csv_line(cells: Iterable[object]) -> str:
    """A line of CSV. A carriage return in a cell is quoted as a line feed is: bare, it would begin a line of its own,
    and Python's writer quotes only what its lines end with."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator=QUOTED_ENDS).writerow(cells)
    return line.getvalue().removesuffix(QUOTED_ENDS) + "\n"


def json_line(value: Any) -> str:
    """A line of JSON: no character in it ends one to any reader."""
    return json.dumps(value, ensure_ascii=False).translate(OTHER_ENDS) + "\n"


def write_csv(columns: Sequence[str], rows: Sequence[Mapping[str, Value]], out: TextIO) -> None:
    """A header and the rows; what a row has no such column for is left empty."""
    out.write(csv_line(columns))
    for row in rows:
        out.write(csv_line(csv_cell(row[name]) if name in row else "" for name in columns))


def write_json(rows: Sequence[Mapping[str, Value]], out: TextIO) -> None:
    """One object a line."""
    for row in rows:
        out.write(json_line(row))


def write_answers(columns: Sequence[str], rows: Sequence[Sequence[Value]], output_format: str, out: TextIO) -> None:
    """Rows of one shape in the format asked for."""
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    if output_format == "json":
        write_json(named, out)
    elif output_format == "csv":
        write_csv(columns, named, out)
    else:
        grown = [Column(name, len(name), grows=True) for name in columns]
        out.writelines(line + "\n" for line in table_lines(grown, rows))


def _length(text: str) -> int:
    """As Java counts: UTF-16 code units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _padded(column: Column, cells: Sequence[str]) -> list[str]:
    """The column's name and its cells, as wide as each other."""
    width = max([column.width, *map(_length, cells)]) if column.grows else column.width
    return [
        text.ljust(width) if text.isascii() else text + " " * (width - _length(text)) for text in (column.name, *cells)
    ]
