"""The plan of an audit, from a snapshot alone: no warehouse, no Spark."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.bronze.copies import Rewrites
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.gold.plan import make_plan, removed_since_ms, unread_logs, works
from jobs.gold.snapshot import (
    AUDIT_FORMAT,
    FORMER_SHARES,
    IS_WHOLE,
    REMOVED_TOPICS,
    REMOVED_UNTIL,
    SESSION_CONFIGS,
    SOURCES,
    Basis,
    Snapshot,
    sum_of,
)
from jobs.gold.task import NEVER_MS, AuditWork
from jobs.silver.checkpoints import ReplayMode, Watermark
from jobs.silver.reader import SilverFiles
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC

NOWHERE = cast(Warehouse, None)
SETTINGS: Mapping[str, Any] = {
    "format": AUDIT_FORMAT,
    FORMER_SHARES: sum_of([]),
    REMOVED_TOPICS: sum_of([]),
    IS_WHOLE: True,
    **dict.fromkeys(SOURCES, ""),
}
IDLE, BUSY, SHARE, NEW = (OFFSETS_TOPIC, 0), (OFFSETS_TOPIC, 1), (SHARE_TOPIC, 0), (SHARE_TOPIC, 1)
LOGS = {BUSY: LogFacts(whole_to=7), SHARE: LogFacts(gaps=(3,)), IDLE: LogFacts(leader_changes=(0, 5))}


def snapshot(before: Mapping[str, Any] | None = SETTINGS, **changes: Any) -> Snapshot:
    """Bronze with four log partitions: nothing new in one, 100 offsets in two, one that no audit saw."""
    row = None if before is None else {"audit_version": 1, "replay_version": 1, "settings": json.dumps(dict(before))}
    tables = ClusterTables(NOWHERE, "c")
    newest = WholeAudit(tables, row)
    basis = Basis(tables, InferenceSettings(), WholeRun(tables, None), newest, {}, {}, (), {}, SETTINGS, (), NEVER_MS)
    ends = {IDLE: 100, BUSY: 200, SHARE: 200, NEW: 50}
    found = Snapshot(
        basis,
        {log: (TableFile(f"{log}", 1000 * end, None, {}),) for log, end in ends.items()},
        {log: mark(end) for log, end in ends.items()},
        {log: mark(100) for log in ends if log != NEW} if basis.may_go_on else {},
        LOGS,
        {},
    )
    return replace(found, **changes)


def mark(next_offset: int) -> Watermark:
    """Replayed from the beginning to a place."""
    return Watermark(next_offset, ((0, next_offset - 1),), 1)


def test_an_audit_goes_on_from_the_last_one() -> None:
    """What is new is audited, and groups of which nothing is new are left as they are."""
    plan = make_plan(snapshot())
    assert plan.steps == {
        IDLE: ReplayMode.REST,
        BUSY: ReplayMode.GO_ON,
        SHARE: ReplayMode.GO_ON,
        NEW: ReplayMode.AFRESH,
    }
    assert plan.is_resting
    assert [log.from_offset for log in unread_logs(plan, OFFSETS_TOPIC)] == [100, 100]


@pytest.mark.parametrize(
    ("before", "changes", "rebuild"),
    [
        pytest.param(None, {}, False, id="no audit is known"),
        pytest.param(SETTINGS, {}, True, id="asked for"),
        pytest.param({**SETTINGS, "format": AUDIT_FORMAT - 1}, {}, False, id="of an older format"),
        pytest.param({**SETTINGS, IS_WHOLE: False}, {}, False, id="made without an input"),
        pytest.param(SETTINGS, {"is_renamed": True}, False, id="a run wrote rows again under other names"),
    ],
)
def test_an_audit_from_the_beginning(before: Mapping[str, Any] | None, changes: dict[str, Any], rebuild: bool) -> None:
    """Nothing of the last one stays."""
    plan = make_plan(snapshot(before, **changes), rebuild=rebuild)
    assert set(plan.steps.values()) == {ReplayMode.AFRESH}
    assert not plan.is_resting
    assert [log.from_offset for log in unread_logs(plan, OFFSETS_TOPIC)] == [0, 0]


def test_an_audit_after_one_that_broke_off() -> None:
    """Its tables are of two versions: all is made again."""
    found = snapshot()
    found.basis.newest.has_broken_off = True
    assert set(make_plan(found).steps.values()) == {ReplayMode.AFRESH}


def test_another_source_wakes_groups_and_not_share_partitions() -> None:
    """Where configs of sessions changed, groups without new records are judged again too."""
    plan = make_plan(snapshot({**SETTINGS, SESSION_CONFIGS: "others"}))
    assert not plan.is_resting
    assert plan.steps[IDLE] is ReplayMode.AFRESH
    assert plan.steps[SHARE] is ReplayMode.GO_ON


@pytest.mark.parametrize(
    ("before", "rewritten"),
    [
        pytest.param(SETTINGS, {SHARE: ((2, 10),)}, id="a capture changed what was read of one"),
        pytest.param({**SETTINGS, FORMER_SHARES: "others"}, {}, id="share partitions are in another log partition"),
    ],
)
def test_share_partitions_go_back_together(
    before: Mapping[str, Any], rewritten: dict[LogPartition, tuple[tuple[int, int], ...]]
) -> None:
    """Settled rows are of all log partitions of the topic; those of groups are not touched."""
    rewrites = Rewrites(2, {log: list(places) for log, places in rewritten.items()})
    plan = make_plan(snapshot(before, rewrites=rewrites))
    assert plan.partitions(SHARE_TOPIC, ReplayMode.AFRESH) == {0, 1}
    assert plan.partitions(OFFSETS_TOPIC, ReplayMode.AFRESH) == frozenset()


def test_tasks_know_their_log_partitions() -> None:
    """Numbered on from a number, with what is known of their topic alone."""
    found = snapshot()
    work = AuditWork("c", 10, "", (), SilverFiles({}), {}, InferenceSettings())
    tasks = list(works(found, make_plan(found), work, OFFSETS_TOPIC, [], core_count=2))
    assert [task.number for task in tasks] == [10, 11]
    assert sorted(number for task in tasks for number in task.log_partitions) == [0, 1]
    for task in tasks:
        assert (task.topic, task.logs) == (OFFSETS_TOPIC, {1: LOGS[BUSY], 0: LOGS[IDLE]})
        assert (set(task.going_on), set(task.resting)) == ({0, 1}, {0})
        assert task.next_offsets == {0: 100, 1: 100}


def test_removals_since_the_last_audit() -> None:
    """The first one that it did not know; all, where those that it knew are others."""
    removals = [(10, "a"), (20, "b"), (30, "c")]
    known = {REMOVED_UNTIL: 10, REMOVED_TOPICS: sum_of(removals[:1])}
    assert removed_since_ms(removals, known) == 20
    assert removed_since_ms(removals[:1], known) == NEVER_MS
    assert removed_since_ms([(5, "z"), *removals], known) == 5
