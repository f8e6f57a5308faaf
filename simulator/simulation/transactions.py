"""The transaction coordinator, reduced to offsets: producer ids, epochs, timeouts, and markers in the groups' logs.
Of the transactions that fill data topics, which no client of a simulation sends, it has the states alone.

`on_change` writes its log. With transaction version 2 a marker carries the epoch after that of its records, and the
producer continues with this epoch; a transaction that is fenced or timed out is aborted under a new epoch in any
version.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.offsets.messages import TxnOffsetCommitRequest
from coordinator_core.live.share_partition.state import LogBatch
from schemas.error_codes import ErrorCode
from schemas.transaction_state import TransactionStatus
from simulator.simulation.clients.producer import EndTxnRequest, InitProducerIdRequest, ProducerResponse
from simulator.simulation.clock import EventLoop
from simulator.simulation.other_logs import TRANSACTION_TIMEOUT_MS, TransactionLogs
from simulator.simulation.topics import Topics

FIRST_PRODUCER_ID: Final = 1000

CLEANING_MS: Final = 60_000
"""How often the log cleaner comes: of a producer's transactions since the last time it leaves one."""

FAR_MS: Final = 24 * 60 * 60_000
"""How far ahead the end of a transaction is looked for."""
OUTCOMES: Final = (
    (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT),
    (TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT),
)
CLOSED: Final = frozenset(
    {TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT}
)
"""States without partitions."""

Respond = Callable[[ProducerResponse], None]
WriteMarker = Callable[[str, Producer, bool, Callable[[], None]], None]
"""(group, producer, whether it is a commit, callback once the marker is committed)."""
OnChange = Callable[["Transaction", TransactionStatus], None]
"""Called with every new state of a transactional id."""


@dataclass(slots=True)
class Transaction:
    """The state of a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = 0
    group_id: str | None = None
    """The group whose offsets the open transaction commits; None if none is open."""
    started_ms: int = -1
    """The start time of the open transaction, or of the last one."""
    token: int = 0
    """Incremented at every end: an older timeout is void."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks for when the markers of the current transaction are written."""
    is_ending: bool = False


class Transactions:
    """All transactional ids of the cluster."""

    def __init__(
        self,
        loop: EventLoop,
        write_marker: WriteMarker,
        *,
        transaction_version: int,
        on_change: OnChange = lambda transaction, status: None,
    ) -> None:
        self._loop = loop
        self._on_change = on_change
        self._write_marker = write_marker
        self._bumps = transaction_version >= 2
        self._by_id: dict[str, Transaction] = {}

    def init_producer_id(self, request: InitProducerIdRequest, respond: Respond) -> None:
        """InitProducerId: the former producer with this id is fenced, and its open transaction is aborted."""
        transaction = self._by_id.get(request.transactional_id)
        if transaction is None:
            transaction = Transaction(request.transactional_id, FIRST_PRODUCER_ID + len(self._by_id))
            self._by_id[request.transactional_id] = transaction
            self._on_change(transaction, TransactionStatus.EMPTY)
            respond(ProducerResponse(transaction.producer_id, transaction.producer_epoch))
            return

        def fenced() -> None:
            transaction.producer_epoch += 1
            self._on_change(transaction, TransactionStatus.EMPTY)
            respond(ProducerResponse(transaction.producer_id, transaction.producer_epoch))

        if transaction.is_ending:
            transaction.waiting.append(lambda: self.init_producer_id(request, respond))
        elif transaction.group_id is not None:
            self._end(transaction, is_commit=False, bumps=True, on_done=fenced)
        else:
            fenced()

    def refusal(self, request: TxnOffsetCommitRequest) -> ErrorCode | None:
        """The error of a TxnOffsetCommit from a fenced producer; otherwise None, and its transaction is open from now
        on.
        """
        transaction = self._by_id[request.transactional_id]
        if request.producer_epoch != transaction.producer_epoch or transaction.is_ending:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if transaction.group_id is None:
            transaction.group_id = request.group_id
            transaction.started_ms = self._loop.now_ms
            self._on_change(transaction, TransactionStatus.ONGOING)
            self._loop.after(TRANSACTION_TIMEOUT_MS, self._time_out, transaction, transaction.token)
        return None

    def end_txn(self, request: EndTxnRequest, respond: Respond) -> None:
        """EndTxn: it is answered once the markers are committed."""
        transaction = self._by_id[request.transactional_id]
        if request.producer_epoch != transaction.producer_epoch or transaction.is_ending:
            code = ErrorCode.PRODUCER_FENCED
            respond(ProducerResponse(transaction.producer_id, transaction.producer_epoch, code))
            return
        self._end(
            transaction,
            is_commit=request.committed,
            bumps=self._bumps,
            on_done=lambda: respond(ProducerResponse(transaction.producer_id, transaction.producer_epoch)),
        )

    def _end(self, transaction: Transaction, *, is_commit: bool, bumps: bool, on_done: Callable[[], None]) -> None:
        group_id = transaction.group_id
        transaction.token += 1
        transaction.producer_epoch += bumps
        if group_id is None:
            on_done()
            return
        transaction.is_ending = True
        status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
        self._on_change(transaction, status)
        transaction.group_id = None

        def marked() -> None:
            transaction.is_ending = False
            status = TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT
            self._on_change(transaction, status)
            on_done()
            waiting, transaction.waiting = transaction.waiting, []
            for go_on in waiting:
                go_on()

        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        self._write_marker(group_id, producer, is_commit, marked)

    def _time_out(self, transaction: Transaction, token: int) -> None:
        if transaction.token == token and transaction.group_id is not None:
            self._end(transaction, is_commit=False, bumps=True, on_done=lambda: None)


class TopicTransactions:
    """The states of the producers that fill data topics in transactions, one for each partition: of each producer's
    transactions those that the log cleaner leaves.
    """

    def __init__(self, loop: EventLoop, topics: Topics, logs: TransactionLogs) -> None:
        self._loop = loop
        self._topics = topics
        self._logs = logs
        self._is_open: dict[TopicPartition, bool] = {}
        """Of every producer, whether its transaction is open."""

    def write(self) -> None:
        """Write the next transaction of each producer, as its first record and its marker come; and again later."""
        for at in self._topics.partitions():
            if self._topics.partition(at).has_markers and not self._is_open.get(at):
                if at not in self._is_open:
                    self._change(at, TransactionStatus.EMPTY)
                self._is_open[at] = True
                self._begin(at)
        self._loop.after(CLEANING_MS, self.write)

    def _begin(self, at: TopicPartition) -> None:
        now_ms = self._loop.now_ms
        data = self._topics.partition(at)
        first = data.readable_end_offset(now_ms, is_committed=True)
        marker = first + data.spec.transaction_records
        began_ms, ended_ms = (
            data.growth_ms(offset, now_ms, now_ms + FAR_MS, is_committed=False) for offset in (first, marker)
        )
        is_aborted = bool(data.aborted_transactions([LogBatch(first, first)]))
        self._loop.at(began_ms, self._change, at, TransactionStatus.ONGOING, began_ms)
        prepare, complete = OUTCOMES[is_aborted]
        self._loop.at(ended_ms, self._change, at, prepare, began_ms)
        self._loop.at(ended_ms, self._change, at, complete, began_ms)

    def _change(self, at: TopicPartition, status: TransactionStatus, started_ms: int = -1) -> None:
        if status in CLOSED:
            self._is_open[at] = False
        self._logs.write(
            f"{at.topic}-producer-{at.partition}",
            status,
            self._topics.partition(at).producer_id,
            0,
            () if status in CLOSED else (at,),
            started_ms,
        )
