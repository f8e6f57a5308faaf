"""Scenario files read from TOML, and checked before a run."""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from coordinator_core.coordinator.config import GroupCoordinatorConfig, config_of
from coordinator_core.errors import UnknownKafkaVersion
from coordinator_core.kafka_versions import KafkaVersion, kafka_version
from coordinator_core.simulate.errors import ScenarioError
from coordinator_core.simulate.scenario import (
    ALTERABLE,
    BELOW,
    BROKERS_MAX,
    CLIENT_TAGS_MAX,
    CONFIG_MS_MAX,
    DEAD_LETTER_PREFIX,
    DURATION,
    DURATION_MS_MAX,
    FAULT_KEYS,
    GROUP_KEYS,
    GROUPS_MAX,
    LEAST,
    LINGER_MS_MAX,
    LOCK_DURATION_MS,
    MEMBERS_MAX,
    MIGRATION_POLICIES,
    MOST,
    PARTITIONS_MAX,
    RECORD_LOCKS,
    SERVER_ASSIGNORS,
    STANDBY_REPLICAS_MAX,
    TAG_KEY_MAX,
    TAG_VALUE_MAX,
    TEXT_BYTES_MAX,
    TIME_MS,
    TOPIC_NAME,
    UNIT_MS,
    ClusterSpec,
    FaultSpec,
    GroupSpec,
    Scenario,
    TopicSpec,
    reset_duration_ms,
)
from coordinator_core.simulate.scenario_checks import check
from coordinator_core.simulate.scenario_place import Place, key_of, near, shown

T = TypeVar("T")

Reader = Callable[[Any, Place], Any]

BYTE_ORDER_MARK: Final = "\ufeff"
"""Windows editors write it at the beginning of a file."""
PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)


def parse_scenario(text: str, file_name: str) -> Scenario:
    """The scenario of a TOML text; `file_name` is for errors. Raises ScenarioError."""
    place = Place(f"{file_name}: ")
    try:
        document = tomllib.loads(text.removeprefix(BYTE_ORDER_MARK))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file_name} is not valid TOML: {error}: correct it there") from error
    except RecursionError:
        raise ScenarioError(f"{file_name} is no scenario: lists or tables in it are nested too deeply") from None
    except ValueError:  # Python parses no number of more than 4,300 digits
        raise ScenarioError(f"{file_name} is no scenario: a number in it has thousands of digits") from None
    scenario: Scenario = _table(Scenario, document, place)
    check(scenario, place)
    return scenario


def as_release(scenario: Scenario, version: KafkaVersion, file_name: str) -> Scenario:
    """The scenario with brokers of another release. Raises ScenarioError if it needs a feature that this release does
    not have.
    """
    changed = replace(scenario, cluster=replace(scenario.cluster, kafka_version=version))
    check(changed, Place(f"{file_name}: "))
    return changed


def _table(kind: type[T], value: Any, place: Place) -> T:
    """Read a TOML table into a dataclass: every key must be one of its fields, and no required one may be missing."""
    if not isinstance(value, dict):
        raise place.error(f"must be a table: {TABLE_OF[kind.__name__]}")
    known = {key_of(kind, name): name for name in (spec.name for spec in fields(kind))}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, given in value.items():
        if key not in known:
            name = key if PLAIN_KEY.fullmatch(key) else shown(key)
            raise place.key(name).error(f"is not known here; known are: {', '.join(known)}{near(key, known)}")
        values[known[key]] = READERS[kind.__name__, known[key]](given, place.key(key))
    for spec in fields(kind):  # type: ignore[arg-type]
        needed = spec.default is MISSING and spec.default_factory is MISSING
        if needed and spec.name not in values:
            raise place.key(key_of(kind, spec.name)).error("is missing: add it")
    made = kind(**values)
    if isinstance(made, GroupSpec):
        _check_given(made, value.keys(), place)
    return made


def _check_given(group: GroupSpec, given: Collection[str], place: Place) -> None:
    """Check that every key given to a group has an effect there: a key without effect is a misunderstanding."""
    if "max_poll_interval" in given and "member_max_poll_interval" in given:
        raise place.key("member_max_poll_interval").error("says that of each member: leave out max_poll_interval")
    for key, use in GROUP_KEYS.items():
        if key not in given:
            continue
        if group.protocol not in use.protocols:
            raise place.key(key).error(
                f"does nothing in a {group.protocol} group, {use.why}: leave it out, or set protocol to "
                f"{' or '.join(use.protocols)}"
            )
        for needed, values in use.needs.items():
            if (group.protocol == "share" or needed != "acknowledge") and getattr(group, needed) not in values:
                raise place.key(key).error(
                    f"does nothing with {needed} = {getattr(group, needed)!r}: leave it out, or set {needed} to "
                    f"{' or '.join(map(repr, values))}"
                )


TABLE_OF: Final[Mapping[str, str]] = {
    "ClusterSpec": "write [cluster]",
    "TopicSpec": "write [[topic]]",
    "GroupSpec": "write [[group]]",
    "FaultSpec": "write [[fault]]",
}


def _tables(kind: type[T]) -> Reader:
    def read(value: Any, place: Place) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise place.error(f"must be tables: write [[{place.rpartition(' ')[2]}]]")
        return tuple(_table(kind, item, place.item(index)) for index, item in enumerate(value))

    return read


def _text(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not value:
        raise place.error("must be a text that is not empty")
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise place.error(f"must be at most {TEXT_BYTES_MAX} bytes long")
    return value


def _any_text(value: Any, place: Place) -> str:
    if not isinstance(value, str):
        raise place.error("must be a text")
    return value


def _one_of(*names: str) -> Reader:
    def read(value: Any, place: Place) -> str:
        if value not in names:
            raise place.error(f"must be one of {', '.join(names)}")
        return str(value)

    return read


def _texts(value: Any, place: Place) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise place.error('must be a list, as ["one", "two"]')
    return tuple(_text(item, place.item(index)) for index, item in enumerate(value))


def _lists_of_texts(value: Any, place: Place) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, list) for item in value):
        raise place.error('must be a list of lists, as [["one"], ["one", "two"]]')
    return tuple(_texts(item, place.item(index)) for index, item in enumerate(value))


def _client_tags(value: Any, place: Place) -> tuple[tuple[tuple[str, str], ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise place.error('must be a list of tables, as [{ zone = "a" }, { zone = "b" }]')
    return tuple(_tags(item, place.item(index)) for index, item in enumerate(value))


def _tags(value: dict[str, Any], place: Place) -> tuple[tuple[str, str], ...]:
    if len(value) > CLIENT_TAGS_MAX:
        raise place.error(f"has {len(value)} tags: Kafka Streams takes {CLIENT_TAGS_MAX} at most")
    for key, tag in value.items():
        if not key or len(key) > TAG_KEY_MAX:
            raise place.error(f"has a key that is empty or longer than {TAG_KEY_MAX} characters: {shown(key)}")
        if not _text(tag, place.key(shown(key))) or len(tag) > TAG_VALUE_MAX:
            raise place.key(shown(key)).error(f"must be {TAG_VALUE_MAX} characters at most")
    return tuple(value.items())


def _count(least: int, most: int) -> Reader:
    def read(value: Any, place: Place) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise place.error(f"must be a whole number from {least} to {most}")
        return value

    return read


def _rate(value: Any, place: Place) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise place.error("must be records a second, 0 or more")
    return float(value)


def _flag(value: Any, place: Place) -> bool:
    if not isinstance(value, bool):
        raise place.error("must be true or false")
    return value


def _duration(value: Any, place: Place) -> int:
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise place.error('must be a duration, as "250ms", "45s", "5m", "2h" or "1d"')
    duration_ms = int(match[1]) * UNIT_MS[match[2]]
    if duration_ms > DURATION_MS_MAX:
        raise place.error(f'must be at most "{DURATION_MS_MAX // UNIT_MS["d"]}d"')
    return duration_ms


def _positive_duration(value: Any, place: Place) -> int:
    duration_ms = _duration(value, place)
    if duration_ms == 0:
        raise place.error('must be longer than nothing: "1ms" is the least')
    return duration_ms


def _config_duration(value: Any, place: Place) -> int:
    duration_ms = _positive_duration(value, place)
    if duration_ms > CONFIG_MS_MAX:
        raise place.error(f'must be at most "{CONFIG_MS_MAX}ms": Kafka keeps it in 32 bits')
    return duration_ms


def _durations(value: Any, place: Place) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise place.error('must be a list of durations, as ["30s", "5m"]')
    return tuple(_config_duration(item, place.item(index)) for index, item in enumerate(value))


def _linger(value: Any, place: Place) -> int:
    duration_ms = _duration(value, place)
    if duration_ms > LINGER_MS_MAX:
        raise place.error(
            f'must be at most "{LINGER_MS_MAX}ms": after 5 s (offsets.commit.timeout.ms) a write is given up'
        )
    return duration_ms


REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms of clients."""


def _within_request_timeout(value: Any, place: Place) -> int:
    duration_ms = _duration(value, place)
    if duration_ms >= REQUEST_TIMEOUT_MS:
        raise place.error('must be below "30s": a client takes a request for lost then (request.timeout.ms)')
    return duration_ms


def _lock_duration(value: Any, place: Place) -> int:
    duration_ms = _duration(value, place)
    if not LOCK_DURATION_MS[0] <= duration_ms <= LOCK_DURATION_MS[1]:
        raise place.error('must be from "1s" to "1h": brokers refuse any other (share.record.lock.duration.ms)')
    return duration_ms


def _offset_reset(value: Any, place: Place) -> str:
    if not isinstance(value, str) or (value not in {"earliest", "latest"} and reset_duration_ms(value) is None):
        raise place.error('must be one of earliest, latest, or in share groups by_duration, as "by_duration:PT5M"')
    return value


def _latency(value: Any, place: Place) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise place.error('must be two durations, as ["1ms", "5ms"]')
    low_ms, high_ms = (_duration(item, place.item(index)) for index, item in enumerate(value))
    if low_ms > high_ms:
        raise place.error("the first duration must not be above the second")
    return low_ms, high_ms


def _time(value: Any, place: Place) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise place.error("must be a time with an offset, as 2026-01-05T00:00:00Z")
    time_ms = int(value.timestamp() * 1000)
    if not TIME_MS[0] <= time_ms <= TIME_MS[1]:
        raise place.error("must be a time from 1970-01-01T00:00:00Z to the end of 9999")
    return time_ms


def _settings(value: Any, place: Place) -> GroupCoordinatorConfig:
    if not isinstance(value, dict):
        raise place.error("must be a table: write [cluster.settings]")
    if any(isinstance(item, dict) for item in value.values()):
        raise place.error('put the names of settings in quotes, as "group.max.size" = 100')
    defaults = GroupCoordinatorConfig()
    known = {spec.name.replace("_", "."): getattr(defaults, spec.name) for spec in fields(defaults)}
    del known["kafka.version"]  # a key of the cluster, not of its coordinators
    for name, given in value.items():
        if name not in known:
            raise place.error(f"no coordinator setting is called {shown(name)}: leave it out{near(name, known)}")
        _check_kind(given, known[name], place.key(f'"{name}"'))
    config = config_of(value)
    _check_settings(config, place)
    return config


DIGITS: Final = re.compile(r" *-?[0-9]{1,19} *", re.ASCII)


def _check_kind(value: Any, default: Any, place: Place) -> None:
    """Check that a setting is written in the matching TOML type, or as a string like in a broker's properties."""
    if isinstance(default, bool):
        if not isinstance(value, bool) and str(value).strip().lower() not in {"true", "false"}:
            raise place.error("must be true or false")
    elif isinstance(default, int):
        is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        if not is_whole and not (isinstance(value, str) and DIGITS.fullmatch(value)):
            raise place.error("must be a whole number")
    elif isinstance(default, tuple):
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise place.error('must be a list, as ["one", "two"]')
    elif not isinstance(value, str):
        raise place.error("must be a text")


def _check_settings(config: GroupCoordinatorConfig, place: Place) -> None:
    """Refuse settings out of their range, with which a broker would not start."""
    for spec in fields(config):
        number, name = getattr(config, spec.name), spec.name.replace("_", ".")
        if isinstance(number, bool) or not isinstance(number, int):
            continue
        least, most = LEAST.get(spec.name, 1), MOST.get(spec.name, 2**31 - 1)
        if not least <= number <= most:
            raise place.key(f'"{name}"').error(
                f"must be a whole number from {least} to {most}: brokers refuse {number}"
            )
    for lower, upper in BELOW:
        low, high = getattr(config, lower), getattr(config, upper)
        if low >= high:
            names = lower.replace("_", "."), upper.replace("_", ".")
            raise place.key(f'"{names[0]}"').error(
                f"must be below {names[1]} ({high}), and is {low}: change one of them"
            )
    assignors = config.group_consumer_assignors
    if not assignors or len(set(assignors)) < len(assignors):
        raise place.key('"group.consumer.assignors"').error(
            f"must name one or more of {', '.join(SERVER_ASSIGNORS)}, once"
        )
    for assignor in assignors:
        if assignor not in SERVER_ASSIGNORS:
            raise place.key('"group.consumer.assignors"').error(f"must be among {', '.join(SERVER_ASSIGNORS)}")
    if config.group_share_assignors != ("simple",):
        raise place.key('"group.share.assignors"').error("must be simple: share groups have no other")
    if config.group_consumer_migration_policy not in MIGRATION_POLICIES:
        raise place.key('"group.consumer.migration.policy"').error(f"must be one of {', '.join(MIGRATION_POLICIES)}")


def _kafka_version(value: Any, place: Place) -> KafkaVersion:
    if not isinstance(value, str):
        raise place.error('must be a release in quotes, as "4.4"')
    try:
        return kafka_version(value)
    except UnknownKafkaVersion as error:
        raise place.error(str(error)) from error


def _topic_name(value: Any, place: Place) -> str:
    if (
        not isinstance(value, str)
        or TOPIC_NAME.fullmatch(value) is None
        or value in {".", ".."}
        or value.startswith("__")
    ):
        raise place.error("must be the name of a topic: letters, digits, '.', '_' and '-', and no internal one")
    return value


def _dead_letter_topic(value: Any, place: Place) -> str:
    name = _topic_name(value, place)
    if not name.startswith(DEAD_LETTER_PREFIX):
        raise place.error(
            f"must begin with {DEAD_LETTER_PREFIX!r}: brokers copy to no other topic "
            "(errors.deadletterqueue.topic.name.prefix)"
        )
    return name


READERS: Final[Mapping[tuple[str, str], Reader]] = {
    ("Scenario", "name"): _text,
    ("Scenario", "start_ms"): _time,
    ("Scenario", "duration_ms"): _positive_duration,
    ("Scenario", "seed"): _count(0, 2**63 - 1),
    ("Scenario", "about"): _any_text,
    ("Scenario", "cluster"): lambda value, place: _table(ClusterSpec, value, place),
    ("Scenario", "topics"): _tables(TopicSpec),
    ("Scenario", "groups"): _tables(GroupSpec),
    ("Scenario", "faults"): _tables(FaultSpec),
    ("ClusterSpec", "brokers"): _count(1, BROKERS_MAX),
    ("ClusterSpec", "racks"): _texts,
    ("ClusterSpec", "consumer_offsets_partitions"): _count(1, PARTITIONS_MAX),
    ("ClusterSpec", "share_group_state_partitions"): _count(1, PARTITIONS_MAX),
    ("ClusterSpec", "transaction_state_partitions"): _count(1, PARTITIONS_MAX),
    ("ClusterSpec", "new_cluster"): _flag,
    ("ClusterSpec", "latency_ms"): _latency,
    ("ClusterSpec", "append_linger_ms"): _linger,
    ("ClusterSpec", "segment_bytes"): _count(10_000, 2**31 - 1),
    ("ClusterSpec", "compression"): _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ("ClusterSpec", "retention_check_interval_ms"): _positive_duration,
    ("ClusterSpec", "transaction_version"): _count(0, 2),
    ("ClusterSpec", "share_record_lock_duration_ms"): _lock_duration,
    ("ClusterSpec", "share_delivery_count_limit"): _count(2, 25),
    ("ClusterSpec", "share_snapshot_update_records_per_snapshot"): _count(0, 500),
    ("ClusterSpec", "share_sessions_max"): _count(1, 2**31 - 1),
    ("ClusterSpec", "share_fetch_read_ms"): _within_request_timeout,
    ("ClusterSpec", "settings"): _settings,
    ("ClusterSpec", "kafka_version"): _kafka_version,
    ("TopicSpec", "name"): _topic_name,
    ("TopicSpec", "partitions"): _count(1, PARTITIONS_MAX),
    ("TopicSpec", "rate"): _rate,
    ("TopicSpec", "batch_records"): _count(1, 1_000_000),
    ("TopicSpec", "transaction_records"): _count(0, 1_000_000),
    ("TopicSpec", "abort_every"): _count(0, 2**31 - 1),
    ("TopicSpec", "retention_ms"): _positive_duration,
    ("TopicSpec", "poison_every"): _count(0, 2**31 - 1),
    ("TopicSpec", "dead_letters"): _flag,
    ("GroupSpec", "name"): _text,
    ("GroupSpec", "topics"): _texts,
    ("GroupSpec", "member_topics"): _lists_of_texts,
    ("GroupSpec", "protocol"): _one_of("classic", "consumer", "share", "streams"),
    ("GroupSpec", "stateful"): _flag,
    ("GroupSpec", "repartition"): _flag,
    ("GroupSpec", "client_tags"): _client_tags,
    ("GroupSpec", "threads"): _count(1, MEMBERS_MAX),
    ("GroupSpec", "standby_replicas"): _count(0, STANDBY_REPLICAS_MAX),
    ("GroupSpec", "count"): _count(1, GROUPS_MAX),
    ("GroupSpec", "members"): _count(1, MEMBERS_MAX),
    ("GroupSpec", "assignors"): _texts,
    ("GroupSpec", "member_assignors"): _lists_of_texts,
    ("GroupSpec", "acquire_mode"): _one_of("batch_optimized", "record_limit"),
    ("GroupSpec", "racks"): _texts,
    ("GroupSpec", "static"): _flag,
    ("GroupSpec", "start_after_ms"): _duration,
    ("GroupSpec", "stagger_ms"): _duration,
    ("GroupSpec", "session_timeout_ms"): _config_duration,
    ("GroupSpec", "heartbeat_interval_ms"): _config_duration,
    ("GroupSpec", "max_poll_interval_ms"): _config_duration,
    ("GroupSpec", "member_max_poll_interval_ms"): _durations,
    ("GroupSpec", "request_timeout_ms"): _config_duration,
    ("GroupSpec", "commit_interval_ms"): _config_duration,
    ("GroupSpec", "commits"): _one_of("auto", "none", "transactional"),
    ("GroupSpec", "abort_every"): _count(0, 2**31 - 1),
    ("GroupSpec", "rate"): _rate,
    ("GroupSpec", "on_poison"): _one_of("skip", "stuck", "reject", "release", "time_out"),
    ("GroupSpec", "acknowledge"): _one_of("implicit", "explicit"),
    ("GroupSpec", "fetch_max_wait_ms"): _within_request_timeout,
    ("GroupSpec", "max_poll_records"): _count(1, 1_000_000),
    ("GroupSpec", "poll_interval_ms"): _config_duration,
    ("GroupSpec", "release_every"): _count(0, 2**31 - 1),
    ("GroupSpec", "renew_every"): _count(0, 2**31 - 1),
    ("GroupSpec", "renew_acknowledge"): _flag,
    ("GroupSpec", "max_record_locks"): _count(*RECORD_LOCKS),
    ("GroupSpec", "record_lock_duration_ms"): _lock_duration,
    ("GroupSpec", "delivery_count_limit"): _count(2, 25),
    ("GroupSpec", "dead_letter_topic"): _dead_letter_topic,
    ("GroupSpec", "isolation_level"): _one_of("read_uncommitted", "read_committed"),
    ("GroupSpec", "offset_reset"): _offset_reset,
    ("FaultSpec", "kind"): _one_of(*FAULT_KEYS),
    ("FaultSpec", "at_ms"): _duration,
    ("FaultSpec", "every_ms"): _positive_duration,
    ("FaultSpec", "group"): _text,
    ("FaultSpec", "member"): _count(0, MEMBERS_MAX),
    ("FaultSpec", "topic"): _text,
    ("FaultSpec", "partition"): _count(0, PARTITIONS_MAX),
    ("FaultSpec", "broker"): _count(1, BROKERS_MAX),
    ("FaultSpec", "duration_ms"): _positive_duration,
    ("FaultSpec", "offset"): _count(0, 2**62),
    ("FaultSpec", "partitions"): _count(1, PARTITIONS_MAX),
    ("FaultSpec", "topics"): _texts,
    ("FaultSpec", "config"): _one_of(*ALTERABLE),
    ("FaultSpec", "value"): _count(0, 2**31 - 1),
}
"""(dataclass, field) -> the reader and checker of its value. A field without an entry cannot be set."""
