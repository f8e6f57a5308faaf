"""Settings: one file, overridden by the environment, overridden by options; what is unknown or wrong is named."""

from pathlib import Path

import pytest

from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.errors import SettingsError
from jobs.laboratory.whatif import asked
from jobs.settings import (
    CONFIG_FILE,
    INFERENCE_FIELDS,
    KEYS,
    PROJECT_ROOT,
    environment_name,
    load_settings,
    require_source,
    source_line,
)
from simulator.whatif.settings import Recorded


def test_defaults_are_those_of_the_project_file() -> None:
    """Without anything said, the recording that comes with the project goes into ./warehouse."""
    settings = load_settings(environment={})
    assert settings.warehouse == str(Path.cwd() / "warehouse")
    assert settings.segments == (str(PROJECT_ROOT / "recordings/full-a/logs"),)
    assert settings.cluster_id == "kafka"
    assert settings.batch_decompressed_bytes_max == 64 * 1024 * 1024
    assert settings.inference == InferenceSettings()
    assert settings.codec == "zstd"


def test_environment_overrides_file_and_options_override_both(tmp_path: Path) -> None:
    """The nearer to the user, the stronger."""
    config = tmp_path / "g.toml"
    config.write_text('cluster_id = "file"\n[limits]\nbatch_decompressed_bytes_max = 5\n')
    environment = {"GROUPLEDGER_CONFIG": str(config)}
    assert load_settings(environment=environment).cluster_id == "file"
    environment["GROUPLEDGER_CLUSTER_ID"] = "environment"
    environment["GROUPLEDGER_LIMITS_BATCH_DECOMPRESSED_BYTES_MAX"] = "7"
    settings = load_settings(environment=environment)
    assert (settings.cluster_id, settings.batch_decompressed_bytes_max) == ("environment", 7)
    settings = load_settings({"cluster_id": "option", "warehouse": None, "segments": ()}, environment=environment)
    assert (settings.cluster_id, settings.batch_decompressed_bytes_max) == ("option", 7)


@pytest.mark.parametrize("place", ["option", "environment", "file"])
@pytest.mark.parametrize("name", ["warehouse", "cluster_id"])
def test_the_recording_is_for_nobodys_ledger(tmp_path: Path, name: str, place: str) -> None:
    """Whoever names a warehouse or a cluster, wherever, reads no recording by having forgotten the source."""
    config = tmp_path / "g.toml"
    config.write_text(f'{name} = "x"' if place == "file" else "")
    environment = {"GROUPLEDGER_CONFIG": str(config)}
    if place == "environment":
        environment[environment_name(name)] = "x"
    settings = load_settings({name: "x"} if place == "option" else {}, environment=environment)
    assert settings.segments == ()
    with pytest.raises(SettingsError, match="--segments DIR, --bootstrap-server HOST:PORT or --dump FILE"):
        require_source(settings)
    for source in ("segments", "dumps", "bootstrap_servers"):
        value = "h:1" if source == "bootstrap_servers" else ("recordings/full-a/logs",)
        require_source(load_settings({name: "x", source: value}, environment=environment))


def test_the_recording_is_for_whoever_names_nothing() -> None:
    """Without a word the recording is read, also where it is one source of several in a file of one's own."""
    require_source(load_settings(environment={}))
    assert source_line(load_settings(environment={})).startswith("source: the recording that comes with the project,")
    named = load_settings({"segments": ("/a", "/b"), "dumps": ("/c",), "cluster_id": "k"}, environment={})
    assert source_line(named).startswith("source: /a, /b, /c, as cluster k into ")


def test_every_key_has_its_environment_name() -> None:
    """Each setting of the file but the table of codecs can be set from outside, and sets its own field."""
    names = {environment_name(key) for key in KEYS}
    assert len(names) == len(KEYS)
    settings = load_settings(environment={"GROUPLEDGER_SEGMENTS": "s3://a/b, /c", "GROUPLEDGER_TOPICS": "x"})
    assert settings.segments == ("s3://a/b", "/c")
    assert settings.topics == ("x",)


def test_every_setting_of_inference_can_be_set(tmp_path: Path) -> None:
    """By file and by environment, each reaches its own field; what inference goes by has no setting but these."""
    keys = {key: field for key, field in KEYS.items() if field in INFERENCE_FIELDS}
    assert sorted(keys.values()) == sorted(INFERENCE_FIELDS)
    wanted = {field: number for number, field in enumerate(INFERENCE_FIELDS, start=1000)}
    config = tmp_path / "g.toml"
    config.write_text("".join(f"{key} = {wanted[field]}\n" for key, field in keys.items()))
    by_file = load_settings(environment={}, config_file=config)
    by_environment = load_settings(environment={environment_name(key): str(wanted[keys[key]]) for key in keys})
    assert by_file.inference == by_environment.inference == InferenceSettings(**wanted)


def test_whatif_takes_the_settings_for_what_applied() -> None:
    """Unless --recorded says otherwise."""
    environment = {
        "GROUPLEDGER_SHARE_DELIVERY_COUNT_LIMIT": "7",
        "GROUPLEDGER_SHARE_RECORD_LOCK_DURATION_MS": "20000",
        "GROUPLEDGER_INFERENCE_MODERN_SESSION_TIMEOUT_MS": "50000",
    }
    question = asked(
        ["group.protocol=consumer"], ["share.delivery.count.limit=9"], load_settings(environment=environment)
    )
    assert question.recorded == Recorded(
        consumer_session_timeout_ms=50_000, delivery_count_limit=9, record_lock_duration_ms=20_000
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("warehose = 'x'", "warehose"),
        ("[limits]\nbatch_bytes = 1", "limits.batch_bytes"),
        ("[writes]\nlane = 'auto'", "writes.lane in .*leave this setting out"),
        ("[writes]\ncodec = 'rar'", "codec"),
        ("[writes.codecs]\n'bronze.nope' = 'zstd'", "codecs"),
        ("cluster_id = ''", "cluster_id"),
        ("cluster_id = 3", "cluster_id"),
        ("[share]\ndelivery_count_limit = 0", "delivery_count_limit"),
        ("[share]\ndelivery_count_limit = true", "delivery_count_limit"),
        ("[share]\ndelivery_count_limit = 2147483648", "delivery_count_limit"),
        ("[share]\nrecord_lock_duration_ms = 1.5", "record_lock_duration_ms"),
        ("[inference]\nstalled_ms = 0", "stalled_ms"),
        ("[inference]\nstorm_window_ms = '10m'", "storm_window_ms"),
        ("[inference]\noffsets_retention_ms = 9007199254740993", "offsets_retention_ms"),
        ("[inference]\ndelivery_count_limit = 5", "inference.delivery_count_limit"),
        ("[sources]\ntopics = 'one'", "topics"),
        ("[sources]\ndump_format = 'csv'", "dump_format"),
        ("[sources]\ndump_encoding = 'rot13'", "dump_encoding"),
        ("[sources]\ndump_partition_count = 0", "dump_partition_count"),
        ("[dump_columns]\nkeys = 'k'", "dump_columns.keys"),
        ("[dump_columns]\nkey = 5", "key_column"),
        ("= broken", "TOML"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, names: str) -> None:
    """An unknown key or a value that is not allowed is an error which says which."""
    config = tmp_path / "g.toml"
    config.write_text(text)
    with pytest.raises(SettingsError, match=names) as caught:
        load_settings(environment={}, config_file=config)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"), [("GROUPLEDGER_WAREHOSE", "x"), ("GROUPLEDGER_SHARE_DELIVERY_COUNT_LIMIT", "many")]
)
def test_wrong_environment_is_named(name: str, value: str) -> None:
    """A misspelt variable is not silently without effect."""
    with pytest.raises(SettingsError, match=name):
        load_settings(environment={name: value})


def test_dumps_are_a_source(tmp_path: Path) -> None:
    """Whoever names a dump names all sources; columns may be named one by one, in a file and in the environment."""
    config = tmp_path / "g.toml"
    config.write_text("[sources]\ndumps = ['d.parquet']\ndump_format = 'parquet'\n[dump_columns]\nkey = 'k'")
    settings = load_settings(environment={"GROUPLEDGER_DUMP_COLUMNS_VALUE": "v"}, config_file=config)
    assert (settings.segments, settings.dumps) == ((), (str(tmp_path / "d.parquet"),))
    columns = settings.dump.columns
    assert (settings.dump.format, columns.key, columns.value, columns.offset) == ("parquet", "k", "v", "offset")


def test_a_dump_may_be_a_table_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file and in an option; what looks like a file or is one is no table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.there").mkdir()
    named = ("raw.log", "lake.raw.log", "raw.there", "raw.json", "a/raw.log", "raw", "1.log")
    config = tmp_path / "g.toml"
    config.write_text(f"[sources]\ndumps = {list(named)}")
    expected = ("raw.log", "lake.raw.log", *(str(tmp_path / name) for name in named[2:]))
    assert load_settings(environment={}, config_file=config).dumps == expected
    assert load_settings({"dumps": named}, environment={}).dumps == expected


def test_missing_settings_file_is_named(tmp_path: Path) -> None:
    """A settings file which is not there is an error, not the defaults."""
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings(environment={"GROUPLEDGER_CONFIG": str(tmp_path / "nowhere.toml")})


def test_paths_start_where_they_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options start at the current folder, the file's sources at the project's."""
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"warehouse": "w x", "segments": ("../logs", "hdfs://h/l")}, environment={})
    assert settings.warehouse == str(tmp_path / "w x")
    assert settings.segments == (str(tmp_path.parent / "logs"), "hdfs://h/l")
    assert CONFIG_FILE.is_file()


def test_numbers_of_partitions_are_said_by_topic() -> None:
    """As TOPIC=COUNT, in options, in the environment or in the file; anything else is an error."""
    said = {"GROUPLEDGER_SOURCES_PARTITIONS": "__consumer_offsets=50, __share_group_state=5"}
    counts = {"__consumer_offsets": 50, "__share_group_state": 5}
    assert load_settings(environment=said).partition_counts == counts
    assert load_settings({"partitions": ("__consumer_offsets=1",)}, environment=said).partition_counts == {
        "__consumer_offsets": 1
    }
    assert load_settings(environment={}).partition_counts == {}
    offsets = "__consumer_offsets"
    for wrong in ("", "=0", "=-1", "=x", "=99999999999999", "=2000000000", "=\u0663"):
        with pytest.raises(SettingsError, match="is no number of partitions: give TOPIC=COUNT"):
            load_settings({"partitions": (offsets + wrong,)}, environment={})
    for wrong in ("50", "=5", "__consumer_offset=5", "orders=5"):
        with pytest.raises(SettingsError, match="is no number of partitions: give TOPIC=COUNT"):
            load_settings({"partitions": (wrong,)}, environment={})
    with pytest.raises(SettingsError, match="once a topic"):
        load_settings({"partitions": (f"{offsets}=1", f"{offsets}=2")}, environment={})
