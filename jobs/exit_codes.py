"""Exit codes of jobs."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
WRONG_ARGUMENTS: Final = 2
INCOMPLETE: Final = 3
"""Done, but something was quarantined or is missing."""
INTERRUPTED: Final = 130
