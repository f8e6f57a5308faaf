"""explain: what a word means that a job prints.

Words are declared in two pages, in rows of their tables and in their paragraphs, and in the comments of tables and
columns; here they are looked up.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import groupby
from typing import Final, NamedTuple, TextIO

from jobs.console.command_name import command
from jobs.console.names import or_nearest
from jobs.console.output import folded_text, write_answers
from jobs.errors import ArgumentError
from jobs.queries.answers.group_verdicts import RULES
from jobs.queries.answers.lists import BEGAN_AT, BEGAN_AT_MEANS, LISTS, TOPICS, TOPICS_MEANS, WHO, WHO_MEANS
from jobs.queries.views.all_views import DEFINITIONS
from jobs.settings import PROJECT_ROOT
from schemas.tables import TABLES

PAGES: Final = ("docs/words.md", "docs/internals/methods.md")
CAPITALS: Final = re.compile(r"(?<![\w'./-])[A-Z][A-Z0-9]+(?:[_-][A-Z0-9]+)*(?![\w'/-])")
"""A word in capitals, as CERTAIN or UNOWNED-MS."""
TITLE: Final = re.compile(r"^\*\*([^*\n]+?)[.:?]?\*\*")
"""What a paragraph is about."""
COLUMNS: Final = ("WORD", "KIND", "MEANING")
CODE: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"\[([^]]+)\]\([^)]*\)")


class Meaning(NamedTuple):
    """What some words mean. `kind`: in the singular, as `method of gold.rebalances`."""

    words: tuple[str, ...]
    kind: str
    text: str
    is_own: bool = True
    """Is it about these words? Else it only names them."""


def meanings() -> Iterator[Meaning]:
    """Everything that is declared, what is about its words before what names them."""
    found = [*_of_pages(), *_of_lists(), *_of_tables()]
    yield from sorted(found, key=lambda it: not it.is_own)


def _of_pages() -> Iterator[Meaning]:
    for page in PAGES:
        heading = ""
        for block in (PROJECT_ROOT / page).read_text(encoding="utf-8").split("\n\n"):
            if block.startswith("#"):
                heading = block.strip("# \n")
            elif block.startswith("| "):
                yield from _of_rows(block, heading)
            elif not block.startswith("```"):
                for text in re.split(r"\n(?=- )", block):
                    plain = _plain(text.removeprefix("- "))
                    if titles := [*TITLE.findall(text), *re.findall(r"\*\*([A-Z_]{3,})\*\*", text)]:
                        yield Meaning(tuple(titles), f"word of: {heading}", plain)
                    named = tuple(it for it in CAPITALS.findall(plain) if it not in titles)
                    yield Meaning(named, f"word of: {heading}", plain, is_own=False)


def _of_rows(block: str, heading: str) -> Iterator[Meaning]:
    head, _, *rows = ([cell.strip() for cell in line.strip("| \n").split(" | ")] for line in block.splitlines())
    for first, *others in rows:
        words = CODE.findall(first) or re.split(r"[,:] ", _plain(first))
        text = ". ".join(map(_plain, others))
        yield from _each_its_own(tuple(words), f"{head[0]} of: {heading}", text)
        if named := CAPITALS.findall(text):
            yield Meaning(tuple(named), f"{head[0]} of: {heading}", f"{_plain(first)}: {text}", is_own=False)


def _each_its_own(words: tuple[str, ...], kind: str, text: str) -> Iterator[Meaning]:
    """Of several words in a row each has its part of the text, if there are as many, behind what the first part says of
    all of them up to a colon; else the row says which it has."""
    parts = text.split("; ")
    if len(words) == len(parts):
        about = parts[0][: parts[0].find(": ") + 2] if ": " in parts[0] else ""
        parts[0] = parts[0].removeprefix(about)
        yield from (Meaning((word,), kind, about + part) for word, part in zip(words, parts, strict=True))
    else:
        yield Meaning(words, kind, f"{', '.join(words)}: {text}" if len(words) > 1 else text)


def _of_lists() -> Iterator[Meaning]:
    for listing, it in LISTS.items():
        rows = f"rows of {it.table.full_name}"
        text = f"{rows}: {it.table.comment}" if it.finding is None else f"{it.finding.many}: {rows}"
        yield Meaning((listing, *([] if it.finding is None else it.finding[:2])), "list of audit", text)
    for rule in RULES.values():
        points = f"a reason of a verdict, of {rule.points} points; its rows: list {rule.listing} of audit"
        yield Meaning((rule.one, rule.many), "reason of a verdict", points)
    for name, text in ((WHO, WHO_MEANS), (TOPICS, TOPICS_MEANS), (BEGAN_AT, BEGAN_AT_MEANS)):
        yield Meaning((name,), "column of audit", text)


def _of_tables() -> Iterator[Meaning]:
    for table in TABLES.values():
        if table.layer == "state":
            continue
        columns = ", ".join(column.name for column in table.columns)
        yield Meaning((table.full_name, table.name), "table", f"{table.comment} Columns: {columns}")
        for column in table.columns:
            kind = f"column of {table.full_name}"
            yield Meaning((column.name, f"{table.full_name}.{column.name}"), kind, column.comment)
            if named := [*CAPITALS.findall(column.comment), *CODE.findall(column.comment)]:
                yield Meaning(tuple(named), kind, f"{column.name}: {column.comment}", is_own=False)
    for view in DEFINITIONS:
        yield Meaning((view.name,), view.kind.value.lower(), view.about)


def _plain(text: str) -> str:
    """Markdown as text."""
    return unescape(" ".join(LINK.sub(r"\1", text).replace("`", "").replace("*", "").replace("\\_", "_").split()))


def _key(word: str) -> str:
    return word.casefold().replace("-", "_")


def _joined(word: str) -> str:
    """As a column is written: `partitions moved` is partitions_moved."""
    return _key(word).replace(" ", "_").replace(".", "_")


def explained(word: str) -> list[Meaning]:
    """What is about the word; where nothing is, what names it, or what has it among its words, as a storm among
    rebalances in storms. Raises ArgumentError for a word that is not known."""
    every = [] if not word.strip() else list(meanings())
    # tombstones, quarantined
    forms = dict.fromkeys((_joined(word), _joined(word).removesuffix("s"), _joined(word).removesuffix("d")))
    found = next(filter(None, ([it for it in every if form in map(_joined, it.words)] for form in forms)), [])
    if not found:
        part = re.compile(rf"(?<!\w){re.escape(_key(word))}s?(?!\w)")
        found = [it for it in every if it.is_own and any(part.search(_key(name)) for name in it.words)]
    if not found:
        nearest = or_nearest(word, {name for it in every for name in it.words})
        raise ArgumentError(f"there is no word {nearest}: {command('explain')} lists all")
    return [it for it in found if it.is_own] or found


def run_explain(asked: Sequence[str], output_format: str, out: TextIO | None = None) -> None:
    """Print what words mean, or all words by kind. Several may be one: `thrown out`. Raises ArgumentError for a word
    that is not known, once the others are printed."""
    out = out or sys.stdout
    found: list[tuple[str | None, Meaning]] = [(None, it) for it in meanings() if it.is_own]
    unknown: ArgumentError | None = None
    if asked:
        found, unknown = _meant(asked)
    if not found and unknown is not None:
        raise unknown
    if output_format != "table":
        names = [name.lower() for name in COLUMNS]
        rows = [(name, it.kind, it.text) for word, it in found for name in (it.words if word is None else (word,))]
        write_answers(names, rows, output_format, out)
    elif not asked:
        _write_words([it for _, it in found], out)
    else:
        for word, it in found:
            out.write(f"{folded_text(f'{word} ({it.kind}): {it.text}', out)}\n")
    if unknown is not None:
        raise unknown


def _meant(asked: Sequence[str]) -> tuple[list[tuple[str | None, Meaning]], ArgumentError | None]:
    """What some words mean together, else one by one; and the error of the first that means nothing."""
    if len(asked) > 1 and (together := _explained_or_error(" ".join(asked)))[0]:
        return together
    each = [_explained_or_error(word) for word in asked]
    return [it for found, _ in each for it in found], next((error for _, error in each if error is not None), None)


def _explained_or_error(word: str) -> tuple[list[tuple[str | None, Meaning]], ArgumentError | None]:
    try:
        return [(word, it) for it in explained(word)], None
    except ArgumentError as error:
        return [], error


def _write_words(found: Sequence[Meaning], out: TextIO) -> None:
    for kind, same in groupby(found, key=lambda it: it.kind):
        words = ", ".join(
            dict.fromkeys(it.words[0] if it.kind == "table" else name for it in same for name in it.words)
        )
        out.write(f"{folded_text(f'{kind}: {words}', out)}\n")
