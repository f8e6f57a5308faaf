"""The dbt sources of silver and gold, from the declarations: tables, columns, comments."""

import json
from collections.abc import Iterator
from typing import Final

from schemas.tables import TABLES

LAYERS: Final = ("silver", "gold")


def sources() -> str:
    """A dbt sources file. Strings are JSON, which is valid YAML."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Made from the declarations by `make reference`. Copy it into a dbt project whose catalogue has"
    yield "# the tables: sql --ddl prints what registers them. semantic_models.yml is of gold."
    yield "version: 2"
    yield "sources:"
    for layer in LAYERS:
        yield f"  - name: {layer}"
        yield f"    schema: {layer}"
        yield "    tables:"
        for table in TABLES.values():
            if table.layer != layer:
                continue
            yield f"      - name: {table.name}"
            yield f"        description: {json.dumps(table.comment)}"
            yield "        columns:"
            for column in table.columns:
                yield f"          - name: {column.name}"
                yield f"            description: {json.dumps(column.comment)}"
