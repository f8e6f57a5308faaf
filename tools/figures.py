"""The size and the shape of the project, in figures.

python -m tools.figures [--budget FILE] [--run]    --budget: a file of lines `place now aim`, lines of code by place;
                                                   --run: also a first start by its parts, and `make test`, timed in a
                                                   fresh clone

Rooms are what lies directly in coordinator_core; an arrow is an import from one room to another, one that points to a
higher floor is upward, and a circle is a set of modules that import one another (imports for types count too).
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("coordinator_core", "simulator", "jobs", "groupledger", "schemas", "tests")
FLOORS: Final = (
    ("inference",),
    ("history", "live"),
    ("replay",),
    ("bytes",),
    ("confidence", "errors", "limits", "text"),
)
"""The rooms of coordinator_core from the top; the contracts of import-linter in pyproject.toml hold them."""
SET_UP: Final = ("./spark-submit.sh", "--set-up")
FIRST_RUN: Final = (
    ("set-up", ".venv", SET_UP),
    ("of it Delta's jars", ".cache/jars", SET_UP),
    ("of it kernels", ".cache/numba", SET_UP),
    ("first night", "warehouse", ("./spark-submit.sh", "nightly")),
    ("make test", "warehouse", ("make", "test")),
)
"""Name, the folder that is deleted before, and the command that makes it again."""
USERS_PAGES: Final = "docs/*.md"
"""Pages for users, README apart; those of the people who build it are in docs/internals."""

Imports = Mapping[str, Set[str]]
"""Module -> the modules that it imports."""


class Arrows(NamedTuple):
    """Imports between rooms, as pairs of rooms."""

    every: frozenset[tuple[str, str]]
    upward: frozenset[tuple[str, str]]


def imports_of(package: str) -> Imports:
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def arrows_of(imports: Imports) -> Arrows:
    """Imports between the rooms of a package. Raises KeyError for a room that has no floor."""
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    pairs = {
        (importer.split(".")[1], imported.split(".")[1])
        for importer, found in imports.items()
        for imported in found
        if "." in importer and "." in imported
    }
    every = frozenset(pair for pair in pairs if pair[0] != pair[1])
    return Arrows(every, frozenset(pair for pair in every if floor_of[pair[0]] >= floor_of[pair[1]]))


def circles_of(imports: Imports) -> list[list[str]]:
    """The sets of modules of which each reaches each other one by imports, each set sorted."""
    remaining = {module: {*found} & {*imports} for module, found in imports.items()}
    while ends := {module for module, found in remaining.items() if not found & {*remaining}}:
        remaining = {module: found for module, found in remaining.items() if module not in ends}
    reached = {module: set(_reached(module, remaining)) for module in remaining}
    circles = {frozenset(other for other in found if module in reached[other]) for module, found in reached.items()}
    return sorted(sorted(circle) for circle in circles if circle)


def _reached(module: str, imports: Imports) -> Iterator[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for imported in imports[waiting.pop()]:
            if imported in imports and imported not in seen:
                seen.add(imported)
                waiting.append(imported)
                yield imported


def lines_by_place() -> Counter[str]:
    """Lines of Python that git tracks, by package."""
    names = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    lines: Counter[str] = Counter()
    for name in names:
        place = name.split("/")[0]
        if place in PACKAGES:
            lines[place] += (ROOT / name).read_text("utf-8").count("\n")
    return lines


def words_of(pattern: str) -> int:
    return sum(len(path.read_text("utf-8").split()) for path in ROOT.glob(pattern))


def first_run() -> Iterator[tuple[str, float, float]]:
    """Seconds and processor seconds in a fresh clone of the last commit: set-up, its parts, the first night, and the
    tests with what they need set up."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for name, remade, command in FIRST_RUN:
            shutil.rmtree(clone / remade, ignore_errors=True)
            begun_s, used_s = time.monotonic(), processor_s()
            subprocess.run(command, cwd=clone, check=True, stdout=subprocess.DEVNULL)
            yield name, time.monotonic() - begun_s, processor_s() - used_s


def processor_s() -> float:
    """Processor time of all processes that this one has started and waited for, with theirs. The JVM of a night ends
    after its job, and is not among them."""
    used = os.times()
    return used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=Path, help="lines `place now aim`")
    parser.add_argument(
        "--run", action="store_true", help="time set-up, its parts, a night and `make test` in a fresh clone"
    )
    given = parser.parse_args()
    core = imports_of("coordinator_core")
    arrows = arrows_of(core)
    print(
        f"coordinator_core: {sum(map(len, FLOORS))} rooms, {len(FLOORS)} floors, {len(arrows.every)} arrows,"
        f" {len(arrows.upward)} upward, {len(circles_of(core))} circles"
    )
    for package in ("simulator", "jobs", "groupledger"):
        print(f"{package}: {len(circles_of(imports_of(package)))} circles")
    aims: dict[str, str] = {}
    if given.budget is not None:
        rows = (line.split() for line in given.budget.read_text("utf-8").splitlines() if not line.startswith("#"))
        aims = {place: f" (budget {aim})" for place, _, aim in filter(None, rows)}
    lines = lines_by_place()
    for place in PACKAGES:
        print(f"{place}: {lines[place]} lines{aims.get(place, '')}")
    print(f"product: {lines.total() - lines['tests']} lines")
    print(f"pages for users: {words_of(USERS_PAGES)} words")
    for name, wall_s, used_s in first_run() if given.run else ():
        print(f"{name}: {wall_s:.0f} s, {used_s:.0f} s of processor time")


if __name__ == "__main__":
    main()
