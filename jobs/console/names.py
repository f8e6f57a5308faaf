"""Names within a line of text: each shortened, how many more there are, and the nearest one to an unknown one."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final

from jobs.console.output import printable

NAMES_MAX: Final = 5
NEAREST_MAX: Final = 3
NAME_CHARACTERS_MAX: Final = 100
LINE_CHARACTERS_MAX: Final = 120
COMPARED_MAX: Final = 20_000
"""How many names are compared with one that is not known: about a second."""


def short(name: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """A name, shortened for a line of text, then ending in dots; an empty one is made visible."""
    return cut(printable(name) or "''", characters_max)


def cut(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """A text that fits a line."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


def cut_inside(text: str, characters_max: int) -> str:
    """A name that fits, with its end: the names of processes of one application often differ there alone."""
    end = (characters_max - 3) // 2
    return text if len(text) <= characters_max else f"{text[: characters_max - 3 - end]}...{text[-end:]}"


def some_of(texts: Iterable[str]) -> str:
    """The first strings, and how many more there are."""
    every = list(texts)
    more = len(every) - NAMES_MAX
    named = ", ".join(every[:NAMES_MAX])
    return f"{named}, and {more:,} more" if more > 0 else named


def names_of(names: Iterable[str]) -> str:
    """Some names in order, and how many more there are."""
    return some_of(short(name) for name in sorted(names))


def or_nearest(name: str, known: Iterable[str]) -> str:
    """A name that is not known, in quotes, and the nearest ones that are: the one most like it, and those that begin
    with it; of those that differ in case only, that one. A file may be named without its folder and ending."""
    own = printable(name)[:NAME_CHARACTERS_MAX]
    others = sorted({printable(it)[:NAME_CHARACTERS_MAX] for it in known})
    alike = [it for it in others if it.casefold() == own.casefold()]
    stems = {PurePath(it).stem: it for it in others[:COMPARED_MAX] if "/" in it}
    begun = [it for it in others if own and it.casefold().startswith(own.casefold())]
    found = alike[:1] or list(dict.fromkeys([*get_close_matches(own, others[:COMPARED_MAX], 1), *begun]))[:NEAREST_MAX]
    found = found or [stems[it] for it in get_close_matches(PurePath(own).stem, stems, 1)]
    meant = " or ".join(f"'{it}'" for it in found)
    return f"'{own}'" + (f" (did you mean {meant}?)" if found else "")


def or_some(name: str, known: Collection[str]) -> str:
    """As `or_nearest`; where none is near, some that there are."""
    text = or_nearest(name, known)
    return text if text.endswith("?)") or not known else f"{text} (known: {names_of(known)})"
