"""Durations on the command line."""

import re
from typing import Final

from jobs.errors import SettingsError

DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)
UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(name: str, text: str) -> int:
    """Parse `250ms`, `10s`, `1m`, `2h` or `1d` to milliseconds, above zero.

    Raises SettingsError, which names the option.
    """
    match = DURATION.fullmatch(text)
    duration_ms = int(match[1]) * UNIT_MS[match[2]] if match else 0
    if duration_ms <= 0:
        raise SettingsError(f"{name} {text!r} is no duration above zero, as 250ms, 10s, 1m, 2h or 1d")
    return duration_ms
