"""Tables of a warehouse as DataFrames, as whole runs left them: by Spark alone, as a client may see no files."""

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from jobs.errors import WarehouseError
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.state import AUDIT_STARTS, AUDITS, REPLAY_STARTS, RUNS


class _Written(NamedTuple):
    """Where runs that write a layer say that they began, and that they are whole."""

    starts: Table
    ends: Table
    number: str


_WRITTEN: Final[Mapping[str, _Written]] = {
    "silver": _Written(REPLAY_STARTS, RUNS, "replay_version"),
    "gold": _Written(AUDIT_STARTS, AUDITS, "audit_version"),
}


def read(
    spark: SparkSession, name: str, *, warehouse: str, cluster_id: str | None = None, at: datetime | None = None
) -> DataFrame:
    """A table of silver or gold, as `silver.group_members`, at one Delta version: that of the newest whole run.

    A run under way, or one that broke off, is not seen, and what later runs write neither. `at`: of the newest whole
    run that had started by then; files of versions so old are there until VACUUM takes them. `cluster_id`: rows of one
    cluster; else each cluster's rows are read as its own last run left them.

    Raises WarehouseError where there is no such table or no such run.
    """
    table = _known(name)
    store = _Store(spark, warehouse)
    newest = store.newest_version(table)
    versions = store.versions(table, at, newest)
    if cluster_id is not None:
        versions = {cluster: version for cluster, version in versions.items() if cluster == cluster_id}
    if not versions:
        of_cluster = "" if cluster_id is None else f" of cluster {cluster_id!r}"
        by_then = "" if at is None else f" that had started by {at.isoformat()}"
        raise WarehouseError(f"warehouse {warehouse!r} has no whole run{of_cluster}{by_then}: run nightly first")
    clusters: dict[int, list[str]] = {}
    for cluster, version in versions.items():
        clusters.setdefault(version, []).append(cluster)
    parts = [store.load(table, version).where(F.col("cluster_id").isin(*names)) for version, names in clusters.items()]
    return reduce(lambda some, others: some.unionByName(others, allowMissingColumns=True), parts)


STATISTICS: Final = "delta.dataSkippingStatsColumns"


def write_options(name: str) -> dict[str, str]:
    """Options with which a Delta table is made of rows of a table of silver or gold, as `silver.offset_commits`.

    Delta's writer keeps statistics of the first 32 columns, for each row: of commits that is about a quarter of what
    replay and write take, and the name of a member's host would stay in Delta's log after an erasure. With these
    options it keeps those of the columns by which rows are found: the key and the group, personal ones left out.

    Raises WarehouseError where there is no such table.
    """
    columns = [
        column.name
        for column in _known(name).columns
        if not column.is_personal and (column.is_key or column.name == "group_id")
    ]
    return {STATISTICS: ",".join(columns)}


def _known(name: str) -> Table:
    table = TABLES.get(name)
    if table is None or table.layer not in _WRITTEN:
        known = ", ".join(known for known, of in TABLES.items() if of.layer in _WRITTEN)
        raise WarehouseError(f"there is no table {name!r} that runs leave whole; there are: {known}")
    return table


class _Store:
    """A warehouse, read by Spark."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        self._spark = spark
        self._root = warehouse.rstrip("/")

    def path(self, table: Table) -> str:
        """Where a table lies."""
        return f"{self._root}/{table.layer}/{table.name}"

    def load(self, table: Table, version: int | None = None) -> DataFrame:
        """A table, at a version or as it is."""
        reader = self._spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.path(table))

    def newest_version(self, table: Table) -> int:
        """The Delta version of a table now. Raises WarehouseError where it is not there."""
        path = self.path(table)
        if "${" in path:
            raise WarehouseError(f"warehouse {self._root!r} holds what SQL takes for a variable: give it another path")
        quoted = path.replace("`", "``")
        try:
            rows = self._spark.sql(f"DESCRIBE HISTORY delta.`{quoted}` LIMIT 1").collect()
        except AnalysisException as error:
            raise WarehouseError(
                f"there is no table {table.full_name} in {self._root!r} for Spark to read: run nightly first, and "
                "start Spark with Delta"
            ) from error
        return int(rows[0]["version"])

    def versions(self, table: Table, at: datetime | None, newest: int) -> dict[str, int]:
        """By cluster, the version at which its rows are read. `newest`: of the table before this looked at runs."""
        written = _WRITTEN[table.layer]
        columns = ["cluster_id", written.number, "started_at", "table_versions"]
        ends: dict[str, Row] = {}
        of_runs = self.load(written.ends).select(*columns)
        if at is not None:
            of_runs = of_runs.where(F.col("started_at") <= F.lit(at))
        for row in of_runs.collect():
            if row["cluster_id"] not in ends or _number(row, written) > _number(ends[row["cluster_id"]], written):
                ends[row["cluster_id"]] = row
        begun: dict[str, int] = {}
        if at is None:
            last = self.load(written.starts).groupBy("cluster_id").agg(F.max(written.number).alias("last"))
            begun = {row["cluster_id"]: row["last"] for row in last.collect()}
        found = {}
        for cluster_id, row in ends.items():
            is_newest = at is None and begun.get(cluster_id, -1) <= _number(row, written)
            # what maintain and erase did since the last run is to be seen
            version = newest if is_newest else (row["table_versions"] or {}).get(table.full_name)
            if version is not None:
                found[cluster_id] = version
        return found


def _number(row: Mapping[str, Any] | Row, written: _Written) -> int:
    number = row[written.number]
    return -1 if number is None else int(number)
