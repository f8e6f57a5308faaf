"""What a terminal shows of each answer: as wide as it is, the answer first, nothing cut for anybody else, and no word
that nobody explains."""

import re
import shlex
from functools import cache
from typing import Final

import pytest

from jobs import exit_codes
from jobs.cli_enums import Listing
from jobs.queries.answers.explain import CAPITALS, explained
from jobs.queries.answers.group_verdicts import group_verdicts
from tests.jobs.cli.asking import Asks, Shown, answered
from tests.jobs.conftest import LedgerOf
from tests.lengths import takes_minutes
from tests.questions import QUESTIONS
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.conformance

WIDTHS: Final = (100, 120, 160)
ANSWERS: Final = {
    "groups": "GROUP",
    "owner": "GROUP     CLIENT-ID",
    "where": "KEY-TYPE",
    "describe": "GROUP",
    "restore": "GROUP",
    "changes": "TABLE|_change_type",
    "history": "2026-11-21T",
    "whatif": " with ",
    "audit": "# COMPLETE",
    "sql": " ┃ ",
}
"""What the first lines of each job's answers have."""
UNLIKE: Final = "new-44"
"""A recording of other brokers than the one that is asked most; all of them take minutes."""
NOT_OURS: Final = {"FILE", "TIME", "ZONE", "ID"}
"""Of options, and of Kafka's head COORDINATOR (ID)."""
EXPLAINED: Final = cache(explained)


def wider_than(columns: int, shown: Shown) -> list[str]:
    """Lines that a terminal has to break, but for commands to copy."""
    lines = f"{shown.out}{shown.err}".splitlines()
    return [line for line in lines if len(line) > columns and "./spark-submit.sh" not in line]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_line_is_wider_than_the_terminal(ask: Asks, question: str) -> None:
    """At 100, 120 and 160 columns, but for commands to copy; the answer is within the first five lines."""
    for columns in WIDTHS:
        shown = ask(question, columns)
        assert shown.code in (exit_codes.DONE, exit_codes.INCOMPLETE), shown.err
        assert wider_than(columns, shown) == []
        if "without-copy" not in question:
            assert re.search(ANSWERS[question.split(maxsplit=1)[0]], "\n".join(shown.out.splitlines()[:5]))


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(name, marks=[takes_minutes] * (name != UNLIKE))
        for name in sorted(it.parent.name for it in RECORDINGS.glob("*/logs"))
    ],
)
def test_of_no_recording_is_a_line_wider(ledger_of: LedgerOf, monkeypatch: pytest.MonkeyPatch, recording: str) -> None:
    """Every list at the least width; groups, and the events and members of the worst of them, at each."""
    ledger = ledger_of(recording)
    monkeypatch.setenv("GROUPLEDGER_WAREHOUSE", str(ledger.root))
    words = ["groups"]
    for it in group_verdicts(ledger.tables)[:3]:
        name = shlex.quote(it.group_id)
        words += [f"history --group {name}", f"describe --group {name} --members --verbose"]
    asked = [(question, columns) for question in words for columns in WIDTHS]
    for question, columns in [*asked, *((f"audit --list {listing}", WIDTHS[0]) for listing in Listing)]:
        shown = answered(question, columns)
        assert shown.code in (exit_codes.DONE, exit_codes.INCOMPLETE), shown.err
        assert wider_than(columns, shown) == [], question


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


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_verdict_and_its_reason_are_on_every_terminal(ask: Asks, columns: int) -> None:
    """Of the groups that need attention: who, how bad, why and since when; and how many columns are left out."""
    lines = ask("groups", columns).out.splitlines()
    assert lines[0].split()[:4] == ["GROUP", "VERDICT", "WHY", "SINCE"]
    [stormy] = [line for line in lines if line.startswith("k10-empty-switch ")]
    assert stormy.split()[:6] == ["k10-empty-switch", "WARN", "6", "in", "storms", "2026-11-21T02:58:11.436Z"]
    left_out = len(ask("groups").out.splitlines()[0].split()) - len(lines[0].split())
    assert lines[-1] == f"{left_out} more columns: --wide"


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (
            "whatif --group c16-kill9 --set session.timeout.ms=60000",
            "group c16-kill9 (classic) with session.timeout.ms=60000: still 2 rebalances, MEMBER_EXPIRED of "
            "c16-kill9-m1 57 s later (LIKELY)",
        ),
        (
            "whatif --group c01-range --set session.timeout.ms=60000",
            "group c01-range (classic) with session.timeout.ms=60000: at least 4 in place of 9 rebalances, 5 not "
            "known (GUESS)",
        ),
        (
            "whatif --group s05-limit --set share.delivery.count.limit=10",
            "group s05-limit (share) with share.delivery.count.limit=10: 16 records in 16 ranges, MORE_TRIES 16",
        ),
    ],
)
def test_what_if_begins_with_a_sentence(ask: Asks, question: str, sentence: str) -> None:
    """How many rebalances or records, and what would have been another; what nobody can tell is counted apart."""
    assert ask(question).out.splitlines()[0] == sentence
