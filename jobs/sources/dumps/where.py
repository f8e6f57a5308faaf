"""Which rows of a dump a user wants: an expression of SQL over the columns that its files and folders have."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import BoolArray
from jobs.delta.duckdb import connect, duckdb_module
from jobs.errors import SourceError


class Where:
    """The expression, in DuckDB's SQL."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._connection = connect()

    def wanted(self, rows: pa.Table, constants: Mapping[str, str | None]) -> BoolArray:
        """The rows for which it is true. `constants`: columns of all rows. Raises SourceError where it cannot be
        computed."""
        for name in constants.keys() - {*rows.column_names}:
            rows = rows.append_column(name, pa.repeat(pa.scalar(constants[name], pa.string()), rows.num_rows))
        try:
            return self._wanted(rows)
        except duckdb_module().Error as error:
            raise SourceError(f"--where {self._expression!r}: {str(error).splitlines()[0]}") from error

    def excludes(self, constants: Mapping[str, str | None]) -> bool:
        """Do these columns alone, which folders tell, exclude all rows of a file?"""
        row = pa.table({name: pa.array([value], pa.string()) for name, value in constants.items()})
        try:
            return bool(constants) and not self._wanted(row).all()
        except duckdb_module().Error:
            return False  # it is of other columns, too

    def _wanted(self, rows: pa.Table) -> BoolArray:
        relation = self._connection.from_arrow(rows).project(f"coalesce((\n{self._expression}\n), false)")
        found: BoolArray = relation.to_arrow_table()[0].to_numpy().astype(np.bool_)
        return found
