"""Words that have a term are not used in its place: in identifiers anywhere, in prose where it was revised."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import PROJECT_ROOT

WORDS: Final = (
    "told|untold|hear|hears|heard|unheard|held|anew|stretch|stretches|stretched|beside|stands|stood|asleep|sleeps"
)
IN_A_NAME: Final = re.compile(rf"(?:^|_)(?:{WORDS})(?:_|$)")
MAY_BE_IN_A_NAME: Final = re.compile(rf"(?i:{WORDS})(?![a-z])")
IN_PROSE: Final = re.compile(rf"\b(?:{WORDS})\b", re.IGNORECASE)
CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

PROSE_FREE: Final = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs",
    "conf",
    "schemas",
    "groupledger",
    "tools",
    "examples",
    "bootstrap.py",
    "set_up.py",
    "jobs",
    "coordinator_core",
    "simulator",
    "tests",
)
"""Files and folders whose comments, docstrings, messages and text are revised: whoever revises another one adds it."""

QUOTED: Final = re.compile(r'"told_at"|"RECORD_NOT_TOLD"|"[\w ]+ not told": NO_')
"""Names of the last release, from which tables and codes are renamed."""


def tracked(*places: str) -> list[Path]:
    """Files of the repository below these places."""
    listed = subprocess.run(["git", "ls-files", "-z", *places], cwd=PROJECT_ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    return [PROJECT_ROOT / name for name in listed.stdout.decode().split("\0") if name]


def names_in(tree: ast.AST) -> Iterator[str]:
    """Identifiers that a module defines or uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def is_avoided(name: str) -> bool:
    """Has an identifier one of the words as a part of its own?"""
    return bool(IN_A_NAME.search(CAMEL.sub("_", name).lower()))


def test_identifiers_use_the_terms() -> None:
    """No module, class, function, argument or variable has such a word in its name, in product and tests."""
    found: set[str] = set()
    for path in tracked("*.py"):
        text = path.read_text() if path.is_file() else ""
        names = names_in(ast.parse(text)) if MAY_BE_IN_A_NAME.search(text) else ()
        found |= {f"{path.relative_to(PROJECT_ROOT)}: {name}" for name in (path.stem, *names) if is_avoided(name)}
    assert sorted(found) == []


@pytest.mark.parametrize("place", PROSE_FREE)
def test_prose_uses_the_terms(place: str) -> None:
    """No sentence of these files has such a word, but for names of the last release."""
    here = Path(__file__)
    paths = [
        path
        for path in tracked(place)
        if path != here and path.suffix in {".md", ".py", ".toml", ".conf", ".properties"}
    ]
    assert paths
    found = [
        f"{path.relative_to(PROJECT_ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if IN_PROSE.search(QUOTED.sub("", line))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("told_by", True), ("MembersHeard", True), ("_Stretch", True), ("told_at", True), ("threshold", False)],
)
def test_a_word_is_found_in_a_name(name: str, expected: bool) -> None:
    """Words count as parts of a name, in either way of writing it; only files that may have one are parsed."""
    assert is_avoided(name) is expected
    assert expected is bool(MAY_BE_IN_A_NAME.search(name))
