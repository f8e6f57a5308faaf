"""Timers of a coordinator (CoordinatorTimer): one for each key, run in the order of deadline, then of scheduling.

A timer has the name of the function to run instead of the function, so that timers can be printed, compared and saved.
"""

import heapq
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Timer:
    """`name` and `arguments`: the timer function of a group type that runs once the clock reaches `deadline_ms`."""

    key: str
    deadline_ms: int
    sequence: int
    """Order of scheduling; it decides between equal deadlines."""
    name: str
    arguments: tuple[object, ...]
    retry_backoff_ms: int | None = None
    """The timer runs again after this time if the log refused its records; None: it is dropped."""


STALE_ENTRIES_MAX: Final = 1024
"""How many entries of replaced and cancelled timers are kept, beyond the number of timers, before a clean-up."""


class Timers:
    """All timers of one coordinator. Deterministic: no clock, no hash order."""

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
        """Set the timer with this key; the previous one is cancelled."""
        self._scheduled_count += 1
        timer = Timer(key, deadline_ms, self._scheduled_count, name, arguments, retry_backoff_ms)
        self._by_key[key] = timer
        heapq.heappush(self._heap, (deadline_ms, timer.sequence, key))
        if len(self._heap) > 2 * len(self._by_key) + STALE_ENTRIES_MAX:
            self._heap = [(left.deadline_ms, left.sequence, left.key) for left in self._by_key.values()]
            heapq.heapify(self._heap)

    def cancel(self, key: str) -> None:
        """Remove the timer with this key. An unknown key is fine."""
        self._by_key.pop(key, None)

    def get(self, key: str) -> Timer | None:
        return self._by_key.get(key)

    def pop_due(self, now_ms: int) -> Timer | None:
        """Remove and return the next timer whose deadline is `now_ms` or earlier, or None."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, sequence, key = heapq.heappop(self._heap)
            timer = self._by_key.get(key)
            if timer is not None and timer.sequence == sequence:
                del self._by_key[key]
                return timer
        return None

    def next_deadline_ms(self) -> int | None:
        while self._heap:
            deadline_ms, sequence, key = self._heap[0]
            timer = self._by_key.get(key)
            if timer is not None and timer.sequence == sequence:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def __len__(self) -> int:
        return len(self._by_key)
