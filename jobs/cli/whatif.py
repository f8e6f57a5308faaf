"""The job whatif: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import reading_settings, span_of
from jobs.cli.outcome import job
from jobs.cli.readable import how_far, open_tables
from jobs.cli_enums import Format
from jobs.console.output import say


@job
def whatif(
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="The group.", autocompletion=known_names.GROUPS)
    ],
    changed: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting to change; may be repeated: session.timeout.ms, group.consumer.session.timeout.ms, "
            "group.initial.rebalance.delay.ms, group.instance.id (static or dynamic), assignor, group.protocol, "
            "max.poll.interval.ms; of share groups share.delivery.count.limit, share.record.lock.duration.ms, "
            "share.partition.max.record.locks, share.session.timeout.ms, share.heartbeat.interval.ms.",
        ),
    ],
    recorded: Annotated[
        list[str] | None,
        typer.Option(
            "--recorded",
            metavar="NAME=VALUE",
            help="A setting that was in force, if the log lacks it; may be repeated. [default: Kafka's defaults]",
        ),
    ] = None,
    kafka_version: options.PlayedVersionOption = None,
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """A group's recorded history under other settings: what would have changed, and what the log cannot show."""
    from jobs.laboratory.whatif import asked, print_rows
    from jobs.laboratory.whatif import whatif as run_whatif
    from jobs.queries.as_of.caveats import log_remarks

    settings = reading_settings(warehouse, cluster_id)
    from_ms, to_ms = span_of(from_time, to_time, timezone)
    question = asked(changed, recorded or (), settings, kafka_version)
    tables = open_tables("whatif", settings)
    with how_far(tables, to_ms, [group]) as code:
        try:
            rows = run_whatif(tables, group_id=group, question=question, from_ms=from_ms, to_ms=to_ms)
            print_rows(rows, output_format)
        finally:  # why there is nothing to play may be among them
            say(*log_remarks(tables, [group]))
    return code
