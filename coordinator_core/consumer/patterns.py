"""Subscription patterns, compiled to match topic names.

A pattern is a small program of jumps whose alternatives run in parallel (a Pike machine): the run time grows with the
length of the name, whatever the pattern. In a backtracking matcher, a member's pattern could run forever.
`pattern_syntax` makes the program.

Topic names are ASCII (Topic.LEGAL_CHARS), so a character class is a set of 128 bits here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator_core.consumer.pattern_classes import WORD, contains

PROGRAM_SIZE_MAX: Final = 20_000
"""Maximum number of instructions of a pattern. RE2/J has no bound, and runs out of memory for nested repetitions."""


class TooLarge(ValueError):
    """A program of more than PROGRAM_SIZE_MAX instructions."""


class Char(NamedTuple):
    """Consume one character of the class."""

    chars: int


class Assert(NamedTuple):
    """Continue only if this holds at the position between two characters."""

    holds: Callable[[str, int], bool]


class Jump(NamedTuple):
    """Continue at each of these relative positions."""

    distances: tuple[int, ...]


Code = tuple[Char | Assert | Jump, ...]
"""Relocatable instructions: jumps are relative, and the program ends by falling through."""


def is_text_start(text: str, position: int) -> bool:
    """`\\A`, and `^` without the flag m."""
    return position == 0


def is_text_end(text: str, position: int) -> bool:
    """`\\z`, and `$` without the flag m."""
    return position == len(text)


def is_line_start(text: str, position: int) -> bool:
    """`^` with the flag m."""
    return position == 0 or text[position - 1] == "\n"


def is_line_end(text: str, position: int) -> bool:
    """`$` with the flag m."""
    return position == len(text) or text[position] == "\n"


def is_word_boundary(text: str, position: int) -> bool:
    """`\\b`: between a word character and another one, or the end."""
    before = position > 0 and contains(WORD, text[position - 1])
    return before != (position < len(text) and contains(WORD, text[position]))


def is_no_word_boundary(text: str, position: int) -> bool:
    """`\\B`."""
    return not is_word_boundary(text, position)


def repeated(code: Code, count_min: int, count_max: int | None) -> Code:
    """Repeat the code; `count_max` None: without upper bound. Raises TooLarge."""
    size = len(code)
    copies = count_min if count_max is None else count_max
    if (size + 1) * (copies + 1) > PROGRAM_SIZE_MAX:
        raise TooLarge
    if count_max is None:
        return (*code * count_min, Jump((1, size + 2)), *code, Jump((-size - 1,)))
    optional_count = count_max - count_min
    optional: list[Char | Assert | Jump] = []
    for left in range(optional_count, 0, -1):
        optional += (Jump((1, left * (size + 1))), *code)
    return (*code * count_min, *optional)


def either(branches: list[Code]) -> Code:
    """Any of the branches: one jump to all, and one from each to the end. Raises TooLarge."""
    if len(branches) == 1:
        return branches[0]
    distances, code = [], []
    size = sum(len(branch) + 1 for branch in branches)
    start = 1
    for branch in branches:
        distances.append(start)
        start += len(branch) + 1
        code += [*branch, Jump((size - start + 2,))]
    if len(code) > PROGRAM_SIZE_MAX:
        raise TooLarge
    return (Jump(tuple(distances)), *code)


@dataclass(frozen=True, slots=True)
class Pattern:
    code: Code

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name. No pattern matches a name that is not ASCII."""
        if not name.isascii():
            return False
        places = self._reached({0}, name, 0)
        for position, char in enumerate(name):
            bit = 1 << ord(char)
            taken = {
                place + 1
                for place in places
                if place < len(self.code) and isinstance(step := self.code[place], Char) and step.chars & bit
            }
            if not taken:
                return False
            places = self._reached(taken, name, position + 1)
        return len(self.code) in places

    def _reached(self, places: set[int], name: str, position: int) -> set[int]:
        """All positions in the program that can be reached without consuming a character."""
        reached = set(places)
        left = list(places)
        while left:
            place = left.pop()
            step = self.code[place] if place < len(self.code) else None
            if isinstance(step, Jump):
                targets = [place + distance for distance in step.distances]
            elif isinstance(step, Assert) and step.holds(name, position):
                targets = [place + 1]
            else:
                continue
            left += [target for target in targets if target not in reached]
            reached.update(targets)
        return reached
