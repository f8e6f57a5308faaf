"""The job replay: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli.arguments import settings_of
from jobs.cli.options import ClusterOption, DebugOption, SummaryFormatOption, WarehouseOption
from jobs.cli.outcome import print_facts, run_job
from jobs.cli.session import start_run
from jobs.cli_enums import SummaryFormat


def replay(
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Replay all again, even if nothing is new.")] = False,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Replay bronze into the silver tables."""

    def job() -> int:
        settings = settings_of(warehouse, cluster_id)
        run = start_run("replay", settings, meanwhile=".operations.nightly")
        from jobs.operations.nightly import run_replay  # noqa: PLC0415

        code = run_replay(run, rebuild=rebuild)
        return print_facts("replay", run, run.steps, code, output_format)

    run_job(job, debug)
