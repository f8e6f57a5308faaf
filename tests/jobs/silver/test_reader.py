"""Rows of silver as tasks read them."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.history.rows import EventRow, MemberRow
from coordinator_core.inference.audit.groups import in_order
from jobs.delta.arrow_columns import codes_of, indices_in, ordered_codes, together
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.part_files import PartWriter
from jobs.delta.warehouse import Warehouse
from jobs.silver import bundles, row_groups
from jobs.silver import reader as silver_reader
from jobs.silver.bundles import group_lives
from jobs.silver.reader import SilverFiles
from jobs.silver.rows import is_of_groups, rows_of
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
)

CLUSTER = "c"
GROUP_TABLES = (GROUP_EVENTS, GROUP_GENERATIONS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS, OFFSET_COMMITS)
TEXTS = ["b", None, "a", "b", ""]


def rows_in(table: Table, *rows: dict[str, Any]) -> pa.Table:
    """Rows of a table, null where nothing is said."""
    schema = arrow_schema(table)
    common = dict.fromkeys(schema.names) | {"cluster_id": CLUSTER, "log_partition": 3}
    return pa.Table.from_pylist([common | row for row in rows], schema=schema)


def at(second: int) -> datetime:
    """A time, so many seconds after the epoch."""
    return datetime.fromtimestamp(second, UTC)


@pytest.mark.parametrize("is_coded", [False, True])
def test_codes_of_texts(is_coded: bool) -> None:
    """The same whether the file gives texts or codes, and whatever the pieces: -1 is null, or not in the list."""
    column = pa.chunked_array([TEXTS[:2], TEXTS[2:]], pa.string())
    if is_coded:
        column = pa.chunked_array([chunk.dictionary_encode() for chunk in column.chunks])
    codes, texts = codes_of(column)
    assert [None if code < 0 else texts[code] for code in codes.tolist()] == TEXTS
    codes, texts = ordered_codes(column)
    assert (codes.tolist(), texts) == ([2, -1, 1, 2, 0], ["", "a", "b"])
    assert indices_in(column, ["a", "b"]).tolist() == [1, -1, 0, 1, -1]


def test_rows_are_what_the_core_wants() -> None:
    """Times are milliseconds, lists tuples, maps dicts, null is None; in pieces or whole, in any order."""
    events = rows_in(
        GROUP_EVENTS,
        {"group_id": "g", "log_offset": 2**40, "at": at(1), "details": [("k", "v"), ("l", "")]},
        {"group_id": "g", "log_offset": 1, "details": []},
        {"group_id": None, "log_offset": 0, "at": at(2), "partition": 0},
    )
    whole = list(rows_of(events, EventRow))
    assert [(row.group_id, row.log_offset, row.at, row.partition, row.details) for row in whole] == [
        ("g", 2**40, 1000, None, {"k": "v", "l": ""}),
        ("g", 1, None, None, {}),
        (None, 0, 2000, 0, None),
    ]
    pieces = pa.concat_tables([events.slice(0, 1), events.slice(1, 2)])
    assert list(rows_of(pieces, EventRow)) == whole
    members = rows_in(
        GROUP_MEMBERS,
        {"member_id": "m", "subscribed_topics": ["t", "u"], "uses_classic_protocol": True},
        {"member_id": "n", "subscribed_topics": []},
    )
    found = [(row.member_id, row.subscribed_topics, row.uses_classic_protocol) for row in rows_of(members, MemberRow)]
    assert found == [("m", ("t", "u"), True), ("n", (), None)]


def test_lives_come_by_group_in_log_order(warehouse: Warehouse) -> None:
    """Whatever the order of the rows in the files, and after the files were sent to another process."""
    event = {"event_index": 0, "event_type": "X", "at": at(1)}
    for version, rows in enumerate(
        [
            [event | {"group_id": "h", "log_offset": 5}, event | {"group_id": "g", "log_offset": 9}],
            [event | {"group_id": "g", "log_offset": 2, "event_index": 1}, event | {"group_id": "g", "log_offset": 2}],
        ]
    ):
        warehouse.ensure(GROUP_EVENTS)
        warehouse.write(GROUP_EVENTS, rows_in(GROUP_EVENTS, *rows), app_id="a", version=version)
    commit = {"group_id": "i", "topic": "t", "partition": 0, "is_transactional": False, "recorded_at": at(1)}
    warehouse.ensure(OFFSET_COMMITS)
    commits = [commit | {"log_offset": offset, "committed_offset": offset * 10} for offset in (8, 7)]
    warehouse.write(OFFSET_COMMITS, rows_in(OFFSET_COMMITS, *commits), app_id="a", version=0)
    files = pickle.loads(pickle.dumps(SilverFiles.of(ClusterTables(warehouse, CLUSTER), GROUP_TABLES)))
    for _ in range(2):
        lives = list(group_lives(files, 3))
        found = [(life.group_id, [(row.log_offset, row.event_index) for row in life.events]) for life in lives]
        assert found == [("g", [(2, 0), (2, 1), (9, 0)]), ("h", [(5, 0)]), ("i", [])]
        assert lives[2].commits.committed_offset.tolist() == [70, 80]
    assert list(group_lives(files, 4)) == []


def test_rows_of_a_life_are_in_the_order_in_which_it_is_judged(warehouse: Warehouse) -> None:
    """Nobody sorts them again: not generations, members or assignments, null before all texts."""
    numbers = range(6)
    intervals = [{"group_id": "g", "from_log_offset": 9 - number // 2, "valid_from": at(1)} for number in numbers]
    generations = [row | {"incarnation": 1, "generation": 7 - number} for number, row in enumerate(intervals)]
    members = [row | {"member_id": f"m{9 - number}"} for number, row in enumerate(intervals)]
    topics = [("t", None), ("b", "t"), (None, None), ("a", None), ("a", "t"), (None, "t")]
    assignments = [
        row | {"member_id": "m", "topic": topic, "topic_id": topic_id, "partition": 0, "assignment": "TARGET"}
        for row, (topic, topic_id) in zip(intervals, topics, strict=True)
    ]
    of_tables = {GROUP_GENERATIONS: generations, GROUP_MEMBERS: members, MEMBER_ASSIGNMENTS: assignments}
    for table, rows in of_tables.items():
        warehouse.ensure(table)
        warehouse.write(table, rows_in(table, *rows), app_id="a", version=0)
    (life,) = group_lives(SilverFiles.of(ClusterTables(warehouse, CLUSTER), GROUP_TABLES), 3)
    assert life == in_order(life)
    assert [len(rows) for rows in life[2:5]] == [6, 6, 6]


@pytest.mark.parametrize("weight_max", [1, 40, 10_000])
def test_lives_are_the_same_however_many_fit_into_memory(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, weight_max: int
) -> None:
    """Groups read one by one, by a few, or all at once: each comes once, whole, and only those which are wanted."""
    warehouse.ensure(GROUP_EVENTS)
    warehouse.ensure(OFFSET_COMMITS)
    for version, offset in enumerate((1, 4)):
        event = {"event_index": 0, "event_type": "X", "at": at(offset)}
        events = [event | {"group_id": group_id, "log_offset": offset} for group_id in "acb"]
        warehouse.write(GROUP_EVENTS, rows_in(GROUP_EVENTS, *events), app_id="a", version=version)
        commit = {"topic": "t", "partition": 0, "is_transactional": False, "outcome": "APPLIED", "change": "FIRST"}
        times = {"recorded_at": at(offset), "applied_at": at(offset + version)}
        commits = [
            commit | times | {"group_id": group_id, "log_offset": at_offset, "applied_log_offset": at_offset}
            for at_offset, group_id in enumerate("bdab", start=10 * offset)
        ]
        commits.append(commits[0] | {"group_id": "of another log partition", "log_partition": 4})
        warehouse.write(OFFSET_COMMITS, rows_in(OFFSET_COMMITS, *commits), app_id="a", version=version)
    files = SilverFiles.of(ClusterTables(warehouse, CLUSTER), GROUP_TABLES)
    monkeypatch.setattr(bundles, "BUNDLE_WEIGHT_MAX", weight_max)
    expected = {"a": ([1, 4], [12, 42]), "b": ([1, 4], [10, 13, 40, 43]), "c": ([1, 4], []), "d": ([], [11, 41])}
    for only in (None, {"a", "d"}, {"b"}, {"nobody"}, {"of another log partition"}):
        lives = {life.group_id: life for life in group_lives(files, 3, only)}
        assert list(lives) == [group_id for group_id in expected if only is None or group_id in only]
        for group_id, life in lives.items():
            offsets = [row.log_offset for row in life.events], life.commits.log_offset.tolist()
            assert offsets == expected[group_id]
            assert life.commits.applied_log_offset.tolist() == life.commits.log_offset.tolist()
            applied_at = [1000 if offset < 40 else 5000 for offset in offsets[1]]
            assert life.commits.applied_at_ms.tolist() == applied_at
            assert life.commits.recorded_at_ms.tolist() == [min(ms, 4000) for ms in applied_at]


def test_log_partitions_are_read_together(warehouse: Warehouse) -> None:
    """Whatever the order of their rows, with or without those of others, and whole files of another value left out."""
    for version, partitions in enumerate(((0, 1, 0), (2, 3), (1, 1))):
        rows = [
            {"group_id": f"g{version}", "log_partition": partition, "log_offset": offset, "event_index": 0}
            for offset, partition in enumerate(partitions)
        ]
        warehouse.write(GROUP_EVENTS, rows_in(GROUP_EVENTS, *rows), app_id="a", version=version)
    files = SilverFiles({GROUP_EVENTS.full_name: tuple(warehouse.files(GROUP_EVENTS))})
    columns = ("log_partition", "log_offset", "group_id")

    def found(files: SilverFiles, *log_partitions: int) -> list[tuple[Any, ...]]:
        parts = files.iterate_some(GROUP_EVENTS, columns, set(log_partitions), ["group_id"])
        return sorted(tuple(row.values()) for rows in parts for row in rows.to_pylist())

    assert found(files, 0, 3) == [(0, 0, "g0"), (0, 2, "g0"), (3, 1, "g1")]
    assert found(files, 1) == [(1, 0, "g2"), (1, 1, "g0"), (1, 1, "g2")]
    assert found(files, 4) == []
    assert found(files.having(GROUP_EVENTS, "group_id", "g1"), 0, 1, 2) == found(files, 2) == [(2, 0, "g1")]


def test_parts_together_have_no_more_texts_than_rows() -> None:
    """Of a few rows of row groups with many texts only their own are left."""
    texts = pa.array([f"t{number}" for number in range(9)], pa.string())
    parts = [
        pa.table({"text": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), texts), "at": [1, 2]})
        for codes in ([8, 2], [2, None])
    ]
    rows = together(parts)
    assert rows.schema == parts[0].schema
    assert rows.to_pydict() == {"text": ["t8", "t2", "t2", None], "at": [1, 2, 1, 2]}
    assert sorted(rows["text"].chunk(0).dictionary.to_pylist()) == ["t2", "t8"]
    assert together([rows, rows.slice(0, 0)]).equals(rows)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_log_partitions_that_share_a_row_group_are_distinguished(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, is_sorted: bool
) -> None:
    """It is read once for all of them, whatever the order of its rows, and again where too much was read since."""
    places = [(partition, offset) for partition in range(3) for offset in range(4)]
    order = places if is_sorted else places[::-1]
    rows = [{"group_id": f"g{p}", "log_partition": p, "log_offset": o, "event_index": 0} for p, o in order]
    warehouse.write(GROUP_EVENTS, rows_in(GROUP_EVENTS, *rows), app_id="a", version=1)
    files = SilverFiles({GROUP_EVENTS.full_name: tuple(warehouse.files(GROUP_EVENTS))})
    reads: list[int] = []
    read = row_groups.OpenFile.read_row_group

    def counted(self: Any, index: int, columns: list[str]) -> pa.Table:
        reads.append(index)
        return read(self, index, columns)

    monkeypatch.setattr(row_groups.OpenFile, "read_row_group", counted)
    for partition in range(3):
        found = files.read(GROUP_EVENTS, ("group_id", "log_offset"), partition, from_log_offset=1).to_pydict()
        assert sorted(zip(*found.values(), strict=True)) == [(f"g{partition}", offset) for offset in (1, 2, 3)]
    assert not files.read(GROUP_EVENTS, ("group_id",), 3).num_rows
    assert reads == [0]
    columns = ("group_id", "log_partition")
    parts = [files.read(GROUP_EVENTS, columns, 1), *files.iterate_some(GROUP_EVENTS, columns, {1, 2})]
    assert [rows.num_rows for rows in parts] == [4, 8]
    assert reads == [0] * 2
    reads.pop()
    monkeypatch.setattr(silver_reader, "SHARED_BYTES_MAX", 0)
    files = SilverFiles({GROUP_EVENTS.full_name: tuple(warehouse.files(GROUP_EVENTS))})
    for partition in range(3):
        assert files.read(GROUP_EVENTS, ("event_index",), partition).num_rows == 4
    assert reads == [0] * 4


def test_row_groups_without_rows_of_wanted_groups_are_not_read(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the columns that tell it: of those of another log partition, too, that have the same id."""
    for version, (group_id, partition) in enumerate((("g", 3), ("h", 3), ("g", 4))):
        rows = [
            {"group_id": text, "log_partition": place, "log_offset": version, "event_index": 0}
            for text, place in ((group_id, partition), ("i", 3), ("i", 4))
        ]
        warehouse.write(GROUP_EVENTS, rows_in(GROUP_EVENTS, *rows), app_id="a", version=version)
    files = SilverFiles({table.full_name: tuple(warehouse.files(table)) for table in GROUP_TABLES})
    widths: list[int] = []
    read = row_groups.OpenFile.read_row_group

    def counted(self: Any, index: int, columns: list[str]) -> pa.Table:
        widths.append(len(columns))
        return read(self, index, columns)

    monkeypatch.setattr(row_groups.OpenFile, "read_row_group", counted)
    assert [[row.log_offset for row in life.events] for life in group_lives(files, 3, {"g"})] == [[0]]
    assert sorted(widths) == [3, 3, 3, len(EventRow._fields) + 1]


def test_row_groups_that_ended_before_a_place_are_passed_over(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with an open row never; and none where the file does not say where its rows ended."""
    ends = (5, 7, 8, 20, 21, 30, 31, None)
    rows = rows_in(
        GROUP_MEMBERS,
        *(
            {"group_id": "g", "member_id": f"m{index}", "from_log_offset": index, "to_log_offset": end}
            for index, end in enumerate(ends)
        ),
    )
    target = warehouse.target(GROUP_MEMBERS)
    values = {"cluster_id": CLUSTER, "is_settled": True}
    read = row_groups.OpenFile.read_row_group
    reads: list[int] = []

    def counted(self: Any, index: int, columns: list[str]) -> pa.Table:
        reads.append(index)
        return read(self, index, columns)

    monkeypatch.setattr(row_groups.OpenFile, "read_row_group", counted)
    for version, (rows_max, wanted) in enumerate(((2, [1, 2, 3]), (None, [0])), 1):
        with PartWriter(target, "part", values, row_group_rows_max=rows_max) as part:
            part.write(rows)
            written = part.close()
        warehouse.commit(
            GROUP_MEMBERS, [written], app_id="a", version=version, mode=OVERWRITE, replace={"cluster_id": CLUSTER}
        )
        files = SilverFiles({GROUP_MEMBERS.full_name: tuple(warehouse.files(GROUP_MEMBERS))})
        reads.clear()
        found = pa.concat_tables(files.iterate(GROUP_MEMBERS, ["to_log_offset"], 3, ended_after=7))
        assert reads == wanted
        assert set(found["to_log_offset"].to_pylist()) >= {8, 20, 21, 30, 31, None}


def test_rows_of_some_groups_are_reported_by_log_partition() -> None:
    """A group of one log partition says nothing of one of another; groups without rows, and no rows, are no matter."""
    rows = pa.table({"group_id": ["a", "b", "a", "c"], "log_partition": pa.array([0, 0, 1, 1], pa.int32())})
    groups = {0: {"a", "x"}, 1: {"c"}, 2: {"b"}}
    assert is_of_groups(rows, groups).tolist() == [True, False, False, True]
    assert is_of_groups(rows.slice(0, 0), groups).tolist() == []
