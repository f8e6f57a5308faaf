"""Streams groups against Kafka 4.3.1's own classes, called with random input.

`tests/data/streams` has their input and output: StickyTaskAssignor (`assignor`), InternalTopicManager (`topology`),
CurrentAssignmentBuilder (`reconciliation`), and GroupCoordinatorShard with standby replicas, internal topics and
endpoints, which the traces of `tests/data/traces` do not have (`stories`, in the form of those).
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from immutables import Map

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.streams.messages import RequestTopology
from coordinator_core.live.streams.reconciliation import TRANSITIONS, reconcile
from coordinator_core.live.streams.records import topology_value
from coordinator_core.live.streams.sticky_assignor import MemberSpec, SubtopologySpec, assign_tasks
from coordinator_core.live.streams.topology import ConfiguredSubtopology, ConfiguredTopology, configure_topology
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from coordinator_core.replay.streams.replay import topology_of
from coordinator_core.replay.streams.state import StreamsMember, TaskAssignment, TaskId, TaskProcesses
from schemas.error_codes import ErrorCode
from tests.conformance.families import group_commands
from tests.message_json import message_of

DATA = Path(__file__).parents[3] / "data" / "streams"
TOPIC_ID = "A" * 22

Json = dict[str, Any]


def cases(name: str) -> Iterator[Json]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def tasks(node: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {subtopology_id: tuple(partitions) for subtopology_id, partitions in node.items()}


def task_assignment(node: Json) -> TaskAssignment:
    return TaskAssignment(tasks(node["active"]), tasks(node["standby"]), tasks(node.get("warmup", {})))


def test_task_assignor_gives_every_task_to_whom_kafka_does() -> None:
    """Consecutive rounds with members that come and go, processes of several members, up to three standbys."""
    with_standby = 0
    for case in cases("assignor"):
        members = {
            node["id"]: MemberSpec(node["id"], node["process"], task_assignment(node)) for node in case["members"]
        }
        subtopologies = {
            name: SubtopologySpec(count, bool(stateful)) for name, (count, stateful) in case["subs"].items()
        }
        order = in_hash_order((node["id"] for node in case["members"]), string_hash_code)
        targets = assign_tasks([members[member_id] for member_id in order], subtopologies, case["standby"])
        assert targets == {member_id: task_assignment(node) for member_id, node in case["out"].items()}
        with_standby += any(target.standby for target in targets.values())
    assert with_standby > 50


def configured_json(configured: ConfiguredTopology) -> Json:
    def subtopology_json(found: ConfiguredSubtopology) -> list[Any]:
        topics = (*found.repartition_source_topics.values(), *found.state_changelog_topics.values())
        return [found.task_count, {topic.name: topic.partition_count for topic in topics}]

    problem, subtopologies = configured.problem, configured.subtopologies
    return {
        "status": None if problem is None else [problem.status_code, problem.status_detail],
        "creatable": [
            [topic.name, topic.num_partitions, topic.replication_factor, {c.name: c.value for c in topic.configs}]
            for topic in configured.creatable_topics
        ],
        "subs": None
        if subtopologies is None
        else {name: subtopology_json(found) for name, found in subtopologies.items()},
    }


KAFKAS_EXCEPTIONS = {
    "StreamsInvalidTopologyException": ErrorCode.STREAMS_INVALID_TOPOLOGY,
    "IndexOutOfBoundsException": ErrorCode.UNKNOWN_SERVER_ERROR,
}


def test_topologies_fit_the_cluster_as_kafka_says() -> None:
    """Tasks, internal topics and their statuses, to the word; or the error for a topology that fits no cluster."""
    seen = set()
    for case in cases("topology"):
        topology = topology_of(topology_value(message_of(RequestTopology, case["topology"])))
        image = image_of(Topic(name, TOPIC_ID, count) for name, count in case["image"].items())
        if "error" in case:
            exception, text = case["error"].split(": ", 1)
            seen.add(exception)
            try:
                configure_topology(topology, image)
            except Refused as refused:
                assert refused.code == KAFKAS_EXCEPTIONS[exception]
                assert refused.message == text or refused.code == ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                raise AssertionError(f"Kafka throws {case['error']}")
        else:
            configured = configure_topology(topology, image)
            assert configured_json(configured) == {name: case[name] for name in ("status", "creatable", "subs")}
            assert configured.epoch == case["epoch"]
            seen.add("ready" if configured.is_ready else str(int(case["status"][0])))
    assert seen == {"ready", "1", "2", "3", *KAFKAS_EXCEPTIONS}


def member_of_json(node: Json, process_id: str) -> StreamsMember:
    def epochs(found: Json) -> dict[str, dict[int, int]]:
        return {name: {int(number): epoch for number, epoch in of.items()} for name, of in found.items()}

    assigned, pending = node["assigned"], node["pending"]
    return StreamsMember(
        "m",
        node["epoch"],
        node["prev"],
        node["state"],
        process_id=process_id,
        active=epochs(assigned["active"]),
        standby=tasks(assigned["standby"]),
        warmup=tasks(assigned["warmup"]),
        active_pending_revocation=epochs(pending["active"]),
        standby_pending_revocation=tasks(pending["standby"]),
        warmup_pending_revocation=tasks(pending["warmup"]),
    )


def task_id(text: str) -> TaskId:
    subtopology_id, partition = text.split("_")
    return subtopology_id, int(partition)


def test_members_move_towards_their_target_as_kafkas() -> None:
    """Any state, any target, tasks of all three kinds owned by others; and only along the table of transitions."""
    moves = set()
    for case in cases("reconciliation"):
        processes = TaskProcesses(
            Map({task_id(task): holder for task, holder in case["pa"].items()}),
            Map({task_id(task): frozenset(holders) for task, holders in case["ps"].items()}),
            Map({task_id(task): frozenset(holders) for task, holders in case["pw"].items()}),
        )
        member = member_of_json(case["member"], case["process"])
        owned = None if case["owned"] is None else task_assignment(case["owned"])
        try:
            after = reconcile(member, case["epoch"], task_assignment(case["target"]), processes, owned)
        except Refused as refused:
            assert refused.code == ErrorCode.FENCED_MEMBER_EPOCH
            assert refused.message == case["error"]
            continue
        assert after == member_of_json(case["out"], case["process"])
        if after is not member:
            moves.add((member.state, after.state))
    assert {(state, following) for state, after in TRANSITIONS.items() for following in after} >= moves
    assert len(moves) >= 9


def test_stories_with_standbys_internal_topics_and_endpoints() -> None:
    """Whole lives of groups, step by step: answers, records, timers and state.

    In the last three the order of Kafka's table of members decides who gets a task.
    """
    report = group_commands.judge_all(DATA / "stories.jsonl.gz")
    assert report.failures == []
    assert report.passed == report.cases == 27
    reported = {
        key: sum(
            bool(step["response"] and step["response"].get(key))
            for case in cases("stories")
            for step in case["steps"]
            if isinstance(step["response"], dict)
        )
        for key in ("standbyTasks", "partitionsByUserEndpoint", "_creatableTopics")
    }
    assert min(reported.values()) > 0
