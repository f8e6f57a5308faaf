"""A place in a scenario file, and the error that names it."""

import difflib
from collections.abc import Iterable
from typing import Final

from coordinator_core.errors import CoreError


class ScenarioError(CoreError):
    """A scenario file that cannot be simulated: the text names the file, the key, and what to do."""


SHOWN_MAX: Final = 60
"""The number of characters of a name that an error shows."""


def shown(name: str) -> str:
    """A name from the file on one line, in quotes."""
    return repr(name if len(name) <= SHOWN_MAX else name[:SHOWN_MAX] + "...")


def near(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, as the end of an error."""
    found = difflib.get_close_matches(name[:SHOWN_MAX], list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


class Place(str):
    """A place in a file, such as `deploy.toml: group[0].members`."""

    __slots__ = ()

    def key(self, name: str) -> "Place":
        return Place(f"{self}{name}" if self.endswith(" ") else f"{self}.{name}")

    def item(self, index: int) -> "Place":
        return Place(f"{self}[{index}]")

    def error(self, what: str) -> ScenarioError:
        return ScenarioError(f"{self}: {what}")
