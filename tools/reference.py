"""Generate docs/tables.md from the table declarations, docs/options.md from the command line, docs/scenarios.md from
the keys of scenario files, and pictures of state machines from their transition tables.

python -m tools.reference           writes all of them
python -m tools.reference --check   exit code 1 if one of them is out of date
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from jobs.cli import app as cli
from jobs.cli.help_texts import EXAMPLES
from jobs.console.command_name import command as line
from jobs.queries.sql.views import DEFINITIONS, Kind
from jobs.settings import KEYS, MAPPING_FIELDS, environment_name
from schemas.tables import TABLES
from schemas.tables.declare import ArrayOf, Column, MapOf, Scalar, StructOf, Table, Type
from tools.dbt_semantic import models, semantic_models
from tools.dbt_sources import sources
from tools.scenarios_page import scenarios_page
from tools.state_pictures import PICTURES as STATE_PICTURES
from tools.state_pictures import picture

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
LAYERS: Final = {
    "bronze": "The log itself, byte for byte as Kafka wrote it, and what is known of its completeness.",
    "silver": "What the coordinators knew, and when: certain where the log is complete.",
    "gold": "The answers. Inferred rows say by which rule (`method`), and how sure the rule is (`confidence`).",
    "state": "The project's own tables: finished runs, and what the next run continues from. Their layout may change.",
}
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
        "`describe table silver.offset_commits`. The **key** columns are unique together. **Personal** columns "
        "may name a person or a machine; Delta's log has no statistics of them.",
        "Times are UTC. Intervals are half open; an open interval has null in `valid_to` and `to_log_offset`; "
        "one that a record without a timestamp ended has null in `valid_to` alone. "
        "The tables of the layers `bronze`, `silver` and `gold`, their columns, and the views and functions are "
        "the public interface: columns may be added, never renamed or dropped.",
        *views(),
    ]
    for layer, about in LAYERS.items():
        parts += [f"## {layer}", about]
        for table in TABLES.values():
            if table.layer == layer:
                parts += table_parts(table)
    return "\n\n".join(parts) + "\n"


def views() -> Iterator[str]:
    """The views and functions, by name."""
    yield "## Views and functions"
    yield (
        "They are available in `sql`, and in a metastore for all its users. Query a function like a table: "
        "`select * from owner_at('orders', 17, timestamp '2026-11-20T03:12:00Z')`."
    )
    rows = []
    for definition in DEFINITIONS:
        name = definition.name + ("" if definition.kind is Kind.VIEW else definition.signature.replace("`", ""))
        of = ", ".join(f"`{table.full_name}`" for table in definition.tables)
        rows.append(f"| `{name}` | {definition.kind.value.lower()} | {cell(definition.about)} | {of} |")
    yield "\n".join(["| name | kind | gives | reads |", "| --- | --- | --- | --- |", *rows])


def table_parts(table: Table) -> Iterator[str]:
    """One table."""
    yield f"### {table.full_name}"
    yield table.comment
    if table.partition_by:
        yield "Partitioned by " + ", ".join(f"`{name}`" for name in table.partition_by) + "."
    rows = [
        f"| `{column.name}` | {cell(sql_type(column.type))} | {marks(column)} | {cell(column.comment)} |"
        for column in table.columns
    ]
    yield "\n".join(["| column | type | | |", "| --- | --- | --- | --- |", *rows])


def marks(column: Column) -> str:
    """Special properties of a column."""
    return " ".join(word for word, holds in (("key", column.is_key), ("personal", column.is_personal)) if holds)


def options_page() -> str:
    """Every job with its examples and options, and the related settings."""
    group: Any = typer.main.get_command(cli.app)
    parts = [
        GENERATED,
        "# Jobs and options",
        "The output of `./spark-submit.sh JOB --help` in one place. [Jobs](jobs.md) shows what the jobs print. "
        "Options before the job's name are Spark's own.",
    ]
    for name in group.list_commands(None):
        command = group.commands[name]
        parts += [f"## {name}", " ".join(command.help.split())]
        parts.append("<!-- not run: examples; the tests parse them -->\n```sh\n" + "\n".join(examples(name)) + "\n```")
        context = typer.Context(command, info_name=name)
        rows = [row for parameter in command.params if (row := option_row(parameter, context)) is not None]
        parts.append("\n".join(["| option | | default |", "| --- | --- | --- |", *rows]))
    parts += ["## Settings", *settings()]
    return "\n\n".join(parts) + "\n"


def examples(job: str) -> Iterator[str]:
    """The command lines of the examples."""
    for what, words in EXAMPLES[job]:
        yield f"# {what}"
        yield line(words)


def option_row(parameter: Any, context: typer.Context) -> str | None:
    """One option or argument, from its help text."""
    record = parameter.get_help_record(context)
    if record is None:
        return None
    names, _, values = record[0].replace("<", " ").replace(">", "").partition("  ")
    name, _, metavar = names.partition(" ") if not names.startswith("-h,") else (names, "", "")
    choices = " ".join(f"`{value}`" for value in values.split("|") if value)
    about, _, default = record[1].partition("[default: ")
    shown = "required" if "[required]" in about else default.rstrip("]")
    about = about.replace("[required]", "")
    shape = " ".join(part for part in (f"`{name.strip()}`", cell(metavar), choices) if part)
    return f"| {shape} | {cell(about.strip())} | {cell(shown)} |"


def settings() -> Iterable[str]:
    """The keys of the settings file and their environment variables."""
    yield (
        "All settings are in `conf/groupledger.toml`, where a comment explains each. `GROUPLEDGER_CONFIG` names "
        "your own file, with only the settings that differ. The environment overrides files; options override "
        "both."
    )
    rows = [f"| `{key}` | `{environment_name(key)}` |" for key in KEYS if KEYS[key] not in MAPPING_FIELDS]
    yield "\n".join(["| setting | in the environment |", "| --- | --- |", *rows])


PAGES: Final[dict[str, Callable[[], str]]] = {
    "tables.md": tables_page,
    "options.md": options_page,
    "scenarios.md": lambda: scenarios_page(GENERATED, cell),
}
PICTURES: Final[dict[str, Callable[[], str]]] = {
    f"images/{name}": partial(picture, title, table) for name, (title, table) in STATE_PICTURES.items()
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
