"""Plants a fault in a copy of the code, and sends a hunter after it.

A mutant is a change of one place of our source: the text that is there, once, and what takes its place. `faults.txt`
has them all. The code is copied, the copy is changed, and another Python runs the hunter with the copy in the place of
our code. The tests are those of this checkout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import coordinator_core

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "coordinator_core"
FAULTS: Final = Path(__file__).with_name("faults.txt")
TIMEOUT_S: Final = 900

FOUND_CODE: Final = 10
SURVIVED_CODE: Final = 11
"""Exit codes of the hunter's process; any other one is a fault of the hunt."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`original` is exactly once in `path`, which is that of a file in our package."""

    name: str
    path: str
    original: str
    mutated: str
    hunter: str
    """Who is to find it: one of `hunt.HUNTERS`, or files of tests, for `hunt_tests`."""


def is_of_tests(hunter: str) -> bool:
    """Is the hunter files of tests?"""
    return hunter.endswith(".py")


def read_mutants(text: str) -> Iterator[Mutant]:
    """Those of a text: a line `path: hunter` for each file, and below it, indented, `original => mutated` for each
    fault; the comment after it, if any, names it.
    """
    path = hunter = ""
    for line in text.splitlines():
        if line.startswith(" "):
            fault, _, name = line.strip().partition("  # ")
            original, _, mutated = (part.strip().replace("\\n", "\n") for part in fault.partition("=>"))
            yield Mutant(f"{path}: {name or fault}", path, original, mutated, hunter)
        else:
            path, _, hunter = line.partition(": ")


class Fate(StrEnum):
    """What became of a mutant."""

    FOUND = "found"
    SURVIVED = "survived"


class HuntFailed(Exception):
    """There was nothing to hunt, or nobody could hunt it: this says nothing about the tests."""


def mutated_source(mutant: Mutant, source: str) -> str:
    """The source with the fault in it. Raises HuntFailed unless the place is there, once, and the result is Python."""
    count = source.count(mutant.original)
    if count != 1:
        raise HuntFailed(f"{mutant.name}: what is to be changed is {count} times in {mutant.path}")
    changed = source.replace(mutant.original, mutant.mutated)
    if changed == source:
        raise HuntFailed(f"{mutant.name} changes nothing")
    try:
        compile(changed, mutant.path, "exec")
    except SyntaxError as error:
        raise HuntFailed(f"{mutant.name} is no Python: {error}") from error
    return changed


def require_copy(folder: str) -> None:
    """Raise SystemExit where this process has not the package in the folder, but ours."""
    origin = Path(coordinator_core.__file__ or "").resolve()
    if Path(folder).resolve() not in origin.parents:
        raise SystemExit(f"this would hunt in {origin}")


MUTANTS: Final = tuple(read_mutants(FAULTS.read_text(encoding="utf-8")))


def hunt(mutant: Mutant | None, hunter: str) -> tuple[Fate, str]:
    """Send a hunter after a mutant, or after our code as it is: what became of it, and what the hunter said.

    Raises HuntFailed where the mutant does not fit the code, or the hunter's process ended in another way or not at
    all.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / PACKAGE
        shutil.copytree(ROOT / PACKAGE, copy)  # with what is compiled of it, and its times
        if mutant is not None:
            path = copy / mutant.path
            path.write_text(mutated_source(mutant, path.read_text(encoding="utf-8")), encoding="utf-8")
        return _run(Path(folder), hunter)


def _run(folder: Path, hunter: str) -> tuple[Fate, str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "InTreeCacheLocator"  # a changed loop is compiled into the copy
    module = "tests.mutants.hunt_tests" if is_of_tests(hunter) else "tests.mutants.hunt"
    command = [sys.executable, "-P", "-m", module, hunter, str(folder)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HuntFailed(f"{hunter} did not come back in {TIMEOUT_S} seconds") from error
    what = done.stdout.strip().rpartition("\n")[2]
    if done.returncode == FOUND_CODE:
        return Fate.FOUND, what
    if done.returncode == SURVIVED_CODE:
        return Fate.SURVIVED, what
    raise HuntFailed(f"{hunter} fell: {done.stderr[-2000:]}")
