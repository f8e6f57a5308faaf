"""The HTML file: one page with styles, script, Plotly and data inside, and no access to anything else.

The content security policy (CSP) allows the scripts and styles in the file by hash, and nothing more: no network, no
`eval`, no style attributes. `data:` is allowed for images only, since Plotly draws heat maps as such. Data is deflated
JSON in base64, and reaches the page as text, never as markup. So does Plotly, which is then two thirds smaller and is
neither parsed nor executed before the first paint: the page's script makes a script element of it, whose hash is in the
policy.

The height of a picture is known before it is drawn (`Picture.height`), and so is that of a table that is open from the
start: filling them moves nothing below, and links scroll to the right place.
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
ROWS_MAX: Final = 25
"""A table shows so many rows at once."""

STYLES_BY_ID: Final = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
"""Plotly adds styles for parts that are not used here, unless an element with this id exists."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page."""

    label: str
    value: str
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    anchor: str
    group_id: str
    group_type: str
    tiles: tuple[Tile, ...]
    pictures: tuple[Picture, ...]
    diagram: str = ""
    """Its worst rebalance as SVG; empty: it has none."""


@dataclass(frozen=True, slots=True)
class Attention:
    group_id: str
    verdict: str
    why: str
    since: str


@dataclass(frozen=True, slots=True)
class Page:
    cluster_id: str
    interval: str
    made_at: str
    statements: tuple[tuple[str, str, tuple[str, ...]], ...]
    """For each log: `whole`, `open` or `none` (no statement), the summary, and the exceptions."""
    attention: tuple[Attention, ...]
    """Groups that need attention, the worst first, as many as fit on the first screen."""
    attention_count: int
    attention_until: str
    """The end of the day considered; empty: the report is about a past time, and says nothing about today."""
    changes: tuple[tuple[str, str, tuple[str, ...], int], ...]
    """Changes: a word, its meaning, some groups, and the number of groups."""
    compared_with: str
    """When the report compared with was made; empty: there is none."""
    group_count: int
    tiles: tuple[Tile, ...]
    pictures: tuple[Picture, ...]
    sections: tuple[Section, ...]
    options: str
    """Options of every command on the page."""


def render(page: Page, facts: Mapping[str, Any], snapshot: Markup) -> str:
    """The file's text.

    `facts`: what the script needs besides the pictures, as JSON; `snapshot`: for the comparison in the next report.
    """
    everything = [*page.pictures, *(picture for section in page.sections for picture in section.pictures)]
    script, (library, packed_library, ids) = asset("report.js"), _plotly()
    # style attributes are forbidden
    heights = sorted({picture.height for picture in everything})
    rows = "".join(f".rows{count} > .scroll {{ height: {2 * count + 3.2:.1f}rem; }}\n" for count in range(ROWS_MAX + 1))
    style = asset("report.css") + f"@media screen {{\n{rows}}}\n"
    style += "".join(f".h{height} {{ height: {height}px; }}\n" for height in heights)
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


def packed(value: Any) -> Markup:
    """Deflated JSON in base64, as a JSON string, so that no character has a meaning in HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = deflate.compress(text.encode("utf-8", "surrogatepass")) + deflate.flush()
    return Markup('"%s"') % Markup(base64.b64encode(deflated).decode("ascii"))


def unpacked(text: str) -> Any:
    """The value that was given to `packed`."""
    return json.loads(zlib.decompress(base64.b64decode(json.loads(text)), -zlib.MAX_WBITS))


def short(text: str) -> str:
    """A name, shortened to a readable length."""
    return text if len(text) <= NAME_CHARACTERS_MAX else text[: NAME_CHARACTERS_MAX - 1] + "…"


def permalink(group_id: str) -> str:
    """The anchor of a group, the same in later reports."""
    return "#group=" + quote(group_id.encode("utf-8", "replace"), safe="")


def as_image(svg: str) -> str:
    """An SVG document as the address of an image: its styles are its own, and it runs no scripts."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')}"


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader(ASSETS, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["short"] = short
    found.filters["permalink"] = permalink
    found.filters["as_image"] = as_image
    return found


def asset(name: str) -> str:
    return (files(ASSETS) / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, Markup, Sequence[str]]:
    """Plotly's script, original and packed, and the ids by which it recognizes its styles."""
    library: str = get_plotlyjs()
    return library, packed(library), sorted(set(STYLES_BY_ID.findall(library)))


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    hashes = [" ".join(map(text_hash, texts)) for texts in (scripts, styles)]
    return (
        f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def text_hash(text: str) -> str:
    """The hash of a script or style for the content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
