"""Admin snapshots: what the Admin API of a live cluster answered (bronze.topics, bronze.configs), for later jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator_core.history.rows import TopicName
from coordinator_core.inference.facts.configs import ALL_BROKERS, BROKER
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms
from schemas.tables.bronze import CONFIGS, TOPICS
from schemas.tables.declare import Table

if TYPE_CHECKING:
    from jobs.delta.warehouse import Warehouse

ADMIN: Final = "ADMIN"
"""The `source` of a topic id's name that an Admin snapshot gave."""


class ObservedConfig(NamedTuple):
    """A config value that an Admin snapshot shows to be in force from a time (epoch ms) on.

    Value None: no longer set.
    """

    resource_type: str
    resource_name: str
    """Group id or topic. For broker configs: empty where all brokers agree, else a broker id."""
    name: str
    value: str | None
    at: int


def admin_snapshot_versions(warehouse: "Warehouse") -> tuple[int, int]:
    """Versions of bronze.topics and bronze.configs; -1: there is no such table."""
    return warehouse.version(TOPICS), warehouse.version(CONFIGS)


def newest(tables: ClusterTables, table: Table, key: Sequence[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The newest row of each key; of rows with the same time, the one that is not deleted."""
    rows = tables.read(table).to_pylist()
    rows.sort(key=lambda row: (row["observed_at"], not row.get("is_deleted")))
    return {tuple(row[name] for name in key): row for row in rows}


def first_topic_ids(tables: ClusterTables) -> dict[str, str]:
    """The id of each topic, by name, as it was first observed."""
    rows = tables.read(TOPICS, ["topic", "topic_id", "observed_at"]).to_pylist()
    rows.sort(key=lambda row: row["observed_at"], reverse=True)
    return {row["topic"]: row["topic_id"] for row in rows}


def admin_topics(tables: ClusterTables, version: int) -> tuple[list[TopicName], dict[str, int]]:
    """Names of topic ids, each from when it was first observed, and when ids were found to be gone (epoch ms)."""
    if version < 0:
        return [], {}
    rows = tables.read(TOPICS, version=version).to_pylist()
    rows.sort(key=lambda row: (row["observed_at"], row["topic_id"]))
    names: dict[str, TopicName] = {}
    deleted: dict[str, int] = {}
    for row in rows:
        topic_id, at = row["topic_id"], epoch_ms(row["observed_at"])
        names.setdefault(topic_id, TopicName(topic_id, row["topic"], at, ADMIN))
        if row["is_deleted"]:
            deleted[topic_id] = at
        else:
            deleted.pop(topic_id, None)
    return list(names.values()), deleted


def admin_configs(tables: ClusterTables, version: int) -> list[ObservedConfig]:
    """Changes of configs, by time: one for all brokers where they agree, else one for each broker."""
    if version < 0:
        return []
    rows = tables.read(CONFIGS, version=version).to_pylist()
    observed = [
        ObservedConfig(
            row["resource_type"], row["resource_name"], row["name"], row["value"], epoch_ms(row["observed_at"])
        )
        for row in rows
    ]
    observed.sort(key=lambda it: (it.at, it.resource_type, it.resource_name, it.name))
    of_brokers = [it for it in observed if it.resource_type == BROKER]
    others = [it for it in observed if it.resource_type != BROKER]
    return sorted([*others, *_agreed(of_brokers)], key=lambda it: it.at)


def _agreed(observed: Iterable[ObservedConfig]) -> Iterable[ObservedConfig]:
    """Replace configs of single brokers by one of all brokers wherever they agree."""
    values: dict[str, dict[str, str]] = {}
    by_time: dict[tuple[int, str], list[ObservedConfig]] = {}
    for it in observed:
        by_time.setdefault((it.at, it.name), []).append(it)
    in_force: dict[tuple[str, str], str] = {}
    for (at, name), changes in by_time.items():
        of_name = values.setdefault(name, {})
        for it in changes:
            if it.value is None:
                of_name.pop(it.resource_name, None)
            else:
                of_name[it.resource_name] = it.value
        distinct = set(of_name.values())
        wanted: Mapping[str, str] = {ALL_BROKERS: distinct.pop()} if len(distinct) == 1 else of_name
        before = {broker: value for (other, broker), value in in_force.items() if other == name}
        for broker in sorted(before.keys() | wanted.keys()):
            if before.get(broker) != wanted.get(broker):
                yield ObservedConfig(BROKER, broker, name, wanted.get(broker), at)
        in_force = {place: value for place, value in in_force.items() if place[0] != name}
        in_force |= {(name, broker): value for broker, value in wanted.items()}
