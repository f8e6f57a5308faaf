"""Times: epoch milliseconds in the core, datetimes in rows."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(at: datetime) -> int:
    """Convert a datetime to epoch milliseconds."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def to_datetime(timestamp_ms: int) -> datetime:
    """Convert epoch milliseconds to a datetime."""
    return EPOCH + timedelta(milliseconds=timestamp_ms)
