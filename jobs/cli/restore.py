"""The job restore: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import moment_of, reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import how_far, open_tables
from jobs.cli_enums import Format
from jobs.console.output import say


@job
def restore(
    group: Annotated[
        list[str],
        typer.Option("--group", metavar="GROUP", help="Group id; may be repeated.", autocompletion=known_names.GROUPS),
    ],
    at: Annotated[str, typer.Option("--at", metavar="TIME", help=options.TIME_HELP)],
    timezone: options.TimezoneOption = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="New file for the offsets. [default: none, a dry run]"),
    ] = None,
    log_offset: Annotated[
        int | None,
        typer.Option(
            "--log-offset",
            metavar="OFFSET",
            min=0,
            max=options.INT64_MAX,
            help="Where the log has that time more than once: the last log offset that counts.",
        ),
    ] = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """The offsets of groups at a time, as kafka-consumer-groups --reset-offsets --from-file takes them."""
    from jobs.queries.answers.restore import run_restore

    settings, at_ms = reading_settings(warehouse, cluster_id), moment_of(at, timezone)
    tables = open_tables("restore", settings)
    with how_far(tables, at_ms, group) as code:
        remarks = run_restore(
            tables, group_ids=group, at_ms=at_ms, output=output, output_format=output_format, log_offset=log_offset
        )
        say(*remarks)
    return code
