"""Conformance of the live share partition with Kafka's own SharePartition, step by step.

Of each step are judged: the result, the writes in their order, which requests are answered and with which error, when
locks run out, and the whole state after it. Locks of one deadline must run out in the order of their making, as Kafka's
timer has it here, though its real one promises no order. Where a case runs into a fault of Kafka, the steps before that
are judged.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coordinator_core.live.share_partition.acknowledge import acknowledge, complete_write, expire_lock, release
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.archive import update_log_start_offset
from coordinator_core.live.share_partition.errors import RefusedRequest, SharePartitionError
from coordinator_core.live.share_partition.in_flight import InFlightState
from coordinator_core.live.share_partition.initialize import begin_initialization, complete_initialization
from coordinator_core.live.share_partition.state import (
    AbortedTransaction,
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatches,
    IsolationLevel,
    LogBatch,
    PersisterError,
    ReadState,
    SharePartition,
    SharePartitionConfig,
    WriteState,
)
from coordinator_core.live.share_partition.window import can_acquire_records, next_fetch_offset
from coordinator_core.replay.share_state.combine import StateBatch
from tests.conformance.families.cases import judge_cases

NO_LOCK = -1


def run(path: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures). A case passes if all its judged steps are right."""
    return judge_cases(path, judge)


def judge(case: Mapping[str, Any]) -> str | None:
    """What is wrong first, None if nothing is."""
    replay = _Replay(case)
    state = replay.dump()
    if state != case["init"]["state"]:
        return f"start-up: {_difference(state, case['init']['state'])}"
    steps = case["steps"]
    if case["kafkaBugFromStep"] >= 0:
        steps = steps[: case["kafkaBugFromStep"]]
    for step in steps:
        try:
            answer = replay.run(step)
        except (SharePartitionError, AssertionError, ValueError) as error:
            return f"step {step['i']} ({step['op']}): raised {error!r}"
        expected = {
            "result": step["result"],
            "completed": sorted(((done["step"], done["error"]) for done in step["completed"]), key=str),
            "writes": [_without_result(write) for write in step["writes"]],
            "state": step["state"],
        }
        if answer != expected:
            return f"step {step['i']} ({step['op']}): {_difference(answer, expected)}"
    return None


def _difference(answer: Any, expected: Any) -> str:
    if isinstance(answer, dict) and isinstance(expected, dict):
        for name in expected:
            if answer.get(name) != expected[name]:
                return f"{name}: {_difference(answer.get(name), expected[name])}"
    return f"{answer} is not {expected}"


def _without_result(write: Mapping[str, Any]) -> dict[str, Any]:
    """The result is played by the trace, not answered by the share partition."""
    return {name: write[name] for name in write if name != "result"}


class _Replay:
    """One case under way, with the part of the persister played."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        config = case["config"]
        self.is_async = case["kind"] == "async"
        self.partition = SharePartition(
            SharePartitionConfig(
                leader_epoch=config["leaderEpoch"],
                in_flight_records_max=config["maxInFlightRecords"],
                delivery_count_limit=config["maxDeliveryCount"],
                record_lock_duration_ms=config["recordLockDurationMs"],
                is_renew_acknowledge_enabled=config["renewAcknowledgeEnabled"],
            )
        )
        self.next_error: PersisterError | None = None
        self.step_number = -1
        self.waiting: dict[int, int] = {}
        """Write id -> the step whose request waits for it."""
        self.writes: list[dict[str, Any]] = []
        self.completed: list[tuple[int, str | None]] = []
        self.fired_at_ms: list[int] = []
        read = case["readState"]
        assert begin_initialization(self.partition)
        complete_initialization(
            self.partition,
            ReadState(
                read["startOffset"],
                read["stateEpoch"],
                tuple(StateBatch(*batch) for batch in read["stateBatches"]),
            ),
        )

    def run(self, step: Mapping[str, Any]) -> dict[str, Any]:
        self.step_number = step["i"]
        self.writes, self.completed, self.fired_at_ms = [], [], []
        self.expire_locks(step["timeMs"])
        if step["nextWriteError"] is not None:
            self.next_error = PersisterError(step["nextWriteError"])
        self.fired_at_ms = []
        run: Callable[[Mapping[str, Any], int], Any] = getattr(self, f"run_{step['op']}")
        result = run(step["args"], step["timeMs"])
        if step["thenCompleteWriteOk"] is not None:
            self.complete(step["thenCompleteWriteOk"], None)
        return {
            "result": result,
            "completed": sorted(self.completed, key=str),
            "writes": self.writes,
            "state": self.dump(),
        }

    def run_skip(self, args: Mapping[str, Any], now_ms: int) -> None:
        return None

    def run_acquire(self, args: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        infos = args.get("batchInfo") or [None] * len(args["recordBatches"])
        log_batches = [
            LogBatch(first, last)
            if info is None
            else LogBatch(first, last, info["producerId"], info["transactional"], info["control"] == "ABORT")
            for (first, last), info in zip(args["recordBatches"], infos, strict=True)
        ]
        aborted = [AbortedTransaction(t["producerId"], t["firstOffset"]) for t in args.get("abortedTransactions") or ()]
        acquired = acquire(
            self.partition,
            args["memberId"],
            FetchedBatches(args["fetchOffset"], log_batches, aborted),
            now_ms,
            batch_size=args["batchSize"],
            fetch_records_max=args["maxFetchRecords"],
            mode=AcquireMode(args["acquireMode"]),
            isolation=IsolationLevel(args["isolation"]),
        )
        return {"count": acquired.record_count, "acquired": [list(records) for records in acquired.records]}

    def run_acknowledge(self, args: Mapping[str, Any], now_ms: int) -> str:
        batches = [AcknowledgementBatch(b["first"], b["last"], tuple(b["types"])) for b in args["batches"]]
        return self.request(lambda: acknowledge(self.partition, args["memberId"], batches, now_ms))

    def run_release(self, args: Mapping[str, Any], now_ms: int) -> str:
        return self.request(lambda: release(self.partition, args["memberId"]))

    def run_advance(self, args: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        self.expire_locks(now_ms + args["ms"])
        return {"timersFiredAtMs": self.fired_at_ms}

    def run_updateLogStartOffset(self, args: Mapping[str, Any], now_ms: int) -> None:  # noqa: N802
        update_log_start_offset(self.partition, args["logStartOffset"])

    def run_nextFetchOffset(self, args: Mapping[str, Any], now_ms: int) -> dict[str, Any]:  # noqa: N802
        return {"offset": next_fetch_offset(self.partition)}

    def run_completeWrite(self, args: Mapping[str, Any], now_ms: int) -> None:  # noqa: N802
        self.complete(args["writeId"], None if args["result"] == "ok" else PersisterError(args["result"]))

    def request(self, command: Callable[[], WriteState | None]) -> str:
        try:
            write = command()
        except RefusedRequest as error:
            self.completed.append((self.step_number, error.error_class))
            return "future"
        if write is None:
            self.completed.append((self.step_number, None))
        else:
            self.waiting[write.write_id] = self.step_number
            self.issue(write)
        return "future"

    def expire_locks(self, now_ms: int) -> None:
        while (expired := expire_lock(self.partition, now_ms)) is not None:
            lock, write = expired
            self.fired_at_ms.append(lock.deadline_ms)
            if write is not None:
                self.issue(write)

    def issue(self, write: WriteState) -> None:
        self.writes.append(
            {
                "id": write.write_id,
                "startOffset": write.start_offset,
                "stateEpoch": write.state_epoch,
                "leaderEpoch": write.leader_epoch,
                "deliveryCompleteCount": write.delivery_complete_count,
                "stateBatches": [
                    [b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in write.state_batches
                ],
            }
        )
        if not self.is_async:
            error, self.next_error = self.next_error, None
            self.complete(write.write_id, error)

    def complete(self, write_id: int, error: PersisterError | None) -> None:
        complete_write(self.partition, write_id, error)
        waiting = self.waiting.pop(write_id, None)
        if waiting is not None:
            self.completed.append((waiting, None if error is None else error.error_class))

    def dump(self) -> dict[str, Any]:
        partition = self.partition
        # The trace asks in this order, and asking for the next fetch offset may clear the flag.
        can_acquire = can_acquire_records(partition)
        finds_next = partition.find_next_fetch_offset
        gap_window = partition.gap_window
        return {
            "partitionState": str(partition.partition_state),
            "startOffset": partition.start_offset,
            "endOffset": partition.end_offset,
            "deliveryCompleteCount": partition.delivery_complete_count,
            "canAcquireRecords": can_acquire,
            "findNextFetchOffset": finds_next,
            "gapWindow": None if gap_window is None else [gap_window.gap_start_offset, gap_window.end_offset],
            "batches": [
                {
                    "first": batch.first_offset,
                    "last": batch.last_offset,
                    "state": None if batch.whole is None else _dump_state(batch.whole),
                    "offsets": None
                    if batch.offsets is None
                    else [
                        [offset, *_dump_state(state)] for offset, state in enumerate(batch.offsets, batch.first_offset)
                    ],
                }
                for batch in partition.cached
            ],
            "nextFetchOffset": next_fetch_offset(partition),
        }


def _dump_state(state: InFlightState) -> list[Any]:
    deadline_ms = NO_LOCK if state.lock is None or state.lock.has_expired else state.lock.deadline_ms
    return [int(state.state), state.delivery_count, state.member_id, state.is_under_way, deadline_ms]
