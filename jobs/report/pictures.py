"""Pictures: what is drawn, the table it was drawn from, and the SQL for that table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.delta.arrow_columns import CODED, epoch_ms_column
from jobs.report.sql_text import Scope, column, select
from schemas.tables.declare import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, Table

NO_TIME: Final = -1


class Kind(StrEnum):
    """How a cell is formatted."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    """Epoch milliseconds."""
    DURATION = "duration"
    """Milliseconds."""
    SHARE = "share"
    """0 to 1."""
    FLAG = "flag"


class Column(NamedTuple):
    """A column of a picture's table. `expression`: its SQL; None: a column of that name."""

    name: str
    kind: Kind
    expression: str | None = None

    @property
    def sql(self) -> str:
        """Its part of the select list."""
        return column(self.name) if self.expression is None else f"{self.expression} as {self.name}"


KINDS: Final[Mapping[object, Kind]] = {
    STRING: Kind.TEXT,
    INT: Kind.NUMBER,
    BIGINT: Kind.NUMBER,
    TIMESTAMP: Kind.TIME,
    BOOLEAN: Kind.FLAG,
}


def columns_of(table: Table, names: str) -> tuple[Column, ...]:
    """Columns of a table as they are stored, from their names with blanks between; milliseconds are durations."""
    types = {column.name: column.type for column in table.columns}
    return tuple(Column(name, Kind.DURATION if name.endswith("_ms") else KINDS[types[name]]) for name in names.split())


@dataclass(frozen=True, slots=True)
class Listing:
    """The table of a picture: its first rows, in the order of the SQL; times are epoch milliseconds."""

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    row_count: int
    """Number of all rows, shown or not."""
    sql: str

    def cut(self, rows_max: int) -> "Listing":
        """The listing with at most `rows_max` rows."""
        return replace(self, rows=self.rows[:rows_max])

    def json(self) -> dict[str, Any]:
        """The page's form: column by column, strings as codes."""
        columns = [_column_json(column, [row[index] for row in self.rows]) for index, column in enumerate(self.columns)]
        return {"title": self.title, "columns": columns, "rowCount": self.row_count, "shown": len(self.rows)}


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture. `draws`: the page's function that draws it from `data`; empty: only tables are shown."""

    name: str
    """ASCII letters, digits and hyphens; unique in a report."""
    draws: str
    title: str
    about: str
    listings: tuple[Listing, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """What it lacks, or what is uncertain."""
    height: int = 300
    """Height of the chart in pixels, at any zoom: the page reserves the space."""
    legend: tuple[tuple[int, str, str], ...] = ()
    """The meaning of the chart's colours: colour number, short name, full name."""
    legend_count: int = 0
    """Number of names, in the legend or not."""

    @property
    def has_rows(self) -> bool:
        """Is there anything to show?"""
        return any(listing.row_count for listing in self.listings)

    def json(self) -> dict[str, Any]:
        """The page's form."""
        return {"draws": self.draws, "data": self.data, "listings": [listing.json() for listing in self.listings]}


class Listed(NamedTuple):
    """What a listing has of a table. `order` begins with a time: that of an event, or `valid_from` of an interval."""

    title: str
    table: Table
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    def names(self, *more: str) -> list[str]:
        """The columns to read, plus the group."""
        stored = [column.name for column in self.columns if column.expression is None]
        return list(dict.fromkeys((*stored, *self.order, *more, "group_id")))

    def listing(self, rows: pa.Table, scope: Scope, rows_max: int, *conditions: str) -> Listing:
        """The listing of rows in the scope that already satisfy the conditions."""
        time = self.order[0]
        in_scope = scope.overlapping() if time == "valid_from" else scope.within(time)
        sql = [column.sql for column in self.columns]
        return Listing(
            self.title,
            self.columns,
            first_rows(rows, self.columns, self.order, rows_max),
            rows.num_rows,
            select(sql, self.table.full_name, [*in_scope, *conditions], self.order),
        )


def first_rows(rows: pa.Table, columns: Sequence[Column], order: Sequence[str], rows_max: int) -> list[tuple[Any, ...]]:
    """The first rows in an order, sorted like in Spark, null first. Strings may be dictionary-encoded."""
    names = dict.fromkeys((*(column.name for column in columns), *order))
    taken = in_order(_none_after(rows.select(list(names)), order[0], rows_max), order)[:rows_max]
    return list(zip(*(cells(taken[column.name]) for column in columns), strict=True))


def in_order(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Rows sorted like in Spark; strings are decoded."""
    for index, stored in enumerate(rows.schema):
        if stored.type == CODED:
            rows = rows.set_column(index, stored.name, rows[stored.name].cast(pa.string()))
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in order]))


def _none_after(rows: pa.Table, name: str, rows_max: int) -> pa.Table:
    """Drop rows that cannot be among the first ones, judged by one column, to make sorting faster."""
    if rows.num_rows <= rows_max or rows[name].type in (CODED, pa.string()):
        return rows
    column = rows[name].combine_chunks()
    last = column[pc.partition_nth_indices(column, pivot=rows_max, null_placement="at_start")[rows_max].as_py()]
    is_null = pc.is_null(column)
    return rows.filter(pc.or_kleene(is_null, pc.less_equal(column, last)) if last.is_valid else is_null)


def cells(column: pa.ChunkedArray) -> list[Any]:
    """Python values; times as epoch milliseconds."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [None if at == NO_TIME else at for at in epoch_ms_column(column).tolist()]


def _column_json(column: Column, values: list[Any]) -> dict[str, Any]:
    head = {"name": column.name, "kind": column.kind.value}
    if column.kind is not Kind.TEXT:
        return {**head, "values": values}
    texts = list(dict.fromkeys(value for value in values if value is not None))
    places = {text: index for index, text in enumerate(texts)}
    return {**head, "texts": texts, "codes": [-1 if value is None else places[value] for value in values]}
