"""The dbt semantic model of gold and of its view of what counts, from the declarations: entities, dimensions, measures,
and a metric for each measure.

The aggregate of a column follows from its name: counts and durations are summed, maxima are not.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from jobs.queries.views.counted_events import COUNTED_EVENTS
from schemas.tables import TABLES
from schemas.tables.declare import Column, Scalar, Table

NUMBERS: Final = frozenset({Scalar.TINYINT, Scalar.SMALLINT, Scalar.INT, Scalar.BIGINT})
TIMES: Final = frozenset({Scalar.TIMESTAMP, Scalar.DATE})
CATEGORIES: Final = frozenset({Scalar.STRING, Scalar.BOOLEAN})
GREATEST: Final = ("_max", "member_count", "delivery_count", "open_ms", "time_behind_ms", "lag")
"""Suffixes of columns for which the maximum is meaningful, and the sum is not."""
SUMMED: Final = ("_count", "_ms", "partitions_moved", "records_given_up", "records_redelivered", "extra_deliveries")
RESERVED: Final = {"day": "on_day", "at": "happened_at"}
"""Names that MetricFlow or an SQL dialect reserves."""
COUNTED: Final = Table("gold", COUNTED_EVENTS.name, COUNTED_EVENTS.about, COUNTED_EVENTS.columns)
SPINE: Final = "metricflow_time_spine"
HEAD: Final = "# Made from the declarations by `make reference`: see sources.yml next to it."


def models() -> dict[str, str]:
    """The models behind the semantic model, by file name: one for each table of gold, its view, and one for days."""
    found = {f"{table.name}.sql": f"select * from {{{{ source('gold', '{table.name}') }}}}\n" for table in _gold()}
    days = [f"select cast(day as date) as date_day from {{{{ ref('{name}') }}}}" for name in _daily()]
    view = re.sub(r"gold\.(\w+)", r"{{ source('gold', '\1') }}", COUNTED_EVENTS.query)
    return {**found, f"{COUNTED.name}.sql": f"{view}\n", f"{SPINE}.sql": "\nunion\n".join(days) + "\n"}


def semantic_models() -> str:
    """The file of the semantic model. Strings are JSON, which is valid YAML."""
    return "\n".join(_lines()) + "\n"


def _gold() -> list[Table]:
    return [table for table in TABLES.values() if table.layer == "gold"]


def _daily() -> list[str]:
    return [table.name for table in _gold() if "day" in table.key]


def _lines() -> Iterator[str]:
    yield HEAD
    yield "version: 2"
    yield "models:"
    yield f"  - name: {SPINE}"
    yield '    description: "Days in which something happened in a group."'
    yield "    time_spine:"
    yield "      standard_granularity_column: date_day"
    yield "    columns:"
    yield "      - name: date_day"
    yield "        granularity: day"
    yield "semantic_models:"
    for table in (*_gold(), COUNTED):
        yield from _semantic_model(table)
    yield "metrics:"
    for table in (*_gold(), COUNTED):
        for name, _, _, about in measures(table):
            yield f"  - name: {name}"
            yield f"    label: {json.dumps(name.replace('_', ' '))}"
            yield f"    description: {json.dumps(about)}"
            yield "    type: simple"
            yield "    type_params:"
            yield f"      measure: {name}"


def _semantic_model(table: Table) -> Iterator[str]:
    times = [column for column in table.columns if column.type in TIMES]
    yield f"  - name: {table.name}"
    yield f"    description: {json.dumps(table.comment)}"
    yield f"    model: ref('{table.name}')"
    yield "    defaults:"
    yield f"      agg_time_dimension: {_named(times[0])}"
    yield f"    primary_entity: {table.name}_row"
    yield "    entities:"
    yield from ("      - name: kafka_cluster", "        type: foreign", "        expr: cluster_id")
    if "group_id" in table.column_names:
        yield from ("      - name: kafka_group", "        type: foreign")
        yield "        expr: concat(cluster_id, '/', group_id)"
    yield "    dimensions:"
    for column in table.columns:
        if column.type in TIMES or column.type in CATEGORIES:
            yield f"      - name: {_named(column)}"
            yield f"        description: {json.dumps(column.comment)}"
            if _named(column) != column.name:
                yield f"        expr: {column.name}"
            yield f"        type: {'time' if column.type in TIMES else 'categorical'}"
            if column.type in TIMES:
                yield from ("        type_params:", "          time_granularity: day")
    yield "    measures:"
    for name, expression, aggregate, about in measures(table):
        yield f"      - name: {name}"
        yield f"        description: {json.dumps(about)}"
        yield f"        expr: {json.dumps(expression)}"
        yield f"        agg: {aggregate}"


def measures(table: Table) -> Iterator[tuple[str, str, str, str]]:
    """The measures of a table: name, expression over its columns, aggregate, description."""
    yield f"{table.name}_rows", "1", "sum", f"Rows of {table.name}."
    for column in table.columns:
        if column.type in NUMBERS and not column.is_key:
            if column.name.endswith(GREATEST):
                yield f"{table.name}_{column.name}", column.name, "max", column.comment
            elif column.name.endswith(SUMMED):
                yield f"{table.name}_{column.name}", column.name, "sum", column.comment


def _named(column: Column) -> str:
    return RESERVED.get(column.name, column.name)
