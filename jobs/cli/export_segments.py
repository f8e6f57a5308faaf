"""The job export-segments: its options, and how it is run."""

from typing import Annotated

import typer

from coordinator_core.text import counted
from jobs.cli import options
from jobs.cli.arguments import reading_settings
from jobs.cli.outcome import job, print_facts
from jobs.cli.session import start_run
from jobs.cli_enums import SummaryFormat
from jobs.exit_codes import DONE


@job
def export_segments(
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="New or empty folder for the segments.")],
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    topic: options.TopicOption = None,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
) -> int:
    """Write what bronze holds as .log files, which Kafka's own tools read."""
    from jobs.bronze.export_segments import export_segments as run_export
    from jobs.console.progress import size_text

    settings = reading_settings(warehouse, cluster_id)
    run = start_run("export-segments", settings)
    with run.steps.step("export-segments"):
        written = run_export(
            run.executor, run.warehouse, cluster_id=settings.cluster_id, output=output, topics=topic or None
        )
    segment_count = sum(item.segment_count for item in written)
    size_bytes = sum(item.size_bytes for item in written)
    if output_format is SummaryFormat.TABLE:
        size = size_text(size_bytes)
        typer.echo(f"{counted(segment_count, 'segment')} of {counted(len(written), 'log partition')}, {size}: {output}")
    run.steps.facts["exported"] = {
        "output": output,
        "log_partition_count": len(written),
        "segment_count": segment_count,
        "size_bytes": size_bytes,
    }
    return print_facts("export-segments", run, run.steps, DONE, output_format)
