"""How work is shared out among Spark's tasks."""

import pytest

from coordinator_core.log.scan import LOOK_BACK_BYTES
from jobs.audit import AuditPlan, new_bytes
from jobs.capture_tasks import LogWork
from jobs.replay_state import Step, Watermark
from jobs.replay_tasks import LogFiles
from jobs.sinks import TableFile
from jobs.sources.segments import PartitionLog, Segment
from jobs.tasks import TASK_BYTES_MIN, balanced, task_count
from tests.jobs.in_process import in_process


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        pytest.param(0, 2, id="nothing"),
        pytest.param(4 * TASK_BYTES_MIN - 1, 3, id="too little for two a core"),
        pytest.param(4 * TASK_BYTES_MIN, 4, id="enough for two a core"),
        pytest.param(2**50, 4, id="much"),
    ],
)
def test_little_work_is_of_few_tasks(size_bytes: int, expected: int) -> None:
    """One a core where each of two would have little, and never more than two."""
    assert task_count(in_process(), size_bytes) == expected


def test_tasks_are_of_about_one_weight() -> None:
    """Each element is in one of them, the heaviest task comes first."""
    assert balanced([5, 1, 4, 3], 2) == [[2, 3], [0, 1]]


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
    work = LogWork("t", 0, segments=(PartitionLog("t", 0, segments, None),), newest=newest)
    assert work.unread_bytes == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(Step.REST, 0, id="nothing new"),
        pytest.param(Step.GO_ON, 250, id="a quarter is new"),
        pytest.param(Step.AFRESH, 1000, id="from the beginning"),
    ],
)
def test_what_an_audit_reads_of_a_log_partition(step: Step, expected: int) -> None:
    """So much as the new offsets are of all."""
    log = LogFiles("t", 0, (TableFile("", 1000, None, {}),))
    audited = 400 if step is Step.REST else 300
    plan = AuditPlan((log,), {("t", 0): step}, is_resting=False, next_offsets={("t", 0): audited})
    assert new_bytes(log, plan, {("t", 0): Watermark(400, ())}) == expected
