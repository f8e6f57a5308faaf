"""A conversation between clients and brokers, as events: shown line by line, or drawn by `sequence_diagram`.

`jobs.laboratory.exchange_story` makes one from a simulation, in which everything was said; `jobs.queries` makes one
from a recorded log, in which records prove some of it and the rest is inferred.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from coordinator_core.text import duration_text
from jobs.console.output import Value, folded_text, printable, time_text, write_answers

TIMES: Final = "\N{MULTIPLICATION SIGN}"
COLUMNS: Final = ("at", "sender", "receiver", "what", "text", "count", "why", "waited_ms", "confidence")
INDENT: Final = " " * 14
"""Of what goes on in the next line: as wide as the time."""
QUIET_MAX: Final = 2
"""As many quiet messages of one kind in a row are shown one by one; more become one line."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request, or its answer."""

    at_ms: int
    sender: str
    receiver: str
    api: str
    text: str = ""
    is_answer: bool = False
    is_error: bool = False
    waited_ms: int = 0
    """Of an answer: how long the request waited for it on the broker."""
    confidence: str | None = None
    """None: it was said, a simulation or a record shows it. Else how sure it is that it was."""
    is_quiet: bool = False
    """It was answered and changed nothing, or is shown for the second time: several in a row are one line."""
    outcome: str = ""
    """Of a quiet request: the error of its answer."""
    count: int = 1
    """So many like it, the last one at `until_ms`."""
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A state of somebody, from one to another. `whose` is a participant, or empty for the group itself."""

    at_ms: int
    whose: str
    what: str
    """`group g`, `member m` or `client c`."""
    before: str
    after: str
    why: str = ""
    confidence: str | None = None


Event = Message | Change


@dataclass(frozen=True, slots=True)
class Conversation:
    """Events in order of time. The clients are drawn at the left, the brokers at the right."""

    title: str
    clients: Sequence[str]
    brokers: Sequence[str]
    events: Sequence[Event]


def folded(events: Iterable[Event]) -> Iterator[Event]:
    """The events, with quiet messages put together that come between two others: `Heartbeat x 37`."""
    quiet: list[Message] = []
    for event in events:
        if isinstance(event, Message) and event.is_quiet:
            quiet.append(event)
            continue
        yield from _together(quiet)
        quiet = []
        yield event
    yield from _together(quiet)


def _together(quiet: Sequence[Message]) -> Iterator[Message]:
    kinds: dict[tuple[str, ...], list[Message]] = {}
    for message in quiet:
        kinds.setdefault((message.sender, message.receiver, message.api, message.outcome), []).append(message)
    shown: list[Message] = []
    for own in kinds.values():
        count, last = sum(message.count for message in own), own[-1]
        if count <= QUIET_MAX:
            shown += own
        else:
            until_ms = last.at_ms if last.until_ms is None else last.until_ms
            shown.append(replace(own[0], count=count, until_ms=until_ms))
    yield from sorted(shown, key=lambda message: message.at_ms)


def lines(conversation: Conversation) -> Iterator[str]:
    """The conversation for people: a line each with time, who to whom, and what."""
    shown = list(folded(conversation.events))
    width = max((len(_pair(event)) for event in shown if isinstance(event, Message)), default=0)
    yield conversation.title
    for event in shown:
        yield f"{clock(event.at_ms)}  {_line(event, width)}".rstrip()


def write_conversation(conversation: Conversation, output_format: str) -> None:
    """Tell it on stdout: as lines for people, or an event a row, none of them put together."""
    if output_format == "table":
        sys.stdout.writelines(f"{folded_text(printable(line), sys.stdout, INDENT)}\n" for line in lines(conversation))
        return
    write_answers(COLUMNS, [_row(event) for event in conversation.events], output_format, sys.stdout)


def _row(event: Event) -> tuple[Value, ...]:
    at = time_text(event.at_ms)
    if isinstance(event, Change):
        moved = f"{event.before} -> {event.after}"
        return at, event.whose, None, event.what, moved, None, event.why, None, event.confidence
    what = f"{'answer' if event.is_answer else 'request'} {event.api}"
    waited_ms = event.waited_ms if event.is_answer else None
    text = ": ".join(filter(None, (event.text, event.outcome)))
    return at, event.sender, event.receiver, what, text, event.count, None, waited_ms, event.confidence


def _line(event: Event, width: int) -> str:
    if isinstance(event, Message):
        return f"{_pair(event):<{width}}  {words_of(event)}"
    return f"{'':<{width}}  {event.what}: {changed(event)}"


def changed(change: Change) -> str:
    """A change of a state: from, to and why."""
    why = f" ({change.why})" if change.why else ""
    doubt = f" [{change.confidence}]" if change.confidence else ""
    return f"{change.before} → {change.after}{why}{doubt}"


def words_of(message: Message) -> str:
    """What a message says, without its sender and receiver."""
    outcome = f": {message.outcome}" if message.outcome else ""
    if message.count > 1 and message.until_ms is not None:
        return f"{message.api} {TIMES} {message.count:,} to {clock(message.until_ms)}{outcome}"
    head = message.text if message.is_answer else " ".join((message.api, message.text)).rstrip() + outcome
    waited = f" (after {duration_text(message.waited_ms)})" if message.waited_ms else ""
    doubt = f" [{message.confidence}]" if message.confidence else ""
    return f"{head}{waited}{doubt}"


def _pair(message: Message) -> str:
    return f"{message.sender} → {message.receiver}"


def clock(at_ms: int) -> str:
    """The time of day in UTC, with milliseconds."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%H:%M:%S}.{at_ms % 1000:03d}"
