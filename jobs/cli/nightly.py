"""The job nightly: its options, and how it is run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli.arguments import check_client, settings_of
from jobs.cli.options import (
    BootstrapOption,
    ClusterOption,
    CommandConfigOption,
    CopiedAtOption,
    DebugOption,
    DumpFormatOption,
    DumpOption,
    PartitionsOption,
    SegmentsOption,
    SummaryFormatOption,
    TopicOption,
    WarehouseOption,
)
from jobs.cli.outcome import FAILED, facts_of, print_facts, run_job
from jobs.cli.session import start_run
from jobs.cli_enums import SummaryFormat
from jobs.settings import require_source

if TYPE_CHECKING:
    from jobs.operations.run_context import RunContext


def nightly(
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    segments: SegmentsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    dump: DumpOption = None,
    dump_format: DumpFormatOption = None,
    topic: TopicOption = None,
    partitions: PartitionsOption = None,
    copied_at: CopiedAtOption = None,
    report_file: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="Write the report, too: as the job report does without --group."),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="FILE.json|COMMAND",
            help="Hand over what was found: FILE.json and FILE.md, or a command that gets the JSON on stdin.",
        ),
    ] = None,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Capture from the sources, replay, audit; then say what was found and where to look.

    A run reads what is new since the last one. It ends with the ledger: every record that went in came out as
    something, or is in quarantine.
    """

    def job() -> int:
        settings = settings_of(
            warehouse,
            cluster_id,
            segments,
            topic,
            bootstrap_server,
            command_config,
            dump,
            dump_format,
            report_file,
            partitions=partitions,
            copied_at=copied_at,
        )
        require_source(settings)
        check_client(settings)
        run = start_run("nightly", settings, meanwhile=".operations.nightly")
        from jobs.operations.nightly import run_nightly  # noqa: PLC0415

        try:
            code = run_nightly(run)
        except Exception as error:
            if notify is not None:
                _notify(notify, {**facts_of("nightly", run, run.steps, FAILED), "error": str(error)}, run)
            raise
        if notify is not None:
            _notify(notify, facts_of("nightly", run, run.steps, code), run)
        return print_facts("nightly", run, run.steps, code, output_format)

    run_job(job, debug)


def _notify(target: str, facts: dict[str, Any], run: "RunContext") -> None:
    from jobs.operations.notify import attention, deliver, markdown_of, with_attention  # noqa: PLC0415

    groups = [] if "error" in facts else attention(run.warehouse, run.settings.cluster_id)
    deliver(target, with_attention(facts, groups), markdown_of(facts, groups, run.settings), run.steps.say)
