"""What a night found, as a file and through a command."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.operations.notify import GROUPS_MAX, attention, deliver, is_news, markdown_of, with_attention
from jobs.queries.answers.group_verdicts import GroupVerdict
from tests.cases.harness import Ledger
from tests.recorded import RECORDINGS


def line(group_id: str, why: str = "3 in storms") -> GroupVerdict:
    """A group that needs somebody."""
    return GroupVerdict(group_id, "CLASSIC", "Stable", 1, 0, 3, 3, 0, 0, 0, 0, 0, "WARN", why)


WHY: Final = "5 in storms, 1 rebalance with members thrown out"
FOUND: dict[str, Any] = {"headline": "Night of 2026-11-21", "summary": "Nothing new", "new": {}, "over": {}}
FACTS: dict[str, Any] = {"job": "nightly", "exit_code": 0, "found": FOUND}


def test_a_file_has_the_object_and_the_markdown_lies_next_to_it(tmp_path: Path) -> None:
    """Of a night of a real broker's logs; written again each night."""
    ledger = Ledger(tmp_path / "warehouse")
    night = ledger.night(RECORDINGS / "full-a" / "logs")
    facts = {"job": "nightly", "exit_code": night.exit_code, **night.facts}
    groups = attention(ledger.tables)
    target = tmp_path / "alerts" / "night.json"
    for _ in range(2):
        markdown = markdown_of(facts, groups, ledger.settings())
        deliver(str(target), with_attention(facts, groups), markdown, pytest.fail)
    assert sorted(path.name for path in target.parent.iterdir()) == ["night.json", "night.md"]
    said = json.loads(target.read_text())
    assert sum(said["found"]["new"]["archived"].values()) == 122 and said["ledger"]["total"]["record_count"] == 4_000
    assert {"group_id": "k03-static", "group_type": "CONSUMER", "verdict": "WARN", "why": WHY} in said["groups"]
    shown = target.with_suffix(".md").read_text()
    assert f"| `k03-static` | WARN | {WHY} |" in shown and "groups more" in shown
    assert said["found"]["headline"] in shown and "groups --needs-attention" in shown


def test_a_command_gets_the_object_and_the_markdown(tmp_path: Path) -> None:
    """On stdin and in the environment, as a shell would run it."""
    command = f'cat > {tmp_path}/stdin; printf %s "$GROUPLEDGER_MARKDOWN" > {tmp_path}/markdown'
    deliver(command, FACTS, "**hi**\n", pytest.fail)
    assert json.loads((tmp_path / "stdin").read_text()) == FACTS
    assert (tmp_path / "markdown").read_text() == "**hi**\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("echo first >&2; echo no such channel >&2; exit 3", "exit code 3 of"),
        ("/dev/null/night.json", "/dev/null"),
        ("x\0y", "null byte"),
    ],
)
def test_what_cannot_be_delivered_is_said(target: str, said: str) -> None:
    """In one line; the run goes on."""
    lines: list[str] = []
    deliver(target, FACTS, "", lines.append)
    (only,) = lines
    assert only.startswith("the notification was not delivered: ") and said in only
    assert "\n" not in only and "first" not in only.partition("exit code")[2].rpartition(": ")[2]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, False),
        (FACTS | {"found": FOUND | {"new": {"archived": {"g": 1}}}}, True),
        (FACTS | {"found": FOUND | {"over": {"hanging": {"g": 1}}}}, True),
        (FACTS | {"found": FOUND | {"lasting": {"hanging": {"g": 1}}}}, False),
        (FACTS | {"captured": {"faults": ["a hole"]}}, True),
        (FACTS | {"replayed": {"not_replayed": ["a group"]}}, True),
        ({"exit_code": 1}, True),
    ],
)
def test_a_night_with_nothing_new_is_no_news(facts: dict[str, Any], expected: bool) -> None:
    """What is open since before is none; whatever tonight could not read is."""
    assert is_news(facts) is expected


def test_no_group_id_is_markdown(tmp_path: Path) -> None:
    """Nobody is mentioned, no table breaks."""
    groups = [line("@channel [x](http://e)"), line("a|b`c\nd")]
    shown = markdown_of(FACTS, groups, Ledger(tmp_path).settings())
    assert "| `@channel [x](http://e)` | WARN" in shown and "| `a\\|b'c\\nd` | WARN | 3 in storms |" in shown


def test_a_night_that_failed_says_why(tmp_path: Path) -> None:
    """Without what it would have found."""
    shown = markdown_of({"exit_code": 1, "error": "no `space`"}, [], Ledger(tmp_path).settings())
    assert ": failed**" in shown and "`no 'space'`" in shown


def test_many_groups_are_counted(tmp_path: Path) -> None:
    """A chat is no list."""
    shown = markdown_of(FACTS, [line(f"g{number}") for number in range(GROUPS_MAX + 5)], Ledger(tmp_path).settings())
    assert shown.count("| WARN |") == GROUPS_MAX and "and 5 groups more" in shown
