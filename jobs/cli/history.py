"""The jobs history and groups: their options, and how they are run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import optional_moment, reading_settings, span_of
from jobs.cli.outcome import job
from jobs.cli.readable import how_far, open_tables
from jobs.cli_enums import Format
from jobs.console.output import say


@job
def history(
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="The group id.", autocompletion=known_names.GROUPS)
    ],
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    diagram: options.DiagramOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Events of a group, a line each: members, rebalances with causes, commit anomalies, what share groups gave up."""
    from jobs.console.sequence_diagram import require_diagram, write_diagram
    from jobs.queries.answers.group_diagram import conversation_of
    from jobs.queries.answers.group_history import run_history
    from jobs.queries.as_of.as_of import GROUPS_LOG
    from jobs.queries.as_of.in_log import require_in_log

    require_diagram(diagram)
    settings = reading_settings(warehouse, cluster_id)
    from_ms, to_ms = span_of(from_time, to_time, timezone)
    tables = open_tables("history", settings)
    require_in_log(tables, GROUPS_LOG, from_ms, to_ms, [group])
    with how_far(tables, to_ms, [group]) as code:
        say(*run_history(tables, group_id=group, from_ms=from_ms, to_ms=to_ms, output_format=output_format))
        if diagram is not None:
            write_diagram(conversation_of(tables, group, from_ms, to_ms), diagram)
    return code


@job
def groups(
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="Only groups whose id contains this text.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Only groups that commit to this topic or are assigned it.",
            autocompletion=known_names.TOPICS,
        ),
    ] = None,
    needs_attention: Annotated[
        bool, typer.Option("--needs-attention", help="Only groups whose verdict is not OK.")
    ] = False,
    gone: Annotated[bool, typer.Option("--gone", help="Groups that were deleted, too.")] = False,
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
    from jobs.queries.as_of.in_log import require_in_any_log

    settings = reading_settings(warehouse, cluster_id)
    from_ms, tables = optional_moment(from_time, timezone), open_tables("groups", settings)
    require_in_any_log(tables, from_ms, None)
    with how_far(tables) as code:
        remarks = run_groups(
            tables,
            from_ms=from_ms,
            match=match,
            topic=topic,
            needs_attention=needs_attention,
            gone=gone,
            output_format=output_format,
        )
        say(*remarks)
    return code
