"""Faults on purpose, for `make faults`: a job that kills itself at a named point, as kill -9 would.

Points are the commits of tables, as `before silver.topics`, `after state.runs`, `before swap of bronze.record_batches`.
Nothing happens unless the environment asks for it: GROUPLEDGER_FAULT="SIGKILL before silver.topics".
"""

import os
import signal
from typing import Final

FAULT: Final = "GROUPLEDGER_FAULT"


def reached(point: str) -> None:
    """The driver has come to a point; where the environment names it, with a signal, it gets that signal."""
    signal_name, _, asked = os.environ.get(FAULT, "").partition(" ")
    if asked == point:
        os.kill(os.getpid(), signal.Signals[signal_name])
