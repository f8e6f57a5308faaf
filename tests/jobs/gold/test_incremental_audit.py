"""Audits that go on from one another: whatever the nights were, gold is what one audit of all of it makes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.inference.audit import groups
from coordinator_core.inference.audit.group_past import GroupBefore
from coordinator_core.inference.audit.groups import Judged, judge_group
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import Committed
from jobs.delta.locks import only_one
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.gold import audit_groups, audit_shares, share_reader
from jobs.gold.audit import audit
from jobs.gold.share_reader import slice_ends
from jobs.laboratory.simulate import simulate
from jobs.operations import maintain
from jobs.silver.hot_logs import CutRule
from schemas.tables import TABLES
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GOLD_TABLES, GROUP_SUMMARY, PARTITION_OWNERS, REBALANCES, REDELIVERIES
from schemas.tables.silver import GROUP_GENERATIONS, OFFSET_COMMITS
from schemas.tables.state import AUDITED_LOGS, RUN_STARTS, RUNS
from tests.cases.random_clusters import scenario_text
from tests.coordinator_core.inference.group_lives import commit, generation, moved_member
from tests.coordinator_core.inference.group_weeks import (
    DAY_MS,
    moved_after_days,
    standing_log,
    timed_batches,
    weeks_log,
)
from tests.jobs.in_process import in_process
from tests.jobs.silver.test_incremental_replay import BrokenOffError
from tests.jobs.silver.test_replay import CLUSTER, STARTED_AT, Jobs
from tests.jobs.slices import slices_of
from tests.lengths import how_many, is_long
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.nights

HOUR_MS: Final = 3_600_000
FULL_A: Final = RECORDINGS / "full-a" / "logs"
Gold = dict[str, list[str]]


class Nights(Jobs):
    """Captures, replays and audits of slices of one recording, without Spark."""

    def __init__(self, root: Path, logs: Path, **inference: int) -> None:
        super().__init__(in_process(), root, logs)
        # in a cluster what took less time than a recording would not be settled
        changes: dict[str, Any] = {"late_ms": 1, **inference}
        self.settings = replace(self.settings, inference=replace(self.settings.inference, **changes))

    def run(self, logs: Path, run_id: str) -> None:
        self.settings = replace(self.settings, segments=(str(logs),))
        assert self.nightly(run_id) in {0, 3}

    def audit(self, run_id: str, *, rebuild: bool = False) -> bool:
        """Gives whether there was something to do."""
        summary = audit(
            self.executor,
            self.warehouse,
            cluster_id=CLUSTER,
            inference=self.settings.inference,
            cut=CutRule(self.settings.cut_records_min, self.settings.batch_decompressed_bytes_max),
            run_id=run_id,
            started_at=STARTED_AT,
            rebuild=rebuild,
        )
        return not summary.skipped

    def gold(self) -> Gold:
        """As readers see it, in one order; where it is settled hangs on when it was audited."""
        whole = WholeAudit.newest(ClusterTables(self.warehouse, CLUSTER))
        found = {}
        for table in GOLD_TABLES:
            columns = [name for name in table.column_names if name != "is_settled"]
            found[table.full_name] = sorted(map(repr, whole.read(table, columns).to_pylist()))
        return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Gold:
    """Gold of one audit, and the silver that it is of."""
    nights = Nights(tmp_path_factory.mktemp("whole") / "warehouse", FULL_A)
    nights.run(FULL_A, "r")
    return nights.gold() | nights.silver()


def assert_same(nights: Nights, whole: Gold) -> None:
    """Table by table, row by row."""
    found = nights.gold() | nights.silver()
    for name in whole:
        assert found[name] == whole[name], name


def times_of(folder: Path) -> I64:
    """When each batch of a log partition was written."""
    scans = [
        scan_segment(np.frombuffer(path.read_bytes(), np.uint8), base_offset=int(path.stem), is_last=True)
        for path in sorted(folder.glob("*.log"))
    ]
    return np.concatenate([scan.batches.max_timestamp_ms for scan in scans])


def random_cuts(seed: str, count: int) -> Callable[[str], Sequence[float]]:
    """Each log partition is cut at places of its own."""

    def cuts(name: str) -> Sequence[float]:
        random = Random(f"{seed}/{name}")
        return sorted(random.random() for _ in range(count))

    return cuts


def test_nights_make_what_one_audit_makes(tmp_path: Path, whole: Gold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members, configs and names are learned sooner or later than what they explain; no log ends with another. Yet of
    many groups no commit is read twice. Share partitions are judged in slices, as if there were millions of records."""
    monkeypatch.setattr(share_reader, "SLICE_ROWS_MAX", 60)
    parts = slices_of(FULL_A, tmp_path / "parts", random_cuts("1", 3))
    nights = Nights(tmp_path / "warehouse", parts[0])
    ways: Counter[str] = Counter()

    def judged(*arguments: Any) -> Judged:
        ways["gone on with" if any(isinstance(one, GroupBefore) for one in arguments) else "from the beginning"] += 1
        return judge_group(*arguments)

    monkeypatch.setattr(audit_groups, "judge_group", judged)
    for index, part in enumerate(parts):
        nights.run(part, f"night-{index}")
    assert_same(nights, whole)
    assert ways["gone on with"] > 20, ways


def test_nights_over_random_clusters_make_what_one_audit_makes(tmp_path: Path) -> None:
    """Clusters and cuts at random, sometimes in another order than the logs were written."""
    for seed in range(how_many(1)):
        root, random = tmp_path / f"{seed}", Random(f"nights/{seed}")
        root.mkdir()
        (root / "scenario.toml").write_text(scenario_text(seed))
        simulate(str(root / "scenario.toml"), str(root / "simulated"))
        logs, late_ms = root / "simulated" / "logs", random.choice((1, InferenceSettings().late_ms))
        whole = Nights(root / "whole", logs, late_ms=late_ms)
        whole.run(logs, "r")
        parts = slices_of(logs, root / "parts", random_cuts(f"{seed}", random.randint(1, 5)))
        nights = Nights(root / "warehouse", logs, late_ms=late_ms)
        for number in random.sample(range(len(parts)), len(parts)) if random.random() < 1 / 3 else range(len(parts)):
            if parts[number].exists():
                nights.run(parts[number], f"night-{number}")
        assert_same(nights, whole.gold() | whole.silver())


def ends_of(life: GroupLife) -> list[int | None]:
    """Where rows of silver that an audit read have ended; None for open ones."""
    return [
        *(row.to_log_offset for row in life.generations),
        *(row.to_log_offset for row in life.members),
        *(row.to_log_offset for row in life.assignments),
    ]


def test_weeks_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is settled of groups is not read again: each night judges the newest days of those that rebalanced."""
    logs = tmp_path / "logs"
    for number in range(2):
        batches = weeks_log(Random(f"weeks/{number}"), [f"{name}-{number}" for name in "abcd"], 120)
        folder = logs / f"__consumer_offsets-{number}"
        folder.mkdir(parents=True)
        # named by its first batch, as the parts are: else only the whole log would begin with a compacted range
        (folder / f"{int.from_bytes(batches[0][:8], 'big'):020}.log").write_bytes(b"".join(batches))
    whole = Nights(tmp_path / "whole", logs)
    whole.run(logs, "r")
    places: list[tuple[str, int]] = []

    def judged(life: GroupLife, *arguments: Any) -> Judged:
        settled = next((one.watermark for one in arguments if isinstance(one, GroupBefore)), None)
        if settled is not None:
            ends = ends_of(life)
            assert all(end is None or end > settled.generation_at for end in ends)
            assert all(event.log_offset >= settled.events_from for event in life.events)
            places.append((life.group_id, settled.generation_at))
        return judge_group(life, *arguments)

    monkeypatch.setattr(audit_groups, "judge_group", judged)
    nights = Nights(tmp_path / "warehouse", logs)
    for index, part in enumerate(slices_of(logs, tmp_path / "parts", random_cuts("2", 5))):
        nights.run(part, f"night-{index}")
    assert_same(nights, whole.gold() | whole.silver())
    # more than one place of a group: it goes on from a later one, too
    assert max(Counter(group_id for group_id, _ in set(places)).values()) > 1, places
    assert len(set(places)) > len({group_id for group_id, _ in places}), places


@pytest.mark.parametrize("has_settled_past", [True, False])
def test_files_of_days_without_a_change_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_settled_past: bool
) -> None:
    """A group that rebalances four times a day: the night after twelve days leaves the files of the first ten, and of
    another group that only commits, of all but the day of its commits. So it is where nothing of the group is ever
    settled, and all of its rows are made each night."""
    if not has_settled_past:
        monkeypatch.setattr(groups, "newest_watermark", lambda *_: None)
    reported = [
        (day * DAY_MS + hour * HOUR_MS, generation(4 * day + hour // 6 + 1, {f"m{hour % 12}": [0, 1]}))
        for day in range(13)
        for hour in (2, 8, 14, 20)
    ]
    commits = [(day * DAY_MS + 5 * HOUR_MS, commit(10 * day, 0, "only-commits")) for day in range(13)]
    logs = [timed_batches(sorted([*reported, *commits], key=lambda one: one[0])[:count]) for count in (60, 65)]
    nights = Nights(tmp_path / "warehouse", tmp_path)
    files = []
    for number, batches in enumerate(logs):
        folder = tmp_path / f"night-{number}" / "__consumer_offsets-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(b"".join(batches))
        nights.run(folder.parent, f"night-{number}")
        files.append(
            {table.full_name: paths_by_day(nights, table) for table in (REBALANCES, PARTITION_OWNERS, GROUP_SUMMARY)}
        )
    whole = Nights(tmp_path / "whole", tmp_path)
    whole.run(tmp_path / "night-1", "r")
    assert nights.gold() == whole.gold()
    for name in files[0]:
        stayed = {day for day, paths in files[0][name].items() if files[1][name].get(day) == paths}
        assert stayed >= {date(1970, 1, 1) + timedelta(days=number) for number in range(10)}, name


def paths_by_day(nights: Nights, table: Table) -> dict[date | None, set[str]]:
    paths: dict[date | None, set[str]] = {}
    for file in nights.warehouse.files(table):
        paths.setdefault(file.partition_values["day"], set()).add(file.path)
    return paths


def test_nights_merge_what_has_become_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files stay few without maintain; what nights go on from, and what readers see, is the same."""
    monkeypatch.setattr(maintain, "MANY_FILES", 3)
    logs = tmp_path / "logs" / "__consumer_offsets-0"
    logs.mkdir(parents=True)
    batches = weeks_log(Random("many"), ["a", "b"], 90)
    (logs / f"{int.from_bytes(batches[0][:8], 'big'):020}.log").write_bytes(b"".join(batches))
    whole = Nights(tmp_path / "whole", logs.parent)
    whole.run(logs.parent, "r")
    nights = Nights(tmp_path / "warehouse", logs.parent)
    most: Counter[str] = Counter()
    for index, part in enumerate(slices_of(logs.parent, tmp_path / "parts", random_cuts("many", 6))):
        nights.run(part, f"night-{index}")
        for table in (RUNS, RUN_STARTS, RECORD_BATCHES, OFFSET_COMMITS, GROUP_GENERATIONS):
            files = Counter(str(file.partition_values) for file in nights.warehouse.files(table))
            most[table.full_name] = max(most[table.full_name], *files.values())
    assert max(most.values()) == 2, most
    assert_same(nights, whole.gold() | whole.silver())


def test_odd_commits_of_groups_whose_membership_is_unchanged(tmp_path: Path) -> None:
    """Offsets go back, are deleted, stay for long, or come in transactions, night after night."""
    logs = {number: standing_log(Random(f"tables/{number}"), 3) for number in range(6)}
    nights = Nights(tmp_path / "warehouse", tmp_path / "logs")
    for night in range(4):
        for number, (batches, places) in logs.items():
            segment = tmp_path / "logs" / f"__consumer_offsets-{number}" / f"{0:020}.log"
            segment.parent.mkdir(parents=True, exist_ok=True)
            segment.write_bytes(b"".join(batches[: (*places, len(batches))[night]]))
        nights.run(tmp_path / "logs", f"night-{night}")
    gold = nights.gold()
    assert nights.audit("rebuild", rebuild=True)
    assert_same(nights, gold)


def test_logs_cut_at_one_time_keep_what_is_settled(tmp_path: Path) -> None:
    """As captures do it: a night adds to what is settled, and leaves the files of it as they are."""
    all_times = {folder.name: times_of(folder) for folder in FULL_A.iterdir() if folder.is_dir()}
    times = {name: found for name, found in all_times.items() if len(found)}
    begin, end = min(map(np.min, times.values())), max(map(np.max, times.values()))

    def cuts(name: str) -> Sequence[float]:
        bounds = [begin + share * (end - begin) for share in (0.5, 0.75)]
        # half a batch more, against what rounding takes away
        return [
            (float(np.mean(times[name] <= bound)) + 0.5 / len(times[name])) if name in times else 0.0
            for bound in bounds
        ]

    nights = Nights(tmp_path / "warehouse", FULL_A, modern_session_timeout_ms=1_000)
    settled: list[set[str]] = []
    for index, part in enumerate(slices_of(FULL_A, tmp_path / "parts", cuts)):
        nights.run(part, f"night-{index}")
        files = nights.warehouse.files(REDELIVERIES)
        settled.append({file.path for file in files if file.partition_values["is_settled"] is True})
    # the first half shows less of delivery limits than the whole does: it is audited again with the second
    assert settled[1]
    assert settled[1] <= settled[2]
    gold = nights.gold()
    assert nights.audit("rebuild", rebuild=True)
    assert_same(nights, gold)


def test_an_older_interval_that_comes_late(tmp_path: Path, whole: Gold) -> None:
    """Of some log partitions the first half comes last."""
    late = "__consumer_offsets-1", "__share_group_state-2", "__cluster_metadata-0"
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.5, 0.5] if name not in late else [0.0, 0.5])
    nights = Nights(tmp_path / "warehouse", parts[0])
    for night, index in enumerate((0, 2, 1)):
        nights.run(parts[index], f"night-{night}")
    assert_same(nights, whole)


@pytest.mark.parametrize("log", [moved_member, moved_after_days])
def test_a_member_that_comes_back_from_another_host(tmp_path: Path, log: Callable[[], tuple[list[bytes], int]]) -> None:
    """What was said of commits to its partitions names the host that it has in silver now."""
    batches, place = log()
    segment = tmp_path / "logs" / "__consumer_offsets-0" / f"{0:020}.log"
    segment.parent.mkdir(parents=True)
    nights = Nights(tmp_path / "warehouse", tmp_path / "logs")
    for some, host in ((batches[:place], "/old"), (batches, "/new")):
        segment.write_bytes(b"".join(some))
        nights.run(tmp_path / "logs", f"night-{len(some)}")
        rows = WholeAudit.newest(ClusterTables(nights.warehouse, CLUSTER)).read(COMMIT_ANOMALIES).to_pylist()
        assert {row["owner_member_id"]: row["owner_client_host"] for row in rows} == {"m": host, "other": "/old"}
    gold = nights.gold()
    assert nights.audit("rebuild", rebuild=True)
    assert nights.gold() == gold


def test_audits_that_break_off(tmp_path: Path, whole: Gold, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other breaks off, each a table further: readers see the whole one before them all."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.6])
    nights = Nights(tmp_path / "warehouse", parts[0])
    nights.run(parts[0], "night-0")
    before = nights.gold()
    commits = Warehouse.commit
    left = [0]

    def breaking(self: Warehouse, *arguments: Any, **options: Any) -> Committed:
        if options["app_id"].startswith("groupledger/audit"):
            left[0] -= 1
            if left[0] < 0:
                raise BrokenOffError
        return commits(self, *arguments, **options)

    monkeypatch.setattr(Warehouse, "commit", breaking)
    with pytest.raises(BrokenOffError):
        nights.run(parts[1], "night-1")
    last = len(GOLD_TABLES) + 2
    for broken_at in range(1, last + 1) if is_long() else (2, 6, last):
        left[0] = broken_at
        with pytest.raises(BrokenOffError):
            nights.audit(f"again-{broken_at}")
        if broken_at in {2, 6, last}:
            assert nights.gold() == before
    monkeypatch.undo()
    assert nights.audit("last")
    assert_same(nights, whole)


def test_nothing_new_writes_nothing_and_a_rebuild_writes_the_same(
    tmp_path: Path, whole: Gold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second audit leaves every table at its version; one from the beginning makes the same rows, in whatever slices
    share partitions are judged."""
    nights = Nights(tmp_path / "warehouse", FULL_A)
    nights.run(FULL_A, "r1")
    tables = [*GOLD_TABLES, AUDITED_LOGS]
    versions = [nights.warehouse.version(table) for table in tables]
    assert not nights.audit("r2")
    assert versions == [nights.warehouse.version(table) for table in tables]
    assert nights.audit("r3", rebuild=True)
    assert_same(nights, whole)
    ends: list[int] = []

    def counted(*arguments: Any) -> list[int]:
        found = slice_ends(*arguments)
        ends.append(len(found))
        return found

    monkeypatch.setattr(share_reader, "SLICE_ROWS_MAX", 25)
    monkeypatch.setattr(audit_shares, "slice_ends", counted)
    assert nights.audit("r4", rebuild=True)
    assert max(ends) > 3
    assert_same(nights, whole)


def test_another_setting_makes_gold_again(tmp_path: Path, whole: Gold) -> None:
    """And the same setting again the same gold: nothing of the other one is left."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.6])
    nights = Nights(tmp_path / "warehouse", parts[0])
    usual = nights.settings
    nights.settings = replace(usual, inference=replace(usual.inference, delivery_count_limit=3, stalled_ms=1))
    nights.run(parts[0], "night-0")
    nights.settings = usual
    nights.run(parts[1], "night-1")
    assert_same(nights, whole)


def test_a_second_audit_at_the_same_time_is_refused(tmp_path: Path) -> None:
    """It says who is at work."""
    nights = Nights(tmp_path / "warehouse", FULL_A)
    since = STARTED_AT + timedelta(days=1)
    with (
        only_one(nights.warehouse, "audit", CLUSTER, since=since),
        pytest.raises(WarehouseError, match="another audit of cluster"),
    ):
        nights.audit("r")


def test_every_gold_table_is_compared() -> None:
    """Those that the recording has no row for are known, so that none is forgotten."""
    assert {table.full_name for table in GOLD_TABLES} <= TABLES.keys()
