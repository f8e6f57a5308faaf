"""Where in a log partition a moment is.

Mostly that is one place: behind the last record that was written by then. But the time of a record is the clock of the
leader that wrote it. Where the next leader's clock is behind, the log goes through some moments twice, and which record
came first is only known by its offset. And records of message format v0 have no time at all: each was written after the
records before it.
"""

from typing import Final

import numpy as np

from coordinator_core.log.chunk import I64, BoolArray

NO_TIME: Final = np.iinfo(np.int64).min
"""Of a record without one."""


def is_regular(times: I64) -> bool:
    """Of records in the order of the log: does each have a time, none before that of the record before it?"""
    return not len(times) or bool(times[0] != NO_TIME and np.all(times[1:] >= times[:-1]))


def filled(times: I64) -> I64:
    """A record without a time has that of the last one before it which has one: it was not written earlier."""
    place = np.where(times != NO_TIME, np.arange(len(times)), 0)
    return times[np.maximum.accumulate(place)] if len(times) else times


def log_ends_at(offsets: I64, times: I64, at_ms: int) -> tuple[int, ...]:
    """The log ends (exclusive) at which some records of a log partition, in its order, leave a moment; ascending.

    A log end is behind a record that was written by then (`times`, as `filled` gives them), if the next record was
    written later. It may also be where the time goes back: until the log passes that time again, or would have passed
    it, had the clock not gone back, nobody can tell whether the moment was before or after.
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
    """Which records without a time (`NO_TIME`), in the order of the log, may be of before a moment or of after it: the
    one before them is of before, and the next one with a time is of after."""
    is_known = times != NO_TIME
    later = np.where(is_known, times, np.iinfo(np.int64).max)
    following = np.minimum.accumulate(later[::-1])[::-1]
    unplaced: BoolArray = ~is_known & (filled(times) <= at_ms) & (following > at_ms)
    return unplaced
