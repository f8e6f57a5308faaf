"""Generate the pages on tables from the table declarations, docs/internals/scenarios.md from the keys of scenario
files, pictures of state machines from their transition tables, and of conversations from scenarios.

python -m tools.reference           writes all of them
python -m tools.reference --check   exit code 1 if one of them is out of date
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from jobs.console.sequence_diagram import svg
from jobs.laboratory.simulate import explain
from jobs.queries.views.all_views import DEFINITIONS
from jobs.queries.views.moments import IS_REPEATED
from schemas.tables import TABLES
from schemas.tables.declare import ArrayOf, Column, MapOf, Scalar, StructOf, Table, Type
from tools.dbt_semantic import models, semantic_models
from tools.dbt_sources import sources
from tools.mechanisms_page import mechanisms_page
from tools.scenarios_page import scenarios_page
from tools.state_pictures import PICTURES as STATE_PICTURES
from tools.state_pictures import picture

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
LAYERS: Final = {
    "bronze": "The log itself, byte for byte as Kafka wrote it, and what is known of its completeness.",
    "silver": "What the coordinators knew, and when: certain where the log is complete.",
    "gold": "The answers. Inferred rows say by which rule (`method`), and how sure the rule is (`confidence`).",
}
CLUSTER_ID: Final = "cluster_id"
"""In every table with the same meaning."""
GENERATED: Final = "<!-- Made by `make reference`: change the declarations, not this page. -->"


def sql_type(type_: Type) -> str:
    """A type as Spark SQL writes it."""
    match type_:
        case Scalar():
            return type_.value
        case ArrayOf(element):
            return f"ARRAY<{sql_type(element)}>"
        case MapOf(key, value):
            return f"MAP<{sql_type(key)}, {sql_type(value)}>"
        case StructOf(fields):
            return f"STRUCT<{', '.join(f'{name}: {sql_type(inner)}' for name, inner in fields)}>"


def cell(text: str) -> str:
    """Text within a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("__", "\\_\\_")


def tables_page() -> str:
    """All tables by layer, with every column."""
    parts = [
        GENERATED,
        "# Tables",
        "Every table is a Delta table in the folder `warehouse/<layer>/<table>`, and has these comments itself: "
        "`describe silver.offset_commits`. The **key** columns are unique together; each table has one more, "
        "`cluster_id` (STRING): the Kafka cluster, as named by --cluster-id. **Personal** columns "
        "may name a person or a machine; Delta's log has no statistics of them.",
        "Times are UTC. Intervals are half open; an open interval has null in `valid_to` and `to_log_offset`; "
        "one that a record without a timestamp ended has null in `valid_to` alone. "
        "These tables, their columns, and the views and functions are "
        "the public interface: columns may be added, never renamed or dropped. "
        "[The project's own tables](internals/state-tables.md) are not.",
        *views(),
    ]
    for layer, about in LAYERS.items():
        parts += [f"## {layer}", about]
        parts += tables_of(layer)
    return "\n\n".join(parts) + "\n"


def state_page() -> str:
    """The tables that are not for users."""
    parts = [
        GENERATED,
        "# State tables",
        "The project's own tables: finished runs, and what the next run continues from. Their layout may change. Each "
        "has the key column `cluster_id`, too.",
        *tables_of("state"),
    ]
    return "\n\n".join(parts) + "\n"


def exchange_tables() -> Iterator[str]:
    """The tables of a simulated exchange."""
    yield "## Tables of the exchange"
    yield (
        "With `--exchange` or `--explain`, `--output DIR` has them in `DIR/warehouse`: "
        '`sql --warehouse DIR/warehouse "select * from simulation.requests"`. Each has the key column `cluster_id`, '
        "too: the name of the scenario."
    )
    yield from tables_of("simulation")


def tables_of(layer: str) -> Iterator[str]:
    for table in TABLES.values():
        if table.layer == layer:
            yield from table_parts(table)


def views() -> Iterator[str]:
    """The views and functions, by name."""
    yield "## Views and functions"
    yield (
        "They are available in `sql`, and in a metastore for all its users. Query a function like a table: "
        "`select * from owner_at('orders', 17, timestamp '2026-11-20T03:12:00Z')`."
    )
    known: dict[frozenset[str], str] = {}
    for definition in DEFINITIONS:
        yield f"### {definition.name}{definition.signature.replace('`', '')}"
        of = ", ".join(f"`{table.full_name}`" for table in dict.fromkeys(definition.tables))
        yield f"{definition.about} A {definition.kind.value.lower()} of {of}."
        names = frozenset(column.name for column in definition.columns)
        if (view := known.get(names - {IS_REPEATED.name})) is not None:
            yield f"As `{view}`, and `{IS_REPEATED.name}`: {IS_REPEATED.comment}"
            continue
        known[names] = definition.name
        described = {column.comment: column.name for table in definition.tables for column in table.columns}
        same = [column.name for column in definition.columns if described.get(column.comment) == column.name]
        if shown := [name for name in same if name != "cluster_id"]:
            yield f"As there: {', '.join(f'`{name}`' for name in shown)}."
        own = [replace(column, is_key=False) for column in definition.columns if column.name not in same]
        if own:
            yield column_lines(own)


def table_parts(table: Table) -> Iterator[str]:
    """One table."""
    yield f"### {table.full_name}"
    yield table.comment
    yield column_lines(table.columns)


def column_lines(columns: Iterable[Column]) -> str:
    """Columns with their types and meanings, a line each."""
    return "\n".join(
        f"- `{column.name}` {cell(sql_type(column.type))}{marks(column)}: {cell(column.comment)}"
        for column in columns
        if column.name != CLUSTER_ID
    )


def marks(column: Column) -> str:
    """Special properties of a column."""
    return "".join(
        f", **{word}**" for word, holds in (("key", column.is_key), ("personal", column.is_personal)) if holds
    )


STORIES: Final = {
    "story-join.svg": ("story-join", "billing", None, "7s"),
    "story-static.svg": ("story-join", "ledger", "24s", "26s"),
    "story-heartbeats.svg": ("story-heartbeats", "billing", "29s", "45s"),
    "story-coordinator.svg": ("story-coordinator", "billing", "29s", "38s"),
    "story-share.svg": ("story-share", "workers", None, "18s"),
}
"""Picture -> the scenario, the group and the span that it shows."""


def story_picture(scenario: str, group_id: str, from_time: str | None, to_time: str) -> str:
    """What a group's clients and the brokers say, in one of the project's scenarios."""
    return svg(explain(f"scenarios/{scenario}.toml", group_id, span=(from_time, to_time, None)))


PAGES: Final[dict[str, Callable[[], str]]] = {
    "tables.md": tables_page,
    "internals/state-tables.md": state_page,
    "internals/scenarios.md": lambda: (
        "\n\n".join((scenarios_page(GENERATED, cell).rstrip("\n"), *exchange_tables())) + "\n"
    ),
    "internals/mechanisms.md": lambda: mechanisms_page(GENERATED),
}
PICTURES: Final[dict[str, Callable[[], str]]] = {
    **{f"images/{name}": partial(picture, title, table) for name, (title, table) in STATE_PICTURES.items()},
    **{f"images/{name}": partial(story_picture, *of) for name, of in STORIES.items()},
}
OUTSIDE: Final[dict[str, Callable[[], str]]] = {
    "../examples/dbt/sources.yml": sources,
    "../examples/dbt/semantic_models.yml": semantic_models,
    **{f"../examples/dbt/{name}": partial(str, text) for name, text in models().items()},
}
"""Generated files outside of docs."""
ALL: Final = PAGES | PICTURES | OUTSIDE


def main() -> int:
    """Write the pages, or list those that are out of date."""
    old = [name for name, page in ALL.items() if not _is_up_to_date(DOCS / name, page())]
    if "--check" in sys.argv[1:]:
        for name in old:
            print(f"docs/{name} is not up to date: run `make reference`", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(ALL[name](), encoding="utf-8")
    return 0


def _is_up_to_date(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
