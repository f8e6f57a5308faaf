"""The job replay: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import settings_of
from jobs.cli.outcome import job, print_facts
from jobs.cli.readable import require_tables
from jobs.cli.session import start_run
from jobs.cli_enums import SummaryFormat


@job
def replay(
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Replay all again, even if nothing is new.")] = False,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
) -> int:
    """Replay bronze into the silver tables."""
    settings = settings_of(warehouse, cluster_id)
    require_tables(settings)
    run = start_run("replay", settings, meanwhile=".operations.nightly")
    from jobs.operations.nightly import run_replay

    code = run_replay(run, rebuild=rebuild)
    return print_facts("replay", run, run.steps, code, output_format)
