"""Rows of state.checkpoints about what the last run could not replay, for the next run, the audit and queries.

A group or share partition that cannot be replayed does not keep others from silver: the replay notes the fault where it
applies an operation or reads a record, and goes on with the other keys. Then the task starts again without the keys at
fault. A fault in a compiled loop, which has all keys at once, names none: the log partition is left out. The next run
tries again (`jobs.silver.plan`).
"""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.errors import ReplayFault
from coordinator_core.replay.lookup import Key, SharePartitionKey
from jobs.delta.replay_runs import WholeRun
from jobs.silver.checkpoints import log_name
from schemas.tables.state import CHECKPOINTS, Checkpoint

FAILURE_COLUMNS: Final = (
    *("log_topic", "log_partition", "group_id", "topic_id", "partition"),
    *("from_offset", "log_offset", "error"),
)
"""Columns of a failure in state.checkpoints."""
TEXT_MAX: Final = 500
"""Maximum length of an exception's text."""


class Fault(NamedTuple):
    """Why a replay failed, and where."""

    text: str
    group_id: str | None
    """The group, if the error names it."""
    log_offset: int | None
    """The record that failed, or the first record that was read together with it."""

    @classmethod
    def of(cls, error: Exception, log_offset: int | None) -> "Fault":
        """From an exception. `log_offset`: used if the exception names no record."""
        if not isinstance(error, ReplayFault):
            return cls(fault_text(error), None, log_offset)
        cause = error.__cause__
        text = fault_text(cause) if isinstance(cause, Exception) else error.message
        return cls(text, error.group_id, log_offset if error.log_offset is None else error.log_offset)


@dataclass(frozen=True, slots=True)
class ReplayFailure:
    """What a run failed to replay: a group, a share partition, or a log partition."""

    log_topic: str
    log_partition: int
    key: Key | None
    """None: the log partition."""
    fault: Fault
    from_offset: int
    """The offset from which that replay began: silver lacks the records from there on."""

    @property
    def group_id(self) -> str | None:
        """The group, or the group of the share partition."""
        return self.key.group_id if isinstance(self.key, SharePartitionKey) else self.key


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which parts of a log partition are not replayed, and why."""

    failures: tuple[ReplayFailure, ...] = ()

    @property
    def is_all(self) -> bool:
        """Is the whole log partition left out?"""
        return any(failure.key is None for failure in self.failures)

    @property
    def keys(self) -> frozenset[Key]:
        """The groups or share partitions left out."""
        return frozenset(failure.key for failure in self.failures if failure.key is not None)


NOTHING_LEFT_OUT: Final = LeftOut()

FailuresByLog = Mapping[LogPartition, tuple[ReplayFailure, ...]]


def read_failures(run: WholeRun) -> dict[LogPartition, tuple[ReplayFailure, ...]]:
    """What a run could not replay, by log partition."""
    failures: dict[LogPartition, tuple[ReplayFailure, ...]] = {}
    for row in run.read(CHECKPOINTS, FAILURE_COLUMNS, kind=Checkpoint.FAILURE).to_pylist():
        log = row["log_topic"], row["log_partition"]
        key = row["group_id"]
        if row["topic_id"] is not None:
            key = SharePartitionKey(key, row["topic_id"], row["partition"])
        fault = Fault(row["error"], row["group_id"], row["log_offset"])
        failures[log] = (*failures.get(log, ()), ReplayFailure(*log, key, fault, row["from_offset"]))
    return failures


def failure_rows(failures: Iterable[ReplayFailure]) -> list[Mapping[str, Any]]:
    """Rows of state.checkpoints; failures that several tasks report become one row."""
    rows: dict[tuple[str, int, Key | None], Mapping[str, Any]] = {}
    for failure in failures:
        key = failure.key
        share = key if isinstance(key, SharePartitionKey) else None
        row = (
            failure.log_topic,
            failure.log_partition,
            failure.group_id,
            None if share is None else share.topic_id,
            None if share is None else share.partition,
            failure.from_offset,
            failure.fault.log_offset,
            failure.fault.text,
        )
        rows.setdefault((failure.log_topic, failure.log_partition, key), dict(zip(FAILURE_COLUMNS, row, strict=True)))
    return list(rows.values())


def groups_left_out(failures: Iterable[ReplayFailure]) -> frozenset[str] | None:
    """The groups of which silver lacks something; None: all groups."""
    group_ids = [failure.group_id for failure in failures]
    return None if None in group_ids else frozenset(group_id for group_id in group_ids if group_id is not None)


def failure_text(failure: ReplayFailure) -> str:
    """A failure in words: what failed, where, and what silver lacks."""
    log = log_name(failure.log_topic, failure.log_partition)
    share = (
        f" of share partition {failure.key.as_coordinator_key()}" if isinstance(failure.key, SharePartitionKey) else ""
    )
    at = "" if failure.fault.log_offset is None else f" at offset {failure.fault.log_offset}"
    return f"{failure.fault.text}{share}; {log}{at}; silver lacks it from offset {failure.from_offset} on"


def fault_text(error: Exception) -> str:
    """An exception in one line: its type, its text, and its place in the code."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error)
    if len(text) > TEXT_MAX:
        # cut between words: an erasure would not find part of an id
        kept = text[:TEXT_MAX]
        text = kept if text[TEXT_MAX].isspace() else kept[: kept.rfind(" ") + 1]
    return f"{type(error).__name__}: {text}{place}"
