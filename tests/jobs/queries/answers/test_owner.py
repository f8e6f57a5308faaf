"""owner: who owned a partition at a moment, whatever the names."""

import csv
import io
import json
from typing import Any

import pytest

from jobs.console.output import printable, time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError
from jobs.queries.answers.owner import run_owner
from tests.answers import owners_at
from tests.jobs.history import CLUSTER, at_ms, between, event, write
from tests.jobs.hostile import HOSTILE, TEXTS

ASSIGNMENTS, MEMBERS = "silver.member_assignments", "silver.group_members"


def owned(group_id: str, member_id: str, first: int, last: int | None, **more: Any) -> dict[str, Any]:
    """An interval in which a member of a classic group had t-0."""
    own = {"group_id": group_id, "group_type": "CLASSIC", "member_id": member_id, "topic": "t", "partition": 0}
    generation = {"incarnation": 0, "from_generation": first, "to_generation": first, "assignment": "CURRENT"}
    return own | generation | between(first, last) | more


def member(row: dict[str, Any]) -> dict[str, Any]:
    """Who holds it."""
    names = ("group_id", "group_type", "member_id", "incarnation", "from_generation", "to_generation")
    own = {name: row[name] for name in names} | between(row["from_log_offset"], row["to_log_offset"])
    return own | {"client_id": "pod", "client_host": f"/{row['member_id']}", "instance_id": None}


def test_each_moment_has_its_owner(warehouse: Warehouse) -> None:
    """From the first millisecond until the last one; nobody in between; every group that reads the topic."""
    intervals = [
        owned("g", "a", 1, 3),
        owned("g", "b", 4, None),
        owned("h", "c", 2, 5),
        owned("g", "x", 1, 9, partition=1),
    ]
    write(warehouse, {ASSIGNMENTS: intervals, MEMBERS: [member(row) for row in intervals]})

    def owners(minute: float | None) -> list[tuple[str, str, str | None]]:
        moment = None if minute is None else at_ms(minute)
        found = owners_at(warehouse, CLUSTER, topic="t", partition=0, at_ms=moment)
        return [(owner.group_id, owner.member_id, owner.client_host) for owner in found]

    assert owners(0.5) == []
    assert owners(1) == [("g", "a", "/a")]
    assert owners(2.99) == [("g", "a", "/a"), ("h", "c", "/c")]
    assert owners(3) == [("h", "c", "/c")]
    assert owners(4) == [("g", "b", "/b"), ("h", "c", "/c")]
    assert owners(None) == [("g", "b", "/b")]
    assert owners_at(warehouse, "another", topic="t", partition=0) == []


def test_a_task_represents_partitions_of_what_it_reads(warehouse: Warehouse) -> None:
    """Streams: the subtopology's topics at that time, by active tasks alone. Share groups have no owners."""
    task = {"group_type": "STREAMS", "topic": "sub"}
    intervals = [
        owned("s", "m", 2, None, task_type="ACTIVE", **task),
        owned("s", "n", 2, None, task_type="STANDBY", **task),
        owned("share", "m", 2, None, group_type="SHARE"),
    ]
    topology = event("s", 1, "TOPOLOGY_CHANGED", details=[("subtopologies", json.dumps({"sub": ["t", "u"]}))])
    write(warehouse, {ASSIGNMENTS: intervals, MEMBERS: [member(intervals[0])], "silver.group_events": [topology]})
    for topic in ("t", "u"):
        (owner,) = owners_at(warehouse, CLUSTER, topic=topic, partition=0)
        assert (owner.group_id, owner.member_id, owner.topic) == ("s", "m", topic)
    assert owners_at(warehouse, CLUSTER, topic="sub", partition=0) == []


@pytest.mark.nights
def test_hostile_topics_match_themselves_alone(warehouse: Warehouse) -> None:
    """Among 200 names of topics, groups and members each topic has its own owner, by a name that has no effect."""
    intervals = [owned(name, name, 1, None, topic=name, log_partition=1) for name in HOSTILE]
    write(warehouse, {ASSIGNMENTS: intervals, MEMBERS: [member(row) for row in intervals]})
    for name in TEXTS:
        reported = {kind: io.StringIO(newline="") for kind in ("json", "csv")}
        for kind, out in reported.items():
            remarks = run_owner(
                ClusterTables(warehouse, CLUSTER), topic=name, partition=0, at_ms=None, output_format=kind, out=out
            )
            assert remarks == []
        answer = json.loads(reported["json"].getvalue())
        assert (answer["GROUP"], answer["TOPIC"], answer["CONSUMER-ID"]) == (name, name, name)
        (cells,) = list(csv.DictReader(io.StringIO(reported["csv"].getvalue(), newline="")))
        assert cells["TOPIC"] in (printable(name), printable(f"'{name}"))
        assert cells["TOPIC"][0] not in "=+-@\t"


def test_nobody_then_is_not_nobody_ever(warehouse: Warehouse) -> None:
    """A topic of another name would look like one that had no owner."""
    interval, later = owned("g", "a", 1, 3), owned("h", "b", 1, 3) | {"partition": 5}
    again = owned("g", "b", 4, 5)
    commit = {"cluster_id": CLUSTER, "group_id": "g", "topic": "t", "partition": 1, "log_partition": 0, "log_offset": 9}
    written = {
        ASSIGNMENTS: [interval, later, again],
        MEMBERS: [member(interval), member(again)],
        "silver.offset_commits": [commit],
    }
    write(warehouse, written)
    for topic, partition, remark in (
        (
            "t",
            0,
            "nobody owned it then, as far as the log tells; last pod on /a in group g until {three}; "
            "next pod on /b in group g from {four} on",
        ),
        ("t", 1, "no group was ever assigned partition 1 of topic t, as far as the log tells"),
    ):
        remarks = run_owner(
            ClusterTables(warehouse, CLUSTER), topic=topic, partition=partition, at_ms=at_ms(3), output_format="table"
        )
        assert remarks == [remark.format(three=time_text(at_ms(3)), four=time_text(at_ms(4)))]
    # where no log has their number, any partition may be there
    remarks = run_owner(ClusterTables(warehouse, CLUSTER), topic="t", partition=99, at_ms=None, output_format="table")
    assert remarks == ["no group was ever assigned partition 99 of topic t, as far as the log tells"]
    remarks = run_owner(ClusterTables(warehouse, CLUSTER), topic="t", partition=0, at_ms=None, output_format="table")
    assert remarks == [
        f"nobody owned it at the end, as far as the log tells; last pod on /b in group g until {time_text(at_ms(5))}"
    ]
    counts = {
        "cluster_id": CLUSTER,
        "topic_id": "T",
        "topic": "t",
        "partition_count": 7,
        "learned_from": "CLUSTER_METADATA",
    }
    write(warehouse, {"silver.partition_counts": [counts]})
    with pytest.raises(ArgumentError, match=r"^topic 't' has no partition 7: it has 0 to 6$"):
        run_owner(ClusterTables(warehouse, CLUSTER), topic="t", partition=7, at_ms=None, output_format="table")
    with pytest.raises(ArgumentError, match=r"there is no topic 'T\\x1b'"):
        run_owner(ClusterTables(warehouse, CLUSTER), topic="T\x1b", partition=0, at_ms=at_ms(3), output_format="table")


def test_share_groups_are_named_with_their_members_at_the_time(warehouse: Warehouse) -> None:
    """Several members may read a share partition: it has no single owner, and is not unassigned."""
    share = {"group_type": "SHARE", "topic_id": "T", "topic": "t"}
    rows = [owned("jobs", "a", 1, 3, **share), owned("jobs", "b", 2, None, **share)]
    target = owned("jobs", "c", 2, None, **share) | {"assignment": "TARGET"}
    write(warehouse, {ASSIGNMENTS: [*rows, target], MEMBERS: [member(row) for row in rows]})

    def remarks(minute: float) -> list[str]:
        return run_owner(
            ClusterTables(warehouse, CLUSTER), topic="t", partition=0, at_ms=at_ms(minute), output_format="table"
        )

    place, end = "partition 0 of topic t", "a share partition has no single owner"
    assert remarks(0.5) == [f"share group jobs was assigned {place}, but no member of it at that time"]
    assert remarks(1) == [f"share group jobs reads {place} with a (client pod): {end}"]
    assert remarks(2) == [f"share group jobs reads {place} with a (client pod), b (client pod): {end}"]
    assert remarks(3) == [f"share group jobs reads {place} with b (client pod): {end}"]


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1767225600007, "2026-01-01T00:00:00.007Z"), (None, None)],
)
def test_times_are_reported_in_utc(timestamp_ms: int | None, text: str | None) -> None:
    """To the millisecond."""
    assert time_text(timestamp_ms) == text
