"""The job owner: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import optional_moment, reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import how_far, open_tables
from jobs.cli_enums import Format
from jobs.console.output import say


@job
def owner(
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="The topic.", autocompletion=known_names.TOPICS)
    ],
    partition: Annotated[
        int, typer.Option("--partition", metavar="PARTITION", min=0, max=options.PARTITION_MAX, help="The partition.")
    ],
    at: options.AtOption = None,
    timezone: options.TimezoneOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Who owned a partition at a time, in every group that reads it."""
    from jobs.queries.answers.owner import run_owner

    settings = reading_settings(warehouse, cluster_id)
    at_ms, tables = optional_moment(at, timezone), open_tables("owner", settings)
    with how_far(tables, at_ms) as code:
        remarks = run_owner(tables, topic=topic, partition=partition, at_ms=at_ms, output_format=output_format)
        say(*remarks)
    return code
