"""The state of the share coordinator: one `SharePartition` per key, and the shard with those of one log partition."""

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, Self

from immutables import Map

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.java.timeline import TIMELINE_MIN_CAPACITY
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatches

UNCHANGED: Final = -1
"""A start offset or leader epoch in a ShareUpdate that leaves the former value in force."""
UNKNOWN_COUNT: Final = -1
"""An unknown delivery complete count: before the first write, or written by a broker before 4.2."""
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
    """Later than the creation time only in a snapshot of a cold partition."""
    state_batches: StateBatches


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A ShareUpdateValue: the changes. It has neither state epoch nor times."""

    snapshot_epoch: int
    """The epoch of the snapshot on which the update builds."""
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: StateBatches


@dataclass(frozen=True, slots=True)
class SharePartition(ShareSnapshot):
    """State of one share partition (ShareGroupOffset). Times are 0 if not known. The start offset is the persisted one:
    it lags behind the broker's. -1: not yet set.
    """

    has_snapshot: bool
    """False if the log had only updates: their base snapshot was pruned, so this is a part of the state."""

    @classmethod
    def of(cls, snapshot: ShareSnapshot) -> Self:
        """A snapshot is the whole state: it replaces the one before."""
        values: list[Any] = [*_snapshot_fields(snapshot), True]
        return cls(*values)

    def next_snapshot(self, **changes: Any) -> ShareSnapshot:
        """The next snapshot of this state, with changes."""
        snapshot = ShareSnapshot(*_snapshot_fields(self))
        return replace(snapshot, snapshot_epoch=self.snapshot_epoch + 1, **changes)


_snapshot_fields: Final = attrgetter(*ShareSnapshot.__slots__)


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
    """Key -> updates since the limit last caused a snapshot: an earlier snapshot (cold, initialised) does not reset the
    count.
    """
    snapshot_offsets: Map[SharePartitionKey, int] = field(default_factory=Map)
    """Log offset of each key's latest snapshot (ShareCoordinatorOffsetsManager)."""
    redundant_offset: int | None = None
    """The least of `snapshot_offsets` at the last snapshot or tombstone: nothing below it is needed any more."""
    arrivals: Map[SharePartitionKey, int] = field(default_factory=Map, compare=False)
    """Key -> the order in which it was added, as a growing number: with the slots, this determines the order of Kafka's
    hash map.
    """
    arrival_count: int = field(default=0, compare=False)
    table_capacity: int = field(default=TIMELINE_MIN_CAPACITY, compare=False)
    """The number of slots of Kafka's hash map of share partitions, which never shrinks."""
    kafka_version: KafkaVersion = field(default=DEFAULT_VERSION, compare=False)
    """The release that combines the state batches."""

    @property
    def last_redundant_offset(self) -> int | None:
        """The offset up to which Kafka prunes the log, exclusive; None if there is nothing to prune."""
        return self.redundant_offset if self.redundant_offset else None
