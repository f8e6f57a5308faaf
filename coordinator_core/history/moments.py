"""Finds the log end that corresponds to a point in time.

Usually there is one such place: after the last record written by then. But a record's time is the clock of the leader
that wrote it. Where the next leader's clock is behind, the log passes some times twice, and only offsets tell which
record came first. Records of message format v0 have no time at all: each was written after the records before it.
"""

from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I64, BoolArray

NO_TIME: Final = np.iinfo(np.int64).min
"""The time of a record that has none."""


def is_regular(times: I64) -> bool:
    """Whether each record, in log order, has a time that is not before the time of the record before it."""
    return not len(times) or bool(times[0] != NO_TIME and np.all(times[1:] >= times[:-1]))


def filled(times: I64) -> I64:
    """Give each record without a time that of the last record before it that has one: it was not written earlier."""
    place = np.where(times != NO_TIME, np.arange(len(times)), 0)
    return times[np.maximum.accumulate(place)] if len(times) else times


def log_ends_at(offsets: I64, times: I64, at_ms: int) -> tuple[int, ...]:
    """The log ends (exclusive, ascending) that a log partition may have had at `at_ms`.

    `offsets` and `times` are of its records in log order; `times` as `filled` returns them. A log end follows a record
    written by then, if the next record was written later. It may also be where the time goes back: from there until the
    log passes that time again, or would have passed it if the clock had not gone back, the order of log and moment is
    unknown.
    """
    count = len(offsets)
    if not count:
        return ()
    is_by_then = times <= at_ms
    following = np.append(times[1:], np.iinfo(np.int64).max)
    is_end = is_by_then & (following > at_ms)
    for index in np.flatnonzero(is_by_then[:-1] & (times[1:] < times[:-1])).tolist():
        later = times[index + 1 :]
        passed = np.flatnonzero(later > times[index])
        back_ms = int(times[index]) - int(times[index + 1]) if times[index + 1] != NO_TIME else 0
        until_ms = int(later[passed[0]]) if len(passed) else int(later[-1]) + back_ms
        if at_ms < until_ms:
            is_end[index] = True
    ends = offsets[is_end] + 1
    return tuple(np.unique(ends).tolist()) or (int(offsets[0]),)


def unplaced_at(times: I64, at_ms: int) -> BoolArray:
    """Which records without a time (`NO_TIME`), in log order, may lie on either side of a moment: the last known time
    before them is not after it, and the next known time is."""
    is_known = times != NO_TIME
    later = np.where(is_known, times, np.iinfo(np.int64).max)
    following = np.minimum.accumulate(later[::-1])[::-1]
    unplaced: BoolArray = ~is_known & (filled(times) <= at_ms) & (following > at_ms)
    return unplaced
