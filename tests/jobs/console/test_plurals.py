"""Sentences with counts: of one there is one record, not `1 records`."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from coordinator_core.text import counted
from tests.conftest import PROJECT_ROOT

PLURAL: Final = re.compile(r" (?:more |log |share |whole )?(?!was |is |has )[a-z-]{2,}s\b")
MANY: Final = frozenset(
    {
        " perhaps)",
        " intervals of ownership: neighbours shorter than ",
        " intervals of delivery states: those of one state that lie close together, in time and by offset, are drawn "
        "as one. ",
        " share partitions are drawn.",
        " commits of transactions have no marker as far as the log was read: they are left out, and may have been "
        "committed",
        " records of offsets ",
        " private keys; the first one is used",
        " offsets to look up: choose a group or a shorter time",
        " states of ",
        " states of one log partition",
        " log partitions of ",
        " tasks",
        # names, not sentences
        " records in = ",
        " tombstones + ",
        " partition-ms likely unowned",
    }
)
"""Written only of more than one, or of `x of y`."""


@pytest.mark.parametrize(
    ("count", "plural", "text"),
    [(0, None, "0 batchs"), (1, "batches", "1 batch"), (2_000, "batches", "2,000 batches")],
)
def test_what_is_counted_goes_with_its_count(count: int, plural: str | None, text: str) -> None:
    """One is one; thousands have commas."""
    assert counted(count, "batch", plural) == text


def is_count(value: ast.expr) -> bool:
    """A number of things, by its format or its name."""
    if not isinstance(value, ast.FormattedValue):
        return False
    has_commas = isinstance(value.format_spec, ast.JoinedStr) and ast.unparse(value.format_spec) == "f','"
    return has_commas or ast.unparse(value.value).endswith("_count") or ast.unparse(value.value).startswith("len(")


def plurals_in(path: str) -> Iterator[str]:
    """Texts behind counts in f-strings that are right of several things only."""
    for node in ast.walk(ast.parse((PROJECT_ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if is_count(value) and isinstance(text, ast.Constant) and PLURAL.match(str(text.value)):
                    yield str(text.value)


def test_no_sentence_says_one_records() -> None:
    """Counts of things that there may be one of are written by `counted`."""
    for path in sorted((PROJECT_ROOT / "jobs").rglob("*.py")):
        for text in plurals_in(str(path)):
            assert text in MANY, f"{path}: {text}"
