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


@pytest.mark.parametrize("columns", [80, 150])
def test_lists_show_why_and_by_whom(ask: Asks, columns: int) -> None:
    """Of records given up the likely cause with its confidence, of commits that went back who did it; what has room for
    more has the cause, too."""
    given_up, went_back = (ask(f"audit --list {it}", columns).out for it in ("archived", "rewinds"))
    assert re.search("likely_ *(cause)? +confidence", given_up) and bool(re.search(r"\bat +cause\b", given_up)) == (
        columns == 150
    )
    assert re.search(r"\bwho +at\b", went_back) and "without membership" in " ".join(went_back.split())


def test_printed_commands_carry_what_was_asked(ask: Asks) -> None:
    """The group and the span, to another list; a list of one group that went back ends with the restore of it, which
    says at which time there is something to restore."""
    asked = "--group c08-simple --from 2026-11-21T02:57:00Z --to 2026-11-21T03:00:00Z"
    other = ask(f"audit --list resets {asked}").out
    assert f"--list rewinds {asked.replace('00Z', '00.000Z')}" in other
    [offer] = re.findall("restore --group c08-simple --at .*", ask("audit --list rewinds --group c08-simple").out)
    assert offer in "".join(ask("history --group c08-simple").err)
    assert ask(offer).code == exit_codes.DONE
    [since] = re.findall(
        "it has some since ([^,]*), for --at", ask("restore --group c08-simple --at 2026-11-21T02:57:40Z").err
    )
    assert ask(f"restore --group c08-simple --at {since}").code == exit_codes.DONE
