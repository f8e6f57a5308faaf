"""A Kafka 4.3.1 broker in a process of its own, on free ports of 127.0.0.1, over a log directory which may hold
partition folders already.

The process ends when its standard input does (java/LiveBroker.java): also where the test run is killed.
"""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Final, Self

from tests.live.kafka_home import KafkaHome

START_TIMEOUT_S: Final = 90
ANSWER_TIMEOUT_S: Final = 45
END_TIMEOUT_S: Final = 20
PORTS_TRIED_MAX: Final = 3
"""A free port may be taken by another process before the broker has it."""
LOG_LINES_TOLD: Final = 30

PARTITION_SETTINGS: Final = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__share_group_state": "share.coordinator.state.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
"""By these a broker finds the partition of a key: they must be what the topics have."""

HOUR_MS: Final = 3_600_000

SETTINGS: Final[Mapping[str, str | int]] = {
    "process.roles": "broker,controller",
    "node.id": 1,
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


class BrokerError(Exception):
    """The broker did not start, did not answer, or answered with an error."""


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic which the cluster's metadata begins with."""

    topic: str
    topic_id: str
    leader_epochs: Sequence[int]
    """Of its partitions, before the broker is elected (which adds one)."""
    configs: Mapping[str, str] = field(default_factory=dict)


class LiveBroker:
    """A running broker; leave the `with` block, or call `stop`, to end it."""

    def __init__(
        self,
        home: KafkaHome,
        folder: Path,
        *,
        topics: Sequence[BrokerTopic] = (),
        logs: Path | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """Start it in a new folder, and wait until it serves.

        `logs` holds `<topic>-<partition>` folders, which are copied into the log directory; their topics must be among
        `topics`. Raises BrokerError with the end of the broker's log where it does not start.
        """
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        if logs is not None:
            shutil.copytree(logs, self.data, dirs_exist_ok=True)
        counts = {
            PARTITION_SETTINGS[it.topic]: len(it.leader_epochs) for it in topics if it.topic in PARTITION_SETTINGS
        }
        self._settings = {**SETTINGS, **counts, **(settings or {}), "log.dirs": str(self.data)}
        (folder / "topics.json").write_text(json.dumps([asdict(topic) for topic in topics]))
        self._process, self.address = self._start(home)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def process_id(self) -> int:
        """Of the broker's process."""
        return self._process.pid

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

    def ask(self, command: Mapping[str, Any]) -> Any:
        """Send a command to java/LiveBroker.java and give its answer. Raises BrokerError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise BrokerError(f"the broker has ended\n{self._end_of_log()}") from error
        return self._answer(self._process, ANSWER_TIMEOUT_S)

    def stop(self) -> None:
        """Shut it down; where that takes too long, end it."""
        if self._process.poll() is None:
            try:
                self.ask({"do": "stop"})
            except BrokerError:
                self._process.kill()
        _end(self._process)

    def _start(self, home: KafkaHome) -> tuple[subprocess.Popen[str], str]:
        for tried in range(1, PORTS_TRIED_MAX + 1):
            process = self._launch(home)
            try:
                return process, str(self._answer(process, START_TIMEOUT_S))
            except BrokerError as error:
                _end(process)
                if tried == PORTS_TRIED_MAX or "Address already in use" not in str(error):
                    raise
        raise AssertionError("a broker starts, or a try ends in an error")

    def _launch(self, home: KafkaHome) -> subprocess.Popen[str]:
        port, controller_port = _free_ports(2)
        addresses = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in (self._settings | addresses).items()))
        with self.log.open("w") as log:
            return subprocess.Popen(
                home.command(str(properties), str(self.folder / "topics.json")),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
            )

    def _answer(self, process: subprocess.Popen[str], timeout_s: float) -> Any:
        assert process.stdout is not None
        timer = Timer(timeout_s, process.kill)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise BrokerError(f"no answer from the broker within {timeout_s:g} s, or it ended\n{self._end_of_log()}")
        answer = json.loads(line)
        if "ok" not in answer:
            raise BrokerError(f"{answer.get('error', line)}\n{self._end_of_log()}")
        return answer["ok"]

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_TOLD:])


def _end(process: subprocess.Popen[str]) -> None:
    """Close what ties a process to this one, and wait for its end."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # of a command which it will not read any more
                pipe.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [it.getsockname()[1] for it in sockets]
    finally:
        for it in sockets:
            it.close()
