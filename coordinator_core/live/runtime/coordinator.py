"""One coordinator: a state machine, its log, and the waiting operations (CoordinatorRuntime.CoordinatorContext).

Every item of the queue runs to its end before the next. A move of the high watermark goes before queued items, and an
adaptive flush after the items queued when its batch began, as on Kafka's event queue.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from coordinator_core.bytes.log.compression import Codec
from coordinator_core.errors import CoreError
from coordinator_core.live.coordinator.errors import Refused, answer_for_append_error
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.operation import Completed, Outcome
from coordinator_core.live.runtime.batching import Batcher, PendingBatch
from coordinator_core.live.runtime.deferred import DeferredQueue, Waiting, WriteTimeouts
from coordinator_core.live.runtime.loader import load
from coordinator_core.live.runtime.machines import MachineKind, StateMachine
from coordinator_core.live.runtime.messages import NO_REQUEST, Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.states import REFUSAL, CoordinatorState, check_transition
from schemas.error_codes import ErrorCode

WRITE_TIMEOUT_MS: Final = 5000
"""`offsets.commit.timeout.ms`, and the share coordinator's `share.coordinator.write.timeout.ms`."""

LOG_FAILURES: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""Errors for clients if the log refused (`answer_for_append_error`)."""

MARKER_ANSWERS: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""WriteTxnMarkers is sent between brokers: these become NOT_LEADER_OR_FOLLOWER
(KafkaApis.handleWriteTxnMarkersRequest).
"""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Settings of the runtime, with Kafka's defaults."""

    write_timeout_ms: int = WRITE_TIMEOUT_MS
    append_linger_ms: int | None = None
    """`group.coordinator.append.linger.ms`; None is Kafka's -1: as long as there are queued operations."""
    codec_id: int = Codec.NONE
    """`offsets.topic.compression.codec`."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Write the batch with this epoch, unless it was written already."""

    batch_epoch: int


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Run the background tasks of the machine."""


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Pass created, enlarged or deleted topics to the machine."""

    image: MetadataImage
    changed_topics: frozenset[str]


Item = Request | EndTransaction | Flush | RunTasks | UpdateMetadata


class PartitionCoordinator:
    """The coordinator of one partition on one broker, during one or more consecutive leaderships."""

    def __init__(
        self,
        kind: MachineKind,
        log: PartitionLog,
        broker_id: int,
        *,
        config: RuntimeConfig,
        image: MetadataImage,
        on_work: Callable[[], None],
    ) -> None:
        """`on_work` is called when `run` has something to do for an external reason: the high watermark moved."""
        self.log = log
        self.state = CoordinatorState.INITIAL
        self.leader_epoch = -1
        self.machine: StateMachine | None = None
        self.image = image
        self.load_error: CoreError | None = None
        self.queue: deque[Item] = deque()
        self.has_commit_news = False
        """The high watermark moved since the last check."""
        self.written_offset = 0
        """The exclusive end of the records in the log."""
        self.committed_offset = 0
        """Exclusive end of the committed part."""
        self._kind = kind
        self._broker_id = broker_id
        self._on_work = on_work
        self._config = config
        self._deferred = DeferredQueue()
        self._timeouts = WriteTimeouts(config.write_timeout_ms)
        self._batcher: Batcher | None = None
        self._answers: list[Answer] = []
        self._open: dict[int, Waiting] = {}
        """Operations that wait for their records, and whose answers may come earlier, from the machine."""
        self._given_up: set[int] = set()
        """Requests answered with an error of the log, which the machine may still answer: the first answer counts."""
        self._loading_until_ms: int | None = None
        self._now_ms = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            Request: self._run_request,
            EndTransaction: self._run_end_transaction,
            Flush: self._run_flush,
            RunTasks: self._run_tasks,
            UpdateMetadata: self._run_update_metadata,
        }

    # --- what the runtime calls ---

    def load(self, leader_epoch: int, *, now_ms: int, duration_ms: int) -> None:
        """The broker leads in this epoch. An epoch that is not newer changes nothing."""
        if leader_epoch <= self.leader_epoch:
            return
        self.leader_epoch = leader_epoch
        self._now_ms = now_ms
        if self.state in (CoordinatorState.INITIAL, CoordinatorState.FAILED):
            self._begin_loading(now_ms + duration_ms)
        elif self.state is CoordinatorState.ACTIVE:
            self._listen()  # leader again, with an unchanged log

    def close(self, *, now_ms: int) -> list[Answer]:
        """Another broker leads, or the topic was deleted: answer all waiting operations."""
        answers = self.run(now_ms)
        self._transition(CoordinatorState.CLOSED)
        self._unload()
        return answers + self._take_answers()

    def run(self, now_ms: int) -> list[Answer]:
        """Run everything that is due or queued by `now_ms`. Returns the answers in order."""
        self._now_ms = now_ms
        self._finish_loading_if_due()
        self._run_due()
        while True:
            if self.has_commit_news:
                self._commit()
            elif self.queue:
                item = self.queue.popleft()
                self._handlers[type(item)](item)
            elif not self._finish_loading_if_due():
                return self._take_answers()

    def next_deadline_ms(self) -> int | None:
        """When `run` next has something to do without a new request, or None."""
        deadlines = (
            self._loading_until_ms,
            self._timeouts.next_deadline_ms(),
            None if self._batcher is None else self._batcher.deadline_ms(),
            None if self.machine is None else self.machine.next_deadline_ms(),
        )
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    # --- states ---

    def _transition(self, state: CoordinatorState) -> None:
        check_transition(self.state, state)
        self.state = state

    def _begin_loading(self, until_ms: int) -> None:
        self._transition(CoordinatorState.LOADING)
        self._loading_until_ms = until_ms

    def _finish_loading_if_due(self) -> bool:
        if self._loading_until_ms is None or self._now_ms < self._loading_until_ms:
            return False
        self._loading_until_ms = None
        try:
            self._check_leading()
            state = load(self._kind, self.log)
        except CoreError as error:
            self.load_error = error
            self._transition(CoordinatorState.FAILED)
            self._unload()
        else:
            self._activate(state)
        return True

    def _check_leading(self) -> None:
        if self.log.leader != self._broker_id:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _activate(self, state: Any) -> None:
        self._transition(CoordinatorState.ACTIVE)
        self.load_error = None
        self.written_offset = self.log.end_offset
        self.committed_offset = self.log.high_watermark
        self._batcher = Batcher(
            partition=self.log.partition,
            write=lambda batch: self.log.append(self._broker_id, batch),
            delete_records=self.log.delete_records,
            encode=self._kind.encode,
            state=lambda: self._active().state,
            next_offset=self.log.end_offset,
            on_begun=self._on_batch_begun,
            on_written=self._on_batch_written,
            on_lost=self._on_batch_lost,
            batch_bytes_max=self.log.message_bytes_max,
            linger_ms=self._config.append_linger_ms,
            codec_id=self._config.codec_id,
        )
        self.machine = self._kind.start(state, self._batcher, self.image, self._now_ms)
        self._listen()

    def _listen(self) -> None:
        self.log.on_high_watermark = self._on_high_watermark
        self.has_commit_news = True

    def _unload(self) -> None:
        """Stop everything: fail operations that wait for a commit, then those that wait for an answer of the
        machine."""
        self._loading_until_ms = None
        self.has_commit_news = False
        if self.machine is None or self._batcher is None:
            return
        if self.log.on_high_watermark == self._on_high_watermark:
            self.log.on_high_watermark = None
        not_coordinator = Refused(ErrorCode.NOT_COORDINATOR)
        for waiting in self._deferred.take_all():
            self._complete(waiting, not_coordinator)
        self._batcher.lose(not_coordinator)
        for completed in self.machine.unload(self._now_ms).completed:
            self._answer_completed(completed)
        self._open.clear()
        self._given_up.clear()
        self.machine, self._batcher = None, None

    def _active(self) -> StateMachine:
        if self.machine is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return self.machine

    # --- items ---

    def _run_due(self) -> None:
        """Run due timers, the linger time and write timeouts."""
        for waiting in self._timeouts.take_due(self._now_ms):
            self._complete(waiting, Refused(ErrorCode.REQUEST_TIMED_OUT))
        if self._batcher is not None:
            self._flush_if_due()
        while self.machine is not None:
            deadline_ms = self.machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self._now_ms:
                return
            self._settle(NO_REQUEST, self.machine.run_next_timer(self._now_ms))

    def _run_request(self, request: Request) -> None:
        if self.state is not CoordinatorState.ACTIVE or self.machine is None:
            self._refuse(request)
        else:
            self._settle(request.request_id, self.machine.handle(request, self._now_ms))

    def _refuse(self, request: Request) -> None:
        code = REFUSAL[self.state]
        response = None
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            response = self._kind.answer_while_loading(request)
        self._answer(request.request_id, response, Refused(code) if response is None else None)

    def _run_end_transaction(self, item: EndTransaction) -> None:
        waiting = Waiting(item.request_id)
        if self.state is not CoordinatorState.ACTIVE or self.machine is None or self._batcher is None:
            self._answer_marker(item.request_id, REFUSAL[self.state])
            return
        self._batcher.coordinator_epoch = item.coordinator_epoch
        try:
            self.machine.end_transaction(item.producer, is_commit=item.is_commit, now_ms=self._now_ms)
        except Refused as refused:
            self._answer_marker(item.request_id, refused.code)
            return
        waiting.response = item
        self._defer(self._batcher.next_offset, [waiting])
        self._timeouts.add(waiting, self._now_ms)

    def _run_flush(self, item: Flush) -> None:
        batcher = self._batcher
        if batcher is not None and batcher.batch is not None and batcher.batch.epoch == item.batch_epoch:
            self._flush()

    def _run_tasks(self, item: RunTasks) -> None:
        if self.machine is not None:
            self._settle(NO_REQUEST, self.machine.run_tasks(self._now_ms))

    def _run_update_metadata(self, item: UpdateMetadata) -> None:
        self.image = item.image
        if self.machine is not None:
            outcome = self.machine.update_metadata(item.image, item.changed_topics, self._now_ms)
            self._settle(NO_REQUEST, outcome)

    # --- batches ---

    def _settle(self, request_id: int, outcome: Outcome) -> None:
        """An operation ran: answer it now, or once its records, or earlier ones, are committed."""
        is_answered = request_id == NO_REQUEST
        for completed in outcome.completed:
            self._answer_completed(completed)
            is_answered = is_answered or completed.request_id == request_id
        if outcome.error is not None and not is_answered:
            self._answer(request_id, None, outcome.error)
            is_answered = True
            if outcome.error.code in LOG_FAILURES:
                self._given_up.add(request_id)
        if self._batcher is None:
            return  # the operation brought the coordinator down
        batch = self._batcher.batch
        if batch is None and self.committed_offset >= self.written_offset and not outcome.parked:
            if outcome.response is not None and not is_answered:
                self._answers.append(Answer(self.log.partition, request_id, outcome.response))
        else:
            self._wait(Waiting(request_id, outcome.response, outcome.parked, is_answered), batch)
            self._flush_if_due()
        self._queue_tasks()

    def _answer_completed(self, completed: Completed) -> None:
        """An answer of the machine to any request, unless the request was answered with an error before."""
        request_id = completed.request_id
        if request_id in self._given_up:
            self._given_up.discard(request_id)
            return
        waiting = self._open.pop(request_id, None)
        if waiting is not None:
            waiting.is_answered = True
        self._answers.append(Answer(self.log.partition, request_id, completed.response))

    def _wait(self, waiting: Waiting, batch: PendingBatch | None) -> None:
        if waiting.response is None and not waiting.is_answered:
            self._open[waiting.request_id] = waiting
        if batch is not None:
            batch.waiting.append(waiting)
        elif self.committed_offset < self.written_offset:
            self._deferred.add(self.written_offset, [waiting])
        else:
            self._complete(waiting, None)
            return
        self._timeouts.add(waiting, self._now_ms)

    def _flush_if_due(self) -> None:
        if self._batcher is not None:
            try:
                self._batcher.flush_if_due(self._now_ms)
            except Refused:
                return  # all operations in the batch are answered

    def _flush(self) -> None:
        if self._batcher is not None:
            try:
                self._batcher.flush()
            except Refused:
                return

    def _on_batch_begun(self, batch: PendingBatch) -> None:
        if self._config.append_linger_ms is None and not batch.is_transactional:
            self.queue.append(Flush(batch.epoch))

    def _on_batch_written(self, batch: PendingBatch, end_offset: int) -> None:
        if end_offset != batch.next_offset:
            self._resynchronize(batch)
        self._defer(end_offset, batch.waiting)

    def _defer(self, end_offset: int, waiting: list[Waiting]) -> None:
        """The log has records up to `end_offset`: their operations wait for the high watermark."""
        self.written_offset = end_offset
        self._deferred.add(end_offset, waiting)

    def _on_batch_lost(self, batch: PendingBatch, error: Refused) -> None:
        self._active().revert(batch.base_state)
        for waiting in batch.waiting:
            self._complete(waiting, error)

    def _resynchronize(self, batch: PendingBatch) -> None:
        """Another process wrote to the log: fail waiting operations, and load the log again."""
        refused = Refused(ErrorCode.NOT_COORDINATOR)
        for waiting in batch.waiting:
            self._complete(waiting, refused)
        self._transition(CoordinatorState.FAILED)
        self._unload()
        self._begin_loading(self._now_ms)
        raise refused

    def _on_high_watermark(self) -> None:
        self.has_commit_news = True
        self._on_work()

    def _commit(self) -> None:
        """The high watermark moved: answer operations that waited for it."""
        self.has_commit_news = False
        if self.machine is None or self.log.leader != self._broker_id:
            return
        high_watermark = self.log.high_watermark
        self.committed_offset = high_watermark
        for waiting in self._deferred.take_up_to(high_watermark):
            self._complete(waiting, None)

    # --- answers ---

    def _complete(self, waiting: Waiting, error: Refused | None) -> None:
        """The records of an operation are committed (error None) or lost: continue it, then answer it."""
        if waiting.is_done:
            return
        waiting.is_done = True
        machine = self.machine
        for parked in waiting.parked if machine is not None else ():
            self._settle(NO_REQUEST, machine.resume(parked, error, self._now_ms))  # type: ignore[union-attr]
        self._open.pop(waiting.request_id, None)
        if waiting.is_answered or waiting.request_id == NO_REQUEST:
            return
        if isinstance(waiting.response, EndTransaction):
            self._answer_marker(waiting.request_id, None if error is None else error.code)
        elif error is not None:
            self._answer(waiting.request_id, None, Refused(answer_for_append_error(error.code)))
            if waiting.response is None:
                self._given_up.add(waiting.request_id)
        elif waiting.response is not None:
            self._answer(waiting.request_id, waiting.response, None)

    def _answer(self, request_id: int, response: Any, error: Refused | None) -> None:
        if request_id != NO_REQUEST:
            self._answers.append(Answer(self.log.partition, request_id, response, error))

    def _answer_marker(self, request_id: int, code: ErrorCode | None) -> None:
        if code is None:
            self._answer(request_id, None, None)
            return
        code = answer_for_append_error(code)
        is_elsewhere = code in MARKER_ANSWERS
        self._answer(request_id, None, Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else code))

    def _queue_tasks(self) -> None:
        if self.machine is not None and self.machine.has_tasks:
            self.queue.append(RunTasks())

    def _take_answers(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers
