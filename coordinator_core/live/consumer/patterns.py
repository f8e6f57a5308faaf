"""Subscription patterns: what RE2/J 1.8, which Kafka's coordinator uses, accepts, refuses and matches.

RE2 itself does the work: its run time grows with the length of the name, whatever the pattern. RE2/J is a port of it
with a few differences, which are made up for here, and with messages of its own, which clients are shown.
"""

import re
from functools import lru_cache
from typing import Any, Final

import re2

PATTERN_CACHE_SIZE: Final = 1024
PROGRAM_BYTES_MAX: Final = 8 << 20
"""Memory of a compiled pattern. RE2/J has no bound, and runs out of memory for nested repetitions."""

REFUSALS: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class range": "invalid character class range",
    "invalid escape sequence": "invalid escape sequence",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""RE2's messages, and those of com.google.re2j.Parser."""
TOO_LARGE: Final = "invalid repeat count"
"""Also RE2/J's message for a count above 1,000."""
TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|$)"  # quoted
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"  # a class
    r"|\((?:\?P?<(?P<name>\w+)>)?"
    r"|\{(?P<repeated_brace>[*+?]|\{\d+(?:,\d*)?\})"
    r"|\\(?P<escaped>.)",
    re.DOTALL,
)
"""The parts of a pattern in which RE2 and RE2/J differ, and what may hide their like."""


class InvalidPattern(ValueError):
    """RE2/J rejects the pattern. `description` is PatternSyntaxException.getDescription."""

    def __init__(self, description: str) -> None:
        self.description = description
        super().__init__(description)


class Pattern:
    """A compiled pattern. Topic names are ASCII (Topic.LEGAL_CHARS): another name matches nothing."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, name: str) -> bool:
        """Does the whole name match?"""
        return name.isascii() and self._compiled.fullmatch(name) is not None


@lru_cache(maxsize=PATTERN_CACHE_SIZE)
def compile_pattern(regex: str) -> Pattern:
    """Compile a regular expression. Raises InvalidPattern."""
    _refuse_what_re2_accepts(regex)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        compiled = re2.compile(_as_re2(regex), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace").partition(":")[0]
        raise InvalidPattern(REFUSALS.get(reason, TOO_LARGE)) from None
    return Pattern(compiled)


def _as_re2(regex: str) -> str:
    """RE2/J takes an escaped character that is not ASCII for itself, RE2 refuses it."""
    return TOKEN.sub(lambda it: it["escaped"] if (it["escaped"] or "a") > "\x7f" else it[0], regex)


def _refuse_what_re2_accepts(regex: str) -> None:
    names: set[str] = set()
    for token in TOKEN.finditer(regex):
        if token["escaped"] == "C":
            raise InvalidPattern(REFUSALS["invalid escape sequence"])
        if token["repeated_brace"]:
            raise InvalidPattern(REFUSALS["bad repetition operator"])
        if token["name"] in names:
            raise InvalidPattern("duplicate capture group name")
        if token["name"]:
            names.add(token["name"])
