"""What is wrong in a command line, a name, a time, an option or a place, gets the same answer from every command."""

import re
from pathlib import Path
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
    f"history --group {'#' * 30_000}": f"group {'#' * 100!r} (known: c01-range, c02-roundrobin, ",
    f"where --share s05-limit:{'#' * 30_000}:0": f"topic {'#' * 100!r} (known: ",
    "audit --group ''": "group '' (known: c01-range, c02-roundrobin, ",
    "owner --partition 0 --topic nosuch": "topic 'nosuch' (known: ",
    "groups --cluster-id nosuch": "cluster 'nosuch' (known: kafka)",
    "changes --table nosuch": "table 'nosuch' (known: gold.archived_records, ",
    "explain nosuch": "word 'nosuch': ./spark-submit.sh explain lists all",
    "history --group c01": "group 'c01' (did you mean 'c01-range'?)",
    "history --group c1": "group 'c1' (did you mean 'c10-",
    "history --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "groups --match c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "audit --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "audit --payload --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "report --output r.html --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "whatif --set session.timeout.ms=60000 --group c01-rnage": "group 'c01-rnage' (did you mean 'c01-range'?)",
    "owner --partition 0 --topic c01-rnage": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "where --share s05-limit:c01-rnage:0": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "groups --topic c01-rnage": "topic 'c01-rnage' (did you mean 'c01-range'?)",
    "owner --topic t --partition 0 --from 0": "option 'from': audit, simulate, groups, ",
    "owner --tpic t --partition 0": "option 'tpic' (did you mean 'topic'?)",
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
    "simulate --output s --scenario bad-day": "scenario 'bad-day' (did you mean 'scenarios/bad-day.toml'?)",
    "groups --format xml": "format 'xml': table, json, csv",
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


DOES_NOTHING: Final = {
    "groups --timezone Europe/Berlin": "--timezone is for times without a zone",
    "history --group c01-range --from 2026-11-21T02:58:17Z --timezone UTC": "--timezone is for times without a zone",
    f"restore --group c01-range {AT} --timezone UTC": "--timezone is for times without a zone",
    "audit --list grown --payload": "--payload is for --list archived and --list without-copy, not for grown",
    "audit --values": "--values goes with --payload",
    "audit --dead-letter-topic dlq": "--dead-letter-topic goes with --payload",
    "audit --segments .": "--segments goes with --payload",
    "audit --list leaders --group c01-range": "rows of --list leaders have no group: leave out --group",
    "audit --list starts --from 2026-11-21T02:58:17Z": "rows of --list starts have no time",
    "nightly --notify-always": "--notify-always goes with --notify",
    "nightly --dump-format json": "--dump-format goes with --dump",
    "nightly --where true": "--where goes with --dump",
    "describe --command-config client.properties": "--command-config goes with --bootstrap-server",
    "simulate --scenario scenarios/shop.toml --output s --from 2026-01-06": "--from goes with --explain or --exchange",
    "history --group c01-range --group c02-roundrobin": "--group is given twice",
    "history --group=c01-range --group c01-range": "--group is given twice",
    "groups --format json --format=csv": "--format is given twice",
    "groups --topic ''": "--topic is empty",
    "report --output=": "--output is empty",
    "audit --segments ''": "--segments is empty",
    f"restore --group c01-range {AT} --log-offset 99999999": "the log has these offsets at that time once only",
    f"restore --group c01-range {AT} --log-offset {2**63}": "log-offset: should be less than or equal to 9223",
    f"simulate --scenario scenarios/shop.toml --output s --seed {2**63}": "seed: should be less than or equal to",
    "nightly -q -v": "--quiet and --verbose exclude each other: give one of them",
    "describe --state --members": "--offsets, --members, --state and --topology exclude each other",
    "describe --group c01-range --all-groups": "--group and --all-groups exclude each other",
    "capture --continuous --every 1m": "--every and --continuous exclude each other",
}


@pytest.mark.parametrize("question", DOES_NOTHING)
def test_an_option_that_would_do_nothing_is_refused(ask: Asks, question: str) -> None:
    """In one sentence, with exit code 2: whoever gave it believes that it did something."""
    shown = ask(question)
    assert (shown.code, shown.out) == (exit_codes.WRONG_ARGUMENTS, "")
    assert shown.err.startswith(f"error: {DOES_NOTHING[question]}") and len(shown.err.splitlines()) == 1


def test_an_option_that_may_be_repeated_is_not_given_twice(ask: Asks) -> None:
    """Nor is the value of another one that looks like it."""
    assert ask("audit --group c01-range --group s05-limit").code == exit_codes.DONE
    assert "there is no group '--group'" in ask("history --group --group").err


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("history --group c01-range --from 2026-11-21T02:59:50Z", "no event of group c01-range is in this span: they "),
        ("describe --tool streams --at 2026-11-21T02:57:27Z", "there was no streams group then: leave out --tool"),
    ],
)
def test_an_empty_answer_says_why(ask: Asks, question: str, why: str) -> None:
    """And what to ask in its place."""
    shown = ask(question)
    assert (shown.code, shown.out.strip()) == (exit_codes.DONE, "")
    assert shown.err.startswith(why)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("groups --warehouse /nowhere", "no tables in /nowhere"),
        ("audit --warehouse /nowhere", "no tables in /nowhere"),
        ("sql --warehouse /nowhere -e 'select 1'", "no tables in /nowhere"),
        ("report --warehouse /nowhere --output r.html", "no tables in /nowhere"),
        ("report --output r.html --previous no.html", "no.html is no report of cluster "),
        ("maintain --table nosuch", "there is no table 'nosuch'"),
        ("replay --warehouse /nowhere", "no tables in /nowhere"),
        ("nightly --segments /nowhere --warehouse w", "cannot read the folder /nowhere: no such folder"),
        (
            "nightly --segments . --warehouse w",
            "nothing to read: /",
        ),
        ("describe --tool share --group c01-range", "group c01-range is a classic group: leave out --tool, or name "),
        ("report --output /proc/r.html", "the report cannot be written to /proc/r.html"),
        (f"restore --group c01-range {AT} --output no/o.csv", "cannot write no/o.csv: there is no folder no: "),
        ("sql -e 'select 1' --output no/r.csv", "cannot write no/r.csv: there is no folder no: "),
        ("history --group c01-range --diagram no/d.svg", "cannot write no/d.svg: there is no folder no: "),
        (f"restore --group c01-range {AT} --output /proc/r.csv", "cannot write /proc/r.csv"),
        ("history --group c01-range --diagram /proc/d.svg", "cannot write /proc/d.svg"),
        ("simulate --scenario scenarios/shop.toml --output /proc/s", "cannot write /proc/s"),
        ("whatif --group s05-limit --set session.timeout.ms=60s", "group s05-limit is a share group"),
        ("whatif --group c16-kill9 --set share.delivery.count.limit=5", "group c16-kill9 is no share group"),
        ("whatif --group c16-kill9 --set session.timeout.ms=6h", "session.timeout.ms must be a whole number of ms (or"),
    ],
)
def test_what_a_user_named_wrongly_exits_2(ask: Asks, question: str, why: str) -> None:
    """A place that is not there, or that cannot be written, and a question that the group cannot be asked."""
    shown = ask(question)
    assert shown.code == exit_codes.WRONG_ARGUMENTS
    assert shown.err.splitlines()[-1].startswith(f"error: {why}")


def test_a_file_that_is_there_is_not_replaced(ask: Asks, tmp_path: Path) -> None:
    """Neither a diagram nor offsets: the name may be that of another file. That is said first."""
    for question, name in (
        ("history --group c01-range --diagram", "d.svg"),
        (f"restore --group c01-range {AT} --output", "o.csv"),
    ):
        (tmp_path / name).write_text("mine", encoding="utf-8")
        shown = ask(f"{question} {tmp_path / name}")
        assert (shown.code, shown.out) == (exit_codes.WRONG_ARGUMENTS, "")
        assert shown.err.endswith(f"error: {tmp_path / name} is there already: name a new file, or remove it first\n")
        assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_where_a_diagram_was_written_is_said(ask: Asks, tmp_path: Path) -> None:
    """In a line that is not of the answer. A result takes the place of the former one, and none leaves it."""
    assert ask(f"history --group c01-range --diagram {tmp_path / 'd.svg'}").err.endswith(f"diagram: {tmp_path}/d.svg\n")
    assert ask(f"sql -e 'select nosuch' --output {tmp_path / 'r.csv'}").code == exit_codes.WRONG_ARGUMENTS
    assert [it.name for it in tmp_path.iterdir()] == ["d.svg"]
    for query, text in (("select 1 as n", "n\n1\n"), ("select 2 as n", "n\n2\n"), ("select nosuch", "n\n2\n")):
        ask(f"sql --format csv -e '{query}' --output {tmp_path / 'r.csv'}")
        assert (tmp_path / "r.csv").read_text(encoding="utf-8") == text


def test_a_list_says_what_it_sums_up_to(ask: Asks) -> None:
    """By group, as a night does; and an empty one where to look."""
    lists = {name: ask(f"audit --list {name}").out.splitlines() for name in ("redeliveries", "resets")}
    counts = "select group_id, sum(records_redelivered) from counted_events group by 1 order by 2 desc, 1"
    _, *rows = ask(f"sql --format csv -e '{counts}'").out.splitlines()
    (group_id, count), every = rows[0].split(","), sum(int(row.split(",")[1]) for row in rows)
    assert lists["redeliveries"][1].startswith(f"# {every} records redelivered: {group_id} ({count}), ")
    rewinds = ask("audit --list rewinds").out.splitlines()[1].removeprefix("# ")
    assert lists["resets"][1:3] == [
        "# Nothing is listed",
        f"# Not in this list: {rewinds}: ./spark-submit.sh audit --list rewinds",
    ]


def test_a_time_of_a_setting_is_milliseconds_or_a_duration(ask: Asks) -> None:
    """The same answer for both, with the words of the question."""
    words = "whatif --group c16-kill9 --set session.timeout.ms="
    assert ask(f"{words}60s").out == ask(f"{words}60000").out.replace("=60000", "=60s")


def test_a_subtopology_is_no_topic(ask: Asks) -> None:
    """A streams group is assigned tasks of subtopologies, which have numbers."""
    assert ask("groups --topic 0").code == exit_codes.WRONG_ARGUMENTS
    assert "known: __consumer_offsets, " in ask("groups --topic nosuch").err
