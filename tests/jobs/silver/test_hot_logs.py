"""Log partitions out of proportion: which are cut, and that nights of any cut make the tables of one."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from coordinator_core.inference.audit.groups import judge_group
from coordinator_core.inference.audit.log_anomalies import NOT_JUDGED
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.replay.key_buckets import SLOT_COUNT, KeyBucket
from jobs.delta.replay_runs import ended
from jobs.delta.table_files import TableFile
from jobs.gold import audit_groups
from jobs.gold.group_checkpoints import SavedGroups
from jobs.silver import hot_logs
from jobs.silver.hot_logs import bucket_counts, useful_count
from jobs.silver.tasks import LogFiles
from jobs.spark.tasks import run_tasks
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import OFFSET_COMMITS, SILVER_TABLES
from schemas.tables.state import CHECKPOINTS, RUNS, Checkpoint
from tests.benchmarks import skewed
from tests.cases.harness import CASES, Ledger
from tests.jobs.slices import slices_of
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.nights

FULL_A: Final = RECORDINGS / "full-a" / "logs"
COMPARED: Final = (*SILVER_TABLES, *GOLD_TABLES, QUARANTINE, CHECKPOINTS)


def tables(ledger: Ledger) -> dict[str, list[str]]:
    """All rows, each table in one order."""

    def rows(table: Table) -> list[str]:
        made = ledger.rows(table.full_name)
        if table is CHECKPOINTS:
            made = [row for row in made if row["kind"] != Checkpoint.LOG]  # a row a bucket
        return sorted(map(repr, made))

    return {table.full_name: rows(table) for table in COMPARED}


def ledger_counts(ledger: Ledger) -> dict[str, int]:
    """Sums over all runs."""
    counts: dict[str, int] = {}
    for row in ended(ledger.tables, "replay_version", RUNS.column_names):
        for name, value in row.items():
            if name.endswith("_count") and value:
                counts[f"{row['topic']} {name}"] = counts.get(f"{row['topic']} {name}", 0) + value
    return counts


def cut_at_random(monkeypatch: pytest.MonkeyPatch, random: Random) -> list[int]:
    """Have each night replay log partitions in 1 to 4 buckets; gives the counts."""
    made: list[int] = []

    def counts(logs: Sequence[LogFiles], *_: Any) -> list[int]:
        found = [random.randrange(1, 5) if log.topic in hot_logs.CUT_TOPICS else 1 for log in logs]
        made.extend(found)
        return found

    monkeypatch.setattr(hot_logs, "bucket_counts", counts)
    return made


# with other seeds a later night has configs from before an earlier one, so every audit starts from the beginning
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=takes_minutes) for seed in (5, 7))])
def test_nights_in_buckets_make_the_tables_of_nights_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Silver, gold, what is kept of groups, quarantine, names, and all counts."""
    random = Random(seed)
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: sorted(random.random() for _ in range(2)))
    whole, cut = Ledger(tmp_path / "whole"), Ledger(tmp_path / "cut")
    for number, part in enumerate(parts, 1):
        whole.night(part, number=number)
    made = cut_at_random(monkeypatch, random)
    went_on: list[KeyBucket] = []
    of_bucket = SavedGroups.of_bucket

    def noted(self: SavedGroups, bucket: KeyBucket) -> SavedGroups:
        went_on.append(bucket)
        return of_bucket(self, bucket)

    monkeypatch.setattr(SavedGroups, "of_bucket", noted)
    for number, part in enumerate(parts, 1):
        cut.night(part, number=number)
    assert max(made) == 4
    assert went_on, "no audit went on in buckets"
    assert tables(cut) == tables(whole)
    assert ledger_counts(cut) == ledger_counts(whole)


def test_a_case_in_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that went back are reported once; what is said of groups because of them is the same."""
    whole, cut = Ledger(tmp_path / "whole"), Ledger(tmp_path / "cut")
    whole.night(CASES / "S-skew" / "logs")
    cut_at_random(monkeypatch, Random("S-skew"))
    cut.night(CASES / "S-skew" / "logs")
    assert tables(cut) == tables(whole)
    assert ledger_counts(cut) == ledger_counts(whole)


def test_a_group_that_cannot_be_judged_keeps_no_other_task_from_gold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of its bucket says so, and the next night judges it with all others."""
    parts = slices_of(RECORDINGS / "codec-zstd" / "logs", tmp_path / "parts", lambda name: [0.95])
    whole, cut = Ledger(tmp_path / "whole"), Ledger(tmp_path / "cut")

    def failing(life: GroupLife, *arguments: Any, **options: Any) -> Any:
        if life.group_id == "k01-uniform":
            raise ArithmeticError
        return judge_group(life, *arguments, **options)

    with monkeypatch.context() as planted:
        planted.setattr(audit_groups, "judge_group", failing)
        whole.night(parts[0])
        cut_at_random(planted, Random(5))
        cut.night(parts[0])
    assert tables(cut) == tables(whole)
    assert [row["group_id"] for row in cut.rows("gold.log_anomalies") if row["rule"] == NOT_JUDGED] == ["k01-uniform"]
    for ledger in (whole, cut):
        ledger.night(parts[1], number=2)
    assert tables(cut) == tables(whole)


def log_of(topic: str, partition: int, size_bytes: int, record_count: int, *, batch_count: int = 0) -> LogFiles:
    """A log partition of one file."""
    batches = batch_count or record_count // 20
    offsets = {"base_offset": 0}, {"last_offset": record_count - 1}
    return LogFiles(topic, partition, (TableFile("f", size_bytes, batches, {}, *offsets),))


OFFSETS: Final = "__consumer_offsets"


@pytest.mark.parametrize(
    ("logs", "core_count", "expected"),
    [
        pytest.param([log_of(OFFSETS, 0, 100, 2_000)], 4, [4], id="one alone: a bucket a core"),
        pytest.param([log_of("__share_group_state", 0, 100, 2_000)], 2, [2], id="share partitions"),
        pytest.param([log_of(OFFSETS, 0, 100, 2_000)], 1, [1], id="one core"),
        pytest.param([log_of(OFFSETS, 0, 100, 999)], 4, [1], id="few records"),
        pytest.param([log_of(OFFSETS, 0, 100, 2_000, batch_count=5)], 4, [1], id="compacted: offsets without records"),
        pytest.param([log_of(OFFSETS, number, 100, 2_000) for number in range(8)], 4, [1] * 8, id="even"),
        pytest.param(
            [log_of(OFFSETS, number, 100, 2_000) for number in range(2)], 8, [4, 4], id="more cores than logs"
        ),
        pytest.param([log_of(OFFSETS, 0, 60, 2_000), log_of(OFFSETS, 1, 40, 2_000)], 2, [1, 1], id="a little larger"),
        pytest.param([log_of(OFFSETS, 0, 90, 2_000), log_of(OFFSETS, 1, 10, 2_000)], 2, [2, 1], id="much larger"),
        pytest.param([log_of("__transaction_state", 0, 100, 2_000)], 4, [1], id="not by key"),
        pytest.param([log_of(OFFSETS, 0, 100, 2_000)], 500, [64], id="a bound"),
        pytest.param([], 4, [], id="none"),
    ],
)
def test_a_log_partition_is_cut_where_all_others_would_wait_for_it(
    logs: list[LogFiles], core_count: int, expected: list[int]
) -> None:
    """By its share of what is new, from a thousand records on."""
    assert bucket_counts(logs, core_count, 1_000) == expected


@pytest.mark.parametrize(
    ("weights", "count_max", "expected"),
    [
        pytest.param([1] * 400, 8, 8, id="even"),
        pytest.param([400, *[1] * 400], 8, 2, id="one key has half: the others make one bucket more"),
        pytest.param([300, 300, *[1] * 300], 8, 3, id="two keys have two thirds"),
        pytest.param([900, *[1] * 100], 8, 1, id="one key has nearly all"),
        pytest.param([5], 4, 1, id="one key"),
        pytest.param([], 4, 1, id="no keys: markers alone"),
    ],
)
def test_no_more_buckets_than_are_of_use(weights: list[int], count_max: int, expected: int) -> None:
    """A task that reads all of a log for a few records helps nobody."""
    of_slots = np.zeros(SLOT_COUNT, np.int64)
    of_slots[: len(weights)] = weights
    assert useful_count(of_slots, count_max) == expected


def test_a_hot_log_partition_is_replayed_by_a_task_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two cores by two tasks, each with about half of the commits; the tables are those of one task. Its keys are
    weighed once a night: the audit cuts by what the replay has weighed. Another warehouse has files of its own."""
    weighed: list[int] = []

    def counted(session: Any, function: Any, plan: Sequence[Any], what: str) -> list[Any]:
        weighed.append(len(plan))
        return run_tasks(session, function, plan, what)

    monkeypatch.setattr(hot_logs, "run_tasks", counted)
    skewed.hot_log_partition(tmp_path / "logs", 20_000)
    whole, cut = Ledger(tmp_path / "whole"), Ledger(tmp_path / "cut")
    whole.night(tmp_path / "logs")
    for number, ledger in enumerate((cut, Ledger(tmp_path / "other")), 1):
        ledger.night(tmp_path / "logs", cut_records_min=1_000)
        assert sum(weighed) == number
    assert tables(cut) == tables(whole)
    assert ledger_counts(cut) == ledger_counts(whole)
    counts = [file.row_count or 0 for file in cut.warehouse.files(OFFSET_COMMITS)]
    assert sum(counts) == 20_000
    assert len(counts) == 2
    assert max(counts) <= 0.55 * sum(counts)
