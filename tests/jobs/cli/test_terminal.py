"""What a terminal shows of each answer: as wide as it is, the answer first. `test_all_columns.py`: what others get."""

import re
from typing import Final

import pytest

from jobs import exit_codes
from tests.jobs.cli.asking import WIDTHS, Asks, wider_than
from tests.questions import QUESTIONS

pytestmark = pytest.mark.conformance

ANSWERS: Final = {
    "groups": "GROUP",
    "owner": "GROUP     CLIENT-ID",
    "where": "KEY-TYPE",
    "describe": "GROUP",
    "restore": "GROUP",
    "changes": "TABLE|_change_",
    "history": "2026-11-21T",
    "whatif": " with ",
    "audit": "# COMPLETE",
    "sql": " ┃ ",
}
"""What the first lines of each job's answers have."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_line_is_wider_than_the_terminal(ask: Asks, question: str) -> None:
    """At 100, 120 and 160 columns, but for commands to copy; the answer is within the first five lines."""
    for columns in WIDTHS:
        shown = ask(question, columns)
        assert shown.code in (exit_codes.DONE, exit_codes.INCOMPLETE), shown.err
        assert wider_than(columns, shown) == []
        if "without-copy" not in question:
            assert re.search(ANSWERS[question.split(maxsplit=1)[0]], "\n".join(shown.out.splitlines()[:5]))


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
