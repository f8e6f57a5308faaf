"""Replay of streams group records: topology, tasks, members."""

from typing import Any

import pytest

from coordinator_core.replay.anomalies import MEMBER_TOMBSTONE_TOO_EARLY, Anomaly
from coordinator_core.replay.dispatch import GroupShard, replay
from coordinator_core.replay.streams.state import (
    NO_MEMBER_STATE,
    InternalTopic,
    StreamsGroup,
    StreamsGroupState,
    StreamsMember,
    Subtopology,
    Topology,
)
from schemas.consumer_offsets import RecordType as T
from tests.coordinator_core.group_records import Record, folded, record

GROUP = {"group_id": "g"}


def key(member_id: str) -> dict[str, str]:
    return {"group_id": "g", "member_id": member_id}


def member(member_id: str, **fields: Any) -> Record:
    return record(T.STREAMS_GROUP_MEMBER_METADATA, key(member_id), {"process_id": "p", **fields})


def tasks(partitions: list[int], epochs: list[int] | None = None) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": partitions, "assignment_epochs": epochs}]


def current(member_id: str, epoch: int, state: int = 1, **fields: Any) -> Record:
    value = {"member_epoch": epoch, "previous_member_epoch": epoch - 1, "state": state, **fields}
    return record(T.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, key(member_id), value)


def group_of(*records: Record) -> tuple[StreamsGroup, list[str]]:
    shard, codes = folded(*records)
    group = shard.groups["g"]
    assert isinstance(group, StreamsGroup)
    return group, codes


TOPOLOGY = record(
    T.STREAMS_GROUP_TOPOLOGY,
    GROUP,
    {
        "epoch": 3,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ["t"],
                "source_topic_regex": ["r.*"],
                "repartition_sink_topics": ["s"],
                "repartition_source_topics": [{"name": "q", "partitions": 2}],
                "state_changelog_topics": [{"name": "c"}],
            }
        ],
    },
)


def test_topology() -> None:
    """A value sets it, a tombstone clears it."""
    group, _ = group_of(TOPOLOGY)
    assert group.topology == Topology(
        3, (Subtopology("0", ("t",), ("r.*",), ("s",), (InternalTopic("q", 2),), (InternalTopic("c"),)),)
    )
    assert group_of(TOPOLOGY, record(T.STREAMS_GROUP_TOPOLOGY, GROUP, None))[0].topology is None


def test_group_state_follows_topology_epochs_and_members() -> None:
    """Empty, NotReady, Assigning, Reconciling, Stable."""
    metadata = {
        "epoch": 2,
        "metadata_hash": 6,
        "validated_topology_epoch": 3,
        "last_assignment_configs": [{"key": "num.standby.replicas", "value": "1"}],
    }
    records = [
        TOPOLOGY,
        member("A"),
        record(T.STREAMS_GROUP_METADATA, GROUP, metadata),
        record(T.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 5}),
        current("A", 2),
        current("A", 2, state=2),
    ]
    groups = [group_of(*records[:count])[0] for count in range(1, 7)]
    assert [group.state for group in groups] == [
        StreamsGroupState.EMPTY,
        StreamsGroupState.NOT_READY,
        StreamsGroupState.ASSIGNING,
        StreamsGroupState.RECONCILING,
        StreamsGroupState.STABLE,
        StreamsGroupState.RECONCILING,
    ]
    assert groups[-1].last_assignment_configs == {"num.standby.replicas": "1"}
    assert (groups[-1].metadata_hash, groups[-1].assignment_timestamp_ms) == (6, 5)


def test_fresh_group() -> None:
    """A fresh object has validated topology epoch 0."""
    group, _ = group_of(member("A"))
    assert (group.group_epoch, group.assignment_epoch, group.validated_topology_epoch) == (1, 1, 0)


def test_member_metadata_and_current_assignment() -> None:
    """Types 19 and 22 each replace their own half of a member."""
    group, _ = group_of(
        member(
            "A",
            instance_id="i",
            topology_epoch=3,
            rebalance_timeout_ms=9,
            user_endpoint={"host": "h", "port": 80},
            client_tags=[{"key": "zone", "value": "a"}],
        ),
        current(
            "A",
            4,
            state=2,
            active_tasks=tasks([1, 0], [3, 4]),
            standby_tasks=tasks([3, 2]),
            warmup_tasks=tasks([4]),
            active_tasks_pending_revocation=tasks([5], None),
            standby_tasks_pending_revocation=tasks([6]),
            warmup_tasks_pending_revocation=tasks([7]),
        ),
    )
    assert group.members["A"] == StreamsMember(
        "A",
        member_epoch=4,
        previous_member_epoch=3,
        state=2,
        instance_id="i",
        rack_id="",
        rebalance_timeout_ms=9,
        topology_epoch=3,
        process_id="p",
        user_endpoint=("h", 80),
        client_tags={"zone": "a"},
        active={"0": {0: 4, 1: 3}},
        standby={"0": (2, 3)},
        warmup={"0": (4,)},
        active_pending_revocation={"0": {5: 4}},
        standby_pending_revocation={"0": (6,)},
        warmup_pending_revocation={"0": (7,)},
        has_current_assignment=True,
    )
    assert dict(group.static_members.items()) == {"i": "A"}


def test_leaving_takes_the_member_apart() -> None:
    """Tombstones 22, 21, 19."""
    joined = [member("A", instance_id="i"), current("A", 2, active_tasks=tasks([0]), standby_tasks=tasks([1]))]
    leave = [
        record(T.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, key("A"), None),
        record(T.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, key("A"), None),
        record(T.STREAMS_GROUP_MEMBER_METADATA, key("A"), None),
    ]
    away = group_of(*joined, leave[0])[0].members["A"]
    assert (away.member_epoch, away.previous_member_epoch, away.active, away.standby, away.state) == (-1, -1, {}, {}, 1)
    group, codes = group_of(*joined, *leave)
    assert (dict(group.members.items()), dict(group.static_members.items()), codes) == ({}, {}, [])


@pytest.mark.parametrize(
    ("before", "exception"),
    [([], "NullPointerException"), ([current("A", 2)], "IllegalStateException")],
)
def test_member_tombstone_too_early(before: list[Record], exception: str) -> None:
    """A member which has an assignment, or never had one, is removed all the same."""
    anomalies: list[Anomaly] = []
    gone = record(T.STREAMS_GROUP_MEMBER_METADATA, key("A"), None)
    shard = GroupShard()
    for each in (member("A"), *before, gone):
        shard = replay(shard, *each, report=anomalies.append)
    assert [(a.code, a.kafka_exception) for a in anomalies] == [(MEMBER_TOMBSTONE_TOO_EARLY, exception)]
    assert not shard.groups["g"].members


def test_member_without_current_assignment_has_no_state() -> None:
    """Kafka knows nothing of it, so it is not stable whatever the epochs are."""
    group, _ = group_of(
        TOPOLOGY,
        member("A"),
        record(T.STREAMS_GROUP_METADATA, GROUP, {"epoch": 0, "validated_topology_epoch": 3}),
        record(T.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, {"assignment_epoch": 0}),
    )
    assert group.members["A"].state == NO_MEMBER_STATE
    assert group.state is StreamsGroupState.RECONCILING
