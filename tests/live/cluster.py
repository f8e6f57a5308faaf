"""Three brokers, which are controllers as well, in a process each; every log has a replica on all of them.

with LiveCluster(home, tmp_path / "cluster") as cluster:
    cluster.bootstrap_servers
    cluster.lead("__consumer_offsets", 0, node_id=2)   # a move in order
    cluster.broker(2).kill()                           # and one without
    cluster.broker(2).start()
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.live.broker import BROKER, CLIENT_SETTINGS, CONTROLLER, LiveBroker, Node, free_ports
from tests.live.kafka_home import KafkaHome
from tests.live.program import Running

NODES: Final = (1, 2, 3)
CLUSTER_SETTINGS: Final[Mapping[str, str | int]] = {
    **CLIENT_SETTINGS,
    "default.replication.factor": len(NODES),
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": len(NODES),
    "share.coordinator.state.topic.replication.factor": len(NODES),
    "share.coordinator.state.topic.min.isr": 2,
    "transaction.state.log.replication.factor": len(NODES),
    "transaction.state.log.min.isr": 2,
    # who is gone is missed soon, and leaders move only when asked to
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5_000,
    "auto.leader.rebalance.enable": "false",
}


class LiveCluster(Running):
    """A running cluster; leave the `with` block, or call `stop`, to end it."""

    def __init__(self, home: KafkaHome, folder: Path, settings: Mapping[str, str | int] | None = None) -> None:
        """Start it in a new folder, and wait until all brokers serve. Raises ProgramError."""
        folder.mkdir()
        ports = free_ports(2 * len(NODES))
        voters = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._brokers: dict[int, LiveBroker] = {}
        try:
            for node_id, port in zip(NODES, ports[: len(NODES)], strict=True):
                node = Node(node_id, {BROKER: port, CONTROLLER: voters[node_id]}, voters)
                self._brokers[node_id] = LiveBroker(
                    home, folder / f"broker-{node_id}", settings={**CLUSTER_SETTINGS, **(settings or {})}, node=node
                )
            for broker in self._brokers.values():
                broker.wait()
        except BaseException:
            for broker in self._brokers.values():
                broker.kill()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """All brokers."""
        return ",".join(broker.address for broker in self._brokers.values())

    def broker(self, node_id: int) -> LiveBroker:
        """One of them."""
        return self._brokers[node_id]

    def leaders(self) -> Mapping[str, int]:
        """Who leads, by `<topic>-<partition>`; -1 where nobody does. Of a broker which lives."""
        answer: Mapping[str, int] = self._any().ask({"do": "leaders"})
        return answer

    def lead(self, topic: str, partition: int, node_id: int) -> None:
        """Move a partition's leader."""
        self._any().ask({"do": "lead", "topic": topic, "partition": partition, "node": node_id})

    def stop(self) -> None:
        """Kill all brokers: in order, the last two would wait for a quorum which is gone."""
        for broker in self._brokers.values():
            broker.kill()

    def _any(self) -> LiveBroker:
        return next(broker for broker in self._brokers.values() if broker.is_running)
