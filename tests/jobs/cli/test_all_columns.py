"""What is not for a terminal has all columns; no word is there that nobody explains; another recording is no wider.

Apart from test_terminal.py, so that two processes share the questions."""

import shlex
from functools import cache
from typing import Final

import pytest

from jobs import exit_codes
from jobs.cli_enums import Listing
from jobs.queries.answers.explain import CAPITALS, explained
from jobs.queries.answers.group_verdicts import group_verdicts
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
