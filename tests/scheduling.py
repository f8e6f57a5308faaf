"""Which process of a run takes which tests: those that need Spark share one, and with it its JVM."""

import ast
import re
from collections.abc import Set
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT: Final = Path(__file__).resolve().parent.parent
SPARK: Final = "tests that need Spark"
SESSIONS: Final = frozenset({"spark", "own_session"})
ASKS_FOR_SPARK: Final = re.compile(r"\b(?:spark|own_session): SparkSession\b")
"""An argument of a test, or of a fixture of its file."""


@cache
def names_with_spark(path: str) -> Set[str]:
    """Names of the tests of a file that ask for a session, be it through fixtures of the file. Its path is one below
    the project's folder."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if not ASKS_FOR_SPARK.search(source):
        return frozenset()
    arguments = {
        node.name: {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    }
    names = set(SESSIONS)
    while asking := {name for name, of in arguments.items() if name not in names and not of.isdisjoint(names)}:
        names |= asking
    return frozenset(name for name in names if name.startswith("test_"))


def needs_spark(nodeid: str) -> bool:
    """Does a test ask for a session?"""
    path, _, name = nodeid.partition("::")
    return name.partition("[")[0] in names_with_spark(path)


def scope_of(nodeid: str) -> str:
    """The file of a test; of all that need Spark the same scope."""
    return SPARK if needs_spark(nodeid) else nodeid.partition("::")[0]


def one_jvm(config: pytest.Config, log: Producer) -> Any:
    """A scheduler that gives a file to one process, as `--dist loadfile` does, but all tests that need Spark to one.

    A JVM takes five seconds to start and half a minute to become fast: three of them cost more than they save. Tests of
    the same files that need none do not wait for it.
    """
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = scope_of
    return scheduler
