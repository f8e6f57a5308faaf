"""Answers that wait until the log is committed up to an offset (DeferredEventQueue)."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Waiting:
    """One operation that ran: its answer, and its continuation for when its records are committed or lost."""

    request_id: int
    response: Any = None
    """None: the operation answers later, or no request waits."""
    parked: tuple[Any, ...] = ()
    """Continuations of the machine."""
    is_answered: bool = False
    is_done: bool = False


class DeferredQueue:
    """Operations by the offset up to which the log must be committed; offsets only increase."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Sequence[Waiting]]] = deque()

    def add(self, end_offset: int, waiting: Sequence[Waiting]) -> None:
        """Wait until the high watermark is at `end_offset` or above."""
        self._entries.append((end_offset, waiting))

    def take_up_to(self, high_watermark: int) -> Iterator[Waiting]:
        """Remove and return operations that wait for at most `high_watermark`, in order."""
        while self._entries and self._entries[0][0] <= high_watermark:
            yield from self._entries.popleft()[1]

    def take_all(self) -> Iterator[Waiting]:
        """Remove and return all operations, in order."""
        while self._entries:
            yield from self._entries.popleft()[1]


class WriteTimeouts:
    """Timeouts of waiting operations. All have the same duration, so the first to wait is the first to time out."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._entries: deque[tuple[int, Waiting]] = deque()

    def add(self, waiting: Waiting, now_ms: int) -> None:
        """Start the timeout of an operation that waits from now on."""
        self._entries.append((now_ms + self.timeout_ms, waiting))

    def next_deadline_ms(self) -> int | None:
        """When the next operation times out, or None."""
        while self._entries and self._entries[0][1].is_done:
            self._entries.popleft()
        return self._entries[0][0] if self._entries else None

    def take_due(self, now_ms: int) -> Iterator[Waiting]:
        """Remove and return operations that timed out."""
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            yield self._entries.popleft()[1]
