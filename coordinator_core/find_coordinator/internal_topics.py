"""The topics of the coordinators: how they are created, and when (AutoTopicCreationManager).

Names, partition counts and settings are those of Kafka 4.3.1: GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionStateManager.transactionTopicConfigs, ShareCoordinatorService.shareGroupStateTopicConfigs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
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
    make = _MAKERS.get(name)
    if make is None:
        raise NoInternalTopic(f"no coordinator keeps its state in {name!r}")
    return make(config)


def _offsets_topic(config: InternalTopicsConfig) -> CreatableTopic:
    return CreatableTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        (
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        ),
    )


def _transaction_topic(config: InternalTopicsConfig) -> CreatableTopic:
    return CreatableTopic(
        TRANSACTION_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        (
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ),
    )


def _share_state_topic(config: InternalTopicsConfig) -> CreatableTopic:
    return CreatableTopic(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        (
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
            ("retention.ms", "-1"),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
        ),
    )


_MAKERS: Final = MappingProxyType(
    {
        OFFSETS_TOPIC: _offsets_topic,
        TRANSACTION_TOPIC: _transaction_topic,
        SHARE_STATE_TOPIC: _share_state_topic,
    }
)


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
