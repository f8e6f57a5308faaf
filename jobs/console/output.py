"""Print answers: as a table in the style of Kafka's tools, as JSON (one object per line), or as CSV.

On a terminal, a table is as wide as the terminal: the columns that are the answer come first, long cells go on in
the next line, what all rows have is said above them if that makes room, and columns for which there is no
room are left out. A pipe or a file gets everything, and JSON and CSV have everything.

A value is a number, a string, a bool, or None for unknown: `-` in tables and CSV, null in JSON. Strings may contain
anything a client sent: output of all kinds is safe for terminals (`escaped`), and CSV for spreadsheets (formulas).
"""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import IO, Any, Final, NamedTuple, TextIO
from unicodedata import east_asian_width

from coordinator_core.text import counted
from jobs.console.command_name import ENTRY

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
TERMINAL_COLUMNS: Final = 120
"""Width of a terminal that does not tell its own."""
FOLDED_COLUMNS_MIN: Final = 24
"""A column that is folded is at least this wide: as a time."""
FOLDINGS: Final = (
    (0, FOLDED_COLUMNS_MIN, False),
    (1, FOLDED_COLUMNS_MIN, False),
    (sys.maxsize, FOLDED_COLUMNS_MIN, False),
    (sys.maxsize, 13, False),
    (1, FOLDED_COLUMNS_MIN, True),
)
"""How many cells of a column are folded, how wide it is at least (13: as a time without its day), and whether the first
columns may be narrower: each is tried where those before have less room for the answer."""
NARROW_COLUMNS_MIN: Final = 8
"""In a narrow terminal one of the first three of an answer: who, how bad, why."""
PIECE: Final = re.compile(r"\d{4}-\d\d-\d\dT|.+?(?:\s+|[-_:,.](?=\D)|$)", re.DOTALL)
"""A part of a cell: a day, or what ends in a blank or a mark."""
DAY: Final = re.compile(r"(\d{4}-\d\d-\d\d)T")
CONFIDENCE: Final = "confidence"
IS_WIDE: ContextVar[bool] = ContextVar("is_wide", default=False)
"""Does --wide ask for all columns, whatever the width?"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its minimum width, whether it grows with its cells, and whether they are never cut.

    Width 0: as wide as necessary, for the last column.
    """

    name: str
    width: int = 0
    grows: bool = False
    is_whole: bool = False


class Bars(NamedTuple):
    """What is between two columns: in the header, in the line below it (empty: there is none), and in rows."""

    header: str = " "
    line: str = ""
    row: str = " "


BLANKS: Final = Bars()


def room_for(out: IO[str]) -> int | None:
    """The width of a terminal; None: lines may have any."""
    if IS_WIDE.get() or not out.isatty():
        return None
    return max(get_terminal_size((TERMINAL_COLUMNS, 24)).columns, 1)


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Value]],
    *,
    first: Sequence[str] = (),
    then: Sequence[str] = (),
    room: int | None = None,
    bars: Bars = BLANKS,
) -> Iterator[str]:
    """The header and the rows, padded like Java's `%-15s`; in `room`, if it is too small for them, as `_fitted`.

    `first`: the columns that are the answer, by importance; without them all are, in their order. `then`: those that
    come next.
    """
    texts = [list(map(text_cell, values)) for values in zip(*rows, strict=True)] or [[] for _ in columns]
    known = [*first, *then]
    ranks = [known.index(it.name) if it.name in known else len(known) for it in columns]
    in_order = sorted(range(len(columns)), key=ranks.__getitem__)
    columns = [columns[index] for index in in_order]
    cells = [texts[index] for index in in_order]
    cells = [these if column.is_whole else list(map(cut, these)) for column, these in zip(columns, cells, strict=True)]
    lines = list(_joined(zip(*map(_padded, columns, cells), strict=True), bars))
    if room is None or all(_shown_length(line) <= room for line in lines):
        yield from lines
    else:
        named = [[it.name, *these] for it, these in zip(columns, cells, strict=True)]
        yield from _fitted(named, sum(rank < len(first) for rank in ranks) or len(columns), room, bars)


def _joined(rows: Iterable[Sequence[str]], bars: Bars, header_count: int = 1) -> Iterator[str]:
    """Lines of padded cells, of which the first ones are the header."""
    for number, cells in enumerate(rows, 1):
        yield (bars.header if number <= header_count else bars.row).join(cells).rstrip()
        if bars.line and number == header_count:
            yield bars.line.join(bars.line[0] * _shown_length(cell) for cell in cells)


def _fitted(columns: Sequence[Sequence[str]], answer_count: int, room: int, bars: Bars) -> Iterator[str]:
    """Lines that fit into the room: long cells of the first columns, which are the answer, go on in the next line; if
    all of them fit, of the other columns there are those that still do, else the first ones. A confidence is there with
    the column before it, of which it is, or neither is. Where names and times would be broken, what all rows have, and
    the day of times, is said above them, if a line has room for it. A last line says how many columns were left out."""
    gap = len(bars.row)
    needed = [max(map(_shown_length, texts)) for texts in columns]
    answer = columns[:answer_count]
    # where all of the answer has no room else, names of columns are folded, then names and times in their rows
    widths: dict[int, int] = {}
    for folding in FOLDINGS:
        tried = _widths(answer, room, gap, *folding)
        if len(tried) > len(widths) or not widths:
            widths, (folded_count, _, is_squeezed) = tried, folding
    left = room + gap - sum(width + gap for width in widths.values())
    shared = [_shared(cells) for _, *cells in answer]
    said = f"all: {', '.join(f'{texts[0]} {it}' for texts, it in zip(answer, shared, strict=True) if it)}"
    others = [
        [texts[0], *(it.removeprefix(f"{day}T") if day else it for it in texts[1:])]
        for texts, day in zip(answer, shared, strict=True)
        if texts[1:2] != [day]
    ]
    if (folded_count > 1 or is_squeezed) and any(shared) and others and _shown_length(said) <= room:
        yield said
        yield from _fitted([*others, *columns[answer_count:]], len(others), room, bars)
        return
    has_answer = len(widths) == answer_count
    for index, width in widths.items():
        more = min(needed[index] - width, left)
        widths[index] += more
        left -= more
    for index, width in enumerate(needed[answer_count:], answer_count):
        if has_answer and width + gap <= left:
            widths[index] = width
            left -= width + gap
    folded = [[_folded(text, width) for text in columns[index]] for index, width in widths.items()]
    rows = [list(zip_longest(*row, fillvalue="")) for row in zip(*folded, strict=True)]
    padded = (
        [text + " " * (width - _shown_length(text)) for text, width in zip(line, widths.values(), strict=True)]
        for row in rows
        for line in row
    )
    yield from _joined(padded, bars, len(rows[0]))
    if len(widths) < len(columns):
        yield f"{counted(len(columns) - len(widths), 'more column')}: --wide"


def _widths(
    answer: Sequence[Sequence[str]], room: int, gap: int, folded_count: int, widest: int, is_squeezed: bool
) -> dict[int, int]:
    """The least widths of the first columns that have room, folded as one of `FOLDINGS` says."""
    widths: dict[int, int] = {}
    left = room + gap
    for index, texts in enumerate(answer):
        whole = max(map(_shown_length, texts[folded_count:]), default=0)
        least = min(max(map(_least, texts[:folded_count]), default=0), widest)
        least = max(least, min(whole, widest))
        if is_squeezed and index < 3 and NARROW_COLUMNS_MIN + gap <= left:
            least = min(least, left - gap)
        least = min(least, room)
        if least + gap > left:
            break
        widths[index] = least
        left -= least + gap
    if 1 < len(widths) < len(answer) and answer[len(widths)][0] == CONFIDENCE:
        widths.popitem()
    return widths


def _shared(cells: Sequence[str]) -> str:
    """What several cells have in common: all of it, or the day of times. Empty: nothing."""
    if len(cells) < 2 or len(set(cells)) == 1:
        return cells[0] if len(cells) > 1 else ""
    day = DAY.match(max(cells))
    return day[1] if day and all(it.startswith(day[0]) or it == UNKNOWN for it in cells) else ""


def _folded(text: str, width: int) -> list[str]:
    """The lines of a cell."""
    # a wide character needs two columns
    characters = width if len(text) == _shown_length(text) else max(width // 2, 1)
    lines = [""]
    for piece in PIECE.findall(text):
        if len(lines[-1]) + len(piece.rstrip()) > characters:
            first, *rest = wrap(piece, characters, drop_whitespace=False) or [""]
            lines[-1:] = [first, *rest] if not lines[-1] else [lines[-1], first, *rest]
        else:
            lines[-1] += piece
    return [line.strip() for line in lines]


def _least(text: str) -> int:
    """How wide a cell is at least, in as many lines as it takes."""
    return max((_shown_length(piece.rstrip()) for piece in PIECE.findall(text)), default=0)


def folded_text(text: str, out: IO[str], indent: str = "  ") -> str:
    """A sentence in lines that a terminal has room for. A command is one line, to be copied."""
    room = room_for(out)
    if room is None or _shown_length(text) <= room:
        return text
    sentence, entry, words = text.partition(f"{ENTRY} ")
    lines = wrap(sentence, max(room - len(indent), 1)) or [""]
    return f"\n{indent}".join([*lines, *([entry + words] if entry else ())])


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


def say(*lines: str) -> None:
    """Print lines on stderr, with control characters escaped."""
    for line in lines:
        print(folded_text(printable(line), sys.stderr), file=sys.stderr, flush=True)


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


def write_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    out: TextIO,
    *,
    first: Sequence[str] = (),
    then: Sequence[str] = (),
    bars: Bars = BLANKS,
) -> None:
    """A table for people, as `table_lines`."""
    grown = [Column(name, len(name), grows=True) for name in columns]
    lines = table_lines(grown, rows, first=first, then=then, room=room_for(out), bars=bars)
    out.writelines(f"{line}\n" for line in lines)


def write_answers(
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    output_format: str,
    out: TextIO,
    *,
    first: Sequence[str] = (),
    then: Sequence[str] = (),
) -> None:
    """Rows of equal shape in the requested format; `first`, `then`: as for `table_lines`."""
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    if output_format == "json":
        write_json(named, out)
    elif output_format == "csv":
        write_csv(columns, named, out)
    else:
        write_table(columns, rows, out, first=first, then=then)


def _length(text: str) -> int:
    """Length as in Java: UTF-16 code units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _shown_length(text: str) -> int:
    """Columns of a terminal: East Asian characters are two wide."""
    return len(text) if text.isascii() else len(text) + sum(east_asian_width(character) in "WF" for character in text)


def _padded(column: Column, cells: Sequence[str]) -> list[str]:
    """The column's name and its cells, padded to equal width."""
    width = max([column.width, *map(_length, cells)]) if column.grows else column.width
    return [
        text.ljust(width) if text.isascii() else text + " " * (width - _length(text)) for text in (column.name, *cells)
    ]
