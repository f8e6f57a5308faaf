"""Values of scenario files: the reader and checker of each kind of value.

A reader takes a value of TOML and its place, and returns the value of the field; it raises ScenarioError.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from coordinator_core.bytes.kafka_versions import KafkaVersion, kafka_version
from coordinator_core.errors import UnknownKafkaVersion
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig, config_of
from coordinator_core.text import UNIT_MS, duration_of
from simulator.simulation.scenario_place import Place, near, shown

Reader = Callable[[Any, Place], Any]


LOCK_DURATION_MS: Final = (1000, 3_600_000)
"""group.share.min.record.lock.duration.ms may be 1 s, and group.share.max.record.lock.duration.ms 1 h."""
RECORD_LOCKS: Final = (100, 10_000)
"""share.partition.max.record.locks: the least is group.share.min.partition.max.record.locks, the most what brokers may
allow."""
BY_DURATION: Final = re.compile(
    r"by_duration:P(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})(?:\.([0-9]{1,3}))?S)?)?",
    re.ASCII,
)
CLIENT_TAGS_MAX: Final = 5
TAG_KEY_MAX: Final = 20
TAG_VALUE_MAX: Final = 30
"""The limits of Kafka Streams for client tags (StreamsConfig.MAX_RACK_AWARE_ASSIGNMENT_TAG_...)."""
DEAD_LETTER_PREFIX: Final = "dlq."
"""errors.deadletterqueue.topic.name.prefix of the brokers."""
DURATION_MS_MAX: Final = 3650 * UNIT_MS["d"]
"""Ten years: the clock of a longer scenario would reach dates that no calendar has."""
CONFIG_MS_MAX: Final = 2**31 - 1
"""The most of a duration of clients and brokers, which Kafka keeps in 32 bits."""
LINGER_MS_MAX: Final = 4999
"""offsets.commit.timeout.ms: a write times out after 5 s, and with a longer linger every write would."""
FETCH_BYTES_MAX: Final = 57_671_680
"""fetch.max.bytes of brokers by default: they cut down to it what a client asks for."""
TEXT_BYTES_MAX: Final = 32_000
"""The length of a string in a record has 16 bits; member names and transactional ids are a little longer than the group
id."""
TIME_MS: Final = (0, 253_402_300_799_999)
"""1970-01-01T00:00:00Z to the end of the year 9999: Kafka has no times below 0, and calendars end there."""

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)

LEAST: Final[Mapping[str, int]] = {
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_regex_refresh_interval_ms": 10_000,
    "group_initial_rebalance_delay_ms": 0,
    "group_share_assignment_interval_ms": 0,
    "group_streams_acceptable_recovery_lag": 0,
    "group_streams_assignment_interval_ms": 0,
    "group_streams_initial_rebalance_delay_ms": 0,
    "group_streams_num_standby_replicas": 0,
    "group_streams_num_warmup_replicas": 0,
    "offset_metadata_max_bytes": 0,
}
"""Setting of the group coordinator -> its least value; that of every other number is 1."""
MOST: Final[Mapping[str, int]] = {"group_share_max_size": 1000}
"""Setting -> its most value; that of every other number is what fits into 31 bits."""
SERVER_ASSIGNORS: Final = ("uniform", "range")
MIGRATION_POLICIES: Final = ("disabled", "downgrade", "upgrade", "bidirectional")
BELOW: Final = (
    ("group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms"),
    ("group_share_heartbeat_interval_ms", "group_share_session_timeout_ms"),
    ("group_streams_heartbeat_interval_ms", "group_streams_session_timeout_ms"),
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
)
"""Pairs of settings of which the first must be below the second (GroupCoordinatorConfig of Kafka)."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms of clients."""
DIGITS: Final = re.compile(r" *-?[0-9]{1,19} *", re.ASCII)


def reset_duration_ms(text: str) -> int | None:
    """The duration of `by_duration:...`; None for any other text."""
    match = BY_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole_s = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole_s * 1000 + int((fraction or "").ljust(3, "0") or 0)


def text(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not value:
        raise place.error("must be a text that is not empty")
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise place.error(f"must be at most {TEXT_BYTES_MAX} bytes long")
    return value


def any_text(value: Any, place: Place) -> str:
    if not isinstance(value, str):
        raise place.error("must be a text")
    return value


def one_of(*names: str) -> Reader:
    def read(value: Any, place: Place) -> str:
        if value not in names:
            raise place.error(f"must be one of {', '.join(names)}")
        return str(value)

    return read


isolation_level: Final = one_of("read_uncommitted", "read_committed")


def config_value(value: Any, place: Place) -> int | str:
    """Of a config that says itself what it may be."""
    if isinstance(value, int | str):
        return value
    raise place.error("must be a whole number, a text, or true or false")


def texts(value: Any, place: Place) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise place.error('must be a list, as ["one", "two"]')
    return tuple(text(item, place.item(index)) for index, item in enumerate(value))


def lists_of_texts(value: Any, place: Place) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, list) for item in value):
        raise place.error('must be a list of lists, as [["one"], ["one", "two"]]')
    return tuple(texts(item, place.item(index)) for index, item in enumerate(value))


def client_tags(value: Any, place: Place) -> tuple[tuple[tuple[str, str], ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise place.error('must be a list of tables, as [{ zone = "a" }, { zone = "b" }]')
    return tuple(_tags(item, place.item(index)) for index, item in enumerate(value))


def _tags(value: dict[str, Any], place: Place) -> tuple[tuple[str, str], ...]:
    if len(value) > CLIENT_TAGS_MAX:
        raise place.error(f"has {len(value)} tags: Kafka Streams takes {CLIENT_TAGS_MAX} at most")
    for key, tag in value.items():
        if not key or len(key) > TAG_KEY_MAX:
            raise place.error(f"has a key that is empty or longer than {TAG_KEY_MAX} characters: {shown(key)}")
        if not text(tag, place.key(shown(key))) or len(tag) > TAG_VALUE_MAX:
            raise place.key(shown(key)).error(f"must be {TAG_VALUE_MAX} characters at most")
    return tuple(value.items())


def count(least: int, most: int) -> Reader:
    def read(value: Any, place: Place) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise place.error(f"must be a whole number from {least} to {most}")
        return value

    return read


def rate(value: Any, place: Place) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise place.error("must be records a second, 0 or more")
    return float(value)


def flag(value: Any, place: Place) -> bool:
    if not isinstance(value, bool):
        raise place.error("must be true or false")
    return value


def duration(value: Any, place: Place) -> int:
    duration_ms = duration_of(value) if isinstance(value, str) else None
    if duration_ms is None:
        raise place.error('must be a duration, as "250ms", "45s", "5m", "2h" or "1d"')
    if duration_ms > DURATION_MS_MAX:
        raise place.error(f'must be at most "{DURATION_MS_MAX // UNIT_MS["d"]}d"')
    return duration_ms


def duration_within(least_ms: int, most_ms: int, said: str, reader: Reader = duration) -> Reader:
    """A duration in these bounds; `said`: the error of one beyond them."""

    def read(value: Any, place: Place) -> int:
        duration_ms: int = reader(value, place)
        if not least_ms <= duration_ms <= most_ms:
            raise place.error(said)
        return duration_ms

    return read


positive_duration: Final = duration_within(1, DURATION_MS_MAX, 'must be longer than nothing: "1ms" is the least')
config_duration: Final = duration_within(
    0, CONFIG_MS_MAX, f'must be at most "{CONFIG_MS_MAX}ms": Kafka keeps it in 32 bits', positive_duration
)
linger: Final = duration_within(
    0, LINGER_MS_MAX, f'must be at most "{LINGER_MS_MAX}ms": after 5 s (offsets.commit.timeout.ms) a write is given up'
)
within_request_timeout: Final = duration_within(
    0,
    REQUEST_TIMEOUT_MS - 1,
    'must be below "30s": a client takes a request for lost then (request.timeout.ms)',
)
lock_duration: Final = duration_within(
    *LOCK_DURATION_MS, 'must be from "1s" to "1h": brokers refuse any other (share.record.lock.duration.ms)'
)


def durations(value: Any, place: Place) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise place.error('must be a list of durations, as ["30s", "5m"]')
    return tuple(config_duration(item, place.item(index)) for index, item in enumerate(value))


def offset_reset(value: Any, place: Place) -> str:
    if not isinstance(value, str) or (value not in {"earliest", "latest"} and reset_duration_ms(value) is None):
        raise place.error('must be one of earliest, latest, or in share groups by_duration, as "by_duration:PT5M"')
    return value


def latency(value: Any, place: Place) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise place.error('must be two durations, as ["1ms", "5ms"]')
    low_ms, high_ms = (duration(item, place.item(index)) for index, item in enumerate(value))
    if low_ms > high_ms:
        raise place.error("the first duration must not be above the second")
    return low_ms, high_ms


def time(value: Any, place: Place) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise place.error("must be a time with an offset, as 2026-01-05T00:00:00Z")
    time_ms = int(value.timestamp() * 1000)
    if not TIME_MS[0] <= time_ms <= TIME_MS[1]:
        raise place.error("must be a time from 1970-01-01T00:00:00Z to the end of 9999")
    return time_ms


def settings(value: Any, place: Place) -> GroupCoordinatorConfig:
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


def release(value: Any, place: Place) -> KafkaVersion:
    if not isinstance(value, str):
        raise place.error('must be a release in quotes, as "4.4"')
    try:
        return kafka_version(value)
    except UnknownKafkaVersion as error:
        raise place.error(str(error)) from error


def topic_name(value: Any, place: Place) -> str:
    if (
        not isinstance(value, str)
        or TOPIC_NAME.fullmatch(value) is None
        or value in {".", ".."}
        or value.startswith("__")
    ):
        raise place.error("must be the name of a topic: letters, digits, '.', '_' and '-', and no internal one")
    return value


def dead_letter_topic(value: Any, place: Place) -> str:
    name = topic_name(value, place)
    if not name.startswith(DEAD_LETTER_PREFIX):
        raise place.error(
            f"must begin with {DEAD_LETTER_PREFIX!r}: brokers copy to no other topic "
            "(errors.deadletterqueue.topic.name.prefix)"
        )
    return name
