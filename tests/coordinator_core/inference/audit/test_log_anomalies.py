"""Broken rules: what each break means, what to do about it, and which of Kafka's defects shows like it."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from coordinator_core.inference.audit.log_anomalies import (
    LEADER_EPOCH_FELL,
    OFFSETS_OUTLIVE_GROUP,
    RULES,
    SNAPSHOT_EPOCH_FELL,
    START_OFFSET_WENT_BACK,
    STATE_EPOCH_FELL,
    STATE_EPOCH_UNSET,
    ShareEpochs,
    group_anomalies,
    share_breaks,
)
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.replay.anomalies import DOUBLE_OWNER
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS
from tests.coordinator_core.inference.commits.test_commit_anomalies import commit, event, life_of

DEFECT = re.compile(r"KAFKA-[0-9]{5}|apache/kafka#[0-9]{5}")


@pytest.mark.parametrize("name", RULES)
def test_every_rule_says_what_its_break_means_and_what_to_do(name: str) -> None:
    """In whole sentences; a defect is an issue or a pull request of Kafka's."""
    rule = RULES[name]
    assert rule.meaning.endswith(".") and rule.remedy.endswith(".")
    assert all(DEFECT.fullmatch(defect) for defect in rule.known_defects)


def test_breaks_that_replay_met() -> None:
    """Known codes keep their name, embedded ones share one, unknown ones are OTHER; details stay."""
    codes = ("DOUBLE_OWNER", "EMBEDDED_TRUNCATED", "NEVER_HEARD_OF")
    events = tuple(event(number, "ANOMALY", code=code, message="m") for number, code in enumerate(codes))
    rows = group_anomalies(life_of(events=events))
    assert [row.rule for row in rows] == ["DOUBLE_OWNER", "EMBEDDED", "OTHER"]
    assert [row.details for row in rows] == [f"{code}: m" for code in codes]
    assert (rows[0].meaning, rows[0].remedy, rows[0].known_defects, rows[0].category) == RULES[DOUBLE_OWNER]
    assert [row.category for row in rows] == ["COORDINATOR", "CLIENT", "COORDINATOR"]
    assert [row.confidence for row in rows] == ["CERTAIN"] * 3
    behind_hole = group_anomalies(life_of(events=events[1:], log=LogFacts(holes=(0,))))
    assert [row.confidence for row in behind_hole] == ["CERTAIN", "LIKELY"], "one record shows the first by itself"


def test_offsets_that_outlive_their_group() -> None:
    """The group was deleted and no tombstone took its offset; with one there is nothing to say."""
    deleted = {"events": (event(200, "GROUP_DELETED"),)}
    (row,) = group_anomalies(life_of(commit(1, 5), commit(2, 5, partition=1), commit(199, None, 5), **deleted))
    assert (row.rule, row.partition, row.log_offset, row.confidence) == (OFFSETS_OUTLIVE_GROUP, 1, 200, "LIKELY")
    assert group_anomalies(life_of(commit(1, 5), commit(199, None, 5), **deleted)) == []


Epochs = int | Mapping[str, int]
"""One number for all, or some by name and 0 for the others."""


def states(*rows: tuple[str, int, Epochs]) -> ShareEpochs:
    """States of one share partition: record kind, start offset, and epochs."""

    def epochs(name: str) -> Any:
        numbers = [row[2] if isinstance(row[2], int) else row[2].get(name, 0) for row in rows]
        return np.array(numbers, np.int64)

    return ShareEpochs(
        key=np.zeros(len(rows), np.int64),
        log_offset=np.arange(len(rows)),
        record_kind=np.array([RECORD_KINDS.index(kind) for kind, *_ in rows], np.int8),
        start_offset=np.array([start_offset for _, start_offset, _ in rows], np.int64),
        state_epoch=epochs("state_epoch"),
        snapshot_epoch=epochs("snapshot_epoch"),
        leader_epoch=epochs("leader_epoch"),
    )


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([("SNAPSHOT", 5, 1), ("UPDATE", 7, 1), ("UPDATE", -1, 2)], []),
        ([("SNAPSHOT", 5, 1), ("UPDATE", 3, 1)], [START_OFFSET_WENT_BACK]),
        ([("SNAPSHOT", 5, 1), ("RESET", 3, 1)], []),
        ([("SNAPSHOT", 5, 2), ("TOMBSTONE", -1, -1), ("SNAPSHOT", 0, 0)], []),
        ([("SNAPSHOT", 5, 2), ("UPDATE", 5, 1)], [STATE_EPOCH_FELL, SNAPSHOT_EPOCH_FELL, LEADER_EPOCH_FELL]),
        ([("SNAPSHOT", 5, {"state_epoch": 2}), ("RESET", -1, {"state_epoch": 1})], [STATE_EPOCH_FELL]),
        ([("SNAPSHOT", 5, {"state_epoch": 2}), ("RESET", -1, {"state_epoch": -1})], [STATE_EPOCH_UNSET]),
        ([("SNAPSHOT", 5, {"leader_epoch": 2}), ("RESET", -1, {"leader_epoch": 0})], []),
    ],
)
def test_share_partitions_that_go_back(rows: list[tuple[str, int, Epochs]], broken: list[str]) -> None:
    """Start offsets and epochs only grow, until a reset or a tombstone; whatever the order of the rows."""
    epochs = states(*rows)
    turned = ShareEpochs(*(getattr(epochs, item.name)[::-1] for item in fields(ShareEpochs)))
    assert [found.rule for found in share_breaks(epochs)] == broken
    assert [found.rule for found in share_breaks(turned)] == broken
    assert all(rule in RULES for rule in broken)
