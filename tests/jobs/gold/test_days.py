"""Days of groups as the last audit wrote them: found by group and day, and written on; and gold by day on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.inference.audit.days import NO_DAY, DayCounts
from coordinator_core.inference.audit.log_anomalies import NOT_JUDGED
from jobs.delta.commits import APPEND
from jobs.delta.table_files import TableFile, read_file
from jobs.delta.warehouse import Warehouse
from jobs.gold import days
from jobs.gold.days import FormerDays
from jobs.gold.former_rows import FormerFile, Outdated, changed_days, day_of, without_outdated
from jobs.gold.group_tables import NO_PLACE
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, HANGING_TRANSACTIONS, LOG_ANOMALIES, PARTITION_OWNERS
from tests.jobs.table_rows import rows

DAY_MS = 86_400_000
FIRST = date(1970, 1, 1)


def on(number: int) -> date:
    return FIRST + timedelta(days=number)


def at(day: int, hour: int = 0) -> datetime:
    return datetime(1970, 1, 1, hour, tzinfo=UTC) + timedelta(days=day)


def written(warehouse: Warehouse, table: Table, *values: dict[str, Any]) -> list[TableFile]:
    made = rows(table, *({"cluster_id": "c", "log_partition": 7} | value for value in values))
    warehouse.write(table, made, app_id="a", version=1 + warehouse.last_version(table, "a"), mode=APPEND)
    return warehouse.files(table)


def summary(group: str, day: int, commit_count: int, odd: int, log_partition: int = 7) -> dict[str, Any]:
    counts = {"commit_count": commit_count, "commit_anomaly_count": odd, "went_back_count": odd}
    return {"group_id": group, "day": on(day), "log_partition": log_partition, **counts}


FORMER = (summary("b", 2, 20, 1), summary("a", 3, 30, 0), summary("b", -1, 10, 2), summary("a", 1, 5, 5))


def former(warehouse: Warehouse, *values: dict[str, Any]) -> FormerDays:
    return FormerDays(written(warehouse, GROUP_SUMMARY, *values), [7, 8])


def test_what_was_counted_is_found(warehouse: Warehouse) -> None:
    """Of a group, day or log partition that is not there, nothing; a group may be in two log partitions."""
    found = former(warehouse, *FORMER, summary("b", 2, 99, 9, log_partition=8), summary("b", 2, 1, 1, log_partition=6))
    counts = {day: DayCounts.of(row) for day, row in found.of(7, "b").items()}
    assert counts == {-DAY_MS: DayCounts(10, 2, 2), 2 * DAY_MS: DayCounts(20, 1, 1)}
    assert list(found.of(7, "b", from_day=0)) == [2 * DAY_MS]
    assert found.of(8, "b")[2 * DAY_MS].commit_count == 99
    assert found.of(7, "c") == found.of(6, "b") == {}
    known = {(group_id, day) for group_id in "abc" for day in range(-2, 5) if found.has(7, group_id, day * DAY_MS)}
    assert known == {("b", 2), ("b", -1), ("a", 3), ("a", 1)}


@contextmanager
def files_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[date]]:
    """The days of the files that are read meanwhile."""
    read = list[date]()

    def noted(file: TableFile, *arguments: Any) -> Any:
        read.append(file.partition_values["day"])
        return read_file(file, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(days, "read_file", noted)
        yield read


def test_only_the_days_asked_for_are_read(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once: so what a night reads does not grow with the table."""
    found = former(warehouse, *(summary("a", day, 1, 0) for day in range(50)))
    with files_read(monkeypatch) as read:
        assert found.has(7, "a", 49 * DAY_MS)
        assert read == [on(49)]
        assert found.has(7, "a", 47 * DAY_MS)
        assert sorted(read) == [on(47), on(48), on(49)]
        assert len(found.of(7, "a", 48 * DAY_MS)) == 2
        assert len(read) == 3


def test_counts_come_to_the_days_that_stay(warehouse: Warehouse) -> None:
    """Rows behind the first count are written again; of a group that is made again from a day on, those until then."""
    added = {
        ("a", DAY_MS): DayCounts(7, 1, 1),
        ("b", 2 * DAY_MS): DayCounts(1, 0, 0),
        ("a", 2 * DAY_MS): DayCounts(9, 9, 9),
    }
    found = former(warehouse, *FORMER)

    def counted(rebuilt: dict[str, int]) -> tuple[set[tuple[Any, ...]], dict[str, int]]:
        again, after = found.counted(7, added, rebuilt)
        names = ("group_id", "day", "commit_count", "went_back_count")
        return {tuple(row[name] for name in names) for row in again.to_pylist()}, after

    first = ("a", on(1), 12, 6)
    assert counted({}) == ({first, ("a", on(3), 30, 0), ("b", on(2), 21, 1)}, {"a": 0, "b": DAY_MS})
    assert counted({"a": DAY_MS}) == ({first, ("b", on(2), 21, 1)}, {"a": 0, "b": DAY_MS})
    assert counted({"a": NO_DAY, "b": NO_DAY, "c": 0}) == (set(), {"a": NO_DAY, "b": NO_DAY, "c": 0})
    again, after = FormerDays([], [7]).counted(7, added, {"a": 0})
    assert (again.num_rows, after) == (0, {"a": 0})


def left(warehouse: Warehouse, table: Table, *outdated: Outdated) -> dict[date | None, list[dict[str, Any]] | None]:
    """By day: the rows left in the file of that day; None: the file stays as it is."""
    found: dict[date | None, list[dict[str, Any]] | None] = {}
    for file in warehouse.files(table):
        work = FormerFile(file, warehouse.target(table), tuple(one for one in outdated if one.may_be_in(file)))
        is_changed, new = without_outdated([work])[0] if work.outdated else (False, None)
        rows_left: list[dict[str, Any]] | None = None
        if is_changed:
            path = None if new is None else f"{warehouse.path(table)}/{new.path}"
            values = dict(file.partition_values)
            made = None if path is None else TableFile(path, 0, None, values)
            rows_left = [] if made is None else read_file(made, table, table.column_names).to_pylist()
        found[file.partition_values["day"]] = rows_left
    return found


def test_rows_behind_a_place_go(warehouse: Warehouse) -> None:
    """Those of the groups that were judged again, of the days behind the place; open ones are behind every place."""
    owners: list[dict[str, Any]] = [
        {"group_id": "a", "valid_to": at(1), "day": on(1)},
        {"group_id": "b", "valid_to": at(1), "day": on(1)},
        {"group_id": "a", "valid_to": at(2), "day": on(2)},
        {"group_id": "a"},
        {"group_id": "b"},
        {"group_id": "a", "log_partition": 8},
    ]
    written(warehouse, PARTITION_OWNERS, *owners)
    found = left(warehouse, PARTITION_OWNERS, Outdated("t", 7, groups={"a": DAY_MS}, from_day=on(1)))
    assert found.keys() == {on(1), on(2), None}
    assert (found[on(1)], found[on(2)]) == (None, [])
    assert [(row["group_id"], row["log_partition"]) for row in found[None] or ()] == [("b", 7), ("a", 8)]
    everything = left(warehouse, PARTITION_OWNERS, Outdated("t", 7, after=NO_PLACE))
    assert (everything[on(1)], everything[on(2)]) == ([], [])
    assert [row["log_partition"] for row in everything[None] or ()] == [8]
    assert set(left(warehouse, PARTITION_OWNERS, Outdated("t", 6, after=NO_PLACE)).values()) == {None}


def test_tables_without_places_lose_whole_groups(warehouse: Warehouse) -> None:
    written(warehouse, COMMIT_ANOMALIES, {"group_id": "a", "day": on(1)}, {"group_id": "b", "day": on(1)})
    found = left(warehouse, COMMIT_ANOMALIES, Outdated("t", 7, groups={"a": NO_PLACE}))
    assert [row["group_id"] for row in found[on(1)] or ()] == ["b"]


def test_broken_rules_go_by_topic_and_what_was_not_judged_always(warehouse: Warehouse) -> None:
    """Both coordinator topics have log partitions of the same numbers; some rows are of no group."""
    anomalies = [
        {"log_topic": "t", "log_offset": 5, "rule": "R", "day": on(1)},
        {"log_topic": "t", "log_offset": 9, "rule": "R", "group_id": "a", "day": on(1)},
        {"log_topic": "u", "log_offset": 9, "rule": "R", "day": on(1)},
        {"log_topic": "t", "log_offset": 1, "rule": NOT_JUDGED, "group_id": "b", "day": on(1)},
        {"log_topic": "t", "log_offset": 1, "rule": "ZZ", "group_id": "c", "day": on(2)},
    ]
    written(warehouse, LOG_ANOMALIES, *anomalies)

    def places(*outdated: Outdated) -> list[tuple[str, int, str]] | None:
        found = left(warehouse, LOG_ANOMALIES, *outdated)[on(1)]
        return None if found is None else [(row["log_topic"], row["log_offset"], row["rule"]) for row in found]

    assert places(Outdated("t", 7)) == [("t", 5, "R"), ("t", 9, "R"), ("u", 9, "R")]
    assert places(Outdated("t", 7, after=5)) == [("t", 5, "R"), ("u", 9, "R")]
    assert places(Outdated("t", 7, groups={"a": NO_PLACE})) == [("t", 5, "R"), ("u", 9, "R")]
    assert places(Outdated("t", 7, after=NO_PLACE)) == [("u", 9, "R")]
    assert left(warehouse, LOG_ANOMALIES, Outdated("t", 7))[on(2)] is None


def test_small_tables_change_by_the_day(warehouse: Warehouse) -> None:
    """Days with the same rows stay, in whatever order the rows come."""
    days_before = [summary("a", 1, 1, 0), summary("b", 1, 2, 0), summary("a", 2, 3, 0), summary("a", 3, 4, 0)]
    files = written(warehouse, GROUP_SUMMARY, *days_before)
    days_now = [summary("b", 1, 2, 0), summary("a", 4, 5, 0), summary("a", 1, 1, 0), summary("a", 2, 9, 0)]
    now = rows(GROUP_SUMMARY, *({"cluster_id": "c"} | row for row in days_now))
    again, change = changed_days(GROUP_SUMMARY, now, files)
    assert [(row["day"], row["commit_count"]) for row in again.to_pylist()] == [(on(2), 9), (on(4), 5)]
    assert {file.partition_values["day"] for file in change.removed} == {on(2), on(3)}
    open_ones = written(warehouse, HANGING_TRANSACTIONS, {"group_id": "a", "producer_id": 1})
    gone, change = changed_days(HANGING_TRANSACTIONS, rows(HANGING_TRANSACTIONS), open_ones)
    assert (gone.num_rows, list(change.removed)) == (0, open_ones)


def test_sql_about_a_day_reads_its_files_alone(warehouse: Warehouse) -> None:
    """Those of other days may even be gone; a day is a range of times, too, and open rows are asked for by null."""
    values: list[dict[str, Any]] = [{"group_id": f"of-{day}", "day": on(day)} for day in range(5)]
    for file in written(warehouse, COMMIT_ANOMALIES, *values, {"group_id": "open"}):
        if file.partition_values["day"] not in (on(2), None):
            Path(file.path).unlink()
    sql = DuckDb(warehouse)
    asked = {"= date '1970-01-03'": "of-2", "between '1970-01-03' and '1970-01-03'": "of-2", "is null": "open"}
    for condition, group_id in asked.items():
        answer = sql.answer(f"select group_id from gold.commit_anomalies where day {condition}")
        assert answer.head(9) == [[group_id]]


def test_times_out_of_the_calendar_have_no_day() -> None:
    assert (day_of(DAY_MS - 1), day_of(NO_PLACE), day_of(2**62)) == (FIRST, None, None)
