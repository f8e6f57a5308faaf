"""Times: epoch milliseconds in the core, datetimes in rows."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def to_datetime(timestamp_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)
