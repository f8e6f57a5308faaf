"""The order of Kafka's hash maps of share partitions, as Kafka's own classes gave it."""

import pytest

from coordinator_core.share_state.combine import StateBatch
from coordinator_core.share_state.java_order import hash_set_order, java_hash, timeline_order
from coordinator_core.share_state.replay import replay_share_snapshot, replay_share_update
from coordinator_core.share_state.state import SharePartitionKey, ShareShard, ShareSnapshot, ShareUpdate

SMALL_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LARGE_ID = "eebIppdy-sTHC4RFUzzKGA"
SNAPSHOT = ShareSnapshot(0, 1, 0, 10, 0, 1000, 1000, ())
UPDATE = ShareUpdate(0, 0, 10, 0, (StateBatch(10, 12, 2, 1),))


def key(partition: int, group_id: str = "sg", topic_id: str = LARGE_ID) -> SharePartitionKey:
    return SharePartitionKey(group_id, topic_id, partition)


@pytest.mark.parametrize(
    ("group_id", "topic_id", "partition", "code"),
    [
        ("sg", SMALL_ID, 0, 116_622),
        ("sg", SMALL_ID, 3, 116_715),
        ("sg", LARGE_ID, 0, -640_822_512),
        ("a", LARGE_ID, 3, -640_933_120),
        ("über", SMALL_ID, 0, 235_750_319),
        ("über", LARGE_ID, 3, -405_188_722),
    ],
)
def test_hash_codes_are_javas(group_id: str, topic_id: str, partition: int, code: int) -> None:
    """SharePartitionKey.hashCode of Kafka 4.3.1."""
    assert java_hash(key(partition, group_id, topic_id)) == code


def test_share_partitions_are_walked_through_as_kafka_does() -> None:
    """Twenty come, twelve go, one comes back: the table stays as large as it was, and who returns is the newest."""
    shard = ShareShard()
    for partition in range(20):
        shard = replay_share_snapshot(shard, key(partition), SNAPSHOT, partition)
    for partition in range(12):
        shard = replay_share_snapshot(shard, key(partition), None, 20 + partition)
    shard = replay_share_update(shard, key(5), UPDATE)
    walked = [walked.partition for walked in timeline_order(shard.arrivals, shard.table_capacity)]
    assert walked == [14, 15, 16, 17, 5, 18, 12, 19, 13]
    assert set(shard.arrivals) == set(shard.share_partitions)


def test_who_is_there_already_keeps_its_place() -> None:
    """Snapshots and updates replace what a slot holds; only who was deleted comes anew."""
    shard = ShareShard()
    for partition in range(20):
        shard = replay_share_snapshot(shard, key(partition), SNAPSHOT, partition)
    order = timeline_order(shard.arrivals, shard.table_capacity)
    for offset, at in enumerate(order):
        shard = replay_share_update(shard, at, UPDATE)
        shard = replay_share_snapshot(shard, at, SNAPSHOT, 20 + offset)
    assert timeline_order(shard.arrivals, shard.table_capacity) == order


def test_a_hash_set_has_an_order_of_its_own() -> None:
    """Thirty keys in 64 buckets."""
    order = [
        4,
        2,
        8,
        6,
        12,
        10,
        16,
        14,
        19,
        17,
        23,
        21,
        27,
        25,
        0,
        29,
        3,
        1,
        7,
        5,
        11,
        9,
        15,
        13,
        20,
        18,
        24,
        22,
        28,
        26,
    ]
    assert [found.partition for found in hash_set_order(key(partition) for partition in range(30))] == order
