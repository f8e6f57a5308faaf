"""Tables of a warehouse as DataFrames, as of whole runs, read by Spark alone, since a client may not see the files."""

from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from groupledger.records import require_time
from jobs.delta.arrow_schemas import STATISTICS_PROPERTY
from jobs.errors import WarehouseError
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.state import RUN_STARTS, RUNS

_NUMBERS: Final = {"silver": "replay_version", "gold": "audit_version"}
"""The column of state.run_starts and state.runs with the numbers of the runs that write a layer."""


def read(
    spark: SparkSession, name: str, *, warehouse: str, cluster_id: str | None = None, at: datetime | None = None
) -> DataFrame:
    """A table of silver or gold, such as `silver.group_members`, at the Delta version of the newest whole run.

    Running and failed runs are not visible, nor are later ones. `at`: use the newest whole run that had started by
    then; files of old versions exist until VACUUM deletes them. `cluster_id`: rows of one cluster; by default each
    cluster's rows are as of its own last run.

    Raises WarehouseError where there is no such table or no such run, RecordsError where `at` is no datetime.
    """
    table = _known(name)
    require_time(at)
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


def write_options(name: str) -> dict[str, str]:
    """Options for writing rows of a silver or gold table, such as `silver.offset_commits`, to a Delta table.

    Delta's writer keeps statistics of the first 32 columns: for commits that takes about a quarter of the time of
    replay and write, and hosts of members would stay in Delta's log after an erasure. With these options it keeps
    statistics only of the columns by which rows are found: the key and the group, without personal ones.

    Raises WarehouseError where there is no such table.
    """
    columns = [
        column.name
        for column in _known(name).columns
        if not column.is_personal and (column.is_key or column.name == "group_id")
    ]
    return {STATISTICS_PROPERTY: ",".join(columns)}


def _known(name: str) -> Table:
    table = TABLES.get(name)
    if table is None or table.layer not in _NUMBERS:
        known = ", ".join(known for known, of in TABLES.items() if of.layer in _NUMBERS)
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
        """A table at a version; None: the newest."""
        reader = self._spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.path(table))

    def newest_version(self, table: Table) -> int:
        """The current Delta version of a table. Raises WarehouseError where it does not exist."""
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
        """By cluster, the version at which its rows are read.

        `newest`: the table's version before this looked at runs.
        """
        number = _NUMBERS[table.layer]
        columns = ["cluster_id", number, "started_at", "table_versions"]
        ends: dict[str, Row] = {}
        is_audit = F.col("audit_version").isNotNull()
        of_runs = self.load(RUNS).where(is_audit if table.layer == "gold" else ~is_audit).select(*columns)
        if at is not None:
            of_runs = of_runs.where(F.col("started_at") <= F.lit(at))
        for row in of_runs.collect():
            if row["cluster_id"] not in ends or _number(row, number) > _number(ends[row["cluster_id"]], number):
                ends[row["cluster_id"]] = row
        begun: dict[str, int] = {}
        if at is None:
            last = self.load(RUN_STARTS).groupBy("cluster_id").agg(F.max(number).alias(number))
            begun = {row["cluster_id"]: _number(row, number) for row in last.collect()}
        found = {}
        for cluster_id, row in ends.items():
            is_newest = at is None and begun.get(cluster_id, -1) <= _number(row, number)
            # include changes by maintain and erase since the last run
            version = newest if is_newest else (row["table_versions"] or {}).get(table.full_name)
            if version is not None:
                found[cluster_id] = version
        return found


def _number(row: Row, name: str) -> int:
    number = row[name]
    return -1 if number is None else int(number)
