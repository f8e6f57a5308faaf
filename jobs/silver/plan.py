"""The plan of a replay: what it does with each log partition, and with the rows of earlier runs."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from coordinator_core.bytes.coverage import union
from coordinator_core.bytes.log.copies import Load
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.copies import NO_REWRITES, Rewrites
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.table_files import TableFile
from jobs.silver.checkpoints import (
    EarlierCheckpoint,
    ReplayMode,
    SavedLog,
    Watermark,
    bronze_ranges,
    earlier_checkpoints,
    log_name,
    step_of,
    watermark_of,
)
from jobs.silver.replay_failures import NOTHING_LEFT_OUT, FailuresByLog, LeftOut, ReplayFailure
from jobs.silver.tasks import TABLES_OF_TOPIC, LogFiles
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.silver import CONFIGS, COORDINATOR_PARTITIONS, PARTITION_COUNTS, SILVER_TABLES, TOPICS

REMADE: Final = frozenset({ReplayMode.AFRESH, ReplayMode.GO_BACK})
"""Modes that rewrite rows of earlier runs."""

DRIVER_TABLES: Final = (TOPICS, PARTITION_COUNTS, COORDINATOR_PARTITIONS, CONFIGS)
"""Small tables that the driver writes from the results of all tasks."""
REPLAY_TABLES: Final = (*(table for table in SILVER_TABLES if table not in DRIVER_TABLES),)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: the mode of each log partition, and what happens to rows of earlier runs."""

    steps: Mapping[LogPartition, ReplayMode]
    logs: tuple[LogFiles, ...]
    """Log partitions to replay, by topic and partition."""
    watermarks: Mapping[LogPartition, Watermark]
    """The watermarks of all log partitions after the run."""
    again: frozenset[LogPartition] = frozenset()
    """Log partitions of which this run makes the rows of earlier runs again."""
    earlier: Mapping[LogPartition, EarlierCheckpoint] = dataclasses.field(default_factory=dict)
    """The checkpoints of log partitions that go back."""
    failures: tuple[ReplayFailure, ...] = ()
    """Failures of earlier runs in log partitions that are not replayed, since they cannot go back."""

    @property
    def is_afresh(self) -> bool:
        """True: nothing of earlier runs is kept."""
        return all(step is ReplayMode.AFRESH for step in self.steps.values())

    def made(self, *steps: ReplayMode) -> dict[str, frozenset[int]]:
        """By topic, the log partitions with one of these modes."""
        of_topic: dict[str, set[int]] = {}
        for (topic, partition), step in self.steps.items():
            if step in steps:
                of_topic.setdefault(topic, set()).add(partition)
        return {topic: frozenset(partitions) for topic, partitions in of_topic.items()}


def captured_files(tables: ClusterTables, version: int | None = None) -> dict[LogPartition, tuple[TableFile, ...]]:
    """Bronze's files of a cluster's log partitions; `version`: version of bronze, None: the newest."""
    by_log: dict[LogPartition, list[TableFile]] = {}
    for file in tables.files(RECORD_BATCHES, version):
        values = file.partition_values
        by_log.setdefault((values["topic"], int(values["partition"])), []).append(file)
    return {log: tuple(by_log[log]) for log in sorted(by_log)}


def make_plan(
    files: Mapping[LogPartition, tuple[TableFile, ...]],
    watermarks: Mapping[LogPartition, Watermark],
    saved: Mapping[str, SavedLog],
    dropped: Mapping[LogPartition, tuple[OffsetRange, ...]] = MappingProxyType({}),
    runs_before: Iterable[WholeRun] = (),
    rewrites: Rewrites = NO_REWRITES,
    failures: FailuresByLog = MappingProxyType({}),
    loads: Mapping[LogPartition, tuple[Load, ...]] = MappingProxyType({}),
) -> Plan:
    """Decide what to do with each log partition in bronze.

    `watermarks`, `saved`: from the last run; `runs_before`: earlier runs, newest first. `dropped`: offsets that
    retention deleted after these runs had replayed them. `rewrites`: where captures changed what was replayed.
    `failures`: what the last run failed to replay. `loads`: where leaders loaded a log whose start had moved.
    """
    now = {log: tuple(union([*bronze_ranges(log_files), *dropped.get(log, ())])) for log, log_files in files.items()}
    known = {log: watermarks[log] for log in now if log in watermarks and log_name(*log) in saved}
    changed = {log: rewrites.since(log, mark.capture_version) for log, mark in known.items()}
    steps = {log: step_of(ranges, known.get(log), changed.get(log)) for log, ranges in now.items()}
    failed_from = {log: min(failure.from_offset for failure in found) for log, found in failures.items()}
    going_on = {log: step for log, step in steps.items() if log in failures and step is not ReplayMode.AFRESH}
    steps |= dict.fromkeys(going_on, ReplayMode.AFRESH)
    late = {log: now[log] for log, step in steps.items() if step is ReplayMode.AFRESH and log in known}
    earlier = earlier_checkpoints(runs_before, late, tables_of, rewrites, failed_from)
    steps |= dict.fromkeys(earlier, ReplayMode.GO_BACK)
    # what retention deleted from bronze cannot be read again: all else continues
    stuck = {log: step for log, step in going_on.items() if log in dropped and steps[log] is ReplayMode.AFRESH}
    steps |= stuck
    left_out = {log: LeftOut(failures[log]) for log in stuck}
    logs = []
    forgetful = {
        log: forgetful_loads(of_log, now[log], dropped.get(log, ())) for log, of_log in loads.items() if log in now
    }
    for log, step in steps.items():
        match step:
            case ReplayMode.AFRESH:
                logs.append(LogFiles(*log, files[log]))
            case ReplayMode.GO_BACK:
                logs.append(LogFiles(*log, files[log], earlier[log].watermark.next_offset, earlier[log].saved))
            case ReplayMode.GO_ON:
                going = LogFiles(*log, files[log], known[log].next_offset, saved[log_name(*log)])
                logs.append(dataclasses.replace(going, left_out=left_out.get(log, NOTHING_LEFT_OUT)))
    logs = [dataclasses.replace(log, loads=forgetful.get((log.topic, log.partition), ())) for log in logs]
    again = frozenset(log for log, step in steps.items() if step in REMADE and log in watermarks)
    after = {log: watermark_of(ranges, rewrites.capture_version) for log, ranges in now.items()}
    resting = tuple(failure for log, step in stuck.items() if step is ReplayMode.REST for failure in failures[log])
    return Plan(steps, tuple(logs), after, again, earlier, resting)


def forgetful_loads(
    loads: Iterable[Load], ranges: Sequence[OffsetRange], dropped: Iterable[OffsetRange]
) -> tuple[Load, ...]:
    """The loads behind offsets that bronze had below their start, and before which bronze still has all else: what a
    leader knew then is replayed."""
    return tuple(
        load
        for load in loads
        if ranges
        and ranges[0][0] < load.log_start_offset
        and not any(first < load.log_offset and last >= load.log_start_offset for first, last in dropped)
    )


def tables_of(log: LogPartition) -> tuple[Table, ...]:
    """The tables of silver that a run which goes back reads of the earlier run: settled rows."""
    return TABLES_OF_TOPIC.get(log[0], ())
