"""Broker settings of the group coordinator, with Kafka's names and defaults (GroupCoordinatorConfig).

A field's name is the property's with underscores for dots: `group.max.size` is `group_max_size`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.errors import UnknownSetting

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Defaults of Kafka 4.4.0: those of 4.3.1, and some that only 4.4 reads."""

    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_assignor_offload_enable: bool = True
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_max_size: int = INT32_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = INT32_MAX
    group_min_session_timeout_ms: int = 6000
    group_share_assignment_interval_ms: int = 1000
    group_share_assignor_offload_enable: bool = True
    group_share_assignors: tuple[str, ...] = ("simple",)
    group_share_heartbeat_interval_ms: int = 5000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_max_size: int = 200
    group_share_session_timeout_ms: int = 45_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_assignment_interval_ms: int = 1000
    group_streams_assignor_offload_enable: bool = True
    group_streams_heartbeat_interval_ms: int = 5000
    group_streams_initial_rebalance_delay_ms: int = 3000
    group_streams_max_size: int = INT32_MAX
    group_streams_num_standby_replicas: int = 0
    group_streams_num_warmup_replicas: int = 2
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = ()
    group_streams_session_timeout_ms: int = 45_000
    group_streams_task_offset_interval_ms: int = 60_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    kafka_version: KafkaVersion = DEFAULT_VERSION
    """The release whose rules the coordinator follows; not a broker property."""

    @property
    def offsets_retention_ms(self) -> int:
        """`offsets.retention.minutes` in milliseconds."""
        return self.offsets_retention_minutes * 60_000


def config_of(properties: Mapping[str, Any], kafka_version: KafkaVersion = DEFAULT_VERSION) -> GroupCoordinatorConfig:
    """The settings from broker properties, with values as text or JSON values; all others have their default.

    Raises UnknownSetting for a name that the coordinator does not read, and for a value of the wrong type.
    """
    defaults = GroupCoordinatorConfig()
    known = {field.name for field in fields(defaults)} - {"kafka_version"}
    values: dict[str, Any] = {}
    for name, value in properties.items():
        field_name = name.replace(".", "_")
        if field_name not in known:
            raise UnknownSetting(f"no coordinator setting is called {name!r}")
        values[field_name] = _value(name, value, getattr(defaults, field_name))
    return GroupCoordinatorConfig(**values, kafka_version=kafka_version)


def _value(name: str, value: Any, default: Any) -> Any:
    text = str(value).strip()
    if isinstance(default, bool):
        if text.lower() not in {"true", "false"}:
            raise UnknownSetting(f"{name} is true or false")
        return text.lower() == "true"
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError as error:
            raise UnknownSetting(f"{name} is a number") from error
    if isinstance(default, tuple):
        parts = value if isinstance(value, list | tuple) else text.split(",")
        return tuple(part.strip() for part in parts if part.strip())
    return text
