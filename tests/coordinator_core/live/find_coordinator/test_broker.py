"""Tests of FindCoordinator on the broker's side."""

from typing import NamedTuple

import pytest

from coordinator_core.errors import CoreError, NoInternalTopic
from coordinator_core.live.find_coordinator.broker import (
    NO_NODE,
    ClusterView,
    CoordinatorType,
    FindCoordinatorRequest,
    Node,
    find_coordinators,
    share_partition_key,
)
from coordinator_core.live.find_coordinator.internal_topics import InternalTopicsConfig, TopicCreation, creatable_topic
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode

NODES = {0: Node(0, "b0", 9092), 1: Node(1, "b1", 9092)}
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SHARE_KEY = f"sg:{TOPIC_ID}:3"
VIEW = ClusterView(
    NODES,
    {
        "__consumer_offsets": tuple(1 if partition == 12 else 0 for partition in range(50)),
        "__transaction_state": (0, None, 2, 1),
        "__share_group_state": tuple(1 if partition == 11 else None for partition in range(50)),
    },
)
CONFIG = InternalTopicsConfig()


def find(key_type: int, *keys: str, version: int = 6, view: ClusterView = VIEW) -> list[tuple[int, ErrorCode]]:
    """(node id, error code) of every key."""
    found = find_coordinators(view, FindCoordinatorRequest(key_type, keys, version), CONFIG)
    assert [coordinator.key for coordinator in found.coordinators] == list(keys)
    assert found.missing_topics == ()
    return [(coordinator.node.node_id, coordinator.error_code) for coordinator in found.coordinators]


def test_a_group_is_where_its_partition_is_led() -> None:
    """my-group hashes to 12, g to 3; several keys are answered in their order."""
    assert find(CoordinatorType.GROUP, "my-group", "g", "my-group") == [(1, 0), (0, 0), (1, 0)]


def test_a_share_partition_is_where_its_own_partition_is_led() -> None:
    """The key is the whole text; where its partition has no leader there is no coordinator."""
    (found, other) = find(CoordinatorType.SHARE, SHARE_KEY, f"sg:{TOPIC_ID}:4")
    assert found == (1, ErrorCode.NONE)
    assert other == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("key", "expected"), [("a", 0), ("b", None), ("c", None), ("d", None), ("e", 0), ("t", 0), ("x", 0), ("", 0)]
)
def test_the_partition_count_is_that_of_the_topic(key: str, expected: int | None) -> None:
    """With 4 partitions the ASCII code modulo 4 decides: 1 has no leader, 2 is led by a broker that is dead."""
    leaders = (0, None, 2, 1)
    leader = leaders[(ord(key) if key else 0) % 4]
    (node_id, code) = find(CoordinatorType.TRANSACTION, key)[0]
    if leader in NODES:
        assert (node_id, code) == (leader, ErrorCode.NONE)
    else:
        assert (node_id, code) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class BadRequest(NamedTuple):
    """A request which is wrong for itself."""

    name: str
    key_type: int
    key: str
    version: int = 6


@pytest.mark.parametrize(
    "case",
    [
        BadRequest("a type which does not exist", 3, "g"),
        BadRequest("a negative type", -1, "g"),
        BadRequest("share coordinators before they were there", 2, SHARE_KEY, 5),
        BadRequest("too few parts", 2, f"{TOPIC_ID}:3"),
        BadRequest("nothing", 2, ""),
        BadRequest("a blank group", 2, f" \t:{TOPIC_ID}:3"),
        BadRequest("no group", 2, f":{TOPIC_ID}:3"),
        BadRequest("a topic name in the place of its id", 2, "sg:orders:3"),
        BadRequest("no partition number", 2, f"sg:{TOPIC_ID}:three"),
        BadRequest("a partition beyond 32 bits", 2, f"sg:{TOPIC_ID}:2147483648"),
        BadRequest("a number with a gap", 2, f"sg:{TOPIC_ID}:1 2"),
    ],
    ids=lambda case: case.name,
)
def test_bad_requests(case: BadRequest) -> None:
    """They are answered INVALID_REQUEST, whatever the cluster."""
    assert find(case.key_type, case.key, version=case.version) == [(-1, ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHARE_KEY, SharePartitionKey("sg", TOPIC_ID, 3)),
        (f"a:b:{TOPIC_ID}:0", SharePartitionKey("a:b", TOPIC_ID, 0)),
        (f"{SHARE_KEY}::", SharePartitionKey("sg", TOPIC_ID, 3)),
        (f"sg:{TOPIC_ID}:-1", SharePartitionKey("sg", TOPIC_ID, -1)),
        (f"sg:{TOPIC_ID}:+7", SharePartitionKey("sg", TOPIC_ID, 7)),
        (f"sg:{TOPIC_ID}==:3", SharePartitionKey("sg", TOPIC_ID, 3)),
        (f"sg:{TOPIC_ID[:-1]}R:3", SharePartitionKey("sg", TOPIC_ID, 3)),
        (f" :x:{TOPIC_ID}:2147483647", SharePartitionKey(" :x", TOPIC_ID, 2147483647)),
    ],
)
def test_share_partition_keys_are_read_as_java_reads_them(text: str, expected: SharePartitionKey) -> None:
    """Colons in the group id stay, those at the end go."""
    assert share_partition_key(text) == expected


def test_one_bad_key_does_not_spoil_the_others() -> None:
    """Each key has its own error."""
    good, bad = find(CoordinatorType.SHARE, SHARE_KEY, "bad")
    assert (good, bad) == ((1, ErrorCode.NONE), (-1, ErrorCode.INVALID_REQUEST))


def test_a_topic_that_is_missing_is_asked_for() -> None:
    """The client is asked to come again; the topic is named once, however many keys need it."""
    view = ClusterView(NODES, {})
    found = find_coordinators(
        view, FindCoordinatorRequest(CoordinatorType.SHARE, (SHARE_KEY, "bad", SHARE_KEY)), CONFIG
    )
    assert found.missing_topics == ("__share_group_state",)
    assert [coordinator.error_code for coordinator in found.coordinators] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    assert found.coordinators[0].node == NO_NODE


def test_while_a_topic_is_being_made_it_is_not_asked_for_again() -> None:
    """The controller's answer, whatever it is, ends that."""
    creation = TopicCreation()
    (topic,) = creation.request(["__consumer_offsets", "__consumer_offsets"])
    assert (topic.name, topic.partition_count, topic.replication_factor) == ("__consumer_offsets", 50, 3)
    assert creation.request(["__consumer_offsets"]) == ()
    assert [topic.name for topic in creation.request(["__consumer_offsets", "__transaction_state"])] == [
        "__transaction_state"
    ]
    creation.done("__consumer_offsets")
    assert len(creation.request(["__consumer_offsets"])) == 1


def test_each_coordinator_topic_has_its_own_settings() -> None:
    """The group's and the transactions' logs are compacted; the share coordinator's is pruned by its coordinator."""
    config = InternalTopicsConfig(share_coordinator_state_topic_num_partitions=3, transaction_state_log_min_isr=1)
    offsets, transactions, share = (
        creatable_topic(name, config) for name in ("__consumer_offsets", "__transaction_state", "__share_group_state")
    )
    assert dict(offsets.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert dict(transactions.configs)["compression.type"] == "uncompressed"
    assert dict(transactions.configs)["min.insync.replicas"] == "1"
    assert (dict(share.configs)["cleanup.policy"], dict(share.configs)["retention.ms"]) == ("delete", "-1")
    assert (share.partition_count, share.replication_factor) == (3, 3)
    with pytest.raises(NoInternalTopic):
        creatable_topic("orders", config)


def test_bad_share_keys_raise_errors_of_the_core() -> None:
    """Nothing else comes out, so that a request cannot bring a broker down."""
    for text in ("", ":", "::", "a:b:c", f"g:{TOPIC_ID}:", f"g:{TOPIC_ID}:٣"):
        with pytest.raises(CoreError):
            share_partition_key(text)
