"""Moments as people say them, by a clock and a zone that come in."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from jobs.errors import ArgumentError
from jobs.queries.as_of.moments import Clock, parse_time, read_moment

NOW = datetime(2026, 11, 25, 9, 30, 15, 250_000, tzinfo=UTC)
"""A Wednesday; 10:30 in Berlin."""


def berlin(text: str, now: datetime = NOW) -> str:
    """The moment in UTC."""
    at_ms = read_moment(text, Clock.of(now, "Europe/Berlin")).timestamp_ms
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", "2026-11-25T09:30:15.250"),
        ("-2h", "2026-11-25T07:30:15.250"),
        ("-1d2h30m", "2026-11-24T07:00:15.250"),
        ("-2W", "2026-11-11T09:30:15.250"),
        ("today", "2026-11-24T23:00:00.000"),
        ("Today 03:12", "2026-11-25T02:12:00.000"),
        ("yesterday", "2026-11-23T23:00:00.000"),
        ("yesterday 03:12", "2026-11-24T02:12:00.000"),
        ("yesterday  03:12:05.5", "2026-11-24T02:12:05.500"),
        ("today 23:00", "2026-11-25T22:00:00.000"),
        ("03:12", "2026-11-25T02:12:00.000"),
        ("23:00", "2026-11-24T22:00:00.000"),
        ("monday 03:12", "2026-11-23T02:12:00.000"),
        ("wednesday", "2026-11-24T23:00:00.000"),
        ("wednesday 10:31", "2026-11-18T09:31:00.000"),
        ("thursday", "2026-11-18T23:00:00.000"),
        ("2026-11-25 03:12", "2026-11-25T02:12:00.000"),
        ("2026-11-25T03:12:00Z", "2026-11-25T03:12:00.000"),
        ("2026-11-25T03:12:00+05:00", "2026-11-24T22:12:00.000"),
        ("1763900000000", "2025-11-23T12:13:20.000"),
        ("2026-07-01 03:12", "2026-07-01T01:12:00.000"),
    ],
)
def test_what_people_say(text: str, at: str) -> None:
    """Days and times of day are of the zone that was given, and so is ISO 8601 without a zone."""
    assert berlin(text) == at


def test_the_answer_says_how_words_were_read() -> None:
    """A text that means the same everywhere needs no word."""
    clock = Clock.of(NOW, "Europe/Berlin")
    assert (
        read_moment("yesterday 03:12", clock).reading == "yesterday 03:12 is 2026-11-24T02:12:00.000Z (Europe/Berlin)"
    )
    assert read_moment("2026-11-25T03:12:00Z", clock).reading is None
    assert read_moment("1763900000000", clock).reading is None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine far from UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    assert "TZ" not in os.environ or os.environ["TZ"] != "Asia/Tokyo"
    time.tzset()


@pytest.mark.usefixtures("machine")
def test_words_go_by_the_machines_zone_and_iso_by_utc() -> None:
    """Where no zone is given; the answer names the machine's."""
    clock = Clock.of(NOW, None)
    moment = read_moment("today 03:12", clock)
    assert moment.timestamp_ms == parse_time("2026-11-24T18:12:00Z")
    assert moment.reading is not None and moment.reading.endswith("this machine's zone)")
    assert read_moment("2026-11-25 03:12", clock) == (parse_time("2026-11-25T03:12:00Z"), None)


@pytest.mark.parametrize(
    ("zone", "text", "first", "second"),
    [
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25T00:30", "2026-10-25T01:30"),
        ("Europe/Berlin", "today 02:30", "2026-10-25T00:30", "2026-10-25T01:30"),
        ("Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04T14:45", "2026-04-04T15:15"),
    ],
)
def test_a_time_that_came_twice_is_said_with_both(zone: str, text: str, first: str, second: str) -> None:
    """The first one is taken, of words and of ISO 8601; of an hour that came once nothing is said."""
    clock = Clock.of(datetime(2026, 10, 25, 20, tzinfo=UTC), zone)
    twice = f", the first of two such times, since clocks went back: the second is {second}:00.000Z"
    assert read_moment(text, clock).reading == f"{text} is {first}:00.000Z ({zone}){twice}"
    later = text[:-5] + "12:00"
    assert (read_moment(later, clock).reading or "").endswith(f"({zone})")


def test_hours_that_clocks_had_twice_or_never() -> None:
    """The first of two; what was left out is no time."""
    assert berlin("2026-10-25 02:30") == "2026-10-25T00:30:00.000"
    with pytest.raises(ArgumentError, match="left out where clocks went forward"):
        berlin("2026-03-29 02:30")
    assert berlin("yesterday 02:30", datetime(2026, 10, 26, 12, tzinfo=UTC)) == "2026-10-25T00:30:00.000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-",
        "-5",
        "-2y",
        "--2h",
        "yesterday at 3",
        "yesterday 3:12",
        "someday 03:12",
        "25:00",
        "-٣h",
        "1e9",
        "٣",
        "2026-13-01",
        "${env:HOME}",
    ],
)
def test_what_is_no_moment(text: str) -> None:
    """One line with examples."""
    with pytest.raises(ArgumentError, match="is no time: give ISO 8601"):
        berlin(text)


@pytest.mark.parametrize("text", ["-999999w", "-3000w999999d", "9" * 30])
def test_before_1970_is_out_of_range(text: str) -> None:
    """No record of Kafka's is so old."""
    with pytest.raises(ArgumentError, match="is out of range: give a time from 1970 to 9999-12-30, as "):
        berlin(text)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "\0"])
def test_an_unknown_zone_is_named(zone: str) -> None:
    """With one that would do."""
    with pytest.raises(ArgumentError, match=r"--timezone .* is no zone: give a name as Europe/Berlin"):
        Clock.of(NOW, zone)


TIMES = [
    ("1767225600123", 1767225600123),
    ("2026-01-01T00:00:00Z", 1767225600000),
    ("2026-01-01T01:00:00.123+01:00", 1767225600123),
    ("2026-01-01 00:00:00", 1767225600000),
    ("2026-01-01", 1767225600000),
]


@pytest.mark.parametrize(("given", "timestamp_ms"), TIMES)
def test_times(given: str, timestamp_ms: int) -> None:
    """Epoch milliseconds, and ISO 8601 in UTC unless it names a zone."""
    assert parse_time(given) == timestamp_ms


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1763900000", "a time in 1970 in milliseconds: are these seconds? Give milliseconds, 1763900000000"),
        ("1763900000000000", "are these microseconds? Give milliseconds, 1763900000000"),
        ("1763900000000000000", "no time in milliseconds: are these nanoseconds? Give milliseconds, 1763900000000"),
        ("7", "out of range: give a time from 1970 to 9999-12-30, as 2026-11-20T03:12:00Z, epoch milliseconds"),
    ],
)
def test_numbers_of_another_unit_are_noticed(given: str, said: str) -> None:
    """Seconds, microseconds and nanoseconds would be another age: they are refused with what was meant."""
    with pytest.raises(ArgumentError) as refused:
        parse_time(given)
    assert said in str(refused.value)
