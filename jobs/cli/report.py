"""The job report: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import reading_settings, span_of
from jobs.cli.outcome import job, print_facts
from jobs.cli.readable import how_far, open_tables
from jobs.cli.session import Run
from jobs.cli_enums import SummaryFormat


@job
def report(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE",
            help="The HTML file to write; {cluster_id} in its name is replaced by the cluster.",
        ),
    ],
    group: options.GroupsOption = None,
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
    previous: Annotated[
        str | None,
        typer.Option(
            "--previous",
            metavar="FILE",
            help="The report to compare with, for what changed since; by default the one that is replaced.",
        ),
    ] = None,
) -> int:
    """One HTML file that opens offline: what groups cost, who owned what, why it moved, what was given up.

    Without --group: the whole cluster, and the groups that stand out. Gold must be there: nightly or audit makes it.
    """
    from jobs.console.progress import Steps
    from jobs.queries.as_of.in_log import require_in_any_log
    from jobs.report.run import write_report
    from jobs.report.sql_text import Scope

    settings = reading_settings(warehouse, cluster_id)
    from_ms, to_ms = span_of(from_time, to_time, timezone)
    run, steps = Run.start(), Steps()
    tables = open_tables("report", settings)
    require_in_any_log(tables, from_ms, to_ms)
    with how_far(tables, to_ms) as code:
        write_report(
            tables.warehouse,
            settings,
            output=output,
            made_at=run.started_at,
            steps=steps,
            scope=Scope(settings.cluster_id, tuple(sorted(set(group))) if group else None, from_ms, to_ms),
            previous=previous,
        )
    return print_facts("report", run, steps, code, output_format)
