"""Broker settings of the share coordinator, with Kafka's defaults (ShareCoordinatorConfig)."""

from dataclasses import dataclass
from typing import Final

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.share_state.state import UPDATES_PER_SNAPSHOT_DEFAULT

UPDATES_PER_SNAPSHOT_MAX: Final = 500
"""Kafka's upper bound: loading the state replays up to this many updates for each share partition."""
COLD_PARTITION_SNAPSHOT_INTERVAL_MS_DEFAULT: Final = 300_000
"""share.coordinator.cold.partition.snapshot.interval.ms, Kafka's default."""
PRUNE_INTERVAL_MS_DEFAULT: Final = 300_000
"""share.coordinator.state.topic.prune.interval.ms, Kafka's default."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Settings of a share coordinator. Raises ValueError if Kafka would not start."""

    updates_per_snapshot: int = UPDATES_PER_SNAPSHOT_DEFAULT
    """share.coordinator.snapshot.update.records.per.snapshot: after this many updates the next record is a snapshot."""
    cold_partition_snapshot_interval_ms: int = COLD_PARTITION_SNAPSHOT_INTERVAL_MS_DEFAULT
    """How often the coordinator looks for cold share partitions, and the minimum age of a cold one's snapshot."""
    prune_interval_ms: int = PRUNE_INTERVAL_MS_DEFAULT
    """How often the log is pruned below the last needed offset."""
    kafka_version: KafkaVersion = DEFAULT_VERSION
    """The release whose rules the coordinator follows."""

    def __post_init__(self) -> None:
        if not 0 <= self.updates_per_snapshot <= UPDATES_PER_SNAPSHOT_MAX:
            raise ValueError(f"{self.updates_per_snapshot} updates a snapshot are not in 0..{UPDATES_PER_SNAPSHOT_MAX}")
        if self.cold_partition_snapshot_interval_ms < 1 or self.prune_interval_ms < 1:
            raise ValueError("the intervals of the share coordinator are at least 1 ms")
