"""Fault injection for `make faults`: a job kills itself at a named point, like kill -9.

Points are the commits of tables, such as `before silver.topics`, `after state.runs`, `before swap of
bronze.record_batches`. It is enabled only by the environment: GROUPLEDGER_FAULT="SIGKILL before silver.topics".
"""

import os
import signal
from typing import Final

FAULT: Final = "GROUPLEDGER_FAULT"


def reached(point: str) -> None:
    """The driver has reached a point: send the signal, if the environment requests one here."""
    signal_name, _, asked = os.environ.get(FAULT, "").partition(" ")
    if asked == point:
        os.kill(os.getpid(), signal.Signals[signal_name])
