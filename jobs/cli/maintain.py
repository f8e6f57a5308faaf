"""The job maintain: its options, and how it is run."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

import typer

from jobs.cli import known_names, options
from jobs.cli.arguments import settings_of
from jobs.cli.outcome import job, print_facts
from jobs.cli.readable import require_tables
from jobs.cli.session import start_run
from jobs.cli_enums import SummaryFormat
from jobs.errors import SettingsError
from jobs.exit_codes import DONE
from jobs.settings import DAYS_MAX, RETENTION_TABLES, Settings

AGE: Final = re.compile(r"([1-9][0-9]{0,4})([dy])")


def with_retention(settings: Settings, ages: Mapping[str, str | None]) -> Settings:
    """The settings with the ages of options, by layer, in place of those of the settings."""
    days = dict(settings.maintain.retention_days)
    for layer, age in ages.items():
        if age is None:
            continue
        found = AGE.fullmatch(age)
        if found is None:
            raise SettingsError(f"--keep-{layer} {age}: give 1 to 99999 days or years, as 30d or 5y")
        count = int(found[1]) * (365 if found[2] == "y" else 1)
        days |= dict.fromkeys((name for name in RETENTION_TABLES if name.startswith(f"{layer}.")), min(count, DAYS_MAX))
    return replace(settings, maintain=replace(settings.maintain, retention_days=days))


@job
def maintain(
    warehouse: options.WarehouseOption = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="As silver.group_events; may be repeated. [default: all]",
            autocompletion=known_names.tables,
        ),
    ] = None,
    vacuum_after: Annotated[
        str | None,
        typer.Option(
            "--vacuum-after",
            metavar="DURATION",
            help="How long files that a table no longer has stay on disk for readers. [default: 7d]",
        ),
    ] = None,
    allow_short_retention: Annotated[
        bool,
        typer.Option(
            "--allow-short-retention", help="Allow less than 7d, which may delete files that a running reader needs."
        ),
    ] = False,
    keep_bronze: Annotated[
        str | None,
        typer.Option(
            "--keep-bronze",
            metavar="AGE",
            help="Remove older batches and end offsets, as soon as silver has them, as 30d or 1y. They never come "
            "back: replay --rebuild cannot make their rows again. [default: retention.days of the settings, else all]",
        ),
    ] = None,
    keep_gold: Annotated[
        str | None,
        typer.Option(
            "--keep-gold",
            metavar="AGE",
            help="Remove older days of all gold tables; what is open stays. audit --rebuild makes them again. "
            "[default: retention.days of the settings, else all]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    output_format: options.SummaryFormatOption = SummaryFormat.TABLE,
    erase: Annotated[
        list[str] | None,
        typer.Option(
            "--erase",
            metavar="KIND=ID",
            help="Do only this: replace a client-id=, host= or member= by a pseudonym in all tables, and delete all "
            "older versions; may be repeated. No reader and no capture may run meanwhile.",
        ),
    ] = None,
) -> int:
    """Merge small files of all tables, remove rows older than their retention, delete files that no reader needs."""
    from jobs.console.durations import parse_duration

    settings = with_retention(settings_of(warehouse), {"bronze": keep_bronze, "gold": keep_gold})
    require_tables(settings)
    if erase:
        from jobs.operations.erase import erased_ids

        ids = erased_ids(erase)
        if table or vacuum_after or allow_short_retention or keep_bronze or keep_gold or dry_run:
            raise SettingsError("--erase excludes the other options of maintain: it always changes all tables")
        run = start_run("maintain", settings, meanwhile=".operations.erase")
        from jobs.operations.erase import KEY_BYTES, print_erased
        from jobs.operations.erase import erase as run_erase

        with run.steps.step("erase"):
            counts = run_erase(
                run.executor,
                run.warehouse,
                ids=ids,
                new_key=secrets.token_bytes(KEY_BYTES),
                at=run.started_at,
                metrics=run.metrics,
            )
        print_erased(counts, run.steps)
        return print_facts("maintain", run, run.steps, DONE, output_format)
    vacuum_after_ms = None if vacuum_after is None else parse_duration("--vacuum-after", vacuum_after)
    from jobs.operations.maintain import maintain as run_maintain
    from jobs.operations.maintain import print_maintain, vacuum_retention_ms

    vacuum_retention_ms(settings, table or (), vacuum_after_ms, allows_short=allow_short_retention)
    run = start_run("maintain", settings, meanwhile=".operations.maintain")

    with run.steps.step("maintain"):
        summary = run_maintain(
            run.executor,
            run.warehouse,
            settings,
            started_at=run.started_at,
            tables=table or (),
            vacuum_after_ms=vacuum_after_ms,
            allows_short_retention=allow_short_retention,
            dry_run=dry_run,
            metrics=run.metrics,
        )
    print_maintain(summary, run.steps, dry_run=dry_run)
    return print_facts("maintain", run, run.steps, DONE, output_format)
