"""The jobs history and groups: their options, and how they are run."""

from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import optional_moment, reading_settings, span_of
from jobs.cli.outcome import job, say
from jobs.cli.readable import open_tables, remarks_in_log
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


@job
def history(
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group id.")],
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Events of a group, a line each: members, rebalances with causes, commit anomalies, what share groups gave up."""
    from jobs.queries.answers.group_history import run_history

    settings = reading_settings(warehouse, cluster_id)
    from_ms, to_ms = span_of(from_time, to_time, timezone)
    tables = open_tables("history", settings)
    remarks = run_history(tables, group_id=group, from_ms=from_ms, to_ms=to_ms, output_format=output_format)
    say(*remarks_in_log(tables, None, [group]), *remarks)
    return DONE


@job
def groups(
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="Only groups whose id contains this text.")
    ] = None,
    needs_attention: Annotated[
        bool, typer.Option("--needs-attention", help="Only groups whose verdict is not OK.")
    ] = False,
    from_time: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Count from then on. [default: the last day of the log]"),
    ] = None,
    timezone: options.TimezoneOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """All groups, each with a verdict and the reason: does it need attention? For the last day of the log."""
    from jobs.queries.answers.group_history import run_groups

    settings = reading_settings(warehouse, cluster_id)
    from_ms, tables = optional_moment(from_time, timezone), open_tables("groups", settings)
    remarks = run_groups(
        tables,
        from_ms=from_ms,
        match=match,
        needs_attention=needs_attention,
        output_format=output_format,
    )
    say(*remarks_in_log(tables, None), *remarks)
    return DONE
