"""Records in flight: the state of one or more offsets, the batches of offsets, and their locks.

A batch has one state for all its offsets as long as they share it. The first operation on a part of it splits it
permanently into one state for each offset (InFlightBatch.maybeInitializeOffsetStateUpdate).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from coordinator_core.live.share_partition.errors import IllegalTransition
from coordinator_core.live.share_partition.states import (
    ARCHIVED_SILENTLY_FROM,
    TERMINAL,
    VALID_PREVIOUS,
    RecordState,
    check_transition,
)

NO_MEMBER: Final = ""
"""Member id of records that no member has acquired (Kafka writes the zero Uuid)."""

CANCELLED_LOCKS_MIN: Final = 64
"""Fewer cancelled locks are not cleared out: most are reached by time first."""

AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ARCHIVED: Final = RecordState.ARCHIVED


@dataclass(slots=True, eq=False)
class AcquisitionLock:
    """A member's lock on a range of offsets until a deadline (AcquisitionLockTimerTask).

    `deadline_ms` is epoch milliseconds. `has_expired`: the deadline has passed, whether or not the records were
    acquired then; a write that fails later then releases them instead of returning them to the member.
    """

    member_id: str
    first_offset: int
    last_offset: int
    deadline_ms: int
    is_cancelled: bool = False
    has_expired: bool = False


class LockTimers:
    """The running locks, in the order of expiry: by deadline, then by age."""

    __slots__ = ("_cancelled_count", "_created_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, AcquisitionLock]] = []
        self._created_count = 0
        self._cancelled_count = 0

    def start(self, member_id: str, first_offset: int, last_offset: int, deadline_ms: int) -> AcquisitionLock:
        lock = AcquisitionLock(member_id, first_offset, last_offset, deadline_ms)
        self._created_count += 1
        heappush(self._heap, (deadline_ms, self._created_count, lock))
        return lock

    def cancel(self, lock: AcquisitionLock) -> None:
        """Cancel a lock. One that has expired or was cancelled is fine."""
        if lock.is_cancelled:
            return
        lock.is_cancelled = True
        if lock.has_expired:
            return
        self._cancelled_count += 1
        # Locks are cancelled far more often than they expire: without this the heap would contain every acquisition of
        # one lock duration.
        if self._cancelled_count > CANCELLED_LOCKS_MIN and self._cancelled_count > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapify(self._heap)
            self._cancelled_count = 0

    def next_deadline_ms(self) -> int | None:
        """When the next lock expires; None if there are no locks."""
        heap = self._heap
        while heap and heap[0][2].is_cancelled:
            heappop(heap)
            self._cancelled_count -= 1
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> AcquisitionLock | None:
        """The next lock whose deadline is not after `now_ms`, marked as expired; None if there is none."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        lock = heappop(self._heap)[2]
        lock.has_expired = True
        return lock

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled_count


@dataclass(slots=True, eq=False)
class InFlightState:
    """State, delivery count and member of one offset or of a whole batch (InFlightState)."""

    state: RecordState
    delivery_count: int
    member_id: str
    lock: AcquisitionLock | None = None
    rollback: tuple[RecordState, str] | None = None
    """State and member before the change that is under way; None if none is."""
    is_archived_silently: bool = False
    """The record was archived while a change was under way: that change has nothing left to roll back."""
    parts: "list[InFlightState] | None" = None
    """The states of the offsets, once this batch was split."""

    @property
    def is_under_way(self) -> bool:
        """Whether a change waits for its write (hasOngoingStateTransition)."""
        return self.rollback is not None

    @property
    def is_settled(self) -> bool:
        """Whether the state is final, and no write can revert it."""
        return self.rollback is None and self.state in TERMINAL

    def acquire(self, member_id: str) -> None:
        """AVAILABLE -> ACQUIRED, with the delivery count raised by one. Raises IllegalTransition (tryUpdateState)."""
        self._check(ACQUIRED)
        self.state = ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id

    def transition_to(
        self, asked: RecordState, delivery_count_limit: int, given_up: RecordState = ARCHIVED
    ) -> RecordState:
        """ACQUIRED -> `asked`, or `given_up` if AVAILABLE is asked at the delivery limit. Returns the new state.

        The delivery count stays. Raises IllegalTransition (tryUpdateState).
        """
        following = given_up if asked is AVAILABLE and self.delivery_count >= delivery_count_limit else asked
        self._check(following)
        self.state = following
        self.member_id = NO_MEMBER
        return following

    def start_transition(
        self, asked: RecordState, delivery_count_limit: int, given_up: RecordState = ARCHIVED
    ) -> RecordState:
        """`transition_to`, pending until `commit` or `roll_back` (startStateTransition)."""
        before = self.state, self.member_id
        following = self.transition_to(asked, delivery_count_limit, given_up)
        self.rollback = before
        return following

    def _check(self, following: RecordState) -> None:
        # The lookup is repeated in the function: this is the hottest path, and a call costs more than a lookup.
        if self.state not in VALID_PREVIOUS[following]:
            check_transition(self.state, following)
        if self.rollback is not None:
            raise IllegalTransition("a transition is under way")

    def archive(self, timers: LockTimers) -> None:
        """AVAILABLE, ACQUIRED or ARCHIVING -> ARCHIVED in memory, even if a change is pending (archive)."""
        if self.state not in ARCHIVED_SILENTLY_FROM:
            raise IllegalTransition(f"{self.state.name} is final")
        self.is_archived_silently = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.release_lock(timers)

    def commit(self, timers: LockTimers) -> None:
        """Commit the pending change (completeStateTransition)."""
        if self.rollback is None:
            raise IllegalTransition("no transition is under way")
        self.rollback = None
        self.release_lock(timers)

    def roll_back(self, delivery_count_limit: int, timers: LockTimers) -> None:
        """Roll the pending change back to the state before (completeStateTransition).

        If the lock expired in the meantime, the record cannot return to its member: it becomes AVAILABLE, or ARCHIVED
        at the delivery limit. A record that was archived in the meantime stays so.
        """
        before = self.rollback
        if before is None:
            raise IllegalTransition("no transition is under way")
        self.rollback = None
        if self.is_archived_silently:
            return
        self.state, self.member_id = before
        if self.lock is not None and self.lock.has_expired:
            self.state = ARCHIVED if self.delivery_count >= delivery_count_limit else AVAILABLE
            self.member_id = NO_MEMBER
            self.release_lock(timers)

    def release_lock(self, timers: LockTimers) -> None:
        """Cancel the lock, if there is one (cancelAndClearAcquisitionLockTimeoutTask)."""
        lock = self.lock
        if lock is not None:
            timers.cancel(lock)
            self.lock = None


class InFlightBatch:
    """Offsets that were fetched or persisted together; `last_offset` is inclusive (InFlightBatch).

    Exactly one of `whole` and `offsets` is set: the common state, or the states from the first offset on.
    """

    __slots__ = ("_settled_count", "first_offset", "last_offset", "offsets", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = whole
        self.offsets: list[InFlightState] | None = None
        self._settled_count = 0

    @property
    def record_count(self) -> int:
        """Number of offsets in the batch, including natural gaps."""
        return self.last_offset - self.first_offset + 1

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether the whole batch lies in the range, both ends inclusive (checkForFullMatch)."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def split(self, timers: LockTimers) -> list[InFlightState]:
        """Split into one state for each offset; each continues the batch's lock, with the same deadline.

        Kafka loses a pending change when it splits the batch; here the offsets take it over. Source:
        maybeInitializeOffsetStateUpdate.
        """
        if self.offsets is not None:
            return self.offsets
        whole = self.whole
        assert whole is not None
        offsets = []
        for offset in range(self.first_offset, self.last_offset + 1):
            state = InFlightState(whole.state, whole.delivery_count, whole.member_id)
            state.rollback = whole.rollback
            if whole.lock is not None:
                state.lock = timers.start(whole.lock.member_id, offset, offset, whole.lock.deadline_ms)
            offsets.append(state)
        whole.release_lock(timers)
        whole.parts = offsets
        self.offsets = offsets
        self.whole = None
        return offsets

    def states_between(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, InFlightState]]:
        """(offset, state) for the offsets of a split batch in the range, both ends inclusive."""
        assert self.offsets is not None
        first = max(first_offset, self.first_offset)
        for offset in range(first, min(last_offset, self.last_offset) + 1):
            yield offset, self.offsets[offset - self.first_offset]

    def settled_count(self) -> int:
        """How many offsets are settled from the first on, without a hole."""
        if self.offsets is None:
            assert self.whole is not None
            return self.record_count if self.whole.is_settled else 0
        # A settled offset stays settled: the scan continues where it last stopped.
        count, offsets = self._settled_count, self.offsets
        while count < len(offsets) and offsets[count].is_settled:
            count += 1
        self._settled_count = count
        return count


_first_offset: Final = attrgetter("first_offset")


class CachedState:
    """The batches in flight by first offset: disjoint, ascending (SharePartition.cachedState)."""

    __slots__ = ("_batches", "_first_offsets")

    def __init__(self) -> None:
        self._first_offsets: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> InFlightBatch:
        return self._batches[0]

    @property
    def last(self) -> InFlightBatch:
        return self._batches[-1]

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch whose offsets are in no other batch."""
        if not self._first_offsets or batch.first_offset > self._first_offsets[-1]:
            self._first_offsets.append(batch.first_offset)
            self._batches.append(batch)
            return
        insort(self._first_offsets, batch.first_offset)
        insort(self._batches, batch, key=_first_offset)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before the offset; it may end before it."""
        at = bisect_right(self._first_offsets, offset)
        return self._batches[at - 1] if at else None

    def next_first_offset(self, offset: int) -> int | None:
        """First offset of the first batch that begins after the offset."""
        at = bisect_right(self._first_offsets, offset)
        return self._first_offsets[at] if at < len(self._first_offsets) else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches that begin in the range, both ends inclusive: a copy."""
        low = bisect_left(self._first_offsets, first_offset)
        return self._batches[low : bisect_right(self._first_offsets, last_offset)]

    def drop_before(self, offset: int) -> None:
        at = bisect_left(self._first_offsets, offset)
        del self._first_offsets[:at]
        del self._batches[:at]

    def clear(self) -> None:
        self._first_offsets.clear()
        self._batches.clear()
