"""What the share coordinator knows: one `SharePartition` a key, and the shard which holds those of a log
partition.
"""

from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from coordinator_core.java.timeline import TIMELINE_MIN_CAPACITY
from coordinator_core.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.lookup import SharePartitionKey
from coordinator_core.share_state.combine import UNSET_OFFSET, StateBatches

UNCHANGED: Final = -1
"""A start offset or leader epoch in a ShareUpdate which leaves the state's own in force."""
UNKNOWN_COUNT: Final = -1
"""A delivery complete count which nobody has counted: before the first write, or by a broker before 4.2."""
UPDATES_PER_SNAPSHOT_DEFAULT: Final = 500
"""share.coordinator.snapshot.update.records.per.snapshot, Kafka's default."""


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """A ShareSnapshotValue: the whole state of a share partition. Times are epoch milliseconds."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    """Later than the creation in a snapshot of a cold partition, and only there."""
    state_batches: StateBatches


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A ShareUpdateValue: what changed. It has neither state epoch nor times."""

    snapshot_epoch: int
    """That of the snapshot which the update builds on."""
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: StateBatches


@dataclass(frozen=True, slots=True)
class SharePartition:
    """State of one share partition (ShareGroupOffset). Times are epoch milliseconds, 0 where not known."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """As persisted: it lags behind the broker's. -1: not yet set."""
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    state_batches: StateBatches
    has_snapshot: bool
    """False while only updates were seen: their base snapshot was pruned, so this is a part of the state."""


@dataclass(frozen=True, slots=True)
class ShareShard:
    """State of one `__share_group_state` partition (ShareCoordinatorShard)."""

    updates_per_snapshot: int = UPDATES_PER_SNAPSHOT_DEFAULT
    share_partitions: Map[SharePartitionKey, SharePartition] = field(default_factory=Map)
    leader_epochs: Map[SharePartitionKey, int] = field(default_factory=Map)
    """The fence for requests: the highest leader epoch seen. Only a tombstone lowers it."""
    state_epochs: Map[SharePartitionKey, int] = field(default_factory=Map)
    """The fence for requests: the highest state epoch of any snapshot seen."""
    update_counts: Map[SharePartitionKey, int] = field(default_factory=Map)
    """Updates since the limit last made a snapshot: one which comes sooner (cold, initialised) does not
    reset it.
    """
    snapshot_offsets: Map[SharePartitionKey, int] = field(default_factory=Map)
    """Log offset of each key's latest snapshot (ShareCoordinatorOffsetsManager)."""
    redundant_offset: int | None = None
    """The least of `snapshot_offsets` as of the last snapshot or tombstone: nothing below it is needed any
    more.
    """
    arrivals: Map[SharePartitionKey, int] = field(default_factory=Map, compare=False)
    """When each share partition came, as a number which grows: with the slots, the order of Kafka's hash map."""
    arrival_count: int = field(default=0, compare=False)
    table_capacity: int = field(default=TIMELINE_MIN_CAPACITY, compare=False)
    """Slots of Kafka's hash map of share partitions, which never shrinks."""
    kafka_version: KafkaVersion = field(default=DEFAULT_VERSION, compare=False)
    """The release that combines the state batches."""

    @property
    def last_redundant_offset(self) -> int | None:
        """Up to where Kafka prunes the log, exclusive; None where there is nothing to prune."""
        return self.redundant_offset if self.redundant_offset else None


__all__ = [
    "UNCHANGED",
    "UNKNOWN_COUNT",
    "UNSET_OFFSET",
    "UPDATES_PER_SNAPSHOT_DEFAULT",
    "SharePartition",
    "SharePartitionKey",
    "ShareShard",
    "ShareSnapshot",
    "ShareUpdate",
]
