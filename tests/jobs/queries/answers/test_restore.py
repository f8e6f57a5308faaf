"""restore: the offsets of a moment in Kafka's own format, what would change, and what is better left alone."""

import csv
import io
import shlex
from pathlib import Path
from typing import Any

import pytest

from jobs.console.output import time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, JobError, NoSuchGroupError
from jobs.queries.answers.restore import Change, Restored, reset_csv, restoration, run_restore
from tests.answers import printed
from tests.jobs.history import CLUSTER, at, at_ms, between, commit, write
from tests.jobs.hostile import HOSTILE, TEXTS

COMMITS, GENERATIONS = "silver.offset_commits", "silver.group_generations"


def group(group_id: str, group_type: str = "CLASSIC") -> dict[str, Any]:
    """An empty group."""
    own = {"group_id": group_id, "group_type": group_type, "incarnation": 0, "generation": 1, "state": "Empty"}
    return own | between(1, None)


def moved(*partitions: tuple[int, int | None, int | None]) -> list[dict[str, Any]]:
    """Commits of (partition, offset at minute 1, offset at minute 5); a None comes as a deletion, or not at all."""
    first = [
        commit("g", 1, then, partition=number, log_offset=number) for number, then, _ in partitions if then is not None
    ]
    later = [
        commit("g", 5, now, partition=number, log_offset=100 + number, applied_log_offset=100 + number)
        for number, then, now in partitions
        if now != then
    ]
    return first + later


def test_what_would_change(warehouse: Warehouse) -> None:
    """Against the newest offsets: back, forward, the same, new; what was not there then is not in the file."""
    write(warehouse, {COMMITS: moved((0, 10, 30), (1, 30, 10), (2, 5, 5), (3, 7, None), (4, None, 9))})
    plan = restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2))
    assert [(row.partition, row.current_offset, row.offset, row.change) for row in plan.rows] == [
        (0, 30, 10, Change.BACK),
        (1, 10, 30, Change.FORWARD),
        (2, 5, 5, Change.SAME),
        (3, None, 7, Change.NEW),
        (4, 9, None, Change.LEFT),
    ]
    assert reset_csv(plan.rows) == "t,0,10\nt,1,30\nt,2,5\nt,3,7\n"


@pytest.mark.parametrize(
    ("topic_id", "deleted", "change"),
    [
        ("old", ("old", 3), Change.TOPIC_DELETED),
        (None, ("old", 3), Change.TOPIC_DELETED),
        ("old", ("older", 3), Change.BACK),
        (None, ("old", 0), Change.BACK),
    ],
)
def test_offsets_of_a_deleted_topic_stay_out(
    warehouse: Warehouse, topic_id: str | None, deleted: tuple[str, int], change: Change
) -> None:
    """A topic of the same name made since holds other records; one deleted before the commit does not matter."""
    first, second = moved((0, 10, 30))
    topic = {
        "cluster_id": CLUSTER,
        "topic_id": deleted[0],
        "topic": "t",
        "valid_from": at(0),
        "valid_to": at(deleted[1]),
    }
    write(warehouse, {COMMITS: [first | {"topic_id": topic_id}, second], "silver.topics": [topic]})
    (row,) = restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2)).rows
    assert row.change is change
    assert (row.offset is None) == (change is Change.TOPIC_DELETED)


def topic(name: str, deleted: float | None, learned_from: str = "CLUSTER_METADATA") -> dict[str, Any]:
    """A row of silver.topics."""
    valid_to = None if deleted is None else at(deleted)
    row = {"cluster_id": CLUSTER, "topic_id": f"id-{name}", "topic": name, "valid_from": at(0), "valid_to": valid_to}
    return row | {"learned_from": learned_from}


def test_partitions_that_were_added_keep_their_offsets(warehouse: Warehouse) -> None:
    """There were two then, there are four now: the file names two, and the table tells of the others."""
    write(warehouse, {COMMITS: moved((0, 10, 30), (1, 11, 31), (2, None, 7), (3, None, 0))})
    plan = restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2))
    assert [row.change for row in plan.rows] == [Change.BACK, Change.BACK, Change.LEFT, Change.LEFT]
    assert reset_csv(plan.rows) == "t,0,10\nt,1,11\n"


def test_a_topic_deleted_for_good_stays_out_alone(warehouse: Warehouse, tmp_path: Path) -> None:
    """The broker took the offsets with the topic; another topic of the group, and another group, are restored."""
    rows = [
        commit("g", 1, 10, topic="gone", log_offset=1),
        commit("g", 4, None, topic="gone", log_offset=2, applied_log_offset=2),
        commit("g", 1, 20, topic="t", log_offset=3),
        commit("g", 5, 50, topic="t", log_offset=4, applied_log_offset=4),
        commit("only", 1, 10, topic="gone", log_offset=5),
        commit("only", 4, None, topic="gone", log_offset=6, applied_log_offset=6),
    ]
    write(warehouse, {COMMITS: rows, "silver.topics": [topic("gone", 4), topic("t", None)]})
    path = tmp_path / "offsets.csv"

    def restore(group_ids: list[str], path: Path) -> list[str]:
        of: dict[str, Any] = {"group_ids": group_ids, "at_ms": at_ms(2), "output": str(path)}
        return list(printed(run_restore, ClusterTables(warehouse, CLUSTER), **of)[1])

    (remark,) = restore(["g", "only"], path)
    assert path.read_text() == "t,0,20\n"
    assert "--group g " in remark and "only" not in remark
    with pytest.raises(JobError, match="nothing to restore"):
        restore(["only"], tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize(
    ("topics", "is_doubtful"),
    [
        ([], True),
        ([topic("t", None, "OFFSET_COMMIT")], True),
        ([topic("t", None)], False),
        ([topic("t", None, "ADMIN")], False),
    ],
)
def test_offsets_deleted_for_a_reason_that_nothing_tells(
    warehouse: Warehouse, topics: list[dict[str, Any]], is_doubtful: bool
) -> None:
    """Without the metadata log they may have gone with their topic: it is said, since Kafka's tool would refuse all."""
    write(warehouse, {COMMITS: moved((0, 10, None), (1, 5, 6)), "silver.topics": topics})
    assert restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2)).doubtful == (
        ("t",) if is_doubtful else ()
    )
    _, remarks = printed(run_restore, ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2))
    assert any("offsets of t were deleted since" in remark for remark in remarks) == is_doubtful


def test_groups_without_offsets_are_an_error(warehouse: Warehouse) -> None:
    """Not an empty file, with which one would restore nothing and believe otherwise; it says when there are some."""
    write(warehouse, {COMMITS: moved((0, 10, 30)), GENERATIONS: [group("g"), group("s", "SHARE")]})
    with pytest.raises(
        NoSuchGroupError, match=f"g had no committed offsets then; it has some since {time_text(at_ms(1))}"
    ):
        restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(0.5))
    with pytest.raises(ArgumentError, match="there is no group 'h'"):
        restoration(ClusterTables(warehouse, CLUSTER), group_ids=["g", "h"], at_ms=at_ms(2))
    with pytest.raises(ArgumentError, match=r"is a share group, .*: history --group shows"):
        restoration(ClusterTables(warehouse, CLUSTER), group_ids=["s"], at_ms=at_ms(2))


def test_the_time_of_a_change_has_the_offsets_after_it(warehouse: Warehouse) -> None:
    """Who gives the time that a list shows gets the one with the offsets before, also where there are none after."""
    write(warehouse, {COMMITS: moved((0, 30, 10), (1, 5, 5)), GENERATIONS: [group("g")]})
    remark = f"offsets of g moved at that very time; those before: --at {time_text(at_ms(5) - 1)}"
    tables = ClusterTables(warehouse, CLUSTER)
    for moment, is_said in ((at_ms(5) - 1, False), (at_ms(5), True), (at_ms(5) + 1, False)):
        _, remarks = printed(run_restore, tables, group_ids=["g"], at_ms=moment, output=None)
        assert (remark in remarks) is is_said
    write(warehouse, {COMMITS: [it | {"group_id": "h"} for it in moved((0, 30, None))]})
    until = f"h had no committed offsets then; it had some until {time_text(at_ms(5) - 1)}, for --at"
    with pytest.raises(NoSuchGroupError, match=until):
        restoration(tables, group_ids=["h"], at_ms=at_ms(5))


def test_a_file_is_never_overwritten(warehouse: Warehouse, tmp_path: Path) -> None:
    """Without --output nothing is written; a second run with the same name fails and leaves the file as it was."""
    member = {"group_id": "g", "group_type": "CLASSIC", "member_id": "m", "incarnation": 0} | between(1, None)
    write(
        warehouse,
        {COMMITS: moved((0, 10, 30)), GENERATIONS: [group("g")], "silver.group_members": [member]},
    )
    path = tmp_path / "it's a file.csv"

    def run(minute: float, output: str | None) -> list[str]:
        of: dict[str, Any] = {"group_ids": ["g"], "at_ms": at_ms(minute), "output": output}
        text, remarks = printed(run_restore, ClusterTables(warehouse, CLUSTER), "table", **of)
        assert text.splitlines()[0].split()[:2] == ["GROUP", "TOPIC"]
        return list(remarks)

    busy, dry = run(2, None)
    assert "has members" in busy
    assert "dry run" in dry
    assert not path.exists()
    tool = "kafka-consumer-groups --bootstrap-server HOST:PORT --group g --reset-offsets --from-file"
    assert run(2, str(path))[-1] == f"restore with: {tool} {shlex.quote(str(path))} --execute"
    assert path.read_text() == "t,0,10\n"
    with pytest.raises(JobError, match="is there already"):
        run(6, str(path))
    assert path.read_text() == "t,0,10\n"
    with pytest.raises(JobError, match="cannot write"):
        run(2, str(tmp_path / "none" / "x.csv"))


@pytest.mark.parametrize(("group_type", "now", "is_said"), [("STREAMS", 30, 1), ("STREAMS", 5, 0), ("CLASSIC", 30, 0)])
def test_the_state_of_a_streams_group_does_not_go_back(
    warehouse: Warehouse, group_type: str, now: int, is_said: int
) -> None:
    """It takes in again what the group reads again."""
    write(warehouse, {COMMITS: moved((0, 10, now)), GENERATIONS: [group("g", group_type)]})
    _, remarks = printed(run_restore, ClusterTables(warehouse, CLUSTER), group_ids=["g"], at_ms=at_ms(2))
    assert [remark.startswith("g is a streams group: its state stores") for remark in remarks].count(True) == is_said


@pytest.mark.nights
def test_hostile_names_come_back_as_they_are(warehouse: Warehouse) -> None:
    """Of 200 groups each restores its own offset alone, and all together the file names each as it is."""
    rows = [commit(name, 1, number, topic=name, log_offset=number) for number, name in enumerate(HOSTILE)]
    write(warehouse, {COMMITS: rows})
    for number, name in enumerate(TEXTS):
        plan = restoration(ClusterTables(warehouse, CLUSTER), group_ids=[name], at_ms=at_ms(2))
        assert [(row.group_id, row.topic, row.offset) for row in plan.rows] == [(name, name, number)]
        assert list(csv.reader(io.StringIO(reset_csv(plan.rows), newline=""))) == [[name, "0", str(number)]]
    whole = reset_csv(restoration(ClusterTables(warehouse, CLUSTER), group_ids=HOSTILE, at_ms=at_ms(2)).rows)
    assert sorted(csv.reader(io.StringIO(whole, newline=""))) == sorted(
        [name, name, "0", str(number)] for number, name in enumerate(HOSTILE)
    )


def test_several_groups_have_their_names_in_front() -> None:
    """As Kafka's --export writes them."""
    rows = [Restored(name, "t", 0, None, 5, Change.NEW) for name in ("g", "h")]
    assert reset_csv(rows) == "g,t,0,5\nh,t,0,5\n"
    assert reset_csv(rows[:1]) == "t,0,5\n"
