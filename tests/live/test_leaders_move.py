"""Three brokers whose leaders move, in order and by a broker's death, during a capture: nothing is lost or doubled."""

from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.lengths import takes_minutes
from tests.live.clients import LiveClients
from tests.live.cluster import NODES, LiveCluster
from tests.live.disk import TOPICS, read_logs
from tests.live.job import Job, capture_words
from tests.live.kafka_home import KafkaHome
from tests.live.ledger import rows_in

SEED: Final = 5
GROUPS: Final = 10
PAUSE_MS: Final = 3_000
ROUNDS: Final = 3
DONE: Final = 0

pytestmark = takes_minutes


def test_nothing_is_lost_or_doubled(home: KafkaHome, tmp_path: Path) -> None:
    """All leaders move from node to node, one node is killed and comes back: bronze is what the last leaders' files
    hold, batch by batch."""
    with (
        LiveCluster(home, tmp_path / "cluster") as cluster,
        LiveClients(home, tmp_path / "clients", cluster.bootstrap_servers) as clients,
    ):
        clients.play(SEED, ["offsets"], ["commit"])
        words = [*capture_words(cluster.bootstrap_servers), "--every", "2s"]
        with Job(tmp_path, "capture", *words) as capture:
            capture.await_commit()
            clients.churn(SEED, GROUPS, PAUSE_MS)
            for turn in range(ROUNDS):
                capture.await_commit()
                move_leaders(cluster, turn)
            capture.await_commit()
            last = cluster.broker(NODES[-1])
            last.kill()
            capture.await_commit()
            last.start()
            move_leaders(cluster, ROUNDS)
            clients.calm()
            leaders = dict(cluster.leaders())
            logs = {
                (topic, partition): batches
                for node_id in NODES
                for (topic, partition), batches in read_logs(cluster.broker(node_id).data).items()
                if leaders[f"{topic}-{partition}"] == node_id
            }
            wanted = {(*place, batch.base_offset): batch.data for place, batches in logs.items() for batch in batches}
            capture.await_that(lambda: found_in(tmp_path).keys() >= wanted.keys())
            assert capture.interrupt() == DONE, capture.end_of_said()
        found = found_in(tmp_path)
    assert {place: data for place, data in found.items() if place in wanted} == wanted
    coverage = rows_in(tmp_path / "warehouse", "bronze.coverage")
    assert {row["kind"] for row in coverage} == {"CAPTURED"}
    for topic in TOPICS:
        ends = sorted(
            (row["partition"], row["base_offset"], row["last_offset"]) for row in rows_of_topic(tmp_path, topic)
        )
        assert all(a[0] != b[0] or a[2] + 1 == b[1] for a, b in pairwise(ends)), topic


def move_leaders(cluster: LiveCluster, turn: int) -> None:
    """Each partition of the coordinators' topics to the next node."""
    for place, leader in cluster.leaders().items():
        topic, _, partition = place.rpartition("-")
        if topic in TOPICS:
            cluster.lead(topic, int(partition), NODES[(leader + turn) % len(NODES)])


def found_in(folder: Path) -> dict[tuple[str, int, int], bytes]:
    """Batches of bronze, by log partition and base offset."""
    rows = rows_in(folder / "warehouse", "bronze.record_batches", ["topic", "partition", "base_offset", "batch"])
    return {(row["topic"], row["partition"], row["base_offset"]): row["batch"] for row in rows}


def rows_of_topic(folder: Path, topic: str) -> list[dict[str, int]]:
    """Offsets of its batches in bronze."""
    columns = ["topic", "partition", "base_offset", "last_offset"]
    return [row for row in rows_in(folder / "warehouse", "bronze.record_batches", columns) if row["topic"] == topic]
