"""Counts and durations in texts of people."""

import re
from typing import Final

UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)


def duration_of(text: str) -> int | None:
    """`250ms`, `45s`, `5m`, `2h` or `1d` in milliseconds; None for any other text."""
    match = DURATION.fullmatch(text)
    return int(match[1]) * UNIT_MS[match[2]] if match else None


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count and what it counts: `1 record`, `2,000 records`. `plural`: where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
