"""The stage of tasks that a driver waits for, as whoever shows progress sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator


@dataclass(frozen=True, slots=True)
class RunningStage:
    """What tasks are at, for whoever shows it."""

    what: str
    """In plain words."""
    total_bytes: int
    """Of all tasks; 0 where their work has no `size_bytes`."""
    done: "Accumulator[int]"

    @property
    def done_bytes(self) -> int:
        """Of the tasks that ended."""
        return min(self.done.value, self.total_bytes)


_stages: Final[list[RunningStage]] = []
"""A driver does one thing at a time."""


def running_stage() -> RunningStage | None:
    """What tasks are at now, if they are."""
    return _stages[-1] if _stages else None


@contextmanager
def running(now: RunningStage) -> Iterator[RunningStage]:
    """Have a stage shown as the running one."""
    _stages.append(now)
    try:
        yield now
    finally:
        _stages.remove(now)
