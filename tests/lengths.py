"""How much the tests of a run do, as options of pytest: --long, --count, --first-seed, --minutes.

Modules read them when they are imported, since parameters of tests depend on them.
"""

from typing import Final

import pytest


class _Options:
    is_long = False
    count: int | None = None
    first_seed: int | None = None
    minutes: float | None = None


takes_minutes: Final = pytest.mark.long
"""Marks what only a run with --long has: whole tests, and cases of which one is enough elsewhere."""


def is_long() -> bool:
    """Does the run have what takes minutes?"""
    return _Options.is_long


def how_many(usual: int) -> int:
    """How many random lives, logs or stories a test of many takes."""
    return usual if _Options.count is None else _Options.count


def is_counted() -> bool:
    """Does the run say how many?"""
    return _Options.count is not None


def first_seed(usual: int = 0) -> int:
    """The seed of the first one."""
    return usual if _Options.first_seed is None else _Options.first_seed


def minutes(usual: float) -> float:
    """How long real clients are busy."""
    return usual if _Options.minutes is None else _Options.minutes


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lengths", "how much the tests do")
    group.addoption("--long", action="store_true", help="also what takes minutes, at full size")
    group.addoption("--count", type=int, help="how many random lives, logs or stories each test of many takes")
    group.addoption("--first-seed", type=int, help="the seed of the first one")
    group.addoption("--minutes", type=float, help="how long real clients are busy")


def read_options(config: pytest.Config) -> None:
    """Before any module of tests is imported."""
    _Options.is_long = config.getoption("--long")
    _Options.count = config.getoption("--count")
    _Options.first_seed = config.getoption("--first-seed")
    _Options.minutes = config.getoption("--minutes")
