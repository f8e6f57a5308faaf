"""Convert command-line arguments to settings and times, and check them before Spark starts."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from jobs.console.output import say
from jobs.errors import ArgumentError
from jobs.settings import DEMO_PLACE, Settings, is_table_name, load_settings


def settings_of(
    warehouse: str | None = None, cluster_id: str | None = None, *, copied_at: str | None = None, **others: Any
) -> Settings:
    """Settings with the values of options, by their names in `Settings`."""
    options = {"warehouse": warehouse, "cluster_id": cluster_id, **others}
    settings = load_settings(
        {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    )
    goes_with("--command-config", others.get("command_config"), "--bootstrap-server", settings.bootstrap_servers)
    goes_with("--dump-format", others.get("dump_format"), "--dump", settings.dumps)
    goes_with("--where", others.get("dump_where"), "--dump", settings.dumps)
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
        if not is_table_name(uri):
            require_dump(uri)
    require_warehouse_folder(settings.warehouse)


def goes_with(option: str, given: object, needed: str, value: object) -> None:
    """Raise ArgumentError for an option that would do nothing, because another one is not given."""
    if given and not value:
        raise ArgumentError(f"{option} goes with {needed}: without it, it does nothing")


def at_most_one(options: Mapping[str, object]) -> None:
    """Raise ArgumentError where more than one of these options is given."""
    if sum(map(bool, options.values())) > 1:
        *others, last = options
        raise ArgumentError(f"{', '.join(others)} and {last} exclude each other: give one of them")


def moments_of(timezone: str | None, *texts: str | None) -> tuple[int | None, ...]:
    """Times on the command line as epoch milliseconds. Prints how expressions were interpreted.

    Raises ArgumentError for a zone that no time needs.
    """
    from jobs.queries.as_of.moments import Clock, read_moment

    clock = Clock.of(datetime.now(UTC), timezone)
    moments = [None if text is None else read_moment(text, clock) for text in texts]
    readings = [it.reading for it in moments if it is not None and it.reading is not None]
    if timezone is not None and not readings:
        raise ArgumentError(
            "--timezone is for times without a zone, as 'yesterday 03:12' or 2026-11-20T03:12: here it does nothing"
        )
    say(*readings)
    return tuple(it and it.timestamp_ms for it in moments)


def moment_of(text: str, timezone: str | None) -> int:
    """As `moments_of`, for one required time."""
    (at_ms,) = moments_of(timezone, text)
    assert at_ms is not None
    return at_ms


def optional_moment(text: str | None, timezone: str | None) -> int | None:
    """As `moments_of`, for one time."""
    return moments_of(timezone, text)[0]


def span_of(from_time: str | None, to_time: str | None, timezone: str | None) -> tuple[int | None, int | None]:
    """The times of --from and --to. Raises ArgumentError if they are in the wrong order."""
    from jobs.queries.as_of.in_log import require_forwards

    from_ms, to_ms = moments_of(timezone, from_time, to_time)
    require_forwards(from_ms, to_ms)
    return from_ms, to_ms
