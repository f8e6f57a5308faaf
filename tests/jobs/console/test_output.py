"""Output of answers: what a client sent has no effect where it is read, and tables stay readable."""

import csv
import io
import json
import sys
import unicodedata

import pytest

from jobs.console.output import CELL_CHARACTERS_MAX, Column, csv_cell, csv_line, json_line, table_lines, write_answers


def test_no_output_has_a_control_code() -> None:
    """Neither table nor CSV nor JSON, of any character that is not seen: control and format codes (bidi too),
    surrogates, separators, and what is not assigned; all three in lines of text that is UTF-8."""
    text = "".join(
        it for it in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(it)[0] in "CZ" and it != " "
    )
    (header, cell) = table_lines([Column("A", is_whole=True)], [[text]])
    for line in (header, cell, csv_line([csv_cell(text)])[:-1], json_line({text: [text]})[:-1]):
        assert line.isprintable() and line.encode()


def test_json_is_the_same_for_its_readers_and_csv_is_as_the_table() -> None:
    """JSON escapes by its own rules, so nothing of a text is lost; CSV has what the table shows."""
    texts = ["a\x1b[2Jb", "c\u202ed", "e\x9bf", "g\u2028h", "i\r\nj", "\U000e0041k", "\ud800l", 'é, "x"', "日本", "\\n"]
    for text in texts:
        assert json.loads(json_line({text: text})) == {text: text}
        (_, cell) = table_lines([Column("A")], [[text]])
        assert next(csv.reader(io.StringIO(csv_line([csv_cell(text)])))) == [cell]
    assert csv_line([csv_cell("a\x1b\u202e")]) == "a\\x1b\\u202e\n" and json_line("\x9b") == '"\\u009b"\n'


@pytest.mark.parametrize("output_format", ["table", "csv", "json"])
def test_long_ids_are_cut_in_tables_alone(output_format: str) -> None:
    """A table of one id of 30,000 characters is as readable as others; programs get it whole."""
    out = io.StringIO()
    write_answers(
        ("GROUP", "STATE"), [("g" * 30_000, "Stable"), ("h" * CELL_CHARACTERS_MAX, "Empty")], output_format, out
    )
    lines = out.getvalue().splitlines()
    assert ("g" * 30_000 in lines[-2]) == (output_format != "table")
    assert any("h" * CELL_CHARACTERS_MAX in line for line in lines)
    if output_format == "table":
        assert max(map(len, lines)) <= CELL_CHARACTERS_MAX + len(" Stable") and "ggg... Stable" in lines[1]


def test_a_narrow_terminal_still_has_the_reason() -> None:
    """The first three columns of an answer are there, folded; what is wide and comes later is left out."""
    columns = [Column(name, grows=True) for name in ("GROUP", "VERDICT", "WHY", "SINCE", "TYPE")]
    rows = [("k03-static", "WARN", "5 in storms, 1 thrown out", "2026-11-21T02:58:11.841Z", "CONSUMER")]
    lines = list(table_lines(columns, rows, first=("GROUP", "VERDICT", "WHY", "SINCE"), room=34))
    assert lines[0].split() == ["GROUP", "VERDICT", "WHY"] and max(map(len, lines)) <= 34
    assert " ".join(line[19:] for line in lines[1:-1]).split() == ["5", "in", "storms,", "1", "thrown", "out"]


def test_what_all_rows_have_is_said_once_where_cells_would_be_broken() -> None:
    """In a line above the table, so that times stay whole, and if they are of one day, this; not where there is room
    for them or none for the line, nor of a row that is alone."""
    names = ("group_id", "cause", "at", "confidence")
    columns = [Column(name, grows=True) for name in names]
    rows = [("a", "LEFT", f"2026-01-0{number}T08:24:30.000Z", "LIKELY") for number in (6, 7)]
    wide, narrow, least = (list(table_lines(columns, rows, first=names, room=room)) for room in (80, 47, 40))
    assert wide[0].split() == list(names) and len(wide) == 3
    assert narrow == ["all: group_id a, cause LEFT, confidence LIKELY", "at", *(row[2] for row in rows)]
    assert least[0].split()[0] == "group_id"
    assert "all:" not in "".join(table_lines(columns, rows[:1], first=names, room=47))
    of_a_day = [("T1", "b"), ("LEFT", "LEFT"), ("2026-01-06T08:24:30.000Z", "2026-01-06T08:24:31.000Z"), ("GUESS", "-")]
    assert list(table_lines(columns, [*zip(*of_a_day, strict=True)], first=names, room=47)) == [
        "all: cause LEFT, at 2026-01-06",
        "group_id at            confidence",
        "T1       08:24:30.000Z GUESS",
        "b        08:24:31.000Z -",
    ]


def test_all_of_an_answer_is_there_where_folding_makes_room() -> None:
    """Names of columns are folded first, then names and days in rows; cells that have room stay whole."""
    columns = [Column(name, grows=True) for name in ("group_id", "delivered_again_count", "at", "other")]
    rows = [("s12-offsets", 198, "2026-01-06T08:24:30.002Z", "x" * 30)]
    first = ("group_id", "delivered_again_count", "at")
    wide, narrow = (list(table_lines(columns, rows, first=first, room=room)) for room in (47, 36))
    assert [line.split() for line in wide[:-1]] == [
        ["group_id", "delivered_", "at"],
        ["again_"],
        ["count"],
        ["s12-offsets", "198", "2026-01-06T08:24:30.002Z"],
    ]
    assert narrow[3].split() == ["s12-offsets", "198", "2026-01-06T"] and narrow[4].split() == ["08:24:30.002Z"]
    assert wide[-1] == narrow[-1] == "1 more column: --wide"


def test_a_confidence_is_shown_with_what_it_is_of() -> None:
    """Both or neither, at every width; what is shown of an answer are its first columns, without holes."""
    first = ("group_id", "offset", "likely_cause", "confidence", "at")
    rows = [("some-group", 5, "TRANSACTION_MARKER", "LIKELY", "x"), ("g", 7, "REJECTED", "GUESS", "y")]
    columns = [Column(name, grows=True) for name in (*first, "log")]
    shown = []
    for room in range(20, 80):
        header = " ".join(table_lines(columns, [(*row, 1) for row in rows], first=first, room=room)).lower()
        names = [name for name in first if name.rpartition("_")[2] in header.replace("all:", "")]
        assert names == list(first[: len(names)]) and ("likely_" in header) == ("confidence" in header), room
        shown.append(len(names))
    assert {2, 5} <= set(shown)
