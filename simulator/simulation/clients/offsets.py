"""Positions of consumers: where they begin, their requests for offsets, and their commits."""

from collections.abc import Mapping, Sequence
from typing import Final

from coordinator_core.bytes.client_protocols import TopicPartitions
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetFetchTopic,
)
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    Actions,
    Answered,
    MemberConfig,
    Progress,
    Send,
    Service,
    reset_position,
)
from simulator.simulation.clients.producer import Commit, TransactionalProducer
from simulator.simulation.topics import Topics

COMMIT_VERSION: Final = 10
FETCH_VERSION: Final = 10
"""The request versions on which 4.3 clients and brokers agree."""


def by_topic(partitions: Sequence[TopicPartition]) -> TopicPartitions:
    """The partitions by topic, in the order of the first partition of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in grouped.items())


def committed_topics(topics: Topics, offsets: Mapping[TopicPartition, int]) -> tuple[OffsetCommitTopic, ...]:
    return tuple(
        OffsetCommitTopic(
            tuple(OffsetCommitPartition(number, offsets[TopicPartition(topic, number)], 0, "") for number in numbers),
            topic,
            topics.topic_id(topic),
        )
        for topic, numbers in by_topic(sorted(offsets))
    )


def fetched_topics(partitions: Sequence[TopicPartition]) -> tuple[OffsetFetchTopic, ...]:
    return tuple(OffsetFetchTopic(topic, numbers) for topic, numbers in by_topic(partitions))


def has_fetch_error(answer: Answered) -> bool:
    """Whether OffsetFetch must be sent again: also if an open transaction may still change an offset."""
    return answer.error is not None or any(
        partition.error_code for topic in answer.response.topics for partition in topic.partitions
    )


def committed_offsets(answer: Answered) -> dict[TopicPartition, int]:
    """The offsets in the response to OffsetFetch; -1 if nothing is committed."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.response.topics
        for partition in topic.partitions
    }


def first_position(topics: Topics, config: MemberConfig, at: TopicPartition, committed: int, now_ms: int) -> int:
    """The first position of a consumer: the committed offset if it still exists, otherwise as auto.offset.reset
    says."""
    if committed >= topics.start_offset(at, now_ms):
        return committed
    return reset_position(topics, config.spec, at, now_ms)


class OffsetCommitter:
    """Commits a consumer's offsets: with OffsetCommit, or in transactions of a producer."""

    def __init__(self, config: MemberConfig, topics: Topics, progress: Progress) -> None:
        self._config = config
        self._topics = topics
        self._progress = progress
        self._producer: TransactionalProducer | None = None
        if config.spec.commits == "transactional":  # its transactional id is the client id
            self._producer = TransactionalProducer(config.group_id, config.client_id, config.spec.abort_every)
        self._committed: dict[TopicPartition, int] = {}
        """The positions to which an aborted transaction returns."""

    def commit(self, tag: str, generation_id: int, member_id: str) -> Actions:
        """Commit all positions; the result arrives as the answer to `tag`."""
        config = self._config
        topics = committed_topics(self._topics, self._progress.offsets)
        if self._producer is not None:
            return self._producer.commit(Commit(tag, topics, generation_id, member_id, config.instance_id))
        request = OffsetCommitRequest(config.group_id, topics, generation_id, member_id, config.instance_id)
        return [Send(Service.GROUP, config.group_id, "commit_offset", request, tag, COMMIT_VERSION)]

    def began_at(self, positions: Sequence[tuple[TopicPartition, int]]) -> None:
        self._committed.update(positions)

    def handle(self, answer: Answered) -> tuple[Actions, Answered | None]:
        """Handle an answer to the producer; returns the actions, and the result of a commit if one ended."""
        assert self._producer is not None
        actions, ended = self._producer.handle(answer)
        if ended is None:
            return actions, None
        if ended.is_aborted:
            for at in self._progress.offsets:
                self._progress.offsets[at] = self._committed.get(at, self._progress.offsets[at])
        else:
            for topic in ended.commit.topics:
                for partition in topic.partitions:
                    at = TopicPartition(topic.name, partition.partition_index)
                    self._committed[at] = partition.committed_offset
        error = None if ended.error is ErrorCode.NONE else ended.error
        return [*actions, *self._producer.follow()], Answered(
            ended.commit.tag, OffsetCommitResponse(), error, ended.commit
        )

    def retry(self) -> Actions:
        """Send the producer's last request again."""
        return [] if self._producer is None else self._producer.retry()

    def end(self) -> Actions:
        """The records of the transaction are written: end it."""
        return [] if self._producer is None else self._producer.end()
