"""restore and describe against a live broker: Kafka's own tool takes the file, and shows the offsets as they were."""

import io
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jobs.cli_enums import Tool, View
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.describe import write_descriptions
from jobs.queries.answers.restore import run_restore
from jobs.spark.executors import Executor
from tests.answers import describe
from tests.conformance.recordings import make_warehouse
from tests.jobs.builders import batch, write_segment
from tests.live.broker import BrokerTopic, LiveBroker
from tests.live.kafka_home import KafkaHome

COMMAND: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS_COMMAND: Final = "org.apache.kafka.tools.TopicCommand"
COMMAND_TIMEOUT_S: Final = 120
TOPIC: Final = BrokerTopic("orders", "tmyj-FEYST-VyJ_du8dc1w", (0, 0))
DELETED: Final = BrokerTopic("payments", "Zm9vYmFyYmF6cXV4MTIzNA", (0,))
GROUPS: Final = ("billing", "it's a group")
RECORD_COUNT: Final = 100


def reported(home: KafkaHome, broker: LiveBroker, *words: str) -> str:
    """What kafka-consumer-groups prints."""
    groups = (word for group in GROUPS for word in ("--group", group))
    return printed(home.command(COMMAND, "--bootstrap-server", broker.address, *groups, *words))


def change_topic(home: KafkaHome, broker: LiveBroker, *words: str) -> None:
    """Have kafka-topics do something."""
    printed(home.command(TOPICS_COMMAND, "--bootstrap-server", broker.address, *words))


def printed(command: Sequence[str]) -> str:
    """What a command prints; it must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_S).stdout


def offsets(table: str) -> dict[tuple[str, str, str], str]:
    """Current offsets by group, topic and partition, of a table of offsets."""
    found = {}
    for line in table.splitlines():
        if " orders " in line:
            group, _, rest = line.partition(" orders ")
            partition, offset = rest.split()[:2]
            found[group.strip(), "orders", partition] = offset
    return found


def test_offsets_come_back(home: KafkaHome, no_spark: Executor, tmp_path: Path) -> None:
    """Two groups are moved on, one of their topics is deleted, the other gets a partition more: the file of a moment
    before brings both back to what is still there, and describe shows that moment."""
    for topic in (TOPIC, DELETED):
        for partition in range(len(topic.leader_epochs)):
            segment = write_segment(tmp_path / "logs", topic.topic, partition, 0, batch(0, RECORD_COUNT))
            # without it the broker takes the folder for a stranger's
            (segment.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic.topic_id}\n")
    reset = ("--reset-offsets", "--execute")
    with LiveBroker(home, tmp_path / "broker", topics=[TOPIC, DELETED], logs=tmp_path / "logs") as broker:
        reported(home, broker, *reset, "--topic", "orders:0", "--to-offset", "10")
        reported(home, broker, *reset, "--topic", "orders:1", "--to-offset", "20")
        reported(home, broker, *reset, "--topic", "payments:0", "--to-offset", "30")
        before = reported(home, broker, "--describe", "--offsets")
        at_ms = time.time_ns() // 1_000_000
        change_topic(home, broker, "--delete", "--topic", "payments")
        change_topic(home, broker, "--alter", "--topic", "orders", "--partitions", "3")
        reported(home, broker, *reset, "--topic", "orders", "--to-offset", "70")
        make_warehouse(no_spark, broker.data, tmp_path / "warehouse", cluster_id="live")
        warehouse, file = Warehouse(str(tmp_path / "warehouse")), tmp_path / "offsets.csv"
        asked = {"group_ids": GROUPS, "output": str(file), "output_format": "table", "out": io.StringIO()}
        run_restore(ClusterTables(warehouse, "live"), at_ms=at_ms, **asked)  # type: ignore[arg-type]
        reported(home, broker, *reset, "--from-file", str(file))
        after = reported(home, broker, "--describe", "--offsets")
    expected = {(group, "orders", place): offset for group in GROUPS for place, offset in (("0", "10"), ("1", "20"))}
    assert offsets(before) == expected
    # the new partition has no record, so its offset was set to 0
    assert offsets(after) == expected | {(group, "orders", "2"): "0" for group in GROUPS}
    assert "payments" in before and "payments" not in file.read_text() + after
    ours = io.StringIO()
    described = describe(warehouse, "live", view=View.OFFSETS, at_ms=at_ms, tool=Tool.CONSUMER)
    write_descriptions(described, "table", False, ours)
    assert offsets(ours.getvalue()) == expected
    newest = io.StringIO()
    write_descriptions(describe(warehouse, "live", view=View.OFFSETS), "table", False, newest)
    assert set(offsets(newest.getvalue()).values()) == {"70", "0"}
