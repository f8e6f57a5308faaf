"""The job sql: its options, and how it is run."""

import sys
from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import settings_of
from jobs.cli.outcome import job, say
from jobs.cli.readable import no_tables
from jobs.cli.session import start_run
from jobs.cli_enums import Engine, Format
from jobs.errors import JobError, SettingsError
from jobs.exit_codes import DONE


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
        Engine,
        typer.Option(
            "--engine", help="Engine that runs the query; auto: DuckDB if the query means the same to both, else Spark."
        ),
    ] = Engine.AUTO,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Spark SQL over the tables, as silver.offset_commits: a shell, or one statement with -e.

    It reads: statements that change tables need --write. Simple ones are answered by DuckDB, without Spark.
    """
    if write and cluster_id is not None:
        raise SettingsError("--write and --cluster-id exclude each other: with --cluster-id names mean views")
    if write and engine is Engine.DUCKDB:
        raise SettingsError("--write needs Spark: leave out --engine duckdb")
    settings = settings_of(warehouse, cluster_id)
    from jobs.delta.warehouse import Warehouse
    from jobs.queries.sql import Catalogue, has_metastore, run_query, shell
    from jobs.queries.sql import ddl as statements
    from jobs.queries.sql_duckdb import DuckDb
    from jobs.queries.sql_engines import Engines
    from jobs.queries.sql_remarks import sql_remarks
    from jobs.spark.settings import own_sql_settings

    tables = Warehouse(settings.warehouse)
    duckdb = DuckDb(tables, cluster_id=cluster_id)
    if not duckdb.table_names:
        raise JobError(no_tables(settings.warehouse))
    if ddl:
        typer.echo("\n".join(statements(tables)))
        return DONE

    def start() -> Catalogue:
        run = start_run("sql", settings)
        if cluster_id is not None and has_metastore(run.session):
            say("note: names of a metastore mean the rows of all clusters: add where cluster_id = ...")
        return Catalogue(run.session, run.warehouse, cluster_id=cluster_id, may_write=write)

    own = own_sql_settings()
    if own and engine is Engine.DUCKDB:
        raise SettingsError(f"DuckDB does not know Spark's {', '.join(own)}: leave out --engine duckdb")
    chosen = Engine.SPARK if own or write else engine
    engines = Engines(duckdb, start, engine=chosen, say=_say_on_a_terminal)
    if execute is None:
        shell(engines, output_format)
    else:
        run_query(engines, execute, output_format)
        say(*sql_remarks(tables, cluster_id))
    return DONE


def _say_on_a_terminal(text: str) -> None:
    """For a waiting user; in the log of a program it would be noise."""
    if sys.stderr.isatty():
        say(text)
