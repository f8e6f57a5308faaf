"""What happened to a group, and which groups need somebody: of a recording of a real broker."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from jobs.console.names import short
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import ArgumentError
from jobs.queries.answers.group_history import (
    EVENT_WORDS,
    IN_OTHER_EVENTS,
    Event,
    _gone,
    _rebalance,
    events_and_steps,
    run_groups,
    run_history,
)
from jobs.queries.answers.group_verdicts import OK, WARN, group_verdicts
from tests.answers import printed
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.conftest import LedgerOf


@pytest.fixture(scope="module")
def ledger(ledger_of: LedgerOf) -> Ledger:
    """One night."""
    return ledger_of("full-a")


def count(ledger: Ledger, table: str, group_id: str) -> int:
    """Rows of a group."""
    return int(ledger.table(table).filter(pc.field("group_id") == group_id).num_rows)


def test_every_row_of_gold_is_in_an_event(ledger: Ledger) -> None:
    """Rebalances and commit anomalies one by one; records to which the same happened at once together."""
    events = events_and_steps(ledger.tables, "s05-limit", from_ms=None, to_ms=None)[0]
    times = [event.at_ms for event in events if event.at_ms is not None]
    assert len(times) == len(events)
    assert times == sorted(times)
    kinds = [event.event for event in events]
    assert kinds.count("rebalance") == count(ledger, "gold.rebalances", "s05-limit") == 3
    reported = sum(int(e.text.split()[1]) if " records " in e.text else 1 for e in events if e.event == "given up")
    assert reported == count(ledger, "gold.archived_records", "s05-limit") == 16
    commits = events_and_steps(ledger.tables, "c08-simple", from_ms=None, to_ms=None)[0]
    assert sum(event.event == "commit REWIND" for event in commits) == 11


def test_a_reset_is_restored_from_before_all_of_it(ledger: Ledger) -> None:
    """A tool resets one partition after the other: the command shows the offsets before the first of them."""
    _, remarks = printed(run_history, ledger.tables, group_id="c08-simple")
    [offer] = [line for line in remarks if "restore" in line]
    assert offer.startswith("offsets went back 11 times; those before the last 3, which are close together: ")
    assert "--at 2026-11-21T02:59:16.071Z" in offer
    events = events_and_steps(ledger.tables, "c08-simple", from_ms=None, to_ms=None)[0]
    assert [event.at_ms % 60_000 for event in events if event.is_back and event.at_ms][-3:] == [16_072, 16_082, 16_095]


@pytest.fixture(scope="module")
def events_of(ledger: Ledger) -> Mapping[str, Sequence[Event]]:
    """The history of each group."""
    groups = set(ledger.table("silver.group_events")["group_id"].to_pylist())
    return {name: events_and_steps(ledger.tables, name, from_ms=None, to_ms=None)[0] for name in groups}


@pytest.mark.nights
def test_each_cause_has_its_own_confidence(ledger: Ledger, events_of: Mapping[str, Sequence[Event]]) -> None:
    """Never one for all, where they differ: neither in a line nor in JSON."""
    mixed = 0
    for row in ledger.rows("gold.rebalances"):
        ways = list(zip(row["causes"], row["cause_confidences"], strict=True))
        is_one = len(set(row["cause_confidences"])) == 1
        said = " + ".join(row["causes"] if is_one else [f"{cause} ({sure})" for cause, sure in ways])
        begin = f"to generation {row['to_generation']} by {said}, "
        confidences = {it.confidence for it in events_of[row["group_id"]] if it.text.startswith(begin)}
        assert (row["confidence"] if is_one else None) in confidences, begin
        mixed += not is_one
    assert mixed > 20


@pytest.mark.nights
def test_what_changed_is_there_with_who(ledger: Ledger, events_of: Mapping[str, Sequence[Event]]) -> None:
    """Members with client id and host, what became of the group, and of its share partitions."""
    events = {event.event for found in events_of.values() for event in found}
    types = set(ledger.table("silver.group_events")["event_type"].to_pylist()) - IN_OTHER_EVENTS
    words = {EVENT_WORDS.get(name, name.lower().replace("_", " ")) for name in types - {"OFFSETS_DELETED"}}
    assert words <= events
    joined = [it.text for it in events_of["c01-range"] if it.event == "member joined"]
    assert joined[-1] == "c01-range-again on /127.0.0.1"
    assert any(it.event == "static member replaced" and " in place of " in it.text for it in events_of["k03-static"])


def test_one_millisecond_is_in_the_order_of_the_log(tmp_path: Path) -> None:
    """44 to 30 to 16, as it was committed, whatever the alphabet says."""
    log = SmallLog()
    for offset in (44, 30, 16):
        log.commit("g", 0, offset, NOON_MS)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(log.write(tmp_path / "logs"))
    events = events_and_steps(ledger.tables, "g", from_ms=None, to_ms=None)[0]
    assert [it.text.partition(",")[0] for it in events if it.event == "commit REWIND"] == [
        "in-0 from 44 to 30",
        "in-0 from 30 to 16",
    ]


def test_lines_have_all_that_json_has(ledger: Ledger) -> None:
    """Long names are cut, with dots, in both alike; lines are not."""

    lines, rows = (
        printed(run_history, ledger.tables, output_format, group_id="c01-range")[0].splitlines()
        for output_format in ("table", "json")
    )
    assert max(map(len, lines)) > 120
    for line, row in zip(lines, map(json.loads, rows), strict=True):
        assert line.endswith(f": {row['text']}")
    assert short("n" * 101) == "n" * 97 + "..."
    assert short("n" * 100) == "n" * 100


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("COOPERATIVE_FOLLOW_UP", ", follow-up of the one before, gone: c on /h, as COOPERATIVE_FOLLOW_UP shows"),
        ("IN_LOG", ", gone: c on /h"),
    ],
)
def test_a_follow_up_is_named_as_one(method: str, words: str) -> None:
    """It has the cause of the rebalance before, and did not happen for it a second time."""
    row: dict[str, Any] = {"causes": ["MEMBER_LEFT"], "cause_methods": [method], "cause_confidences": ["LIKELY"]}
    row |= {"to_generation": 3, "member_count": 2, "partitions_moved": 0, "unowned_likely_ms": 0, "in_storm": False}
    row |= {"members_joined": [], "members_left": ["m-1"], "method": method}
    event = _rebalance(row | {"at_ms": 1, "place": ("log", 0, 7, 0)}, {"m-1": [(0, "c on /h")]})
    assert event.text == f"to generation 3 by MEMBER_LEFT{words}, 2 members"


def test_a_span_is_half_open(ledger: Ledger) -> None:
    """From is inclusive, to exclusive; a group that is not there is an error."""
    events = events_and_steps(ledger.tables, "c01-range", from_ms=None, to_ms=None)[0]
    first, last = events[2].at_ms, events[5].at_ms
    assert events_and_steps(ledger.tables, "c01-range", from_ms=first, to_ms=last)[0] == events[2:5]
    with pytest.raises(ArgumentError, match="no group 'nope'"):
        events_and_steps(ledger.tables, "nope", from_ms=None, to_ms=None)


def test_groups_that_need_somebody_come_first(ledger: Ledger) -> None:
    """Each with its reason; markers and records of aborted transactions are none that were given up."""
    lines = group_verdicts(ledger.tables)
    scores = [line.score for line in lines]
    assert scores == sorted(scores, reverse=True) and {OK, WARN} == {line.verdict for line in lines}
    assert [line.group_id for line in lines[:2]] == ["s11-delete", "k03-static"], "as bad, and more happened"
    assert lines[0].score == 25 + 1 + 25 + 1 == lines[1].score == 30 + 1 + 20 + 1
    assert lines[1].why == "5 in storms, 1 rebalance with members thrown out"
    by_group = {line.group_id: line for line in lines}
    assert by_group["k10-empty-switch"].why == "6 in storms"
    assert by_group["c08-simple"].why == "11 rewinds"
    markers = ledger.table("gold.archived_records").filter(pc.field("likely_cause") == "TRANSACTION_MARKER")
    assert markers.num_rows and by_group["s10-readcommitted"].given_up_count == 0
    assert all(bool(line.why) == (line.verdict != OK) for line in lines)
    text, _ = printed(run_groups, ledger.tables, match="S05", needs_attention=True)
    header, row = text.splitlines()
    assert header.startswith("group,type,state,") and row.startswith("s05-limit,SHARE,Empty,0,")


def test_groups_that_are_gone_are_counted_and_shown(ledger: Ledger) -> None:
    """A list leaves them out, and says how many, which, and the command that has them; of one, its history."""
    names = {name for name in ledger.table("silver.group_generations")["group_id"].to_pylist() if name is not None}
    text, remarks = printed(run_groups, ledger.tables, "json")
    there = {row["group"] for row in map(json.loads, text.splitlines())}
    [gone] = names - there
    shown = f"1 more group is gone ({gone}): ./spark-submit.sh history --group {gone}"
    assert [line[: len(shown)] for line in remarks if "gone" in line] == [shown]
    text, remarks = printed(run_groups, ledger.tables, "json", gone=True)
    rows = {row["group"]: row for row in map(json.loads, text.splitlines())}
    assert rows.keys() == names | there and not [line for line in remarks if "gone" in line]
    assert rows[gone]["state"] == "Dead"
    text, remarks = printed(run_groups, ledger.tables, "json", match=gone[:-1])
    assert text == "" and remarks[0].startswith(shown)
    _, remarks = printed(run_groups, ledger.tables, "json", needs_attention=True)
    assert bool([line for line in remarks if "gone" in line]) == (rows[gone]["verdict"] != OK)
    several = "2 more groups are gone (a, b): ./spark-submit.sh groups --gone --match x --cluster-id c"
    assert [*_gone(["b", "a"], " --match x --cluster-id c", " --cluster-id c")] == [several] and not [
        *_gone([], "", "")
    ]


def test_counts_begin_where_they_are_asked_to(ledger: Ledger) -> None:
    """After the last rebalance there is none."""
    events = events_and_steps(ledger.tables, "k03-static", from_ms=None, to_ms=None)[0]
    last_ms = max(event.at_ms for event in events if event.at_ms is not None)
    (line,) = group_verdicts(ledger.tables, from_ms=last_ms + 1, match="k03-static")
    assert (line.rebalance_count, line.verdict) == (0, OK)


def test_an_empty_warehouse_has_no_groups(tmp_path: Path) -> None:
    """And no error."""
    assert group_verdicts(ClusterTables(Ledger(tmp_path / "warehouse").warehouse, CLUSTER_ID)) == []
