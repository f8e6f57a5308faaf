"""Scenario files read from TOML, and checked before anything runs."""

import difflib
import heapq
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from coordinator_core.coordinator.config import GroupCoordinatorConfig, config_of
from coordinator_core.errors import UnknownKafkaVersion
from coordinator_core.kafka_versions import KafkaVersion, Since, kafka_version
from coordinator_core.simulate.errors import ScenarioError
from coordinator_core.simulate.scenario import (
    ALL_PARTITIONS_MAX,
    ALTERABLE,
    BELOW,
    BROKERS_MAX,
    BY_DURATION,
    CLIENTS_MAX,
    CONFIG_MS_MAX,
    DEAD_LETTER_PREFIX,
    DURATION,
    DURATION_MS_MAX,
    FAULT_KEYS,
    FAULT_KEYS_MORE,
    GROUP_KEYS,
    GROUPS_MAX,
    LEAST,
    LINGER_MS_MAX,
    LOCK_DURATION_MS,
    MEMBERS_MAX,
    MIGRATION_POLICIES,
    MOST,
    ONCE,
    PARTITIONS_MAX,
    RECORD_LOCKS,
    SERVER_ASSIGNORS,
    STANDBY_REPLICAS_MAX,
    STRIKES_MAX,
    TEXT_BYTES_MAX,
    TIME_MS,
    UNIT_MS,
    ClusterSpec,
    FaultSpec,
    GroupSpec,
    Scenario,
    TopicSpec,
    occurrences,
    topics_made_later,
)

T = TypeVar("T")

SHOWN_MAX: Final = 60
"""Characters of a name in an error: the line is for people."""


def _shown(name: str) -> str:
    """A name of the file in one line, in quotes."""
    return repr(name if len(name) <= SHOWN_MAX else name[:SHOWN_MAX] + "...")


def _near(name: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of an error."""
    found = difflib.get_close_matches(name[:SHOWN_MAX], list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


class Place(str):
    """Where in a file something is, as `deploy.toml: group[0].members`."""

    __slots__ = ()

    def key(self, name: str) -> "Place":
        """A key below."""
        return Place(f"{self}{name}" if self.endswith(" ") else f"{self}.{name}")

    def item(self, index: int) -> "Place":
        """An item of a list."""
        return Place(f"{self}[{index}]")

    def error(self, what: str) -> ScenarioError:
        """An error at this place."""
        return ScenarioError(f"{self}: {what}")


Reader = Callable[[Any, Place], Any]

BYTE_ORDER_MARK: Final = "\ufeff"
"""Editors of Windows write it at the beginning."""
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
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise ScenarioError(f"{file_name} is no scenario: a number in it has thousands of digits") from None
    scenario: Scenario = _table(Scenario, document, place)
    _check(scenario, place)
    return scenario


def as_release(scenario: Scenario, version: KafkaVersion, file_name: str) -> Scenario:
    """The scenario with other brokers. Raises ScenarioError where it needs what that release does not have."""
    changed = replace(scenario, cluster=replace(scenario.cluster, kafka_version=version))
    _check(changed, Place(f"{file_name}: "))
    return changed


def _table(kind: type[T], value: Any, place: Place) -> T:
    """A dataclass of a TOML table: every key is one of its fields, and none which it needs is missing."""
    if not isinstance(value, dict):
        raise place.error(f"must be a table: {TABLE_OF[kind.__name__]}")
    known = {_key_of(kind, name): name for name in (spec.name for spec in fields(kind))}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, given in value.items():
        if key not in known:
            shown = key if PLAIN_KEY.fullmatch(key) else _shown(key)
            raise place.key(shown).error(f"is not known here; known are: {', '.join(known)}{_near(key, known)}")
        values[known[key]] = READERS[kind.__name__, known[key]](given, place.key(key))
    for spec in fields(kind):  # type: ignore[arg-type]
        needed = spec.default is MISSING and spec.default_factory is MISSING
        if needed and spec.name not in values:
            raise place.key(_key_of(kind, spec.name)).error("is missing: add it")
    made = kind(**values)
    if isinstance(made, GroupSpec):
        _check_given(made, value.keys(), place)
    return made


def _check_given(group: GroupSpec, given: Collection[str], place: Place) -> None:
    """Every key that a group is given does something there: a key without effect is a misunderstanding."""
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


def _key_of(kind: type, name: str) -> str:
    """The key of a field: durations go without their unit, lists of tables by one of them."""
    if kind is Scenario and name in {"topics", "groups", "faults"}:
        return name[:-1]
    return name.removesuffix("_ms")


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


def reset_duration_ms(text: str) -> int | None:
    """The duration of `by_duration:...`, None for any other text."""
    match = BY_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole_s = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole_s * 1000 + int((fraction or "").ljust(3, "0") or 0)


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
    del known["kafka.version"]  # of the cluster, not of its coordinators
    for name, given in value.items():
        if name not in known:
            raise place.error(f"no coordinator setting is called {_shown(name)}: leave it out{_near(name, known)}")
        _check_kind(given, known[name], place.key(f'"{name}"'))
    config = config_of(value)
    _check_settings(config, place)
    return config


DIGITS: Final = re.compile(r" *-?[0-9]{1,19} *", re.ASCII)


def _check_kind(value: Any, default: Any, place: Place) -> None:
    """A setting is written as TOML has its kind, or as a text in the manner of a broker's properties."""
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
    """A broker would not start with a setting out of its range."""
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


_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def _topic_name(value: Any, place: Place) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None or value in {".", ".."} or value.startswith("__"):
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
"""(dataclass, field) -> how its value is read and checked. A field without a line cannot be set."""

CLASSIC_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
POISON_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "classic": ("skip", "stuck"),
    "consumer": ("skip", "stuck"),
    "streams": ("skip", "stuck"),
    "share": ("skip", "reject", "release", "time_out"),
}


# --- checks between tables ---


def _check(scenario: Scenario, place: Place) -> None:
    if scenario.end_ms > TIME_MS[1]:
        raise place.key("duration").error("must end before the year 10000: begin earlier, or make it shorter")
    topics = {topic.name: topic for topic in scenario.topics}
    if len(topics) < len(scenario.topics):
        raise place.key("topic").error("two topics have one name: give each its own")
    _check_size(scenario, place)
    metric_names: dict[str, str] = {}
    for index, topic in enumerate(scenario.topics):
        other = metric_names.setdefault(topic.name.replace(".", "_"), topic.name)
        if other != topic.name:
            raise (
                place.key("topic")
                .item(index)
                .key("name")
                .error(f"collides with {_shown(other)}: brokers refuse topics that differ in '.' and '_' only")
            )
    for index, topic in enumerate(scenario.topics):
        of_topic = place.key("topic").item(index)
        if topic.transaction_records % topic.batch_records:
            raise of_topic.key("transaction_records").error(
                f"must be a multiple of batch_records ({topic.batch_records}): a batch is of one transaction"
            )
        if topic.abort_every and not topic.transaction_records:
            raise of_topic.key("abort_every").error("does nothing without transaction_records: leave it out")
    if len(scenario.cluster.racks) > scenario.cluster.brokers:
        raise (
            place.key("cluster")
            .key("racks")
            .error(f"has more racks than there are brokers ({scenario.cluster.brokers}): the last would do nothing")
        )
    group_ids: set[str] = set()
    for index, group in enumerate(scenario.groups):
        _check_group(scenario, group, topics, place.key("group").item(index))
        _check_streams(scenario, group, topics, place.key("group").item(index))
        if not group_ids.isdisjoint(group.group_ids()):
            raise place.key("group").item(index).key("name").error("is taken by another group: give each its own")
        group_ids.update(group.group_ids())
    _check_dead_letters(scenario, topics, place)
    for index, fault in enumerate(scenario.faults):
        _check_fault(scenario, fault, topics, place.key("fault").item(index))
    _check_lives_of_topics(scenario, topics, place.key("fault"))


def _check_dead_letters(scenario: Scenario, topics: Mapping[str, TopicSpec], place: Place) -> None:
    has_dead_letters = Since.ARCHIVING_IS_A_STATE.holds_in(scenario.cluster.kafka_version)
    needed = (
        f"needs Kafka 4.4, and the brokers run {scenario.cluster.kafka_version}: "
        'set kafka_version = "4.4" in [cluster], or --kafka-version 4.4'
    )
    written: set[str] = set()
    for index, group in enumerate(scenario.groups):
        name, key = group.dead_letter_topic, place.key("group").item(index).key("dead_letter_topic")
        if name is None:
            continue
        written.add(name)
        if not has_dead_letters:
            raise key.error(needed)
        if name not in topics:
            raise key.error(f"names {_shown(name)}, which no [[topic]] makes: add it{_near(name, topics)}")
        if name in group.topics:
            raise key.error("is among topics: the group would copy its own dead letters again; name another one")
    for index, topic in enumerate(scenario.topics):
        of_topic = place.key("topic").item(index)
        if topic.dead_letters and not has_dead_letters:
            raise of_topic.key("dead_letters").error(needed)
        for key_name in ("rate", "transaction_records"):
            if (topic.dead_letters or topic.name in written) and getattr(topic, key_name):
                raise of_topic.key(key_name).error("must be 0: brokers write the records of a dead letter topic")


def _check_size(scenario: Scenario, place: Place) -> None:
    """A few keys make more than any memory has."""
    if sum(group.count * group.members for group in scenario.groups) > CLIENTS_MAX:
        raise place.key("group").error(f"count and members make more than {CLIENTS_MAX} members in all: lower them")
    counts = {topic.name: topic.partitions for topic in scenario.topics}
    for fault in scenario.faults:
        if fault.topic is not None and fault.partitions is not None:
            counts[fault.topic] = max(counts.get(fault.topic, 0), fault.partitions)
    if sum(counts.values()) > ALL_PARTITIONS_MAX:
        raise place.key("topic").error(f"partitions are more than {ALL_PARTITIONS_MAX} in all: lower them")


def _check_group(scenario: Scenario, group: GroupSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    for topic in group.topics:
        if topic not in topics:
            raise place.key("topics").error(
                f"names {_shown(topic)}, which no [[topic]] makes: add it{_near(topic, topics)}"
            )
    if group.start_after_ms >= scenario.duration_ms:
        raise place.key("start_after").error("is not before the end of the scenario: the group would never start")
    _check_member_topics(group, place.key("member_topics"))
    for key in ("racks", "member_max_poll_interval"):
        if len(getattr(group, "racks" if key == "racks" else f"{key}_ms")) > group.members:
            raise place.key(key).error(f"has more than the group has members ({group.members}): the last does nothing")
    _check_member_assignors(group, place.key("member_assignors"))
    known = {"classic": CLASSIC_ASSIGNORS, "consumer": scenario.cluster.settings.group_consumer_assignors}
    for assignor in group.assignors:
        if assignor not in known.get(group.protocol, ()):
            text = ", ".join(known[group.protocol]) if group.protocol in known else "none: share groups have but one"
            raise place.key("assignors").error(f"must be among {text}")
    if group.protocol == "consumer" and len(group.assignors) > 1:
        raise place.key("assignors").error("takes one in a consumer group (group.remote.assignor): name one")
    if len(set(group.assignors)) < len(group.assignors) or len(set(group.topics)) < len(group.topics):
        key = "topics" if len(set(group.topics)) < len(group.topics) else "assignors"
        raise place.key(key).error("has a name twice: name each once")
    if group.on_poison not in POISON_OF[group.protocol]:
        raise place.key("on_poison").error(
            f"must be one of {', '.join(POISON_OF[group.protocol])} in a {group.protocol} group"
        )
    if group.protocol != "share" and reset_duration_ms(group.offset_reset) is not None:
        raise place.key("offset_reset").error(f"must be earliest or latest in a {group.protocol} group")
    if group.protocol == "share" and group.commits == "transactional":
        raise place.key("commits").error("share groups commit no offsets: leave it out")
    settings = scenario.cluster.settings
    shortest_ms, longest_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if group.protocol == "classic" and not shortest_ms <= group.session_timeout_ms <= longest_ms:
        raise place.key("session_timeout").error(
            f"the brokers take {shortest_ms} to {longest_ms} ms (group.min.session.timeout.ms, group.max...)"
        )
    if group.protocol == "classic" and group.heartbeat_interval_ms >= group.session_timeout_ms:
        raise place.key("heartbeat_interval").error(f"must be below session_timeout ({group.session_timeout_ms} ms)")


def _check_streams(scenario: Scenario, group: GroupSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    """What an application and its brokers would not bear."""
    if group.protocol != "streams":
        return
    version = scenario.cluster.kafka_version
    if group.static and not Since.STREAMS_HAVE_STATIC_MEMBERS.holds_in(version):
        raise place.key("static").error(
            f"needs kafka_version 4.4 in a streams group: brokers of {version} refuse static members there"
        )
    if _NAME.fullmatch(group.name) is None:
        raise place.key("name").error(
            "must be letters, digits, '.', '_' and '-' in a streams group: its internal topics are named after it"
        )
    if group.threads > group.members:
        raise place.key("threads").error(f"is above the members of the group ({group.members}): the last do nothing")
    for group_id in group.group_ids():
        for internal in (f"{group_id}-counts-repartition", f"{group_id}-counts-changelog"):
            if _NAME.fullmatch(internal) is None:
                raise place.key("name").error(
                    f"makes {_shown(internal)} an internal topic: names of topics have 249 characters at most"
                )
            if internal in topics:
                raise place.key("name").error(
                    f"makes {_shown(internal)} an internal topic, and a [[topic]] has that name"
                )
    for index, fault in enumerate(scenario.faults):
        if fault.topic in group.topics and fault.kind in {"create_topic", "delete_topic"}:
            raise place.key("topics").error(
                f"names {_shown(fault.topic)}, which fault[{index}] ({fault.kind}) takes away for a time: the "
                "application would end (MissingSourceTopicException), which is not simulated. Name another topic"
            )
        if fault.topic in group.topics and fault.kind == "add_partitions" and (group.stateful or group.repartition):
            raise place.key("topics").error(
                f"names {_shown(fault.topic)}, which fault[{index}] ({fault.kind}) gives more partitions than the "
                "internal topics have: the group would assign nothing any more. Set stateful and repartition to false"
            )


def _check_member_assignors(group: GroupSpec, place: Place) -> None:
    if group.member_assignors and group.assignors:
        raise place.error("says the assignors of each member: leave out assignors")
    if len(group.member_assignors) > group.members:
        raise place.error(f"has more lists than the group has members ({group.members}): the last would do nothing")
    for index, assignors in enumerate(group.member_assignors):
        for assignor in assignors:
            if assignor not in CLASSIC_ASSIGNORS:
                raise place.item(index).error(f"must be among {', '.join(CLASSIC_ASSIGNORS)}")
        if len(set(assignors)) < len(assignors):
            raise place.item(index).error("has a name twice: name each once")


def _check_member_topics(group: GroupSpec, place: Place) -> None:
    if not group.member_topics:
        return
    for index, topics in enumerate(group.member_topics):
        for topic in topics:
            if topic not in group.topics:
                raise place.item(index).error(f"names {_shown(topic)}, which is not among topics: add it there")
        if len(set(topics)) < len(topics):
            raise place.item(index).error("has a name twice: name each once")
    if len(group.member_topics) > group.members:
        raise place.error(f"has more lists than the group has members ({group.members}): the last would do nothing")
    unused = sorted(set(group.topics).difference(*group.member_topics))
    if unused:
        raise place.error(f"leaves out {_shown(unused[0])} of topics: no member would subscribe to it")


def _check_fault(scenario: Scenario, fault: FaultSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    given = {_key_of(FaultSpec, spec.name) for spec in fields(fault) if getattr(fault, spec.name) is not None}
    for key in FAULT_KEYS[fault.kind]:
        if key not in given:
            raise place.key(key).error(f"is missing: {fault.kind} needs it")
    usable = {"kind", "at", "every", *FAULT_KEYS[fault.kind], *FAULT_KEYS_MORE.get(fault.kind, ())}
    for key in sorted(given - usable):
        raise place.key(key).error(
            f"does nothing for {fault.kind}, which takes {', '.join(sorted(usable))}: leave it out"
        )
    strike_count = 0 if fault.every_ms is None else (scenario.duration_ms - fault.at_ms) // fault.every_ms
    if strike_count > STRIKES_MAX:
        raise place.key("every").error(f"lets the fault strike more than {STRIKES_MAX} times: make it longer")
    if fault.at_ms >= scenario.duration_ms:
        raise place.key("at").error("is not before the end of the scenario: the fault would never strike")
    if fault.group is not None:
        specs = [group for group in scenario.groups if fault.group in {group.name, *group.group_ids()}]
        if not specs:
            ids = [group.name for group in scenario.groups]
            raise place.key("group").error(
                f"there is no group {_shown(fault.group)}: name one that a [[group]] makes{_near(fault.group, ids)}"
            )
        if fault.member is not None and fault.member >= specs[0].members:
            raise place.key("member").error(f"group {_shown(fault.group)} has members 0 to {specs[0].members - 1}")
    _check_topics_of_fault(scenario, fault, topics, place)
    if fault.broker is not None and fault.broker > scenario.cluster.brokers:
        raise place.key("broker").error(f"must be one of the brokers, 1 to {scenario.cluster.brokers}")
    if fault.kind == "broker_failover" and scenario.cluster.brokers < 2:
        raise place.key("broker").error("needs another broker to take over: set cluster.brokers to 2 or more")
    for group in scenario.groups if fault.kind == "delete_topic" else ():
        if group.commits == "transactional" and fault.topic in group.topics:
            raise place.key("topic").error(
                f"is read by {_shown(group.name)}, which commits in transactions: those of a deleted topic are not "
                'simulated. Name another topic, or set commits = "auto" there'
            )
    is_remade = any(it.kind in {"create_topic", "delete_topic"} and it.topic == fault.topic for it in scenario.faults)
    if fault.every_ms is not None and fault.kind in ONCE and not is_remade:
        raise place.key("every").error(
            f"does nothing for {fault.kind}, which changes nothing the second time: leave it out"
        )
    if fault.every_ms is not None and fault.duration_ms is not None and fault.duration_ms >= fault.every_ms:
        raise place.key("every").error("must be longer than duration")


def _check_topics_of_fault(scenario: Scenario, fault: FaultSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    for topic in fault.topics or ():
        if topic not in topics:
            raise place.key("topics").error(
                f"names {_shown(topic)}, which no [[topic]] makes: add it{_near(topic, topics)}"
            )
    _check_admin(scenario, fault, place)
    if fault.topics is not None and len(set(fault.topics)) < len(fault.topics):
        raise place.key("topics").error("has a name twice: name each once")
    if fault.topic is not None and fault.topic not in topics:
        raise place.key("topic").error(
            f"there is no topic {_shown(fault.topic)}: name one that a [[topic]] makes{_near(fault.topic, topics)}"
        )
    if fault.topic is not None and fault.partition is not None:
        grown = [
            it.partitions or 0
            for it in scenario.faults
            if it.kind in {"add_partitions", "create_topic"} and it.topic == fault.topic
        ]
        count = max(topics[fault.topic].partitions, *grown, 0)
        if fault.partition >= count:
            raise place.key("partition").error(f"topic {_shown(fault.topic)} has partitions 0 to {count - 1}")


OF_TOPICS: Final = frozenset(
    {"create_topic", "delete_topic", "add_partitions", "poison", "producer_stall", "delete_records"}
)
"""Faults that need their topic to be there; `create_topic` needs it not to be."""


def _check_lives_of_topics(scenario: Scenario, topics: Mapping[str, TopicSpec], place: Place) -> None:
    """Follow each topic through all that happens to it: nothing happens to one that is not there then."""

    def strikes(index: int, fault: FaultSpec) -> Iterator[tuple[int, int]]:
        return ((at_ms, index) for at_ms in occurrences(fault, scenario.duration_ms))

    made_later = topics_made_later(scenario.faults)
    counts = {name: 0 if name in made_later else topic.partitions for name, topic in topics.items()}
    of_topics = ((index, fault) for index, fault in enumerate(scenario.faults) if fault.kind in OF_TOPICS)
    for _, index in heapq.merge(*(strikes(index, fault) for index, fault in of_topics)):
        fault = scenario.faults[index]
        name, at = fault.topic or "", place.item(index)
        count = counts[name]
        if fault.kind == "create_topic":
            if count:
                raise at.key("topic").error(f"topic {_shown(name)} exists at that time: put a delete_topic before")
            counts[name] = fault.partitions or topics[name].partitions
            continue
        if not count:
            raise at.key("topic").error(f"topic {_shown(name)} does not exist at that time: put a create_topic before")
        if fault.kind == "delete_topic":
            counts[name] = 0
        elif fault.kind == "add_partitions":
            if (fault.partitions or 0) <= count:
                raise at.key("partitions").error(
                    f"must be above what the topic has at that time ({count}): partitions never go away"
                )
            counts[name] = fault.partitions or 0
        elif fault.partition is not None and fault.partition >= count:
            raise at.key("partition").error(f"topic {_shown(name)} has partitions 0 to {count - 1} at that time")


OF_SHARE_GROUPS: Final = frozenset({"alter_config", "alter_share_offsets", "delete_share_offsets"})


def _check_admin(scenario: Scenario, fault: FaultSpec, place: Place) -> None:
    specs = [group for group in scenario.groups if fault.group in {group.name, *group.group_ids()}]
    if fault.kind == "subscribe" and specs and specs[0].protocol == "streams":
        raise place.key("group").error(
            f"must be no streams group: its topology says what {_shown(specs[0].name)} reads"
        )
    if fault.kind in OF_SHARE_GROUPS and specs and specs[0].protocol != "share":
        raise place.key("group").error(
            f"must be a share group: {fault.kind} is of those, and {_shown(fault.group or '')} is none"
        )
    if fault.config is not None and fault.value is not None:
        _, least, most = ALTERABLE[fault.config]
        if not least <= fault.value <= most:
            raise place.key("value").error(
                f"must be a whole number from {least} to {most}: brokers refuse {fault.value} for {fault.config}"
            )
