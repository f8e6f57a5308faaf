"""The file: one HTML page with its styles, its script, Plotly and the data inside, closed to everything else.

The page's policy (CSP) lets run what is in the file by its hash, and nothing more: no network, no `eval`, no style
attribute. `data:` is open to images alone, since Plotly draws heat maps as such. Data is deflated JSON in base64, and
reaches the page as text, never as markup.
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
class Page:
    """All that the page shows."""

    cluster_id: str
    stretch: str
    made_at: str
    statements: tuple[tuple[bool, str, tuple[str, ...]], ...]
    """Of each log: is it complete, the sum of it, and where it is not."""
    tiles: tuple[Tile, ...]
    pictures: tuple[Picture, ...]
    sections: tuple[Section, ...]
    left_out: tuple[tuple[str, str], ...]
    """Groups without a section of their own, and the command that makes their report."""
    left_out_count: int
    options: str
    """What goes with every command that the page names."""


def render(page: Page, facts: Mapping[str, Any]) -> str:
    """The file's text. `facts`: what the script needs beside the pictures, as JSON."""
    everything = [*page.pictures, *(picture for section in page.sections for picture in section.pictures)]
    script, style, library, ids = _asset("report.js"), _asset("report.css"), *_plotly()
    anchors = {section.group_id: section.anchor for section in page.sections}
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            policy=_policy([library, script], [style]),
            style=Markup(style),
            library=Markup(library),
            script=Markup(script),
            style_ids=ids,
            data=[(picture.name, packed(picture.json())) for picture in everything],
            facts=packed({**facts, "anchors": anchors}),
        )
    )


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


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(ASSETS, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = short
    return environment


def _asset(name: str) -> str:
    return (files(ASSETS) / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, Sequence[str]]:
    """Plotly's script, and the ids by which it knows its styles."""
    library: str = get_plotlyjs()
    return library, sorted(set(STYLES_BY_ID.findall(library)))


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    hashes = [" ".join(_hash(text) for text in texts) for texts in (scripts, styles)]
    return (
        f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
