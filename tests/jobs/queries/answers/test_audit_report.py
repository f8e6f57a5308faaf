"""Which offsets were not read, and the times around them."""

import io

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from jobs.queries.answers.audit_report import Completeness, Hole, holes_of, write_list
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


def test_a_terminal_has_the_list_before_the_reasons() -> None:
    """The first line says whether it is complete; other readers have all of that first."""
    complete = Completeness(False, ("NOT COMPLETE: not every record was read", "a hole", "another"))
    for out, lines in (
        (Screen(), ["# NOT COMPLETE: not every record was read", "n", "1", "# a hole", "# another"]),
        (io.StringIO(), ["# NOT COMPLETE: not every record was read", "# a hole", "# another", "n", "1"]),
    ):
        write_list(complete, ["n"], [(1,)], "table", out, first=())
        assert out.getvalue().splitlines() == lines
