"""Damaged files of tables: what can be made again is made again; for all else, a line says what to do."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Final

from coordinator_core.text import counted
from jobs.console.command_name import command, shell_word
from jobs.console.names import some_of
from jobs.delta.filesystems import table_of
from jobs.delta.pinned_versions import OF_AUDIT, OF_REPLAY
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, TableDamaged, is_no_space, named_text, no_space_text
from jobs.queries.sql.sql import one_line
from jobs.settings import first_night, place_words
from schemas.tables import TABLES
from schemas.tables.bronze import CONFIGS, END_OFFSETS, RECORD_BATCHES, TOPICS
from schemas.tables.declare import Table
from schemas.tables.state import (
    AUDITED_LOGS,
    OFFSET_RANGES,
    READ_FILES,
    REWRITES,
    RUN_METRICS,
    RUN_STARTS,
    RUNS,
    Ranges,
)

if TYPE_CHECKING:
    from jobs.operations.run_context import RunContext


def _names(*tables: Table) -> tuple[str, ...]:
    return tuple(table.full_name for table in tables)


MADE_BY: Final[Mapping[str, str]] = {
    **dict.fromkeys(_names(READ_FILES, RUN_METRICS), "capture"),
    **dict.fromkeys(_names(*OF_REPLAY, RUNS, RUN_STARTS, REWRITES), "replay"),
    **dict.fromkeys(_names(*OF_AUDIT), "audit"),
}
"""By table, the job that makes it again, or goes on without its rows."""
ADDED_TO: Final = frozenset(_names(READ_FILES, RUN_METRICS, RUNS, RUN_STARTS, REWRITES, AUDITED_LOGS))
"""Tables of which a rebuild does not replace all rows unread."""
SAMPLES: Final = frozenset(_names(END_OFFSETS, TOPICS, CONFIGS))
"""Tables of what a live cluster said at some time, which captures go on to add to without the earlier rows."""


def error_text(error: Exception) -> str:
    """An error in one line, with the remedy if a file of a table is damaged."""
    damage = TableDamaged.of(error)
    if damage is not None:
        return explained(damage)
    text = one_line(error)
    if is_no_space(error):
        return no_space_text(error, text)
    more = f"{type(error).__name__}: {text} (--debug shows more)"
    return text if isinstance(error, JobError) else named_text(error) or more


def damaged_files(
    warehouse: Warehouse, cluster_id: str | None = None, makers: Collection[str | None] | None = None
) -> list[TableDamaged]:
    """The damaged files of all tables, or of those that some jobs make (None among them: those that none makes again),
    as far as their sizes show it; of data files, those of a cluster (None: all)."""

    def of_table(table: Table) -> Iterable[TableDamaged]:
        try:
            return warehouse.damaged_files(table, cluster_id)
        except TableDamaged as damage:
            return [damage]

    tables = [
        table
        for name, table in TABLES.items()
        if warehouse.exists(table) and (makers is None or MADE_BY.get(name) in makers)
    ]
    return [damage for found in warehouse.at_once(of_table, tables) for damage in found]


def rebuilding(
    run: "RunContext", job: Callable[[Set[str]], int], makers: Collection[str], *, may_forget: bool = False
) -> int:
    """Run a job. If tables that one of `makers` (names of jobs) makes have damaged files, it is run so that these are
    made again: `job` gets the names of the jobs that must rebuild. Returns its exit code.

    `may_forget`: also where retention deleted rows of bronze, which a rebuild needs. Raises TableDamaged for all other
    tables.
    """
    tables: set[str] = set()
    found = damaged_files(run.warehouse, run.settings.cluster_id, makers)
    while True:
        for damage in found:
            if damage.table not in tables:
                _begin_again(run, damage, may_forget=may_forget)
        tables |= {damage.table for damage in found}
        try:
            return job({MADE_BY[name] for name in tables})
        except Exception as error:
            named = TableDamaged.of(error)
            if named is None or named.table in tables or MADE_BY.get(named.table) not in makers:
                raise
            found = [named]


def _begin_again(run: "RunContext", damage: TableDamaged, *, may_forget: bool) -> None:
    table = TABLES[damage.table]
    is_made = table.full_name in MADE_BY and MADE_BY[table.full_name] != "capture"
    if MADE_BY[damage.table] == "replay" and not may_forget and _has_forgotten(run.warehouse):
        raise damage
    run.steps.say(f"{damage}: {'made again from bronze' if is_made else 'the table begins again, empty'}")
    if damage.table in ADDED_TO or damage.is_of_log:
        run.warehouse.delete(table)


def require_whole(run: "RunContext") -> None:
    """Raise TableDamaged where a table that no job makes again has damaged files."""
    for damage in damaged_files(run.warehouse, run.settings.cluster_id, (None,)):
        raise damage


def explained(damage: TableDamaged) -> str:
    """The damage in one line, with the number of other damaged files, and the way out."""
    place = table_of(damage.path)
    assert place is not None
    warehouse = Warehouse(place[0])
    found = damaged_files(warehouse)
    others = [it for it in found if it.path != damage.path]
    more = f", and {counted(len(others), 'other file')} ({some_of({it.table: 0 for it in others})})" if others else ""
    is_seen = len(others) < len(found)
    return f"{damage}{more}. {_remedy(warehouse, damage, is_seen=is_seen)}"


def _remedy(warehouse: Warehouse, damage: TableDamaged, *, is_seen: bool) -> str:
    cluster_id = _cluster_of(warehouse, damage)
    maker = MADE_BY.get(damage.table)
    restore = "Restore that file from a backup"
    if maker == "capture":
        return f"The next capture goes on without it: {command('capture' + place_words(warehouse.root, cluster_id))}"
    if maker is not None:
        words = "audit --rebuild" if maker == "audit" else "replay --rebuild"
        rebuild = command(words + place_words(warehouse.root, cluster_id))
        if maker == "replay" and _has_forgotten(warehouse):
            return f"{restore}; or make the table again without what retention took out of bronze: {rebuild}"
        if is_seen:
            return f"Run nightly: it rebuilds the table. At once does so: {rebuild}"
        return f"Rebuild the table: {rebuild}"
    if damage.table in SAMPLES:
        folder = warehouse.path(TABLES[damage.table])
        return f"{restore}; or do without the rows of the table, and delete it: rm -r {shell_word(folder)}"
    again = command(first_night(f"{warehouse.root}-new", cluster_id))
    return f"{restore}, or capture again into a new warehouse: {again}"


def _cluster_of(warehouse: Warehouse, damage: TableDamaged) -> str | None:
    """The cluster whose rows a damaged file has; None where that is not known."""
    for name in (damage.table, RECORD_BATCHES.full_name, RUNS.full_name):
        try:
            files = warehouse.files(TABLES[name])
        except TableDamaged:
            continue
        own = [file for file in files if file.path == damage.path] or files
        clusters = {file.partition_values["cluster_id"] for file in own}
        if len(clusters) == 1:
            return str(*clusters)
    return None


def _has_forgotten(warehouse: Warehouse) -> bool:
    """Did retention delete rows of bronze, so that a rebuild would lose what was made of them?"""
    return any(file.partition_values["kind"] == Ranges.DELETED for file in warehouse.files(OFFSET_RANGES))
