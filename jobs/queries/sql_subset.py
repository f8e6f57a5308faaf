"""The subset of SQL that means the same to Spark and DuckDB: its types, and the error for everything else.

`jobs.queries.sql_translation` parses statements and writes them for DuckDB; it imports sqlglot, so it is imported with
the first statement only.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple


class OutsideSubset(Exception):
    """A part of a statement that needs Spark."""


class Kind(Enum):
    """The kind of values in a column, as far as it matters here."""

    INTEGER = auto()
    DOUBLE = auto()
    TEXT = auto()
    TIME = auto()
    BOOLEAN = auto()
    INTEGERS = auto()
    TEXTS = auto()
    OTHER = auto()
    """A map, a struct, bytes: can be shown, but not used in expressions."""


class Column(NamedTuple):
    name: str
    kind: Kind


class Statement(NamedTuple):
    """A statement for DuckDB. Its columns are named `c0`, `c1`, ..., since names may occur twice."""

    text: str
    columns: tuple[Column, ...]


class Argument(NamedTuple):
    """A constant argument of a time function, as DuckDB reads it."""

    text: str
    kind: Kind


class Relation(NamedTuple):
    """What FROM can name: its name in DuckDB, and its columns."""

    text: str
    columns: Sequence[Column]


Relations = Callable[[tuple[str, ...], "tuple[Argument, ...] | None"], Relation]
"""Returns a table or view by the parts of its name, or a function by name and arguments. Raises OutsideSubset."""
