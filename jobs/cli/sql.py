"""The job sql: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli.arguments import settings_of
from jobs.cli.options import DebugOption, FormatOption, WarehouseOption
from jobs.cli.outcome import DONE, run_job, say
from jobs.cli.session import start_run
from jobs.cli_enums import Format
from jobs.console.command_name import command
from jobs.errors import JobError, SettingsError
from jobs.settings import first_night


def sql(
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="SQL", help="Run one statement and end.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Run statements that change tables, too: by default they are refused."),
    ] = False,
    warehouse: WarehouseOption = None,
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
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Spark SQL over the tables, as silver.offset_commits: a shell, or one statement with -e.

    It reads: statements that change tables need --write.
    """

    def job() -> int:
        from jobs.queries.sql import Catalogue, has_metastore, run_query, shell  # noqa: PLC0415

        if write and cluster_id is not None:
            raise SettingsError("--write and --cluster-id exclude each other: with --cluster-id names stand for views")
        settings = settings_of(warehouse, cluster_id)
        if ddl:
            from jobs.delta.warehouse import Warehouse  # noqa: PLC0415
            from jobs.queries.sql import ddl as statements  # noqa: PLC0415

            found = list(statements(Warehouse(settings.warehouse)))
            if not found:
                raise JobError(
                    f"no tables in {settings.warehouse}: run {command(first_night(settings.warehouse))} first"
                )
            typer.echo("\n".join(found))
            return DONE
        run = start_run("sql", settings)
        if cluster_id is not None and has_metastore(run.session):
            say("note: names of a metastore stand for the rows of all clusters: add where cluster_id = ...")
        catalogue = Catalogue(run.session, run.warehouse, cluster_id=cluster_id, may_write=write)
        if not catalogue.table_names:
            raise JobError(f"no tables in {settings.warehouse}: run {command(first_night(settings.warehouse))} first")
        if execute is None:
            shell(catalogue, output_format)
        else:
            run_query(catalogue, execute, output_format)
        return DONE

    run_job(job, debug)
