"""The tasks of an engineer on call: each recipe of docs/recipes.md solves one, in commands that anybody can type."""

import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import outcome
from jobs.cli_enums import Listing
from jobs.queries.answers.group_verdicts import RULES, why_text
from tests.conftest import PROJECT_ROOT
from tests.jobs.cli.asking import answered
from tests.jobs.cli.on_call import NIGHTS
from tests.made_once import MadeOnce

pytestmark = pytest.mark.nights

TASKS: Final[dict[str, list[dict[str, Any]]]] = tomllib.loads(
    (PROJECT_ROOT / "tests" / "data" / "on_call.toml").read_text(encoding="utf-8")
)
PAGE: Final = (PROJECT_ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES: Final = dict(re.findall(r"^- \*\*(.+?)\*\*(.+?)(?=\n\n|\n- |\n#)", PAGE, re.MULTILINE | re.DOTALL))
"""By title."""
OF_ALL_LISTS: Final = {"--group", "--from", "--to"}


def words_of(command: str) -> tuple[str, str, set[str]]:
    """The job, what it lists, and its options."""
    job, *words = shlex.split(command.replace("\n", " "))
    listing = words[words.index("--list") + 1] if "--list" in words else ""
    return job, listing, {word for word in words if word.startswith("--")}


@pytest.mark.parametrize(
    "asked",
    [pytest.param(it, id=f"{title} {it['command']}") for title, task in TASKS.items() for it in task],
)
def test_a_recipe_answers(made_once: MadeOnce, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: Any) -> None:
    """Each command of each task shows what the task asks for."""
    root = made_once(asked["night"], NIGHTS[asked["night"]])
    monkeypatch.setenv("GROUPLEDGER_WAREHOUSE", str(root / "warehouse"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "simulated").symlink_to(root / "simulated")
    answer = answered(asked["command"])
    assert answer.code in (exit_codes.DONE, exit_codes.INCOMPLETE), answer.err
    printed = re.sub(" +", " ", f"{answer.out}{answer.err}")
    for line in asked["shown"]:
        assert line in printed


def test_every_recipe_is_a_task_of_at_most_three_commands() -> None:
    """25 or more, none in SQL; the page has each command that is asked."""
    assert TASKS.keys() == RECIPES.keys() and len(TASKS) >= 25
    for title, task in TASKS.items():
        assert len(task) <= 3
        shown = [words_of(code) for code in re.findall(r"`([a-z][^`]*)`", RECIPES[title])]
        for asked in task:
            job, listing, options = words_of(asked["command"])
            of_lists = OF_ALL_LISTS if listing else set()
            assert job != "sql"
            assert any(it[:2] == (job, listing) and options <= it[2] | of_lists for it in shown), asked["command"]


def test_commands_of_recipes_parse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As they stand on the page, with names in place of the words in capitals."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    parsed: Counter[str] = Counter()
    for text in [*RECIPES.values(), *re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)]:
        for code in re.findall(r"`([a-z]+ --[^`]*)`", text):
            words = shlex.split(code.replace("\n", " "))
            assert cli.main(words) == outcome.PARSED, f"{code}: {capsys.readouterr().err}"
            parsed[words[0]] += 1
    assert parsed.keys() >= {"audit", "groups", "history", "owner", "describe", "restore", "where", "whatif"}


@pytest.mark.parametrize("rule", RULES)
def test_every_reason_of_a_verdict_has_its_recipe(rule: str) -> None:
    """What to look at, which is what `groups` says itself, and what to do; one command proves that it is over."""
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)]
    of_rule = [row for row in rows if row[0] in why_text(rule, Counter({rule: 2}))]
    [(_, look, do)] = of_rule
    assert f"`audit --list {RULES[rule].listing}" in look and do
    assert RULES[rule].listing in set(Listing)
    assert "it is over when `groups --match GROUP --from CHANGE` says OK" in PAGE
