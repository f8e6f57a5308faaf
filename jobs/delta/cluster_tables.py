"""One cluster's rows in the tables of a warehouse: what nearly every query is about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.commits import APPEND, OVERWRITE, Committed
from jobs.delta.table_files import TableFile
from jobs.settings import place_words
from schemas.tables.declare import Table

if TYPE_CHECKING:
    from jobs.delta.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class ClusterTables:
    """A warehouse, and the cluster whose rows of it are meant."""

    warehouse: "Warehouse"
    cluster_id: str

    def read(
        self, table: Table, columns: Sequence[str] | None = None, *, version: int | None = None, **where: Any
    ) -> pa.Table:
        """The cluster's rows in a version (None: the newest), on the driver; `where`: column values to filter by."""
        return self.warehouse.read(table, columns, where={"cluster_id": self.cluster_id, **where}, version=version)

    def files(self, table: Table, version: int | None = None) -> tuple[TableFile, ...]:
        """The files of the cluster's rows in a version (None: the newest)."""
        files = self.warehouse.files(table, version)
        return tuple(file for file in files if file.partition_values["cluster_id"] == self.cluster_id)

    def write(
        self,
        table: Table,
        rows: Iterable[Mapping[str, Any]],
        *,
        app_id: str,
        version: int | None = None,
        mode: str = APPEND,
        **common: str,
    ) -> Committed:
        """Write small results of the driver: rows, to which the cluster's id and the `common` values of other partition
        columns are added. The mode OVERWRITE replaces the rows that have these. `version`: by default the one after the
        application's last."""
        last_version = self.warehouse.ensure_all((table,), app_id)[table.full_name]
        common["cluster_id"] = self.cluster_id
        made = pa.Table.from_pylist([{**row, **common} for row in rows], schema=arrow_schema(table))
        replace = common if mode == OVERWRITE else None
        number = last_version + 1 if version is None else version
        return self.warehouse.write(table, made, app_id=app_id, version=number, mode=mode, replace=replace)

    @property
    def place_words(self) -> str:
        """Shell options that name the warehouse and the cluster."""
        return place_words(self.warehouse.root, self.cluster_id)
