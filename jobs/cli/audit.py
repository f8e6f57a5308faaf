"""The job audit: its options, and how it is run."""

from dataclasses import asdict
from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import check_client, goes_with, reading_settings, span_of
from jobs.cli.outcome import job
from jobs.cli.readable import require_tables
from jobs.cli.session import start_run
from jobs.cli_enums import Format, Listing
from jobs.errors import ArgumentError
from jobs.exit_codes import DONE, INCOMPLETE


@job
def audit(
    *,
    group: options.GroupsOption = None,
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    listing: Annotated[Listing, typer.Option("--list", help="What is listed.")] = Listing.ARCHIVED,
    payload: options.PayloadOption = False,
    values: options.ValuesOption = False,
    dead_letter_topic: options.DeadLetterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make gold again, even if nothing is new.")] = False,
    logs: options.LogOptions,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Make gold from silver, and print a list (archived records, owners ...); its first lines say if it is complete."""
    of_payload = {"--values": values, "--dead-letter-topic": dead_letter_topic, "--segments": logs.segments}
    for option, given in {**of_payload, "--bootstrap-server": logs.bootstrap_servers}.items():
        goes_with(option, given, "--payload", payload)
    if payload and listing not in (Listing.ARCHIVED, Listing.WITHOUT_COPY):
        raise ArgumentError(f"--payload is for --list archived and --list without-copy, not for {listing}")
    settings = reading_settings(**asdict(logs))
    from_ms, to_ms = span_of(from_time, to_time, timezone)
    require_tables(settings)
    if payload:
        check_client(settings)
    from jobs.delta.cluster_tables import ClusterTables
    from jobs.delta.locks import AUDIT, NIGHTLY, is_at_work
    from jobs.delta.warehouse import Warehouse
    from jobs.gold.audit import is_audited
    from jobs.operations.damage import damaged_files
    from jobs.queries.answers.audit_report import Span, run_audit_report

    tables = ClusterTables(Warehouse(settings.warehouse), settings.cluster_id)
    is_damaged = bool(damaged_files(tables.warehouse, settings.cluster_id, ("audit",)))
    # a list is of the last whole audit while a job makes the next: nobody waits for a night, and no night for a reader
    is_being_made = any(is_at_work(tables.warehouse, it, settings.cluster_id) for it in (NIGHTLY, AUDIT))
    if rebuild or (not is_being_made and (is_damaged or not is_audited(tables, settings.inference))):
        run = start_run("audit", settings, meanwhile=".gold.audit")
        from jobs.operations.nightly import run_audit

        run_audit(run, rebuild=rebuild)
    if payload:
        from jobs.queries.answers.audit_payload import run_payload

        is_complete = run_payload(
            tables,
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
        listing=listing,
        span=Span(from_ms, to_ms),
        group_ids=group or None,
        partition_counts=settings.partition_counts,
        output_format=output_format,
    )
    return DONE if is_complete else INCOMPLETE
