"""What is not for a terminal has all columns; no word is there that nobody explains; another recording is no wider.

Apart from test_terminal.py, so that two processes share the questions."""

import json
import re
import shlex
from functools import cache
from typing import Final

import pytest

from jobs import exit_codes
from jobs.queries.answers.explain import CAPITALS, explained
from jobs.queries.answers.group_verdicts import GONE, group_verdicts
from jobs.queries.answers.lists import LISTS
from tests.jobs.cli.asking import WIDTHS, Asks, answered, wider_than
from tests.jobs.conftest import LedgerOf
from tests.lengths import takes_minutes
from tests.questions import QUESTIONS
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.conformance

UNLIKE: Final = "new-44"
"""A recording of other brokers than the one that is asked most; all of them take minutes."""
NOT_OURS: Final = {"FILE", "TIME", "ZONE", "ID"}
"""Of options, and of Kafka's head COORDINATOR (ID)."""
EXPLAINED: Final = cache(explained)


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(name, marks=[takes_minutes] * (name != UNLIKE))
        for name in sorted(it.parent.name for it in RECORDINGS.glob("*/logs"))
    ],
)
def test_of_no_recording_is_a_line_wider(ledger_of: LedgerOf, monkeypatch: pytest.MonkeyPatch, recording: str) -> None:
    """Groups, and the events and members of the worst of them, at each width; every list at the least, with all columns
    of its answer. Whoever reads has the answer in the first five lines, of a compacted log, too."""
    ledger = ledger_of(recording)
    monkeypatch.setenv("GROUPLEDGER_WAREHOUSE", str(ledger.root))
    words = ["groups"]
    for it in [it for it in group_verdicts(ledger.tables) if it.state != GONE][:3]:
        name = shlex.quote(it.group_id)
        words += [f"history --group {name}", f"describe --group {name} --members --verbose"]
    asked = [(question, columns) for question in words for columns in WIDTHS]
    for question, columns in asked:
        shown = answered(question, columns)
        assert shown.code in (exit_codes.DONE, exit_codes.INCOMPLETE), shown.err
        assert wider_than(columns, shown) == [], question
    for listing, listed in LISTS.items():
        piped, shown = (answered(f"audit --list {listing}", columns) for columns in (None, WIDTHS[0]))
        assert wider_than(WIDTHS[0], shown) == [], listing
        rows = [line for line in piped.out.splitlines() if not line.startswith("# ")]
        for out in (piped.out, shown.out):
            first = "\n".join(out.splitlines()[:5])
            assert (listed.first[0].partition("_")[0] if rows else "# Nothing is listed") in first, listing
        if rows:
            left_out = re.search(r"^(\d+) more columns?: --wide$", shown.out, re.MULTILINE)
            count = len(rows[0].split()) - (int(left_out[1]) if left_out else 0)
            assert count >= len(listed.first), f"{listing} lacks a column of its answer"


@pytest.mark.parametrize(("listing", "cause"), [("expired", "MEMBER_EXPIRED"), ("grown", "PARTITIONS_CHANGED")])
def test_a_row_of_a_cause_has_its_confidence(ask: Asks, listing: str, cause: str) -> None:
    """Not that of the main cause: who reads CERTAIN may take the row for certain."""
    _, *rows = map(json.loads, ask(f"audit --list {listing} --format json").out.splitlines())
    for row in rows:
        every = zip(*map(json.loads, (row["causes"], row["cause_methods"], row["cause_confidences"])), strict=True)
        assert (row["cause"], row["method"], row["confidence"]) in set(every)
        assert row["cause"] == cause
    main = {json.loads(row["causes"])[0] for row in rows}
    assert rows and (main == {cause} or {cause} < main)


def test_topics_that_changed_and_times_of_leaders_are_named(ask: Asks) -> None:
    """In their lists; and in the history of a group."""
    _, *rows = map(json.loads, ask("audit --list grown --format json").out.splitlines())
    topics = {(row["group_id"], row["topics"]) for row in rows}
    assert {
        ("c06-topics", "c06-topics-a went from 3 to 6 partitions"),
        ("k04-regex", "k04-regex-x2 was deleted"),
        ("k04-regex", "k04-regex-x3 came with 2 partitions"),
    } < topics
    assert (
        "PARTITIONS_CHANGED, topics: k07-topics-a went from 3 to 6 partitions" in ask("history --group k07-topics").out
    )
    _, *leaders = map(json.loads, ask("audit --list leaders --format json").out.splitlines())
    assert all(row["at"].startswith("2026-11-21T02:59:1") for row in leaders) and leaders
    _, *later = map(json.loads, ask("audit --list leaders --from 2026-11-21T02:59:16Z --format json").out.splitlines())
    assert later == [row for row in leaders if row["at"] >= "2026-11-21T02:59:16"] != leaders


def test_lists_say_what_their_rows_have_in_common(ask: Asks) -> None:
    """What storms without a culprit have in common, since when a group is empty, and once that all logs were read."""
    storms = ask("audit --list flapping --group c15-enforce").out
    assert "# Causes: UNKNOWN (5); no member came or went in 5 of 5 rebalances" in storms.splitlines()
    _, *emptied = map(json.loads, ask("audit --list emptied --format json").out.splitlines())
    assert "2026-11-21T02:59:17.855Z" in {it["since"] for it in emptied} and "started_at" not in emptied[0]
    both = [line for line in ask("audit --list holes").out.splitlines() if "COMPLETE" in line]
    assert len(both) == 1 and "every record of __consumer_offsets " in both[0] and ", and of __share_group" in both[0]


def test_lists_of_several_groups_offer_to_restore_each(ask: Asks) -> None:
    """What they print gives the offsets from before they went back, not those after."""
    shown = ask("audit --list rewinds").out
    commands = re.findall(r"\./spark-submit\.sh (restore .*)", shown)
    assert [it.split()[2] for it in commands] == ["c08-simple", "x04-timeout", "x06-mix"]
    rewound = [json.loads(line) for line in ask("audit --list rewinds --format json").out.splitlines()[1:]]
    for words in commands[1:]:
        first = next(it for it in rewound if it["group_id"] == words.split()[2])
        restored = map(json.loads, ask(f"{words} --format json").out.splitlines())
        assert {it["PARTITION"]: it["RESTORED-OFFSET"] for it in restored}[first["partition"]] == first["from_offset"]


@pytest.mark.parametrize("listing", ["archived", "redeliveries"])
def test_a_narrow_table_breaks_no_value(ask: Asks, listing: str) -> None:
    """Columns that matter less are left out in its place: each row is one line."""
    piped, shown = (ask(f"audit --list {listing} --group s05-limit", columns) for columns in (None, WIDTHS[0]))
    counts = [sum(line.startswith("s05-limit ") for line in it.out.splitlines()) for it in (piped, shown)]
    assert counts[0] == counts[1] > 0 and not re.search(r"^ +[A-Z]+ ", shown.out, re.MULTILINE)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_pipe_and_wide_get_all_columns(ask: Asks, question: str) -> None:
    """Whoever reads a file gets what was there before terminals were asked for their width; so does --wide."""
    piped = ask(question)
    assert "--wide" not in piped.out
    assert ask(f"{question} --wide", 100)[:2] == piped[:2]


@pytest.mark.parametrize("question", [it for it in QUESTIONS if "'describe " not in it])
def test_every_word_in_capitals_is_found(ask: Asks, question: str) -> None:
    """Heads of columns, causes, methods, verdicts, confidences, states, kinds, outcomes: of every command."""
    shown = ask(question)
    for word in sorted({*CAPITALS.findall(f"{shown.out}{shown.err}")} - NOT_OURS):
        assert EXPLAINED(word), word
