"""The job changes: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import open_tables
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


@job
def changes(
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="As gold.rebalances. [default: counts for every table]",
            autocompletion=known_names.tables,
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="What this run changed. [default: the newest]")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="RUN_ID", help="Since this run. [default: the one before]")
    ] = None,
    warehouse: options.WarehouseOption = None,
    cluster_id: options.ClusterOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """What a run changed: rows that came, went, or have other values, as Delta's change data feed names them."""
    import sys

    from jobs.console.output import folded_text, write_answers
    from jobs.queries.answers.changes import (
        SUMMARY_COLUMNS,
        answer_of,
        changes_of,
        compared,
        counts_of,
        sentence,
        summary,
        table_named,
    )
    from jobs.queries.sql.sql import write_rows

    chosen = None if table is None else table_named(table)
    settings = reading_settings(warehouse, cluster_id)
    tables = open_tables("changes", settings)
    out = sys.stdout if output_format is Format.TABLE else sys.stderr
    if chosen is None:
        said, rows = summary(tables, run_id, since)
        print(*(folded_text(line, out) for line in said), sep="\n", file=out)
        # for people, the sentences say the runs
        shown = [it for it in SUMMARY_COLUMNS if output_format is not Format.TABLE or it not in ("RUN", "SINCE")]
        rows = [[row[SUMMARY_COLUMNS.index(it)] for it in shown] for row in rows]
        write_answers(shown, rows, output_format, sys.stdout)
        return DONE
    pair = compared(tables, chosen, run_id, since)
    print(folded_text(f"{chosen.full_name}: {sentence(pair, counts_of(tables, pair))}", out), file=out)
    write_rows(changes_of(tables, pair), output_format, sys.stdout, first=answer_of(chosen))
    return DONE
