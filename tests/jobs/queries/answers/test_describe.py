"""describe: the state at a moment and nothing else, as Kafka's tools print it, without Spark."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.app import main
from jobs.cli_enums import Tool, View
from jobs.console.output import FORMULA_STARTS, printable
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, NoSuchGroupError
from jobs.queries.answers.describe import write_descriptions
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.group_model import TopicPartition
from tests.answers import describe
from tests.conftest import PROJECT_ROOT
from tests.jobs.history import CLUSTER, at, at_ms, between, commit, event, write
from tests.jobs.hostile import HOSTILE, TEXTS

GENERATIONS, MEMBERS = "silver.group_generations", "silver.group_members"
ASSIGNMENTS, COMMITS = "silver.member_assignments", "silver.offset_commits"


def generation(group_id: str, first: int, last: int | None, group_type: str = "CLASSIC", **more: Any) -> dict[str, Any]:
    """A generation; empty, of a classic group unless said otherwise."""
    own = {"group_id": group_id, "group_type": group_type, "incarnation": 0, "generation": first, "state": "Empty"}
    return own | between(first, last) | more


def member(group_id: str, member_id: str, first: int, last: int | None, group_type: str, **more: Any) -> dict[str, Any]:
    """A member's interval."""
    own = {"group_id": group_id, "group_type": group_type, "member_id": member_id, "incarnation": 0}
    return own | {"client_id": f"client-{member_id}", "client_host": "/10.0.0.1"} | between(first, last) | more


def assignment(
    row: dict[str, Any], partition: int, kind: str = "CURRENT", topic: str = "t", **more: Any
) -> dict[str, Any]:
    """A partition of a member for all of its interval."""
    own = {name: row[name] for name in ("group_id", "group_type", "member_id", "incarnation")}
    interval = between(row["from_log_offset"], row["to_log_offset"])
    return own | interval | {"topic": topic, "partition": partition, "assignment": kind} | more


def text(warehouse: Warehouse, view: View, at_minute: float | None = None, **options: Any) -> str:
    """What describe prints."""
    output_format, verbose = options.pop("output_format", "table"), options.pop("verbose", False)
    moment = None if at_minute is None else at_ms(at_minute)
    out = io.StringIO()
    described = describe(warehouse, CLUSTER, view=view, at_ms=moment, **options)
    write_descriptions(described, output_format, verbose, out)
    return out.getvalue()


def test_intervals_are_half_open(warehouse: Warehouse) -> None:
    """A group is there from its first millisecond on, and not in the one in which it ends."""
    write(warehouse, {GENERATIONS: [generation("g", 1, 5)]})
    for minute, is_there in ((0.99, False), (1, True), (4.99, True), (5, False)):
        assert [g.group_id for g in SilverAt(ClusterTables(warehouse, CLUSTER), at_ms(minute)).groups()] == [
            "g"
        ] * is_there
    assert SilverAt(ClusterTables(warehouse, CLUSTER)).groups() == []
    assert SilverAt(ClusterTables(warehouse, "another"), at_ms(2)).groups() == []


def test_offsets_are_the_newest_that_took_effect(warehouse: Warehouse) -> None:
    """By their place in the log, transactions when their marker came, deleted ones not at all."""
    write(
        warehouse,
        {
            COMMITS: [
                commit("g", 3, 30),
                commit("g", 1, 10, leader_epoch=7),
                commit("g", 2, 20, applied_log_offset=5, applied_at=at(5)),
                commit("g", 4, 40, outcome="ABORTED", applied_log_offset=None, applied_at=None),
                commit("g", 6, None),
                commit("g", 1, 5, partition=1, log_offset=100, applied_log_offset=100),
                commit("h", 1, 9, log_offset=101),
            ]
        },
    )

    def offset(minute: float | None) -> int | None:
        moment = None if minute is None else at_ms(minute)
        found = SilverAt(ClusterTables(warehouse, CLUSTER), moment, ["g"]).committed_offsets().get("g", {})
        assert {place.partition for place in found} <= {0, 1}
        committed = found.get(TopicPartition("t", 0))
        return committed.offset if committed else None

    assert [offset(minute) for minute in (0.5, 1, 2, 3, 4, 5, 6, None)] == [None, 10, 10, 30, 30, 20, None, None]


def consumer_group() -> dict[str, list[dict[str, Any]]]:
    """A consumer group: two members, of which one comes over from the classic protocol."""
    first = member("g", "m1", 1, None, "CONSUMER", member_epoch=3, instance_id="i1", uses_classic_protocol=True)
    second = member("g", "m2", 2, None, "CONSUMER", member_epoch=3, uses_classic_protocol=False)
    return {
        GENERATIONS: [generation("g", 1, None, "CONSUMER", generation=3, assignment_epoch=3, state="Stable")],
        MEMBERS: [second, first],
        ASSIGNMENTS: [
            *(assignment(first, number) for number in (2, 0, 10)),
            assignment(first, 5, "REVOKING"),
            assignment(first, 0, "TARGET"),
            assignment(second, 1),
            assignment(second, 1, "TARGET", "a"),
        ],
        COMMITS: [commit("g", 2, 20, leader_epoch=4), commit("g", 3, 30, partition=7)],
        "silver.group_events": [
            event("g", 1, "GROUP_CREATED"),
            event("g", 2, "TARGET_COMPUTED", generation=2, event_index=1),
            event("g", 3, "MEMBER_RECONCILED", generation=2, member_id="m1", details=[("state", "STABLE")]),
            event(
                "g", 4, "MEMBER_RECONCILED", generation=2, member_id="m2", details=[("state", "UNREVOKED_PARTITIONS")]
            ),
            event("g", 5, "TARGET_COMPUTED", generation=3),
            event("g", 6, "MEMBER_RECONCILED", generation=3, member_id="m1", details=[("state", "STABLE")]),
            event("g", 7, "MEMBER_RECONCILED", generation=3, member_id="m2", details=[("state", "STABLE")]),
        ],
    }


def test_members_as_kafka_prints_them(warehouse: Warehouse) -> None:
    """Instance ids and UPGRADED where there are any; what must be given up counts as assigned; numbers ascend."""
    write(warehouse, consumer_group())
    assert text(warehouse, View.MEMBERS, verbose=True).splitlines() == [
        "",
        "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       #PARTITIONS     "
        "CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT    UPGRADED",
        "g               m1              i1                /10.0.0.1       client-m1       4               "
        "3               t:0,2,5,10           3               t:0                  false",
        "g               m2              -                 /10.0.0.1       client-m2       1               "
        "3               t:1                  3               a:1                  true",
    ]


def test_offsets_as_kafka_prints_them(warehouse: Warehouse) -> None:
    """Whoever has most partitions comes first; partitions that nobody has come last; commits of others are unknown."""
    write(warehouse, consumer_group())
    found = [line.split() for line in text(warehouse, View.OFFSETS, verbose=True).splitlines()[2:]]
    assert [(line[2], line[3], line[4], line[7]) for line in found] == [
        ("0", "4", "20", "m1"),
        ("2", "-", "-", "m1"),
        ("5", "-", "-", "m1"),
        ("10", "-", "-", "m1"),
        ("1", "-", "-", "m2"),
        ("7", "-", "30", "-"),
    ]


@pytest.mark.parametrize(
    ("minute", "state", "epochs"),
    [(1.5, "Assigning", ("3", "1")), (5.5, "Reconciling", ("3", "3")), (7.5, "Stable", ("3", "3"))],
)
def test_states_in_the_middle_of_a_interval(
    warehouse: Warehouse, minute: float, state: str, epochs: tuple[str, str]
) -> None:
    """What a row knows for its end alone comes from the events until then: ConsumerGroup.maybeUpdateGroupState."""
    write(warehouse, consumer_group())
    printed = text(warehouse, View.STATE, minute, verbose=True)
    assert printed.splitlines()[-1].split()[3:6] == [state, *epochs]
    assert ("Warning: Consumer group 'g' is rebalancing." in printed) == (state != "Stable")


def streams_group() -> dict[str, list[dict[str, Any]]]:
    """A streams group: two members of one process; a subtopology reads two topics, of which one has a partition."""
    first = member("g", "m1", 1, None, "STREAMS", member_epoch=3, process_id="p")
    second = member("g", "m2", 2, None, "STREAMS", member_epoch=2, process_id="p")
    topologies = [{"0": ["old"]}, {"0": ["in", "other"], "1": ["g-repartition"]}]
    sample = {"cluster_id": CLUSTER, "partition": 0, "sampled_at": at(5), "log_start_offset": 3, "end_offset": 25}
    counted = {"cluster_id": CLUSTER, "topic_id": "O", "topic": "other", "valid_from": at(0), "learned_from": "ADMIN"}
    return {
        GENERATIONS: [
            generation(
                "g", 1, None, "STREAMS", generation=3, assignment_epoch=3, topology_epoch=7, state="Reconciling"
            ),
            generation("none", 1, None, "STREAMS", generation=3, assignment_epoch=2),
        ],
        MEMBERS: [second, first],
        ASSIGNMENTS: [
            *(assignment(first, number, topic="0", task_type="ACTIVE") for number in (1, 0)),
            assignment(first, 0, topic="1", task_type="ACTIVE"),
            assignment(first, 1, "REVOKING", "1", task_type="ACTIVE"),
            assignment(first, 1, topic="1", task_type="WARMUP"),
            assignment(second, 0, topic="1", task_type="STANDBY"),
            assignment(second, 1, "TARGET", "1", task_type="ACTIVE"),
            assignment(second, 0, "TARGET", "1", task_type="STANDBY"),
        ],
        COMMITS: [commit("g", 2, 20, topic="in", leader_epoch=4), commit("none", 3, 30)],
        "silver.group_events": [
            event("g", minute, "TOPOLOGY_CHANGED", details=[("subtopologies", json.dumps(topology))])
            for minute, topology in enumerate(topologies, 1)
        ],
        "silver.partition_counts": [counted | {"partition_count": 1}],
        "bronze.end_offsets": [sample | {"topic": topic} for topic in ("in", "g-repartition")],
    }


def test_streams_groups_as_kafka_prints_them(warehouse: Warehouse) -> None:
    """Members with process and tasks, to which --verbose adds targets; offsets by topic that an active task reads, all
    of whose records are to come where none is committed (StreamsGroupCommand)."""
    write(warehouse, streams_group())
    assert text(warehouse, View.MEMBERS, group_ids=["g"]).splitlines() == [
        "",
        "GROUP           MEMBER          PROCESS         CLIENT-ID       ASSIGNMENTS",
        "g               m1              p               client-m1       ACTIVE: 0:[0,1]; 1:[0]; WARMUP: 1:[1];",
        "g               m2              p               client-m2       STANDBY: 1:[0];",
    ]
    assert text(warehouse, View.MEMBERS, group_ids=["g"], verbose=True).splitlines()[1::2] == [
        "GROUP           TARGET-ASSIGNMENT-EPOCH   TOPOLOGY-EPOCH MEMBER          MEMBER-PROTOCOL MEMBER-EPOCH    "
        "PROCESS         CLIENT-ID       ASSIGNMENTS",
        "g               3                         7              m2              streams         2               "
        "p               client-m2       STANDBY: 1:[0]; TARGET-ACTIVE: 1:[1]; TARGET-STANDBY: 1:[0];",
    ]
    assert text(warehouse, View.OFFSETS, 5, group_ids=["g"]).splitlines()[1:] == [
        "GROUP           TOPIC           PARTITION  OFFSET-LAG",
        "g               g-repartition   0          22",
        "g               in              0          5",
        "g               in              1          -",
        "g               other           0          -",
    ]
    verbose = [line.split() for line in text(warehouse, View.OFFSETS, 5, group_ids=["g"], verbose=True).splitlines()]
    assert verbose[1:4] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"],
        ["g", "g-repartition", "0", "-", "-", "25", "22"],
        ["g", "in", "0", "20", "4", "25", "5"],
    ]
    (_, offsets, *_) = text(warehouse, View.OFFSETS, 5, group_ids=["g"], output_format="json").splitlines()
    assert json.loads(offsets)["CURRENT-OFFSET"] == 20
    topics = {line.split()[1] for line in text(warehouse, View.OFFSETS, 1.5, group_ids=["g"]).splitlines()[2:]}
    assert topics == {"old"}


def test_an_empty_streams_group_has_the_offsets_that_it_left(warehouse: Warehouse) -> None:
    """Nobody has tasks; Kafka's tool prints the remark alone."""
    write(warehouse, streams_group())
    assert text(warehouse, View.OFFSETS, group_ids=["none"]).splitlines() == [
        "",
        "Error: Streams group 'none' has no active members.",
        "",
        "GROUP           TOPIC           PARTITION  OFFSET-LAG",
        "none            t               0          -",
    ]
    assert "GROUP" not in text(warehouse, View.MEMBERS, group_ids=["none"])


def share_group() -> dict[str, list[dict[str, Any]]]:
    """A share group with a start offset, one not set yet, one deleted."""

    def state(partition: int, minute: int, **more: Any) -> dict[str, Any]:
        own = {"group_id": "s", "topic_id": "T", "topic": "t", "partition": partition, "log_offset": minute}
        interval = {name: value for name, value in between(minute, None).items() if name != "from_log_offset"}
        return own | interval | {"record_kind": "UPDATE", "leader_epoch": 2, "delivery_complete_count": 1} | more

    return {
        GENERATIONS: [
            generation("s", 1, None, "SHARE", assignment_epoch=1),
            generation("none", 1, None, "SHARE", assignment_epoch=1),
        ],
        "silver.share_partition_states": [
            state(0, 1, start_offset=5),
            state(1, 1, start_offset=-1),
            state(2, 1, start_offset=None, record_kind="TOMBSTONE"),
        ],
    }


def test_share_groups_as_kafka_prints_them(warehouse: Warehouse) -> None:
    """What is not set is unknown, what was deleted is not there, and a group without any of it says so."""
    write(warehouse, share_group())
    assert [line.split() for line in text(warehouse, View.OFFSETS, verbose=True).splitlines() if line] == [
        ["Share", "group", "'none'", "has", "no", "offset", "information."],
        ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"],
        ["s", "t", "0", "2", "5", "-"],
        ["s", "t", "1", "-", "-", "-"],
    ]
    assert text(warehouse, View.OFFSETS, tool=Tool.CONSUMER) == ""


@pytest.mark.parametrize(
    ("sampled_minute", "end_offset", "shown"),
    [
        (2, 25, ("25", "5")),
        (2, 20, ("20", "0")),
        (2, 19, ("19", "-1")),
        (0, 19, ("-", "-")),
        (0, 25, ("25", "5")),
        (4, 25, ("-", "-")),
    ],
)
def test_lag_is_reported_only_by_a_sample_of_that_time(
    warehouse: Warehouse, sampled_minute: int, end_offset: int, shown: tuple[str, str]
) -> None:
    """A sample from later than asked for says nothing, nor does an end below an offset that was committed after it. A
    commit beyond the end has a lag below 0, as in Kafka's tool."""
    sample = {"cluster_id": CLUSTER, "topic": "t", "partition": 0, "sampled_at": at(sampled_minute)}
    write(
        warehouse,
        {
            GENERATIONS: [generation("g", 1, None)],
            COMMITS: [commit("g", 1, 20)],
            "bronze.end_offsets": [sample | {"log_start_offset": 0, "end_offset": end_offset}],
        },
    )
    assert tuple(text(warehouse, View.OFFSETS, 3).splitlines()[-1].split()[4:6]) == shown
    assert tuple(text(warehouse, View.OFFSETS, 3 + 60).splitlines()[-1].split()[4:6]) == ("-", "-")


@pytest.mark.parametrize(("age_max_ms", "shown"), [("60000", ["25", "5"]), ("59999", ["-", "-"])])
def test_how_old_a_sample_may_be_is_a_setting(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    age_max_ms: str,
    shown: list[str],
) -> None:
    """The log's end was sampled a minute before; why there is no lag is said."""
    sample = {"cluster_id": CLUSTER, "topic": "t", "partition": 0, "sampled_at": at(2), "log_start_offset": 0}
    rows = {GENERATIONS: [generation("g", 1, None)], COMMITS: [commit("g", 1, 20)]}
    write(warehouse, {**rows, "bronze.end_offsets": [sample | {"end_offset": 25}]})
    monkeypatch.setenv("GROUPLEDGER_INFERENCE_LAG_SAMPLE_AGE_MAX_MS", age_max_ms)
    place = ["--warehouse", warehouse.root, "--cluster-id", CLUSTER]
    assert main(["describe", "--at", str(at_ms(3)), *place]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split()[4:6] == shown
    assert ("LAG: not in any log" in err) == (shown[1] == "-")


def test_groups_that_are_not_there_are_an_error(warehouse: Warehouse) -> None:
    """Not an empty answer: a name may be misspelt. Connect's groups are shown only if asked for by name."""
    write(warehouse, {GENERATIONS: [generation("g", 1, 5), generation("connect", 1, None, protocol_type="connect")]})
    with pytest.raises(ArgumentError, match="there is no group 'h'"):
        text(warehouse, View.STATE, 6, group_ids=["g", "h"])
    with pytest.raises(NoSuchGroupError, match="at that time: g; g is gone since 2026-01-01T00:05:00"):
        text(warehouse, View.STATE, 6, group_ids=["g"])
    with pytest.raises(NoSuchGroupError, match="at that time: g; g begins at 2026-01-01T00:01:00"):
        text(warehouse, View.STATE, 0, group_ids=["g"])
    assert text(warehouse, View.STATE, 6) == ""
    assert "connect" in text(warehouse, View.STATE, 6, group_ids=["connect"])


@pytest.mark.nights
def test_hostile_ids_match_themselves_alone(warehouse: Warehouse) -> None:
    """Of 200 ids each gives its own group in every format, in CSV nothing that a spreadsheet would calculate."""
    write(
        warehouse,
        {
            GENERATIONS: [generation(group_id, 1, None) for group_id in HOSTILE],
            COMMITS: [commit(group_id, number, number) for number, group_id in enumerate(HOSTILE)],
        },
    )
    for number, group_id in enumerate(TEXTS):
        described = describe(warehouse, CLUSTER, view=View.OFFSETS, group_ids=[group_id])
        assert [(row["GROUP"], row["CURRENT-OFFSET"]) for item in described for row in item.rows] == [
            (group_id, number)
        ]
        reported = {name: io.StringIO(newline="") for name in ("table", "json", "csv")}
        for name, out in reported.items():
            write_descriptions(described, name, False, out)
        assert json.loads(reported["json"].getvalue())["GROUP"] == group_id
        (cells,) = list(csv.DictReader(io.StringIO(reported["csv"].getvalue(), newline="")))
        assert cells["GROUP"] in (printable(group_id), f"'{printable(group_id)}")
        assert cells["GROUP"][:1] not in FORMULA_STARTS
        assert reported["table"].getvalue().replace("\n", "").isprintable()
    whole = describe(warehouse, CLUSTER, view=View.OFFSETS)
    assert sorted(item.group.group_id for item in whole) == sorted(HOSTILE)


def test_neither_spark_nor_java_is_needed(warehouse: Warehouse, tmp_path: Path) -> None:
    """The command answers where there is no Java; wrong arguments have exit code 2, and so have unknown groups."""
    write(warehouse, {GENERATIONS: [generation("g", 1, None)]})
    words = ["describe", "--warehouse", warehouse.root, "--cluster-id", CLUSTER]
    done = subprocess.run(
        [sys.executable, "-m", "jobs", *words, "--state", "--group", "g", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT_ROOT,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "no-java"), "PATH": str(tmp_path)},
    )
    assert (done.returncode, json.loads(done.stdout)["STATE"]) == (0, "Empty")
    for wrong in (["--group", "h"], ["--state", "--members"], ["--at", "soon"]):
        assert main([*words, *wrong]) == 2
