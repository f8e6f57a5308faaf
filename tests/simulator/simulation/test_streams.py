"""Kafka Streams applications in scenarios: members of the streams protocol, their tasks and their internal topics."""

import itertools
from typing import Any, Final

import pytest

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.streams.messages import StatusCode
from simulator.simulation.clients.streams import StreamsMember
from simulator.simulation.scenario import GroupSpec
from tests.simulator.simulation.simulations import Run, run_file, run_text

GROUPS: Final = ("router", "counter", "exactly-once")
APPLICATION: Final = """
[[group]]
name = "app"
protocol = "streams"
topics = ["t"]
members = 2
"""


@pytest.fixture(scope="module")
def run() -> Run:
    """The shipped scenario."""
    return run_file("streams")


def group_of(run: Run, group: str) -> dict[str, Any]:
    """A group as its coordinator knew it in the end."""
    (line,) = run.lines("end", group=group)
    found: dict[str, Any] = line["state"]["group"]
    return found


def tasks(members: dict[str, Any], kind: str) -> list[tuple[str, str, int]]:
    """(member id, subtopology, partition) of all tasks of a kind."""
    return [
        (member_id, subtopology, int(number))
        for member_id, member in members.items()
        for subtopology, numbers in member[f"{kind}Assigned"].items()
        for number in numbers
    ]


@pytest.mark.parametrize("group", GROUPS)
def test_every_task_has_one_member(run: Run, group: str) -> None:
    """In the end each application is stable: its clients own what the tasks read, each partition once."""
    found = group_of(run, group)
    assert found["state"] == "Stable"
    active = [(subtopology, number) for _, subtopology, number in tasks(found["members"], "active")]
    assert len(active) == len(set(active))
    sources = run.simulation.scenario.groups[GROUPS.index(group)].topics
    counts = {topic.name: topic.partitions for topic in run.simulation.scenario.topics}
    wanted = {(topic, number) for topic in sources for number in range(counts[topic])}
    if group == "counter":
        wanted |= {("counter-counts-repartition", number) for number in range(4)}
    owned = [(line["topic"], line["partition"]) for line in run.lines("owners", group=group) if line["to_ms"] is None]
    assert sorted(owned) == sorted(wanted)


def test_standby_tasks_are_on_another_process(run: Run) -> None:
    """num.standby.replicas of the group: one copy of each stateful task, never where the task itself is; members of one
    process have one process id, before and after a deployment."""
    members = group_of(run, "counter")["members"]
    process_of = {member_id: member["processId"] for member_id, member in members.items()}
    by_client = {member["clientId"]: member["processId"] for member in members.values()}
    assert by_client["counter-0"] == by_client["counter-1"] != by_client["counter-2"] == by_client["counter-3"]
    active = {(subtopology, number): process_of[it] for it, subtopology, number in tasks(members, "active")}
    standby = {(subtopology, number): process_of[it] for it, subtopology, number in tasks(members, "standby")}
    assert standby.keys() == {("1", number) for number in range(4)}
    assert all(process != active[task] for task, process in standby.items())
    assert group_of(run, "counter")["lastAssignmentConfigs"] == {"num.standby.replicas": "1"}
    assert {member["clientId"]: member["rackId"] for member in members.values()} == {
        "counter-0": "north",
        "counter-1": "south",
        "counter-2": "north",
        "counter-3": "south",
    }


def test_internal_topics_are_made_for_the_first_member(run: Run) -> None:
    """The broker makes what the heartbeat's answer lacks, once; until then nobody has tasks."""
    made = {line["topic"]: line["partition_count"] for line in run.truth["topics"]}
    assert made == {
        "orders": 4,
        "refunds": 2,
        "counter-counts-repartition": 4,
        "counter-counts-changelog": 4,
        "exactly-once-counts-changelog": 2,
    }
    names = [line["topic"] for line in run.truth["topics"]]
    assert len(names) == len(set(names))
    made_ms = max(line["ts_ms"] for line in run.truth["topics"])
    first_ms = min(line["ts_ms"] for line in run.lines("tasks", group="counter") if line["active"])
    assert first_ms > made_ms
    assert run.causes("counter")[:2] == [["MEMBER_JOINED"], ["TOPIC_CHANGED"]]
    assert run.simulation.topics.end_offset(TopicPartition("counter-counts-repartition", 0), run.summary.to_ms) > 0


def test_members_join_leave_and_crash(run: Run) -> None:
    """A crash is found at the session time-out; a deployment takes each thread out and in."""
    assert run.causes("router")[3:] == [["SESSION_EXPIRED"], ["MEMBER_JOINED"]]
    assert run.causes("counter")[5:] == [["MEMBER_LEFT"], ["MEMBER_JOINED"]] * 4


def test_a_thread_that_does_not_poll_leaves_and_comes_back() -> None:
    """At max.poll.interval.ms, with the epoch of who leaves; its tasks go to the other one meanwhile."""
    run = run_text(
        APPLICATION
        + 'max_poll_interval = "10s"\n[[fault]]\nkind = "slow_poll"\nat = "1m"\ngroup = "app"\nmember = 0\n'
        + 'duration = "30s"\n'
    )
    assert run.causes("app")[-2:] == [["MEMBER_LEFT"], ["MEMBER_JOINED"]]
    lost = [line for line in run.lines("owners", client_id="app-0") if line["ended_by"] == "LOST"]
    assert lost
    others = [line["from_ms"] for line in run.lines("owners", client_id="app-1")]
    assert any(line["from_ms"] < other_ms < line["to_ms"] for line in lost for other_ms in others)


def test_what_is_left_out_changes_nothing() -> None:
    """Logs and truth are the same whether heartbeats of quiet applications are sent or left out."""
    skipped, sent = (run_file("streams", minutes=4, skips_heartbeats=skips) for skips in (True, False))
    assert skipped.summary.skipped_heartbeat_count > 0 == sent.summary.skipped_heartbeat_count
    assert skipped.log_bytes() == sent.log_bytes()
    assert skipped.truth == sent.truth


def test_static_members_come_back_on_44() -> None:
    """Since Kafka 4.4 a static member that is stopped and started has the same tasks, without a new epoch."""
    run = run_text(
        APPLICATION
        + 'static = true\n[[fault]]\nkind = "stop"\nat = "1m"\ngroup = "app"\nmember = 0\nduration = "5s"\n',
        head={"[cluster]": '[cluster]\nkafka_version = "4.4"'},
    )
    generations = run.lines("generations", group="app")
    assert all(line["ts_ms"] < run.summary.from_ms + 60_000 for line in generations)
    members = group_of(run, "app")["members"]
    assert sorted(member["instanceId"] for member in members.values()) == ["app-instance-0", "app-instance-1"]
    by_client = {
        client_id: {(line["topic"], line["partition"]) for line in lines}
        for client_id, lines in itertools.groupby(
            sorted(run.lines("owners", group="app"), key=lambda line: line["client_id"]),
            key=lambda line: line["client_id"],
        )
    }
    assert by_client["app-0"] & by_client["app-1"] == set()
    assert not tasks(members, "warmup")


def test_members_of_44_have_the_tags_that_brokers_ask_for() -> None:
    """client.tag.KEY is in the member's record; the tags that the brokers ask for are a config of the assignment, and
    only a member that lacks one gets the status (MISSING_CLIENT_TAGS)."""
    codes: dict[str, set[int]] = {}
    on_response = StreamsMember._on_response

    def noting(member: StreamsMember, response: Any, now_ms: int) -> Any:
        codes.setdefault(member.config.client_id, set()).update(status.status_code for status in response.status)
        return on_response(member, response, now_ms)

    partitions = "consumer_offsets_partitions = 3"
    settings = '[cluster.settings]\n"group.streams.rack.aware.assignment.tags" = ["zone"]'
    tags = 'client_tags = [{ zone = "a", cluster = "k" }, { cluster = "k" }]\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamsMember, "_on_response", noting)
        run = run_text(
            APPLICATION + tags, minutes=2, head={partitions: f'{partitions}\nkafka_version = "4.4"\n{settings}'}
        )
    group = group_of(run, "app")
    assert group["lastAssignmentConfigs"]["rack.aware.assignment.tags"] == "zone"
    found = {member["clientId"]: member["clientTags"] for member in group["members"].values()}
    assert found == {"app-0": {"zone": "a", "cluster": "k"}, "app-1": {"cluster": "k"}}
    assert StatusCode.MISSING_CLIENT_TAGS not in codes["app-0"]
    assert StatusCode.MISSING_CLIENT_TAGS in codes["app-1"]


def test_streams_groups_have_their_own_defaults() -> None:
    """With a state store, without a repartition topic, one thread a process, standby tasks as brokers say."""
    spec = GroupSpec("app", ("t",), protocol="streams")
    assert (spec.stateful, spec.repartition, spec.threads, spec.standby_replicas) == (True, False, 1, None)
