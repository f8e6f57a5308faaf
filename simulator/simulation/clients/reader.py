"""How consumers of both protocols handle the partitions that they own: find positions, read, commit, be busy.

The protocol decides which partitions the consumer owns at which time; a `Reader` is the consumer's thread and its state
of the partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    Gave,
    MemberConfig,
    Send,
    Service,
    SetTimer,
    Took,
)
from simulator.simulation.clients.producer import Commit, TransactionalProducer
from simulator.simulation.clients.subscriptions import by_topic
from simulator.simulation.topics import Topics

COMMIT_VERSION: Final = 10
FETCH_VERSION: Final = 10
"""The request versions on which 4.3 clients and brokers agree."""

COMMIT, FETCH = "commit", "fetch"
"""Timers: the next commit; the next OffsetFetch."""


class Reader:
    """See above. While `is_busy`, the thread processes the records of the last poll and reads nothing.

    Each partition gets an equal share of the consumer's rate, and is read as far as there is data. A poison record ends
    a partition's progress if the consumer cannot pass it. If the topic was deleted, there is no progress. A position
    whose data was deleted (retention), or that is in the log of a topic which was created again, is out of range
    (OFFSET_OUT_OF_RANGE): the consumer continues where auto.offset.reset says.
    """

    def __init__(self, config: MemberConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._offsets: dict[TopicPartition, int] = {}
        """The next offset to read in each partition that it owns."""
        self._since_ms = 0
        self._committed: dict[TopicPartition, int] = {}
        """The positions to which an aborted transaction returns."""
        self.producer: TransactionalProducer | None = None
        """Makes the commits of a transactional consumer; its transactional id is the client id."""
        if config.spec.commits == "transactional":
            self.producer = TransactionalProducer(config.group_id, config.client_id, config.spec.abort_every)
        self.is_busy = False
        self.is_pending_revocation = False
        """Its partitions are about to be revoked: it reads nothing more (maybeMarkPartitionsPendingRevocation)."""

    @property
    def has_positions(self) -> bool:
        return bool(self._offsets)

    @property
    def commits_by_itself(self) -> bool:
        """Whether it must commit before it gives up partitions: it has positions, and automatic commits are on."""
        return self.has_positions and self._config.auto_commit_interval_ms is not None

    # --- reading ---

    def read_on(self, now_ms: int) -> None:
        """Read until now, or stay at the position if the thread was busy."""
        since_ms, self._since_ms = self._since_ms, now_ms
        elapsed_ms = now_ms - since_ms
        if self.is_busy or self.is_pending_revocation or not self._offsets or elapsed_ms <= 0:
            return
        topics, spec = self._topics, self._config.spec
        share = int(spec.rate * elapsed_ms / 1000 / len(self._offsets))
        for at, offset in self._offsets.items():
            if not topics.exists(at):
                continue
            is_in_range = offset >= topics.start_offset(at, now_ms) and not topics.made_since(at.topic, since_ms)
            first = offset if is_in_range else self._reset_position(at, now_ms)
            following = max(first, min(first + share, topics.end_offset(at, now_ms)))
            if spec.on_poison == "stuck" and following > first:
                poison = topics.partition(at).next_poison_offset(first, following)
                following = following if poison is None else poison
            self._offsets[at] = following

    def _reset_position(self, at: TopicPartition, now_ms: int) -> int:
        """Where it begins without an offset in the log."""
        is_latest = self._config.spec.auto_offset_reset == "latest"
        return self._topics.end_offset(at, now_ms) if is_latest else self._topics.start_offset(at, now_ms)

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        self.read_on(now_ms)
        return list(self._offsets.items())

    def missing(self, owned: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [at for at in owned if at not in self._offsets]

    def fetch(self, partitions: Sequence[TopicPartition], member_id: str, member_epoch: int) -> Send:
        """Request the committed offsets of these partitions; the answer is for `on_fetch`. Classic members have epoch
        -1.
        """
        request = OffsetFetchRequest(
            self._config.group_id,
            tuple(OffsetFetchTopic(topic, numbers) for topic, numbers in by_topic(partitions)),
            member_id=member_id,
            member_epoch=member_epoch,
        )
        return Send(Service.GROUP, self._config.group_id, "fetch_offsets", request, "fetch", FETCH_VERSION)

    def on_fetch(self, answer: Answered, owned: Sequence[TopicPartition], generation: int, now_ms: int) -> Actions:
        """Begin at the committed offset if it still exists, otherwise as auto.offset.reset says."""
        missing = self.missing(owned)
        found = (
            [] if answer.error else [(topic.name, one) for topic in answer.response.topics for one in topic.partitions]
        )
        if answer.error or any(one.error_code for _, one in found):  # also: an open transaction may change an offset
            return [SetTimer(FETCH, RETRY_BACKOFF_MS)] if missing else []
        committed = {TopicPartition(name, one.partition_index): one.committed_offset for name, one in found}
        took = [
            (
                at,
                committed[at]
                if committed[at] >= self._topics.start_offset(at, now_ms)
                else self._reset_position(at, now_ms),
            )
            for at in missing
            if at in committed
        ]
        self.read_on(now_ms)
        self._offsets.update(took)
        self._committed.update(took)
        return [*([Took(took, generation)] if took else []), *self.commit_later()]

    def give(self, partitions: Sequence[TopicPartition], ended_by: str, now_ms: int) -> Actions:
        """Stop reading these partitions, if it owns them. `ended_by`: REVOKED, LOST or CLOSED."""
        self.read_on(now_ms)
        given = [(at, self._offsets.pop(at)) for at in partitions if at in self._offsets]
        return [Gave(given, ended_by)] if given else []

    def work(self, duration_ms: int, now_ms: int) -> Actions:
        """Make the thread busy from now on."""
        self.read_on(now_ms)
        self.is_busy = True
        return [*self._config.busy_for(duration_ms)]

    def work_no_more(self, now_ms: int) -> None:
        """The thread is free again."""
        self._since_ms = now_ms
        self.is_busy = False

    # --- committing ---

    def commit(self, tag: str, generation: int, member_id: str, now_ms: int) -> Actions:
        """Commit all positions, with OffsetCommit or in a transaction; the result arrives as the answer to `tag`."""
        self.read_on(now_ms)
        config = self._config
        topics = _committed_topics(self._topics, self._offsets)
        if self.producer is not None:
            return self.producer.commit(Commit(tag, topics, generation, member_id, config.instance_id))
        request = OffsetCommitRequest(config.group_id, topics, generation, member_id, config.instance_id)
        return [Send(Service.GROUP, config.group_id, "commit_offset", request, tag, COMMIT_VERSION)]

    def commit_later(self) -> Actions:
        """Schedule the next automatic commit, if these are on."""
        interval_ms = self._config.auto_commit_interval_ms
        return [] if interval_ms is None else [SetTimer(COMMIT, interval_ms)]

    def on_producer(self, answer: Answered, now_ms: int) -> tuple[Actions, Answered | None]:
        """Handle an answer to the producer; returns the actions, and the result of a commit if one ended."""
        self.read_on(now_ms)
        assert self.producer is not None
        actions, ended = self.producer.handle(answer)
        if ended is None:
            return actions, None
        if ended.is_aborted:
            for at in self._offsets:
                self._offsets[at] = self._committed.get(at, self._offsets[at])
        else:
            for topic in ended.commit.topics:
                for partition in topic.partitions:
                    at = TopicPartition(topic.name, partition.partition_index)
                    self._committed[at] = partition.committed_offset
        error = None if ended.error is ErrorCode.NONE else ended.error
        result = Answered(ended.commit.tag, OffsetCommitResponse(), error, ended.commit)
        return [*actions, *self.producer.follow()], result


def _committed_topics(topics: Topics, offsets: Mapping[TopicPartition, int]) -> tuple[OffsetCommitTopic, ...]:
    return tuple(
        OffsetCommitTopic(
            tuple(OffsetCommitPartition(number, offsets[TopicPartition(topic, number)], 0, "") for number in numbers),
            topic,
            topics.topic_id(topic),
        )
        for topic, numbers in by_topic(sorted(offsets))
    )
