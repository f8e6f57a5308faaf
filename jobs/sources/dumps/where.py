"""Which rows of a dump a user wants: a condition in SQL over the columns that its files and folders have.

A column that a file lacks is null there, as in Delta; of a column that a folder tells, the folder's value counts.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import BoolArray
from jobs.delta.duckdb import connect, duckdb_module
from jobs.errors import NoSuchColumn, SettingsError, SourceError

_NOT_THERE: Final = re.compile(r'Referenced (?:column|table) "(.+?)" not found')


class Where:
    """The condition, in DuckDB's SQL. `columns`: those of any file and folder."""

    def __init__(self, condition: str, columns: pa.Schema) -> None:
        self._condition = condition
        self._columns = columns
        self._connection = connect()
        self.row_count = 0
        self.wanted_count = 0
        self.excluded_file_count = 0

    def check(self) -> None:
        """Raise SettingsError unless it is true or false of each row by itself, the same whenever it is asked."""
        empty = self._connection.from_arrow(self._columns.empty_table())
        try:
            empty.filter(self._condition)  # a real WHERE takes neither aggregates nor window functions
            kinds = [str(it) for it in empty.project(f"(\n{self._condition}\n)").types]
            sql = self._connection.execute("select json_serialize_sql(?)", [f"select (\n{self._condition}\n)"])
            functions = {*_function_names(json.loads(sql.fetchone()[0]))}
            volatile = "select function_name from duckdb_functions() where stability = 'VOLATILE'"
            changing = functions & {name for (name,) in self._connection.execute(volatile).fetchall()}
        except duckdb_module().Error as error:
            raise self._refused(error) from error
        if kinds != ["BOOLEAN"]:
            raise SettingsError(f"--where {self._condition!r} is no condition, but {', '.join(kinds)}: compare it")
        if changing:
            raise SettingsError(
                f"--where {self._condition!r}: {min(changing)}() gives another value each time, and files are read once"
            )

    def _refused(self, error: Exception) -> SettingsError:
        missing = _NOT_THERE.search(str(error))
        if missing is None:
            lines = str(error).splitlines()
            helps = [line for line in lines[1:] if line.startswith("Did you mean")]
            return SettingsError(f"--where {self._condition!r}: {'. '.join([lines[0], *helps])}")
        name = missing[1]
        quotes = f" (texts take single quotes: '{name}')" if f'"{name}"' in self._condition else ""
        there = ", ".join(self._columns.names)[:500]
        return NoSuchColumn(f"--where {self._condition!r}: no file has a column {name}{quotes}. There are {there}")

    def wanted(self, rows: pa.Table, of_folders: Mapping[str, pa.Scalar]) -> BoolArray:
        """The rows for which it is true. `of_folders`: columns of all rows. Raises SourceError where it cannot be
        computed."""
        columns = {name: rows[name] for name in rows.column_names}
        columns |= {
            it.name: pa.nulls(rows.num_rows, it.type) for it in self._columns if it.name not in {*columns, *of_folders}
        }
        columns |= {name: pa.repeat(value, rows.num_rows) for name, value in of_folders.items()}
        try:
            found = self._wanted(pa.table(columns))
        except duckdb_module().Error as error:
            raise SourceError(f"--where {self._condition!r}: {str(error).splitlines()[0]}") from error
        self.row_count += rows.num_rows
        self.wanted_count += int(found.sum())
        return found

    def excludes(self, of_folders: Mapping[str, pa.Scalar]) -> bool:
        """Do these columns alone, which folders tell, exclude all rows of a file?"""
        row = pa.table({name: pa.repeat(value, 1) for name, value in of_folders.items()})
        try:
            excluded = bool(of_folders) and not self._wanted(row).all()
        except duckdb_module().Error:
            return False  # it is of other columns, too
        self.excluded_file_count += excluded
        return excluded

    def _wanted(self, rows: pa.Table) -> BoolArray:
        relation = self._connection.from_arrow(rows).project(f"(\n{self._condition}\n) is true")
        found: BoolArray = relation.to_arrow_table()[0].to_numpy().astype(np.bool_)
        return found


def _function_names(node: Any) -> Iterator[str]:
    """The functions in a statement, as DuckDB serializes it."""
    for inside in node.values() if isinstance(node, dict) else node:
        if isinstance(inside, dict | list):
            yield from _function_names(inside)
    if isinstance(node, dict) and "function_name" in node:
        yield node["function_name"].lower()
