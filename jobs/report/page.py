"""The file: one HTML page with its styles, its script, Plotly and the data inside, closed to everything else.

The page's policy (CSP) lets run what is in the file by its hash, and nothing more: no network, no `eval`, no style
attribute. `data:` is open to images alone, since Plotly draws heat maps as such. Data is deflated JSON in base64, and
reaches the page as text, never as markup. So is Plotly, which is two thirds smaller that way, and is neither parsed nor
run before the first paint: the page's script makes a script element of it, whose hash is in the policy.

What a picture takes on the page is known before it is drawn (`Picture.height`), and so is the height of a table that
is open from the start: nothing below moves when they are filled, and a link lands where it points.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from jobs.report.pictures import Picture

ASSETS: Final = str(__package__)
NAME_CHARACTERS_MAX: Final = 120

STYLES_BY_ID: Final = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
"""Plotly adds styles of parts that are not used here, unless an element by this id is there already."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One number at the top."""

    label: str
    value: str
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One group."""

    anchor: str
    group_id: str
    group_type: str
    tiles: tuple[Tile, ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """A group that needs somebody."""

    group_id: str
    verdict: str
    why: str
    since: str


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows."""

    cluster_id: str
    interval: str
    made_at: str
    statements: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Of each log: `whole`, `open` or `none` (there is nothing to say of it), the sum of it, and where it is not."""
    attention: tuple[Attention, ...]
    """Groups that need somebody, the worst first; as many as the first screen has room for."""
    attention_count: int
    attention_until: str
    """The end of the day that is looked at; empty: the report is of a time in the past, and says nothing of today."""
    changes: tuple[tuple[str, str, tuple[str, ...], int], ...]
    """What is not as it was: a word, what it means, some groups, and how many there are."""
    compared_with: str
    """When the report was made that this one is compared with; empty: there is none."""
    group_count: int
    tiles: tuple[Tile, ...]
    pictures: tuple[Picture, ...]
    sections: tuple[Section, ...]
    options: str
    """What goes with every command that the page names."""


def render(page: Page, facts: Mapping[str, Any], snapshot: Markup) -> str:
    """The file's text. `facts`: what the script needs besides the pictures, as JSON; `snapshot`: what the next report
    compares itself with."""
    everything = [*page.pictures, *(picture for section in page.sections for picture in section.pictures)]
    script, (library, packed_library, ids) = _asset("report.js"), _plotly()
    style = _asset("report.css") + _heights(everything)
    anchors = {section.group_id: section.anchor for section in page.sections}
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            policy=_policy([library, script], [style]),
            style=Markup(style),
            library=packed_library,
            script=Markup(script),
            style_ids=ids,
            data=[(picture.name, packed(picture.json())) for picture in everything],
            facts=packed({**facts, "anchors": anchors}),
            snapshot=snapshot,
        )
    )


def _heights(pictures: Sequence[Picture]) -> str:
    """Rules for the heights of pictures: a style attribute is forbidden here."""
    heights = sorted({picture.height for picture in pictures})
    return "".join(f".h{height} {{ height: {height}px; }}\n" for height in heights)


def packed(value: Any) -> Markup:
    """JSON of it, deflated, in base64: as a JSON string, in which no character means anything to HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = deflate.compress(text.encode("utf-8", "surrogatepass")) + deflate.flush()
    return Markup('"%s"') % Markup(base64.b64encode(deflated).decode("ascii"))


def unpacked(text: str) -> Any:
    """What `packed` was given."""
    return json.loads(zlib.decompress(base64.b64decode(json.loads(text)), -zlib.MAX_WBITS))


def short(text: str) -> str:
    """A name cut to what can be read."""
    return text if len(text) <= NAME_CHARACTERS_MAX else text[: NAME_CHARACTERS_MAX - 1] + "…"


def permalink(group_id: str) -> str:
    """Where the page shows a group, in this report and the next ones."""
    return "#group=" + quote(group_id.encode("utf-8", "replace"), safe="")


@cache
def environment() -> Environment:
    """Of the templates of all pages."""
    found = Environment(
        loader=PackageLoader(ASSETS, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["short"] = short
    found.filters["permalink"] = permalink
    return found


def stylesheet() -> str:
    """The styles of all pages."""
    return _asset("report.css")


def _asset(name: str) -> str:
    return (files(ASSETS) / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, Markup, Sequence[str]]:
    """Plotly's script, as it is and packed, and the ids by which it knows its styles."""
    library: str = get_plotlyjs()
    return library, packed(library), sorted(set(STYLES_BY_ID.findall(library)))


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    hashes = [" ".join(map(text_hash, texts)) for texts in (scripts, styles)]
    return (
        f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def text_hash(text: str) -> str:
    """What a content security policy calls a script or a style in the page."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
