"""What nightly says it found: numbers that are gold's, and commands that show the rows."""

import json
import shlex
from collections import Counter
from typing import Any

import pytest

from jobs.console.names import names_of
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.findings import Findings, findings, lines
from tests.jobs.history import CLUSTER, at, write
from tests.jobs.hostile import HOSTILE

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
    assert (found.rebalance_count, found.thrown_out_by_group, found.partitions_added_by_group) == (
        8,
        {"g": 1},
        {"g": 1},
    )
    assert "members were thrown out in 1 rebalance" in found.headline


def test_numbers_are_those_of_the_tables(warehouse: Warehouse) -> None:
    """Of this cluster alone; days are counted apart, and what the cleaner took away is no hole."""
    write(warehouse, ROWS)
    found = findings(ClusterTables(warehouse, CLUSTER))
    expected = Findings(
        rebalance_count=116,
        storm_rebalance_count=9,
        storm_rebalances_by_group={"busy": 9},
        thrown_out_by_group={"lost": 1},
        maybe_thrown_out_by_group={"lost": 1},
        without_owner_by_group={"waiting": 1},
        emptied_groups=("gone",),
        partitions_added_by_group={"lost": 1},
        rollout_count=3,
        rebalances_on_worst_day={
            **{"busy": 21, "for days": 20, "steady": 20},
            **{"deployed": 3, "gone": 3, "lost": 3, "waiting": 3, "back": 2, "g": 1},
        },
        given_up_count=41,
        given_up_by_group={"r": 30, "s": 11},
        redelivered_count=18,
        extra_delivery_count=3,
        went_back_by_group={"g": 2},
        odd_commits={"REWIND": 2, "SKIP": 1},
        broken_rules={"OTHER": 1},
        log_oddities={"TIME": 1},
        client_notes={"clients like 'app'": 2},
        shared_groups=("shared",),
        hole_count=2,
        quarantined_count=1,
    )
    assert found == expected
    assert json.dumps(found.as_json()) == json.dumps(expected.as_json())  # most first, by name: the order is a part
    assert found.headline == (
        "found: 1 group in rebalance storms; 1 group rebalanced more than 20 times on one day; "
        "members were thrown out in 2 rebalances (1 of them a guess); "
        "1 group whose partitions had no owner for a minute or longer; 41 records were given up; "
        "1 group whose offsets went back; 3 commit anomalies; "
        "1 broken rule of the coordinators; 1 oddity of the log; "
        "1 group id used by several applications; 2 holes in coverage; 1 row in quarantine"
    )


def test_each_line_names_the_command_that_shows_the_rows(warehouse: Warehouse) -> None:
    """As a shell takes it, with the options that make it ask the same tables."""
    write(warehouse, ROWS)
    reported = list(lines(findings(ClusterTables(warehouse, CLUSTER)), ["--warehouse", "/a b/it's"]))
    commands = [shlex.split(line[line.index("./spark-submit.sh") :]) for line in reported[1:]]
    assert len(commands) == 17
    assert all(
        command[0] == "./spark-submit.sh" and command[-2:] == ["--warehouse", "/a b/it's"] for command in commands
    )
    assert Counter(command[1] for command in commands) == {"audit": 4, "sql": 12, "report": 1}


def test_nothing_to_tell(warehouse: Warehouse) -> None:
    """Said, in one line: no line at all would leave open whether anybody looked."""
    assert list(lines(findings(ClusterTables(warehouse, CLUSTER)))) == ["found: nothing out of the ordinary"]


@pytest.mark.parametrize("name", HOSTILE[::7])
def test_a_hostile_name_stays_in_its_line(warehouse: Warehouse, name: str) -> None:
    """It reaches no command, and no control code reaches the terminal."""
    write(warehouse, {"gold.rebalances": [rebalance(name, 1, 1)], "gold.archived_records": [archived(name, 0, 0)]})
    reported = list(lines(findings(ClusterTables(warehouse, CLUSTER))))
    assert len(reported) == 4
    assert all(line.isprintable() for line in reported)
    assert [line.rpartition(": ")[2] for line in reported[1:]] == [
        "./spark-submit.sh audit --list rebalances",
        "./spark-submit.sh audit --list archived",
        "./spark-submit.sh report --output report.html",
    ]


def test_an_empty_name_is_seen() -> None:
    """A group id may be empty: a list of names has it all the same."""
    assert names_of(["", "b"]) == "'', b"
