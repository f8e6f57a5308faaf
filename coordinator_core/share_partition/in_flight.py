"""Records in flight: the state of one or more offsets, the batches which hold them, and the locks on them.

A batch has one state for all its offsets as long as they share it. The first operation which concerns only a part of it
splits it into one state an offset, for good (InFlightBatch.maybeInitializeOffsetStateUpdate).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from coordinator_core.share_partition.errors import IllegalTransition
from coordinator_core.share_partition.states import (
    ARCHIVED_SILENTLY_FROM,
    TERMINAL,
    VALID_PREVIOUS,
    RecordState,
    check_transition,
)

NO_MEMBER: Final = ""
"""Member id of records which nobody holds (Kafka writes the zero Uuid)."""

CANCELLED_LOCKS_MIN: Final = 64
"""So few cancelled locks are not worth clearing out: most are reached by time first."""

AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ARCHIVED: Final = RecordState.ARCHIVED


class AcquisitionLock:
    """A member's hold on a range of offsets until a deadline (AcquisitionLockTimerTask).

    `deadline_ms` is epoch milliseconds. `has_expired`: the deadline has come, whether or not it found the records
    acquired; a write which fails later then gives them back instead of returning them to the member.
    """

    __slots__ = ("deadline_ms", "first_offset", "has_expired", "is_cancelled", "last_offset", "member_id")

    def __init__(self, member_id: str, first_offset: int, last_offset: int, deadline_ms: int) -> None:
        self.member_id = member_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.is_cancelled = False
        self.has_expired = False


class LockTimers:
    """The locks which run, in the order in which they run out: by deadline, then by age."""

    __slots__ = ("_cancelled_count", "_created_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, AcquisitionLock]] = []
        self._created_count = 0
        self._cancelled_count = 0

    def start(self, member_id: str, first_offset: int, last_offset: int, deadline_ms: int) -> AcquisitionLock:
        """A new lock which runs."""
        lock = AcquisitionLock(member_id, first_offset, last_offset, deadline_ms)
        self._created_count += 1
        heappush(self._heap, (deadline_ms, self._created_count, lock))
        return lock

    def cancel(self, lock: AcquisitionLock) -> None:
        """End a lock without effect. One which has run out or was cancelled before is no error."""
        if lock.is_cancelled:
            return
        lock.is_cancelled = True
        if lock.has_expired:
            return
        self._cancelled_count += 1
        # Locks are cancelled far more often than they run out: without this the heap would hold every acquisition of
        # a lock duration.
        if self._cancelled_count > CANCELLED_LOCKS_MIN and self._cancelled_count > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapify(self._heap)
            self._cancelled_count = 0

    def next_deadline_ms(self) -> int | None:
        """When the next lock runs out; None while none runs."""
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


class InFlightState:
    """State, delivery count and holder of one offset or of a whole batch (InFlightState)."""

    __slots__ = ("delivery_count", "is_archived_silently", "lock", "member_id", "parts", "rollback", "state")

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str, lock: AcquisitionLock | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self.rollback: tuple[RecordState, str] | None = None
        """State and member before the change which is under way; None while none is."""
        self.is_archived_silently = False
        """Archived while a change was under way: that change has nothing left to roll back."""
        self.parts: list[InFlightState] | None = None
        """The states of the offsets, once the batch of this one was split."""

    @property
    def is_under_way(self) -> bool:
        """A change waits for its write (hasOngoingStateTransition)."""
        return self.rollback is not None

    @property
    def is_settled(self) -> bool:
        """Final, and no write can bring it back."""
        return self.rollback is None and self.state in TERMINAL

    def acquire(self, member_id: str) -> None:
        """AVAILABLE -> ACQUIRED, one delivery more. Raises IllegalTransition (tryUpdateState)."""
        self._check(ACQUIRED)
        self.state = ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id

    def transition_to(
        self, asked: RecordState, delivery_count_limit: int, given_up: RecordState = ARCHIVED
    ) -> RecordState:
        """ACQUIRED -> `asked`, or `given_up` where AVAILABLE is asked for the last delivery allowed: the new state.

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
        """`transition_to`, under way until `commit` or `roll_back` (startStateTransition)."""
        before = self.state, self.member_id
        following = self.transition_to(asked, delivery_count_limit, given_up)
        self.rollback = before
        return following

    def _check(self, following: RecordState) -> None:
        # The look-up twice: this is the hottest path, and a call costs more than the look-up.
        if self.state not in VALID_PREVIOUS[following]:
            check_transition(self.state, following)
        if self.rollback is not None:
            raise IllegalTransition("a transition is under way")

    def archive(self, timers: LockTimers) -> None:
        """AVAILABLE, ACQUIRED or ARCHIVING -> ARCHIVED in memory, whatever is under way (archive)."""
        if self.state not in ARCHIVED_SILENTLY_FROM:
            raise IllegalTransition(f"{self.state.name} is final")
        self.is_archived_silently = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.release_lock(timers)

    def commit(self, timers: LockTimers) -> None:
        """End the change which is under way, and keep it (completeStateTransition)."""
        if self.rollback is None:
            raise IllegalTransition("no transition is under way")
        self.rollback = None
        self.release_lock(timers)

    def roll_back(self, delivery_count_limit: int, timers: LockTimers) -> None:
        """End the change which is under way, and go back to what was before (completeStateTransition).

        Where the lock ran out meanwhile there is no holder to go back to: the record becomes AVAILABLE, or ARCHIVED
        after the last delivery allowed. What was archived meanwhile stays so.
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
        """End the lock, if there is one (cancelAndClearAcquisitionLockTimeoutTask)."""
        lock = self.lock
        if lock is not None:
            timers.cancel(lock)
            self.lock = None


class InFlightBatch:
    """Offsets which were fetched or persisted together, `last_offset` inclusive (InFlightBatch).

    Exactly one of `whole` and `offsets` is set: the one state of all, or the states from the first offset on.
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
        """Offsets of the batch, natural gaps included."""
        return self.last_offset - self.first_offset + 1

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """All of the batch lies in the range, both ends inclusive (checkForFullMatch)."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def split(self, timers: LockTimers) -> list[InFlightState]:
        """One state an offset from here on; each goes on with the batch's lock, at the same deadline.

        Kafka loses a change which is under way when it splits the batch; here the offsets take it over. Source:
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
        """(offset, state) of the offsets of a split batch which lie in the range, both ends inclusive."""
        assert self.offsets is not None
        first = max(first_offset, self.first_offset)
        for offset in range(first, min(last_offset, self.last_offset) + 1):
            yield offset, self.offsets[offset - self.first_offset]

    def settled_count(self) -> int:
        """How many offsets are settled from the first on, without a hole."""
        if self.offsets is None:
            assert self.whole is not None
            return self.record_count if self.whole.is_settled else 0
        # A settled offset stays so: the scan goes on from where it last stopped.
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
        """Take in a batch whose offsets no other holds."""
        if not self._first_offsets or batch.first_offset > self._first_offsets[-1]:
            self._first_offsets.append(batch.first_offset)
            self._batches.append(batch)
            return
        insort(self._first_offsets, batch.first_offset)
        insort(self._batches, batch, key=_first_offset)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch which begins at or before the offset; it may end before it."""
        at = bisect_right(self._first_offsets, offset)
        return self._batches[at - 1] if at else None

    def next_first_offset(self, offset: int) -> int | None:
        """First offset of the first batch which begins after the offset."""
        at = bisect_right(self._first_offsets, offset)
        return self._first_offsets[at] if at < len(self._first_offsets) else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches which begin in the range, both ends inclusive: a copy."""
        low = bisect_left(self._first_offsets, first_offset)
        return self._batches[low : bisect_right(self._first_offsets, last_offset)]

    def drop_before(self, offset: int) -> None:
        """Forget the batches which begin before the offset."""
        at = bisect_left(self._first_offsets, offset)
        del self._first_offsets[:at]
        del self._batches[:at]

    def clear(self) -> None:
        self._first_offsets.clear()
        self._batches.clear()
