"""The list for an auditor: what is in the span, and whether that is all."""

import io
import json
from datetime import timedelta
from typing import Any, Final

import pytest

from jobs.cli_enums import Listing
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers import audit_report
from jobs.queries.answers.audit_report import Span, completeness, listed, run_audit_report
from jobs.queries.answers.lists import LISTS
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from tests.jobs.history import CLUSTER, at, at_ms, between, write
from tests.jobs.hostile import HOSTILE
from tests.jobs.table_rows import AT

CAPTURED_AT = 60
"""Minute of the last capture."""


def covered(first: int, last: int, kind: str = "CAPTURED", minutes: tuple[int, int] | None = (0, 1)) -> dict[str, Any]:
    """A row of bronze.coverage of one log partition."""
    return {
        "cluster_id": CLUSTER,
        "topic": SHARES_LOG,
        "partition": 0,
        "from_offset": first,
        "to_offset": last,
        "kind": kind,
        "reason": None if kind == "CAPTURED" else "why",
        "first_timestamp": at(minutes[0]) if minutes else None,
        "last_timestamp": at(minutes[1]) if minutes else None,
        "observed_at": at(CAPTURED_AT),
    }


def looked_at(last_minute: float | None = CAPTURED_AT, count: int = 1) -> dict[str, Any]:
    """A row of bronze.log_partitions: read live until a minute, of a topic of so many log partitions."""
    return {
        "cluster_id": CLUSTER,
        "topic": SHARES_LOG,
        "partition": 0,
        "first_seen_at": at(0),
        "read_until": None if last_minute is None else at(last_minute),
        "partition_count": count,
    }


def archived(group_id: str, minute: int, **more: Any) -> dict[str, Any]:
    """A row of gold.archived_records."""
    place = {"topic": "t", "topic_id": "T", "partition": 0, "first_offset": minute, "last_offset": minute}
    own = {"cluster_id": CLUSTER, "group_id": group_id, "group_type": "SHARE", "log_offset": minute, "at": at(minute)}
    return own | place | {"cause": "REJECT_OR_GAP", "method": "BELOW_LIMIT", "confidence": "CERTAIN"} | more


@pytest.fixture(autouse=True)
def all_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage is written here without a replay of it; tests of lists that are behind make whole nights."""
    monkeypatch.setattr(audit_report, "not_replayed_lines", lambda *_: iter(()))


def statement(warehouse: Warehouse, first: float | None = None, last: float | None = None) -> list[str]:
    """The statement for a span in minutes."""
    span = Span(*(None if minute is None else at_ms(minute) for minute in (first, last)))
    complete = completeness(ClusterTables(warehouse, CLUSTER), SHARES_LOG, span)
    assert complete.is_complete == complete.statements[0].startswith("COMPLETE")
    return list(complete.statements)


def test_nothing_captured_is_not_complete(warehouse: Warehouse) -> None:
    """An empty list of nothing proves nothing."""
    assert statement(warehouse) == [f"NOT COMPLETE: nothing of {SHARES_LOG} was captured"]


def test_a_log_without_holes_is_complete_until_its_capture(warehouse: Warehouse) -> None:
    """What was written after the last capture of a live cluster is not known."""
    write(warehouse, {"bronze.coverage": [covered(0, 9)], "bronze.log_partitions": [looked_at()]})
    assert len(statement(warehouse)) == 1
    assert len(statement(warehouse, 0, CAPTURED_AT)) == 1
    assert "after the last capture" in statement(warehouse, 0, CAPTURED_AT + 1)[1]


def test_a_copy_is_complete_until_its_last_record(warehouse: Warehouse) -> None:
    """The time at which a copy was captured says nothing of the log."""
    write(warehouse, {"bronze.coverage": [covered(0, 9)], "bronze.log_partitions": [looked_at(None)]})
    those = f"{SHARES_LOG} (1 log partition) from its beginning to 2026-01-01T00:01:00.000Z"
    assert statement(warehouse) == [f"COMPLETE: every record of {those} was read"]
    assert len(statement(warehouse, 0, 1)) == 1
    assert "after its last record" in statement(warehouse, 0, CAPTURED_AT)[1]


@pytest.mark.parametrize("kind", ["MISSING", "CORRUPT", "COMPACTED"])
def test_a_hole_counts_where_it_may_touch_the_span(warehouse: Warehouse, kind: str) -> None:
    """Offsets 10 to 19 were written between minutes 5 and 8, give or take the second by which leaders' clocks differ: a
    span before or after has none of them."""
    hole = covered(10, 19, kind, None)
    write(warehouse, {"bronze.coverage": [covered(0, 9, minutes=(0, 5)), hole, covered(20, 29, minutes=(8, 9))]})
    write(warehouse, {"bronze.log_partitions": [looked_at()]})
    for first, last, is_complete in (
        (0, 4.9, True),
        (0, 5, False),
        (0, 6, False),
        (6, 7, False),
        (8.1, 9, True),
        (None, None, False),
    ):
        assert (len(statement(warehouse, first, last)) == 1) == is_complete, (first, last)
    reported = statement(warehouse)[1]
    assert f"{SHARES_LOG}-0: offsets 10 to 19 {kind} (why)" in reported
    assert "between 2026-01-01T00:05:00.000Z and 2026-01-01T00:08:00.000Z" in reported


def test_a_log_that_begins_late_is_not_complete(warehouse: Warehouse) -> None:
    """Offsets before the first capture are missing, though no row says so; later spans do not need them."""
    write(warehouse, {"bronze.coverage": [covered(40, 49, minutes=(10, 20))]})
    write(warehouse, {"bronze.log_partitions": [looked_at()]})
    assert "offsets 0 to 39 MISSING, written before 2026-01-01T00:10:00.000Z" in statement(warehouse)[1]
    assert len(statement(warehouse, 11, 20)) == 1


def test_what_could_not_be_read_is_not_complete(warehouse: Warehouse) -> None:
    """Quarantined pieces, and share partitions whose first snapshot was not seen."""
    quarantined = {"cluster_id": CLUSTER, "topic": SHARES_LOG, "partition": 0, "code": "CRC_MISMATCH"}
    midway = {"group_id": "g", "topic_id": "T", "partition": 0, "log_offset": 3, "is_complete": False}
    interval = {name: value for name, value in between(3, None).items() if name != "from_log_offset"}
    write(
        warehouse,
        {
            "bronze.coverage": [covered(0, 9)],
            "bronze.log_partitions": [looked_at()],
            "bronze.quarantine": [quarantined],
            "silver.share_partition_states": [midway | interval],
        },
    )
    reported = statement(warehouse)
    assert "1 piece " in reported[1]
    assert "CRC_MISMATCH" in reported[1]
    assert "1 share partition whose first record is an update" in reported[2]
    assert len(statement(warehouse, 4)) == 2


def test_the_span_is_half_open(warehouse: Warehouse) -> None:
    """From inclusive, to exclusive, by group, in the order of group and time."""
    write(warehouse, {"gold.archived_records": [archived(name, minute) for minute in (3, 2, 1) for name in ("h", "g")]})

    def found(first: float | None, last: float | None, groups: list[str] | None) -> list[tuple[Any, Any]]:
        span = Span(*(None if minute is None else at_ms(minute) for minute in (first, last)))
        columns, rows = listed(ClusterTables(warehouse, CLUSTER), groups, Listing.ARCHIVED, span)
        return [(row[columns.index("group_id")], row[columns.index("first_offset")]) for row in rows]

    assert found(1, 3, None) == [("g", 1), ("g", 2), ("h", 1), ("h", 2)]
    assert found(2, None, ["h"]) == [("h", 2), ("h", 3)]
    assert found(None, 1, None) == []


def test_owners_count_for_every_moment_of_their_interval(warehouse: Warehouse) -> None:
    """An interval that began before the span and one that has not ended are in it."""
    owners = [
        {"group_id": "g", "topic": "t", "partition": 0, "member_id": name} | between(first, last)
        for name, first, last in (("a", 1, 4), ("b", 4, None))
    ]
    write(
        warehouse, {"gold.partition_owners": [{k: v for k, v in row.items() if k != "log_partition"} for row in owners]}
    )

    def found(first: float, last: float) -> list[Any]:
        span = Span(at_ms(first), at_ms(last))
        columns, rows = listed(ClusterTables(warehouse, CLUSTER), None, Listing.OWNERS, span)
        return [row[columns.index("member_id")] for row in rows]

    assert [found(0, 1), found(2, 3), found(3, 5), found(4, 9)] == [[], ["a"], ["a", "b"], ["b"]]


@pytest.mark.parametrize("output_format", ["table", "csv", "json"])
def test_the_first_lines_say_whether_it_is_all(warehouse: Warehouse, output_format: str) -> None:
    """In each format, before any row."""
    state = {"group_id": "=1", "topic_id": "T", "partition": 0, "log_offset": 3, "is_complete": True}
    interval = {name: value for name, value in between(3, None).items() if name != "from_log_offset"}
    write(
        warehouse,
        {
            "bronze.coverage": [covered(0, 9)],
            "bronze.log_partitions": [looked_at()],
            "silver.share_partition_states": [state | interval],
            "gold.archived_records": [archived("=1", 1)],
        },
    )
    out = io.StringIO()
    asked: dict[str, Any] = {"span": Span(), "group_ids": ["=1"], "output_format": output_format}
    assert run_audit_report(ClusterTables(warehouse, CLUSTER), listing=Listing.ARCHIVED, out=out, **asked)
    first, *rest = out.getvalue().splitlines()
    if output_format == "json":
        assert json.loads(first)["is_complete"]
        assert json.loads(rest[-1])["group_id"] == "=1"
    else:
        assert first.startswith("# COMPLETE: ")
        # for people what the list cannot have comes behind it
        row = rest[-1] if output_format == "csv" else rest[1]
        assert row.startswith("'=1," if output_format == "csv" else "=1 ")
    assert not run_audit_report(ClusterTables(warehouse, CLUSTER), listing=Listing.COMMITS, out=io.StringIO(), **asked)
    assert GROUPS_LOG not in first


IN_ORDER: Final = (
    *(Listing.ARCHIVED, Listing.WITHOUT_COPY, Listing.REDELIVERIES, Listing.SHARE_OFFSETS),
    *(Listing.REBALANCES, Listing.COMMITS, Listing.OWNERS),
)


def test_hostile_groups_match_themselves_alone(warehouse: Warehouse) -> None:
    """200 ids: each has its own rows, asked for alone or with others."""
    write(warehouse, {"gold.archived_records": [archived(name, number) for number, name in enumerate(HOSTILE)]})
    own = {name: number for number, name in enumerate(HOSTILE)}
    for names in (HOSTILE[::2], HOSTILE[1::2], *([name] for name in HOSTILE[::7])):
        columns, rows = listed(ClusterTables(warehouse, CLUSTER), [*names], Listing.ARCHIVED, Span())
        found = {row[columns.index("group_id")]: row[columns.index("log_offset")] for row in rows}
        assert found == {name: own[name] for name in names} and len(rows) == len(names)


@pytest.mark.parametrize("listing", IN_ORDER)
def test_rows_of_one_time_are_in_the_order_of_the_log(warehouse: Warehouse, listing: Listing) -> None:
    """In every list, whatever their topics and partitions; times ascend."""
    source = LISTS[listing]
    place = next((name for name in ("log_offset", "from_log_offset") if name in source.table.column_names), None)
    rows = []
    for number in range(12):
        row = {
            "cluster_id": CLUSTER,
            "group_id": "g",
            "topic": f"t{number % 3}",
            "topic_id": f"{number % 3}",
            "partition": -number % 5,
        }
        row |= {"first_offset": 50 - number, "member_id": f"m{-number % 4}", source.time: AT}
        row |= {"incarnation": number // 4, "to_generation": number % 4, "log_partition": 0, "dead_letter": "REFUSED"}
        row |= {} if place is None else {place: 100 + number}
        rows.append(row)
    rows[0][source.time] = AT + timedelta(milliseconds=1)
    names = source.table.column_names
    given = [{name: value for name, value in row.items() if name in names} for row in (*rows[5:], *rows[:5])]
    write(warehouse, {source.table.full_name: given})
    columns, found = listed(ClusterTables(warehouse, CLUSTER), None, listing, Span())
    key = ("incarnation", "to_generation") if place is None else (place,)
    in_order = [tuple(row[columns.index(name)] for name in key) for row in found]
    assert in_order == [tuple(row[name] for name in key) for row in (*rows[1:], rows[0])]
