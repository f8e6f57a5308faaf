"""The command line: one command for each job. Heavy imports happen when a job runs, so --help is fast.

Each job has a module of its name with its options. Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 done but
something was quarantined or is missing.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from io import StringIO, TextIOWrapper
from shlex import quote
from typing import Annotated, Any, Final

import typer
from typer import BadParameter, TyperException
from typer.core import TyperCommand, TyperGroup

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
from jobs.console.names import or_nearest, short, some_of
from jobs.console.output import say
from jobs.exit_codes import DONE, FAILED, WRONG_ARGUMENTS

UNKNOWN_CHOICE: Final = re.compile(r"'(.*)' is not one of (.*)$", re.DOTALL)
UNKNOWN_COMMAND: Final = re.compile(r"no such command '(.*?)'", re.DOTALL)
STRAY_WORDS: Final = re.compile(r"got unexpected extra argument\(s\) \((.*)\)$", re.DOTALL)
"""How Typer says these."""


class InOrder(TyperGroup):
    """Jobs in the order of the summaries, which is that in which users need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = {name: index for index, name in enumerate(SUMMARIES)}
        return sorted(self.commands, key=lambda name: order.get(name, len(order)))

    def main(self, *args: Any, **chosen: Any) -> Any:
        """Run the command line; ends by SystemExit. What it does not understand is one sentence."""
        try:
            code = super().main(*args, **{**chosen, "standalone_mode": False})
        except TyperException as error:
            say(f"error: {usage_text(error)}")
            code = WRONG_ARGUMENTS
        except BrokenPipeError:
            code = DONE
        except OSError as error:
            say(f"error: cannot write the answer: {error.strerror}")
            code = FAILED
        raise SystemExit(code or DONE)


class EachOnce(TyperCommand):
    """An option that takes one value is given once: of two values nobody would know which one counts. None is empty, as
    of a variable that is not set: only a group's id can be that."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {name: it for it in self.params if not getattr(it, "is_flag", True) for name in it.opts}
        words, given = iter(args), set[str]()
        for word in words:
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if option := takes_value.get(name):
                if name in given and not option.multiple:
                    raise BadParameter(f"{name} is given twice", ctx)
                given.add(name)
                if not (value if equals else next(words, name)) and option.metavar != "GROUP":
                    raise BadParameter(f"{name} is empty", ctx)
        return super().parse_args(ctx, args)


def usage_text(error: Any) -> str:
    """What is wrong with a command line, from one of the errors of Typer's parser. What has a name and is not known is
    answered like any other such name."""
    context, said = getattr(error, "ctx", None), str(error.message)
    text = said[:1].lower() + said[1:].rstrip(".")
    if context is None:
        return text
    see, params = f"{context.command_path} --help lists what there is", context.command.params
    if hasattr(error, "possibilities"):
        return f"there is no option {_or_nearest_option(error.option_name, params)}{see}"
    if hasattr(error, "param_type"):
        needed = [it for it in params if it.required]
        texts = [
            " ".join((*(it.opts if it.opts[0].startswith("-") else ()), it.metavar or str(it.name).upper()))
            for it in needed
        ]
        return f"{context.info_name} needs {' and '.join(texts)}"
    if found := UNKNOWN_COMMAND.match(text):
        return f"there is no command {or_nearest(found[1], COMMANDS)}: {', '.join(COMMANDS)}"
    if (found := STRAY_WORDS.match(text)) and params:
        option, words = params[0], short(found[1])
        is_likely = option.metavar and "--warehouse" not in option.opts
        meant = f" (did you mean {option.opts[-1]} {quote(words)}?)" if is_likely else ""
        return f"'{words}' has no option before it{meant}: {see}"
    if not isinstance(error, BadParameter) or error.param is None:
        return f"{text}: {see}"
    name = error.param.opts[0].removeprefix("--")
    if found := UNKNOWN_CHOICE.search(text):
        known = re.findall(r"'([^']+)'", found[2])
        return f"there is no {name} {or_nearest(found[1], known)}: {', '.join(known)}"
    return f"{name}: {text.removeprefix('input ').partition(', unable')[0]}"


def _or_nearest_option(given: str, params: Sequence[Any]) -> str:
    """An option that a command does not have, and which others have it; or, if none has, the nearest that it has by
    name. Else the one that leaves only some of such things."""
    word = given.lstrip("-")
    commands: Mapping[str, Any] = typer.main.get_group(app).commands
    having = [name for name in COMMANDS if any(given in it.opts for it in commands[name].params)]
    text = or_nearest(word, [name.lstrip("-") for option in (() if having else params) for name in option.opts])
    only = f"Only {word}s "
    near = next((it.opts[0].lstrip("-") for it in params if (getattr(it, "help", None) or "").startswith(only)), None)
    if near and not text.endswith("?)"):
        text += f" (did you mean '{near}'?)"
    return f"{text}: {some_of(having)} {'has' if len(having) == 1 else 'have'} it; " if having else f"{text}: "


app = typer.Typer(
    cls=InOrder,
    name=ENTRY,
    help="Groupledger: the ledger of every Kafka group. Replays the logs of Kafka's coordinators into Delta tables.",
    epilog=ROOT_EPILOG,
    add_completion=False,
    invoke_without_command=True,
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
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Options that may come before the job's name."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(WRONG_ARGUMENTS)


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
    app.command(name, cls=EachOnce, short_help=SUMMARIES[name], epilog=epilog(name))(function)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    for name in ("stdout", "stderr"):  # a shell may have closed them
        if getattr(sys, name) is None:
            setattr(sys, name, StringIO())
    if os.environ.get(COMPLETE):
        from jobs.cli.completion import make_ready

        make_ready()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no arrows shows the rest
    given = sys.argv[1:] if arguments is None else list(arguments)
    for word in given:
        try:
            word.encode()
        except UnicodeEncodeError:
            say(f"error: {short(word)} is not UTF-8, as names of Kafka and of files have to be")
            return WRONG_ARGUMENTS
    run = partial(app, args=given, prog_name=ENTRY, complete_var=COMPLETE, standalone_mode=True)
    # what one command sets for its output is not for the next one of this process
    code = copy_context().run(exit_code_of, run)
    try:
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # else Python would write the rest at its end
    except OSError as error:
        sys.stdout = None
        if code != FAILED:  # else it is said
            say(f"error: cannot write the answer: {error.strerror}")
        return FAILED
    return code
