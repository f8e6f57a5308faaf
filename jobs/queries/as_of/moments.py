"""Times on the command line: ISO 8601, epoch milliseconds, and relative expressions.

`2026-11-20T03:12:00Z` and epoch milliseconds have a fixed meaning. `now`, `-2h30m`, `today`, `yesterday 03:12`,
`monday`, `03:12` depend on a clock and a time zone, so both are arguments, and answers say how the expression was
interpreted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobs.console.output import time_text
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX
from jobs.delta.times import epoch_ms
from jobs.errors import ArgumentError

NUMBER_MS_MIN: Final = 10**11
"""March 1973. Seconds since 1970 reach this in the year 5138, so a smaller number cannot be milliseconds of Kafka."""
NUMBER_MS_END: Final = 10**14
"""The year 5138. Microseconds since 1970 have exceeded this since 1973."""
OTHER_UNITS: Final = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))

UNITS: Final[Mapping[str, timedelta]] = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
AGO: Final = re.compile(r"-((?:\d{1,6}[wdhms])+)", re.ASCII)
PART: Final = re.compile(r"(\d+)([wdhms])", re.ASCII)
DAYS_AGO: Final[Mapping[str, int]] = {"today": 0, "yesterday": 1}
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
LOCALTIME: Final = Path("/etc/localtime")
ZONES: Final = "zoneinfo/"
"""Precedes the zone name in the path that /etc/localtime links to."""
EXAMPLES: Final = "2026-11-20T03:12:00Z, epoch milliseconds, now, -2h, today, 'yesterday 03:12' or 'monday 03:12'"
OUTSIDE: Final = f"{{text!r}} is out of range: give a time from 1970 to 9999-12-30, as {EXAMPLES}"


class Moment(NamedTuple):
    """A time, and how an expression was interpreted; None for text with a fixed meaning."""

    timestamp_ms: int
    reading: str | None


@dataclass(frozen=True, slots=True)
class Clock:
    """The reference for relative times."""

    now: datetime
    """In UTC."""
    zone_name: str
    """Shown in answers."""
    to_utc: Callable[[datetime], datetime]
    """Convert a local time without a zone."""
    to_local: Callable[[datetime], datetime]
    is_zone_given: bool
    """ISO 8601 times without a zone are in the given zone, else in UTC."""

    @classmethod
    def of(cls, now: datetime, timezone: str | None) -> "Clock":
        """`timezone`: a name in the IANA database; None: the machine's zone.

        Raises ArgumentError for an unknown one.
        """
        if timezone is None:
            return cls(
                now,
                f"{machine_zone(now)}, this machine's zone",
                lambda local: local.astimezone(UTC),
                lambda at: at.astimezone().replace(tzinfo=None),
                is_zone_given=False,
            )
        try:
            zone = ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ArgumentError(
                f"--timezone {timezone[:50]!r} is no zone: give a name as Europe/Berlin or UTC"
            ) from None
        return cls(
            now,
            timezone,
            lambda local: local.replace(tzinfo=zone).astimezone(UTC),
            lambda at: at.astimezone(zone).replace(tzinfo=None),
            is_zone_given=True,
        )


def machine_zone(now: datetime) -> str:
    """The name of the machine's time zone, or its offset where the name is unknown."""
    target = str(LOCALTIME.resolve()) if LOCALTIME.is_symlink() else ""
    _, found, name = target.partition(ZONES)
    return name if found else str(now.astimezone().tzname())


def read_moment(text: str, clock: Clock) -> Moment:
    """Parse a time. Raises ArgumentError."""
    text = text.strip()
    words = text.lower().split()
    if AGO.fullmatch(text.lower()):
        ago = sum((int(count) * UNITS[unit] for count, unit in PART.findall(text.lower())), timedelta())
        return _relative(text, _before(clock.now, ago, text), clock)
    if words == ["now"]:
        return _relative(text, clock.now, clock)
    local = _local(words, clock)
    if local is None and clock.is_zone_given and (naive := _iso(text)) is not None and naive.tzinfo is None:
        local = naive
    if local is None:
        return Moment(parse_time(text), None)
    at, again = _as_utc(local, clock, text)
    moment = _relative(text, at, clock)
    if again is None:
        return moment
    other = time_text(epoch_ms(again))
    twice = "the first of two such times, since clocks went back: the second is"
    return moment._replace(reading=f"{moment.reading}, {twice} {other}")


def _relative(text: str, at: datetime, clock: Clock) -> Moment:
    at_ms = epoch_ms(at)
    if not 0 <= at_ms <= TIMESTAMP_MS_MAX:
        raise ArgumentError(OUTSIDE.format(text=text[:50]))
    return Moment(at_ms, f"{text} is {time_text(at_ms)} ({clock.zone_name})")


def _before(now: datetime, ago: timedelta, text: str) -> datetime:
    try:
        return now - ago
    except OverflowError:
        raise ArgumentError(OUTSIDE.format(text=text[:50])) from None


def _local(words: list[str], clock: Clock) -> datetime | None:
    """A local time from a day, a time of day, or both; None for anything else. A time of day alone is the most
    recent one."""
    now = clock.to_local(clock.now)
    day = words[0] if words else ""
    if day in DAYS_AGO:
        days, rest = DAYS_AGO[day], words[1:]
    elif day in WEEKDAYS:
        days, rest = (now.weekday() - WEEKDAYS.index(day)) % len(WEEKDAYS), words[1:]
    else:
        at = _time_of_day(words)
        if at is None:
            return None
        today = datetime.combine(now.date(), at)
        return today if today <= now else today - timedelta(days=1)
    at = time() if not rest else _time_of_day(rest)
    if at is None:
        return None
    moment = datetime.combine(now.date() - timedelta(days=days), at)
    is_next_week = day in WEEKDAYS and moment > now
    return moment - timedelta(weeks=1) if is_next_week else moment


def _time_of_day(words: list[str]) -> time | None:
    """Only `03:12`, `03:12:05` or `03:12:05.250`; no other ISO 8601 forms."""
    if len(words) != 1 or not re.fullmatch(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", words[0], re.ASCII):
        return None
    try:
        return time.fromisoformat(words[0])
    except ValueError:
        return None


def _as_utc(local: datetime, clock: Clock, text: str) -> tuple[datetime, datetime | None]:
    """To UTC; where clocks went back and the time came twice, both. A time that is skipped by a clock change is an
    error."""
    at, again = (clock.to_utc(local.replace(fold=fold)) for fold in (0, 1))
    if clock.to_local(at) != local:
        raise ArgumentError(f"{text[:50]!r} was left out where clocks went forward ({clock.zone_name}): give UTC")
    return at, again if again != at else None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def parse_time(text: str) -> int:
    """Epoch milliseconds, given as such or as ISO 8601 (UTC by default). Raises ArgumentError."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        timestamp_ms = int(text)
        _refuse_other_unit(text, timestamp_ms)
    else:
        at = _iso(text)
        if at is None:
            raise ArgumentError(f"{text[:50]!r} is no time: give ISO 8601, as {EXAMPLES}")
        timestamp_ms = epoch_ms(at if at.tzinfo else at.replace(tzinfo=UTC))
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise ArgumentError(OUTSIDE.format(text=text[:50]))
    return timestamp_ms


def _refuse_other_unit(text: str, number: int) -> None:
    """Raise ArgumentError for a number that would be implausible as milliseconds."""
    if NUMBER_MS_MIN <= number < NUMBER_MS_END:
        return
    for unit, factor, divisor in OTHER_UNITS:
        meant_ms = number * factor // divisor
        if NUMBER_MS_MIN <= meant_ms < min(NUMBER_MS_END, TIMESTAMP_MS_MAX):
            year = (
                f"a time in {datetime.fromtimestamp(number / 1000, UTC).year}"
                if number <= TIMESTAMP_MS_MAX
                else "no time"
            )
            raise ArgumentError(
                f"{text} is {year} in milliseconds: are these {unit}? Give milliseconds, {meant_ms}, or ISO 8601, "
                f"{datetime.fromtimestamp(meant_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
    raise ArgumentError(OUTSIDE.format(text=text[:50]))
