"""The job describe: its options, and how it is run."""

from functools import partial
from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import at_most_one, check_client, optional_moment, reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import how_far, open_tables
from jobs.cli_enums import Format, Tool, View
from jobs.console.output import say
from jobs.errors import SettingsError
from jobs.exit_codes import DONE


@job
def describe(
    group: options.GroupsOption = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups, as without --group.")] = False,
    at: options.AtOption = None,
    timezone: options.TimezoneOption = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets. This is the default.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Members and their assignments.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, epochs and number of members.")] = False,
    topology: Annotated[
        bool,
        typer.Option(
            "--topology", help="Topologies of streams groups as their clients described them; needs --bootstrap-server."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="All columns, as in Kafka's tools.")] = False,
    kind: Annotated[
        Tool | None,
        typer.Option(
            "--tool",
            help="Only what this tool prints: kafka-consumer-groups, kafka-share-groups or kafka-streams-groups.",
        ),
    ] = None,
    bootstrap_server: options.BootstrapOption = None,
    command_config: options.CommandConfigOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """What Kafka's tools would have printed with --describe, at any time."""
    from jobs.queries.answers.describe import run_describe

    views = [view for view, is_asked in zip(View, (offsets, members, state), strict=True) if is_asked]
    at_most_one({"--offsets": offsets, "--members": members, "--state": state, "--topology": topology})
    at_most_one({"--group": group, "--all-groups": all_groups})
    if topology and bootstrap_server is None:
        raise SettingsError("no log has descriptions of topologies: --topology needs --bootstrap-server")
    if topology and kind not in (None, Tool.STREAMS):
        raise SettingsError("--topology shows streams groups only: leave out --tool")
    if bootstrap_server is not None and (at is not None or not (state or topology)):
        raise SettingsError(
            "--bootstrap-server adds the current coordinators to --state, and gives the current topologies to "
            "--topology: use it with one of these, without --at"
        )
    settings = reading_settings(
        warehouse, cluster_id, bootstrap_servers=bootstrap_server, command_config=command_config
    )
    check_client(settings)
    if topology:
        from jobs.queries.answers.topology import run_topology

        say(*run_topology(settings, group_ids=group or None, output_format=output_format))
        return DONE
    coordinators = None
    if bootstrap_server is not None:
        from jobs.queries.as_of.coordinators import coordinators_of_cluster

        coordinators = partial(coordinators_of_cluster, settings)
    at_ms, tables = optional_moment(at, timezone), open_tables("describe", settings)
    with how_far(tables, at_ms, group) as code:
        remarks = run_describe(
            tables,
            view=views[0] if views else View.OFFSETS,
            at_ms=at_ms,
            group_ids=group or None,
            tool=kind,
            verbose=verbose,
            output_format=output_format,
            sample_age_max_ms=settings.inference.lag_sample_age_max_ms,
            coordinators=coordinators,
        )
        say(*remarks)
    return code
