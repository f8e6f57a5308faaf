"""All views and functions, by name."""

from collections.abc import Collection
from typing import Final

from jobs.queries.views.counted_events import COUNTED_EVENTS
from jobs.queries.views.declare import Definition
from jobs.queries.views.moments import MOMENTS
from schemas.tables.declare import Table
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.silver import COORDINATOR_PARTITIONS

DEFINITIONS: Final = (*MOMENTS, COUNTED_EVENTS)


def named_in(text: str, tables: Collection[Table]) -> tuple[list[Definition], list[Table]]:
    """The definitions, and of some tables those, that a statement in lower case may name, or read through them."""
    named = [definition for definition in DEFINITIONS if definition.name in text]
    sources = {table for definition in named for table in (*definition.tables, COORDINATOR_PARTITIONS, LOG_ANOMALIES)}
    return named, [table for table in tables if table.name in text or table in sources]
