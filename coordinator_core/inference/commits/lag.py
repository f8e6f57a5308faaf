"""gold.lag_history: how far a group was behind the end of its topic at each commit, where end offsets were sampled.

A topic's end only grows while the topic exists, so two samples bound it in between. For a commit between two samples

* with the same end in both, the end at that time is known: UNCHANGED_END, CERTAIN, unless a sample with another end is
  so near in time that clocks decide which came first;
* otherwise it is interpolated linearly: BETWEEN_SAMPLES, LIKELY; `lag_min` and `lag_max` are certain.

With a sample on one side only, there is a bound and no lag: LAST_SAMPLE or NEXT_SAMPLE. Without a sample near enough in
time, there is no row. An end that went back means another topic with the same name, or lost records: nothing is
inferred across it, nor across a time at which the topic was removed or created again. A commit ahead of the sample
before it shows that the end had grown at least that far, unless the sample after it is below the commit, too: that is a
commit beyond the end, whose lag is negative, as Kafka prints it.

Time behind is the time since the end passed the committed offset, by the same interpolation; null if that is before
the first sample of the last seven days, 0 if nothing is left to read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, Columns
from coordinator_core.confidence import CERTAIN, LIKELY
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.clock import CLOCK_MS
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.partitions import by_partition
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES

METHODS: Final = ("UNCHANGED_END", "BETWEEN_SAMPLES", "LAST_SAMPLE", "NEXT_SAMPLE")
"""`LagColumns.method` is an index into this."""
CONFIDENCES: Final = (CERTAIN, LIKELY, CERTAIN, CERTAIN)
"""The best confidence of each method. With a single sample only the bound is claimed."""
UNCHANGED, BETWEEN, LAST, NEXT = range(len(METHODS))

NONE: Final = np.iinfo(np.int64).min
"""Null in the columns: no lag is that low, while a commit beyond the end has a negative one."""

SAMPLE_AGE_MAX_MS: Final = 7 * DAY_MS
"""Older samples are not looked at, so that a night need not read those of years."""

_APPLIED: Final = OUTCOMES.index("APPLIED")
_DELETE: Final = CHANGES.index("DELETE")


@dataclass(frozen=True, slots=True)
class EndSamples:
    """Samples of one source partition, by time, at most one for each millisecond. Create it with `of`."""

    sampled_at_ms: I64
    end_offset: I64
    remade_ms: I64
    """When the topic was removed, or created again under another id; ascending. Ends before do not bound those
    after."""

    @classmethod
    def of(cls, sampled_at_ms: I64, end_offset: I64, remade_ms: Sequence[int] = ()) -> "EndSamples":
        """From samples in any order; of several in one millisecond the greatest end counts. `remade_ms`: when the topic
        was removed or created again, ascending."""
        order = np.lexsort((end_offset, sampled_at_ms))
        at, end = sampled_at_ms[order], end_offset[order]
        is_last = np.append(at[1:] != at[:-1], True)[: len(at)]
        return cls(at[is_last], end[is_last], np.array(remade_ms, np.int64))

    def life_at(self, at_ms: I64) -> I64:
        """Which topic with this name existed at some times, by number."""
        return np.searchsorted(self.remade_ms, at_ms, side="right")

    def is_end_at(self, index: I64, end_offset: I64, at_ms: I64) -> BoolArray:
        """Whether there are samples with these indexes, not too old for some times, and they have these ends."""
        is_there = (index >= 0) & (index < len(self.end_offset))
        index = np.where(is_there, index, 0)
        is_there &= at_ms - self.sampled_at_ms[index] <= SAMPLE_AGE_MAX_MS
        found: BoolArray = is_there & (self.end_offset[index] == end_offset)
        return found

    def of_life(self, number: int) -> "EndSamples":
        is_own = self.life_at(self.sampled_at_ms) == number
        return EndSamples(self.sampled_at_ms[is_own], self.end_offset[is_own], np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class LagColumns(Columns):
    """Rows of gold.lag_history of one group. Null numbers are `NONE`."""

    row: I32
    """Index of the commit."""
    end_offset: I64
    lag: I64
    lag_min: I64
    lag_max: I64
    time_behind_ms: I64
    sampled_at_ms: I64
    """The sample nearest in time."""
    method: I8
    is_sure: BoolArray
    """Clocks that differ by up to `CLOCK_MS` do not change what `method` claims: samples use another clock than
    commits."""


Samples = Mapping[tuple[str, int], EndSamples]
"""(topic, partition) -> its samples."""


def lag_history(commits: GroupCommits, samples: Samples, settings: InferenceSettings) -> LagColumns:
    """The lag at each applied commit of one group, in log order."""
    none = np.zeros(0, np.int64)
    nothing = LagColumns(
        none.astype(np.int32), none, none, none, none, none, none, none.astype(np.int8), none.astype(np.bool_)
    )
    if not samples or not len(commits):
        return nothing
    is_value = (commits.outcome == _APPLIED) & (commits.change < _DELETE) & (commits.committed_offset >= 0)
    parts = [_lags(commits, rows, ends, settings) for rows, ends in _sampled(commits, is_value, samples)]
    if not parts:
        return nothing
    columns = {item.name: np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(LagColumns)}
    order = np.argsort(columns["row"], kind="stable")
    return LagColumns(**{name: values[order] for name, values in columns.items()})


def _sampled(commits: GroupCommits, chosen: BoolArray, samples: Samples) -> Iterator[tuple[I32, EndSamples]]:
    """For each partition that the group commits and that was sampled: its commits, and the samples."""
    rows, starts = by_partition(commits, chosen)
    for first, end in pairwise(starts.tolist()):
        row = rows[first]
        ends = samples.get((commits.topics[commits.topic[row]], int(commits.partition[row])))
        if ends is None or not len(ends.end_offset):
            continue
        if not len(ends.remade_ms):
            yield rows[first:end], ends
            continue
        life = ends.life_at(commits.applied_at_ms[rows[first:end]])
        for number in np.unique(life).tolist():
            of_life = ends.of_life(number)
            if len(of_life.end_offset):
                yield rows[first:end][life == number], of_life


def _lags(commits: GroupCommits, rows: I32, ends: EndSamples, settings: InferenceSettings) -> LagColumns:
    at, committed = commits.applied_at_ms[rows], commits.committed_offset[rows]
    age_max = settings.lag_sample_age_max_ms
    before = np.searchsorted(ends.sampled_at_ms, at, side="right") - 1
    # a sample at the exact time of the commit counts on both sides
    after = np.searchsorted(ends.sampled_at_ms, at, side="left")
    has_before, has_after = before >= 0, after < len(ends.sampled_at_ms)
    before, after = np.maximum(before, 0), np.minimum(after, len(ends.sampled_at_ms) - 1)
    before_at, after_at = ends.sampled_at_ms[before], ends.sampled_at_ms[after]
    has_before &= at - before_at <= age_max
    has_after &= after_at - at <= age_max
    low, high = ends.end_offset[before], ends.end_offset[after]
    is_low_sure = ends.is_end_at(np.searchsorted(ends.sampled_at_ms, at - CLOCK_MS, side="right") - 1, low, at)
    is_high_sure = ends.is_end_at(np.searchsorted(ends.sampled_at_ms, at + CLOCK_MS, side="left"), high, at)
    is_recreated = has_before & has_after & (high < low)
    is_between = has_before & has_after
    # with one sample only, a commit beyond its end may belong to a topic that was truncated or recreated since
    is_beyond = has_after & (committed > high)
    is_recreated |= is_beyond & ~has_before
    is_unchanged = is_between & (low == high) & ~is_beyond
    span = np.maximum(after_at - before_at, 1)
    line = low + np.rint((high - low) * ((at - before_at) / span)).astype(np.int64)
    low = np.where(is_beyond, low, np.maximum(low, committed))
    end = np.clip(line, low, np.maximum(low, high))
    method = np.select([is_unchanged, is_between, has_before], [UNCHANGED, BETWEEN, LAST], default=NEXT).astype(np.int8)
    is_near_before = has_before & (~has_after | (at - before_at <= after_at - at))
    columns = LagColumns(
        row=rows,
        end_offset=np.where(is_between, end, NONE),
        lag=np.where(is_between, end - committed, NONE),
        lag_min=np.where(has_before, low - committed, 0),
        lag_max=np.where(has_after, high - committed, NONE),
        time_behind_ms=np.where(is_between, _behind(at, committed, end, ends), NONE),
        sampled_at_ms=np.where(is_near_before, before_at, after_at),
        method=method,
        is_sure=(is_low_sure | ~has_before) & (is_high_sure | ~has_after),
    )
    kept = (has_before | has_after) & ~is_recreated
    return LagColumns(**{item.name: getattr(columns, item.name)[kept] for item in fields(LagColumns)})


def _behind(at: I64, committed: I64, end: I64, ends: EndSamples) -> I64:
    """Time since the end passed the committed offset; `NONE` if that was before the first sample of this topic that is
    not too old."""
    # only samples since the end last went back belong to the same topic
    is_cut = np.diff(ends.end_offset, prepend=ends.end_offset[:1]) < 0
    life = np.cumsum(is_cut)
    # ends grow within a life: one ascending sequence over all lives, for a binary search
    step = int(max(ends.end_offset.max(), committed.max(initial=0))) + 1
    in_life = life[np.maximum(np.searchsorted(ends.sampled_at_ms, at, side="right") - 1, 0)]
    if step > np.iinfo(np.int64).max // (int(life[-1]) + 2):
        return np.full(len(at), NONE, np.int64)
    ascending = ends.end_offset + life * step
    # the last sample whose end is at or below the committed offset: the unread records came later
    last = np.searchsorted(ascending, committed + in_life * step, side="right") - 1
    is_known = (last >= 0) & (life[np.maximum(last, 0)] == in_life)
    last = np.maximum(last, 0)
    is_known &= at - ends.sampled_at_ms[last] <= SAMPLE_AGE_MAX_MS
    following = np.minimum(last + 1, len(ascending) - 1)
    grown = np.maximum(ends.end_offset[following] - ends.end_offset[last], 1)
    share = np.clip((committed - ends.end_offset[last]) / grown, 0, 1)
    passed_at = ends.sampled_at_ms[last] + np.rint(
        share * (ends.sampled_at_ms[following] - ends.sampled_at_ms[last])
    ).astype(np.int64)
    behind = np.where(is_known, np.maximum(at - passed_at, 0), NONE)
    return np.where(end <= committed, 0, behind)
