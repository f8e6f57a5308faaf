"""Which offsets were not read, and the times around them."""

import io
from pathlib import Path

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from jobs.cli_enums import Listing
from jobs.console.output import CONFIDENCE
from jobs.queries.answers.audit_report import Completeness, Hole, Span, holes_of, listed, together, write_list
from jobs.queries.answers.lists import LISTS
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.cli.asking import Screen

LOG = "__consumer_offsets"


def captured(first: int, last: int, first_ms: int | None, last_ms: int | None) -> CoverageRange:
    return CoverageRange(first, last, CoverageKind.CAPTURED, 0, None, first_ms, last_ms)


def test_a_hole_has_the_times_of_what_was_read_around_it() -> None:
    """The latest before it and the earliest behind it, whatever their order in the log: a clock may go back."""
    ranges = [
        captured(50, 59, 900, 910),
        captured(10, 19, 500, 800),
        CoverageRange(30, 34, CoverageKind.MISSING, 0, "GONE"),
        captured(20, 29, 700, 600),
        captured(35, 39, None, None),
    ]
    assert list(holes_of(LOG, 3, ranges)) == [
        Hole(f"{LOG}-3", 0, 9, "MISSING", None, None, 500),
        Hole(f"{LOG}-3", 30, 34, "MISSING", "GONE", 800, 900),
        Hole(f"{LOG}-3", 40, 49, "MISSING", None, 800, 900),
    ]


def test_a_hole_at_the_end_has_nothing_behind_it() -> None:
    ranges = [captured(0, 9, None, 100), CoverageRange(10, 12, CoverageKind.CORRUPT, 0, "CRC")]
    assert list(holes_of(LOG, 0, ranges)) == [Hole(f"{LOG}-0", 10, 12, "CORRUPT", "CRC", 100, None)]


def test_the_list_is_before_the_reasons() -> None:
    """The first line says whether it is complete; programs have all of that first."""
    complete = Completeness(False, ("NOT COMPLETE: not every record was read", "a hole", "another"))
    first, *reasons = (f"# {line}" for line in complete.statements)
    for out in (Screen(), io.StringIO()):
        write_list(complete, ["n"], [(1,)], "table", out, first=())
        write_list(complete, ["n"], [], "table", out, first=())
        assert out.getvalue().splitlines() == [
            first,
            "n",
            "1",
            *reasons,
            first,
            "# Nothing is listed, but not all was read:",
            *reasons,
        ]
    rows = io.StringIO()
    write_list(complete, ["n"], [(1,)], "csv", rows, first=())
    assert rows.getvalue().splitlines() == [first, *reasons, "n", "1"]


def test_many_holes_of_a_kind_are_one_statement() -> None:
    """Of a compacted log each would be a line: how many they are, how many offsets, and between which times."""
    holes = [Hole("t-0", number, number + 1, "COMPACTED", "why", number, number + 9) for number in (0, 10, 20)]
    assert together(holes[:1]) == holes[0]
    assert together(holes) == Hole("t-0", 0, 21, "COMPACTED", "3 ranges, 6 offsets in all", 0, 29)


def test_without_a_metadata_log_topics_are_those_of_new_partitions(tmp_path: Path) -> None:
    """Which the group had for the first time, or for the last time before."""
    log = SmallLog()
    for number, partitions in enumerate(((0,), (0,), (0, 1)), 1):
        log.generation("g", number, {"a": partitions}, NOON_MS + number * 60_000)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(log.write(tmp_path / "logs"), partitions=("__consumer_offsets=1",))
    columns, rows = listed(ledger.tables, None, Listing.GROWN, Span())
    [row] = [dict(zip(columns, row, strict=True)) for row in rows]
    assert (row["to_generation"], row["cause"], row["topics"]) == (3, "PARTITIONS_CHANGED", "in came")


def test_a_confidence_comes_behind_what_it_is_of() -> None:
    """In every list, so that a narrow terminal has both or neither; else what it is of is part of the answer."""
    of = {"likely_cause", "cause", "kind", "lag"}
    for listing, it in LISTS.items():
        if CONFIDENCE in it.first:
            assert it.first[it.first.index(CONFIDENCE) - 1] in of, listing
        elif CONFIDENCE in it.table.column_names:
            assert of.intersection(it.table.column_names) <= set(it.first), listing
