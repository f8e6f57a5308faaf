"""What a run changed in a table: inserted, deleted and updated rows.

Tables are written in files, and a rewritten file has many unchanged rows. So the version that the run left, from
`state.runs`, is compared with the version that the run before left. Only files that one version lacks
are read, and rows in both are ignored. The names are those of Delta's change data feed, which the tables do not have:
it would bind every writer, and would list rows that were only rewritten.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from coordinator_core.text import counted
from jobs.console.names import or_some, short
from jobs.delta.arrow_columns import columns_read
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.duckdb import connect
from jobs.delta.replay_runs import number_of, visible
from jobs.delta.scanner import dataset_of
from jobs.delta.table_files import TableFile
from jobs.errors import ArgumentError, JobError
from jobs.queries.answers.lists import USUAL
from jobs.queries.sql.sql_duckdb import DuckDbAnswer, naming_damage
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES, REBALANCES
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.state import RUN_METRICS, RUNS

CHANGE: Final = "_change_type"
RUN: Final = "_run_id"
INSERT: Final = "insert"
DELETE: Final = "delete"
BEFORE: Final = "update_preimage"
AFTER: Final = "update_postimage"
FOLLOWED: Final = (*SILVER_TABLES, *GOLD_TABLES)
"""Tables whose versions are recorded by runs. Rows of bronze name their capture: `capture_id`."""
RUN_COLUMNS: Final = (
    "run_id",
    "started_at",
    "table_versions",
    "replay_version",
    "audit_version",
    "audited_version",
    "is_audited_next",
)
BOOKKEEPING: Final = frozenset({"cluster_id", "incarnation", "group_type"})
SUMMARY_COLUMNS: Final = ("TABLE", "RUN", "SINCE", "INSERTED", "UPDATED", "DELETED")


@dataclass(frozen=True, slots=True)
class Left:
    """A completed run, and the version of each table after it."""

    run_id: str
    started_at: datetime
    number: int
    versions: Mapping[str, int]


def runs_by_layer(tables: ClusterTables) -> Mapping[str, Sequence[Left]]:
    """The runs of a cluster that readers may see, oldest first, at one moment: replays wrote silver, audits gold."""
    rows = tables.read(RUNS, RUN_COLUMNS).to_pylist()
    audits = [row for row in rows if row["audit_version"] is not None]
    return {"silver": _ordered(visible(rows), "replay_version"), "gold": _ordered(audits, "audit_version")}


def _ordered(rows: Sequence[Mapping[str, Any]], number: str) -> Sequence[Left]:
    found = {
        row["run_id"]: Left(row["run_id"], row["started_at"], number_of(row[number]), dict(row["table_versions"] or ()))
        for row in rows
    }
    return sorted(found.values(), key=lambda run: (run.number, run.started_at))


def runs_of(tables: ClusterTables, table: Table) -> Sequence[Left]:
    """Those that wrote one table."""
    return runs_by_layer(tables)[table.layer]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two states of a table: after a run, and after an earlier one. None: before the first run."""

    table: Table
    run: Left
    before: Left | None


def compared(
    tables: ClusterTables,
    table: Table,
    run_id: str | None = None,
    since: str | None = None,
    runs: Sequence[Left] | None = None,
) -> Compared:
    """The requested run (default: the newest), and the one to compare with (default: the one before). `runs`: those of
    the table, if known.

    Raises ArgumentError for runs that the cluster does not have, or that are in the wrong order.
    """
    runs = runs_of(tables, table) if runs is None else runs
    if not runs:
        raise ArgumentError(f"no run of {short(tables.cluster_id)} wrote {table.full_name}: run nightly first")
    place = _place(runs, run_id, table) if run_id is not None else len(runs) - 1
    if since is None:
        return Compared(table, runs[place], runs[place - 1] if place else None)
    earlier = _place(runs, since, table)
    if earlier >= place:
        raise ArgumentError(f"--since {short(since)} is not before the run {runs[place].run_id}")
    return Compared(table, runs[place], runs[earlier])


def _place(runs: Sequence[Left], run_id: str, table: Table) -> int:
    for place, run in enumerate(runs):
        if run.run_id == run_id:
            return place
    newest = ", ".join(run.run_id for run in reversed(runs[-3:]))
    raise ArgumentError(f"no run {short(run_id)} wrote {table.full_name}: the newest are {newest}")


def changes_of(tables: ClusterTables, pair: Compared) -> DuckDbAnswer:
    """The rows that differ, by the table's key: `_change_type`, the columns of the table, and last `_run_id` and those
    that say where a row is kept."""
    connection, columns = _loaded(tables, pair)
    keys = [name for name in pair.table.key if name in columns]
    order = ", ".join(f'"{name}" NULLS FIRST' for name in keys) or "ALL"
    run = "'" + pair.run.run_id.replace("'", "''") + f"' AS {RUN}"
    listed = ", ".join(f'"{name}"' for name in columns if name not in BOOKKEEPING)
    kept = ", ".join([run, *(f'"{name}"' for name in columns if name in BOOKKEEPING)])
    return DuckDbAnswer(
        connection, f"SELECT {CHANGE}, {listed}, {kept} FROM changes ORDER BY {order}, {CHANGE} DESC", {}
    )


def answer_of(table: Table) -> list[str]:
    """The columns that are the answer, by importance: what changed, and what the lists of such rows show first."""
    usual = USUAL[table].first if table in USUAL else [name for name in table.key if name not in BOOKKEEPING]
    return [CHANGE, *usual, *(("members_left", "members_joined") if table is REBALANCES else ())]


def counts_of(tables: ClusterTables, pair: Compared) -> tuple[int, int, int]:
    """The number of rows inserted, updated and deleted."""
    connection, _ = _loaded(tables, pair)
    found = dict(connection.sql(f"SELECT {CHANGE}, count(*) FROM changes GROUP BY ALL").fetchall())
    return found.get(INSERT, 0), found.get(AFTER, 0), found.get(DELETE, 0)


def _loaded(tables: ClusterTables, pair: Compared) -> tuple[Any, list[str]]:
    """A connection with the view `changes`, and the columns of the table in order."""
    table = pair.table
    version = pair.run.versions.get(table.full_name)
    after, before = files_apart(tables, pair)
    stored = tables.warehouse.columns(table, version, reader_version_max=1) or list(table.column_names)
    columns = [name for name in stored if name in table.column_names]
    schema = columns_read(table, columns)
    connection = connect()
    paths: dict[str, list[str]] = {}
    for name, files in (("after_files", after), ("before_files", before)):
        values = [file.partition_values for file in files]
        connection.register(name, dataset_of([file.path for file in files], schema, values))
        paths[name] = [file.path for file in files]
    keys = [name for name in table.key if name in columns]
    same = " AND ".join(f'a."{name}" IS NOT DISTINCT FROM b."{name}"' for name in keys) or "false"
    with naming_damage(paths):
        connection.execute("CREATE TEMP TABLE came AS SELECT * FROM after_files EXCEPT ALL SELECT * FROM before_files")
        connection.execute("CREATE TEMP TABLE went AS SELECT * FROM before_files EXCEPT ALL SELECT * FROM after_files")
    connection.execute(
        "CREATE VIEW changes AS "
        f"SELECT CASE WHEN EXISTS (SELECT 1 FROM went b WHERE {same}) THEN '{AFTER}' ELSE '{INSERT}' END AS {CHANGE}, "
        f"a.* FROM came a UNION ALL SELECT CASE WHEN EXISTS (SELECT 1 FROM came a WHERE {same}) "
        f"THEN '{BEFORE}' ELSE '{DELETE}' END AS {CHANGE}, b.* FROM went b"
    )
    return connection, columns


def files_apart(tables: ClusterTables, pair: Compared) -> tuple[list[TableFile], list[TableFile]]:
    """The files that only the later of two states has, and those that only the earlier one has. Raises JobError where
    one is gone."""
    table = pair.table
    earlier = None if pair.before is None else pair.before.versions.get(table.full_name)
    after = _files(tables, table, pair.run.versions.get(table.full_name))
    before = {} if earlier is None else _files(tables, table, earlier)
    return (
        [file for path, file in after.items() if path not in before],
        [file for path, file in before.items() if path not in after],
    )


def _files(tables: ClusterTables, table: Table, version: int | None) -> dict[str, TableFile]:
    """The files of the cluster's rows in a version, by path."""
    if version is not None and not tables.warehouse.has_version(table, version):
        if version == tables.warehouse.version(table):
            for damage in tables.warehouse.damaged_files(table):
                raise damage
        raise JobError(
            f"version {version} of {table.full_name} is gone: maintain deleted its files. Name a later run with "
            "--since, or keep versions for longer (maintain --vacuum-after)"
        )
    return {file.path: file for file in tables.files(table, version)}


def summary(tables: ClusterTables, run_id: str | None, since: str | None) -> tuple[list[str], list[list[Any]]]:
    """Sentences that say which runs are compared and how much changed; and for each table of silver and gold that a
    run wrote, the number of changed rows."""
    found: list[list[Any]] = []
    pairs: dict[tuple[str, str | None], list[tuple[Compared, tuple[int, int, int]]]] = {}
    runs = runs_by_layer(tables)
    for table in FOLLOWED:
        if not tables.warehouse.exists(table) or not runs[table.layer]:
            continue
        pair = compared(tables, table, run_id, since, runs[table.layer])
        before = None if pair.before is None else pair.before.run_id
        counts = counts_of(tables, pair)
        found.append([table.full_name, pair.run.run_id, before, *counts])
        pairs.setdefault((pair.run.run_id, before), []).append((pair, counts))
    if not found:
        raise ArgumentError(f"no run of {short(tables.cluster_id)} is known: run nightly first")
    known = {run.run_id for of_layer in runs.values() for run in of_layer}
    said = [] if run_id is not None else list(_later(tables, known))
    for same in pairs.values():
        layers = " and ".join(dict.fromkeys(pair.table.layer for pair, _ in same))
        said.append(
            f"{layers}: {sentence(same[0][0], [sum(each) for each in zip(*(it for _, it in same), strict=True)])}"
        )
    return said, found


def sentence(pair: Compared, counts: Sequence[int]) -> str:
    """Which runs are compared, and how many rows were inserted, updated and deleted."""
    run, before = pair.run, pair.before
    against = f"run {before.run_id} of {_when(before.started_at)}" if before else "nothing, as it is the first one"
    inserted, updated, deleted = counts
    rows = f"{counted(inserted, 'row')} inserted, {updated:,} updated, {deleted:,} deleted"
    return f"run {run.run_id} of {_when(run.started_at)} against {against}: {rows}"


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"


def _later(tables: ClusterTables, known: Collection[str]) -> Iterator[str]:
    """A sentence where the newest run is none of those that changed a table."""
    rows = tables.read(RUN_METRICS, ["run_id", "job", "started_at"]).to_pylist()
    newest = max(
        ((row["started_at"], row["run_id"]) for row in rows if row["job"] in ("replay", "audit")), default=None
    )
    if newest is not None and newest[1] not in known:
        yield f"the newest run, {newest[1]} of {_when(newest[0])}, changed nothing; the last one that did:"


def table_named(name: str) -> Table:
    """A table of silver or gold by its name. Raises ArgumentError."""
    table = TABLES.get(name.lower())
    if table is None or table not in FOLLOWED:
        hint = ": rows of bronze name their capture in capture_id" if name.startswith("bronze.") else ""
        known = [it.full_name for it in FOLLOWED]
        raise ArgumentError(f"there is no table {or_some(name, known)} of silver or gold{hint}")
    return table
