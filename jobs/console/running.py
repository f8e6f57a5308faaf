"""The stage of tasks that the driver waits for, for progress output."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol


class Done(Protocol):
    """How much of it is done: an accumulator of Spark, or its like."""

    @property
    def value(self) -> int: ...

    def add(self, count: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class RunningStage:
    what: str
    total_bytes: int
    """Size of all tasks; 0 where their work has no `size_bytes`."""
    done: Done

    @property
    def done_bytes(self) -> int:
        """Size of the completed tasks."""
        return min(self.done.value, self.total_bytes)


_stages: Final[list[RunningStage]] = []
"""At most one: a driver runs one stage at a time."""


def running_stage() -> RunningStage | None:
    return _stages[-1] if _stages else None


@contextmanager
def running(now: RunningStage) -> Iterator[RunningStage]:
    """Context in which a stage is the running one."""
    _stages.append(now)
    try:
        yield now
    finally:
        _stages.remove(now)
