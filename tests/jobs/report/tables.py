"""Tables of a report, read back from its file."""

import html
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from jobs.report.page import unpacked

FIGURE: Final = re.compile(r'<figure class="picture" id="([\w-]+)".*?</figure>', re.DOTALL)
STATEMENT: Final = re.compile(r"<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)


class Shown(NamedTuple):
    """A table of a report."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    row_count: int
    sql: str


def tables_of(text: str) -> Iterator[Shown]:
    """The tables of a report, as the file has them, each with the SQL below it."""
    for figure in FIGURE.finditer(text):
        listings = data_of(text, f"{figure[1]}-data")["listings"]
        for listing, sql in zip(listings, STATEMENT.findall(figure[0]), strict=True):
            cells = [values_of(column) for column in listing["columns"]]
            names = [column["name"] for column in listing["columns"]]
            yield Shown(names, list(zip(*cells, strict=True)), listing["rowCount"], html.unescape(sql))


def data_of(text: str, name: str) -> dict[str, Any]:
    """What a report has for its script under a name."""
    packed = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text)
    assert packed is not None
    data: dict[str, Any] = unpacked(packed[1])
    return data


def values_of(column: dict[str, Any]) -> list[Any]:
    """A column, as the page reads it."""
    if "values" in column:
        values: list[Any] = column["values"]
        return values
    return [None if code < 0 else column["texts"][code] for code in column["codes"]]
