"""Share groups over transactional producers (share.isolation.level): what members get, and what a night says of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.queries.answers.group_verdicts import group_verdicts
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.truth import Facts
from tests.cases.harness import Ledger
from tests.cases.simulated import simulate_into

UNIT: Final = 7
"""Offsets of a transaction: six records and the marker."""
ABORTED: Final = 3
"""Every third is aborted."""
SCENARIO: Final = """
name = "transactional"
start = 2026-01-05T08:00:00Z
duration = "3m"
seed = 3
[cluster]
brokers = 1
consumer_offsets_partitions = 1
share_group_state_partitions = 1
[[topic]]
name = "t"
partitions = 2
rate = 8.0
batch_records = 2
transaction_records = 6
abort_every = 3
""" + "".join(
    f"""
[[group]]
name = "{level}-{acknowledge}"
protocol = "share"
topics = ["t"]
isolation_level = "read_{level}"
offset_reset = "earliest"
acknowledge = "{acknowledge}"
{"release_every = 20" if acknowledge == "explicit" else ""}
"""
    for level in ("committed", "uncommitted")
    for acknowledge in ("implicit", "explicit")
)


@pytest.fixture(name="lines", scope="module")
def _lines(logs: tuple[Path, dict[str, list[Facts]]]) -> dict[str, list[Facts]]:
    return logs[1]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Facts]]]:
    """The logs of the story, and its truth."""
    folder = tmp_path_factory.mktemp("logs")
    sink = simulate_into(folder, parse_scenario(SCENARIO, "transactional.toml"))
    return folder, sink.lines


def offsets_of(lines: Iterable[Mapping[str, Any]], group: str) -> dict[int, set[int]]:
    """By partition, the offsets of lines or rows of a group."""
    found: dict[int, set[int]] = {0: set(), 1: set()}
    for line in lines:
        if line.get("group", line.get("group_id")) == group:
            found[line["partition"]].update(range(line["first_offset"], line["last_offset"] + 1))
    return found


def is_marker(offset: int) -> bool:
    return offset % UNIT == UNIT - 1


def is_aborted(offset: int) -> bool:
    return offset // UNIT % ABORTED == ABORTED - 1


@pytest.mark.parametrize("acknowledge", ["implicit", "explicit"])
def test_members_see_what_their_isolation_level_lets_them(lines: dict[str, list[Facts]], acknowledge: str) -> None:
    """read_committed: no record of an aborted transaction, and none of one that is open; read_uncommitted: all."""
    committed = offsets_of(lines["deliveries"], f"committed-{acknowledge}")
    uncommitted = offsets_of(lines["deliveries"], f"uncommitted-{acknowledge}")
    for partition, offsets in committed.items():
        assert len(offsets) > 300
        assert not {offset for offset in offsets if is_aborted(offset) and not is_marker(offset)}
        every = uncommitted[partition]
        assert every == set(range(max(every) + 1))
        whole = set(range((max(offsets) // UNIT + 1) * UNIT))
        assert offsets >= {offset for offset in whole if not is_aborted(offset)}
    # a transaction that is open when members poll is read once its marker is there
    first_ms = {
        (line["partition"], offset): line["ts_ms"]
        for line in reversed(lines["deliveries"])
        if line["group"] == f"committed-{acknowledge}"
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    for (partition, offset), at_ms in first_ms.items():
        marker = partition, offset // UNIT * UNIT + UNIT - 1
        assert marker not in first_ms or first_ms[marker] <= at_ms


def test_markers_are_gaps_and_no_records_given_up(ledger: Ledger, logs: tuple[Path, dict[str, list[Facts]]]) -> None:
    """Clients acknowledge markers as GAP; a night calls nothing else given up, and no record a marker: of what they
    lost it says nothing, for they lost nothing."""
    folder, lines = logs
    assert {line["why"] for line in lines["archived"]} == {"GAP"}
    night = ledger.night(folder)
    assert night.exit_code == 0, night.text
    rows = ledger.rows("gold.archived_records")
    for level in ("committed", "uncommitted"):
        for acknowledge in ("implicit", "explicit"):
            group = f"{level}-{acknowledge}"
            passed = [row for row in rows if row["group_id"] == group and row["cause"] == "UNSEEN"]
            for row in passed:
                offsets = range(row["first_offset"], row["last_offset"] + 1)
                assert level == "committed" and all(is_aborted(offset) and not is_marker(offset) for offset in offsets)
                assert row["likely_cause"] == "ABORTED_TRANSACTION"
            archived = [row for row in rows if row["group_id"] == group and row["cause"] != "UNSEEN"]
            truth = offsets_of(lines["archived"], group)
            assert offsets_of(archived, group) == truth, group
            assert all(is_marker(offset) for offsets in truth.values() for offset in offsets)
            assert {row["likely_cause"] for row in archived} == {"TRANSACTION_MARKER"}, group
    days = ledger.rows("gold.share_group_summary")
    assert [(row["records_given_up"], row["archived_count"] > 0) for row in days] == [(0, True)] * 4
    assert {(it.verdict, it.given_up_count) for it in group_verdicts(ledger.tables)} == {("OK", 0)}
    assert "given up" not in night.text
