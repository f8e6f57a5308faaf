"""Answers over logs that a newcomer would be fooled by: grown internal topics, clocks that went back, records without
times, offsets below 0, dumps without markers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from jobs.cli_enums import View
from jobs.errors import JobError
from jobs.queries.answers.describe import run_describe
from jobs.queries.answers.owner import run_owner
from jobs.queries.answers.restore import run_restore
from tests.answers import printed
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

MINUTE: Final = 60_000
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)


def ms(text: str) -> int:
    """Epoch ms of a time."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def described(ledger: Ledger, group: str, at: str | None = None, view: View = View.OFFSETS) -> tuple[str, list[str]]:
    """What describe prints, and what it remarks."""
    at_ms = None if at is None else ms(at)
    return printed(run_describe, ledger.tables, view=view, at_ms=at_ms, group_ids=[group], sample_age_max_ms=1)


def restored(ledger: Ledger, group: str, at: str, output: Path | None = None) -> tuple[str, list[str]]:
    """What restore prints, and what it remarks."""
    path = None if output is None else str(output)
    return printed(run_restore, ledger.tables, group_ids=[group], at_ms=ms(at), output=path)


def owned(ledger: Ledger, topic: str, partition: int, at: str | None = None) -> tuple[str, list[str]]:
    """What owner prints, and what it remarks."""
    at_ms = None if at is None else ms(at)
    return printed(run_owner, ledger.tables, topic=topic, partition=partition, at_ms=at_ms)


def test_a_group_is_where_its_hash_points_now(ledger: Ledger) -> None:
    """After the topic grew a group is in its new log partition alone; the rest is of before, and said to be."""
    ledger.night(CASES / "J-partitions" / "logs")
    offsets, remarks = described(ledger, "grp3")
    assert ",12," in offsets and "5000" not in offsets
    assert any("__consumer_offsets-50" in line and "from before the topic" in line for line in remarks)
    members, _ = described(ledger, "grp3", view=View.MEMBERS)
    assert len(members.splitlines()) == 2 and ",new," in members
    owners, _ = owned(ledger, "in", 0)
    assert len(owners.splitlines()) == 2 and ",new," in owners
    plan, _ = restored(ledger, "grp3", "2100-01-01T00:00:00Z")
    assert "12" in plan and "5000" not in plan
    before, _ = described(ledger, "grp3", at="2026-05-28T20:40:00Z")
    assert "5000" in before


def test_a_moment_that_the_log_has_twice_has_two_answers(ledger: Ledger) -> None:
    """Where the clock went back, both are given, each with its place in the log."""
    ledger.night(CASES / "S-skew" / "logs")
    owners, remarks = owned(ledger, "in", 0, at="2026-05-28T20:27:45Z")
    lines = owners.splitlines()
    assert "LOG-POSITION" in lines[0] and len(lines) == 3
    assert {line.partition("__consumer_offsets-42@")[2].split(",")[0] for line in lines[1:]} == {"2", "7"}
    assert any("more than once" in line for line in remarks)
    plan, remarks = restored(ledger, "skew", "2026-05-28T20:28:00Z")
    assert ",20," in plan and ",40," in plan
    assert any("more than once" in line for line in remarks)


@pytest.mark.parametrize("is_audited", [True, False])
def test_a_moment_that_only_commits_show_twice_has_two_owners(ledger: Ledger, tmp_path: Path, is_audited: bool) -> None:
    """The group's own records are in the order of time; commits between them show that the clock went back: whoever
    owned the partition when the time came first is named, too, and so is the state of the group."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,)}, NOON_MS)
    log.commit("g", 0, 10, NOON_MS + 90 * MINUTE)
    log.leader_epoch = 1
    log.generation("g", 2, {"b": (0,), "c": (1,)}, NOON_MS + 30 * MINUTE)
    log.commit("g", 0, 15, NOON_MS + 31 * MINUTE)
    ledger.night(log.write(tmp_path / "logs"))
    if not is_audited:
        ledger.forget_audits()
    at = datetime.fromtimestamp((NOON_MS + 40 * MINUTE) / 1000, UTC).isoformat()
    owners, remarks = owned(ledger, "in", 0, at=at)
    assert [line.split(",")[4] for line in owners.splitlines()[1:]] == ["a", "b"]
    assert any("more than once" in line for line in remarks)
    states, remarks = described(ledger, "g", at=at, view=View.STATE)
    assert [line.split(",")[4] for line in states.splitlines()[1:]] == ["1", "2"]
    assert any("more than once" in line for line in remarks)


def test_a_negative_offset_is_none_for_kafkas_tools(ledger: Ledger, tmp_path: Path) -> None:
    """describe prints as Kafka's tool does, and restore leaves it out and says so."""
    ledger.night(CASES / "negative-offset" / "logs")
    (group,) = {row["group_id"] for row in ledger.rows("silver.offset_commits")}
    offsets, _ = described(ledger, group)
    assert "-1" not in offsets
    plan, _ = restored(ledger, group, "2100-01-01T00:00:00Z")
    assert len(plan.splitlines()) == 2 and "-1" not in plan
    with pytest.raises(JobError, match="left out"):
        restored(ledger, group, "2100-01-01T00:00:00Z", tmp_path / "offsets.csv")
    assert not (tmp_path / "offsets.csv").exists()


@pytest.mark.parametrize("case", ["D2a", "D2b", "D2c", "D2d"])
def test_records_without_a_time_are_placed_by_what_is_known(ledger: Ledger, case: str) -> None:
    """No answer ends in a foreign exception, and what was committed is found."""
    ledger.night(CASES / case / "logs")
    for row in ledger.rows("silver.offset_commits"):
        offsets, _ = described(ledger, row["group_id"], at="2100-01-01T00:00:00Z")
        assert row["topic"] in offsets
        plan, _ = restored(ledger, row["group_id"], "2100-01-01T00:00:00Z")
        assert row["topic"] in plan
