"""The job capture: its options, and how it is run."""

from dataclasses import asdict, astuple
from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import at_most_one, check_client, check_folders, settings_of
from jobs.cli.outcome import job, print_facts
from jobs.cli.session import Run, start_run
from jobs.cli_enums import SummaryFormat
from jobs.errors import SettingsError
from jobs.exit_codes import DONE
from jobs.settings import Settings, require_source


@job
def capture(
    sources: options.SourceOptions,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="Keep running: capture what is new in the live cluster every 10s, 1m, ..., until SIGTERM or Ctrl-C.",
        ),
    ] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="As --every 1s.")] = False,
    stop_after: Annotated[
        str | None,
        typer.Option("--stop-after", metavar="DURATION", help="With --every or --continuous: stop after this time."),
    ] = None,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
) -> int:
    """Read the sources and add to bronze what it lacks: once, or repeatedly."""
    settings = settings_of(**asdict(sources))
    every_ms, stop_after_ms = _periods(every, continuous, stop_after, settings)
    require_source(settings)
    check_folders(settings)
    check_client(settings)
    run = start_run("capture", settings, meanwhile=".operations.nightly")
    from jobs.operations.nightly import run_capture

    if every_ms is not None:
        from jobs.operations.continuous_capture import run_continuously

        run_continuously(run, every_ms=every_ms, stop_after_ms=stop_after_ms, new_run=lambda: astuple(Run.start()))
        return print_facts("capture", run, run.steps, DONE, output_format)
    code = run_capture(run)
    return print_facts("capture", run, run.steps, code, output_format)


def _periods(
    every: str | None, continuous: bool, stop_after: str | None, settings: Settings
) -> tuple[int | None, int | None]:
    """(milliseconds between triggers, None: once; milliseconds until the end, None: no limit)."""
    from jobs.console.durations import parse_duration

    at_most_one({"--every": every, "--continuous": continuous})
    if every is None and not continuous:
        if stop_after is not None:
            raise SettingsError("--stop-after needs --every or --continuous")
        return None, None
    if not settings.bootstrap_servers:
        raise SettingsError("--every and --continuous capture a live cluster: name it with --bootstrap-server")
    every_ms = parse_duration("--every", every or "1s")
    return every_ms, None if stop_after is None else parse_duration("--stop-after", stop_after)
