"""docs/internals/mechanisms.md: what the coordinators do, a row each, with the file, where it is seen, and the test.

The rows are in `tools/mechanisms.toml`, whose first lines say how to read them.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
ROWS: Final = Path(__file__).with_name("mechanisms.toml")
LIVE: Final = "coordinator_core/live"
ROOMS: Final = ("coordinator_core/", "simulator/")
TESTED: Final = ("simulator/", "cases/", "conformance/", "jobs/")


class Mechanism(NamedTuple):
    what: str
    file: str
    """From the root of the project."""
    seen: str
    test: str
    """From the root of the project."""

    @property
    def exchange(self) -> tuple[str, str, str] | None:
        """The scenario, the group, and the text that its story has; None: it is seen elsewhere."""
        place, _, text = self.seen.partition(": ")
        words = place.split()
        is_story = len(words) == 2 and (ROOT / "scenarios" / f"{words[0]}.toml").is_file()
        return (words[0], words[1], text) if is_story else None


def stories() -> Mapping[str, list[Mechanism]]:
    """The rows by title."""
    return {story["title"]: [_mechanism(row) for row in story["rows"]] for story in _data()["story"]}


def outside() -> list[list[str]]:
    """What is no part of the project, with the reason."""
    return [row.split(" | ") for part in _data()["outside"] for row in part["rows"]]


def _data() -> dict[str, Any]:
    return tomllib.loads(ROWS.read_text(encoding="utf-8"))


def _mechanism(row: str) -> Mechanism:
    what, file, seen, test = row.split(" | ")
    return Mechanism(
        what,
        file if file.startswith(ROOMS) else f"{LIVE}/{file}",
        seen,
        f"tests/{test}" if test.startswith(TESTED) else f"tests/{LIVE}/{test}",
    )


def mechanisms_page(generated: str) -> str:
    """The page."""
    return "\n\n".join(_parts(generated)) + "\n"


def _parts(generated: str) -> Iterator[str]:
    rows = stories()
    yield generated
    yield "# Every mechanism"
    yield (
        f"{sum(map(len, rows.values()))} things that coordinators and their clients do, each with the file that does "
        "it, where you see it, and the test that proves it. `SCENARIO GROUP: text` is printed by `simulate --scenario "
        "scenarios/SCENARIO.toml --explain GROUP`; [How a group lives](how-a-group-lives.md) shows how they follow one "
        "another."
    )
    for title, mechanisms in rows.items():
        yield f"## {title}"
        lines = ["| what happens | file | seen | test |", "| --- | --- | --- | --- |"]
        lines += [f"| {it.what} | `{it.file}` | {_cell(it)} | `{it.test}` |" for it in mechanisms]
        yield "\n".join(lines)
    yield "## What is left out"
    yield "\n".join(f"- {what}: {why}." for what, why in outside())


def _cell(mechanism: Mechanism) -> str:
    return mechanism.seen if mechanism.exchange is None else f"`{mechanism.seen}`"
