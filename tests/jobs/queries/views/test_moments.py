"""Views and functions: the newest state and the state at a moment, as values ask for it and as nothing else does."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.cli_enums import Engine
from jobs.delta.warehouse import Warehouse
from jobs.queries.sql.sql import run_query
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.sql.sql_spark import Catalogue
from jobs.queries.views.all_views import named_in
from jobs.queries.views.declare import Kind
from jobs.queries.views.moments import GROUP_AT, MOMENTS
from schemas.tables import TABLES
from tests.jobs.hostile import HOSTILE
from tests.jobs.table_rows import rows

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: int) -> datetime:
    """A moment after the start."""
    return START + timedelta(minutes=minute)


def between(first: int, last: int | None) -> dict[str, Any]:
    """Columns of an interval, in minutes."""
    valid_to = None if last is None else at(last)
    return {"valid_from": at(first), "valid_to": valid_to, "from_log_offset": first, "to_log_offset": last}


def commit(group: str, minute: int, offset: int | None, **more: Any) -> dict[str, Any]:
    """A row of silver.offset_commits: an applied commit to t-0, or its deletion."""
    return {
        "group_id": group,
        "log_offset": minute,
        "topic": "t",
        "partition": 0,
        "committed_offset": offset,
        "outcome": "APPLIED",
        "applied_log_offset": minute,
        "applied_at": at(minute),
        "change": "ADVANCE" if offset is not None else "DELETE",
    } | more


DATA: dict[str, list[dict[str, Any]]] = {
    "silver.group_generations": [
        {"group_id": "g", "generation": 1, "state": "Stable", **between(0, 10)},
        {"group_id": "g", "generation": 2, "state": "Empty", **between(10, None)},
        {"group_id": "gone", "generation": 7, "state": "Dead", **between(3, 5)},
        # `__consumer_offsets` got more partitions, and the group went to another log partition
        {"group_id": "moved", "generation": 9, "state": "Stable", "log_partition": 0, **between(0, None)},
        {"group_id": "moved", "generation": 1, "state": "Stable", "log_partition": 50, **between(40, None)},
    ],
    "silver.offset_commits": [
        commit("g", 1, 100),
        commit("g", 5, 50),
        commit("g", 6, 999, outcome="ABORTED", applied_at=None, applied_log_offset=None, change=None),
        commit("g", 9, None),
        commit("moved", 1, 5_000, log_partition=0),
        commit("moved", 41, 12, log_partition=50),
        # written before the plain commit, applied after it
        commit("g", 20, 300, topic="t2", applied_log_offset=20),
        commit("g", 19, 400, topic="t2", applied_log_offset=25, applied_at=at(25)),
        *(commit(group, 100 + number, number) for number, group in enumerate(HOSTILE)),
    ],
    "silver.coordinator_partitions": [
        {
            "log_topic": "__consumer_offsets",
            "group_id": "moved",
            "log_partition": log_partition,
            "valid_from": since,
            "valid_to": until,
        }
        for log_partition, since, until in ((0, None, at(40)), (50, at(40), None))
    ],
    "silver.share_partition_states": [
        {
            "group_id": "s",
            "topic_id": "id-of-t",
            "topic": "t",
            "partition": 0,
            "log_offset": minute,
            "record_kind": kind,
            "start_offset": start,
            "valid_from": at(minute),
            "valid_to": None if until is None else at(until),
            "to_log_offset": until,
        }
        for minute, kind, start, until in (
            (0, "SNAPSHOT", 0, 10),
            (10, "UPDATE", 5, 20),
            (20, "TOMBSTONE", None, 30),
            (30, "SNAPSHOT", 7, None),
        )
    ],
    "silver.share_state_batches": [
        {
            "group_id": "s",
            "topic_id": "id-of-t",
            "topic": "t",
            "partition": 0,
            "first_offset": first,
            "last_offset": first + 1,
            "delivery_state": "AVAILABLE",
            "delivery_count": 2,
            **between(begin, end),
        }
        for first, begin, end in ((8, 10, 20), (5, 10, 15), (7, 30, None))
    ],
    # the log of the group that moved goes through ten minutes twice
    "gold.log_anomalies": [
        {
            "log_topic": "__consumer_offsets",
            "log_partition": 0,
            "log_offset": 30,
            "rule": "TIME_WENT_BACK",
            "at": at(20),
            "details": f"from {at(30).timestamp() * 1000:.0f} to {at(20).timestamp() * 1000:.0f} (epoch ms): back",
        }
    ],
    "gold.partition_owners": [
        {
            "group_id": group,
            "group_type": "CLASSIC",
            "topic": "t",
            "topic_id": "id-of-t",
            "partition": partition,
            "member_id": f"{group}-m{first}",
            "client_host": "/10.0.0.1",
            **between(first, last),
        }
        for group, partition, first, last in (("g", 0, 0, 10), ("g", 0, 10, None), ("h", 0, 2, 4), ("g", 1, 0, None))
    ],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with a few rows."""
    root = str(tmp_path_factory.mktemp("views") / "wh")
    warehouse = Warehouse(root)
    for name, data in DATA.items():
        table = TABLES[name]
        complete = [{"cluster_id": "c"} | row for row in data]
        warehouse.write(table, rows(table, *complete), app_id="a", version=1)
    return root


@pytest.fixture(scope="module")
def catalogue(own_session: SparkSession, root: str) -> Catalogue:
    """The catalogue of that warehouse."""
    return Catalogue(own_session, Warehouse(root))


def ask(catalogue: Catalogue, query: str, **values: Any) -> list[tuple[Any, ...]]:
    """Rows of a query with values, through the catalogue as `sql` asks it."""
    catalogue.prepare(query)
    return [tuple(row) for row in catalogue.session.sql(query, args=values).collect()]


def test_views_show_the_newest_state(catalogue: Catalogue) -> None:
    """What is gone is not there, and what was deleted is not in force."""
    groups = ask(catalogue, "SELECT group_id, generation, state FROM current_groups WHERE group_id <> 'moved'")
    assert groups == [("g", 2, "Empty")]
    offsets = ask(catalogue, "SELECT topic, committed_offset FROM current_offsets WHERE group_id = :g", g="g")
    assert offsets == [("t2", 400)]
    batches = ask(catalogue, "SELECT start_offset, batches.first_offset FROM current_share_partitions")
    assert batches == [(7, [7])]


def at_each(
    catalogue: Catalogue, function: str, columns: str, arguments: str = "", where: str = "true"
) -> dict[int, list[Any]]:
    """What a function answers at each minute of the first forty, where that is anything, in order."""
    query = f"""
        SELECT m.minute, {columns} FROM (SELECT id AS minute FROM range(40)) AS m,
        LATERAL {function}({arguments} :start + make_interval(0, 0, 0, 0, 0, CAST(m.minute AS INT), 0)) AS f
        WHERE {where}
    """
    answers: dict[int, list[Any]] = {}
    for minute, *values in sorted(ask(catalogue, query, start=START)):
        answers.setdefault(minute, []).append(values[0] if len(values) == 1 else tuple(values))
    return answers


def during(*intervals: tuple[int, int, list[Any]]) -> dict[int, list[Any]]:
    """The same answer at each minute from one inclusive to another exclusive."""
    return {minute: answer for first, end, answer in intervals for minute in range(first, end)}


def test_groups_at_a_time(catalogue: Catalogue) -> None:
    """From inclusive, to exclusive: at each moment one generation a group."""
    expected = during((0, 3, [1]), (3, 5, [1, 7]), (5, 10, [1]), (10, 40, [2]))
    assert at_each(catalogue, "group_at", "generation", where="f.group_id <> 'moved'") == expected
    assert ask(catalogue, "SELECT * FROM group_at(:time)", time=at(-1)) == []


def test_a_moment_that_the_log_has_twice_is_marked(catalogue: Catalogue) -> None:
    """In the log partition whose time went back, for as long as it takes to pass that time again, and as far behind."""
    query = "SELECT is_moment_repeated FROM group_at(:time) WHERE group_id = 'moved'"
    assert [ask(catalogue, query, time=at(minute)) for minute in (0, 19, 20, 39)] == [
        [(False,)],
        [(False,)],
        [(True,)],
        [(True,)],
    ]
    query = "SELECT committed_offset, is_moment_repeated FROM offsets_at('moved', :time)"
    assert [ask(catalogue, query, time=at(minute)) for minute in (19, 25, 39, 41)] == [
        [(5_000, False)],
        [(5_000, True)],
        [(5_000, True)],
        [(12, False)],
    ]
    assert ask(catalogue, "SELECT is_moment_repeated FROM owner_at('t', 0, :time)", time=at(1)) == [(False,)]
    query = "SELECT is_moment_repeated FROM share_partition_at('s', 't', 0, :time)"
    assert ask(catalogue, query, time=at(25)) == ask(catalogue, query, time=at(20)) == []
    assert ask(catalogue, query, time=at(5)) == [(False,)]


def test_functions_need_no_audit(catalogue: Catalogue) -> None:
    """Where gold is not there nothing is known of clocks, and no moment is marked."""
    query = "SELECT is_moment_repeated FROM group_at(:time) WHERE group_id = 'moved'"
    assert ask(catalogue, query, time=at(25)) == [(True,)]
    there = set(catalogue.table_names)
    catalogue.session.sql(GROUP_AT.statement(there - {"gold.log_anomalies"}, Engine.SPARK) or "")
    values = {"time": at(25)}
    assert [tuple(row) for row in catalogue.session.sql(query, args=values).collect()] == [(False,)]
    catalogue.session.sql(GROUP_AT.statement(there, Engine.SPARK) or "")


def test_owners_at_a_time(catalogue: Catalogue) -> None:
    """The owner in each group; the topic may be given by its id."""
    expected = during((0, 2, ["g-m0"]), (2, 4, ["g-m0", "h-m2"]), (4, 10, ["g-m0"]), (10, 40, ["g-m10"]))
    assert at_each(catalogue, "owner_at", "member_id", "'t', 0,") == expected
    query = "SELECT member_id FROM owner_at(:topic, 1, :time)"
    assert ask(catalogue, query, topic="id-of-t", time=at(3)) == [("g-m0",)]
    assert ask(catalogue, query, topic="T", time=at(3)) == []


def test_offsets_at_a_time(catalogue: Catalogue) -> None:
    """What was applied last, aborted commits and deleted offsets left out, in the order in which they took effect."""
    expected = during((1, 5, [("t", 100)]), (5, 9, [("t", 50)]), (20, 25, [("t2", 300)]), (25, 40, [("t2", 400)]))
    asked = {}
    for minute in (0, 1, 5, 6, 9, 20, 25):
        query = "SELECT topic, committed_offset FROM offsets_at('g', :time)"
        asked[minute] = ask(catalogue, query, time=at(minute))
    assert asked == {minute: expected.get(minute, []) for minute in asked}


def test_share_partition_at_a_time(catalogue: Catalogue) -> None:
    """The state with its batches in order of offsets; none while it is deleted."""
    for minute, expected in ((5, [(0, [])]), (10, [(5, [5, 8])]), (15, [(5, [8])]), (20, []), (30, [(7, [7])])):
        query = "SELECT start_offset, batches.first_offset FROM share_partition_at('s', :topic, 0, :time)"
        assert ask(catalogue, query, topic="t", time=at(minute)) == expected
    assert ask(catalogue, query, topic="id-of-t", time=at(30)) == [(7, [7])]
    assert ask(catalogue, query, topic="other", time=at(30)) == []


def test_hostile_ids_give_their_own_rows(catalogue: Catalogue) -> None:
    """An id is a value, whatever it holds: it finds its own rows, and changes nothing."""
    ids = catalogue.session.createDataFrame([(group,) for group in HOSTILE], "id STRING")
    ids.createOrReplaceTempView("ids")
    query = "SELECT id, group_id, committed_offset FROM ids, LATERAL offsets_at(ids.id, :time)"
    found = ask(catalogue, query, time=at(1000))
    assert sorted(found) == sorted((group, group, number) for number, group in enumerate(HOSTILE))
    for number in range(0, len(HOSTILE), 40):
        query = "SELECT committed_offset FROM offsets_at(:g, :time)"
        assert ask(catalogue, query, g=HOSTILE[number], time=at(1000)) == [(number,)]
    assert ask(catalogue, "SELECT count(*) FROM owner_at(:t, 0, :time)", t="' OR '1'='1", time=at(3)) == [(0,)]
    assert ask(catalogue, "SELECT count(*) FROM current_groups") == [(2,)]
    catalogue.session.catalog.dropTempView("ids")


def test_they_are_there_when_named(catalogue: Catalogue, tmp_path: Path) -> None:
    """Through `sql` with named arguments; SHOW lists them; without the tables there is none, and Spark says so."""
    out = io.StringIO()
    query = "SELECT member_id FROM Owner_At(topic => 't', partition => 0, time => timestamp'2026-01-01 00:12:00Z')"
    run_query(catalogue, query, "json", out)
    assert json.loads(out.getvalue()) == {"member_id": "g-m10"}
    catalogue.prepare("SHOW VIEWS")
    assert {name for (_, name, *_) in ask(catalogue, "SHOW VIEWS")} >= {"current_groups", "current_offsets"}
    assert named_in("select 1 from silver.topics", ()) == ([], [])
    Catalogue(catalogue.session, Warehouse(str(tmp_path))).prepare("select * from current_groups")


def test_both_engines_give_the_same(catalogue: Catalogue, root: str) -> None:
    """Every view, and every function at many moments, of groups that moved and where a clock went back."""
    duckdb = DuckDb(Warehouse(root))
    values = {"topic": "'t'", "partition": "0"}
    queries = []
    for definition in MOMENTS:
        for minute in (5, 12, 25, 39, 45) if definition.kind is Kind.FUNCTION else (0,):
            values |= {"time": f"timestamp '{at(minute):%Y-%m-%dT%H:%M:%S}Z'", "group": "'moved'"}
            if "share" in definition.name:
                values["group"] = "'s'"
            names = re.findall(r"(\w+)`? [A-Z]", definition.signature)
            arguments = f"({', '.join(values[name] for name in names)})" if names else ""
            queries.append(f"select * from {definition.name}{arguments}")
    row_count = 0
    for query in queries:
        printed = []
        for engine in (duckdb, catalogue):
            out = io.StringIO()
            run_query(engine, query, "json", out)
            printed.append(sorted(out.getvalue().splitlines()))
        assert printed[0] == printed[1], query
        row_count += len(printed[0])
    assert row_count > len(queries)


def test_functions_in_duckdb_take_names_and_columns(root: str) -> None:
    """Arguments by name, and columns of another function's rows; without gold no moment is marked."""
    duckdb = DuckDb(Warehouse(root))
    when = "timestamp '2026-01-01 00:12:00Z'"
    named = f"SELECT member_id FROM Owner_At(topic => 't', \"partition\" => 0, time => {when})"
    assert duckdb.answer(named).head(9) == [["g-m10"]]
    joined = f"SELECT g.group_id, c.committed_offset FROM group_at({when}) g, LATERAL offsets_at(g.group_id, {when}) c"
    assert duckdb.answer(joined).head(9) == [["moved", 5000]]
    without = GROUP_AT.statement(["silver.group_generations"], Engine.DUCKDB)
    assert without is not None and "log_anomalies" not in without


def test_a_group_is_in_the_log_partition_where_kafka_looks_for_it(catalogue: Catalogue) -> None:
    """What a log partition has of before the internal topic grew is of no time after that."""
    groups = "SELECT generation FROM {} WHERE group_id = 'moved'"
    offsets = "SELECT committed_offset FROM {} WHERE group_id = 'moved'"
    assert ask(catalogue, groups.format("current_groups")) == [(1,)]
    assert ask(catalogue, offsets.format("current_offsets")) == [(12,)]
    for minute, generation, offset in ((20, 9, 5_000), (45, 1, 12)):
        assert ask(catalogue, groups.format("group_at(:time)"), time=at(minute)) == [(generation,)]
        assert ask(catalogue, offsets.format("offsets_at('moved', :time)"), time=at(minute)) == [(offset,)]
