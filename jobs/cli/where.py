"""The job where: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import check_client, reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import open_tables
from jobs.cli_enums import Format
from jobs.console.output import say
from jobs.exit_codes import DONE


@job
def where(
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="A group, of any type.", autocompletion=known_names.GROUPS),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            metavar="GROUP:TOPIC:PARTITION",
            help="A partition which a share group reads; TOPIC is a name or a topic id.",
        ),
    ] = None,
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A producer's transactional.id.")
    ] = None,
    partitions: options.PartitionsOption = None,
    bootstrap_server: options.BootstrapOption = None,
    command_config: options.CommandConfigOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Which partition of an internal topic holds a key, and which broker of a live cluster coordinates it."""
    from jobs.queries.answers.where import Asked, run_where

    settings = reading_settings(
        warehouse, cluster_id, bootstrap_servers=bootstrap_server, command_config=command_config, partitions=partitions
    )
    check_client(settings)
    asked = Asked(group or (), share or (), transactional_id or ())
    say(*run_where(asked, settings, lambda: open_tables("where", settings), output_format))
    return DONE
