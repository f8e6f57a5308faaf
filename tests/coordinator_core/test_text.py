"""Durations in texts of people."""

import pytest

from coordinator_core.text import duration_text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (7, "7 ms"),
        (3004, "3.004 s"),
        (45_000, "45 s"),
        (200_000, "3 min 20 s"),
        (300_000, "5 min"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
        (86_400_000_000, "1,000 d"),
    ],
)
def test_durations_for_people(duration_ms: int, text: str) -> None:
    """As one would say them: exact below a minute, then in the two largest units."""
    assert duration_text(duration_ms) == text
