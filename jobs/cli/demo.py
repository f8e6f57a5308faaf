"""The job demo: its options, and how it is run."""

import shlex
import sys
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import chain, count
from pathlib import Path
from typing import Final

import typer

from jobs.cli import options
from jobs.cli.outcome import exit_code_of, job
from jobs.cli_enums import SummaryFormat
from jobs.console.command_name import ENTRY, command
from jobs.exit_codes import DONE, INCOMPLETE
from jobs.settings import PROJECT_ROOT

SCENARIO: Final = "scenarios/shop.toml"
PLACE: Final = "--warehouse {folder}/warehouse --cluster-id shop"
SIMULATION: Final = f"simulate --scenario {SCENARIO} --output {{folder}}/cluster"
ASKED: Final = (
    ("The brokers' logs of that morning:", SIMULATION),
    ("Its night:", f"nightly --segments {{folder}}/cluster/logs --report {{folder}}/report.html {PLACE}"),
    (
        "Why did checkout rebalance when the node had died, and who went?",
        f"history --group checkout --from 2026-01-06T08:05:00Z --to 2026-01-06T08:10:00Z {PLACE}",
    ),
    ("Which mails were given up, and is the list complete?", f"audit --group mailers {PLACE}"),
    ("Which offsets were set back, and how many mails were sent twice?", f"audit --list share-offsets {PLACE}"),
)


@job
def demo(ctx: typer.Context, output_format: options.SummaryFormatOption = SummaryFormat.TABLE) -> int:
    """A bad morning of a shop, simulated: its night, its report, and three questions with their answers.

    Everything is written into a new folder: demo, or demo-2, demo-3 and so on.
    """
    from jobs.console.output import folded_text, json_line

    command_line = ctx.find_root().command

    out = sys.stdout if output_format is SummaryFormat.TABLE else sys.stderr
    folder = next(name for name in chain(["demo"], map("demo-{}".format, count(2))) if not Path(name).exists())
    story = (PROJECT_ROOT / SCENARIO).read_text(encoding="utf-8").splitlines()
    lines = (line.removeprefix("# ") for line in story if line.startswith("# "))
    print(*(folded_text(line, out, " " * len("08:00  ")) for line in lines), sep="\n", file=out)
    with redirect_stdout(out):
        for question, words in ASKED:
            shown = words.format(folder=folder)
            print(f"\n{question}\n{command(shown)}", flush=True)
            with redirect_stdout(StringIO() if words is SIMULATION else out):
                code = exit_code_of(partial(command_line.main, shlex.split(shown), prog_name=ENTRY))
            if code not in (DONE, INCOMPLETE):
                return code
        print(f"\nreport: {folder}/report.html", flush=True)
    if out is sys.stderr:
        asked = [{"question": question, "command": command(words.format(folder=folder))} for question, words in ASKED]
        sys.stdout.write(
            json_line({"job": "demo", "folder": folder, "report": f"{folder}/report.html", "asked": asked})
        )
    return DONE
