"""Kafka 4.3.1 brokers, each in a process of its own, on free ports of 127.0.0.1, over a log directory which may hold
partition folders already.

    with LiveBroker(home, tmp_path / "broker", settings=CLIENT_SETTINGS) as broker:
        ...                         # broker.address, broker.data / "__consumer_offsets-0", broker.snapshot()
        broker.restart(kill=True)   # same folder, same port

Without CLIENT_SETTINGS a broker changes nothing in its logs by itself. The process ends when its standard input does
(java/Commands.java): also where the test run is killed.
"""

import json
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.live.kafka_home import KafkaHome
from tests.live.program import JavaProgram, Running, start_on_free_port, write_properties

START_TIMEOUT_S: Final = 180

PARTITION_SETTINGS: Final = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__share_group_state": "share.coordinator.state.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
"""By these a broker finds the partition of a key: they must be what the topics have."""

HOUR_MS: Final = 3_600_000

SETTINGS: Final[Mapping[str, str | int]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 1,
    "group.coordinator.threads": 1,
    "share.coordinator.threads": 1,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 5,
    "offsets.topic.replication.factor": 1,
    "share.coordinator.state.topic.num.partitions": 5,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "transaction.state.log.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # What a broker finds in its logs it must not change while it is asked: nobody expires, nothing is deleted.
    "group.consumer.max.session.timeout.ms": HOUR_MS,
    "group.consumer.session.timeout.ms": HOUR_MS,
    "group.share.max.session.timeout.ms": HOUR_MS,
    "group.share.session.timeout.ms": HOUR_MS,
    "offsets.retention.minutes": 10 * 365 * 24 * 60,
    "offsets.retention.check.interval.ms": 24 * HOUR_MS,
    "log.retention.check.interval.ms": 24 * HOUR_MS,
    "log.retention.ms": -1,
    "log.cleaner.enable": "false",
    "share.coordinator.state.topic.prune.interval.ms": HOUR_MS,
    "share.coordinator.cold.partition.snapshot.interval.ms": HOUR_MS,
}

CLIENT_SETTINGS: Final[Mapping[str, str | int]] = {
    "num.io.threads": 4,
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    # what clients leave open is open however long the tests take: only theirs with a short time-out run out
    "transaction.max.timeout.ms": 86_400_000,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.regex.refresh.interval.ms": 600_000,
    "group.share.min.session.timeout.ms": 1_000,
    "group.share.session.timeout.ms": 6_000,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.record.lock.duration.ms": 1_000,
    "group.share.initialize.retry.interval.ms": 2_000,
    "group.streams.min.session.timeout.ms": 1_000,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.heartbeat.interval.ms": 200,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
}
"""For brokers with real clients: members that vanish are missed within seconds, locks run out after one."""

PRUNING_SETTINGS: Final[Mapping[str, str | int]] = {
    "log.roll.ms": 4_000,
    "share.coordinator.state.topic.prune.interval.ms": 3_000,
    "share.coordinator.snapshot.update.records.per.snapshot": 10,
    "share.coordinator.cold.partition.snapshot.interval.ms": 6_000,
    "log.cleaner.enable": "true",
    "log.cleaner.threads": 1,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": "0.05",
    "log.cleaner.delete.retention.ms": 4_000,
    "log.retention.check.interval.ms": 1_000,
    "file.delete.delay.ms": 100,
}
"""To be added: share state is pruned and offsets are compacted within seconds."""

BROKER: Final = "PLAINTEXT"
CONTROLLER: Final = "CONTROLLER"
"""Names of listeners."""


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic which the cluster's metadata begins with."""

    topic: str
    topic_id: str
    leader_epochs: Sequence[int]
    """Of its partitions, before the broker is elected (which adds one)."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, which is a controller as well, among those of its cluster."""

    node_id: int
    ports: Mapping[str, int]
    """By listener name."""
    voters: Mapping[int, int]
    """Port of the controller listener, by node id; of all nodes."""

    @classmethod
    def alone(cls, listeners: Iterable[str] = ()) -> Self:
        """The only one; free ports for its listeners."""
        names = (BROKER, CONTROLLER, *listeners)
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        return cls(1, ports, {1: ports[CONTROLLER]})

    def settings(self) -> Mapping[str, str | int]:
        """Who it is, where it listens, who votes."""
        listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()}
        return {
            "node.id": self.node_id,
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.voters.items()),
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(url for name, url in listeners.items() if name != CONTROLLER),
        }


class LiveBroker(Running):
    """A running broker; leave the `with` block, or call `stop`, to end it."""

    def __init__(
        self,
        home: KafkaHome,
        folder: Path,
        *,
        topics: Sequence[BrokerTopic] = (),
        logs: Path | None = None,
        settings: Mapping[str, str | int] | None = None,
        listeners: Sequence[str] = (),
        node: Node | None = None,
    ) -> None:
        """Start it in a new folder, and wait until it serves.

        `logs` holds `<topic>-<partition>` folders; those of `topics` are copied into the log directory. `listeners` are
        names of more of them, which `settings` tell about. A `node` of a cluster is not waited for: that is `wait`,
        after all are started. Raises ProgramError with the end of the broker's log where it does not start.
        """
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        if logs is not None:
            names = {topic.topic for topic in topics}
            others = [
                path.name for path in logs.iterdir() if path.is_dir() and path.name.rpartition("-")[0] not in names
            ]
            # the metadata of a simulated cluster, say: this broker has its own
            shutil.copytree(logs, self.data, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*others))
        counts = {
            PARTITION_SETTINGS[it.topic]: len(it.leader_epochs) for it in topics if it.topic in PARTITION_SETTINGS
        }
        self._home = home
        self._topics = [asdict(topic) for topic in topics]
        self._listeners = tuple(listeners)
        self._settings = {**SETTINGS, **counts, **(settings or {}), "log.dirs": str(self.data)}
        if node is not None:
            self._node = node
            self._program = self._launch()
            return
        self._program = start_on_free_port(self._launch_alone, _answered)

    @property
    def node_id(self) -> int:
        """Of the broker."""
        return self._node.node_id

    @property
    def address(self) -> str:
        """Host and port, without TLS or SASL."""
        return self.address_of(BROKER)

    def address_of(self, listener: str) -> str:
        """Host and port of a listener."""
        return f"127.0.0.1:{self._node.ports[listener]}"

    @property
    def process_id(self) -> int:
        """Of the broker's process."""
        return self._program.process_id

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._program.is_running

    @property
    def log(self) -> Path:
        """What the broker writes about itself."""
        return self.folder / "broker.log"

    def snapshot(self) -> Mapping[str, Any]:
        """Every group as Admin describes it, share states as their coordinator has them, and the ends of the logs
        before and after: a line of snapshots.jsonl, as recordings have it."""
        answer: Mapping[str, Any] = self.ask({"do": "snapshot"})
        return answer

    def dump(self, files: Iterable[Path], *words: str, to: Path) -> Path:
        """Run DumpLogSegments with these words on files; what it prints goes into the file `to`."""
        self.ask({"do": "dump", "to": str(to), "words": ["--files", ",".join(map(str, files)), *words]})
        return to

    def create_topic(
        self, topic: str, partitions: int, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """As an administrator does."""
        asked = {"topic": topic, "partitions": partitions, "replicas": replicas, "configs": configs or {}}
        self.ask({"do": "create_topic", **asked})

    def set_config(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Of a TOPIC, BROKER or GROUP."""
        self.ask({"do": "set_config", "type": kind, "name": name, "configs": configs})

    def ask(self, command: Mapping[str, Any]) -> Any:
        """Send a command to java/LiveBroker.java and give its answer. Raises ProgramError."""
        return self._program.ask(command)

    def wait(self) -> None:
        """Until it serves. Raises ProgramError."""
        _answered(self._program)

    def restart(self, *, kill: bool = False) -> None:
        """End it, in order or by SIGKILL, and start it again over the same folder, at the same address."""
        self.kill() if kill else self.stop()
        self.start()

    def start(self) -> None:
        """Once more, after `stop` or `kill`; waits until it serves."""
        self._program = start_on_free_port(self._launch, _answered)

    def stop(self) -> None:
        """Shut it down; where that takes too long, kill it."""
        self._program.stop()

    def kill(self) -> None:
        """End it at once."""
        self._program.kill()

    def _launch_alone(self) -> JavaProgram:
        self._node = Node.alone(self._listeners)
        return self._launch()

    def _launch(self) -> JavaProgram:
        properties, start = self.folder / "server.properties", self.folder / "start.json"
        settings = {**self._settings, **self._node.settings()}
        write_properties(properties, settings)
        start.write_text(json.dumps({"address": self.address, "topics": self._topics}))
        return JavaProgram(self._home.command("LiveBroker", str(properties), str(start)), self.folder, self.log)


def _answered(program: JavaProgram) -> None:
    program.answer(START_TIMEOUT_S)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 which nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [it.getsockname()[1] for it in sockets]
    finally:
        for it in sockets:
            it.close()
