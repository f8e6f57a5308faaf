"""ShareCoordinator: one live `__share_group_state` partition (CoordinatorRuntime over ShareCoordinatorShard, KIP-932).

It works as the group coordinator does: a command decides (`commands`), the records go to the log, and only their replay
changes the state. `handle` serves a whole request as ShareCoordinatorService does, one operation for each partition;
`run` serves one partition, which is what a persister needs. What the log refuses is not replayed, and the error is in
the answer; who replicates the log and loses records later takes the state back with `revert`.

Deterministic: no clock, no randomness; each call takes the time, in epoch milliseconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from coordinator_core.coordinator.errors import ErrorCode, Refused, UnknownOperation, answer_for_append_error
from coordinator_core.coordinator.image import MetadataImage
from coordinator_core.coordinator.timers import Timers
from coordinator_core.errors import CoreError
from coordinator_core.share_state.commands import (
    OPERATIONS,
    Operation,
    View,
    snapshots_of_cold_partitions,
    tombstones_of_topics,
)
from coordinator_core.share_state.config import ShareCoordinatorConfig
from coordinator_core.share_state.messages import Response, Result, TopicResult
from coordinator_core.share_state.records import AppendedRecord, ShareStateRecord, replay_record
from coordinator_core.share_state.state import SharePartitionKey, ShareShard


class CoordinatorState(StrEnum):
    """Whether a broker serves this partition of the log (CoordinatorRuntime.CoordinatorState)."""

    INITIAL = "INITIAL"
    """Nothing is known yet. Elected -> LOADING."""
    LOADING = "LOADING"
    """The log is being replayed. Its end -> ACTIVE; an error -> FAILED. Requests: COORDINATOR_LOAD_IN_PROGRESS."""
    ACTIVE = "ACTIVE"
    """Requests are served. Another broker is elected -> CLOSED."""
    CLOSED = "CLOSED"
    """Another broker serves. Final, for this object. Requests: NOT_COORDINATOR."""
    FAILED = "FAILED"
    """The log could not be replayed. Elected anew -> LOADING. Requests: NOT_COORDINATOR."""


VALID_PREVIOUS: Final[Mapping[CoordinatorState, frozenset[CoordinatorState]]] = {
    CoordinatorState.INITIAL: frozenset(),
    CoordinatorState.LOADING: frozenset({CoordinatorState.INITIAL, CoordinatorState.FAILED}),
    CoordinatorState.ACTIVE: frozenset({CoordinatorState.ACTIVE, CoordinatorState.LOADING}),
    CoordinatorState.CLOSED: frozenset(CoordinatorState),
    CoordinatorState.FAILED: frozenset({CoordinatorState.LOADING}),
}
"""New state -> the states it may follow (CoordinatorState.canTransitionFrom)."""

REFUSAL: Final[Mapping[CoordinatorState, ErrorCode]] = {
    CoordinatorState.INITIAL: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorState.CLOSED: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.FAILED: ErrorCode.NOT_COORDINATOR,
}
"""What requests are answered with in any state but ACTIVE (CoordinatorRuntime.withActiveContextOrThrow)."""

SNAPSHOT_COLD_PARTITIONS: Final = "snapshot-cold-partitions"
PRUNE: Final = "write-state-record-prune"


class InvalidCoordinatorState(CoreError):
    """A transition of the coordinator itself which `VALID_PREVIOUS` does not hold."""


class Log(Protocol):
    """Where records go. `append` gives the offset of the first one, or raises Refused: then nothing was written."""

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int: ...

    def delete_records(self, before_offset: int) -> None:
        """Forget what stands below the offset; raises Refused where that fails."""
        ...


class MemoryLog:
    """A log which keeps its records. `next_offset` is where the next one goes, `start_offset` where the log begins."""

    def __init__(self, next_offset: int = 0) -> None:
        self.start_offset = next_offset
        self.next_offset = next_offset
        self.entries: list[AppendedRecord] = []

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int:
        first_offset = self.next_offset
        for offset, record in enumerate(records, first_offset):
            self.entries.append(AppendedRecord(offset, timestamp_ms, record))
        self.next_offset += len(records)
        return first_offset

    def delete_records(self, before_offset: int) -> None:
        self.start_offset = max(self.start_offset, min(before_offset, self.next_offset))
        self.entries = [entry for entry in self.entries if entry.offset >= self.start_offset]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call gave: the answer, if it was a request, and the records. `error`: why a job wrote nothing."""

    response: Any = None
    records: tuple[AppendedRecord, ...] = ()
    error: Refused | None = None


class ShareCoordinator:
    """One partition of `__share_group_state`, with the share partitions which belong to it.

    It begins ACTIVE and empty, or in another state: INITIAL, if it is to be loaded first.
    """

    def __init__(
        self,
        *,
        now_ms: int,
        config: ShareCoordinatorConfig | None = None,
        image: MetadataImage | None = None,
        log: Log | None = None,
        state: CoordinatorState = CoordinatorState.ACTIVE,
    ) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.image = image or MetadataImage()
        self.log: Log = log or MemoryLog()
        self.state = state
        self.shard = self._empty_shard()
        self.pruned_offset: int | None = None
        """Up to where this coordinator has pruned the log, exclusive."""
        self._jobs = Timers()
        self._schedule(SNAPSHOT_COLD_PARTITIONS, now_ms)
        self._schedule(PRUNE, now_ms)

    def _empty_shard(self) -> ShareShard:
        return ShareShard(updates_per_snapshot=self.config.updates_per_snapshot)

    # --- requests ---

    def handle(self, operation: str, request: Any, *, now_ms: int) -> Outcome:
        """Serve a request: one operation for each of its partitions, in its order, each appended on its own.

        Without a group id, without topics, or where a topic has no partition, the answer is empty. Of a partition which
        the request names twice the last result is given. Raises UnknownOperation where there is no such operation.
        Source: ShareCoordinatorService.
        """
        _operation(operation)
        is_valid = request.group_id and all(topic.partitions for topic in request.topics)
        if not is_valid:
            return Outcome(Response())
        results: dict[str, dict[int, Result]] = {}
        records: list[AppendedRecord] = []
        for topic in request.topics:
            topic_results = results.setdefault(topic.topic_id, {})
            for data in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
                result, written = self.run(operation, key, data, now_ms=now_ms)
                topic_results[data.partition] = result
                records.extend(written)
        response = Response(
            tuple(TopicResult(topic_id, tuple(partitions.values())) for topic_id, partitions in results.items())
        )
        return Outcome(response, tuple(records))

    def run(
        self, operation: str, key: SharePartitionKey, data: Any, *, now_ms: int
    ) -> tuple[Result, tuple[AppendedRecord, ...]]:
        """Serve the part of a request that concerns one partition: its result, and what was written.

        Raises UnknownOperation where there is no such operation; all other errors are in the result.
        """
        served = _operation(operation)
        if self.state is not CoordinatorState.ACTIVE:
            return _failed(served, key, Refused(REFUSAL[self.state])), ()
        view = View(self.shard, self.image, self.config, now_ms)
        try:
            for check in served.checks:
                check(view, key, data)
        except Refused as refused:
            return served.refused(key.partition, refused.code, refused.message), ()
        records, result = served.command(view, key, data)
        if not records:
            return result, ()
        try:
            return result, self._append(records, now_ms)
        except Refused as refused:
            return _failed(served, key, refused), ()

    def _append(self, records: tuple[ShareStateRecord, ...], now_ms: int) -> tuple[AppendedRecord, ...]:
        """Append the records of one operation and replay them. Where the log raises Refused, nothing changes."""
        first_offset = self.log.append(records, now_ms)
        appended = []
        for offset, record in enumerate(records, first_offset):
            self.shard = replay_record(self.shard, record, offset)
            appended.append(AppendedRecord(offset, now_ms, record))
        return tuple(appended)

    def revert(self, shard: ShareShard) -> None:
        """Back to an earlier `shard`: the records which came after it are lost (SnapshottableCoordinator)."""
        self.shard = shard

    # --- jobs ---

    def snapshot_cold_partitions(self, *, now_ms: int) -> Outcome:
        """Write a snapshot of each cold share partition (ShareCoordinatorShard.snapshotColdPartitions)."""
        return self._run_job(snapshots_of_cold_partitions, now_ms)

    def clean_up_deleted_topics(self, topic_ids: Iterable[str], *, now_ms: int) -> Outcome:
        """Write a tombstone for each share partition of topics which were deleted (maybeCleanupShareState)."""
        return self._run_job(lambda view: tombstones_of_topics(view, topic_ids), now_ms)

    def _run_job(self, job: Callable[[View], tuple[ShareStateRecord, ...]], now_ms: int) -> Outcome:
        if self.state is not CoordinatorState.ACTIVE:
            return Outcome(error=Refused(REFUSAL[self.state]))
        records = job(View(self.shard, self.image, self.config, now_ms))
        if not records:
            return Outcome()
        try:
            return Outcome(records=self._append(records, now_ms))
        except Refused as refused:
            return Outcome(error=refused)

    def prune(self) -> int | None:
        """Cut the log off below what is still needed: the new start, None where it stays.

        A log which refuses is asked again the next time. Source: ShareCoordinatorService.performRecordPruning.
        """
        offset = self.shard.last_redundant_offset
        if self.state is not CoordinatorState.ACTIVE or offset is None or offset == self.pruned_offset:
            return None
        try:
            self.log.delete_records(offset)
        except Refused:
            return None
        self.pruned_offset = offset
        return offset

    def next_deadline_ms(self) -> int | None:
        """When the next job is due."""
        return self._jobs.next_deadline_ms()

    def advance(self, now_ms: int) -> Outcome:
        """Run the jobs which are due by `now_ms`, each at its own deadline: cold snapshots and pruning.

        Each begins its interval anew when it is done, whatever became of it (setupPeriodicJobs).
        """
        records: list[AppendedRecord] = []
        error = None
        while (job := self._jobs.pop_due(now_ms)) is not None:
            self._schedule(job.name, job.deadline_ms)
            if job.name == PRUNE:
                self.prune()
                continue
            outcome = self.snapshot_cold_partitions(now_ms=job.deadline_ms)
            records.extend(outcome.records)
            error = outcome.error or error
        return Outcome(records=tuple(records), error=error)

    def _schedule(self, name: str, now_ms: int) -> None:
        is_prune = name == PRUNE
        interval_ms = self.config.prune_interval_ms if is_prune else self.config.cold_partition_snapshot_interval_ms
        self._jobs.schedule(name, now_ms + interval_ms, name)

    # --- the cluster ---

    def update_metadata(self, image: MetadataImage, *, now_ms: int) -> Outcome:
        """Take a new metadata image, and clean up after the topics which it has no more (onMetadataUpdate)."""
        deleted = [topic_id for topic_id in self.image.names if topic_id not in image.names]
        self.image = image
        return self.clean_up_deleted_topics(deleted, now_ms=now_ms)

    def begin_loading(self) -> None:
        """This broker was elected. Raises InvalidCoordinatorState where it was before."""
        self._move_to(CoordinatorState.LOADING)
        self.shard = self._empty_shard()

    def finish_loading(self, entries: Iterable[tuple[int, ShareStateRecord]]) -> None:
        """Replay the log, as (offset, record) in its order, and serve from then on.

        Raises InvalidCoordinatorState unless it is being loaded.
        """
        if self.state is not CoordinatorState.LOADING:
            raise InvalidCoordinatorState(f"nothing is loaded while {self.state}")
        shard = self._empty_shard()
        for offset, record in entries:
            shard = replay_record(shard, record, offset)
        self.shard = shard
        self._move_to(CoordinatorState.ACTIVE)

    def fail_loading(self) -> None:
        """The log could not be read: FAILED, until the next election."""
        self._move_to(CoordinatorState.FAILED)

    def close(self) -> None:
        """Another broker was elected: nothing is served any more, and no job runs."""
        self._move_to(CoordinatorState.CLOSED)
        self.shard = self._empty_shard()
        self._jobs = Timers()

    def _move_to(self, following: CoordinatorState) -> None:
        if self.state not in VALID_PREVIOUS[following]:
            raise InvalidCoordinatorState(f"no transition {self.state} -> {following}")
        self.state = following


def _operation(name: str) -> Operation:
    operation = OPERATIONS.get(name)
    if operation is None:
        raise UnknownOperation(f"the share coordinator has no operation {name}")
    return operation


def _failed(operation: Operation, key: SharePartitionKey, refused: Refused) -> Result:
    """The answer where the coordinator or its log failed, not the request (handleOperationException)."""
    return operation.refused(key.partition, answer_for_append_error(refused.code), operation.failure + refused.message)
