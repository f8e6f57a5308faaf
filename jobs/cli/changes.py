"""The job changes: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import reading_settings
from jobs.cli.outcome import job
from jobs.cli.readable import open_tables
from jobs.cli_enums import Format
from jobs.console.output import say
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

    from jobs.console.output import write_answers
    from jobs.queries.answers.changes import SUMMARY_COLUMNS, changes_of, compared, summary, table_named
    from jobs.queries.sql.sql import write_rows

    chosen = None if table is None else table_named(table)
    settings = reading_settings(warehouse, cluster_id)
    tables = open_tables("changes", settings)
    if chosen is None:
        write_answers(SUMMARY_COLUMNS, summary(tables, run_id, since), output_format, sys.stdout)
        return DONE
    pair = compared(tables, chosen, run_id, since)
    before = "nothing, as it is the first one" if pair.before is None else pair.before.run_id
    say(f"{chosen.full_name}: what {pair.run.run_id} left, against {before}")
    write_rows(changes_of(tables, pair), output_format, sys.stdout)
    return DONE
