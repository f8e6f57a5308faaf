"""The syntax of subscription patterns: the regular expressions of RE2/J, with its Perl flags.

They are parsed like in RE2/J 1.8 (com.google.re2j.Parser): what it rejects is rejected, with its messages. `patterns`
runs the resulting program. Non-ASCII characters in a pattern are parsed, and match no name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from coordinator_core.consumer.pattern_classes import (
    ALL,
    FOLDED_INTO_ASCII,
    NEWLINE,
    PERL_CLASSES,
    POSIX_CLASSES,
    WORD,
    char_range,
    contains,
    folded,
    unicode_class,
)
from coordinator_core.consumer.patterns import (
    PROGRAM_SIZE_MAX,
    Assert,
    Char,
    Code,
    Pattern,
    TooLarge,
    either,
    is_line_end,
    is_line_start,
    is_no_word_boundary,
    is_text_end,
    is_text_start,
    is_word_boundary,
    repeated,
)

REPEAT_COUNT_MAX: Final = 1000
PATTERN_CACHE_SIZE: Final = 1024
RUNE_MAX: Final = 0x10FFFF

BAD_REPEAT_COUNT: Final = "invalid repeat count"
BAD_CLASS_RANGE: Final = "invalid character class range"
BAD_ESCAPE: Final = "invalid escape sequence"
BAD_NAMED_CAPTURE: Final = "invalid named capture"
BAD_PERL_OPERATOR: Final = "invalid or unsupported Perl syntax"
DUPLICATE_NAME: Final = "duplicate capture group name"
INTERNAL_ERROR: Final = "regexp/syntax: internal error"
MISSING_BRACKET: Final = "missing closing ]"
MISSING_PARENTHESIS: Final = "missing closing )"
NESTED_REPEAT: Final = "invalid nested repetition operator"
NOTHING_TO_REPEAT: Final = "missing argument to repetition operator"
TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"


class InvalidPattern(ValueError):
    """RE2/J rejects the pattern. `description` is PatternSyntaxException.getDescription."""

    def __init__(self, description: str) -> None:
        self.description = description
        super().__init__(description)


@lru_cache(maxsize=PATTERN_CACHE_SIZE)
def compile_pattern(regex: str) -> Pattern:
    """Compile a regular expression. Raises InvalidPattern."""
    try:
        return Pattern(_Parser(regex).parse())
    except TooLarge as error:
        raise InvalidPattern(BAD_REPEAT_COUNT) from error


@dataclass(frozen=True, slots=True)
class Flags:
    """What `(?ims)` sets, until the end of the group. Greediness does not matter: only whole names match."""

    ignores_case: bool = False
    is_multi_line: bool = False
    dot_takes_newline: bool = False


FLAG_FIELDS: Final[Mapping[str, str | None]] = {
    "i": "ignores_case",
    "m": "is_multi_line",
    "s": "dot_takes_newline",
    "U": None,
}


@dataclass(slots=True)
class _Group:
    """An open parenthesis, or the whole pattern."""

    outer_flags: Flags
    branches: list[Code] = field(default_factory=list)
    atoms: list[Code] = field(default_factory=list)
    """The branch being read; a repetition operator applies to the last atom."""

    def end_branch(self) -> None:
        self.branches.append(tuple(step for atom in self.atoms for step in atom))
        self.atoms = []
        if sum(map(len, self.branches)) > PROGRAM_SIZE_MAX:
            raise TooLarge


ESCAPED_ASSERTS: Final[Mapping[str, Assert]] = {
    "A": Assert(is_text_start),
    "b": Assert(is_word_boundary),
    "B": Assert(is_no_word_boundary),
    "z": Assert(is_text_end),
}
C_ESCAPES: Final[Mapping[str, int]] = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
REPEATS: Final[Mapping[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
OCTAL_DIGITS: Final = "01234567"
HEX_DIGITS: Final = "0123456789abcdefABCDEF"


class _Parser:
    """A single pass over the pattern, without recursion: groups are on a stack."""

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self.position = 0
        self.flags = Flags()
        self.groups = [_Group(self.flags)]
        self.names: set[str] = set()

    def parse(self) -> Code:
        """The program; raises InvalidPattern."""
        is_after_repeat = False
        while self.position < len(self.regex):
            is_after_repeat = self._item(is_after_repeat)
        if len(self.groups) > 1:
            raise InvalidPattern(MISSING_PARENTHESIS)
        self.groups[0].end_branch()
        return either(self.groups[0].branches)

    def _item(self, is_after_repeat: bool) -> bool:
        """Read one item. Returns whether it was a repetition operator."""
        char = self.regex[self.position]
        if char in REPEATS:
            self.position += 1
            self._repeat(*REPEATS[char], is_after_repeat=is_after_repeat)
            return True
        if char == "{":
            # A literal brace counts as an operator too: RE2/J rejects `{*`.
            counts = self._counts()
            if counts is None:
                self._character(char)
            else:
                self._repeat(*counts, is_after_repeat=is_after_repeat)
            return True
        if char == "[":
            self._push(Char(self._class()))
        elif char == "\\":
            self._backslash()
        elif char == "(":
            self._open()
        elif char in ITEMS:
            self.position += 1
            ITEMS[char](self)
        else:
            self._character(char)
        return False

    def _character(self, char: str) -> None:
        self.position += 1
        self._literal(ord(char))

    def _push(self, step: Char | Assert) -> None:
        self.groups[-1].atoms.append((step,))

    def _literal(self, rune: int) -> None:
        self._push(Char(self._runes(rune, rune)))

    def _runes(self, low: int, high: int) -> int:
        """A range of code points, with the flags applied."""
        chars = char_range(low, high)
        if not self.flags.ignores_case:
            return chars
        for rune, ascii_chars in FOLDED_INTO_ASCII.items():
            chars |= ascii_chars if low <= rune <= high else 0
        return folded(chars)

    # --- single characters ---

    def _dot(self) -> None:
        self._push(Char(ALL if self.flags.dot_takes_newline else ALL & ~NEWLINE))

    def _caret(self) -> None:
        self._push(Assert(is_line_start if self.flags.is_multi_line else is_text_start))

    def _dollar(self) -> None:
        self._push(Assert(is_line_end if self.flags.is_multi_line else is_text_end))

    def _bar(self) -> None:
        self.groups[-1].end_branch()

    def _close(self) -> None:
        if len(self.groups) == 1:
            raise InvalidPattern(INTERNAL_ERROR)
        group = self.groups.pop()
        group.end_branch()
        self.flags = group.outer_flags
        self.groups[-1].atoms.append(either(group.branches))

    # --- groups ---

    def _open(self) -> None:
        self.position += 1
        outer = self.flags
        if self.regex.startswith("?P<", self.position) or self.regex.startswith("?<", self.position):
            self._name()
        elif self.regex.startswith("?", self.position):
            self.position += 1
            if not self._read_flags():
                return
        self.groups.append(_Group(outer))

    def _name(self) -> None:
        start = self.regex.index("<", self.position) + 1
        end = self.regex.find(">", start)
        name = self.regex[start:end] if end >= 0 else ""
        if not name or not all(char.isascii() and contains(WORD, char) for char in name):
            raise InvalidPattern(BAD_NAMED_CAPTURE)
        if name in self.names:
            raise InvalidPattern(DUPLICATE_NAME)
        self.names.add(name)
        self.position = end + 1

    def _read_flags(self) -> bool:
        """Flags after `(?`, up to the colon of a group (True) or the end of the parenthesis (False)."""
        is_on, was_flag = True, False
        while self.position < len(self.regex):
            char = self.regex[self.position]
            self.position += 1
            if char in FLAG_FIELDS:
                was_flag = True
                name = FLAG_FIELDS[char]
                if name is not None:
                    self.flags = replace(self.flags, **{name: is_on})
            elif char == "-" and is_on:
                is_on, was_flag = False, False
            elif char in ":)" and (is_on or was_flag):
                return char == ":"
            else:
                break
        raise InvalidPattern(BAD_PERL_OPERATOR)

    # --- repetition ---

    def _repeat(self, count_min: int, count_max: int | None, *, is_after_repeat: bool) -> None:
        if self.regex.startswith("?", self.position):
            self.position += 1
        if is_after_repeat:
            raise InvalidPattern(NESTED_REPEAT)
        atoms = self.groups[-1].atoms
        if not atoms:
            raise InvalidPattern(NOTHING_TO_REPEAT)
        atoms[-1] = repeated(atoms[-1], count_min, count_max)

    def _counts(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}` or `{2,3}`; None if the brace is literal."""
        end = self.regex.find("}", self.position)
        low, comma, high = self.regex[self.position + 1 : max(end, 0)].partition(",")
        is_open = bool(comma) and not high
        if end < 0 or not _is_count(low) or not (not comma or is_open or _is_count(high)):
            return None
        count_min = int(low)
        count_max = None if is_open else int(high) if comma else count_min
        if max(count_min, count_max or 0) > REPEAT_COUNT_MAX or (count_max is not None and count_min > count_max):
            raise InvalidPattern(BAD_REPEAT_COUNT)
        self.position = end + 1
        return count_min, count_max

    # --- classes ---

    def _class(self) -> int:
        self.position += 1
        is_negated = self.regex.startswith("^", self.position)
        self.position += is_negated
        chars = 0
        is_first = True
        while is_first or not self.regex.startswith("]", self.position):
            is_first = False
            group = self._posix_class()
            if group is None:
                group = self._escaped_class()
            chars |= self._class_range() if group is None else group
        self.position += 1
        return ALL & ~chars if is_negated else chars

    def _class_range(self) -> int:
        low = high = self._class_char()
        if self.regex.startswith("-", self.position) and not self.regex.startswith("-]", self.position):
            self.position += 1
            high = self._class_char()
            if high < low:
                raise InvalidPattern(BAD_CLASS_RANGE)
        return self._runes(low, high)

    def _class_char(self) -> int:
        if self.position >= len(self.regex):
            raise InvalidPattern(MISSING_BRACKET)
        if self.regex[self.position] == "\\":
            return self._escape()
        self.position += 1
        return ord(self.regex[self.position - 1])

    def _posix_class(self) -> int | None:
        end = self.regex.find(":]", self.position + 2)
        if not self.regex.startswith("[:", self.position) or end < 0:
            return None
        name = self.regex[self.position + 2 : end]
        chars = POSIX_CLASSES.get(name.removeprefix("^"))
        if chars is None:
            raise InvalidPattern(BAD_CLASS_RANGE)
        self.position = end + 2
        chars = folded(chars) if self.flags.ignores_case else chars
        return ALL & ~chars if name.startswith("^") else chars

    def _escaped_class(self) -> int | None:
        """`\\d` and similar ones, `\\pL`, `\\p{Greek}`; None if something else follows."""
        escape = self.regex[self.position : self.position + 2]
        if escape in {"\\p", "\\P"}:
            return self._unicode_class()
        chars = PERL_CLASSES.get(escape[1:]) if escape.startswith("\\") else None
        if chars is not None:
            self.position += 2
        return chars

    def _unicode_class(self) -> int:
        is_negated = self.regex[self.position + 1] == "P"
        start = self.position + 2
        end = start + 1
        if self.regex.startswith("{", start):
            start += 1
            end = self.regex.find("}", start)
        name = self.regex[start:end] if end >= 0 else ""
        is_negated ^= name.startswith("^")
        chars = unicode_class(name.removeprefix("^"))
        if chars is None:
            raise InvalidPattern(BAD_CLASS_RANGE)
        self.position = end + (self.regex[start - 1] == "{")
        chars = folded(chars) if self.flags.ignores_case else chars
        return ALL & ~chars if is_negated else chars

    # --- escapes ---

    def _backslash(self) -> None:
        char = self.regex[self.position + 1 : self.position + 2]
        if char in ESCAPED_ASSERTS:
            self.position += 2
            self._push(ESCAPED_ASSERTS[char])
        elif char == "Q":
            end = self.regex.find("\\E", self.position + 2)
            quoted = self.regex[self.position + 2 : end if end >= 0 else None]
            self.position = len(self.regex) if end < 0 else end + 2
            for quoted_char in quoted:
                self._literal(ord(quoted_char))
        elif (chars := self._escaped_class()) is not None:
            self._push(Char(chars))
        else:
            self._literal(self._escape())

    def _escape(self) -> int:
        """The code point of an escape sequence."""
        self.position += 1
        if self.position >= len(self.regex):
            raise InvalidPattern(TRAILING_BACKSLASH)
        char = self.regex[self.position]
        self.position += 1
        if char in C_ESCAPES:
            return C_ESCAPES[char]
        if char == "0" or (char in OCTAL_DIGITS and self.regex[self.position : self.position + 1] in {*OCTAL_DIGITS}):
            return self._octal()
        if char == "x":
            return self._hexadecimal()
        if char.isascii() and char.isalnum():
            raise InvalidPattern(BAD_ESCAPE)
        return ord(char)

    def _octal(self) -> int:
        """Up to three digits, of which the first was read already."""
        start = self.position - 1
        while self.position < start + 3 and self.regex[self.position : self.position + 1] in {*OCTAL_DIGITS}:
            self.position += 1
        return int(self.regex[start : self.position], 8)

    def _hexadecimal(self) -> int:
        """`\\x7F`, or `\\x{10FFFF}` with any number of digits."""
        start, end = self.position, self.position + 2
        after = end
        if self.regex.startswith("{", start):
            start += 1
            end = self.regex.find("}", start)
            after = end + 1
        digits = self.regex[start:end] if end >= 0 else ""
        is_complete = digits and (after > end or len(digits) == 2)
        if not is_complete or not all(digit in HEX_DIGITS for digit in digits):
            raise InvalidPattern(BAD_ESCAPE)
        rune = int(digits, 16)
        if rune > RUNE_MAX:
            raise InvalidPattern(BAD_ESCAPE)
        self.position = after
        return rune


ITEMS: Final[Mapping[str, Callable[[_Parser], None]]] = {
    ".": _Parser._dot,
    "^": _Parser._caret,
    "$": _Parser._dollar,
    "|": _Parser._bar,
    ")": _Parser._close,
}
"""Single special characters, except repetitions, classes, groups and escapes."""


def _is_count(text: str) -> bool:
    """Decimal digits without leading zeros."""
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))
