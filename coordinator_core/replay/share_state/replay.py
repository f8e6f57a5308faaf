"""Replay of `__share_group_state`: it applies a record to a state (ShareCoordinatorShard.replay).

Compaction does not touch this topic, but pruning does: the updates of a key may be left without their snapshot. They
are replayed onto an empty state, like in Kafka, and `has_snapshot` is false.
"""

from dataclasses import replace
from typing import TypeVar

from immutables import Map

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.java.timeline import grown_timeline_capacity
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch, StateBatches, combine_state_batches
from coordinator_core.replay.share_state.state import UNCHANGED, SharePartition, ShareShard, ShareSnapshot, ShareUpdate

V = TypeVar("V")


def share_snapshot(value: Struct) -> ShareSnapshot:
    return ShareSnapshot(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        create_timestamp_ms=value.create_timestamp,
        write_timestamp_ms=value.write_timestamp,
        state_batches=_state_batches(value),
    )


def share_update(value: Struct) -> ShareUpdate:
    return ShareUpdate(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=_state_batches(value),
    )


def _state_batches(value: Struct) -> StateBatches:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in value.state_batches
    )


def apply_share_update(
    state: SharePartition | None, update: ShareUpdate, version: KafkaVersion = DEFAULT_VERSION
) -> SharePartition:
    """Merge an update (ShareCoordinatorShard.merge); without a state before, it becomes the state.

    The delivery complete count is always the update's, even if it is unknown.
    """
    if state is None:
        return SharePartition(
            snapshot_epoch=update.snapshot_epoch,
            state_epoch=0,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            create_timestamp_ms=0,
            write_timestamp_ms=0,
            state_batches=update.state_batches,
            has_snapshot=False,
        )
    start_offset = state.start_offset if update.start_offset == UNCHANGED else update.start_offset
    # Not `replace`, which costs as much as everything else here: each acknowledgement takes this path.
    return SharePartition(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch if update.leader_epoch == UNCHANGED else update.leader_epoch,
        start_offset,
        update.delivery_complete_count,
        state.create_timestamp_ms,
        state.write_timestamp_ms,
        combine_state_batches(state.state_batches, update.state_batches, start_offset, version),
        state.has_snapshot,
    )


def replay_share_snapshot(
    shard: ShareShard, key: SharePartitionKey, value: ShareSnapshot | None, offset: int
) -> ShareShard:
    """Replay a ShareSnapshot at a log offset; None is its tombstone, whose key may be unknown."""
    if value is None:
        return replace(
            shard,
            share_partitions=_without(shard.share_partitions, key),
            leader_epochs=_without(shard.leader_epochs, key),
            state_epochs=_without(shard.state_epochs, key),
            update_counts=_without(shard.update_counts, key),
            arrivals=_without(shard.arrivals, key),
            # Kafka computes the minimum with the tombstone's own offset still included, and only then removes the key.
            snapshot_offsets=_without(shard.snapshot_offsets, key),
            redundant_offset=min(shard.snapshot_offsets.set(key, offset).values()),
        )
    update_counts = shard.update_counts
    if update_counts.get(key, 0) >= shard.updates_per_snapshot:
        update_counts = update_counts.set(key, 0)
    snapshot_offsets = shard.snapshot_offsets.set(key, offset)
    return replace(
        shard,
        share_partitions=shard.share_partitions.set(key, SharePartition.of(value)),
        leader_epochs=_raised(shard.leader_epochs, key, value.leader_epoch),
        state_epochs=_raised(shard.state_epochs, key, value.state_epoch),
        update_counts=update_counts,
        snapshot_offsets=snapshot_offsets,
        redundant_offset=min(snapshot_offsets.values()),
        arrivals=_arrived(shard, key),
        arrival_count=shard.arrival_count + 1,
        table_capacity=grown_timeline_capacity(shard.table_capacity, len(shard.share_partitions)),
    )


def replay_share_update(shard: ShareShard, key: SharePartitionKey, value: ShareUpdate) -> ShareShard:
    """Replay a ShareUpdate. The record has no state epoch, so the highest state epoch stays."""
    state = apply_share_update(shard.share_partitions.get(key), value, shard.kafka_version)
    return ShareShard(
        shard.updates_per_snapshot,
        shard.share_partitions.set(key, state),
        _raised(shard.leader_epochs, key, value.leader_epoch),
        shard.state_epochs,
        shard.update_counts.set(key, shard.update_counts.get(key, 0) + 1),
        shard.snapshot_offsets,
        shard.redundant_offset,
        _arrived(shard, key),
        shard.arrival_count + 1,
        grown_timeline_capacity(shard.table_capacity, len(shard.share_partitions)),
        shard.kafka_version,
    )


def _without(entries: Map[SharePartitionKey, V], key: SharePartitionKey) -> Map[SharePartitionKey, V]:
    return entries.delete(key) if key in entries else entries


def _arrived(shard: ShareShard, key: SharePartitionKey) -> Map[SharePartitionKey, int]:
    return shard.arrivals if key in shard.arrivals else shard.arrivals.set(key, shard.arrival_count)


def _raised(epochs: Map[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> Map[SharePartitionKey, int]:
    before = epochs.get(key)
    return epochs if before is not None and before >= epoch else epochs.set(key, epoch)
