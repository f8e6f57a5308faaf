"""Where in a scenario file something is, and how an error says so."""

import difflib
from collections.abc import Iterable
from typing import Final

from coordinator_core.simulate.errors import ScenarioError
from coordinator_core.simulate.scenario import Scenario

SHOWN_MAX: Final = 60
"""Characters of a name in an error: the line is for people."""


def shown(name: str) -> str:
    """A name of the file in one line, in quotes."""
    return repr(name if len(name) <= SHOWN_MAX else name[:SHOWN_MAX] + "...")


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of an error."""
    found = difflib.get_close_matches(name[:SHOWN_MAX], list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


class Place(str):
    """Where in a file something is, as `deploy.toml: group[0].members`."""

    __slots__ = ()

    def key(self, name: str) -> "Place":
        """A key below."""
        return Place(f"{self}{name}" if self.endswith(" ") else f"{self}.{name}")

    def item(self, index: int) -> "Place":
        """An item of a list."""
        return Place(f"{self}[{index}]")

    def error(self, what: str) -> ScenarioError:
        """An error at this place."""
        return ScenarioError(f"{self}: {what}")


def key_of(kind: type, name: str) -> str:
    """The key of a field: durations go without their unit, lists of tables by one of them."""
    if kind is Scenario and name in {"topics", "groups", "faults"}:
        return name[:-1]
    return name.removesuffix("_ms")
