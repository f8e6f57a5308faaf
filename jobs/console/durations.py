"""Durations on the command line."""

from coordinator_core.text import duration_of
from jobs.errors import SettingsError


def parse_duration(name: str, text: str) -> int:
    """Parse `250ms`, `10s`, `1m`, `2h` or `1d` to milliseconds, above zero.

    Raises SettingsError, which names the option.
    """
    duration_ms = duration_of(text)
    if not duration_ms:
        raise SettingsError(f"{name} {text!r} is no duration above zero, as 250ms, 10s, 1m, 2h or 1d")
    return duration_ms
