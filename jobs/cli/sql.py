"""The job sql: its options, and how it is run."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TextIO, cast

import typer

from jobs.cli import options
from jobs.cli.arguments import settings_of
from jobs.cli.outcome import job
from jobs.cli.readable import no_tables
from jobs.cli.session import start_run
from jobs.cli_enums import Engine, SqlFormat
from jobs.console.new_files import require_folder
from jobs.console.output import say
from jobs.errors import ArgumentError, SettingsError
from jobs.exit_codes import DONE, FAILED
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.queries.sql.sql import Answering


@job
def sql(
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="SQL", help="Run one statement and end.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Run statements that change tables, too: by default they are refused.")
    ] = False,
    warehouse: options.WarehouseOption = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", metavar="NAME", help="Show the rows of this Kafka cluster alone. [default: of all clusters]"
        ),
    ] = None,
    ddl: Annotated[
        bool,
        typer.Option("--ddl", help="Print the statements that register tables, views and functions in a catalogue."),
    ] = False,
    engine: Annotated[
        Engine | None, typer.Option("--engine", help="Dialect and engine. [default: duckdb; with --write spark]")
    ] = None,
    output_format: Annotated[
        SqlFormat, typer.Option("--format", help="How rows are printed; json: one object a line.")
    ] = SqlFormat.TABLE,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write the result of -e to a file, not to stdout.")
    ] = None,
) -> int:
    """SQL over the tables, as silver.offset_commits: a shell, or one statement with -e.

    It reads, in DuckDB's dialect; --engine spark has Spark SQL. Statements that change tables need --write.
    """
    if write and cluster_id is not None:
        raise SettingsError("--write and --cluster-id exclude each other: with --cluster-id names mean views")
    if write and engine is Engine.DUCKDB:
        raise SettingsError("--write needs Spark: leave out --engine duckdb")
    if output is not None and execute is None:
        raise SettingsError("--output has the result of one statement: name it with -e")
    if output_format is SqlFormat.PARQUET and output is None and (execute is None or sys.stdout.isatty()):
        raise SettingsError("--format parquet is for one statement, -e SQL, with --output FILE or into a pipe")
    require_folder(output)
    settings = settings_of(warehouse, cluster_id)
    from jobs.delta.warehouse import Warehouse
    from jobs.queries.as_of.in_log import require_cluster
    from jobs.queries.sql.sql import ddl as statements
    from jobs.queries.sql.sql import run_query, shell
    from jobs.queries.sql.sql_duckdb import DuckDb
    from jobs.queries.sql.sql_remarks import sql_remarks

    tables = Warehouse(settings.warehouse)
    answering: Answering = DuckDb(tables, cluster_id=cluster_id)
    if not answering.table_names:
        raise ArgumentError(no_tables(settings.warehouse))
    if cluster_id is not None:
        require_cluster(tables, cluster_id)
    if ddl:
        typer.echo("\n".join(statements(tables)))
        return DONE
    if write or engine is Engine.SPARK:
        answering = _spark(settings, cluster_id, may_write=write)
    if execute is None:
        failed_count = shell(answering, output_format)
        # nobody reads the errors of a script
        return FAILED if failed_count and not sys.stdin.isatty() else DONE
    with nullcontext(sys.stdout) if output is None else _written(output) as out:
        run_query(answering, execute, output_format, out)
    say(*sql_remarks(tables, cluster_id))
    return DONE


def _spark(settings: Settings, cluster_id: str | None, *, may_write: bool) -> "Answering":
    from jobs.queries.sql.sql_spark import Catalogue, has_metastore

    run = start_run("sql", settings)
    session = run.executor.session
    assert session is not None, "the session of the job"
    if cluster_id is not None and has_metastore(session):
        say("note: names of a metastore mean the rows of all clusters: add where cluster_id = ...")
    return Catalogue(session, run.warehouse, cluster_id=cluster_id, may_write=may_write)


@contextmanager
def _written(output: str) -> Iterator[TextIO]:
    """The file of a result, which stays as it is where there is no result."""
    from jobs.delta.filesystems import whole_file

    try:
        with (
            whole_file(Path(output).expanduser()) as raw,
            io.TextIOWrapper(cast("BinaryIO", raw), encoding="utf-8", newline="") as out,
        ):
            yield out
    except OSError as error:
        raise ArgumentError(f"--output {output} cannot be written: {error.strerror}: name another file") from error
