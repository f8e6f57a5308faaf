"""Timers of a coordinator (CoordinatorTimer): one a key, run in the order of deadline, then of scheduling.

A timer names the function to run instead of holding it, so that the set of timers can be printed, compared and kept.
"""

import heapq
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Timer:
    """`name` and `arguments` say which timer function of which group type runs once the clock is at `deadline_ms`."""

    key: str
    deadline_ms: int
    sequence: int
    """Position in the order of scheduling: it decides between equal deadlines."""
    name: str
    arguments: tuple[object, ...]
    retry_backoff_ms: int | None = None
    """Run again after so long where the log refused what the timer wrote; None: it is dropped."""


STALE_ENTRIES_MAX: Final = 1024
"""Entries of replaced and cancelled timers which are kept, beyond as many as there are timers, before a clean-up."""


class Timers:
    """All timers of one coordinator. Deterministic: no clock of its own, no hash order."""

    def __init__(self) -> None:
        self._by_key: dict[str, Timer] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._scheduled_count = 0

    def schedule(
        self,
        key: str,
        deadline_ms: int,
        name: str,
        arguments: tuple[object, ...] = (),
        *,
        retry_backoff_ms: int | None = None,
    ) -> None:
        """Set the timer of this key; the one it had is cancelled."""
        self._scheduled_count += 1
        timer = Timer(key, deadline_ms, self._scheduled_count, name, arguments, retry_backoff_ms)
        self._by_key[key] = timer
        heapq.heappush(self._heap, (deadline_ms, timer.sequence, key))
        if len(self._heap) > 2 * len(self._by_key) + STALE_ENTRIES_MAX:
            self._heap = [(left.deadline_ms, left.sequence, left.key) for left in self._by_key.values()]
            heapq.heapify(self._heap)

    def cancel(self, key: str) -> None:
        """Forget the timer of this key. Absence is fine."""
        self._by_key.pop(key, None)

    def get(self, key: str) -> Timer | None:
        """The timer of this key, or None."""
        return self._by_key.get(key)

    def pop_due(self, now_ms: int) -> Timer | None:
        """Take the next timer whose deadline is `now_ms` or earlier, or None."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, sequence, key = heapq.heappop(self._heap)
            timer = self._by_key.get(key)
            if timer is not None and timer.sequence == sequence:
                del self._by_key[key]
                return timer
        return None

    def next_deadline_ms(self) -> int | None:
        """When the next timer is due, or None without timers."""
        while self._heap:
            deadline_ms, sequence, key = self._heap[0]
            timer = self._by_key.get(key)
            if timer is not None and timer.sequence == sequence:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    @property
    def entry_count(self) -> int:
        """Entries in memory: timers, and what is left of replaced and cancelled ones."""
        return len(self._heap)

    def __len__(self) -> int:
        return len(self._by_key)
