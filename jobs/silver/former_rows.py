"""Rows of earlier runs that a replay rewrites, and the files that it removes for them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from jobs.delta.replay_runs import WholeRun
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.silver.checkpoints import ReplayMode
from jobs.silver.plan import REMADE, REPLAY_TABLES, Plan
from jobs.silver.tasks import NAMED_TABLES, TABLES_OF_TOPIC, Carried, ReplayDone
from jobs.spark.executors import Executor
from jobs.spark.tasks import tapered
from schemas.tables.silver import MEMBER_ASSIGNMENTS

TASK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Size of the log partitions of one task; a larger one has a task of its own."""
FormerFiles = Mapping[str, Mapping[bool, tuple[TableFile, ...]]]
"""By table, the files of settled and of unsettled rows."""


def former_files(whole: WholeRun) -> FormerFiles:
    former: dict[str, dict[bool, tuple[TableFile, ...]]] = {}
    for table in REPLAY_TABLES:
        former[table.full_name] = {
            is_settled: tuple(file for file in whole.files(table) if file.partition_values["is_settled"] is is_settled)
            for is_settled in (True, False)
        }
    return former


def rewritten_files(
    warehouse: Warehouse, plan: Plan, former: FormerFiles, *, is_renamed: bool
) -> dict[str, tuple[TableFile, ...]]:
    """By table, the files of settled rows that are removed and rewritten: those with rows that this run makes again,
    and all files with topic names where the name of a topic id changed.
    """
    rewritten = {}
    for topic, tables in TABLES_OF_TOPIC.items():
        partitions = [partition for name, partition in plan.again if name == topic]
        for table in tables:
            settled = former[table.full_name][True]
            files = tuple(file for file in settled if any(_may_hold(file, partition) for partition in partitions))
            is_all = is_renamed and table in NAMED_TABLES
            if files and not is_all:
                # maintain may have compacted them after a run that failed: single ones cannot be removed then
                is_all = not {file.path for file in settled} <= {file.path for file in warehouse.files(table)}
            rewritten[table.full_name] = settled if is_all else files
    return rewritten


def carried_rows(
    executor: Executor, plan: Plan, former: FormerFiles, rewritten: Mapping[str, tuple[TableFile, ...]]
) -> list[Carried]:
    """Rows of earlier runs that this run rewrites.

    These are unsettled rows of log partitions that it does not replay, and settled rows of the files in `rewritten`,
    except those that it makes again. Of a log partition that goes back, they are the rows of that earlier run.
    """
    carried = []
    touched = plan.made(*REMADE, ReplayMode.GO_ON)
    resting = plan.made(ReplayMode.REST)
    unsettled = tuple(
        (table.full_name, False, file)
        for topic, tables in TABLES_OF_TOPIC.items()
        if resting.get(topic)
        for table in tables
        for file in former.get(table.full_name, {}).get(False, ())
    )
    if unsettled:
        carried.append(Carried(unsettled, touched))
    settled = [(name, True, file) for name, files in rewritten.items() for file in files]
    weights = [file.size_bytes for *_, file in settled]
    carried += [
        Carried(tuple(settled[index] for index in indices), plan.made(*REMADE))
        for indices in task_bins(executor, weights)
    ]
    for (topic, partition), checkpoint in plan.earlier.items():
        files = tuple(
            (table.full_name, True, file)
            for table in TABLES_OF_TOPIC.get(topic, ())
            for file in checkpoint.run.files(table)
            if file.partition_values["is_settled"] and _may_hold(file, partition)
        )
        if files:
            carried.append(Carried(files, only={topic: frozenset({partition})}))
    return carried


def _may_hold(file: TableFile, log_partition: int) -> bool:
    """May a file of silver have rows of a log partition?"""
    name = "log_partition"
    return bool(file.minimum.get(name, log_partition) <= log_partition <= file.maximum.get(name, log_partition))


def take_misnamed(
    done: Iterable[ReplayDone], name_of: Mapping[str, str], folder: str
) -> tuple[tuple[str, bool, TableFile], ...]:
    """Remove from the results of tasks the part files whose assignments have other topic names than `name_of`, and
    return them.
    """
    name = MEMBER_ASSIGNMENTS.full_name
    misnamed = []
    for task in done:
        if any(name_of.get(topic_id) != given for topic_id, given in task.names_given):
            for file in task.files.pop(name, ()):
                is_settled = dict(file.partition_values)["is_settled"] == "true"
                misnamed.append((name, is_settled, TableFile(f"{folder}/{file.path}", file.size_bytes, None, {})))
    return tuple(misnamed)


def task_bins(executor: Executor, weights: Sequence[int]) -> list[list[int]]:
    return tapered(weights, executor.core_count, weight_max=TASK_BYTES_MAX)
