"""Print answers: as a table in the style of Kafka's tools, as JSON (one object per line), or as CSV.

A value is a number, a string, a bool, or None for unknown: `-` in tables and CSV, null in JSON. Strings may contain
anything a client sent: output of all kinds is safe for terminals (`escaped`), and CSV for spreadsheets (formulas).
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

Value = str | int | float | bool | None

UNKNOWN: Final = "-"
"""What Kafka's tools print for missing values."""
FORMULA_STARTS: Final = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
ESCAPE: Final = "'"
"""Prefix for text that a spreadsheet would evaluate, and for text that begins with it, so that the result is
unambiguous."""
QUOTED_ENDS: Final = "\r\n"
CELL_CHARACTERS_MAX: Final = 255
"""A longer cell of a table is cut. No name of a topic is that long, and ids can have 30,000 characters."""
CUT: Final = "..."


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its minimum width, whether it grows with its cells, and whether they are never cut.

    Width 0: as wide as necessary, for the last column.
    """

    name: str
    width: int = 0
    grows: bool = False
    is_whole: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[str]:
    """The header and the rows, padded like Java's `%-15s`."""
    cells = [list(map(text_cell, values)) for values in zip(*rows, strict=True)] or [[] for _ in columns]
    cells = [texts if column.is_whole else list(map(cut, texts)) for column, texts in zip(columns, cells, strict=True)]
    padded = map(_padded, columns, cells)
    return [" ".join(line).rstrip() for line in zip(*padded, strict=True)]


def cut(text: str) -> str:
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - len(CUT)] + CUT


def text_cell(value: Value) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return UNKNOWN if value is None else str(value)


def time_text(timestamp_ms: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds."""
    if timestamp_ms is None:
        return None
    at = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def escaped(text: str, escape: Callable[[str], str]) -> str:
    """The text with control codes (C0, C1, bidi), line ends and other invisible characters escaped, so that they have
    no effect in a terminal or an editor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else escape(c) for c in text)


def printable(text: str) -> str:
    """The text, `escaped` as in Python."""
    return escaped(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def csv_cell(value: Value) -> str:
    """A cell of CSV for people: as in a table, and text that begins like a formula gets an apostrophe."""
    if not isinstance(value, str):
        return text_cell(value)
    return printable(ESCAPE + value if value[:1] in FORMULA_STARTS or value.startswith(ESCAPE) else value)


def csv_line(cells: Iterable[object]) -> str:
    """A line of CSV, with texts as they are: for people they are `csv_cell`s.

    A cell with a carriage return is quoted, like one with a line feed: unquoted it would begin a new line, but Python's
    writer quotes only the characters of its line terminator.
    """
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator=QUOTED_ENDS).writerow(cells)
    return line.getvalue().removesuffix(QUOTED_ENDS) + "\n"


def json_line(value: Any) -> str:
    """A line of JSON: what it escapes, a reader of JSON gets as it was."""
    return escaped(json.dumps(value, ensure_ascii=False), lambda character: json.dumps(character)[1:-1]) + "\n"


def write_csv(columns: Sequence[str], rows: Sequence[Mapping[str, Value]], out: TextIO) -> None:
    """A header and the rows; cells are empty where a row has no such key."""
    out.write(csv_line(columns))
    for row in rows:
        out.write(csv_line(csv_cell(row[name]) if name in row else "" for name in columns))


def write_json(rows: Sequence[Mapping[str, Value]], out: TextIO) -> None:
    """One object per line."""
    for row in rows:
        out.write(json_line(row))


def write_answers(columns: Sequence[str], rows: Sequence[Sequence[Value]], output_format: str, out: TextIO) -> None:
    """Rows of equal shape in the requested format."""
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    if output_format == "json":
        write_json(named, out)
    elif output_format == "csv":
        write_csv(columns, named, out)
    else:
        grown = [Column(name, len(name), grows=True) for name in columns]
        out.writelines(line + "\n" for line in table_lines(grown, rows))


def _length(text: str) -> int:
    """Length as in Java: UTF-16 code units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _padded(column: Column, cells: Sequence[str]) -> list[str]:
    """The column's name and its cells, padded to equal width."""
    width = max([column.width, *map(_length, cells)]) if column.grows else column.width
    return [
        text.ljust(width) if text.isascii() else text + " " * (width - _length(text)) for text in (column.name, *cells)
    ]
