"""The job nightly: its options, and how it is run."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_core.text import counted
from jobs.cli import options
from jobs.cli.arguments import at_most_one, check_client, check_folders, goes_with, settings_of
from jobs.cli.outcome import facts_of, failure_code, job, print_facts
from jobs.cli.session import Run, start_run
from jobs.cli_enums import SummaryFormat
from jobs.errors import ArgumentError
from jobs.exit_codes import DONE, FAILED, INCOMPLETE
from jobs.settings import CLUSTER_PLACE, load_clusters, require_source

if TYPE_CHECKING:
    from jobs.operations.run_context import RunContext


@job
def nightly(
    sources: options.SourceOptions,
    report_file: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="Write the report of the cluster, too, as the job report does."),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="FILE.json|COMMAND",
            help="Write the findings to FILE.json and FILE.md, or give them to a command as JSON on stdin.",
        ),
    ] = None,
    all_clusters: Annotated[
        bool,
        typer.Option(
            "--all-clusters", help="Each cluster of [clusters] in the settings, as many at a time as there are cores."
        ),
    ] = False,
    notify_always: Annotated[
        bool, typer.Option("--notify-always", help="Notify of a night with nothing new, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print also what was captured, replayed and inferred, in tables.")
    ] = False,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
) -> int:
    """Capture from the sources, replay, audit; then say what is new, what is still open, and where to look.

    A run reads what is new since the last one. Every record that went in came out as something, or is in quarantine:
    the ledger, on stderr, adds them up.
    """
    at_most_one({"--quiet": quiet, "--verbose": verbose})
    if all_clusters:
        has_own = notify is not None or any(asdict(replace(sources, warehouse=None)).values())
        return _all_clusters(sources.warehouse, report_file, output_format, has_own=has_own, is_quiet=quiet)
    goes_with("--notify-always", notify_always, "--notify", notify)
    settings = settings_of(**asdict(sources), report_file=report_file)
    require_source(settings)
    from jobs.console.progress import Steps

    begun: Run | RunContext = Run.start()
    steps = Steps()
    try:
        check_folders(settings)
        check_client(settings)
        begun = run = start_run("nightly", settings, meanwhile=".operations.nightly")
        steps = run.steps
        steps.show(is_quiet=quiet, has_tables=verbose, is_answered=output_format is SummaryFormat.TABLE)
        from jobs.operations.nightly import run_nightly

        code = run_nightly(run)
        if notify is not None:
            from jobs.operations.notify import attention, is_news, tell

            facts = facts_of("nightly", run, steps, code)
            if notify_always or is_news(facts):
                tell(notify, facts, attention(run.tables), settings)
    except Exception as error:
        if notify is not None:
            from jobs.operations.damage import error_text
            from jobs.operations.notify import tell

            facts = facts_of("nightly", begun, steps, failure_code(error))
            tell(notify, {**facts, "error": error_text(error)}, [], settings)
        raise
    return print_facts("nightly", run, steps, code, output_format)


def _all_clusters(
    warehouse: str | None, report_file: str | None, output_format: SummaryFormat, *, has_own: bool, is_quiet: bool
) -> int:
    """Run the nightlies of all clusters. `has_own`: options that are of one cluster are given. Returns the worst exit
    code."""
    if has_own:
        raise ArgumentError(
            "--all-clusters takes clusters and their sources from [clusters] in the settings: leave out --cluster-id, "
            "the options that name sources, and --notify"
        )
    clusters = load_clusters({"warehouse": warehouse, "report_file": report_file})
    if clusters[0].report_file and CLUSTER_PLACE not in clusters[0].report_file and len(clusters) > 1:
        raise ArgumentError(
            f"each cluster has a report of its own: put {CLUSTER_PLACE} into the name, as report-{CLUSTER_PLACE}.html"
        )
    for settings in clusters:
        check_client(settings)
    from jobs.console.progress import Steps
    from jobs.operations.clusters import run_clusters, worst
    from jobs.spark.run_folder import use_run_folder

    use_run_folder()
    run, steps = Run.start(), Steps()
    steps.show(is_quiet=is_quiet, has_tables=False, is_answered=output_format is SummaryFormat.TABLE)
    nights = run_clusters(clusters, run_id=run.run_id, started_at=run.started_at, say=steps.answer)
    code = worst(nights)
    counts = [sum(night.exit_code == outcome for night in nights) for outcome in (DONE, INCOMPLETE, FAILED)]
    steps.answer(
        f"{counted(len(nights), 'cluster')}: {counts[0]:,} done, {counts[1]:,} with something missing or not read, "
        f"{counts[2]:,} failed (exit code {code})"
    )
    if clusters[0].report_file and len(clusters) > 1:
        from jobs.delta.warehouse import Warehouse
        from jobs.report.run import write_index

        codes = {night.cluster_id: night.exit_code for night in nights}
        page = write_index(Warehouse(clusters[0].warehouse), clusters[0], codes, made_at=run.started_at)
        steps.say(f"{page}: the first page over the reports of all clusters")
    steps.facts["clusters"] = [night.as_json() for night in nights]
    return print_facts("nightly", run, steps, code, output_format)
