"""Possible questions: settings by Kafka's names, and the values in force when the log was written.

A question names the changed settings (`changed`). `recorded` gives values that were in force where the log does not
show them, instead of Kafka's default.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.errors import WhatIfError
from coordinator_core.live.assignors import CLIENT_ASSIGNORS
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.text import duration_of

DEFAULTS: Final = GroupCoordinatorConfig()
SERVER_ASSIGNORS: Final = DEFAULTS.group_consumer_assignors
PROTOCOLS: Final = ("classic", "consumer")
DELIVERY_LIMITS: Final = (2, 10)
"""group.share.min.delivery.count.limit and group.share.max.delivery.count.limit, by default."""
RECORD_LOCKS: Final = (100, 4000)
"""group.share.min.partition.max.record.locks and group.share.max.partition.max.record.locks, by default."""
LOCK_DURATIONS_MS: Final = (15_000, 60_000)
"""group.share.min.record.lock.duration.ms and group.share.max.record.lock.duration.ms, by default."""
TIMEOUT_MS_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """Values in force. None: taken from the log, otherwise Kafka's default. Times in ms."""

    initial_rebalance_delay_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    """heartbeat.interval.ms of classic members; by default 3000, or a third of the session where that is less."""
    consumer_session_timeout_ms: int = DEFAULTS.group_consumer_session_timeout_ms
    """This one and the next two are used for times without a value in silver.configs."""
    delivery_count_limit: int = 5
    record_lock_duration_ms: int = 30_000
    record_lock_count: int = 2000
    share_session_timeout_ms: int = DEFAULTS.group_share_session_timeout_ms
    share_heartbeat_interval_ms: int = DEFAULTS.group_share_heartbeat_interval_ms
    kafka_version: KafkaVersion | None = None
    """The release whose rules the group's coordinator follows in a play; None: see `whatif.release`."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changed settings. None: unchanged."""

    session_timeout_ms: int | None = None
    consumer_session_timeout_ms: int | None = None
    initial_rebalance_delay_ms: int | None = None
    is_static: bool | None = None
    assignor: str | None = None
    protocol: str | None = None
    delivery_count_limit: int | None = None
    record_lock_duration_ms: int | None = None
    max_poll_interval_ms: int | None = None
    record_lock_count: int | None = None
    """share.partition.max.record.locks."""
    share_session_timeout_ms: int | None = None
    share_heartbeat_interval_ms: int | None = None

    @property
    def is_of_shares(self) -> bool:
        """Whether it concerns share groups."""
        return self.is_of_share_records or self.is_of_share_members

    @property
    def is_of_share_members(self) -> bool:
        """Whether it concerns members of share groups."""
        return any(getattr(self, name) is not None for name in SHARE_MEMBER_FIELDS)

    @property
    def is_of_share_records(self) -> bool:
        """Whether it concerns records of share groups."""
        return any(getattr(self, name) is not None for name in SHARE_FIELDS)

    @property
    def is_of_members(self) -> bool:
        """Whether it concerns members of classic and consumer groups."""
        others = (*SHARE_FIELDS, *SHARE_MEMBER_FIELDS)
        return any(getattr(self, it.name) is not None for it in fields(self) if it.name not in others)


SHARE_FIELDS: Final = ("delivery_count_limit", "record_lock_duration_ms", "record_lock_count")
SHARE_MEMBER_FIELDS: Final = ("share_session_timeout_ms", "share_heartbeat_interval_ms")


@dataclass(frozen=True, slots=True)
class Question:
    """A complete question. `texts`: the changed settings as they were given."""

    changed: Changes
    recorded: Recorded = field(default_factory=Recorded)
    texts: tuple[str, ...] = ()


Reader = Callable[[str, str], Any]
NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


def _number(least: int, most: int) -> Reader:
    def read(name: str, text: str) -> int:
        is_time = name.endswith(".ms")
        value = int(text) if NUMBER.fullmatch(text) else duration_of(text) if is_time else None
        if value is None or not least <= value <= most:
            unit = " of ms (or a duration, as 45s)" if is_time else ""
            raise WhatIfError(f"{name} must be a whole number{unit} from {least} to {most}, not {text!r}")
        return value

    return read


def _choice(*words: str) -> Reader:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise WhatIfError(f"{name} must be one of {', '.join(words)}, not {text!r}")
        return text

    return read


def _static(name: str, text: str) -> bool:
    return bool(_choice("static", "dynamic")(name, text) == "static")


def _of_broker_and_group(name: str, field_name: str, reader: Reader) -> dict[str, tuple[str, Reader]]:
    """A setting of brokers, which begins with `group.`, and the config with which a group has its own value."""
    return dict.fromkeys((f"group.{name}", name), (field_name, reader))


_DELAY: Final = _number(0, TIMEOUT_MS_MAX)
CHANGED: Final[Mapping[str, tuple[str, Reader]]] = {
    "session.timeout.ms": (
        "session_timeout_ms",
        _number(DEFAULTS.group_min_session_timeout_ms, DEFAULTS.group_max_session_timeout_ms),
    ),
    **_of_broker_and_group("consumer.session.timeout.ms", "consumer_session_timeout_ms", _number(45_000, 60_000)),
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", _DELAY),
    "group.instance.id": ("is_static", _static),
    "assignor": ("assignor", _choice(*CLIENT_ASSIGNORS, *(name for name in SERVER_ASSIGNORS if name != "range"))),
    "group.protocol": ("protocol", _choice(*PROTOCOLS)),
    **_of_broker_and_group("share.delivery.count.limit", "delivery_count_limit", _number(*DELIVERY_LIMITS)),
    **_of_broker_and_group("share.record.lock.duration.ms", "record_lock_duration_ms", _number(*LOCK_DURATIONS_MS)),
    "max.poll.interval.ms": ("max_poll_interval_ms", _number(1, TIMEOUT_MS_MAX)),
    **_of_broker_and_group("share.session.timeout.ms", "share_session_timeout_ms", _number(45_000, 60_000)),
    **_of_broker_and_group("share.heartbeat.interval.ms", "share_heartbeat_interval_ms", _number(5000, 15_000)),
    **_of_broker_and_group("share.partition.max.record.locks", "record_lock_count", _number(*RECORD_LOCKS)),
    "share.max.record.locks": ("record_lock_count", _number(*RECORD_LOCKS)),
}
"""Setting -> (field of `Changes`, parser of its value, with the bounds of brokers by default, as
group.share.min.session.timeout.ms)."""

_TIMEOUT: Final = _number(1, TIMEOUT_MS_MAX)
RECORDED: Final[Mapping[str, tuple[str, Reader]]] = {
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", _DELAY),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _TIMEOUT),
    **_of_broker_and_group("consumer.session.timeout.ms", "consumer_session_timeout_ms", _TIMEOUT),
    **_of_broker_and_group("share.delivery.count.limit", "delivery_count_limit", _number(1, 100)),
    **_of_broker_and_group("share.record.lock.duration.ms", "record_lock_duration_ms", _TIMEOUT),
    **_of_broker_and_group("share.session.timeout.ms", "share_session_timeout_ms", _TIMEOUT),
    **_of_broker_and_group("share.heartbeat.interval.ms", "share_heartbeat_interval_ms", _TIMEOUT),
    **_of_broker_and_group("share.partition.max.record.locks", "record_lock_count", _TIMEOUT),
}
"""Setting -> (field of `Recorded`, parser of its value)."""


def question_of(changed: Iterable[str], recorded: Iterable[str] = (), base: Recorded | None = None) -> Question:
    """The question in `name=value` texts. Raises WhatIfError for an impossible one."""
    texts = tuple(changed)
    changes = Changes(**_fields(texts, CHANGED, "asked"))
    if changes == Changes():
        raise WhatIfError(f"nothing is to be different: set one of {', '.join(CHANGED)}")
    return Question(changes, replace(base or Recorded(), **_fields(recorded, RECORDED, "given")), texts)


def _fields(texts: Iterable[str], known: Mapping[str, tuple[str, Reader]], verb: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise WhatIfError(f"{text!r} must be NAME=VALUE, as session.timeout.ms=60000")
        if name not in known:
            meant = "".join(f" (did you mean {it}?)" for it in get_close_matches(name, known, 1))
            raise WhatIfError(f"{name!r} cannot be {verb}{meant}; what can: {', '.join(known)}")
        field_name, read = known[name]
        if field_name in values:
            raise WhatIfError(f"{name} is {verb} twice: say it once")
        values[field_name] = read(name, value)
    return values
