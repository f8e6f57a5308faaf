"""What nightly says it found: numbers that are gold's, and commands that show the rows."""

from itertools import product
from typing import Any, Final

import pytest

from jobs.bronze.coverage import LOG_START, hole_count, is_hole
from jobs.cli_enums import Listing
from jobs.console.names import LINE_CHARACTERS_MAX, names_of
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.audit_report import Span, listed
from jobs.queries.answers.findings import Findings, Found, findings, lines
from jobs.queries.answers.lists import FINDINGS
from schemas.tables.bronze import COVERAGE, QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.gold import HANGING_TRANSACTIONS, REBALANCES
from schemas.tables.state import RUNS
from tests.jobs.history import CLUSTER, START, at, write
from tests.jobs.hostile import HOSTILE
from tests.jobs.table_rows import rows

DAY_MINUTES = 24 * 60


def rebalance(group_id: str, number: int, minute: float, **more: Any) -> dict[str, Any]:
    """A row of gold.rebalances."""
    own = {"cluster_id": CLUSTER, "group_id": group_id, "group_type": "CLASSIC", "to_generation": number}
    return own | {"incarnation": 0, "started_at": at(minute), "in_storm": False, "member_count": 1} | more


def archived(group_id: str, first: int, last: int) -> dict[str, Any]:
    """A row of gold.archived_records."""
    place = {"topic": "t", "topic_id": "T", "partition": 0, "first_offset": first, "last_offset": last}
    return {"cluster_id": CLUSTER, "group_id": group_id, "group_type": "SHARE", "log_offset": first} | place


def coverage(number: int, kind: str) -> dict[str, Any]:
    """A row of bronze.coverage."""
    place = {"topic": "__consumer_offsets", "partition": 0, "from_offset": number, "to_offset": number}
    return {"cluster_id": CLUSTER, "kind": kind} | place


def commit(number: int, kind: str) -> dict[str, Any]:
    """A row of gold.commit_anomalies."""
    place = {"topic": "t", "partition": 0, "log_offset": number}
    offsets = {"from_offset": 5, "to_offset": 1000 if kind == "SKIP" else 4}
    return {"cluster_id": CLUSTER, "group_id": "g", "kind": kind} | place | offsets


def oddity(number: int, rule: str, category: str, group_id: str = "g") -> dict[str, Any]:
    """A row of gold.log_anomalies."""
    own = {"cluster_id": CLUSTER, "log_topic": "t", "log_partition": 0, "log_offset": number, "ordinal": 0}
    return own | {"group_id": group_id, "rule": rule, "category": category, "details": "clients like 'app'"}


ROWS: dict[str, list[dict[str, Any]]] = {
    "gold.rebalances": [
        *(rebalance("busy", number, number, in_storm=number < 9) for number in range(21)),
        *(rebalance("steady", number, number) for number in range(20)),
        *(rebalance("for days", number, number * DAY_MINUTES / 20) for number in range(60)),
        rebalance("deployed", 1, 1, rollout_id="0/1"),
        rebalance("deployed", 2, 2, rollout_id="0/1"),
        rebalance("deployed", 3, 3, rollout_id="0/3"),
        rebalance("g", 1, 1, rollout_id="0/1"),
        rebalance("lost", 1, 1, causes=["MEMBER_EXPIRED"], cause_methods=["M"], cause_confidences=["LIKELY"]),
        rebalance(
            *("lost", 2, 2),
            causes=["FIRST", "MEMBER_EXPIRED"],
            cause_methods=["M", "N"],
            cause_confidences=["CERTAIN", "GUESS"],
        ),
        rebalance("lost", 3, 3, causes=["PARTITIONS_CHANGED"], cause_methods=["M"], cause_confidences=["CERTAIN"]),
        rebalance("waiting", 1, 1, unowned_likely_ms=4 * 60_000, partitions_total=4, unowned_confidence="LIKELY"),
        rebalance("waiting", 2, 2, unowned_likely_ms=4 * 60_000 - 1, partitions_total=4, unowned_confidence="LIKELY"),
        rebalance("waiting", 3, 3, unowned_likely_ms=4 * 60_000, partitions_total=4, unowned_confidence="GUESS"),
        rebalance("gone", 1, 1, member_count=0),
        rebalance("gone", 2, 2),
        rebalance("gone", 3, 3, member_count=0),
        rebalance("back", 1, 1, member_count=0),
        rebalance("back", 2, 2),
        rebalance("busy", 99, 1) | {"cluster_id": "another"},
    ],
    "gold.archived_records": [archived("s", 0, 9), archived("s", 20, 20), archived("r", 0, 29)],
    "gold.commit_anomalies": [commit(1, "REWIND"), commit(2, "REWIND"), commit(3, "SKIP")],
    "gold.log_anomalies": [
        oddity(1, "OTHER", "COORDINATOR"),
        oddity(2, "TIME", "LOG"),
        *(oddity(number, "CLIENT_LAYOUT", "CLIENT", f"g{number % 2}") for number in (3, 4, 5)),
        oddity(6, "TWO_APPLICATIONS", "GROUP", "shared"),
        oddity(7, "TWO_APPLICATIONS", "GROUP", "parted"),
        oddity(8, "ONE_APPLICATION", "GROUP", "parted"),
    ],
    "gold.share_group_summary": [
        {
            "cluster_id": CLUSTER,
            "group_id": "s",
            "day": at(day * DAY_MINUTES),
            "records_redelivered": 9,
            "extra_deliveries": day,
        }
        for day in (1, 2)
    ],
    "bronze.coverage": [
        coverage(number, kind) for number, kind in enumerate(("CAPTURED", "MISSING", "CORRUPT", "COMPACTED"))
    ],
    "bronze.quarantine": [{"cluster_id": CLUSTER, "topic": "t", "partition": 0, "stage": "RECORD", "code": "X"}],
}


def test_rebalances_that_complete_others_are_not_counted_again(warehouse: Warehouse) -> None:
    """A follow-up has the cause of the rebalance before it: nobody was thrown out and no topic grew a second time."""
    causes = (("MEMBER_EXPIRED", "REBALANCE_TIMEOUT", "LIKELY"), ("PARTITIONS_CHANGED", "NEW_PARTITIONS", "LIKELY"))
    rows = []
    for number, (cause, method, confidence) in enumerate(causes):
        for place, by in enumerate((method, "COOPERATIVE_FOLLOW_UP", "METADATA_FOLLOW_UP", "CONNECT_DELAY_OVER")):
            how = {"causes": [cause], "cause_methods": [by], "cause_confidences": [confidence]}
            rows.append(rebalance("g", 10 * number + place, place, **how))
    write(warehouse, {"gold.rebalances": rows})
    found = findings(ClusterTables(warehouse, CLUSTER))
    assert (found.new(Listing.EXPIRED), found.new(Listing.GROWN)) == ({"g": 1}, {"g": 1})
    assert found.summary == "NEW: 1 time thrown out, 1 change of topics"


EXPECTED: Final = {
    "holes": {"__consumer_offsets-0": 2},
    "quarantine": {"t-0": 1},
    "rules": {"OTHER": 1},
    "archived": {"r": 30, "s": 11},
    "flapping": {"busy": 9},
    "expired": {"lost": 2},
    "unowned": {"waiting": 1},
    "rewinds": {"g": 2},
    "skipped": {"g": 1},
    "shared": {"shared": 1},
    "emptied": {"gone": 1},
    "grown": {"lost": 1},
    "oddities": {"TIME": 1},
    "clients": {"clients like 'app'": 3},
}


def test_numbers_are_those_of_the_tables(warehouse: Warehouse) -> None:
    """Of this cluster alone; what the cleaner took away is no hole; worst first."""
    write(warehouse, ROWS)
    found = findings(ClusterTables(warehouse, CLUSTER))
    shown = found.as_json()
    assert list(shown["new"].items()) == list(EXPECTED.items())
    assert shown["guesses"] == {"expired": 1}
    assert (shown["again"], shown["lasting"], shown["over"]) == ({}, {}, {})
    assert found.lacks == "2 holes in coverage, 1 row in quarantine"


def test_a_list_has_the_rows_that_are_counted(warehouse: Warehouse) -> None:
    """Each finding's command lists what it counts, and no other row."""
    write(warehouse, ROWS)
    tables = ClusterTables(warehouse, CLUSTER)
    found = findings(tables)
    for listing in FINDINGS:
        _, rows = listed(tables, None, listing, Span())
        assert len(rows) == (3 if listing is Listing.ARCHIVED else sum(found.new(listing).values())), listing


def test_what_is_no_guess_comes_first(warehouse: Warehouse) -> None:
    """Of who was thrown out: in a list by its confidence, then by time, and in a night's line."""
    sure = {"a": "GUESS", "b": "LIKELY", "c": "CERTAIN", "d": "LIKELY"}
    whose = {"causes": ["MEMBER_EXPIRED"], "cause_methods": ["M"]}
    those = [
        rebalance(name, 1, 9 - minute, cause_confidences=[how], **whose)
        for minute, (name, how) in enumerate(sure.items())
    ]
    write(warehouse, {"gold.rebalances": [*those, rebalance("a", 2, 0, cause_confidences=["GUESS"], **whose)]})
    tables = ClusterTables(warehouse, CLUSTER)
    columns, found = listed(tables, None, Listing.EXPIRED, Span())
    assert [row[columns.index("group_id")] for row in found] == ["c", "d", "b", "a", "a"]
    night = findings(tables)
    assert list(night.new(Listing.EXPIRED)) == ["b", "c", "d", "a"]
    assert "5 times thrown out (3 surely, 2 perhaps): b, c, d, a (2)" in " ".join(lines(night, width=160))


def test_each_line_names_the_command_that_shows_the_rows(warehouse: Warehouse) -> None:
    """As a shell takes it, with the options that make it ask the same tables, and without SQL."""
    write(warehouse, ROWS)
    found = findings(ClusterTables(warehouse, CLUSTER))
    head, *reported = lines(found)
    assert head == "NEW tonight"
    assert [line.partition("./spark-submit.sh ")[2] for line in reported] == [f"audit --list {it}" for it in EXPECTED]
    place = " --warehouse '/a b/of a name that is long enough to leave no room' --cluster-id c"
    first, head, *placed, end = lines(found, place, attention=["g"])
    assert first == "1 group needs attention: g  ./spark-submit.sh groups --needs-attention"
    assert placed == reported
    assert end == f"Each command needs{place}"


def test_groups_that_need_attention_are_not_called_new(warehouse: Warehouse) -> None:
    """They are named apart, before what is new: most of them needed it on the night before, too."""
    write(warehouse, ROWS)
    first, head, *_ = lines(findings(ClusterTables(warehouse, CLUSTER)), attention=["b", "a"])
    assert first == "2 groups need attention: b, a  ./spark-submit.sh groups --needs-attention"
    assert head == "NEW tonight"
    first, *_ = lines(findings(ClusterTables(warehouse, CLUSTER)), attention=["b", "a"], gone=["c"])
    assert first == "2 groups need attention, c is gone: b, a  ./spark-submit.sh groups --needs-attention"
    first, *_ = lines(findings(ClusterTables(warehouse, CLUSTER)), attention=["b", "a"], gone=["c", "e", "d"])
    assert first.startswith("2 groups need attention, c and 2 more are gone: b, a  ")


def test_nothing_to_tell(warehouse: Warehouse) -> None:
    """Said, in one line: no line at all would leave open whether anybody looked."""
    assert list(lines(findings(ClusterTables(warehouse, CLUSTER)))) == ["Nothing new tonight"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_in_its_line(name: str) -> None:
    """It reaches no command, and no control code reaches the terminal; no line is wider than it should be."""
    counts = {Listing.ARCHIVED: {name: 1}, Listing.FLAPPING: {name: 2}}
    items = tuple(Found(listing, new) for listing, new in counts.items())
    found = Findings(items=items, missing_log_partitions={})
    reported = list(lines(found, attention=[name]))
    assert len(reported) == 4
    assert all(line.isprintable() and len(line) <= LINE_CHARACTERS_MAX for line in reported)
    shown = [line.partition("./spark-submit.sh ")[2] for line in reported]
    assert shown == ["groups --needs-attention", "", "audit --list archived", "audit --list flapping"]


def test_many_findings_fit_a_screen() -> None:
    """Of every kind, each of many groups with long names: the whole is 22 lines at most, and no line too wide."""
    counts = {f"a-group-with-a-long-name-{number}-{'x' * 90}": number for number in range(300, 0, -1)}
    items = tuple(Found(it, counts, 7, counts, counts, START) for it in FINDINGS)
    found = Findings(items=items, missing_log_partitions={"t": 3})
    for attention in ([], list(counts)):
        reported = list(lines(found, attention=attention))
        assert len(reported) <= 22
        assert all(len(line) <= LINE_CHARACTERS_MAX for line in reported)
        assert sum("WORSE" in line for line in reported) == sum("STILL OPEN" in line for line in reported) == 1


def run(warehouse: Warehouse, number: int, *tables: Table) -> None:
    """The end of a run of an audit, with the versions that it left."""
    versions = [(table.full_name, warehouse.version(table)) for table in tables]
    row = {"cluster_id": CLUSTER, "run_id": f"r{number}", "started_at": at(1000 * number), "audit_version": number}
    warehouse.write(RUNS, rows(RUNS, {**row, "table_versions": versions}), app_id="runs", version=number)


def put(warehouse: Warehouse, number: int, table: Table, *those: dict[str, Any]) -> None:
    """Replace the rows of a table."""
    warehouse.write(table, rows(table, *those), app_id="a", version=number, mode=OVERWRITE, replace={})


def test_new_is_what_the_audit_before_had_not(warehouse: Warehouse) -> None:
    """Whatever its time: a row that came late is new, one that was written again is not, and one that is now in a
    storm is. A group that had such rows got worse; what lasts is open, or over."""
    storm = {"in_storm": True}
    first = [rebalance("old", 1, 5, **storm), rebalance("old", 2, 6), rebalance("still", 1, 7, **storm)]
    hanging = [{"cluster_id": CLUSTER, "group_id": name, "log_partition": 0, "producer_id": 1} for name in "abc"]
    put(warehouse, 1, REBALANCES, *first)
    put(warehouse, 1, HANGING_TRANSACTIONS, *hanging[:2])
    run(warehouse, 1, REBALANCES, HANGING_TRANSACTIONS)
    tables = ClusterTables(warehouse, CLUSTER)
    assert findings(tables, "r1").as_json()["new"] == {"hanging": {"a": 1, "b": 1}, "flapping": {"old": 1, "still": 1}}
    late = [rebalance("old", 2, 6, **storm), rebalance("late", 1, -10_000, **storm)]
    put(warehouse, 2, REBALANCES, first[0] | {"duration_ms": 7}, *late, first[2])
    put(warehouse, 2, HANGING_TRANSACTIONS, *hanging[1:])
    run(warehouse, 2, REBALANCES, HANGING_TRANSACTIONS)
    found = findings(tables, "r2")
    shown = found.as_json()
    assert shown["new"] == {"hanging": {"c": 1}, "flapping": {"late": 1, "old": 1}}
    assert shown["again"] == {"flapping": ["old"]}
    assert (shown["lasting"], shown["over"]) == ({"hanging": {"b": 1}}, {"hanging": {"a": 1}})
    assert list(lines(found))[-3:] == [
        "WORSE, as on an earlier night: flapping old",
        "STILL OPEN since before tonight: 1 group with a hanging transaction",
        "OVER: 1 group with a hanging transaction: a",
    ]
    # a night with nothing to audit
    found = findings(tables, "r3")
    assert not any(it.new or it.over for it in found.items) and found.as_json()["lasting"] == {
        "hanging": {"b": 1, "c": 1}
    }
    assert next(lines(found)) == "Nothing new tonight"


def test_what_bronze_has_is_new_if_it_was_seen_since(warehouse: Warehouse) -> None:
    """By any capture since the audit before began: a continuous one, too."""
    put(warehouse, 1, REBALANCES)
    run(warehouse, 1, REBALANCES)
    run(warehouse, 2, REBALANCES)
    put(warehouse, 1, COVERAGE, *(coverage(n, "MISSING") | {"observed_at": at(1000 + n)} for n in (0, 1)))
    shown = findings(ClusterTables(warehouse, CLUSTER), "r2").as_json()
    assert (shown["new"], shown["lasting"]) == (
        {"holes": {"__consumer_offsets-0": 1}},
        {"holes": {"__consumer_offsets-0": 1}},
    )


def test_what_was_not_read_is_named_by_its_log_partition_or_file(warehouse: Warehouse) -> None:
    """Of a file that nobody can read, no log partition is known."""
    unread = {"cluster_id": CLUSTER, "stage": "FILE", "code": "UNREADABLE_FILE", "seen_at": at(1), "source": "/lake/a"}
    put(warehouse, 1, QUARANTINE, unread, unread | {"topic": "__consumer_offsets", "partition": 3})
    found = findings(ClusterTables(warehouse, CLUSTER), None)
    assert found.as_json()["new"] == {"quarantine": {"__consumer_offsets-3": 1, "a": 1}}


def test_holes_are_those_of_coverage(warehouse: Warehouse) -> None:
    """The condition in SQL is the rule that decides the exit code."""
    kinds = ("CAPTURED", "MISSING", "CORRUPT", "COMPACTED")
    topics = ("__consumer_offsets", "__share_group_state")
    cases = dict(enumerate(product(topics, kinds, (None, LOG_START), (0, 1))))
    columns = ("topic", "kind", "reason", "from_offset")
    rows = ({**dict(zip(columns, case, strict=True)), "partition": number} for number, case in cases.items())
    put(warehouse, 1, COVERAGE, *(coverage(0, "") | row for row in rows))
    tables = ClusterTables(warehouse, CLUSTER)
    holes = {f"{case[0]}-{number}": 1 for number, case in cases.items() if is_hole(*case)}
    assert findings(tables).new(Listing.HOLES) == holes
    assert hole_count(tables) == len(holes) > 0


def test_an_empty_name_is_seen() -> None:
    """A group id may be empty: a list of names has it all the same."""
    assert names_of(["", "b"]) == "'', b"
