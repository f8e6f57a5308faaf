"""Counts and durations in texts of people."""

import re
from typing import Final

UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)


def duration_of(text: str) -> int | None:
    """`250ms`, `45s`, `5m`, `2h` or `1d` in milliseconds; None for any other text."""
    match = DURATION.fullmatch(text)
    return int(match[1]) * UNIT_MS[match[2]] if match else None


def duration_text(duration_ms: int) -> str:
    """As people say it: `7 ms`, `3.004 s`, `5 min`, `4 min 42 s`, `25 h`; above a minute the two largest units."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
    seconds = round(duration_ms / 1000)
    parts: list[tuple[int, str]] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count:,} {unit}" for count, unit in parts[:2] if count)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count and what it counts: `1 record`, `2,000 records`. `plural`: where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
