"""Admin snapshots, as names and configs in force from a time on, next to what the logs say."""

from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import ConfigChanged
from jobs.bronze.admin_snapshots import ObservedConfig, admin_configs, admin_topics, first_topic_ids, newest
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.silver.configs import config_rows
from jobs.silver.topic_names import Names, topic_rows
from schemas.tables.bronze import CONFIGS, TOPICS
from tests.jobs.history import write

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp()) * 1000
NAME = "group.share.delivery.count.limit"


def topic(topic_id: str, name: str, minute: int, **more: Any) -> dict[str, Any]:
    """A row of bronze.topics."""
    observed_at = START + timedelta(minutes=minute)
    row = {"cluster_id": "c", "topic_id": topic_id, "observed_at": observed_at, "topic": name}
    return row | {"partition_count": 1, "is_deleted": False} | more


def config(broker: str, minute: int, value: str | None, *, kind: str = "BROKER") -> dict[str, Any]:
    """A row of bronze.configs."""
    observed_at = START + timedelta(minutes=minute)
    row = {"cluster_id": "c", "resource_type": kind, "resource_name": broker, "name": NAME, "observed_at": observed_at}
    return row | {"value": value, "source": None}


def test_a_recreated_topic_has_two_ids(warehouse: Warehouse) -> None:
    """Each id has its name from when it was first observed; the former ends when the new one was observed."""
    rows = [
        topic("A", "t", 1),
        topic("A", "t", 5, partition_count=2),
        topic("A", "t", 9, is_deleted=True),
        topic("B", "t", 9),
    ]
    write(warehouse, {TOPICS.full_name: rows})
    names, deleted = admin_topics(ClusterTables(warehouse, "c"), warehouse.version(TOPICS))
    assert names == [
        TopicName("A", "t", START_MS + 60_000, "ADMIN"),
        TopicName("B", "t", START_MS + 540_000, "ADMIN"),
    ]
    assert deleted == {"A": START_MS + 540_000}
    assert first_topic_ids(ClusterTables(warehouse, "c")) == {"t": "A"}
    assert newest(ClusterTables(warehouse, "c"), TOPICS, ("topic",))[("t",)]["topic_id"] == "B"


def test_what_all_brokers_agree_on_is_reported_of_all(warehouse: Warehouse) -> None:
    """While they differ, each has its own; the one of all ends then, and the other way round."""
    rows = [
        config("1", 0, "5"),
        config("2", 0, "5"),
        config("1", 1, "7"),
        config("2", 2, "7"),
        config("g", 3, "3", kind="GROUP"),
        config("1", 4, None),
        config("2", 4, None),
    ]
    write(warehouse, {CONFIGS.full_name: rows})
    observed = [
        ((it.at - START_MS) // 60_000, it.resource_name, it.value)
        for it in admin_configs(ClusterTables(warehouse, "c"), warehouse.version(CONFIGS))
    ]
    assert observed == [
        (0, "", "5"),
        (1, "", None),
        (1, "1", "7"),
        (1, "2", "5"),
        (2, "", "7"),
        (2, "1", None),
        (2, "2", None),
        (3, "g", "3"),
        (4, "", None),
    ]


def test_admin_adds_to_the_metadata_log_only_what_that_lacks() -> None:
    """A value which the log has is not added again; another one begins when it was observed, and the log ends it."""
    logged = [
        ConfigChanged("GROUP", "g", "n", "1", 10, 100),
        ConfigChanged("GROUP", "g", "n", "2", 20, 400),
        ConfigChanged("GROUP", "g", "n", None, 30, 500),
    ]
    observed = [
        ObservedConfig("GROUP", "g", "n", "0", 50),
        ObservedConfig("GROUP", "g", "n", "1", 150),
        ObservedConfig("GROUP", "g", "n", "9", 300),
        ObservedConfig("GROUP", "g", "n", None, 600),
        ObservedConfig("BROKER", "", "m", "5", 70),
        ObservedConfig("BROKER", "", "m", None, 90),
    ]
    rows = config_rows(logged, observed)
    assert [
        (row["name"], row["value"], row["from_log_offset"], row["to_log_offset"], row["valid_from"], row["valid_to"])
        for row in rows
    ] == [
        ("m", "5", None, None, 70, 90),
        ("n", "0", None, 10, 50, 100),
        ("n", "1", 10, None, 100, 300),
        ("n", "9", None, 20, 300, 400),
        ("n", "2", 20, 30, 400, 500),
    ]


def test_configs_of_a_deleted_topic_end_with_it() -> None:
    """The log has no record of that; a topic of the same name that is made later has its own, and a group none less."""
    logged = [
        ConfigChanged("TOPIC", "t", "n", "1", 10, 100),
        ConfigChanged("TOPIC", "t", "n", "1", 20, 400),
        ConfigChanged("TOPIC", "u", "n", "1", 21, 410),
        ConfigChanged("GROUP", "t", "n", "1", 22, 420),
    ]
    observed = [ObservedConfig("TOPIC", "t", "m", "5", 150)]
    rows = config_rows(logged, observed, [("t", 500), ("t", 300), ("gone", 350)])
    columns = ("resource_type", "resource_name", "name", "from_log_offset", "to_log_offset", "valid_from", "valid_to")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("GROUP", "t", "n", 22, None, 420, None),
        ("TOPIC", "t", "m", None, None, 150, 300),
        ("TOPIC", "t", "n", 10, None, 100, 300),
        ("TOPIC", "t", "n", 20, None, 400, 500),
        ("TOPIC", "u", "n", 21, None, 410, None),
    ]


def test_names_of_the_log_are_surer_than_those_reported() -> None:
    """The metadata log's name and time of deletion stand; Admin's stand where no log knows the id."""
    known = Names(
        learned=(TopicName("A", "t", 100, "CLUSTER_METADATA"), TopicName("B", "guess", 50, "REGEX")),
        deleted={"A": 400},
    )
    observed = [TopicName("A", "t", 200, "ADMIN"), TopicName("B", "u", 200, "ADMIN"), TopicName("C", "v", 200, "ADMIN")]
    rows = topic_rows(known, observed, {"A": 450, "B": 450})
    assert [
        (row["topic_id"], row["topic"], row["valid_from"], row["valid_to"], row["learned_from"]) for row in rows
    ] == [
        ("A", "t", 100, 400, "CLUSTER_METADATA"),
        ("B", "u", 200, 450, "ADMIN"),
        ("C", "v", 200, None, "ADMIN"),
    ]
