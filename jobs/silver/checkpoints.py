"""Checkpoints of replay: the state that a run saves for the next one, by log partition.

The replay of a log partition continues from its saved state if all new offsets follow the replayed ones. State only
moves forward: if lower offsets were captured since, the replay starts from the state that the last run before them
left, as long as Delta still has it, else from the beginning of the log partition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from coordinator_core.bytes.coverage import subtract, union
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from coordinator_core.errors import StateUnreadable
from coordinator_core.history.checkpoint import STATE_FORMAT
from coordinator_core.history.log_checkpoint import unpack_offset_state
from coordinator_core.history.offsets_log import OffsetsLogState
from coordinator_core.replay.key_buckets import KeyBucket
from jobs.bronze.copies import NO_REWRITES, Rewrites
from jobs.bronze.writer import is_damaged
from jobs.delta.replay_runs import WholeRun
from jobs.delta.table_files import TableFile, read_file
from schemas.tables.declare import Table
from schemas.tables.state import ALL_LOGS, CHECKPOINTS, Checkpoint


class ReplayMode(Enum):
    """What a run does with a log partition."""

    REST = "nothing is new"
    GO_ON = "go on from where the last run stopped"
    GO_BACK = "go on from where an earlier run stopped: older offsets came"
    AFRESH = "from its beginning"


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a log partition is replayed."""

    next_offset: int
    replayed: tuple[OffsetRange, ...]
    """Ascending, disjoint offset ranges of bronze."""
    capture_version: int = -1
    """Number of the last capture whose changes of bronze (`jobs.bronze.copies.Rewrites`) are replayed."""


def log_name(topic: str, partition: int) -> str:
    """The name of a log partition's folder."""
    return f"{topic}-{partition}"


def bronze_ranges(files: Iterable[TableFile]) -> tuple[OffsetRange, ...]:
    """Offsets in the files of one log partition, without damaged batches, whose offsets cannot be trusted."""
    return tuple(
        union(
            (file.minimum["base_offset"], file.maximum["last_offset"])
            for file in files
            if file.row_count and not is_damaged(file)
        )
    )


def step_of(now: tuple[OffsetRange, ...], before: Watermark | None, changed_from: int | None = None) -> ReplayMode:
    """Decide on a log partition of which bronze has the ranges `now`: REST or GO_ON, else AFRESH.

    `changed_from`: the first offset at which bronze changed since. A change below the watermark counts as lower
    offsets.
    """
    if before is None or (changed_from is not None and changed_from < before.next_offset):
        return ReplayMode.AFRESH
    new = subtract(now, before.replayed)
    if not new:
        return ReplayMode.REST
    return ReplayMode.GO_ON if new[0][0] >= before.next_offset else ReplayMode.AFRESH


def watermark_of(ranges: tuple[OffsetRange, ...], capture_version: int = -1) -> Watermark:
    """The watermark of a log partition whose ranges are all replayed."""
    return Watermark(ranges[-1][1] + 1 if ranges else 0, ranges, capture_version)


def read_watermarks(whole: WholeRun, *, of_any_format: bool = False) -> dict[LogPartition, Watermark]:
    """The watermarks of a run.

    Empty where its state is of another format, unless `of_any_format`: then they only say how far silver is.
    """
    rows = whole.read(CHECKPOINTS, WATERMARK_ROW, kind=Checkpoint.WATERMARK).to_pylist()
    if not of_any_format and any(row["state_format"] != STATE_FORMAT for row in rows):
        return {}
    return {(row["log_topic"], row["log_partition"]): watermark_from(row) for row in rows}


def watermark_from(row: Mapping[str, Any]) -> Watermark:
    """From a row of state.checkpoints or state.audited_logs."""
    replayed = tuple((item["first_offset"], item["last_offset"]) for item in row["replayed"])
    capture_version = row.get("capture_version")
    return Watermark(row["next_offset"], replayed, -1 if capture_version is None else capture_version)


WATERMARK_COLUMNS: Final = ("next_offset", "replayed", "capture_version")
"""Columns of a watermark in these tables."""
WATERMARK_ROW: Final = ("log_topic", "log_partition", "state_format", *WATERMARK_COLUMNS)
"""Columns of a row of state.checkpoints that is a watermark."""


def watermark_row(watermark: Watermark) -> dict[str, Any]:
    """Columns of a watermark for these tables."""
    replayed = [{"first_offset": first, "last_offset": last} for first, last in watermark.replayed]
    return {"next_offset": watermark.next_offset, "replayed": replayed, "capture_version": watermark.capture_version}


def watermark_rows(watermarks: Mapping[LogPartition, Watermark]) -> list[dict[str, Any]]:
    """Rows of state.checkpoints."""
    return [
        {
            "log_topic": topic,
            "log_partition": partition,
            "state_format": STATE_FORMAT,
            **watermark_row(watermark),
        }
        for (topic, partition), watermark in sorted(watermarks.items())
    ]


STATE_COLUMN: Final = "state"


@dataclass(frozen=True, slots=True)
class SavedLog:
    """The files with the state of one log partition. Small and picklable, as it is sent to a task."""

    logs: tuple[TableFile, ...]
    groups: tuple[TableFile, ...]

    def state(self) -> bytes:
        """The state of a log partition that one task replayed. Raises StateUnreadable where there is none."""
        states = self.states()
        if len(states) != 1:
            raise StateUnreadable(f"{len(states)} states of one log partition")
        return states[0]

    def states(self) -> list[bytes]:
        """The states of the log partition, one for each task that replayed it.

        Raises StateUnreadable where there is none.
        """
        states: list[bytes] = [
            value
            for file in self.logs
            for value in read_file(file, CHECKPOINTS, [STATE_COLUMN])[STATE_COLUMN].to_pylist()
        ]
        if not states:
            raise StateUnreadable("no state of a log partition")
        return states

    def offsets_log(self, bucket: KeyBucket | None = None) -> tuple[OffsetsLogState, dict[str, int | None]]:
        """The state of a `__consumer_offsets` partition, of all groups or of those in a bucket; and by group the run
        that last changed its state (None: unknown). Raises StateUnreadable.
        """
        groups: dict[str, bytes] = {}
        versions: dict[str, int | None] = {}
        for file in self.groups:
            rows = read_file(file, CHECKPOINTS, ["group_id", STATE_COLUMN, "changed_version"])
            group_ids = rows["group_id"].to_pylist()
            groups.update(zip(group_ids, rows[STATE_COLUMN].to_pylist(), strict=True))
            versions.update(zip(group_ids, rows["changed_version"].to_pylist(), strict=True))
        columnar_states = [unpack_offset_state(state) for state in self.states()]
        return OffsetsLogState.of(columnar_states, groups, bucket), versions


def changed_versions(files: Iterable[TableFile]) -> dict[str, int | None]:
    """By group of one log partition: the run that last changed its state; None: unknown."""
    versions: dict[str, int | None] = {}
    for file in files:
        rows = read_file(file, CHECKPOINTS, ["group_id", "changed_version"])
        versions.update(zip(rows["group_id"].to_pylist(), rows["changed_version"].to_pylist(), strict=True))
    return versions


@dataclass(frozen=True, slots=True)
class EarlierCheckpoint:
    """The checkpoint of an earlier run for one log partition."""

    run: WholeRun
    watermark: Watermark
    saved: SavedLog


def earlier_checkpoints(
    runs: Iterable[WholeRun],
    logs: Mapping[LogPartition, tuple[OffsetRange, ...]],
    tables_of: Callable[[LogPartition], Sequence[Table]],
    rewrites: Rewrites = NO_REWRITES,
    failed_from: Mapping[LogPartition, int] = MappingProxyType({}),
) -> dict[LogPartition, EarlierCheckpoint]:
    """By log partition, the newest of some runs from which its replay can continue; `runs` come newest first.

    Such a run had replayed everything that bronze has of the log partition (`logs`) up to some offset, and nothing
    else. Its state and the log partition's `tables_of` must still be readable. Log partitions without such a run are
    left out. `failed_from`: the first offset that the last run failed to replay, by log partition.
    """
    checkpoints: dict[LogPartition, EarlierCheckpoint] = {}
    for run in runs if logs else ():
        if len(checkpoints) == len(logs) or not run.is_readable(CHECKPOINTS):
            break  # earlier runs are not readable either: VACUUM removes the oldest files first
        watermarks = read_watermarks(run)
        waiting = {log: watermarks[log] for log in logs if log in watermarks and log not in checkpoints}
        changed = {log: rewrites.since(log, mark.capture_version) for log, mark in waiting.items()}
        able = {
            log: mark
            for log, mark in waiting.items()
            # everything it replayed is unchanged; later offsets do not matter
            if step_of(logs[log], mark, _least(changed[log], failed_from.get(log)))
            in (ReplayMode.GO_ON, ReplayMode.REST)
        }
        if able:
            columns = ["log_topic", "log_partition"]
            lacking = run.read(CHECKPOINTS, columns, kind=Checkpoint.FAILURE).to_pylist()
            for row in lacking:
                able.pop((row["log_topic"], row["log_partition"]), None)
        saved = saved_logs(run) if able else {}
        for log, mark in able.items():
            if log_name(*log) in saved and all(run.is_readable(table) for table in tables_of(log)):
                checkpoints[log] = EarlierCheckpoint(run, mark, saved[log_name(*log)])
    return checkpoints


def _least(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def saved_logs(whole: WholeRun) -> dict[str, SavedLog]:
    """The saved state of log partitions after a run, by name."""
    files: dict[str, tuple[list[TableFile], list[TableFile]]] = {}
    for file in whole.files(CHECKPOINTS):
        if (log := file.partition_values["log"]) != ALL_LOGS:
            is_group = file.partition_values["kind"] == Checkpoint.GROUP
            files.setdefault(log, ([], []))[is_group].append(file)
    return {name: SavedLog(tuple(logs), tuple(groups)) for name, (logs, groups) in files.items()}
