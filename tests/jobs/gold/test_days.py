"""Days of groups as the last audit wrote them: found by group and day, and written on."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from coordinator_core.inference.audit.days import NO_DAY, DayCounts
from jobs.gold.days import FormerDays

DAY_MS = 86_400_000


def rows(*days: tuple[str, int, int, int]) -> pa.Table:
    """Group, number of the day, commits, anomalies."""
    groups, numbers, commits, odd = zip(*days, strict=True) if days else ((), (), (), ())
    times = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in numbers]
    return pa.table(
        {
            "group_id": pa.array(groups, pa.string()),
            "day": pa.array(times, pa.timestamp("us", "UTC")),
            "commit_count": pa.array(commits, pa.int64()),
            "commit_anomaly_count": pa.array(odd, pa.int64()),
            "went_back_count": pa.array(odd, pa.int64()),
        }
    )


FORMER = rows(("b", 2, 20, 1), ("a", 3, 30, 0), ("b", -1, 10, 2), ("a", 1, 5, 5))


def test_what_was_counted_is_found() -> None:
    """In whatever order the rows are; of a group or a day that is not there, nothing."""
    former = FormerDays(FORMER)
    assert former.of("b") == {-DAY_MS: DayCounts(10, 2, 2), 2 * DAY_MS: DayCounts(20, 1, 1)}
    assert former.of("c") == {}
    known = {(group_id, day) for group_id in "abc" for day in range(-2, 5) if former.has(group_id, day * DAY_MS)}
    assert known == {("b", 2), ("b", -1), ("a", 3), ("a", 1)}
    assert FormerDays(rows()).of("a") == {}


def test_counts_come_to_the_days_that_stay() -> None:
    """Of a group that was rebuilt from a day on the others stay, of one that was wholly, none."""
    added = {
        ("a", DAY_MS): DayCounts(7, 1, 1),
        ("b", 2 * DAY_MS): DayCounts(1, 0, 0),
        ("a", 2 * DAY_MS): DayCounts(9, 9, 9),
    }
    former = FormerDays(FORMER)
    every = rows(("b", 2, 21, 1), ("a", 3, 30, 0), ("b", -1, 10, 2), ("a", 1, 12, 6))
    assert former.counted(added, {}).equals(every)
    assert former.counted(added, {"a": DAY_MS}).equals(every.take([0, 2, 3]))
    assert former.counted(added, {"a": NO_DAY, "b": NO_DAY, "c": 0}).num_rows == 0
    assert FormerDays(rows()).counted(added, {"a": 0}).num_rows == 0
