"""ShareCoordinator: one live `__share_group_state` partition (CoordinatorRuntime over ShareCoordinatorShard, KIP-932).

It works like the group coordinator: a command decides (`commands`), the records are appended to the log, and only their
replay changes the state. `run` serves the part of a request for one share partition. Records that the log refuses are
not replayed, and the result has the error. A caller that replicates the log and later loses records restores the state
with `revert`.

Deterministic: no clock, no randomness; each call gets the time, in epoch milliseconds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from coordinator_core.live.coordinator.errors import Refused, UnknownOperation, answer_for_append_error
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.timers import Timers
from coordinator_core.live.share_state.commands import (
    OPERATIONS,
    Operation,
    View,
    snapshots_of_cold_partitions,
    tombstones_of_topics,
)
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.messages import Result
from coordinator_core.live.share_state.records import AppendedRecord, ShareStateRecord, replay_record
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.state import ShareShard

SNAPSHOT_COLD_PARTITIONS: Final = "snapshot-cold-partitions"
PRUNE: Final = "write-state-record-prune"


class Log(Protocol):
    """Where records are appended. `append` returns the offset of the first one, or raises Refused: then nothing was
    written.
    """

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job."""

    records: tuple[AppendedRecord, ...] = ()
    error: Refused | None = None
    """Why a job wrote nothing."""
    delete_before_offset: int | None = None
    """Prune the log: delete the records below this offset, then call `records_deleted`. None: nothing is redundant."""


class ShareCoordinator:
    """One partition of `__share_group_state`, with its share partitions.

    It serves from the first call on. `shard` is the state after replaying the existing log. During that replay, and
    after another broker took over, the runtime answers instead.
    """

    def __init__(
        self,
        *,
        now_ms: int,
        log: Log,
        config: ShareCoordinatorConfig | None = None,
        image: MetadataImage | None = None,
        shard: ShareShard | None = None,
    ) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.image = image or MetadataImage()
        self.log = log
        self.shard = shard or empty_shard(self.config)
        self._pruned_offset: int | None = None
        self._jobs = Timers()
        self._schedule(SNAPSHOT_COLD_PARTITIONS, now_ms)
        self._schedule(PRUNE, now_ms)

    # --- requests ---

    def run(
        self, operation: str, key: SharePartitionKey, data: Any, *, now_ms: int
    ) -> tuple[Result, tuple[AppendedRecord, ...]]:
        """Serve the part of a request for one partition. Returns its result, and what was written.

        Raises UnknownOperation if there is no such operation; all other errors are in the result.
        """
        served = OPERATIONS.get(operation)
        if served is None:
            raise UnknownOperation(f"the share coordinator has no operation {operation}")
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
            return _failed(served, key.partition, refused), ()

    def _append(self, records: tuple[ShareStateRecord, ...], now_ms: int) -> tuple[AppendedRecord, ...]:
        """Append the records of one operation and replay them. Where the log raises Refused, nothing changes."""
        first_offset = self.log.append(records, now_ms)
        appended = []
        for offset, record in enumerate(records, first_offset):
            self.shard = replay_record(self.shard, record, offset)
            appended.append(AppendedRecord(offset, now_ms, record))
        return tuple(appended)

    def revert(self, shard: ShareShard) -> None:
        """Restore an earlier `shard`: the records after it are lost (SnapshottableCoordinator)."""
        self.shard = shard

    # --- jobs ---

    def snapshot_cold_partitions(self, *, now_ms: int) -> Outcome:
        """Write a snapshot of each cold share partition (ShareCoordinatorShard.snapshotColdPartitions)."""
        return self._run_job(snapshots_of_cold_partitions, now_ms)

    def clean_up_deleted_topics(self, topic_ids: Iterable[str], *, now_ms: int) -> Outcome:
        """Write a tombstone for each share partition of deleted topics (maybeCleanupShareState)."""
        return self._run_job(lambda view: tombstones_of_topics(view, topic_ids), now_ms)

    def _run_job(self, job: Callable[[View], tuple[ShareStateRecord, ...]], now_ms: int) -> Outcome:
        records = job(View(self.shard, self.image, self.config, now_ms))
        if not records:
            return Outcome()
        try:
            return Outcome(records=self._append(records, now_ms))
        except Refused as refused:
            return Outcome(error=refused)

    def redundant_offset(self) -> int | None:
        """The offset up to which the log may be pruned, exclusive; None if it was pruned already, or nothing is
        redundant.

        Source: ShareCoordinatorService.performRecordPruning.
        """
        offset = self.shard.last_redundant_offset
        return None if offset == self._pruned_offset else offset

    def records_deleted(self, before_offset: int) -> None:
        """The log was pruned: do not return this offset again."""
        self._pruned_offset = before_offset

    def next_deadline_ms(self) -> int | None:
        return self._jobs.next_deadline_ms()

    def advance(self, now_ms: int) -> Outcome:
        """Run the jobs that are due by `now_ms`, each at its own deadline: cold snapshots and pruning.

        Each job restarts its interval when it is done, whatever its result (setupPeriodicJobs).
        """
        records: list[AppendedRecord] = []
        error = delete_before_offset = None
        while (job := self._jobs.pop_due(now_ms)) is not None:
            self._schedule(job.name, job.deadline_ms)
            if job.name == PRUNE:
                delete_before_offset = self.redundant_offset()
                continue
            outcome = self.snapshot_cold_partitions(now_ms=job.deadline_ms)
            records.extend(outcome.records)
            error = outcome.error or error
        return Outcome(tuple(records), error, delete_before_offset)

    def _schedule(self, name: str, now_ms: int) -> None:
        is_prune = name == PRUNE
        interval_ms = self.config.prune_interval_ms if is_prune else self.config.cold_partition_snapshot_interval_ms
        self._jobs.schedule(name, now_ms + interval_ms, name)

    # --- the cluster ---

    def update_metadata(self, image: MetadataImage, *, now_ms: int) -> Outcome:
        """Apply a new metadata image, and clean up after topics that it no longer has (onMetadataUpdate)."""
        deleted = [topic_id for topic_id in self.image.names if topic_id not in image.names]
        self.image = image
        return self.clean_up_deleted_topics(deleted, now_ms=now_ms)


def empty_shard(config: ShareCoordinatorConfig) -> ShareShard:
    return ShareShard(updates_per_snapshot=config.updates_per_snapshot, kafka_version=config.kafka_version)


def _failed(operation: Operation, partition: int, refused: Refused) -> Result:
    """The result where the coordinator or its log failed, not the request (handleOperationException)."""
    return operation.refused(partition, answer_for_append_error(refused.code), operation.failure + refused.message)
