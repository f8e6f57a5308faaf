"""The virtual clock: what happens next, and when."""

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class EventLoop:
    """A heap of (time, rank, sequence, action): actions of one time and rank run in the order of scheduling."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """Time of the action that runs; epoch milliseconds."""
        self.event_count = 0
        """Actions run so far."""
        self._heap: list[tuple[int, int, int, Action, tuple[Any, ...]]] = []
        self._scheduled_count = 0

    def at(self, time_ms: int, action: Action, *arguments: Any, rank: int = 0) -> None:
        """Run `action(*arguments)` at a time, or now where that is past; of one time the lowest rank comes first."""
        self._scheduled_count += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), rank, self._scheduled_count, action, arguments))

    def after(self, delay_ms: int, action: Action, *arguments: Any, rank: int = 0) -> None:
        """Run `action(*arguments)` in so many milliseconds."""
        self.at(self.now_ms + delay_ms, action, *arguments, rank=rank)

    def run_until(self, end_ms: int) -> None:
        """Run all that is due before `end_ms`; then it is `end_ms`, and what comes later has not happened."""
        heap = self._heap
        while heap and heap[0][0] < end_ms:
            time_ms, _, _, action, arguments = heapq.heappop(heap)
            self.now_ms = time_ms
            self.event_count += 1
            action(*arguments)
        self.now_ms = end_ms
