"""Commits by partition, against Python's sort; and what is found partition by partition, against plain loops."""

from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.history.rows import GenerationRow
from coordinator_core.inference.commits.commit_anomalies import APPLIED, REPEAT, GenerationsAt, find_anomalies
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.facts.partitions import by_partition
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES
from tests.coordinator_core.inference.commits.test_commit_anomalies import generation

SETTINGS: Final = InferenceSettings(stalled_ms=5)


class Commit(NamedTuple):
    """One commit; its place in the log is its place among all."""

    topic: int
    partition: int
    applied_at: int
    at_ms: int
    change: int
    is_applied: bool
    is_transactional: bool


COMMITS: Final = st.lists(
    st.builds(
        Commit,
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, -5, 2**31 - 1]),
        st.integers(0, 9),
        st.integers(-1, 30),
        st.sampled_from([CHANGES.index("ADVANCE"), REPEAT, REPEAT, REPEAT]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


def columns_of(rows: list[Commit]) -> GroupCommits:
    """What a plain commit is applied at is its own place."""
    count = len(rows)
    return GroupCommits(
        topics=("t", "u", "v"),
        topic=np.array([row.topic for row in rows], np.int32),
        partition=np.array([row.partition for row in rows], np.int32),
        log_offset=np.arange(count),
        recorded_at_ms=np.array([row.at_ms for row in rows], np.int64),
        applied_log_offset=np.array(
            [100 + row.applied_at if row.is_transactional else place for place, row in enumerate(rows)], np.int64
        ),
        applied_at_ms=np.array([row.at_ms for row in rows], np.int64),
        committed_offset=np.zeros(count, np.int64),
        previous_offset=np.zeros(count, np.int64),
        outcome=np.array([APPLIED if row.is_applied else APPLIED + 1 for row in rows], np.int8),
        change=np.array([row.change for row in rows], np.int8),
        is_transactional=np.array([row.is_transactional for row in rows], np.bool_),
    )


def intervals(rows: list[Commit]) -> list[list[int]]:
    """Applied rows by topic and partition, each in the order in which they were applied."""
    commits = columns_of(rows)
    applied = [place for place, row in enumerate(rows) if row.is_applied]
    ordered = sorted(applied, key=lambda place: (*rows[place][:2], int(commits.applied_log_offset[place]), place))
    return [list(places) for _, places in groupby(ordered, key=lambda place: rows[place][:2])]


@given(COMMITS)
def test_commits_come_by_partition(rows: list[Commit]) -> None:
    """By topic, partition and where they were applied, whatever numbers the partitions have."""
    commits = columns_of(rows)
    found, starts = by_partition(commits, commits.outcome == APPLIED)
    assert [found[first:end].tolist() for first, end in pairwise(starts.tolist())] == intervals(rows)


@given(COMMITS)
def test_a_stall_begins_where_a_repeated_offset_has_stayed_long(rows: list[Commit]) -> None:
    """Once in each run of commits that repeat an offset after `stalled_ms`."""
    times = [row.at_ms for row in rows if row.at_ms >= 0]
    expected = set()
    for places in intervals(rows):
        began, was_long = 0, False
        for index, place in enumerate(places):
            if index == 0 or rows[place].change != REPEAT:
                began, was_long = rows[place].at_ms, False
            is_timed = began >= 0 and rows[place].at_ms >= 0
            is_long = is_timed and rows[place].change == REPEAT and rows[place].at_ms - began >= SETTINGS.stalled_ms
            if is_long and not was_long:
                expected.add(place)
            was_long = is_long
    if not times or max(times) - min(times) < SETTINGS.stalled_ms:
        expected = set()
    found = find_anomalies(GroupLife("g", 0, commits=columns_of(rows)), (), SETTINGS)
    assert {row.log_offset for row in found if row.kind == "STALLED"} == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 1)), max_size=6))
def test_rows_of_emptied_intervales_are_those_of_each_place(steps: list[tuple[int, int, int]]) -> None:
    """Interval by interval as place by place."""
    rows: list[GenerationRow] = []
    begin = 0
    for number, (length, pause, member_count) in enumerate(steps):
        rows.append(generation(number, begin, begin + length, member_count))
        begin += length + pause
    groups = GenerationsAt(GroupLife("g", 0, tuple(rows)))
    places = np.arange(begin + 2)
    emptied = [
        place
        for place in places.tolist()
        if (moment := groups.at(place)).is_empty and moment.generation is not None and moment.generation.generation > 0
    ]
    found = [place for first, end in groups.emptied_rows(places) for place in range(first, end)]
    assert found == emptied
