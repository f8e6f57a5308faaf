"""A transactional producer, reduced to offsets: with it a consume-transform-produce application commits.

With the first commit it asks for its producer id (InitProducerId); then each commit is a TxnOffsetCommit and, once what
was produced is flushed, an EndTxn. There is one transaction at a time: a commit requested in the meantime follows when
the current one has ended. Every n-th transaction is aborted on purpose; one whose offsets were refused is aborted, too.

With transaction version 2 the epoch increases with every transaction (KIP-890). Source: TransactionManager.
"""

from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.offsets.messages import OffsetCommitTopic, TxnOffsetCommitRequest
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    RETRIABLE,
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    Send,
    Service,
    SetTimer,
)

TXN_OFFSET_COMMIT_VERSION: Final = 5
INIT_PRODUCER_ID_VERSION: Final = 5
END_TXN_VERSION: Final = 5

INIT, OFFSETS, END = "txn-init", "txn-offsets", "txn-end"
"""The tags of its requests."""
TAGS: Final = frozenset({INIT, OFFSETS, END})
RETRY_TRANSACTION, END_TRANSACTION = "txn-retry", "txn-flush"
"""Timers: send the last request again; the produced records are flushed, and the transaction may end."""
FLUSH_MS: Final = 200
"""The time from the commit of the offsets to the end of the transaction."""

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """Request a producer id for the transactional id, or its next epoch."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class ProducerResponse:
    """The producer id and the epoch that the producer has from now on."""

    producer_id: int
    producer_epoch: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets to commit for a member of the group, and the tag for the result."""

    tag: str
    topics: tuple[OffsetCommitTopic, ...]
    generation_id: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The end of a commit: whether it was aborted (on purpose or not), and its error."""

    commit: Commit
    is_aborted: bool
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class TransactionalProducer:
    group_id: str
    transactional_id: str
    abort_every: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    transaction_count: int = 0
    present: Commit | None = None
    following: Commit | None = None
    refusal: ErrorCode = ErrorCode.NONE
    """The error with which the offsets of the current transaction were refused."""
    last_sent: list[Send] = field(default_factory=list)

    def commit(self, commit: Commit) -> Actions:
        """Commit offsets in a separate transaction, now or after the current one."""
        if self.present is not None:
            self.following = commit
            return []
        self.present = commit
        if self.producer_id >= 0:
            return self._send_offsets()
        return self._send(
            "init_producer_id", InitProducerIdRequest(self.transactional_id), INIT, INIT_PRODUCER_ID_VERSION
        )

    def handle(self, answer: Answered) -> tuple[Actions, Committed | None]:
        """Handle the answer to one of its requests; returns the actions, and the commit that ended, if any."""
        code = answer.code
        if self.present is None:
            return [], None
        if answer.tag == OFFSETS and code is ErrorCode.NONE:
            code = _first_error(answer)
        if code in FENCED:
            return [], self._ended(is_aborted=True, error=code)
        if code in RETRIABLE:
            return [SetTimer(RETRY_TRANSACTION, RETRY_BACKOFF_MS)], None
        if answer.tag == INIT:
            self.producer_id, self.producer_epoch = answer.response.producer_id, answer.response.producer_epoch
            return self._send_offsets(), None
        if answer.tag == OFFSETS:
            self.refusal = code
            return [SetTimer(END_TRANSACTION, FLUSH_MS)], None
        self.producer_epoch = answer.response.producer_epoch
        is_aborted = self._is_to_abort()
        return [], self._ended(is_aborted=is_aborted, error=self.refusal)

    def follow(self) -> Actions:
        """Begin the commit that was requested in the meantime, if there is one."""
        following, self.following = self.following, None
        return [] if following is None else self.commit(following)

    def retry(self) -> Actions:
        """Send the last request again."""
        return list(self.last_sent) if self.present is not None else []

    def end(self) -> Actions:
        """The produced records are written: end the transaction."""
        if self.present is None:
            return []
        committed = not self._is_to_abort()
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, committed)
        return self._send("end_txn", request, END, END_TXN_VERSION)

    def _ended(self, *, is_aborted: bool, error: ErrorCode) -> Committed:
        assert self.present is not None
        ended = Committed(self.present, is_aborted, error)
        self.present, self.refusal = None, ErrorCode.NONE
        return ended

    def _is_to_abort(self) -> bool:
        is_every = self.abort_every and self.transaction_count % self.abort_every == 0
        return bool(is_every) or self.refusal is not ErrorCode.NONE

    def _send_offsets(self) -> Actions:
        assert self.present is not None
        self.transaction_count += 1
        request = TxnOffsetCommitRequest(
            self.group_id,
            self.producer_id,
            self.producer_epoch,
            self.present.topics,
            self.transactional_id,
            self.present.generation_id,
            self.present.member_id,
            self.present.instance_id,
        )
        send = Send(
            Service.GROUP, self.group_id, "commit_transactional_offset", request, OFFSETS, TXN_OFFSET_COMMIT_VERSION
        )
        self.last_sent = [send]
        return [send]

    def _send(self, operation: str, request: object, tag: str, api_version: int) -> Actions:
        send = Send(Service.TRANSACTION, self.transactional_id, operation, request, tag, api_version)
        self.last_sent = [send]
        return [send]


def _first_error(answer: Answered) -> ErrorCode:
    codes = (partition.error_code for topic in answer.response.topics for partition in topic.partitions)
    return ErrorCode(next((code for code in codes if code), 0))
