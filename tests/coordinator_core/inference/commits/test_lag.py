"""Lag: from samples of the ends alone, below 0 beyond the end, never where nobody looked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.inference.commits.lag import CONFIDENCES, METHODS, NONE, EndSamples, LagColumns, lag_history
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES

SETTINGS = InferenceSettings(lag_sample_age_max_ms=1000)
WEEK_MS = 7 * 86_400_000
Pair = tuple[int, int]


def commits_of(*commits: Pair, topic: str = "t", change: str = "ADVANCE", outcome: str = "APPLIED") -> GroupCommits:
    """Commits (time, offset) to partition 0 of a topic, in log order."""
    count = len(commits)
    at = np.array([at for at, _ in commits], np.int64)
    return GroupCommits(
        topics=(topic,),
        topic=np.zeros(count, np.int32),
        partition=np.zeros(count, np.int32),
        log_offset=np.arange(count),
        recorded_at_ms=at,
        applied_log_offset=np.arange(count),
        applied_at_ms=at,
        committed_offset=np.array([offset for _, offset in commits], np.int64),
        previous_offset=np.full(count, -1),
        outcome=np.full(count, OUTCOMES.index(outcome), np.int8),
        change=np.full(count, CHANGES.index(change), np.int8),
        is_transactional=np.zeros(count, np.bool_),
    )


def history(commits: GroupCommits, *samples: Pair) -> LagColumns:
    """The lag of commits to `t`-0, given samples (time, end)."""
    at, end = (np.array([sample[place] for sample in samples], np.int64) for place in (0, 1))
    return lag_history(commits, {("t", 0): EndSamples.of(at, end)}, SETTINGS)


def row(columns: LagColumns) -> tuple[str, int, int, int, int]:
    """The only row: method, lag, lag_min, lag_max, time_behind_ms."""
    (method,) = columns.method.tolist()
    numbers = (columns.lag, columns.lag_min, columns.lag_max, columns.time_behind_ms)
    return (METHODS[method], *(int(values[0]) for values in numbers))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("commit", "samples", "expected"),
    [
        ((100, 70), [(0, 80), (200, 80)], ("UNCHANGED_END", 10, 10, 10, NONE)),
        ((100, 80), [(0, 80), (200, 80)], ("UNCHANGED_END", 0, 0, 0, 0)),
        ((100, 85), [(0, 80), (200, 100)], ("BETWEEN_SAMPLES", 5, 0, 15, 50)),
        ((100, 60), [(0, 60), (200, 100)], ("BETWEEN_SAMPLES", 20, 0, 40, 100)),
        ((100, 60), [(100, 90)], ("UNCHANGED_END", 30, 30, 30, NONE)),
        ((300, 60), [(100, 50), (200, 70), (300, 90)], ("UNCHANGED_END", 30, 30, 30, 150)),
        ((100, 60), [(0, 90)], ("LAST_SAMPLE", NONE, 30, NONE, NONE)),
        ((100, 95), [(0, 90)], ("LAST_SAMPLE", NONE, 0, NONE, NONE)),
        ((100, 60), [(200, 90)], ("NEXT_SAMPLE", NONE, 0, 30, NONE)),
        # samples of last week are not looked at
        ((WEEK_MS, 60), [(0, 60), (WEEK_MS, 90)], ("UNCHANGED_END", 30, 30, 30, WEEK_MS)),
        ((WEEK_MS + 1, 60), [(0, 60), (WEEK_MS, 90)], ("LAST_SAMPLE", NONE, 30, NONE, NONE)),
        ((WEEK_MS + 1, 60), [(0, 60), (WEEK_MS + 1, 90)], ("UNCHANGED_END", 30, 30, 30, NONE)),
        # beyond the end, as Kafka prints it: -1 is a number
        ((100, 81), [(0, 80), (200, 80)], ("BETWEEN_SAMPLES", -1, -1, -1, 0)),
        ((100, 50), [(0, 10), (200, 20)], ("BETWEEN_SAMPLES", -35, -40, -30, 0)),
    ],
)
def test_lag_and_time_behind(commit: Pair, samples: list[Pair], expected: tuple[str, int, int, int, int]) -> None:
    """The end is known, lies between two samples, or is bounded on one side."""
    assert row(history(commits_of(commit), *samples)) == expected


def test_ends_of_another_topic_of_the_name_say_nothing() -> None:
    """Equal ends before and after the topic was made again are no end that stayed; nor do they bound a lag."""
    at, end = np.array([0, 200, 400], np.int64), np.array([80, 80, 90], np.int64)
    samples = {("t", 0): EndSamples.of(at, end, [100])}
    columns = lag_history(commits_of((50, 70), (150, 10), (300, 20)), samples, SETTINGS)
    assert [METHODS[method] for method in columns.method.tolist()] == ["LAST_SAMPLE", "NEXT_SAMPLE", "BETWEEN_SAMPLES"]
    assert columns.lag.tolist() == [NONE, NONE, 65]
    assert columns.time_behind_ms.tolist() == [NONE, NONE, NONE]


@pytest.mark.parametrize(
    ("commit", "samples"),
    [
        ((5000, 1), [(0, 10), (100_000, 10)]),  # nobody looked near that time
        ((100, 5), [(0, 50), (200, 3)]),  # the end went back: the topic was recreated
        ((100, 50), [(200, 20)]),  # beyond the only end: that may be of a topic recreated since
        ((100, 5), []),
    ],
)
def test_nothing_is_invented(commit: Pair, samples: list[Pair]) -> None:
    """No row where no sample bears on the commit."""
    assert len(history(commits_of(commit), *samples)) == 0


def test_only_applied_offsets_of_sampled_partitions_have_lag() -> None:
    """Tombstones, aborted commits and other topics have none."""
    samples = (0, 10), (200, 10)
    assert len(history(commits_of((100, 5)), *samples)) == 1
    assert len(history(commits_of((100, 5), topic="other"), *samples)) == 0
    assert len(history(commits_of((100, -1), change="DELETE"), *samples)) == 0
    assert len(history(commits_of((100, 5), outcome="ABORTED"), *samples)) == 0
    assert len(lag_history(commits_of((100, 5)), {}, SETTINGS)) == 0


def test_time_behind_does_not_reach_into_a_former_topic() -> None:
    """The end of a topic that was recreated says nothing of the offsets of the former one."""
    samples = (0, 100), (100, 200), (200, 10), (300, 30)
    assert row(history(commits_of((250, 15)), *samples)) == ("BETWEEN_SAMPLES", 5, 0, 15, 25)
    assert row(history(commits_of((250, 5)), *samples))[4] == NONE


PAIRS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 200)), max_size=12)


@given(commits=PAIRS, samples=PAIRS, seed=st.randoms(use_true_random=False))
def test_lag_is_within_its_bounds(commits: list[Pair], samples: list[Pair], seed: object) -> None:
    """Whatever the samples and their order: lag_min <= lag <= lag_max, below 0 beyond the end alone."""
    ordered = history(commits_of(*sorted(commits)), *samples)
    shuffled = list(samples)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    again = history(commits_of(*sorted(commits)), *shuffled)
    assert all(np.array_equal(getattr(ordered, name), getattr(again, name)) for name in ("row", "lag", "method"))
    has_lag = ordered.lag != NONE
    is_beyond = (ordered.lag_max != NONE) & (ordered.lag_max < 0)
    assert ((ordered.lag_min >= 0) | is_beyond).all()
    assert (ordered.lag_min[has_lag] <= ordered.lag[has_lag]).all()
    assert (ordered.lag[has_lag] <= ordered.lag_max[has_lag]).all()
    assert ((ordered.time_behind_ms == NONE) | (ordered.time_behind_ms >= 0)).all()
    is_certain = np.array([CONFIDENCES[method] == "CERTAIN" for method in ordered.method.tolist()], np.bool_)
    exact = is_certain & has_lag
    assert (ordered.lag_min[exact] == ordered.lag_max[exact]).all()
