"""The job explain: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.outcome import job
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


@job
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...",
            help="Words that a job prints, tables or columns. [default: lists them]",
            autocompletion=known_names.words,
        ),
    ] = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """What a word means that a job prints: causes, methods, verdicts, states; tables and columns."""
    from jobs.queries.answers.explain import run_explain

    run_explain(words or (), output_format)
    return DONE
