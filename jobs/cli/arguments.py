"""Convert command-line arguments to settings and times, and check them before Spark starts."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from jobs.console.output import say
from jobs.errors import ArgumentError
from jobs.settings import DEMO_PLACE, Settings, load_settings


def settings_of(
    warehouse: str | None = None, cluster_id: str | None = None, *, copied_at: str | None = None, **others: Any
) -> Settings:
    """Settings with the values of options, by their names in `Settings`."""
    options = {"warehouse": warehouse, "cluster_id": cluster_id, **others}
    settings = load_settings(
        {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    )
    if copied_at is None:
        return settings
    if not settings.segments and not settings.dumps:
        raise ArgumentError("--copied-at is the time of a copy: name it with --segments or --dump")
    return replace(settings, copied_at_ms=moment_of(copied_at, None))


def reading_settings(warehouse: str | None, cluster_id: str | None, **others: Any) -> Settings:
    """Settings of a query; without a cluster id it uses that of the warehouse, if there is only one.

    Raises ArgumentError for a cluster that the warehouse does not have.
    """
    settings = settings_of(warehouse, cluster_id, **others)
    from jobs.delta.warehouse import Warehouse

    tables = Warehouse(settings.warehouse)
    if cluster_id is not None or settings.cluster_id != DEMO_PLACE["cluster_id"]:
        from jobs.queries.as_of.in_log import require_cluster

        require_cluster(tables, settings.cluster_id)
        return settings
    from schemas.tables.state import RUNS

    rows = tables.read(RUNS, ["cluster_id"])
    found = set(rows["cluster_id"].to_pylist())
    return replace(settings, cluster_id=found.pop()) if len(found) == 1 else settings


def check_client(settings: Settings) -> None:
    """Check the properties file of a Kafka client before Spark starts and before anything connects.

    Raises ClientPropertiesError; notes for the user go to stderr.
    """
    if not (settings.bootstrap_servers and settings.command_config):
        return
    from jobs.sources.client_properties import load_client_properties

    for note in load_client_properties(settings.command_config).notes:
        say(f"note: {note}")


def check_folders(settings: Settings) -> None:
    """Check the folders of sources and tables of a capture before Spark starts.

    Raises SourceError or ArgumentError, with the right folder if one is near.
    """
    from jobs.sources.right_folder import require_dump, require_source_folder, require_warehouse_folder

    for uri in settings.segments:
        require_source_folder(uri, settings.topics)
    for uri in settings.dumps:
        require_dump(uri)
    require_warehouse_folder(settings.warehouse)


def moment_of(text: str, timezone: str | None) -> int:
    """As `optional_moment`, for a required time. Prints how an expression was interpreted."""
    from jobs.queries.as_of.moments import Clock, read_moment

    moment = read_moment(text, Clock.of(datetime.now(UTC), timezone))
    if moment.reading is not None:
        say(moment.reading)
    return moment.timestamp_ms


def optional_moment(text: str | None, timezone: str | None) -> int | None:
    """A time on the command line as epoch milliseconds."""
    return None if text is None else moment_of(text, timezone)


def span_of(from_time: str | None, to_time: str | None, timezone: str | None) -> tuple[int | None, int | None]:
    """The times of --from and --to. Raises ArgumentError if they are in the wrong order."""
    from jobs.queries.as_of.in_log import require_forwards

    from_ms, to_ms = optional_moment(from_time, timezone), optional_moment(to_time, timezone)
    require_forwards(from_ms, to_ms)
    return from_ms, to_ms
