"""`sql --engine spark`: Spark SQL over the tables by their names, such as `select * from silver.offset_commits`.

Tables are registered in Spark's catalogue through the API, views and functions with constant statements (`views`): no
path and no value is put into SQL text.

While a replay or an audit is running, or after one failed, table names refer to the versions of the last whole run
(`pinned`). Names in a metastore do not: its tables are shared with programs that know nothing about runs.

Statements that write are refused (`read_only`), unless `sql --write` allows them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from jobs.cli_enums import Engine
from jobs.delta.filesystems import spark_uri
from jobs.delta.pinned_versions import Pinned, pinned_versions
from jobs.delta.scanner import read_whole
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError, StatementError
from jobs.queries.sql.interrupts import interruptible
from jobs.queries.sql.read_only import refused_part, refused_relation, set_unsafe, unsafe_function_of
from jobs.queries.sql.sql import nearest_name, one_line
from jobs.queries.views.all_views import DEFINITIONS, named_in
from jobs.queries.views.declare import Definition
from schemas.tables import TABLES
from schemas.tables.declare import Table

FILE_IN_ERROR: Final = re.compile(r"\.parquet\b|FAILED_READ_FILE")
NEWEST: Final = "newest"
"""Database of the newest versions of tables, where their own names refer to a whole run."""
QUERIES: Final = ("select", "with", "from", "table", "values")
"""First words of statements that change nothing and may be planned twice."""
REFUSED: Final = (
    "the ledger is read-only here, and this statement may change something ({part}): nothing was done. A temporary "
    "view may hold what you need; `sql --write` runs it all the same"
)


class Catalogue:
    """The tables, views and functions of a warehouse in Spark's catalogue, registered when a statement names them.

    Registering a table takes Spark half a second, and a statement names few. With a metastore they stay registered;
    otherwise they show only whole runs.
    """

    engine = Engine.SPARK

    def __init__(
        self, session: SparkSession, warehouse: Warehouse, *, cluster_id: str | None = None, may_write: bool = False
    ) -> None:
        """`cluster_id`: table names refer to rows of this cluster only. `may_write`: allow statements that write."""
        self.session = session
        self._warehouse = warehouse
        self._may_write = may_write
        self._tables = [table for table in TABLES.values() if warehouse.exists(table)]
        self._pinned: Mapping[Table, Pinned] = {}
        self._known: dict[Table, Pinned] = {}
        """Registered tables, with their pinned versions."""
        self._defined: set[Definition] = set()
        self._is_persistent = has_metastore(session)
        # tables in a metastore are shared, and show all rows
        self._cluster_id = None if self._is_persistent else cluster_id
        self.table_names = tuple(table.full_name for table in self._tables)
        for layer in dict.fromkeys(table.layer for table in self._tables):
            if not session.catalog.databaseExists(layer):  # with IF NOT EXISTS alone a metastore logs an error
                # a layer is one of our own names
                session.sql("CREATE DATABASE IF NOT EXISTS IDENTIFIER(:layer)", args={"layer": layer})

    def answer(self, statement: str) -> "SparkAnswer":
        """The result of a statement, to be printed. Raises SqlError."""
        reading = partial(self._reading, statement)
        with reading():
            return interruptible(lambda: SparkAnswer(self.frame(statement), reading))

    @contextmanager
    def _reading(self, statement: str) -> Iterator[None]:
        """Context in which Spark executes a statement. Raises SqlError, and TableDamaged for the file that it could not
        read."""
        try:
            yield
        except (ParseException, AnalysisException) as error:
            raise StatementError(self._with_remedy(error)) from error
        except (PySparkException, Py4JJavaError) as error:
            if FILE_IN_ERROR.search(str(error)):
                for table in named_in(statement.lower(), self._tables)[1]:
                    read_whole(file.path for file in self._warehouse.files(table))
            raise SqlError(one_line(error)) from error

    def _with_remedy(self, error: PySparkException) -> str:
        """Spark's words in one line, or the nearest name of a table or function; of columns Spark itself names them."""
        parameters = error.getMessageParameters() or {}
        missing = (parameters.get("relationName") or parameters.get("name") or "").replace("`", "")
        known = [*self.table_names, *(definition.name for definition in DEFINITIONS)]
        return nearest_name(missing, known) or one_line(error)

    def frame(self, statement: str) -> DataFrame:
        """The result of a statement.

        Spark determines table versions while it plans: if a run begins meanwhile, it plans again. Raises SqlError for a
        statement that writes, unless that is allowed.
        """
        set_unsafe(self.session, is_allowed=self._may_write)
        if self._may_write:
            return self._planned(statement)
        try:
            part = refused_part(self.session, statement)
            if part is None:
                self.prepare(statement)
                part = refused_relation(self.session, statement)
            if part is None:
                return self._planned(statement)
        except PySparkException as error:
            part = unsafe_function_of(error)
            if part is None:
                raise
        raise StatementError(REFUSED.format(part=part))

    def _planned(self, statement: str) -> DataFrame:
        self.prepare(statement)
        frame = self.session.sql(statement)
        if statement.lower().lstrip(" (").startswith(QUERIES) and self._pinned_now() != self._pinned:
            self.prepare(statement)
            frame = self.session.sql(statement)
        return frame

    def prepare(self, statement: str) -> None:
        """Register what the statement may name; all tables for SHOW, which names none."""
        text = statement.lower().lstrip(" (")
        definitions, tables = named_in(text, self._tables)
        self._make_known(self._tables if text.startswith("show") else tables)
        is_list = text.startswith(("show views", "show functions"))
        for definition in DEFINITIONS if is_list else definitions:
            self._define(definition)

    def prepare_all(self) -> None:
        """Register everything that exists: for a metastore that others read."""
        self._make_known(self._tables)
        for definition in DEFINITIONS:
            self._define(definition)

    def _make_known(self, tables: Iterable[Table]) -> None:
        # Spark's internal catalogue: pyspark's Catalog has no locations, and fails where the folder of a table is gone
        state = self.session._jsparkSession.sessionState()
        self._pinned = self._pinned_now()
        for table in tables:
            self._warehouse.version(table)  # raises TableDamaged for its log, of which Spark says less
            wanted = self._pinned.get(table, {})
            if self._known.get(table) == wanted:
                continue
            path = spark_uri(self._warehouse.path(table))
            identifier = state.sqlParser().parseTableIdentifier(table.full_name)
            is_there = state.catalog().tableExists(identifier)
            if is_there and self._is_persistent:
                _require_location(table, state.catalog().getTableMetadata(identifier).location().toString(), path)
            elif is_there:  # registered with other versions, or for another warehouse of this session
                self._forget(table.full_name)
                is_there = False
            if wanted or self._cluster_id is not None:
                self._hold(table, path, wanted)
            elif not is_there:
                self.session.catalog.createTable(table.full_name, path=path, source="delta")
            self._known[table] = wanted

    def _pinned_now(self) -> Mapping[Table, Pinned]:
        return {} if self._is_persistent else pinned_versions(self._warehouse)

    def _forget(self, name: str) -> None:
        """Remove a name from the catalogue. The files stay, since Spark does not manage them."""
        state = self.session._jsparkSession.sessionState()
        state.catalog().dropTable(state.sqlParser().parseTableIdentifier(name), True, False)

    def _hold(self, table: Table, path: str, pinned: Pinned) -> None:
        """Register a table as of the last whole runs, and only of one cluster if requested."""
        newest = f"{NEWEST}.{table.layer}_{table.name}"
        self.session.sql(f"CREATE DATABASE IF NOT EXISTS {NEWEST}")
        self._forget(newest)
        self.session.catalog.createTable(newest, path=path, source="delta")
        fields = self.session.table(newest).schema.fields
        parts = [f"SELECT * FROM {newest} WHERE {self._newest_rows(pinned)}"]
        for cluster_id, version in pinned.items():
            if version is not None and self._cluster_id in (None, cluster_id):
                of_version = f"{newest} VERSION AS OF {version}"
                stored = set(self.session.sql(f"SELECT * FROM {of_version}").columns)
                columns = ", ".join(
                    field.name if field.name in stored else f"CAST(NULL AS {field.dataType.simpleString()})"
                    for field in fields
                )
                parts.append(f"SELECT {columns} FROM {of_version} WHERE cluster_id = {_literal(cluster_id)}")
        self.session.sql(f"CREATE OR REPLACE VIEW {table.full_name} AS {' UNION ALL '.join(parts)}")

    def _newest_rows(self, pinned: Pinned) -> str:
        """The condition for rows at the newest version."""
        is_other = f"cluster_id NOT IN ({', '.join(map(_literal, pinned))})" if pinned else "true"
        return is_other if self._cluster_id is None else f"cluster_id = {_literal(self._cluster_id)} AND {is_other}"

    def _define(self, definition: Definition) -> None:
        """Create a view or function, unless it exists or a table that it reads does not."""
        statement = definition.statement(self.table_names, Engine.SPARK, is_persistent=self._is_persistent)
        if statement is not None and definition not in self._defined:
            self.session.sql(statement)
            self._defined.add(definition)


class SparkAnswer:
    """`reading`: the context in which Spark reads."""

    def __init__(self, frame: DataFrame, reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._frame = frame
        self._reading = reading
        self.columns: Sequence[str] = frame.columns

    def rows(self) -> Iterator[Row]:
        with self._reading():
            yield from interruptible(self._frame.toLocalIterator)

    def head(self, count: int) -> list[Row]:
        return list(SparkAnswer(self._frame.limit(count), self._reading).rows())

    @property
    def schema(self) -> pa.Schema:
        return self._arrow.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._arrow.to_batches())

    @cached_property
    def _arrow(self) -> pa.Table:
        with self._reading():
            return interruptible(self._frame.toArrow)


def _literal(text: str) -> str:
    """A string as a SQL expression of hexadecimal digits, so that none of it can be SQL."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def has_metastore(session: SparkSession) -> bool:
    """Is a Hive metastore configured? Otherwise Spark's catalogue ends with the session."""
    return session.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"


def publish(session: SparkSession, warehouse: Warehouse) -> None:
    """Register or refresh tables, views and functions in the metastore: its readers need nothing else of this project.

    Raises SqlError.
    """
    try:
        Catalogue(session, warehouse).prepare_all()
    except (PySparkException, Py4JJavaError) as error:
        raise SqlError(f"the tables are made, but the metastore does not take them: {one_line(error)}") from error


def _require_location(table: Table, location: str, path: str) -> None:
    """Check the location: a metastore identifies a table by name only, whatever its warehouse. Raises SqlError."""
    if _plain_uri(location) != _plain_uri(path):
        raise SqlError(
            f"the metastore has {table.full_name} at {location}, and this warehouse has it at {path}: give each "
            "warehouse a metastore of its own, or drop the table from the metastore first"
        )


def _plain_uri(uri: str) -> str:
    """Normalize a URI: Hadoop writes `file:/a`, others `file:///a`."""
    return uri.replace("file:///", "file:/", 1).rstrip("/")
