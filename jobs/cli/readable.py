"""Open the tables for a query: check that they exist and have the current format, and report gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.console.command_name import command
from jobs.console.output import say
from jobs.errors import ArgumentError
from jobs.exit_codes import DONE, INCOMPLETE
from jobs.settings import Settings, first_night

if TYPE_CHECKING:
    from jobs.delta.cluster_tables import ClusterTables


def no_tables(warehouse: str, cluster_id: str | None = None) -> str:
    """A sentence: the folder has no tables, with the intended folder, or how to create tables."""
    from jobs.sources.right_folder import warehouse_near

    meant = warehouse_near(warehouse)
    if meant is not None:
        return f"no tables in {warehouse}; did you mean --warehouse {meant}?"
    return (
        f"no tables in {warehouse}: run {command(first_night(warehouse, cluster_id))} first, "
        "or name another --warehouse"
    )


def require_tables(settings: Settings) -> None:
    """Raise ArgumentError for a folder that has no table of any kind."""
    from jobs.delta.warehouse import Warehouse
    from schemas.tables import TABLES

    if not any(map(Warehouse(settings.warehouse).exists, TABLES.values())):
        raise ArgumentError(no_tables(settings.warehouse, settings.cluster_id))


def open_tables(job: str, settings: Settings) -> "ClusterTables":
    """The tables for a job that reads silver, which must have the current format."""
    from jobs.delta.cluster_tables import ClusterTables
    from jobs.delta.silver_format import require_current_silver
    from jobs.delta.warehouse import Warehouse
    from schemas.tables.silver import SILVER_TABLES

    tables = ClusterTables(Warehouse(settings.warehouse), settings.cluster_id)
    if job != "verify" and not any(map(tables.warehouse.exists, SILVER_TABLES)):
        raise ArgumentError(no_tables(settings.warehouse, settings.cluster_id))
    require_current_silver(tables)
    from jobs.delta.other_writers import lines, written_by_others

    for line in lines(written_by_others(tables), settings.place_words):
        say(f"warning: {line}")
    return tables


@contextmanager
def how_far(tables: "ClusterTables", at_ms: int | None = None, group_ids: list[str] | None = None) -> Iterator[int]:
    """Say, before an answer, up to when it is known to be right, if the time is later; and after it, also where there
    is none, which parts of the log are in no source or not replayed yet.

    The value is the exit code: INCOMPLETE for a time after the end of the log. Raises ArgumentError for a time before
    the log begins.
    """
    from jobs.queries.as_of.as_of import GROUPS_LOG
    from jobs.queries.as_of.behind import not_audited_lines, not_replayed_lines
    from jobs.queries.as_of.in_log import is_behind, remarks_behind, require_begun, unread_remarks

    all_ends = require_begun(tables, at_ms)
    say(*remarks_behind(all_ends, at_ms, group_ids or None))
    try:
        yield INCOMPLETE if is_behind(all_ends, at_ms) else DONE
    finally:
        say(
            *unread_remarks(all_ends, group_ids or None),
            *not_replayed_lines(tables, GROUPS_LOG),
            *not_audited_lines(tables, of_silver=True),
        )
