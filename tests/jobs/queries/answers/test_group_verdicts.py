"""Verdicts of groups: what makes one, by which rule, since when, and what takes it away again."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from coordinator_core.inference.facts.calendar import DAY_MS
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.answers.group_history import run_groups
from jobs.queries.answers.group_verdicts import (
    DELETED,
    OK,
    REPEATED,
    RESET,
    RULES,
    STALLED,
    THROWN_OUT,
    WARN,
    WENT_BACK,
    WITHOUT_OWNER,
    GroupVerdict,
    group_verdicts,
)
from schemas.tables.bronze import COVERAGE, END_OFFSETS
from schemas.tables.gold import COMMIT_ANOMALIES, LAG_HISTORY, REBALANCES
from schemas.tables.silver import GROUP_GENERATIONS, OFFSET_COMMITS
from tests.answers import printed
from tests.jobs.report.large import CLUSTER, START_MS, Tables

GROUP: Final = {"group_id": "g", "group_type": "CLASSIC", "log_partition": 0}
PLACE: Final = {"topic": "t", "partition": 3}
NEWEST_MS: Final = START_MS + 2 * DAY_MS


def tables(root: Path) -> Tables:
    """A cluster with one group, whose log was read for two days."""
    made = Tables(root)
    captured = {"topic": "__consumer_offsets", "partition": 0, "from_offset": 0, "to_offset": 99, "kind": "CAPTURED"}
    times = {"first_timestamp": np.array([START_MS]), "last_timestamp": np.array([NEWEST_MS])}
    made.add(COVERAGE, 1, {**captured, **times})
    generation(made, "g")
    return made


def generation(made: Tables, group_id: str) -> None:
    """A row of silver.group_generations."""
    row = {"generation": 1, "incarnation": 0, "from_log_offset": 0, "state": "Stable", "member_count": 1}
    made.add(GROUP_GENERATIONS, 1, {**GROUP, **row, "group_id": group_id, "valid_from": np.array([START_MS])})


def anomaly(made: Tables, kind: str, at_ms: int, log_offset: int, to_offset: int | None = 7, **more: Any) -> None:
    """A row of gold.commit_anomalies: from offset 9."""
    row: dict[str, Any] = {"kind": kind, "log_offset": log_offset, "at": np.array([at_ms]), "confidence": "CERTAIN"}
    made.add(COMMIT_ANOMALIES, 1, {**GROUP, **PLACE, **row, "from_offset": 9, "to_offset": to_offset, **more})


def commit(made: Tables, offset: int, log_offset: int) -> None:
    """A row of silver.offset_commits."""
    row = {"committed_offset": offset, "log_offset": log_offset, "applied_log_offset": log_offset}
    applied = {"outcome": "APPLIED", "change": "ADVANCE", "applied_at": np.array([NEWEST_MS])}
    made.add(OFFSET_COMMITS, 1, {"group_id": "g", "log_partition": 0, **PLACE, **row, **applied})


def verdict(made: Tables) -> GroupVerdict:
    """Of the one group."""
    (found,) = group_verdicts(ClusterTables(made.warehouse, CLUSTER))
    return found


def test_an_offset_that_stays_is_stalled_by_its_rule(tmp_path: Path) -> None:
    """Since the commit that was repeated for too long, however long ago that is; other anomalies count for a day."""
    made = tables(tmp_path)
    anomaly(made, "REWIND", START_MS, 4)
    anomaly(made, STALLED, START_MS + 1_000, 5)
    commit(made, 7, 9)
    found = verdict(made)
    assert (found.verdict, found.rules, found.since_ms) == (STALLED, {REPEATED: 1}, START_MS + 1_000)
    anomaly(made, "REWIND", NEWEST_MS - 5, 6)
    commit(made, 7, 10)
    found = verdict(made)
    assert (found.verdict, found.rules, found.since_ms) == ("WARN", {WENT_BACK: 1}, NEWEST_MS - 5)


RESETS: Final[dict[str, tuple[list[tuple[int, int | None, int]], str]]] = {
    "back": ([(0, 9, 2), (1, 9, 4)], "reset by a tool: 2 partitions, 12 records back"),
    "ahead": ([(0, 9, 20)], "reset by a tool: 1 partition, 11 records ahead"),
    "both, and one that had no offset": (
        [(0, 9, 20), (1, 9, 8), (2, None, 5)],
        "reset by a tool: 3 partitions, 1 record back, 11 records ahead",
    ),
    "ahead, and ahead again": (
        [(0, 9, 20), (1, 9, 15), (0, 20, 50)],
        "reset by a tool: 2 partitions, 47 records ahead",
    ),
    "a consumer without membership goes on": ([(0, 9 + number, 10 + number) for number in range(4)], ""),
    "to where it was": ([(0, 9, 9)], ""),
}


@pytest.mark.parametrize("what", RESETS)
def test_a_reset_of_an_empty_group_is_no_rewind_and_not_ok(tmp_path: Path, what: str) -> None:
    """Whatever moved, with the sum of the records; what nobody can know is said with it. A guess is no reset."""
    moves, why = RESETS[what]
    made = tables(tmp_path)
    for number, (partition, before, after) in enumerate(moves):
        place = {"partition": partition, "from_offset": before}
        anomaly(made, "EMPTY_GROUP_RESET", NEWEST_MS - 9 + number, number, after, **place)
    anomaly(made, "EMPTY_GROUP_RESET", NEWEST_MS, 99, 20, partition=99, confidence="GUESS")
    found = verdict(made)
    assert found.rewind_count == sum(before is not None and after < before for _, before, after in moves)
    assert found.verdict == ("WARN" if why else OK) and set(found.rules) == ({RESET} if why else set())
    assert found.why == (f"{why}, group was empty (who did it is in no log)" if why else "")
    assert found.since_ms == (NEWEST_MS - 9 if why else None)


KINDS: Final = ("REWIND", "SKIP", "STALLED", "ABORTED", "EMPTY_GROUP_RESET", "ANY KIND OF LATER RELEASES")


def test_what_went_back_is_decided_by_the_offsets(tmp_path: Path) -> None:
    """By no name of a kind, but for what never took effect; not in a topic that was made again."""
    made = tables(tmp_path)
    cases = {f"{kind}, {cause}": (kind, cause) for kind in KINDS for cause in (None, TOPIC_RECREATED, "ANOTHER")}
    for group_id, (kind, cause) in cases.items():
        generation(made, group_id)
        row = {**GROUP, **PLACE, "group_id": group_id, "kind": kind, "likely_cause": cause, "confidence": "CERTAIN"}
        moves = {"log_offset": range(4), "partition": range(4), "from_offset": 9, "to_offset": [8, 9, 10, None]}
        made.add(COMMIT_ANOMALIES, 4, {**row, **moves, "at": np.full(4, NEWEST_MS)})
    counts = {it.group_id: it.rewind_count for it in group_verdicts(ClusterTables(made.warehouse, CLUSTER))}
    assert counts.pop("g") == 0
    went_back = {name: kind != "ABORTED" and cause != TOPIC_RECREATED for name, (kind, cause) in cases.items()}
    assert counts == went_back


@pytest.mark.parametrize("likely_cause", [None, "OFFSETS_DELETED", "TOPIC_DELETED", "GROUP_DELETED", "EXPIRED"])
def test_deleted_offsets_of_a_group_that_lives_are_said(tmp_path: Path, likely_cause: str | None) -> None:
    """Unless they went with their topic, with an earlier group of that name, or with their age."""
    made = tables(tmp_path)
    anomaly(made, "DELETED", NEWEST_MS, 1, None, likely_cause=likely_cause)
    found = verdict(made)
    is_named = likely_cause in (None, "OFFSETS_DELETED")
    assert (found.rules, found.why) == (
        ({DELETED: 1}, "1 offset deleted, not explained by offsets_retention_ms") if is_named else ({}, "")
    )


@pytest.mark.parametrize(
    ("likely_cause", "listed"), [("GROUP_DELETED", ["gone"]), ("EXPIRED", []), ("TOPIC_DELETED", [])]
)
def test_a_group_that_was_deleted_is_listed(tmp_path: Path, likely_cause: str, listed: list[str]) -> None:
    """With its offsets, in the time asked for; not one whose offsets expired, which ends as quietly as it lay."""
    made = tables(tmp_path)
    anomaly(made, "DELETED", NEWEST_MS, 1, None, likely_cause=likely_cause, group_id="gone")
    text, _ = printed(run_groups, ClusterTables(made.warehouse, CLUSTER), "json", needs_attention=True)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["group"] for row in rows] == listed
    assert all(
        (row["state"], row["verdict"], row["why"]) == ("Dead", WARN, "1 offset deleted with its group") for row in rows
    )


@pytest.mark.parametrize("what", ["it moved on", "it was read to its end", "the end was sampled before"])
def test_a_stall_ends(tmp_path: Path, what: str) -> None:
    """Where the offset moved since, or a sampled end shows that there was nothing to read."""
    made = tables(tmp_path)
    anomaly(made, STALLED, START_MS + 1_000, 5)
    commit(made, 8 if what == "it moved on" else 7, 9)
    if what != "it moved on":
        sampled_ms = START_MS + (500 if "before" in what else 2_000)
        made.add(END_OFFSETS, 1, {**PLACE, "end_offset": 7, "sampled_at": np.array([sampled_ms])})
    assert verdict(made).verdict == (STALLED if "before" in what else OK)


def test_lag_is_the_newest_of_each_partition(tmp_path: Path) -> None:
    """Summed over partitions; a lower bound counts where no more is known."""
    made = tables(tmp_path)
    assert verdict(made).lag is None
    for partition, log_offset, lag, lag_min in ((0, 1, 50, 40), (0, 2, 5, 1), (1, 1, None, 3), (2, 1, -4, -9)):
        row = {"topic": "t", "partition": partition, "log_offset": log_offset, "lag": lag, "lag_min": lag_min}
        made.add(LAG_HISTORY, 1, {**GROUP, **row, "at": np.array([START_MS])})
    assert verdict(made).lag == 8


@pytest.mark.parametrize(("unowned_ms", "rules"), [(4 * 60_000, {WITHOUT_OWNER: 1}), (4 * 60_000 - 1, {})])
def test_partitions_without_an_owner_for_long_need_attention(
    tmp_path: Path, unowned_ms: int, rules: dict[str, int]
) -> None:
    """A rebalance that waited for a refused member leaves nothing else in the log; a short one is no reason."""
    made = tables(tmp_path)
    row = {"to_generation": 2, "incarnation": 0, "started_at": np.array([NEWEST_MS - 1]), "in_storm": False}
    times = {"unowned_likely_ms": unowned_ms, "unowned_confidence": "LIKELY", "partitions_total": 4}
    made.add(REBALANCES, 1, {**GROUP, **row, **times, "cause": "MEMBER_JOINED"})
    found = verdict(made)
    assert (found.rules, found.unowned_ms) == (rules, unowned_ms)
    assert found.since_ms == (NEWEST_MS - 1 if rules else None)


@pytest.mark.parametrize(
    ("causes", "rules"),
    [
        ([("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")], {THROWN_OUT: 1}),
        ([("MEMBER_LEFT", "M", "CERTAIN"), ("MEMBER_EXPIRED", "M", "LIKELY")], {THROWN_OUT: 1}),
        ([("MEMBER_LEFT", "M", "CERTAIN"), ("MEMBER_EXPIRED", "M", "GUESS")], {}),
        ([("MEMBER_EXPIRED", "COOPERATIVE_FOLLOW_UP", "LIKELY")], {}),
        ([("UNKNOWN", "SILENT_FOR_POLL_INTERVAL", "GUESS")], {}),
    ],
)
def test_members_that_were_thrown_out_need_somebody(
    tmp_path: Path, causes: list[tuple[str, str, str]], rules: dict[str, int]
) -> None:
    """Where that is more than a guess, and not the second round of a rebalance; on the last day alone."""
    made = tables(tmp_path)
    of_each = zip(("causes", "cause_methods", "cause_confidences"), zip(*causes, strict=True), strict=True)
    listed = {name: [list(values)] for name, values in of_each}
    for number, at_ms in enumerate((NEWEST_MS - 5, NEWEST_MS - 2 * DAY_MS)):
        row = {**GROUP, "to_generation": number, "incarnation": 0, "started_at": np.array([at_ms])}
        made.add(REBALANCES, 1, {**row, "in_storm": False, "member_count": 1, **listed})
    found = verdict(made)
    assert (found.rules, found.verdict) == (rules, WARN if rules else OK)
    assert found.since_ms == (NEWEST_MS - 5 if rules else None)
    assert found.score == (21 if rules else 0)


def test_the_worst_comes_first(tmp_path: Path) -> None:
    """By the points of all its rules, and by how often for those of one rule; points fall in the order of the rules."""
    points = [rule.points for rule in RULES.values()]
    assert points == sorted(points, reverse=True)
    made = tables(tmp_path)
    for group_id, kinds in {"b": ["REWIND"] * 10, "a": ["REWIND"], "c": ["REWIND", "DELETED"]}.items():
        generation(made, group_id)
        for number, kind in enumerate(kinds):
            anomaly(made, kind, NEWEST_MS, number, None if kind == "DELETED" else 7, group_id=group_id)
    found = group_verdicts(ClusterTables(made.warehouse, CLUSTER))
    assert [(it.group_id, it.score) for it in found] == [("c", 10 + 1 + 25 + 1), ("b", 10 + 2), ("a", 10 + 1), ("g", 0)]
