"""DuckDB as an engine for `sql`, for statements that need no Spark.

DuckDB gets the files in Delta's log as Arrow datasets, at the versions of the last whole runs, so that names mean the
same as in Spark (`jobs.queries.sql.Catalogue`). `jobs.queries.sql_translation` defines the supported statements. A
table with Delta features beyond plain files (deletion vectors, column mapping) is left to Spark. So is a statement for
which DuckDB raises an error, since users know Spark's messages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from jobs.delta.arrow_columns import columns_read
from jobs.delta.pinned_versions import Pinned, pinned_versions
from jobs.delta.scanner import dataset_of
from jobs.delta.times import EPOCH
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError
from jobs.queries.interrupts import interruptible
from jobs.queries.sql_subset import Argument, Column, Kind, OutsideSubset, Relation, Statement
from jobs.queries.views import DEFINITIONS, Definition
from jobs.queries.views import Kind as DefinitionKind
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.silver import COORDINATOR_PARTITIONS

BATCH_ROWS: Final = 10_000
MIN_READER_VERSION_MAX: Final = 1
"""Tables that need a higher Delta reader version may have features that only Spark's reader supports."""
KINDS: Final = {
    "TINYINT": Kind.INTEGER,
    "SMALLINT": Kind.INTEGER,
    "INTEGER": Kind.INTEGER,
    "BIGINT": Kind.INTEGER,
    "DOUBLE": Kind.DOUBLE,
    "VARCHAR": Kind.TEXT,
    "TIMESTAMP WITH TIME ZONE": Kind.TIME,
    "BOOLEAN": Kind.BOOLEAN,
    "VARCHAR[]": Kind.TEXTS,
    **dict.fromkeys(("TINYINT[]", "SMALLINT[]", "INTEGER[]", "BIGINT[]"), Kind.INTEGERS),
}
PARAMETERS: Final = {"STRING": Kind.TEXT, "INT": Kind.INTEGER, "TIMESTAMP": Kind.TIME}


class DuckDbAnswer:
    """The result of a statement: columns, and values in the types that Spark returns to Python."""

    def __init__(self, connection: Any, columns: Sequence[Column], text: str) -> None:
        self._connection = connection
        self.columns: Sequence[str] = tuple(column.name for column in columns)
        self._kinds = [column.kind for column in columns]
        self._batches: Iterator[pa.RecordBatch] = interruptible(
            lambda: connection.sql(text).to_arrow_reader(BATCH_ROWS), connection.interrupt
        )

    def begin(self) -> None:
        """Compute the first rows."""
        first = self._computed()
        self._batches = chain(() if first is None else (first,), self._batches if first is not None else ())

    def rows(self) -> Iterator[list[Any]]:
        while (batch := self._next()) is not None:
            yield from map(
                list,
                zip(*(_values(values, kind) for values, kind in zip(batch, self._kinds, strict=True)), strict=True),
            )

    def _next(self) -> pa.RecordBatch | None:
        try:
            return self._computed()
        except (pa.ArrowException, OSError) as error:
            said = str(error).splitlines()[0]
            raise SqlError(f"DuckDB could not go on: {said}: try it with --engine spark") from error

    def _computed(self) -> pa.RecordBatch | None:
        return interruptible(lambda: next(self._batches, None), self._connection.interrupt)

    def head(self, count: int) -> list[list[Any]]:
        return list(islice(self.rows(), count))


def _values(values: pa.Array, kind: Kind) -> list[Any]:
    if kind is Kind.TIME:
        return [
            None if us is None else EPOCH + timedelta(microseconds=us) for us in values.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_map(values.type):
        return [None if pairs is None else dict(pairs) for pairs in values.to_pylist()]
    return values.to_pylist()  # type: ignore[no-any-return]


def connect(duckdb: Any) -> Any:
    """A DuckDB that reads only what it is given, neither files nor the network; queries that exceed memory fail."""
    return duckdb.connect(
        config={
            "enable_external_access": False,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "temp_directory": "",
        }
    )


def answer_of(connection: Any, text: str, names: Sequence[str]) -> DuckDbAnswer:
    """The result of one of our own statements, with these column names."""
    relation = connection.sql(text)
    kinds = [KINDS.get(str(kind), Kind.OTHER) for kind in relation.types]
    return DuckDbAnswer(connection, list(map(Column, names, kinds)), text)


class DuckDb:
    """DuckDB over a warehouse. `cluster_id`: table names refer to rows of this cluster only."""

    def __init__(self, warehouse: Warehouse, *, cluster_id: str | None = None) -> None:
        self._warehouse = warehouse
        self._cluster_id = cluster_id
        self._there = {name: table for name, table in TABLES.items() if warehouse.exists(table)}
        self.table_names = tuple(self._there)

    def answer(self, statement: str) -> DuckDbAnswer:
        """Execute a statement. Raises OutsideSubset, with the reason, where Spark is needed."""
        try:
            import duckdb  # noqa: PLC0415  (a tenth of a second each that other jobs need not wait for)

            from jobs.queries.sql_translation import statement_of  # noqa: PLC0415
        except ImportError as error:
            raise OutsideSubset(f"{error.name} is not installed") from None
        try:
            return self._of_whole_runs(lambda relations: statement_of(statement, relations), duckdb)
        except (duckdb.Error, pa.ArrowException, DeltaError, OSError, OverflowError) as error:
            raise OutsideSubset(f"{type(error).__name__}") from error

    def _of_whole_runs(self, translate: Callable[["_Relations"], Statement], duckdb: Any) -> DuckDbAnswer:
        pinned = pinned_versions(self._warehouse)
        while True:
            connection = connect(duckdb)
            relations = _Relations(connection, self._warehouse, self._there, pinned, self._cluster_id)
            found = translate(relations)
            answer = DuckDbAnswer(connection, found.columns, found.text)
            now = pinned_versions(self._warehouse)
            if now == pinned:
                # errors in the first rows must occur before anything is printed
                answer.begin()
                return answer
            pinned = now  # a run began meanwhile: the former files may be a part of it


@dataclass(frozen=True, slots=True)
class _Relations:
    """Registers what a statement names with DuckDB."""

    connection: Any
    warehouse: Warehouse
    there: Mapping[str, Table]
    pinned: Mapping[Table, Pinned]
    cluster_id: str | None
    known: dict[str, Relation] = field(default_factory=dict)

    def __call__(self, name: tuple[str, ...], arguments: tuple[Argument, ...] | None) -> Relation:
        if len(name) == 2 and arguments is None and (table := self.there.get(".".join(name))) is not None:
            return self._table(table)
        definition = next((it for it in DEFINITIONS if (it.name,) == name), None)
        if definition is None or (definition.kind is DefinitionKind.FUNCTION) != (arguments is not None):
            raise OutsideSubset(f"the name {'.'.join(name)}")
        return self._definition(definition, arguments or ())

    def _table(self, table: Table) -> Relation:
        name = f"{table.layer}.{table.name}"
        if name not in self.known:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {table.layer}")
            self.connection.execute(f"CREATE VIEW {name} AS {self._rows(table)}")
            self.known[name] = self._relation(name)
        return self.known[name]

    def _rows(self, table: Table) -> str:
        """The query for a table's rows: for clusters without a whole run now, those of the last whole run."""
        pinned = self.pinned.get(table, {})
        newest, columns = self._register(table, None)
        conditions = [f"cluster_id <> {_text(cluster_id)}" for cluster_id in pinned]
        if self.cluster_id is not None:
            conditions.append(f"cluster_id = {_text(self.cluster_id)}")
        parts = [f"SELECT * FROM {newest} WHERE {' AND '.join(conditions) or 'true'}"]
        for cluster_id, version in pinned.items():
            if version is not None and self.cluster_id in (None, cluster_id):
                registered, stored = self._register(table, version)
                if stored != columns:
                    raise OutsideSubset(f"{table.full_name}, whose columns changed")
                parts.append(f"SELECT * FROM {registered} WHERE cluster_id = {_text(cluster_id)}")
        return " UNION ALL ".join(parts)

    def _register(self, table: Table, version: int | None) -> tuple[str, list[str]]:
        """Register a version of a table with DuckDB. Returns its name there, and its columns in order."""
        stored = self.warehouse.columns(table, version, reader_version_max=MIN_READER_VERSION_MAX)
        if stored is None or not set(stored) <= set(table.column_names):
            raise OutsideSubset(f"{table.full_name}, which only Spark's reader of Delta is sure to know")
        files = self.warehouse.files(table, version)
        dataset = dataset_of(
            [file.path for file in files], columns_read(table, stored), [file.partition_values for file in files]
        )
        name = f"files_{table.layer}_{table.name}_{'newest' if version is None else version}"
        self.connection.register(name, dataset)
        return name, stored

    def _definition(self, definition: Definition, arguments: tuple[Argument, ...]) -> Relation:
        from jobs.queries.sql_translation import definition_of  # noqa: PLC0415  (as above)

        query = self._query(definition)
        parameters = definition.parameters
        if [argument.kind for argument in arguments] != [PARAMETERS[kind] for _, kind in parameters]:
            raise OutsideSubset(f"arguments of {definition.name}")
        names = [(definition.name, name.strip("`")) for name, _ in parameters]
        text = definition_of(query, dict(zip(names, arguments, strict=True)))
        for table in definition.tables:
            self._table(table)
        name = f"definition_{len(self.known)}"
        self.connection.execute(f"CREATE VIEW {name} AS {text}")
        self.known[name] = self._relation(name)
        return self.known[name]

    def _query(self, definition: Definition) -> str:
        text = definition.query_of(self.there)
        if text is None:
            raise OutsideSubset(f"the name {definition.name}")
        for table in (LOG_ANOMALIES, COORDINATOR_PARTITIONS):
            if table.full_name in self.there:
                self._table(table)
        return text

    def _relation(self, name: str) -> Relation:
        relation = self.connection.sql(f"SELECT * FROM {name}")
        kinds = [KINDS.get(str(kind), Kind.OTHER) for kind in relation.types]
        for kind, type_ in zip(kinds, relation.types, strict=True):
            if kind is Kind.OTHER and ("TIMESTAMP" in str(type_) or "MAP" in str(type_)[1:]):
                raise OutsideSubset("a column with times in it")
        return Relation(name, tuple(map(Column, relation.columns, kinds)))


def _text(text: str) -> str:
    """A DuckDB string literal: quotes are doubled, and nothing else has a meaning in it."""
    return "'" + text.replace("'", "''") + "'"
