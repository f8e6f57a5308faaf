"""A conversation as a sequence diagram: as SVG without scripts, and as Mermaid's text.

From top to bottom in the order of events, not to scale: clients at the left, brokers at the right, a bar where a
request waits for its answer, and a ribbon with the states of the group. What is inferred is dashed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import Final

from jobs.console.conversation import Change, Conversation, Event, Message, changed, clock, folded, words_of
from jobs.console.names import cut, cut_inside
from jobs.console.new_files import new_file, require_new
from jobs.console.output import printable, say
from jobs.errors import ArgumentError

ROW: Final = 26
"""Height of an event, in pixels."""
TOP: Final = 84
"""Above the first event: the title and the names."""
CLOCK_WIDTH: Final = 104
LANE_WIDTH: Final = 400
"""Between two participants."""
RIBBON_WIDTH: Final = 170
LABEL_CHARACTERS_MAX: Final = 58
"""Of the text over an arrow that spans one lane, which has room for so many; the whole is its title."""
NAME_CHARACTERS_MAX: Final = 40
GROUP: Final = "group"
"""`Change.what` of the states in the ribbon."""
HUES: Final = {"Empty": 5, "Dead": 5, "PreparingRebalance": 2, "Assigning": 2, "NotReady": 2, "Stable": 1, "NONE": 4}
"""Colours of states by Kafka's names; of others 0. Each part of the ribbon has its name in it, too."""
STYLE: Final = """\
svg{font:12px system-ui,sans-serif;background:#fff;color:#1f2328}
text{fill:#1f2328;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}.p{stroke:none}
.t{fill:#59636e;font-variant-numeric:tabular-nums}.b{font-weight:600;font-size:14px}.n{font-weight:600}
.l{stroke:#d1d9e0;stroke-width:1}.a{stroke:#0969da;stroke-width:1.4;fill:none}.h{fill:#0969da}
.r{stroke:#59636e}.rh{fill:#59636e}.e{stroke:#cf222e}.eh,.et{fill:#cf222e}.d{stroke-dasharray:5 4}
.w{fill:#0969da;fill-opacity:.15}.i{stroke:#59636e;stroke-dasharray:5 4}.c{fill:#59636e;font-style:italic}
.s0{fill:#ddf4ff}.s1{fill:#dafbe1}.s2{fill:#fff8c5}.s3{fill:#ffebe9}.s4{fill:#fbefff}.s5{fill:#eff2f5}
@media(prefers-color-scheme:dark){svg{background:#0d1117;color:#f0f6fc}text{fill:#f0f6fc;stroke:#0d1117}.p{stroke:none}.t,.c{fill:#9198a1}
.l{stroke:#3d444d}.a{stroke:#4493f8}.h,.w{fill:#4493f8}.r{stroke:#9198a1}.rh{fill:#9198a1}.e{stroke:#f85149}
.eh,.et{fill:#f85149}.s0{fill:#0c2d4a}.s1{fill:#0f3d1e}.s2{fill:#4a3a08}.s3{fill:#4d1518}.s4{fill:#3a1a52}
.s5{fill:#212830}}"""


SVG_ENDING: Final = ".svg"
MERMAID_ENDING: Final = ".mmd"


def require_diagram(path: str | None) -> None:
    """Raise ArgumentError for the name of a file that does not say how it is drawn, or of one that is there."""
    if path is not None and PurePath(path).suffix.lower() not in (SVG_ENDING, MERMAID_ENDING):
        raise ArgumentError(f"--diagram {path!r}: name a file that ends in {SVG_ENDING} or {MERMAID_ENDING}")
    require_new(path)


def write_diagram(conversation: Conversation, path: str) -> None:
    """Write the diagram, and say so: the file's name says how it is drawn. Raises ArgumentError if it cannot be
    written."""
    text = mermaid(conversation) if PurePath(path).suffix.lower() == MERMAID_ENDING else svg(conversation)
    with new_file(path) as out:
        out.write(text)
    say(f"diagram: {path}")


def svg(conversation: Conversation) -> str:
    """The diagram as one SVG document."""
    return "\n".join(_Drawing(conversation).lines()) + "\n"


@dataclass(frozen=True, slots=True)
class _Wait:
    """A bar: a request that waits, from one row to another."""

    client: str
    first_row: int
    last_row: int


class _Drawing:
    def __init__(self, conversation: Conversation) -> None:
        self._title = conversation.title
        self._events = list(folded(conversation.events))
        names = [*conversation.clients, *conversation.brokers]
        self._x = {name: CLOCK_WIDTH + 60 + LANE_WIDTH * place for place, name in enumerate(names)}
        self._ribbon_x = CLOCK_WIDTH + 60 + LANE_WIDTH * len(names)
        has_ribbon = any(isinstance(event, Change) and event.what == GROUP for event in self._events)
        self._width = self._ribbon_x + RIBBON_WIDTH + 16 if has_ribbon else self._ribbon_x - LANE_WIDTH // 2
        self._height = TOP + ROW * (len(self._events) + 1)

    def lines(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{self._width}" height="{self._height}" '
            f'viewBox="0 0 {self._width} {self._height}">'
        )
        yield f"<title>{_xml(self._title)}</title><style>{STYLE}</style>"
        yield f'<text class="b" x="12" y="24">{_xml(self._title)}</text>'
        for name, x in self._x.items():
            shown = cut_inside(name, NAME_CHARACTERS_MAX)
            yield (
                f'<text class="n" x="{x}" y="{TOP - 30}" text-anchor="middle">{_xml(shown)}{_tip(name, shown)}</text>'
            )
            yield f'<line class="l" x1="{x}" y1="{TOP - 20}" x2="{x}" y2="{self._height - 8}"/>'
        yield from self._ribbon()
        for wait in _waits(self._events):
            x, height = self._x[wait.client], ROW * (wait.last_row - wait.first_row)
            yield f'<rect class="w" x="{x - 5}" y="{self._y(wait.first_row)}" width="10" height="{height}"/>'
        before = ""
        for row, event in enumerate(self._events):
            now = clock(event.at_ms)
            if now != before:
                yield f'<text class="t" x="12" y="{self._y(row) + 4}">{now}</text>'
                before = now
            yield from self._arrow(row, event) if isinstance(event, Message) else self._change(row, event)
        yield "</svg>"

    def _y(self, row: int) -> int:
        return TOP + ROW * row

    def _ribbon(self) -> Iterator[str]:
        """The states of the group, from each change to the next."""
        changes = [
            (row, event) for row, event in enumerate(self._events) if isinstance(event, Change) and event.what == GROUP
        ]
        if changes:
            yield f'<text class="n" x="{self._ribbon_x}" y="{TOP - 30}">state of the group</text>'
        for place, (row, change) in enumerate(changes):
            dash = " i" if change.confidence else ""
            end = changes[place + 1][0] if place + 1 < len(changes) else len(self._events)
            yield (
                f'<rect class="s{HUES.get(change.after, 0)}{dash}" x="{self._ribbon_x}" y="{self._y(row) - 9}" '
                f'width="{RIBBON_WIDTH}" height="{ROW * (end - row) - 2}"/>'
            )
            yield f'<text class="p" x="{self._ribbon_x + 8}" y="{self._y(row) + 5}">{_xml(change.after)}</text>'

    def _arrow(self, row: int, message: Message) -> Iterator[str]:
        y = self._y(row)
        x1, x2 = self._x[message.sender], self._x[message.receiver]
        kind = "e" if message.is_error and message.is_answer else "r" if message.is_answer else ""
        dash = " d" if message.confidence else ""
        if x1 == x2:  # a broker asks itself
            yield f'<path class="a {kind}{dash}" d="M{x1} {y - 4}h26v8h-26"/>'
        else:
            yield f'<line class="a {kind}{dash}" x1="{x1}" y1="{y}" x2="{x2}" y2="{y}"/>'
        tip = -6 if x2 > x1 else 6
        yield f'<path class="h {kind and kind + "h"}" d="M{x2} {y if x1 != x2 else y + 4}l{tip} -4v8z"/>'
        text = words_of(message)
        lanes = max(abs(x2 - x1) // LANE_WIDTH, 1)
        style = ' class="et"' if kind == "e" else ""
        shown = cut(text, LABEL_CHARACTERS_MAX * lanes)
        left, base = (x1 + 34, y + 4) if x1 == x2 else (min(x1, x2) + 10, y - 6)
        yield f'<text{style} x="{left}" y="{base}">{_xml(shown)}{_tip(text, shown)}</text>'

    def _change(self, row: int, change: Change) -> Iterator[str]:
        """The cause of a state in the ribbon, at its left as all that is no participant's; else the change itself."""
        name = change.what.partition(" on ")[0].rpartition(" ")[2]
        text = change.why if change.what == GROUP else changed(change)
        if name not in {GROUP, *self._x}:
            text = f"{name}: {text}"
        shown, y = cut(text, LABEL_CHARACTERS_MAX - 6), self._y(row) + 4  # italics are wider
        x = self._x.get(change.whose)
        place = f'x="{self._ribbon_x - 8}" y="{y}" text-anchor="end"' if x is None else f'x="{x + 10}" y="{y}"'
        if text:
            yield f'<text class="c" {place}>{_xml(shown)}{_tip(text, shown)}</text>'


def _waits(events: Sequence[Event]) -> Iterator[_Wait]:
    """Requests that were answered later, with their rows."""
    asked: dict[tuple[str, str, str], int] = {}
    for row, event in enumerate(events):
        if not isinstance(event, Message):
            continue
        if not event.is_answer:
            asked[event.sender, event.receiver, event.api] = row
        elif event.waited_ms:
            first = asked.get((event.receiver, event.sender, event.api))
            if first is not None:
                yield _Wait(event.receiver, first, row)


def _tip(text: str, shown: str) -> str:
    """The whole of a text that was cut, which the pointer over it shows."""
    return "" if shown == text else f"<title>{_xml(text)}</title>"


def _xml(text: str) -> str:
    return escape(printable(text))


def mermaid(conversation: Conversation) -> str:
    """The diagram as a `sequenceDiagram` of Mermaid, which GitHub and others draw."""
    names = {name: f"p{place}" for place, name in enumerate((*conversation.clients, *conversation.brokers))}
    parts = ["sequenceDiagram", f"  %% {_mermaid(conversation.title)}"]
    parts += [f"  participant {alias} as {_mermaid(name)}" for name, alias in names.items()]
    for event in folded(conversation.events):
        if isinstance(event, Message):
            arrow = "-->>" if event.confidence else "->>"
            said = f"{names[event.sender]}{arrow}{names[event.receiver]}"
            if event.count > 1:
                parts += [f"  loop {_mermaid(words_of(event))}", f"    {said}: {_mermaid(event.api)}", "  end"]
            else:
                parts.append(f"  {said}: {clock(event.at_ms)} {_mermaid(words_of(event))}")
        else:
            where = names.get(event.whose) or ",".join(list(names.values())[-1:])
            text = f"{event.what}: {changed(event)}"
            parts.append(f"  Note over {where}: {clock(event.at_ms)} {_mermaid(text)}")
    return "\n".join(parts) + "\n"


def _mermaid(text: str) -> str:
    """Text without what Mermaid reads as its own: `#` begins an entity, `;` ends a statement."""
    return "".join({"#": "#35;", ";": "#59;", "%": "#37;"}.get(character, character) for character in printable(text))
