"""Classes for table declarations: columns with types and comments, keys, partitioning.

Everything else about a table (DDL, Arrow schema, Spark schema, comments) is derived from them by
`jobs.delta.arrow_schemas`; nothing is written twice.
"""

from dataclasses import dataclass
from enum import Enum


class Scalar(Enum):
    """Scalar column types, by their SQL names."""

    STRING = "STRING"
    BINARY = "BINARY"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """ARRAY<element>; elements are never null."""

    element: "Type"


@dataclass(frozen=True, slots=True)
class MapOf:
    """MAP<key, value>; values may be null."""

    key: "Type"
    value: "Type"


@dataclass(frozen=True, slots=True)
class StructOf:
    """STRUCT<name type, ...>."""

    fields: tuple[tuple[str, "Type"], ...]


Type = Scalar | ArrayOf | MapOf | StructOf


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `is_personal`: may identify a person or machine; excluded from statistics in Delta's log."""

    name: str
    type: Type
    comment: str
    is_key: bool = False
    is_personal: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table at `<warehouse>/<layer>/<name>`. Its natural key is unique."""

    layer: str
    name: str
    comment: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ("cluster_id",)
    age_column: str | None = None
    """A time by which old rows may be removed; None: other rows depend on them, so they stay."""
    day_of: str | None = None
    """The time whose UTC day is in the column `day`; None: there is no such column, or it is made with the row."""

    def __hash__(self) -> int:
        """By name: tables are often used as dictionary keys, and hashing all their columns would be slow."""
        return hash((self.layer, self.name))

    @property
    def full_name(self) -> str:
        """`layer.name`, as users write it in SQL."""
        return f"{self.layer}.{self.name}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in order: the schema contract of a select."""
        return tuple(column.name for column in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the natural key; empty where the table has none."""
        return tuple(column.name for column in self.columns if column.is_key)


STRING = Scalar.STRING
BINARY = Scalar.BINARY
BOOLEAN = Scalar.BOOLEAN
TINYINT = Scalar.TINYINT
SMALLINT = Scalar.SMALLINT
INT = Scalar.INT
BIGINT = Scalar.BIGINT
DOUBLE = Scalar.DOUBLE
TIMESTAMP = Scalar.TIMESTAMP
DATE = Scalar.DATE
