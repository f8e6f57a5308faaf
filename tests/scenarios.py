"""The project's scenarios, each simulated and replayed once in a run of the tests: to be read, and never changed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs.laboratory.simulate import simulate
from tests.cases.harness import Ledger, Night
from tests.conftest import PROJECT_ROOT
from tests.made_once import MadeOnce


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario, its truth, and what a night makes of its logs."""

    name: str
    root: Path

    @property
    def ledger(self) -> Ledger:
        """After a night."""
        return Ledger(self.root / "warehouse")

    @property
    def night(self) -> Night:
        """What it did."""
        code, lines, facts = json.loads((self.root / "night.json").read_text(encoding="utf-8"))
        return Night(code, lambda: (lines, facts))

    @property
    def folder(self) -> Path:
        """What simulate wrote: logs and truth."""
        return self.root / "simulated"

    def truth(self, file: str) -> Iterator[dict[str, Any]]:
        """Lines of a truth file; none where there is none."""
        path = self.folder / "truth" / f"{file}.jsonl"
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Of a table."""
        return self.ledger.rows(name)


def scenario_of(made_once: MadeOnce, name: str) -> Scenario:
    """A scenario by the name of its file."""

    return Scenario(name, made_once(f"scenario-{name}", partial(lived, text_of(name))))


def text_of(name: str) -> str:
    """The file of a shipped scenario."""
    return (PROJECT_ROOT / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")


def lived(text: str, root: Path) -> Scenario:
    """A scenario by its text, simulated in a new folder, and a night over its logs."""
    made = Scenario(root.name, root)
    root.mkdir()
    (root / "scenario.toml").write_text(text, encoding="utf-8")
    simulate(str(root / "scenario.toml"), str(made.folder))
    night = made.ledger.night(made.folder / "logs")
    (root / "night.json").write_text(json.dumps([night.exit_code, night.lines, night.facts]), encoding="utf-8")
    return made
