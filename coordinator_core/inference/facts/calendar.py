"""Days, in UTC."""

from collections.abc import Iterator
from typing import Final

DAY_MS: Final = 86_400_000


def cut_by_day(from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
    """Cut a time range (end exclusive) by day, into (first instant of the day, ms of the range on it)."""
    while from_ms < to_ms:
        day = from_ms // DAY_MS * DAY_MS
        end = min(day + DAY_MS, to_ms)
        yield day, end - from_ms
        from_ms = end
