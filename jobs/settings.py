"""Settings: conf/groupledger.toml, overridden by GROUPLEDGER_* environment variables, overridden by options.

`DEFAULTS` is read from the project's own file, so a setting, its default and its comment are in one place.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.limits import PARTITION_COUNT_MAX
from jobs.cli_enums import DumpFormat
from jobs.errors import SettingsError
from schemas import cluster_metadata, consumer_offsets, share_group_state, transaction_state
from schemas.tables import TABLES

PROJECT_ROOT: Final = Path(__file__).resolve().parent.parent
"""The folder with conf/: the checkout, or the package `groupledger` of a wheel."""
CONFIG_FILE: Final = PROJECT_ROOT / "conf" / "groupledger.toml"

ENVIRONMENT_PREFIX: Final = "GROUPLEDGER_"
ENVIRONMENT_OTHER: Final = frozenset(
    {
        "GROUPLEDGER_PYTHON",
        "GROUPLEDGER_CACHE",
        "GROUPLEDGER_CONFIG",
        "GROUPLEDGER_PARSE_ONLY",
        "GROUPLEDGER_ENTRY",
        "GROUPLEDGER_FAULT",
    }
)
"""Variables that are read elsewhere: interpreter and cache by bootstrap.py, the settings file by `load_settings`,
the entry command by `jobs.console.command_name`, and faults by `jobs.faults`."""

KEEP: Final = "keep"
HOSTS: Final = (KEEP, "pseudonym")
CODECS: Final = ("none", "snappy", "lz4", "zstd")
DUMP_FORMATS: Final = tuple(item.value for item in DumpFormat)
DUMP_SUFFIXES: Final = (".parquet", ".json", ".jsonl", ".ndjson", ".txt", ".json.gz", ".jsonl.gz")
TABLE_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", re.ASCII)
"""SCHEMA.TABLE or CATALOG.SCHEMA.TABLE."""
DUMP_ENCODINGS: Final = ("auto", "base64", "hex")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a cluster, and the file for the login. Contains no secret, so it can be sent to any task."""

    bootstrap_servers: str
    """HOST:PORT, comma-separated."""
    command_config: str | None = None
    """Path of a Java client's .properties file; each process reads it itself."""

    @property
    def servers(self) -> list[str]:
        """The individual HOST:PORT addresses."""
        return [server.strip() for server in self.bootstrap_servers.split(",") if server.strip()]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Settings of a continuous capture, and of what a capture asks a live cluster besides its logs."""

    end_offsets_every_ms: int
    names_every_ms: int
    lag_every_ms: int


@dataclass(frozen=True, slots=True)
class DumpColumns:
    """Names of the columns of a dump, or of the fields of its JSON objects; empty: the dump has none."""

    topic: str
    partition: str
    offset: str
    timestamp: str
    timestamp_type: str
    key: str
    value: str
    headers: str
    producer_id: str
    is_transactional: str
    is_control: str
    base_offset: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class DumpSettings:
    format: DumpFormat
    topic: str
    """The topic of all rows, for a dump without a topic column; empty: the dump must have one."""
    encoding: str
    """Encoding of textual keys and values: auto, base64 or hex."""
    partition_count: int
    """Partition count of each coordinator topic, for lines without a partition."""
    columns: DumpColumns
    where: str
    """Which rows are read: an expression of DuckDB's SQL over the columns of Parquet files; empty: all."""


@dataclass(frozen=True, slots=True)
class MaintainSettings:
    file_bytes: int
    merge_file_count_min: int
    vacuum_after_ms: int
    retention_days: Mapping[str, int]
    """By full table name; other tables keep all rows."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, validated. Sizes in bytes."""

    warehouse: str
    """Folder or URI, absolute."""
    cluster_id: str
    segments: tuple[str, ...]
    """Folders or URIs of broker log directories, absolute."""
    bootstrap_servers: str
    """HOST:PORT, comma-separated; empty: no live cluster."""
    command_config: str
    """Path of a Java client's .properties file, absolute; empty: none."""
    dumps: tuple[str, ...]
    """Files, folders or URIs of dumps, absolute; or names of tables."""
    dump: DumpSettings
    """How to interpret dumps."""
    topics: tuple[str, ...]
    partition_counts: Mapping[str, int]
    """Partition counts of internal topics that the user gives."""
    task_bytes_max: int
    cut_records_min: int
    """Log partitions with at least this many new records may be replayed by several tasks."""
    request_timeout_ms: int
    fetch_bytes_max: int
    capture: CaptureSettings
    maintain: MaintainSettings
    metrics_textfile: str
    """Absolute path of the Prometheus textfile; empty: none."""
    metrics_groups: int
    """Maximum number of groups with their own metrics; those that need attention come first."""
    report_file: str
    """Absolute path or URI of the HTML report that nightly writes; empty: none."""
    privacy_hosts: str
    """keep or pseudonym."""
    privacy_key_file: str
    """Absolute path of the key for pseudonyms; empty: none."""
    batch_decompressed_bytes_max: int
    inference: InferenceSettings
    """Assumptions of the inference that no log contains."""
    codec: str
    codecs: Mapping[str, str]
    """Parquet codec by full table name, where it differs from `codec`."""
    copied_at_ms: int | None = None
    """When the segments and dumps of this run were copied (epoch ms), if the user gives it."""

    @property
    def broker_address(self) -> BrokerAddress | None:
        """The address of the live cluster, if one is configured."""
        if not self.bootstrap_servers:
            return None
        return BrokerAddress(self.bootstrap_servers, self.command_config or None)

    @property
    def place_words(self) -> str:
        """Shell options with which another job uses the same tables."""
        return place_words(self.warehouse, self.cluster_id)


INFERENCE_FIELDS: Final = tuple(field.name for field in fields(InferenceSettings))
SHARE_FIELDS: Final = ("delivery_count_limit", "record_lock_duration_ms")
"""Broker settings for share groups: section `share`; the others are in section `inference`."""

DUMP_COLUMNS: Final = tuple(field.name for field in fields(DumpColumns))
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        name: (f"kafka_{name}", f"_kafka_metadata_{name}", f"_kafka_metadata.{name}", f"__{name}")
        for name in ("topic", "partition", "offset", "timestamp")
    },
    "key": ("kafka_key", "__key"),
    "value": ("kafka_value",),
}
"""Names of columns other than those of Spark's Kafka source: those of Connect's sinks (InsertField,
KafkaMetadataTransform, nested or not) and of their users."""
BATCH_COLUMNS: Final = frozenset({"topic", "partition", "base_offset", "batch"})
"""A table with these columns has record batches, as kafka_log gives them."""
CAPTURE_FIELDS: Final = tuple(field.name for field in fields(CaptureSettings))
MAINTAIN_FIELDS: Final = ("file_bytes", "merge_file_count_min")
DAYS_MAX: Final = 36_500
RETENTION_TABLES: Final = tuple(
    table.full_name for table in TABLES.values() if table.age_column or "day" in table.partition_by
)


def _keys(section: str, *names: str) -> dict[str, str]:
    return {f"{section}.{name}": name for name in names}


KEYS: Final[Mapping[str, str]] = {
    "warehouse": "warehouse",
    "cluster_id": "cluster_id",
    **_keys("sources", "segments", "bootstrap_servers", "command_config", "dumps"),
    **_keys("sources", "dump_format", "dump_topic", "dump_encoding", "dump_partition_count", "dump_where"),
    **{f"dump_columns.{name}": f"{name}_column" for name in DUMP_COLUMNS},
    **_keys("sources", "topics", "partitions", "task_bytes_max", "request_timeout_ms", "fetch_bytes_max"),
    **_keys("capture", *CAPTURE_FIELDS),
    **_keys("maintain", *MAINTAIN_FIELDS),
    "retention.vacuum_after_ms": "vacuum_after_ms",
    "retention.days": "retention_days",
    "metrics.textfile": "metrics_textfile",
    "metrics.groups": "metrics_groups",
    "report.file": "report_file",
    "privacy.hosts": "privacy_hosts",
    "privacy.key_file": "privacy_key_file",
    **_keys("replay", "cut_records_min"),
    **_keys("limits", "batch_decompressed_bytes_max"),
    **{f"{'share' if name in SHARE_FIELDS else 'inference'}.{name}": name for name in INFERENCE_FIELDS},
    **_keys("writes", "codec", "codecs"),
}
"""Key in the file -> field of `Settings`, or of its `inference`, `capture`, `maintain` or `dump`."""

CLUSTER_PLACE: Final = "{cluster_id}"
"""Placeholder in the name of a report, replaced by the cluster id."""
CLUSTERS: Final = "clusters"
"""Section of the file with one table for each cluster, for jobs that process all of them."""
CLUSTER_KEYS: Final = ("segments", "bootstrap_servers", "command_config", "dumps", "topics", "partitions")
"""Keys of [sources] that a cluster may set."""

GONE: Final[Mapping[str, str]] = {
    "writes.lane": "there is one way of writing, which every store takes, HDFS too: leave this setting out"
}
"""Settings of older versions, with the replacement."""

SOURCES: Final[Mapping[str, str | tuple[str, ...]]] = {"segments": (), "bootstrap_servers": "", "dumps": ()}
"""Sources of logs, each with the value that means none. A place (file, environment, options) that sets one of them
sets them all: those of the place that it overrides are not read."""
DEMO_SEGMENTS: Final = ("recordings/full-a/logs",)
"""The recording that comes with the project, as in the project's own settings."""
DEMO_PLACE: Final[Mapping[str, str]] = {"warehouse": "./warehouse", "cluster_id": "kafka"}
"""The default destination. A user who sets one of these has their own ledger, and must name its source too."""
SHORT_NAMES: Final = frozenset({"segments", "topics", "bootstrap_servers", "command_config", "dumps"})
"""Settings of [sources] whose environment variable omits the section."""

PATHS: Final = ("command_config", "metrics_textfile", "report_file", "privacy_key_file")
"""Paths and URIs that may be empty."""
MAPPING_FIELDS: Final = frozenset({"codecs", "retention_days"})
"""Settings by table: only in the file."""
LIST_FIELDS: Final = frozenset({"segments", "topics", "partitions", "dumps"})
PATH_LISTS: Final = ("segments", "dumps")
"""Lists of folders, files or URIs."""
FIELD_TYPES: Final[Mapping[str, Any]] = {
    **{
        it.name: it.type
        for part in (Settings, CaptureSettings, MaintainSettings, InferenceSettings)
        for it in fields(part)
    },
    **{f"dump_{it.name}": it.type for it in fields(DumpSettings)},
    **dict.fromkeys((f"{name}_column" for name in DUMP_COLUMNS), str),
}
TEXT_FIELDS: Final = frozenset(name for name in KEYS.values() if FIELD_TYPES.get(name) is str)
"""Strings; some may be empty."""
NUMBER_FIELDS: Final = frozenset(name for name in KEYS.values() if FIELD_TYPES.get(name) is int)
INT_FIELDS: Final = frozenset({*SHARE_FIELDS, "request_timeout_ms", "fetch_bytes_max", "dump_partition_count"})
NUMBER_MAX: Final = 2**53
"""Far beyond any sensible value; sums of several still fit 64 bits."""
INTERNAL_TOPICS: Final = (
    consumer_offsets.TOPIC,
    share_group_state.TOPIC,
    transaction_state.TOPIC,
    cluster_metadata.TOPIC,
)
INT_MAX: Final = 2**31 - 1
"""For settings of type INT in Kafka."""


def place_options(warehouse: str, cluster_id: str | None = None) -> list[str]:
    """Options with which a job uses a warehouse and, if given, a cluster; empty if they are its defaults."""
    usual = load_settings()
    options = [] if warehouse == usual.warehouse else ["--warehouse", warehouse]
    return options + ([] if cluster_id in (None, usual.cluster_id) else ["--cluster-id", str(cluster_id)])


def place_words(warehouse: str, cluster_id: str | None = None) -> str:
    """`place_options`, quoted for a shell, each preceded by a space."""
    return "".join(f" {shlex.quote(word)}" for word in place_options(warehouse, cluster_id))


def report_path(name: str, cluster_id: str) -> str:
    """Where the report of a cluster is, by the name that its user gave."""
    return name.replace(CLUSTER_PLACE, quote(cluster_id, safe=""))


def first_night(warehouse: str, cluster_id: str | None = None) -> str:
    """Shell words of a warehouse's first nightly: for a user's own warehouse the source is a placeholder."""
    words = place_words(warehouse, cluster_id)
    usual = load_settings()
    has_source = usual.segments or usual.bootstrap_servers or usual.dumps
    return "nightly" if has_source and not words else f"nightly --segments DIR{words}"


def environment_name(key: str) -> str:
    """`limits.batch_decompressed_bytes_max` -> `GROUPLEDGER_LIMITS_BATCH_DECOMPRESSED_BYTES_MAX`."""
    short = KEYS[key] if KEYS.get(key) in SHORT_NAMES else key
    return ENVIRONMENT_PREFIX + short.replace(".", "_").upper()


def load_settings(
    options: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Settings:
    """Load the settings.

    `options`: values by fields of `Settings`, None: not given. Lists in the environment are comma-separated. Raises
    SettingsError, which names the key and where it was found.
    """
    environment = os.environ if environment is None else environment
    if config_file is None:
        config_file = Path(environment.get("GROUPLEDGER_CONFIG") or CONFIG_FILE)
    values = _from_file(CONFIG_FILE)
    is_elsewhere = any(values[name] != usual for name, usual in DEMO_PLACE.items())
    demo = [_absolute(uri, PROJECT_ROOT) for uri in DEMO_SEGMENTS]
    given = {name: value for name, value in (options or {}).items() if value is not None and value != ()}
    own = _from_file(config_file) if config_file != CONFIG_FILE else {}
    stronger = (own, _from_environment(environment), given)
    if is_elsewhere or any(name in place for place in stronger for name in DEMO_PLACE):
        # a user's own ledger must not get the recording because its source was forgotten
        values |= {"segments": [uri for uri in values["segments"] if uri not in demo]}
    for place in stronger:
        values = _over(values, place)
    return _checked(values)


def load_clusters(
    options: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> list[Settings]:
    """The settings of each cluster in `[clusters]`, in the file's order: the common settings, and its own.

    Raises SettingsError where there is no cluster, or where a cluster has no source or an invalid key.
    """
    environment = os.environ if environment is None else environment
    file = config_file or Path(environment.get("GROUPLEDGER_CONFIG") or CONFIG_FILE)
    listed = _document(file).get(CLUSTERS, {})
    if not isinstance(listed, dict) or not listed:
        raise SettingsError(
            f"no cluster is listed in {file}: give each a table of its own, as [clusters.orders] with "
            'segments = ["/mnt/orders"], and name the file with GROUPLEDGER_CONFIG'
        )
    found = []
    for name, own in listed.items():
        unknown = sorted(set(own) - set(CLUSTER_KEYS)) if isinstance(own, dict) else [str(own)]
        if unknown:
            raise SettingsError(
                f"[{CLUSTERS}.{name}] in {file} cannot have {unknown[0]!r}; known are: {', '.join(CLUSTER_KEYS)}"
            )
        fields = {KEYS[f"sources.{key}"]: value for key, value in own.items()}
        values = {**_in_place(fields, file.resolve().parent), **(options or {}), "cluster_id": name}
        settings = load_settings(values, environment=environment, config_file=file)
        try:
            require_source(settings)
        except SettingsError as error:
            raise SettingsError(f"[{CLUSTERS}.{name}] in {file} names no source: {', '.join(SOURCES)}") from error
        found.append(settings)
    return found


def require_source(settings: Settings) -> None:
    """Raise SettingsError where a capture would have no source."""
    if settings.segments or settings.bootstrap_servers or settings.dumps:
        return
    raise SettingsError(
        "no source is named: say where the logs are with --segments DIR, --bootstrap-server HOST:PORT or --dump FILE, "
        "or in [sources] of the settings. The recording that comes with the project is read only where no warehouse "
        "and no cluster id is named either"
    )


def source_line(settings: Settings) -> str:
    """A sentence: what a capture reads, and into which warehouse and cluster."""
    demo = [_absolute(uri, PROJECT_ROOT) for uri in DEMO_SEGMENTS]
    named = [*settings.segments, *([settings.bootstrap_servers] if settings.bootstrap_servers else ()), *settings.dumps]
    source = "the recording that comes with the project" if named == demo else ", ".join(named)
    return f"source: {source}, as cluster {settings.cluster_id} into {settings.warehouse}"


def _over(values: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Values, overridden by those of a place with precedence."""
    names_sources = any(stronger.get(name) for name in SOURCES)
    return {**values, **(SOURCES if names_sources else {}), **stronger}


def _document(config_file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {config_file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{config_file} is not valid TOML: {error}") from error


def _unknown(name: str, known: Iterable[str], place: str) -> SettingsError:
    near = "".join(f" (did you mean '{it}'?)" for it in get_close_matches(name, known, 1))
    return SettingsError(f"there is no setting {name!r}{near} in {place}: {CONFIG_FILE.name} names all")


def _from_file(config_file: Path) -> dict[str, Any]:
    document = _document(config_file)
    document.pop(CLUSTERS, None)  # read by `load_clusters`
    values: dict[str, Any] = {}
    for key, value in _flat(document):
        if key in GONE:
            raise SettingsError(f"{key} in {config_file}: {GONE[key]}")
        if key not in KEYS:
            raise _unknown(key, KEYS, str(config_file))
        values[KEYS[key]] = value
    return _in_place(values, PROJECT_ROOT if config_file == CONFIG_FILE else config_file.resolve().parent)


def _in_place(values: dict[str, Any], start: Path) -> dict[str, Any]:
    """Values of a file, with relative paths made absolute."""
    for field in PATH_LISTS:
        if isinstance(values.get(field), list):
            placed = _dump if field == "dumps" else _absolute
            values[field] = [placed(str(uri), start) for uri in values[field]]
    if values.get("command_config"):
        values["command_config"] = _absolute(str(values["command_config"]), start)
    return values


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in document.items():
        key = prefix + name
        if isinstance(value, dict) and key not in KEYS:
            pairs += _flat(value, key + ".")
        else:
            pairs.append((key, value))
    return pairs


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    fields = {environment_name(key): field for key, field in KEYS.items() if field not in MAPPING_FIELDS}
    gone = {environment_name(key): remedy for key, remedy in GONE.items()}
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in ENVIRONMENT_OTHER:
            continue
        if name in gone:
            raise SettingsError(f"{name} in the environment: {gone[name]}")
        if name not in fields:
            raise _unknown(name, fields, "the environment")
        field = fields[name]
        if field in LIST_FIELDS:
            values[field] = [part.strip() for part in text.split(",") if part.strip()]
        elif field in NUMBER_FIELDS:
            try:
                values[field] = int(text)
            except ValueError as error:
                raise SettingsError(f"{name} must be a whole number") from error
        else:
            values[field] = text
    return values


def _require_types(values: Mapping[str, Any]) -> None:
    """Raise SettingsError for a value of the wrong type, or a number out of bounds."""
    for field in ("warehouse", "cluster_id"):
        if not isinstance(values[field], str) or not values[field]:
            raise SettingsError(f"{field} must be a text that is not empty")
    for field in sorted(NUMBER_FIELDS):
        most = INT_MAX if field in INT_FIELDS else NUMBER_MAX
        if type(values[field]) is not int or not 1 <= values[field] <= most:
            raise SettingsError(f"{field} must be a whole number from 1 to {most}")
    for field in TEXT_FIELDS:
        if not isinstance(values[field], str):
            raise SettingsError(f"{field} must be a text")
    for field in LIST_FIELDS:
        items = values[field]
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
            raise SettingsError(f"{field} must be a list of texts")


def _require_known(values: Mapping[str, Any]) -> None:
    """Raise SettingsError for an unknown choice, table or codec."""
    if values["dump_format"] not in DUMP_FORMATS:
        raise SettingsError(f"sources.dump_format must be one of {', '.join(DUMP_FORMATS)}")
    if values["dump_encoding"] not in DUMP_ENCODINGS:
        raise SettingsError(f"sources.dump_encoding must be one of {', '.join(DUMP_ENCODINGS)}")
    if values["privacy_hosts"] not in HOSTS:
        raise SettingsError(f"privacy.hosts must be one of {', '.join(HOSTS)}")
    if values["privacy_hosts"] != KEEP and not values["privacy_key_file"]:
        raise SettingsError("privacy.hosts = 'pseudonym' needs a key: name its file in privacy.key_file")
    codecs = values["codecs"]
    if not isinstance(codecs, Mapping) or any(name not in TABLES for name in codecs):
        raise SettingsError("writes.codecs must name tables, as bronze.record_batches")
    for codec in (values["codec"], *codecs.values()):
        if codec not in CODECS:
            raise SettingsError(f"a Parquet codec must be one of {', '.join(CODECS)}")
    days = values["retention_days"]
    if not isinstance(days, Mapping) or any(name not in RETENTION_TABLES for name in days):
        raise SettingsError(
            f"retention.days must name tables; those whose rows may go are {', '.join(RETENTION_TABLES)}"
        )
    if any(type(value) is not int or not 1 <= value <= DAYS_MAX for value in days.values()):
        raise SettingsError(f"retention.days must be whole numbers of days from 1 to {DAYS_MAX}")


def _checked(values: Mapping[str, Any]) -> Settings:
    _require_types(values)
    _require_known(values)
    here = Path.cwd()
    plain: dict[str, Any] = {it.name: values[it.name] for it in fields(Settings) if it.type in (int, str)}
    paths = {name: values[name] and _absolute(values[name], here) for name in ("warehouse", *PATHS)}
    return Settings(
        **{**plain, **paths},
        segments=tuple(_absolute(uri, here) for uri in values["segments"]),
        dumps=tuple(_dump(uri, here) for uri in values["dumps"]),
        dump=DumpSettings(
            format=DumpFormat(values["dump_format"]),
            topic=values["dump_topic"],
            encoding=values["dump_encoding"],
            partition_count=values["dump_partition_count"],
            columns=DumpColumns(**{name: values[f"{name}_column"] for name in DUMP_COLUMNS}),
            where=values["dump_where"].strip().rstrip(";").rstrip(),
        ),
        topics=tuple(values["topics"]),
        partition_counts=_partition_counts(values["partitions"]),
        capture=CaptureSettings(**{name: values[name] for name in CAPTURE_FIELDS}),
        maintain=MaintainSettings(
            **{name: values[name] for name in (*MAINTAIN_FIELDS, "vacuum_after_ms")},
            retention_days=dict(values["retention_days"]),
        ),
        inference=InferenceSettings(**{name: values[name] for name in INFERENCE_FIELDS}),
        codecs=dict(values["codecs"]),
    )


def _partition_counts(said: Iterable[str]) -> dict[str, int]:
    """Parse values such as `__consumer_offsets=50`."""
    counts: dict[str, int] = {}
    for text in said:
        topic, equals, count = text.partition("=")
        is_number = count.isascii() and count.isdecimal() and 1 <= int(count[:11]) <= PARTITION_COUNT_MAX
        if topic not in INTERNAL_TOPICS or not equals or not is_number or counts.get(topic, int(count)) != int(count):
            raise SettingsError(
                f"{text[:100]!r} is no number of partitions: give TOPIC=COUNT, as __consumer_offsets=50, once a topic, "
                f"of {', '.join(INTERNAL_TOPICS)}"
            )
        counts[topic] = int(count)
    return counts


def is_table_name(dump: str) -> bool:
    """Is a dump of `Settings` a table of Spark's catalog, by its name?"""
    return TABLE_NAME.fullmatch(dump) is not None


def _dump(uri: str, start: Path) -> str:
    """The name of a table, if it neither looks like a file nor is one; else an absolute path or a URI."""
    is_file = uri.endswith(DUMP_SUFFIXES) or (start / uri).exists()
    return uri if is_table_name(uri) and not is_file else _absolute(uri, start)


def _absolute(uri: str, start: Path) -> str:
    """Make a path absolute, without resolving links and `..`; `~` becomes the home folder. URIs are unchanged."""
    if "://" in uri:
        return uri
    return os.path.normpath(start / Path(uri).expanduser())
