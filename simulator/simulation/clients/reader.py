"""How consumers of both protocols handle the partitions that they own: find positions, read, commit, be busy.

The protocol decides which partitions the consumer owns at which time; a `Reader` is the consumer's thread and its state
of the partitions.
"""

from collections.abc import Sequence

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.offsets.messages import OffsetFetchRequest
from simulator.simulation.clients.machine import (
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    Gave,
    MemberConfig,
    Progress,
    Send,
    Service,
    SetTimer,
    Took,
)
from simulator.simulation.clients.offsets import (
    FETCH_VERSION,
    OffsetCommitter,
    committed_offsets,
    fetched_topics,
    first_position,
    has_fetch_error,
)
from simulator.simulation.topics import Topics

COMMIT, FETCH = "commit", "fetch"
"""Timers: the next commit; the next OffsetFetch."""


class Reader:
    """See above. While `is_busy`, the thread processes the records of the last poll and reads nothing."""

    def __init__(self, config: MemberConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._progress = Progress(topics, config.spec)
        self.committer = OffsetCommitter(config, topics, self._progress)
        self.is_busy = False
        self.is_pending_revocation = False
        """Its partitions are about to be revoked: it reads nothing more (maybeMarkPartitionsPendingRevocation)."""

    @property
    def has_positions(self) -> bool:
        return bool(self._progress.offsets)

    @property
    def commits_by_itself(self) -> bool:
        """Whether it must commit before it gives up partitions: it has positions, and automatic commits are on."""
        return self.has_positions and self._config.auto_commit_interval_ms is not None

    def read_on(self, now_ms: int) -> None:
        """Read until now, or stay at the position if the thread was busy."""
        if self.is_busy or self.is_pending_revocation:
            self._progress.stay_until(now_ms)
        else:
            self._progress.advance(now_ms)

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        self.read_on(now_ms)
        return list(self._progress.offsets.items())

    def missing(self, owned: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [at for at in owned if at not in self._progress.offsets]

    def fetch(self, partitions: Sequence[TopicPartition], member_id: str, member_epoch: int) -> Send:
        """Request the committed offsets of these partitions; the answer is for `on_fetch`. Classic members have epoch
        -1.
        """
        request = OffsetFetchRequest(
            self._config.group_id,
            fetched_topics(partitions),
            require_stable=True,
            member_id=member_id,
            member_epoch=member_epoch,
        )
        return Send(Service.GROUP, self._config.group_id, "fetch_offsets", request, "fetch", FETCH_VERSION)

    def on_fetch(self, answer: Answered, owned: Sequence[TopicPartition], generation: int, now_ms: int) -> Actions:
        missing = self.missing(owned)
        if has_fetch_error(answer):
            return [SetTimer(FETCH, RETRY_BACKOFF_MS)] if missing else []
        committed = committed_offsets(answer)
        took = [
            (at, first_position(self._topics, self._config, at, committed[at], now_ms))
            for at in missing
            if at in committed
        ]
        self.read_on(now_ms)
        self._progress.take(took, now_ms)
        self.committer.began_at(took)
        return [*([Took(took, generation)] if took else []), *self.commit_later()]

    def give(self, partitions: Sequence[TopicPartition], ended_by: str, now_ms: int) -> Actions:
        """Stop reading these partitions. `ended_by`: REVOKED, LOST or CLOSED."""
        self.read_on(now_ms)
        given = self._progress.give(partitions, now_ms)
        return [Gave(given, ended_by)] if given else []

    def commit(self, tag: str, generation: int, member_id: str, now_ms: int) -> Actions:
        """Commit all positions; the result arrives as the answer to `tag`."""
        self.read_on(now_ms)
        return self.committer.commit(tag, generation, member_id)

    def commit_later(self) -> Actions:
        """Schedule the next automatic commit, if these are on."""
        interval_ms = self._config.auto_commit_interval_ms
        return [] if interval_ms is None else [SetTimer(COMMIT, interval_ms)]

    def on_producer(self, answer: Answered, now_ms: int) -> tuple[Actions, Answered | None]:
        """Handle an answer to the transactional producer; returns the actions, and the result of a commit if it ended
        one.
        """
        self.read_on(now_ms)
        return self.committer.handle(answer)

    def work(self, duration_ms: int, now_ms: int) -> Actions:
        """Make the thread busy from now on."""
        self.read_on(now_ms)
        self.is_busy = True
        return [*self._config.busy_for(duration_ms)]

    def work_no_more(self, now_ms: int) -> None:
        """The thread is free again."""
        self._progress.stay_until(now_ms)
        self.is_busy = False
