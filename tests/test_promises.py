"""The pages of promises and threats name tests that are there, and count them."""

import ast
import re
import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

from tests.conftest import PROJECT_ROOT

PAGES: Final = ("promises.md", "threats.md")
NAMED: Final = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")
COUNTED: Final = re.compile(r"`(tests/[\w/.:]+)` \| ([\d,]+) \|$", re.MULTILINE)


def text_of(page: str) -> str:
    """A page of the internals."""
    return (PROJECT_ROOT / "docs" / "internals" / page).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_a_page_names_are_there(page: str) -> None:
    """Each row that has an answer has its file, and the function in it."""
    found = NAMED.findall(text_of(page))
    assert len(found) > 30
    missing = []
    for path, name in found:
        file = PROJECT_ROOT / path
        tree = ast.parse(file.read_text("utf-8")) if file.is_file() else ast.Module([], [])
        names = {it.name for it in tree.body if isinstance(it, ast.FunctionDef) and it.name.startswith("test_")}
        if not names or (name and name not in names):
            missing.append(f"{path}::{name}")
    assert missing == []


@pytest.mark.conformance
def test_promises_are_counted() -> None:
    """As many cases as pytest collects at full length."""
    counted = {name: int(count.replace(",", "")) for name, count in COUNTED.findall(text_of("promises.md"))}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--long", "-p", "no:randomly", *counted]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    collected = Counter(line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line)
    found = {
        name: sum(count for it, count in collected.items() if it == name or it.startswith(f"{name}::"))
        for name in counted
    }
    assert counted == found
