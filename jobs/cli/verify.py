"""The job verify: its options, and how it is run."""

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import check_client, settings_of
from jobs.cli.outcome import job
from jobs.cli.readable import open_tables
from jobs.cli.session import start_run
from jobs.cli_enums import Format
from jobs.console.output import say
from jobs.errors import JobError
from jobs.exit_codes import DONE, FAILED, INCOMPLETE

if TYPE_CHECKING:
    from jobs.delta.cluster_tables import ClusterTables


@job
def verify(
    group: options.GroupsOption = None,
    captured: Annotated[
        bool, typer.Option("--captured", help="Compare with what the warehouse has; capture and replay nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what is equal, too.")] = False,
    bootstrap_server: options.BootstrapOption = None,
    command_config: options.CommandConfigOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Compare the tables with what a live cluster reports: groups, members, assignments, offsets, share states.

    Exit code 1 if anything is different, 3 if something cannot be decided.
    """
    from coordinator_core.history.comparison_with_broker import Verdict
    from jobs.queries.verify.verify import run_verify

    settings = settings_of(warehouse, cluster_id, bootstrap_servers=bootstrap_server, command_config=command_config)
    check_client(settings)

    def caught_up() -> "ClusterTables":
        run = start_run("verify", settings, meanwhile=".operations.nightly", has_metrics=False)
        from jobs.operations.nightly import run_catch_up

        if run_catch_up(run) == FAILED:
            raise JobError("the counts of the replay do not balance: nothing was compared")
        return run.tables

    worst = run_verify(
        settings,
        (lambda: open_tables("verify", settings)) if captured else caught_up,
        group_ids=group or None,
        output_format=output_format,
        verbose=verbose,
        say=say,
    )
    return {Verdict.DIFFERENT: FAILED, Verdict.CANNOT_TELL: INCOMPLETE}.get(worst, DONE)
