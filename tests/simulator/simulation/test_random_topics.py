"""Topics that come and go, and applications, in random stories: heartbeats that are left out change nothing."""

import random
from dataclasses import replace

import pytest

from simulator.simulation.scenario import FaultSpec, GroupSpec, Scenario, TopicSpec
from tests.simulator.simulation.random_scenarios import STORIES, random_story, recorded_waits, slow_waits
from tests.simulator.simulation.simulations import Run


def with_topics(seed: int) -> Scenario:
    """A random story in which a topic is deleted, and mostly made again, and an application reads another one."""
    story, draws = random_story(seed), random.Random(f"topics-{seed}")
    topic, delete_ms = draws.choice(story.topics).name, draws.randint(10_000, 50_000)
    faults = [*story.faults, FaultSpec("delete_topic", delete_ms, topic=topic)]
    if draws.random() < 0.7:
        again_ms = delete_ms + draws.choice((0, 1, 500, 4000, 9000))
        faults.append(FaultSpec("create_topic", again_ms, topic=topic, partitions=draws.randint(1, 6)))
    application = GroupSpec(
        "app",
        ("source",),
        protocol="streams",
        members=draws.randint(1, 4),
        threads=draws.randint(1, 2),
        repartition=draws.random() < 0.5,
        standby_replicas=draws.randint(0, 2),
    )
    source = TopicSpec("source", draws.randint(1, 5), 20.0)
    racks = ("a", "b")[: story.cluster.brokers] if draws.random() < 0.5 else ()
    groups = tuple(replace(group, racks=("a",)) if draws.random() < 0.5 else group for group in story.groups)
    return replace(
        story,
        cluster=replace(story.cluster, racks=racks),
        topics=(*story.topics, source),
        groups=(*groups, application),
        faults=tuple(faults),
    )


@pytest.mark.parametrize("seed", range(max(2, STORIES // 4)))
def test_a_story_of_topics_is_whole(seed: int) -> None:
    """No write waits, offsets of the deleted topic are gone, and logs and truth are the same with all heartbeats."""
    story = with_topics(seed)
    with recorded_waits() as waits:
        run = Run(story)
    assert slow_waits(story, waits) == []
    all_sent = Run(story, skips_heartbeats=False)
    assert run.log_bytes() == all_sent.log_bytes()
    assert run.truth == all_sent.truth
    deleted = {line["topic_id"]: line["topic"] for line in run.truth["topics"] if not line["partition_count"]}
    known = {line["topic_id"] for line in run.truth["end_share"]} if "end_share" in run.truth else set()
    is_steady = not any(fault.kind == "broker_failover" for fault in story.faults)
    assert not is_steady or known.isdisjoint(deleted)
    for line in run.lines("end"):
        offsets = line["state"].get("offsets", {})
        gone = [topic for topic in deleted.values() if not run.simulation.topics.partition_count(topic)]
        assert not is_steady or offsets.keys().isdisjoint(gone)
