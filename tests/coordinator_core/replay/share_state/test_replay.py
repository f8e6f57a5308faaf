"""Replay of the share coordinator's records: Kafka's own states, and the cases which a log holds but a trace
does not.
"""

from pathlib import Path

from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.replay import replay_share_snapshot, replay_share_update
from coordinator_core.replay.share_state.state import ShareShard, ShareSnapshot, ShareUpdate
from tests.conformance.families import share_coordinator

TRACE = Path(__file__).parents[3] / "data" / "traces" / "share_coordinator.jsonl.gz"
KEY = SharePartitionKey("sg", "AAAAAAAAAAAAAAAAAAAAAQ", 3)
SNAPSHOT = ShareSnapshot(4, 7, 2, 10, 0, 1000, 2000, (StateBatch(10, 12, 0, 1),))
UPDATE = ShareUpdate(4, 3, 11, 5, (StateBatch(13, 14, 2, 1),))


def test_replay_agrees_with_kafka() -> None:
    """The records of every step give the state, the fences, the counter and the redundant offset Kafka had."""
    assert share_coordinator.run(TRACE) == (200, 200, [])


def test_an_update_without_its_snapshot_is_the_state_as_it_is() -> None:
    """Pruning takes snapshots away before their updates: Kafka replays the update onto nothing."""
    state = replay_share_update(ShareShard(), KEY, UPDATE).share_partitions[KEY]
    assert (state.start_offset, state.leader_epoch, state.delivery_complete_count) == (11, 3, 5)
    assert (state.state_epoch, state.create_timestamp_ms, state.write_timestamp_ms) == (0, 0, 0)
    assert state.state_batches == UPDATE.state_batches
    assert not state.has_snapshot


def test_a_snapshot_completes_the_state() -> None:
    """Nothing of the updates before it stays."""
    shard = replay_share_snapshot(replay_share_update(ShareShard(), KEY, UPDATE), KEY, SNAPSHOT, 9)
    state = shard.share_partitions[KEY]
    assert state.has_snapshot
    assert state.state_batches == SNAPSHOT.state_batches
    assert state.state_epoch == 7


def test_a_tombstone_forgets_the_key_even_one_never_seen() -> None:
    """The log may begin with the tombstone: the snapshot before it was pruned."""
    assert replay_share_snapshot(ShareShard(), KEY, None, 5) == ShareShard(redundant_offset=5)
    shard = replay_share_snapshot(ShareShard(), KEY, SNAPSHOT, 4)
    assert replay_share_snapshot(shard, KEY, None, 5) == ShareShard(redundant_offset=5)


def test_keys_are_in_the_order_of_their_first_record() -> None:
    """Each key has a place of its own, whichever record it came with."""
    shard, keys = ShareShard(), [SharePartitionKey("sg", "AAAAAAAAAAAAAAAAAAAAAQ", number) for number in range(4)]
    for key in keys[::2]:
        shard = replay_share_update(shard, key, UPDATE)
        shard = replay_share_snapshot(shard, key._replace(partition=key.partition + 1), SNAPSHOT, 0)
    assert sorted(keys, key=shard.arrivals.__getitem__) == keys
    assert len(set(shard.arrivals.values())) == 4


def test_offset_0_is_never_redundant() -> None:
    """There is nothing below it to prune."""
    shard = replay_share_snapshot(ShareShard(), KEY, SNAPSHOT, 0)
    assert (shard.redundant_offset, shard.last_redundant_offset) == (0, None)
