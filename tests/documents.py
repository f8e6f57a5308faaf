"""README.md and the pages in docs as programs: their blocks of commands and code, the answers shown below them, and
what is not run here, with the reason.

A block of `sh`, `python` or `sql` is followed by its answer, a block without a language; a line `...` in it marks
lines left out. A block without an answer has a comment before it, `<!-- not run: why -->`, and its commands are still
parsed. Blocks of other languages are shown only.
"""

import re
import shlex
from itertools import dropwhile
from pathlib import Path
from typing import Final, NamedTuple

from tests.conftest import PROJECT_ROOT

ENTRY: Final = "./spark-submit.sh"
OURS: Final = frozenset({"-h", "--help", "--version", "--set-up"})
WITHOUT_VALUE: Final = frozenset({"--dry-run", "--verbose", "-v", "--supervise"})
"""Options before the job's name that take no word."""
LEFT_OUT: Final = "..."
RUNNABLE: Final = frozenset({"sh", "python", "sql"})
BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN: Final = "not run: "
NOWHERE: Final = -2
"""Of the end of a block that no answer can follow."""


class Example(NamedTuple):
    """A block of commands or code, the answer shown right below it if any, or why it is not run."""

    language: str
    code: str
    shown: str | None = None
    not_run: str | None = None


def documents() -> list[Path]:
    """Every page a user reads."""
    return [
        PROJECT_ROOT / "README.md",
        PROJECT_ROOT / "CONTRIBUTING.md",
        *sorted((PROJECT_ROOT / "docs").rglob("*.md")),
    ]


def examples(text: str) -> list[Example]:
    """The examples of a document. Raises AssertionError for an answer to nothing, and for a block without an answer."""
    found: list[Example] = []
    code_end = NOWHERE
    for block in BLOCK.finditer(text):
        language, body, mark = block["language"], block["body"], block["mark"] or ""
        if language in RUNNABLE:
            not_run = mark.removeprefix(NOT_RUN) if mark.startswith(NOT_RUN) else None
            found.append(Example(language, body, not_run=not_run))
            code_end = block.end()
        elif not language:
            assert block.start() == code_end + 1, f"an answer to nothing: {body}"
            assert found[-1].not_run is None, f"an answer to what is not run: {body}"
            found[-1] = found[-1]._replace(shown=body)
        else:
            code_end = NOWHERE
    return found


def commands(code: str) -> list[list[str]]:
    """The commands of a block of sh, each as its words; one may go on over lines inside quotes or after a backslash."""
    joined = code.replace("\\\n", " ")
    lines = [line for line in re.split(r"\n(?=[./$\w#])", joined.strip()) if not line.lstrip().startswith("#")]
    return [words for line in lines for words in _joined(shlex.split(line, comments=True))]


def _joined(words: list[str]) -> list[list[str]]:
    """The commands of one line."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&", "||", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def our_jobs(code: str) -> list[list[str]]:
    """Words of our own commands in a block of sh, Spark's options before the job left away."""
    ours = []
    for line in commands(code):
        words = list(dropwhile(re.compile(r"[A-Z_]+=").match, line))
        if words[:1] in ([ENTRY], ["groupledger"]):
            rest = words[1:]
            while rest and rest[0].startswith("-") and rest[0] not in OURS:
                rest = rest[1:] if "=" in rest[0] or rest[0] in WITHOUT_VALUE else rest[2:]
            ours.append(rest)
    return ours


def lines_of(text: str) -> list[str]:
    """Lines without the blanks at their ends and without empty ones around them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def is_shown(shown: str, printed: str) -> bool:
    """Is the answer shown what was printed, but for the lines left out?"""
    expected = (r"(?:.*\n)+" if line == LEFT_OUT else re.escape(line) + r"\n" for line in lines_of(shown))
    return re.fullmatch("".join(expected), "".join(f"{line}\n" for line in lines_of(printed))) is not None
