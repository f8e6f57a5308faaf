"""The virtual clock: the next action, and its time."""

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class EventLoop:
    """A heap of (time, rank, sequence, action): actions with the same time and rank run in the order of scheduling."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """The time of the current action, in epoch milliseconds."""
        self.event_count = 0
        """The number of actions run so far."""
        self._heap: list[tuple[int, int, int, Action, tuple[Any, ...]]] = []
        self._scheduled_count = 0

    def at(self, time_ms: int, action: Action, *arguments: Any, rank: int = 0) -> None:
        """Run `action(*arguments)` at a time, or now if that has passed; at one time, the lowest rank runs first."""
        self._scheduled_count += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), rank, self._scheduled_count, action, arguments))

    def after(self, delay_ms: int, action: Action, *arguments: Any, rank: int = 0) -> None:
        """Run `action(*arguments)` in `delay_ms` milliseconds."""
        self.at(self.now_ms + delay_ms, action, *arguments, rank=rank)

    def run_until(self, end_ms: int) -> None:
        """Run all actions due before `end_ms`, and set the time to `end_ms`; later actions do not run."""
        heap = self._heap
        while heap and heap[0][0] < end_ms:
            time_ms, _, _, action, arguments = heapq.heappop(heap)
            self.now_ms = time_ms
            self.event_count += 1
            action(*arguments)
        self.now_ms = end_ms

    def run_pending(self, action: Action) -> None:
        """Run the pending calls of one action, in their order; the time stays as it is."""
        for *_, pending, arguments in sorted(self._heap):
            if pending == action:
                pending(*arguments)
