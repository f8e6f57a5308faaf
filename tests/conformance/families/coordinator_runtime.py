"""Conformance of the runtime with Kafka's CoordinatorRuntime: the same calls, step by step.

The state machine of a case is a toy: its state is a text which every record makes longer, so that what was replayed,
in which order, and what was taken back, can be seen. A step is right when the answers in their order, the operations
that learn whether their records are committed or lost, the batches in the log, the coordinator's state, and the toy's
are Kafka's. Kafka's answers are errors of the log; its services put them in a coordinator's words, and so do we.

A case: `linger` (ms, or null: adaptive), `max` (max.message.bytes), `codec`, `steps`, and `expected`, one a step.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coordinator_core.bytes.log.batch import Record, parse_header
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import CoreError
from coordinator_core.live.coordinator.errors import Refused, answer_for_append_error
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.coordinator.records import NO_PRODUCER, Producer
from coordinator_core.live.coordinator.timers import Timer, Timers
from coordinator_core.live.runtime.batching import Batcher
from coordinator_core.live.runtime.coordinator import MARKER_ANSWERS, RuntimeConfig
from coordinator_core.live.runtime.machines import MachineKind, StateMachine
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import CoordinatorRuntime
from coordinator_core.live.runtime.states import CoordinatorState
from schemas.error_codes import ErrorCode
from tests.conformance.families.cases import Json, judge_cases

PARTITION = 7
START_MS = 1_000_000
RETRY_BACKOFF_MS = 500
"""CoordinatorTimerImpl's back-off where a timer names none."""
NEVER_MS = 10**12
PRODUCER_EPOCH = 1
COORDINATOR_EPOCH = 3


class ToyRecord(NamedTuple):
    """A record: its key, and the size of its value, -1 for a tombstone."""

    key: str
    size: int


def entry_of(key: str, offset: int, producer_id: int) -> str:
    """What a record adds to the state."""
    return f"{key}@{offset}" + (f"p{producer_id}" if producer_id >= 0 else "") + ","


def marker_of(producer_id: int, *, is_commit: bool) -> str:
    """What a marker adds to it."""
    return f"{'COMMIT' if is_commit else 'ABORT'}{producer_id},"


class ToyMachine(StateMachine):
    """The state machine. `events` gets a line for every operation that is committed or lost, and every timer."""

    def __init__(self, state: str, batcher: Batcher, events: list[str]) -> None:
        self._state = state
        self._batcher = batcher
        self._events = events
        self._timers = Timers()

    @property
    def state(self) -> str:
        return self._state

    def revert(self, state: str) -> None:
        self._state = state

    def handle(self, request: Request, now_ms: int) -> Outcome:
        step: Json = request.message
        producer = Producer(step["pid"], PRODUCER_EPOCH) if step["op"] == "txn" else NO_PRODUCER
        timer = step.get("timer")
        if timer is not None:
            self._schedule(timer, now_ms + timer["delay"])
        is_parked = step.get("parked", False)
        try:
            self._append(step.get("records", ()), producer, now_ms, is_atomic=step.get("atomic", True))
        except Refused as refused:
            if is_parked:
                self._tell(step["id"], refused)
            return Outcome(error=Refused(answer_for_append_error(refused.code)))
        return Outcome(f"r{step['id']}", parked=(partial(self._tell, step["id"]),) if is_parked else ())

    def run_next_timer(self, now_ms: int) -> Outcome:
        timer = self._timers.pop_due(now_ms)
        assert timer is not None
        self._events.append(f"timer {timer.key}")
        (details,) = timer.arguments
        try:
            self._append(details["records"], NO_PRODUCER, now_ms, is_atomic=True)  # type: ignore[index]
        except Refused as refused:
            self._retry(timer, refused, now_ms)
            return Outcome()
        return Outcome(parked=(partial(self._retry_now, timer),))

    def _retry_now(self, timer: Timer, error: Refused | None) -> None:
        self._retry(timer, error, self._now_ms)

    def resume(self, parked: Any, error: Refused | None, now_ms: int) -> Outcome:
        self._now_ms = now_ms
        parked(error)
        return Outcome()

    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        self._batcher.append_marker(producer, now_ms, committed=is_commit)
        self._state += marker_of(producer.producer_id, is_commit=is_commit)

    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str], now_ms: int) -> Outcome:
        return Outcome()

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def _append(self, rows: Iterable[tuple[str, int]], producer: Producer, now_ms: int, *, is_atomic: bool) -> None:
        records = [ToyRecord(*row) for row in rows]
        if not records:
            return
        if is_atomic or producer != NO_PRODUCER:
            first_offset = self._batcher.append(records, producer, now_ms)
            for offset, record in enumerate(records, first_offset):
                self._state += entry_of(record.key, offset, producer.producer_id)
            return
        for record in records:
            self._state += entry_of(record.key, self._batcher.append_one(record, now_ms), -1)

    def _tell(self, number: int, error: Refused | None) -> None:
        outcome = "ok" if error is None else answer_for_append_error(error.code).name
        self._events.append(f"appended {number} {outcome}")

    def _schedule(self, details: Json, at_ms: int) -> None:
        backoff_ms = RETRY_BACKOFF_MS if details["retry"] else None
        self._timers.schedule(details["key"], at_ms, "toy", (details,), retry_backoff_ms=backoff_ms)

    def _retry(self, timer: Timer, error: Refused | None, now_ms: int) -> None:
        is_worth_it = error is not None and error.code is not ErrorCode.NOT_COORDINATOR
        if is_worth_it and timer.retry_backoff_ms is not None:
            self._schedule(timer.arguments[0], now_ms + timer.retry_backoff_ms)  # type: ignore[arg-type]


class ToyMachines(MachineKind):
    """The kind of the toy. While `fails_to_load`, no log can be loaded."""

    topic = "__consumer_offsets"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails_to_load = False

    def empty_state(self) -> str:
        if self.fails_to_load:
            raise CoreError("planned to fail")
        return ""

    def replay(self, state: str, record: Record, producer_id: int) -> str:
        return state + entry_of((record.key or b"").decode(), record.offset, producer_id)

    def replay_marker(self, state: str, producer_id: int, *, is_commit: bool) -> str:
        return state + marker_of(producer_id, is_commit=is_commit)

    def start(self, state: str, batcher: Batcher, image: MetadataImage, now_ms: int) -> ToyMachine:
        self.events.append("loaded")
        return ToyMachine(state, batcher, self.events)

    def encode(self, record: ToyRecord) -> tuple[bytes, bytes | None]:
        return record.key.encode(), None if record.size < 0 else bytes(record.size)


class ToyLog(PartitionLog):
    """A log which tells what was appended, and refuses while `refusal` is set."""

    def __init__(self, message_bytes_max: int) -> None:
        super().__init__("__consumer_offsets", PARTITION, (0, 1), message_bytes_max=message_bytes_max)
        self.refusal: str | None = None
        self.appended: list[Json] = []

    def append(self, broker_id: int, batch: bytes) -> int:
        if self.refusal is not None:
            raise Refused(ErrorCode[self.refusal])
        end_offset = super().append(broker_id, batch)
        data = next(iter(self.batches(end_offset - 1))).data
        header = parse_header(data)
        self.appended.append(
            {
                "base": header.base_offset,
                "count": header.last_offset - header.base_offset + 1,
                "pid": header.producer_id,
                "txn": header.is_transactional,
                "control": header.is_control,
                "size": header.size,
                "seq": header.base_sequence,
                "max_ts": header.max_timestamp_ms,
                "codec": header.codec_id,
                "ts": [record.timestamp_ms for record in iter_records(data)],
            }
        )
        return end_offset

    def move_high_watermark(self, offset: int) -> None:
        """As if the followers had fetched so far."""
        self.replicas[0].high_watermark = offset
        if self.on_high_watermark is not None:
            self.on_high_watermark()


class Life:
    """One case, lived."""

    def __init__(self, case: Json) -> None:
        self.kind = ToyMachines()
        self.log = ToyLog(case["max"])
        config = RuntimeConfig(append_linger_ms=case["linger"], codec_id=case["codec"])
        self.runtime = CoordinatorRuntime(0, self.kind, config)
        self.now_ms = START_MS
        self.answers: list[str] = []

    def take(self, step: Json) -> Json:
        """Take a step; gives what it led to."""
        self.kind.events.clear()
        self.log.appended = []
        self.answers = []
        getattr(self, f"_{step['op']}")(step)
        coordinator = self.runtime.coordinators.get(PARTITION)
        machine = None if coordinator is None else coordinator.machine
        return {
            "answers": self.answers,
            "events": list(self.kind.events),
            "batches": self.log.appended,
            "end": self.log.end_offset,
            "state": "NONE" if coordinator is None else coordinator.state.name,
            "shard": None if machine is None else machine.state,
        }

    def _load(self, step: Json) -> None:
        self.log.leader_epoch = step["epoch"]
        self.runtime.load(self.log, now_ms=self.now_ms, duration_ms=NEVER_MS)
        self._drain(step)

    def _loaded(self, step: Json) -> None:
        """The case says when loading ends: for the coordinator that is far in the future, for nobody else."""
        coordinator = self.runtime.coordinators[PARTITION]
        assert coordinator.state is CoordinatorState.LOADING
        self.kind.fails_to_load = not step["ok"]
        for answer in coordinator.run(NEVER_MS + self.now_ms):
            self._note(answer)
        self.kind.fails_to_load = False
        self._drain(step)

    def _unload(self, step: Json) -> None:
        for answer in self.runtime.unload(PARTITION, step["epoch"], now_ms=self.now_ms):
            self._note(answer)

    def _write(self, step: Json) -> None:
        self.runtime.submit(PARTITION, Request(step["op"], step, step["id"]))

    _txn = _write

    def _read(self, step: Json) -> None:
        """Nothing: no request of a simulation reads the committed state."""

    def _end(self, step: Json) -> None:
        producer = Producer(step["pid"], PRODUCER_EPOCH)
        self.runtime.submit(PARTITION, EndTransaction(producer, step["commit"], COORDINATOR_EPOCH, step["id"]))

    def _hw(self, step: Json) -> None:
        self.log.move_high_watermark(step["offset"])

    def _refuse(self, step: Json) -> None:
        self.log.refusal = step["error"]

    def _drain(self, step: Json) -> None:
        for answer in self.runtime.run(self.now_ms):
            self._note(answer)

    def _advance(self, step: Json) -> None:
        until_ms = self.now_ms + step["ms"]
        while (deadline_ms := self.runtime.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._drain(step)
        self.now_ms = until_ms

    def _note(self, answer: Answer) -> None:
        said = "null" if answer.response is None else answer.response
        said = said if answer.error is None else answer.error.code.name
        self.answers.append(f"answer {answer.request_id} {said}".rstrip())


def in_our_words(expected: Json, markers: frozenset[int], reads: frozenset[int]) -> Json:
    """What Kafka's runtime gave, with errors as its services and brokers word them; without answers to reads, and the
    others apart from the rest."""
    said = [_worded(line, markers) for line in expected["events"]]
    said = [line for line in said if not (line.startswith("answer") and int(line.split()[1]) in reads)]
    return {
        **expected,
        "answers": [line for line in said if line.startswith("answer")],
        # Kafka has a shard while it loads one, and unloads it when that fails
        "events": [line for line in said if not line.startswith("answer") and line != "unloaded"],
        "shard": None if expected["state"] == "LOADING" else expected["shard"],
    }


def _worded(line: str, markers: frozenset[int]) -> str:
    kind, *rest = line.split(" ", 2)
    if len(rest) < 2 or rest[1] not in ErrorCode.__members__:
        return line.rstrip()
    code = answer_for_append_error(ErrorCode[rest[1]])
    if kind == "answer" and int(rest[0]) in markers and code in MARKER_ANSWERS:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return f"{kind} {rest[0]} {code.name}"


def _comparable(step: Json, codec_id: int) -> Json:
    """Compressed sizes are the library's, not Kafka's."""
    if codec_id == Codec.NONE:
        return step
    batches = [{name: value for name, value in batch.items() if name != "size"} for batch in step["batches"]]
    return {**step, "batches": batches}


def run(path: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures)."""
    return judge_cases(path, fault_of)


def fault_of(case: Json) -> str | None:
    """The first step which is not as in Kafka, or None."""
    life = Life(case)
    markers = frozenset(step["id"] for step in case["steps"] if step["op"] == "end")
    reads = frozenset(step["id"] for step in case["steps"] if step["op"] == "read")
    for number, (step, expected) in enumerate(zip(case["steps"], case["expected"], strict=True)):
        actual = _comparable(life.take(step), case["codec"])
        wanted = _comparable(in_our_words(expected, markers, reads), case["codec"])
        for name, value in wanted.items():
            if actual[name] != value:
                return f"step {number} ({step['op']}), {name}: {actual[name]} is not {value}"
    return None
