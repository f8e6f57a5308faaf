"""The part of SQL that means the same to Spark and to DuckDB: its types, and what is left to Spark.

`jobs.queries.sql_translation` reads statements and writes them for DuckDB; it imports sqlglot, and is imported when a
statement is asked.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple


class OutsideSubset(Exception):
    """What of a statement is left to Spark."""


class Kind(Enum):
    """What values a column has, as far as it matters here."""

    INTEGER = auto()
    DOUBLE = auto()
    TEXT = auto()
    TIME = auto()
    BOOLEAN = auto()
    INTEGERS = auto()
    TEXTS = auto()
    OTHER = auto()
    """A map, a struct, bytes: shown, and not computed with."""


class Column(NamedTuple):
    """A column of what a statement reads or gives."""

    name: str
    kind: Kind


class Statement(NamedTuple):
    """A statement for DuckDB. Its columns are named `c0`, `c1`, ... there, since names may come twice."""

    text: str
    columns: tuple[Column, ...]


class Argument(NamedTuple):
    """A constant that a function of time is called with, as DuckDB reads it."""

    text: str
    kind: Kind


class Relation(NamedTuple):
    """What FROM may name: how it is named in DuckDB, and its columns."""

    text: str
    columns: Sequence[Column]


Relations = Callable[[tuple[str, ...], "tuple[Argument, ...] | None"], Relation]
"""Gives a table or view by its parts of a name, or a function by its name and arguments. Raises OutsideSubset."""
