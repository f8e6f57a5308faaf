"""Lists of names within a line of text: each shortened, and how many more there are."""

from collections.abc import Iterable
from typing import Final

from jobs.console.output import printable

NAMES_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 100
LINE_CHARACTERS_MAX: Final = 120


def short(name: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """A name, shortened for a line of text, then ending in dots; an empty one is made visible."""
    return cut(printable(name) or "''", characters_max)


def cut(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """A text that fits a line."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


def some_of(texts: Iterable[str]) -> str:
    """The first strings, and how many more there are."""
    every = list(texts)
    more = len(every) - NAMES_MAX
    named = ", ".join(every[:NAMES_MAX])
    return f"{named}, and {more:,} more" if more > 0 else named


def names_of(names: Iterable[str]) -> str:
    """Some names in order, and how many more there are."""
    return some_of(short(name) for name in sorted(names))
