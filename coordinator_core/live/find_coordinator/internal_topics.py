"""The topics of the coordinators: how they are created, and when (AutoTopicCreationManager).

Names, partition counts and settings are those of Kafka 4.3.1: GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionStateManager.transactionTopicConfigs, ShareCoordinatorService.shareGroupStateTopicConfigs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_core.errors import NoInternalTopic
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_STATE_TOPIC
from schemas.transaction_state import TOPIC as TRANSACTION_TOPIC


@dataclass(frozen=True, slots=True)
class InternalTopicsConfig:
    """Broker settings with Kafka's defaults; `offsets.topic.num.partitions` etc."""

    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104_857_600
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_segment_bytes: int = 104_857_600


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """The broker's request to the controller to create a topic. `configs` are (name, value), sorted by name."""

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


def creatable_topic(name: str, config: InternalTopicsConfig) -> CreatableTopic:
    """How this topic is created; raises NoInternalTopic for any but the three."""
    if name not in _TOPICS:
        raise NoInternalTopic(f"no coordinator keeps its state in {name!r}")
    prefix, fixed = _TOPICS[name]
    partition_count, replication_factor, segment_bytes = (
        getattr(config, f"{prefix}_{setting}") for setting in ("num_partitions", "replication_factor", "segment_bytes")
    )
    configs = {**fixed, "segment.bytes": str(segment_bytes)}
    if name != OFFSETS_TOPIC:
        configs["min.insync.replicas"] = str(getattr(config, f"{prefix}_min_isr"))
    return CreatableTopic(name, partition_count, replication_factor, tuple(sorted(configs.items())))


_TOPICS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    OFFSETS_TOPIC: ("offsets_topic", {"cleanup.policy": "compact", "compression.type": "producer"}),
    TRANSACTION_TOPIC: (
        "transaction_state_log",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
    SHARE_STATE_TOPIC: (
        "share_coordinator_state_topic",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
    ),
}
"""Topic -> what its settings in `InternalTopicsConfig` begin with, and the configs that no setting changes."""


class TopicCreation:
    """The topics that one broker has requested from the controller; there is only one request for each in flight."""

    def __init__(self, config: InternalTopicsConfig | None = None) -> None:
        self.config = config or InternalTopicsConfig()
        self._in_flight: dict[str, None] = {}

    def request(self, names: Iterable[str]) -> tuple[CreatableTopic, ...]:
        wanted = [name for name in dict.fromkeys(names) if name not in self._in_flight]
        topics = tuple(creatable_topic(name, self.config) for name in wanted)
        self._in_flight.update(dict.fromkeys(wanted))
        return topics

    def done(self, name: str) -> None:
        """The controller answered, with success or an error, or timed out: the topic may be requested again."""
        self._in_flight.pop(name, None)
