"""How a job ends: its exit code, its error in one line, its facts as JSON."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Final

import typer

from jobs.cli.options import DebugOption, WideOption
from jobs.cli_enums import SummaryFormat
from jobs.console.output import IS_WIDE, json_line, say
from jobs.errors import JobError, TableDamaged
from jobs.exit_codes import DONE, FAILED, INTERRUPTED

if TYPE_CHECKING:
    from jobs.cli.session import Run
    from jobs.console.progress import Steps
    from jobs.operations.run_context import RunContext

PARSE_ONLY: Final = "GROUPLEDGER_PARSE_ONLY"
"""Set by bootstrap.py, which first parses the command line without Spark: wrong arguments and --help need none."""
PARSED: Final = 64
"""Exit code in that case, if there is a job to run."""


def print_facts(job: str, run: "Run | RunContext", steps: "Steps", code: int, output_format: SummaryFormat) -> int:
    """Print the facts of a job that writes tables as one JSON object on stdout, if requested.

    Returns the exit code unchanged.
    """
    if output_format is SummaryFormat.JSON:
        typer.echo(json_line(facts_of(job, run, steps, code)), nl=False)
    return code


def facts_of(job: str, run: "Run | RunContext", steps: "Steps", code: int) -> dict[str, Any]:
    """The facts of a job, for other programs."""
    started_at = run.started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"job": job, "run_id": run.run_id, "started_at": started_at, "exit_code": code, **steps.facts}


def job(function: Callable[..., int]) -> Callable[..., None]:
    """The command of a job: `run_job` runs its function, which returns the exit code, and it has --debug; one that
    prints tables has --wide.

    A parameter whose type is a dataclass gives an option for each field.
    """
    given = signature(function).parameters.values()
    classes: dict[str, Any] = {one.name: one.annotation for one in given if is_dataclass(one.annotation)}

    @wraps(function)
    def command(*, debug: bool, wide: bool = False, **chosen: Any) -> None:
        IS_WIDE.set(wide)
        for name, of in classes.items():
            chosen[name] = of(**{field.name: chosen.pop(field.name) for field in fields(of)})
        run_job(lambda: function(**chosen), debug)

    parameters = [
        option
        for one in given
        for option in (signature(one.annotation).parameters.values() if one.name in classes else (one,))
    ]
    own = {"debug": DebugOption}
    if any(one.name == "output_format" and not isinstance(one.default, SummaryFormat) for one in given):
        own["wide"] = WideOption
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=of) for name, of in own.items()]
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [option.replace(kind=Parameter.KEYWORD_ONLY) for option in parameters]
    )
    return command


def exit_code_of(run: Callable[[], object]) -> int:
    """Of a command line, which ends by SystemExit."""
    try:
        run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return DONE


def failure_code(error: Exception) -> int:
    """The exit code of a job that ended with an error."""
    return error.exit_code if isinstance(error, JobError) else FAILED


def run_job(job: Callable[[], int], debug: bool) -> None:
    """Run a job and exit with its exit code; an error becomes one line."""
    if os.environ.get(PARSE_ONLY):
        raise typer.Exit(PARSED)
    try:
        code = job()
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # the reader of our output closed the pipe
        with suppress(OSError):
            sys.stdout.close()
        code = DONE
    except Exception as error:
        if debug:
            raise
        text = str(error)
        if not isinstance(error, JobError) or TableDamaged.of(error) is not None:
            from jobs.operations.damage import error_text

            text = error_text(error)
        say(f"error: {text}")
        code = failure_code(error)
    raise typer.Exit(code)
