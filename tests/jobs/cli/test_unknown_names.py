"""A name that is not known, and a time outside of the log, get the same answer from every command."""

import re
from typing import Final

import pytest

from jobs import exit_codes
from tests.jobs.cli.asking import Asks

pytestmark = pytest.mark.first

AT: Final = "--at 2026-11-21T02:58:17Z"
QUESTIONS: Final = {
    f"describe {AT} --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    f"restore {AT} --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    f"describe {AT} --group C01-RANGE": "group 'C01-RANGE' (did you mean 'c01-range'?)",
    "owner --partition 0 --topic C01-RANGE": "topic 'C01-RANGE' (did you mean 'c01-range'?)",
    f"history --group {'#' * 30_000}": f"group {'#' * 100!r} in what was captured",
    f"where --share s05-limit:{'#' * 30_000}:0": f"topic {'#' * 100!r} in what was captured",
    "history --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "groups --match c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "audit --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "audit --payload --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "report --output r.html --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "whatif --set session.timeout.ms=60000 --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "owner --partition 0 --topic c01-rnage": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "where --share s05-limit:c01-rnage:0": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "groups --topic c01-rnage": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "audit --list flaping": "list 'flaping' (did you mean 'flapping'?)",
    "groups --format jsn": "format 'jsn' (did you mean 'json'?)",
    "sql --engine dukcdb -e 'select 1'": "engine 'dukcdb' (did you mean 'duckdb'?)",
    "describe --tool shares": "tool 'shares' (did you mean 'share'?)",
    "changes --table gold.rebalance": "table 'gold.rebalance' (did you mean 'gold.rebalances'?)",
    "sql -e 'select 1 from gold.rebalance'": "table, view or function 'rebalance' (did you mean 'gold.rebalances'?)",
    "sql -e 'select 1 from current_group'": "table, view or function 'current_group' (did you mean 'current_groups'?)",
    "sql -e 'select grup_id from gold.rebalances'": "column 'grup_id' (did you mean 'group_id'?)",
    "simulate --output s --scenario scenarios/bad-dya.toml": (
        "scenario 'scenarios/bad-dya.toml' (did you mean 'scenarios/bad-day.toml'?)"
    ),
    **{
        f"{question} --cluster-id kafak": "cluster 'kafak' (did you mean 'kafka'?)"
        for question in (
            "groups",
            "history --group g",
            f"describe {AT}",
            "owner --topic t --partition 0",
            "where --group g",
            f"restore --group g {AT}",
            "changes",
            "audit",
            "report --output r.html",
            "whatif --group g --set session.timeout.ms=60000",
            "sql -e 'select 1'",
        )
    },
}
BEFORE: Final = "2020-01-01T00:00:00Z"
AFTER: Final = "2030-01-01T00:00:00Z"


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[:80])
def test_an_unknown_name_is_one_sentence_with_the_nearest_one(ask: Asks, question: str) -> None:
    """Exit code 2, and nothing on stdout."""
    shown = ask(question)
    assert (shown.code, shown.out) == (exit_codes.WRONG_ARGUMENTS, "")
    assert shown.err.startswith(f"error: there is no {QUESTIONS[question]}") and len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    "question",
    [
        "describe --group c01-range --at {before}",
        "owner --topic c01-range --partition 0 --at {before}",
        "restore --group c01-range --at {before}",
        "history --group c01-range --to {before}",
        "history --group c01-range --from {after}",
        "groups --from {after}",
        "audit --to {before}",
        "report --output r.html --from {after}",
        "whatif --group c01-range --set session.timeout.ms=60000 --from {after}",
    ],
)
def test_a_time_of_which_the_log_has_nothing_is_refused(ask: Asks, question: str) -> None:
    """Before the log begins, or a span after its end: exit code 2, and up to where the log was read."""
    shown = ask(question.format(before=BEFORE, after=AFTER))
    assert (shown.code, shown.out) == (exit_codes.WRONG_ARGUMENTS, "")
    assert re.search(r"is (before the log begins|after the end of what was read): .* to 2026-11-21T", shown.err)


@pytest.mark.parametrize(
    "question",
    [
        "describe --group c01-range --at {after}",
        "owner --topic c01-range --partition 0 --at {after}",
        "restore --group c01-range --at {after}",
        "history --group c01-range --to {after}",
        "whatif --group c16-kill9 --set session.timeout.ms=60000 --to {after}",
        "audit --to {after}",
    ],
)
def test_a_time_after_the_end_of_the_log_is_said_before_the_answer(ask: Asks, question: str) -> None:
    """There is an answer, as far as the log was read, and exit code 3."""
    shown = ask(question.format(after=AFTER))
    assert shown.code == exit_codes.INCOMPLETE
    said = shown.err if not question.startswith("audit") else shown.out
    assert re.search(
        r"was read up to 2026-11-21T.*: what came after that is not known|^# NOT COMPLETE", said.splitlines()[0]
    )
