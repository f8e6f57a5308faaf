"""The order of Kafka's hash maps of share partitions, as Kafka's own classes gave it."""

from coordinator_core.replay.java.hash_codes import share_partition_key_hash_code
from coordinator_core.replay.java.timeline import timeline_order
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.replay import replay_share_snapshot, replay_share_update
from coordinator_core.replay.share_state.state import ShareShard, ShareSnapshot, ShareUpdate

LARGE_ID = "eebIppdy-sTHC4RFUzzKGA"
SNAPSHOT = ShareSnapshot(0, 1, 0, 10, 0, 1000, 1000, ())
UPDATE = ShareUpdate(0, 0, 10, 0, (StateBatch(10, 12, 2, 1),))


def key(partition: int) -> SharePartitionKey:
    return SharePartitionKey("sg", LARGE_ID, partition)


def in_table_order(shard: ShareShard) -> list[SharePartitionKey]:
    return timeline_order(shard.arrivals, shard.table_capacity, share_partition_key_hash_code)


def test_share_partitions_are_walked_through_as_kafka_does() -> None:
    """Twenty come, twelve go, one comes back: the table stays as large as it was, and who returns is the newest."""
    shard = ShareShard()
    for partition in range(20):
        shard = replay_share_snapshot(shard, key(partition), SNAPSHOT, partition)
    for partition in range(12):
        shard = replay_share_snapshot(shard, key(partition), None, 20 + partition)
    shard = replay_share_update(shard, key(5), UPDATE)
    assert [walked.partition for walked in in_table_order(shard)] == [14, 15, 16, 17, 5, 18, 12, 19, 13]
    assert set(shard.arrivals) == set(shard.share_partitions)
