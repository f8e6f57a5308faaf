"""The job where: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli.arguments import check_client, reading_settings
from jobs.cli.options import (
    BootstrapOption,
    ClusterOption,
    CommandConfigOption,
    DebugOption,
    FormatOption,
    PartitionsOption,
    WarehouseOption,
)
from jobs.cli.outcome import run_job
from jobs.cli.readable import open_tables
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


def where(
    group: Annotated[list[str] | None, typer.Option("--group", metavar="GROUP", help="A group, of any type.")] = None,
    share: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="GROUP:TOPIC:PARTITION", help="A partition which a share group reads."),
    ] = None,
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A producer's transactional.id.")
    ] = None,
    partitions: PartitionsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Which partition of an internal topic holds a key, and which broker of a live cluster coordinates it."""

    def job() -> int:
        from jobs.queries.where import Asked, run_where  # noqa: PLC0415

        settings = reading_settings(
            warehouse,
            cluster_id,
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            partitions=partitions,
        )
        check_client(settings)
        asked = Asked(group or (), share or (), transactional_id or ())
        run_where(asked, settings, lambda: open_tables("where", settings), output_format)
        return DONE

    run_job(job, debug)
