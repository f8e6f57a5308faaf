"""How work is shared out between tasks."""

from random import Random

import pytest
from pyspark.sql import SparkSession

from coordinator_core.bytes.log.scan import LOOK_BACK_BYTES
from jobs.bronze.work import LogWork
from jobs.delta.table_files import TableFile
from jobs.gold.plan import AuditPlan, new_bytes
from jobs.silver.checkpoints import ReplayMode, Watermark
from jobs.silver.tasks import LogFiles
from jobs.sources.segments import PartitionLog, Segment
from jobs.spark.executors import SparkExecutor
from jobs.spark.tasks import TASK_BYTES_MIN, run_tasks, tapered

MIB = 1024 * 1024


@pytest.mark.parametrize("core_count", [1, 2, 7, 64])
def test_every_index_is_in_one_bin(core_count: int) -> None:
    """None is lost, none is there twice, no task has nothing to do; also of logs of which nothing is to be read."""
    random = Random(core_count)
    for count in (0, 1, 3, 50, 400):
        weights = [random.choice([0, 1, 1000, 20 * MIB, 3000 * MIB]) for _ in range(count)]
        bins = tapered(weights, core_count, weight_max=128 * MIB)
        assert sorted(index for bin_ in bins for index in bin_) == list(range(count))
        assert all(bins)


@pytest.mark.parametrize("core_count", [2, 4, 16])
@pytest.mark.parametrize("seed", range(5))
def test_cores_end_together(core_count: int, seed: int) -> None:
    """A byte of some logs costs twice what it costs in others, and nobody knows: no core waits long."""
    random = Random(seed)
    weights = [14 * MIB] * 25 * core_count
    costs = [weight * random.uniform(1, 2) for weight in weights]
    ends = [0.0] * core_count
    for bin_ in tapered(weights, core_count, weight_max=128 * MIB):
        ends[ends.index(min(ends))] += sum(costs[index] for index in bin_)
    assert max(ends) < 1.06 * sum(costs) / core_count


@pytest.mark.parametrize(
    ("new_bytes", "expected"),
    [
        pytest.param(0, [50, 50], id="nothing"),
        pytest.param(3 * TASK_BYTES_MIN - 1, [50, 50], id="too little for more than one a core"),
        pytest.param(4 * TASK_BYTES_MIN, [25] * 4, id="enough for two a core"),
        pytest.param(None, [25, 19, 14, 11, 8, 6, 6, 6, 5], id="all"),
    ],
)
def test_little_work_makes_few_tasks(new_bytes: int | None, expected: list[int]) -> None:
    """One a core, in tasks of one weight, where each of two would have little; each has part files of its own."""
    assert [len(bin_) for bin_ in tapered([16 * MIB] * 100, 2, new_bytes=new_bytes)] == expected


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param([5] * 6, [[0, 1, 2], [3, 4, 5]], id="of one weight"),
        pytest.param([3, 1, 1, 1, 1, 1], [[0, 1], [2, 3, 4, 5]], id="a heavy one first"),
        pytest.param([1, 1, 9, 1, 1], [[2], [0, 1, 3, 4]], id="a heavy one in the middle: alone"),
        pytest.param([7], [[0]], id="one"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_task_a_core_has_neighbours(weights: list[int], expected: list[list[int]]) -> None:
    """Unless one core would have to wait long for another."""
    assert tapered(weights, 2) == expected


def test_bins_are_as_heavy_as_allowed() -> None:
    """Much work makes as many tasks as are needed; a log that is heavier alone has one of its own."""
    weights = [10 * MIB] * 400 + [500 * MIB]
    bins = tapered(weights, 2, weight_max=128 * MIB)
    loads = [sum(weights[index] for index in bin_) for bin_ in bins]
    assert bins[0] == [400]
    assert loads == sorted(loads, reverse=True)
    assert max(loads[1:]) <= 140 * MIB
    assert len(bins) < 50


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        pytest.param(None, 3_000_000 + 2_000_000 + 500_000, id="nothing is known"),
        pytest.param((100, 199), LOOK_BACK_BYTES + 500_000, id="the second one has perhaps grown"),
        pytest.param((250, 260), 500_000, id="the last one has perhaps grown, and is small"),
    ],
)
def test_what_is_known_of_segments_need_not_be_read(newest: tuple[int, int] | None, expected: int) -> None:
    """Of the one with the newest batch that is known the end is."""
    sizes = {0: 3_000_000, 100: 2_000_000, 200: 500_000}
    segments = tuple(Segment("", "", offset, size_bytes, offset == 200) for offset, size_bytes in sizes.items())
    work = LogWork("t", 0, segments=(PartitionLog("t", 0, segments, None),), ends=() if newest is None else (newest,))
    assert work.unread_bytes == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(ReplayMode.REST, 0, id="nothing new"),
        pytest.param(ReplayMode.GO_ON, 250, id="a quarter is new"),
        pytest.param(ReplayMode.AFRESH, 1000, id="from the beginning"),
    ],
)
def test_what_an_audit_reads_of_a_log_partition(step: ReplayMode, expected: int) -> None:
    """So much as the new offsets are of all."""
    log = LogFiles("t", 0, (TableFile("", 1000, None, {}),))
    audited = 400 if step is ReplayMode.REST else 300
    plan = AuditPlan((log,), {("t", 0): step}, is_resting=False, next_offsets={("t", 0): audited})
    assert new_bytes(log, plan, {("t", 0): Watermark(400, ())}) == expected


def test_a_stage_has_the_name_of_what_is_done(spark: SparkSession) -> None:
    """In Spark's UI and event log; messages come in the order of the plan, and what runs later has no name of it."""
    assert run_tasks(SparkExecutor(spark), abs, (-3, 2, -1), "absolute numbers") == [3, 2, 1]
    spark.sparkContext.parallelize((1,), 1).count()
    store = spark.sparkContext._jsc.sc().statusStore()
    newest = store.jobsList(None).iterator()
    descriptions = [newest.next().description().getOrElse(None) for _ in range(2)]
    assert "absolute numbers" in descriptions
    assert len({*descriptions}) == 2
