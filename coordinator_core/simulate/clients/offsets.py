"""Where consumers stand: their settings, their progress, and what they say of offsets in requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordinator_core.assignors.client_group import TopicPartition
from coordinator_core.client_protocols import TopicPartitions
from coordinator_core.offsets.messages import OffsetCommitPartition, OffsetCommitTopic, OffsetFetchTopic
from coordinator_core.simulate.clients.machine import Answered, Topics

COMMIT_VERSION: Final = 10
FETCH_VERSION: Final = 10
"""The versions which 4.3 clients and brokers agree on."""

COOPERATIVE: Final = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """A consumer's settings. `records_per_second` is what it can handle."""

    group_id: str
    client_id: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """Classic: the favourite first. Consumer protocol: the first is the server's assignor to ask for; none: any."""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    max_poll_interval_ms: int = 300_000
    poll_interval_ms: int = 1000
    auto_commit_interval_ms: int | None = 5000
    """None: it never commits by itself."""
    records_per_second: float = 1000.0
    stops_at_poison: bool = False
    offset_reset: str = "earliest"

    @property
    def is_cooperative(self) -> bool:
        """The rebalance protocol which all the assignors support: COOPERATIVE only where none is eager."""
        return all(name == COOPERATIVE for name in self.assignors)


def by_topic(partitions: Sequence[TopicPartition]) -> TopicPartitions:
    """By topic, in the order in which the topics come."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def committed_topics(topics: Topics, offsets: Mapping[TopicPartition, int]) -> tuple[OffsetCommitTopic, ...]:
    """All positions, as a commit gives them."""
    return tuple(
        OffsetCommitTopic(
            tuple(OffsetCommitPartition(number, offsets[TopicPartition(topic, number)], 0, "") for number in numbers),
            topic,
            topics.topic_id(topic),
        )
        for topic, numbers in by_topic(sorted(offsets))
    )


def fetched_topics(partitions: Sequence[TopicPartition]) -> tuple[OffsetFetchTopic, ...]:
    """Partitions, as OffsetFetch names them."""
    return tuple(OffsetFetchTopic(topic, numbers) for topic, numbers in by_topic(partitions))


def has_fetch_error(answer: Answered) -> bool:
    """Whether OffsetFetch has to be sent again: also where an open transaction may still change an offset."""
    return answer.error is not None or any(
        partition.error_code for topic in answer.response.topics for partition in topic.partitions
    )


def committed_offsets(answer: Answered) -> dict[TopicPartition, int]:
    """What OffsetFetch gave; -1 where nothing is committed."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.response.topics
        for partition in topic.partitions
    }


def first_position(topics: Topics, config: ConsumerConfig, at: TopicPartition, committed: int, now_ms: int) -> int:
    """Where a consumer begins: at the committed offset if it is still there, else as auto.offset.reset says."""
    if committed >= 0:
        return max(committed, topics.start_offset(at, now_ms))
    if config.offset_reset == "latest":
        return topics.end_offset(at, now_ms)
    return topics.start_offset(at, now_ms)
