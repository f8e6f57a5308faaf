"""The job audit: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli.arguments import check_client, reading_settings, span_of
from jobs.cli.options import (
    BootstrapOption,
    ClusterOption,
    CommandConfigOption,
    DeadLetterOption,
    DebugOption,
    FormatOption,
    FromOption,
    GroupsOption,
    PartitionsOption,
    PayloadOption,
    SegmentsOption,
    TimezoneOption,
    ToOption,
    ValuesOption,
    WarehouseOption,
)
from jobs.cli.outcome import run_job
from jobs.cli.session import start_run
from jobs.cli_enums import Format, Listing
from jobs.exit_codes import DONE, INCOMPLETE


def audit(
    group: GroupsOption = None,
    from_time: FromOption = None,
    to_time: ToOption = None,
    timezone: TimezoneOption = None,
    listing: Annotated[Listing, typer.Option("--list", help="What is listed.")] = Listing.ARCHIVED,
    payload: PayloadOption = False,
    values: ValuesOption = False,
    segments: SegmentsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    partitions: PartitionsOption = None,
    dead_letter_topic: DeadLetterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make gold again, even if nothing is new.")] = False,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Make gold from silver, and print a list (archived records, owners ...); its first lines say if it is complete."""

    def job() -> int:
        settings = reading_settings(
            warehouse,
            cluster_id,
            segments=segments,
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            partitions=partitions,
        )
        from_ms, to_ms = span_of(from_time, to_time, timezone)
        if payload:
            check_client(settings)
        from jobs.delta.warehouse import Warehouse  # noqa: PLC0415
        from jobs.gold.audit import is_audited  # noqa: PLC0415
        from jobs.queries.audit_report import Span, run_audit_report  # noqa: PLC0415

        tables = Warehouse(settings.warehouse)
        if rebuild or not is_audited(tables, settings.cluster_id, settings.inference):
            run = start_run("audit", settings, meanwhile=".gold.audit")
            from jobs.operations.nightly import run_audit  # noqa: PLC0415

            run_audit(run, rebuild=rebuild)
        if payload:
            from jobs.queries.audit_payload import run_payload  # noqa: PLC0415

            is_complete = run_payload(
                tables,
                settings.cluster_id,
                span=Span(from_ms, to_ms),
                group_ids=group or None,
                sources=settings.segments,
                cluster=settings.broker_address,
                timeout_ms=settings.request_timeout_ms,
                dead_letter_topics=dead_letter_topic or (),
                without_copy=listing is Listing.WITHOUT_COPY,
                partition_counts=settings.partition_counts,
                with_values=values,
                output_format=output_format,
            )
            return DONE if is_complete else INCOMPLETE
        is_complete = run_audit_report(
            tables,
            settings.cluster_id,
            listing=listing,
            span=Span(from_ms, to_ms),
            group_ids=group or None,
            partition_counts=settings.partition_counts,
            output_format=output_format,
        )
        return DONE if is_complete else INCOMPLETE

    run_job(job, debug)
