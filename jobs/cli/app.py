"""The command line: one command for each job. Heavy imports happen when a job runs, so --help is fast.

Each job has a module of its name with its options. Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 done but
something was quarantined or is missing.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from jobs import __version__
from jobs.cli.audit import audit
from jobs.cli.capture import capture
from jobs.cli.changes import changes
from jobs.cli.demo import demo
from jobs.cli.describe import describe
from jobs.cli.explain import explain
from jobs.cli.export_segments import export_segments
from jobs.cli.help_texts import ROOT_EPILOG, SUMMARIES, epilog
from jobs.cli.history import groups, history
from jobs.cli.maintain import maintain
from jobs.cli.nightly import nightly
from jobs.cli.outcome import exit_code_of
from jobs.cli.owner import owner
from jobs.cli.replay import replay
from jobs.cli.report import report
from jobs.cli.restore import restore
from jobs.cli.simulate import simulate
from jobs.cli.sql import sql
from jobs.cli.verify import verify
from jobs.cli.whatif import whatif
from jobs.cli.where import where
from jobs.cli_enums import Shell
from jobs.console.command_name import COMPLETE, ENTRY
from jobs.console.names import or_nearest
from jobs.console.output import say
from jobs.exit_codes import WRONG_ARGUMENTS

UNKNOWN_CHOICE: Final = re.compile(r"'(.*)' is not one of (.*)\.$", re.DOTALL)
"""How Typer says it."""


class InOrder(TyperGroup):
    """Jobs in the order of the summaries, which is that in which users need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = {name: index for index, name in enumerate(SUMMARIES)}
        return sorted(self.commands, key=lambda name: order.get(name, len(order)))

    def invoke(self, ctx: Any) -> Any:
        """Run the job. A choice that is not known is answered like any other name that is not."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            found = UNKNOWN_CHOICE.search(error.message)
            if found is None or error.param is None:
                raise
            given, known = found[1], re.findall(r"'([^']+)'", found[2])
            name = error.param.opts[0].removeprefix("--")
            say(f"error: there is no {name} {or_nearest(given, known)}: {', '.join(known)}")
            raise typer.Exit(WRONG_ARGUMENTS) from None


app = typer.Typer(
    cls=InOrder,
    name=ENTRY,
    help="Groupledger: the ledger of every Kafka group. Replays the logs of Kafka's coordinators into Delta tables.",
    epilog=ROOT_EPILOG,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"groupledger {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Options that may come before the job's name."""


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Commands that make the Tab key complete jobs and options in a shell."""
    from jobs.cli.completion import script

    typer.echo(script(shell), nl=False)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "nightly": nightly,
    "demo": demo,
    "capture": capture,
    "replay": replay,
    "audit": audit,
    "export-segments": export_segments,
    "simulate": simulate,
    "describe": describe,
    "owner": owner,
    "where": where,
    "groups": groups,
    "history": history,
    "changes": changes,
    "restore": restore,
    "verify": verify,
    "report": report,
    "whatif": whatif,
    "maintain": maintain,
    "sql": sql,
    "explain": explain,
    "completion": completion,
}
for name, function in COMMANDS.items():
    app.command(name, short_help=SUMMARIES[name], epilog=epilog(name))(function)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    if os.environ.get(COMPLETE):
        from jobs.cli.completion import make_ready

        make_ready()
    given = None if arguments is None else list(arguments)
    return exit_code_of(partial(app, args=given, prog_name=ENTRY, complete_var=COMPLETE, standalone_mode=True))
