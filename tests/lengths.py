"""How much the tests of a run do, as options of pytest: --long, --count, --first-seed, --minutes.

Modules read them when they are imported, since parameters of tests depend on them.
"""

from argparse import Namespace
from typing import Final

import pytest

_OPTIONS: Final = Namespace(long=False, count=None, first_seed=None, minutes=None)
"""Those of pytest, once it has read them."""

takes_minutes: Final = pytest.mark.long
"""Marks what only a run with --long has: whole tests, and cases of which one is enough elsewhere."""


def is_long() -> bool:
    """Does the run have what takes minutes?"""
    return bool(_OPTIONS.long)


def how_many(usual: int) -> int:
    """How many random lives, logs or stories a test of many takes."""
    return usual if _OPTIONS.count is None else int(_OPTIONS.count)


def is_counted() -> bool:
    """Does the run say how many?"""
    return _OPTIONS.count is not None


def first_seed(usual: int = 0) -> int:
    """The seed of the first one."""
    return usual if _OPTIONS.first_seed is None else int(_OPTIONS.first_seed)


def minutes(usual: float) -> float:
    """How long real clients are busy."""
    return usual if _OPTIONS.minutes is None else float(_OPTIONS.minutes)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lengths", "how much the tests do")
    group.addoption("--long", action="store_true", help="also what takes minutes, at full size")
    group.addoption("--count", type=int, help="how many random lives, logs or stories each test of many takes")
    group.addoption("--first-seed", type=int, help="the seed of the first one")
    group.addoption("--minutes", type=float, help="how long real clients are busy")


def read_options(config: pytest.Config) -> None:
    """Before any module of tests is imported."""
    vars(_OPTIONS).update(vars(config.option))
