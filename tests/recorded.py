"""Where the recordings are: the sample lies open in recordings/, the others are archives in tests/recordings."""

from pathlib import Path
from typing import Final

from tools.recordings import SUFFIX, unpacked

_ROOT: Final = Path(__file__).resolve().parent.parent
SAMPLES: Final = _ROOT / "recordings"
"""What the default settings, the documentation's commands and the wheel read."""
ARCHIVES: Final = _ROOT / "tests" / "recordings"
UNPACKED: Final = _ROOT / ".cache" / "recordings"
RECORDINGS: Final = unpacked(ARCHIVES.glob(f"*{SUFFIX}"), UNPACKED, links=SAMPLES.iterdir())
"""All of them, a folder each: tests are collected by their names, so they are there when a test file is read."""
