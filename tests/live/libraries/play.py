"""Groups of every library live through a script on one broker: members start, leave, are killed, subscribe to more.

    with LiveBroker(home, folder / "broker", settings=LIBRARY_SETTINGS) as broker:
        play(broker, installed, folder / "played", GROUPS, seed=7, cycles=1)

What was done goes into `truth/acts.jsonl`, what the members' own callbacks said into `truth/callbacks.jsonl`, what the
groups are into `truth/groups.json` (see `truth.py`, which reads them).
"""

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.request import Request, urlopen

from tests.live.broker import CLIENT_SETTINGS, LiveBroker, free_ports
from tests.live.libraries.coordinator import facts_of
from tests.live.libraries.installed import Installed, Library

LIBRARY_SETTINGS: Final = {**CLIENT_SETTINGS, "group.initial.rebalance.delay.ms": 1_000}
COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__cluster_metadata", "__transaction_state")
"""Whose log folders are kept."""
INDEXES: Final = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*.swap", "*.cleaned", "*.deleted")
"""Of log folders, not needed."""

MEMBERS: Final = ("m1", "m2", "m3")
PARTITIONS: Final = 6
MORE_PARTITIONS: Final = 3
"""Of the topic that members subscribe to later."""
LEAVE_TIMEOUT_S: Final = 20
SESSION_MS: Final = 6_000
START_PAUSE_S: Final = 2
"""Between the starts of groups: processes that start are what the machine has to do most."""
START_S: Final = 50
"""All processes have started then."""
CYCLE_S: Final = 60
"""What a cycle takes."""
PAUSE_S: Final = 5.0
"""Between two acts: longer than a rebalance takes."""
CONNECT_TIMEOUT_S: Final = 180
"""Workers take long to start on a busy machine, and answer 409 while they rebalance."""
WORKER_START_S: Final = 10.0
"""So long after the last start a connector is made."""
FEED_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Group:
    """A group of one library's members."""

    group_id: str
    library: str
    protocol: str = "classic"
    """classic consumer streams-classic"""
    options: Mapping[str, str] = field(default_factory=dict)
    can_subscribe: bool = True
    """Whether a member can change its topics without leaving."""
    session_ms: int = SESSION_MS
    heartbeat_ms: int = 1_000
    commit_ms: int = 1_000

    @property
    def topics(self) -> tuple[str, str]:
        """The one that all members read, and the one that they subscribe to later."""
        return f"{self.group_id}-a", f"{self.group_id}-b"


STICKY: Final = {"assignor": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
GROUPS: Final = (
    Group("connect", "connect", "connect", can_subscribe=False),
    Group("librdkafka", "confluent-kafka"),
    Group("librdkafka-cooperative", "confluent-kafka", options={"assignor": "cooperative-sticky"}),
    Group("librdkafka-consumer", "confluent-kafka", "consumer"),
    Group("kafka-python", "kafka-python"),
    Group("aiokafka", "aiokafka"),
    Group("kafkajs", "kafkajs", can_subscribe=False),
    Group("platformatic", "platformatic", can_subscribe=False),
    Group("franz-go", "franz-go"),
    Group("sarama", "sarama"),
    Group("kafka-go", "kafka-go", can_subscribe=False),
    Group("java", "java"),
    Group("java-cooperative", "java", options=STICKY),
    Group("java-consumer", "java", "consumer"),
    Group("java-streams", "java", "streams-classic", can_subscribe=False),
)
CONNECT_DELAY_MS: Final = 3_000
"""scheduled.rebalance.max.delay.ms"""
CONNECTORS: Final = {
    "source": {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": "source.txt",
        "topic": "connect-a",
    },
    "sink": {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "4",
        "file": "sink.txt",
        "topics": "connect-a",
    },
}


DEFAULTS: Final = {
    "confluent-kafka": (45_000, 3_000, 5_000),
    "kafka-python": (45_000, 3_000, 5_000),
    "aiokafka": (10_000, 3_000, 5_000),
    "kafkajs": (30_000, 3_000, 5_000),
    "platformatic": (60_000, 3_000, 5_000),
    "franz-go": (45_000, 3_000, 5_000),
    "sarama": (10_000, 3_000, 1_000),
    "kafka-go": (30_000, 3_000, 1_000),
    "java": (45_000, 3_000, 5_000),
    "connect": (10_000, 3_000, 5_000),
}
"""What a library takes where nothing is set: session time-out, heartbeat interval, commit interval, in ms."""


def with_defaults(group: Group) -> Group:
    """The same kind of group with the library's own time-outs."""
    session_ms, heartbeat_ms, commit_ms = DEFAULTS[group.library]
    return Group(
        f"{group.group_id}-defaults",
        group.library,
        group.protocol,
        group.options,
        group.can_subscribe,
        session_ms,
        heartbeat_ms,
        commit_ms,
    )


@dataclass(frozen=True, slots=True)
class Act:
    """What is done to a group, so many seconds after the act before."""

    after_s: float
    what: str
    """start leave kill subscribe grow connect"""
    member: str = ""
    topics: tuple[str, ...] = ()


def script(group: Group, seed: int, cycles: int) -> Iterator[Act]:
    """A group forms, and then goes through everything that can happen to it, so many times; a seed for each order."""
    draw = random.Random(f"{seed} {group.group_id}")
    expiry_s = group.session_ms / 1000 + PAUSE_S
    members = MEMBERS[:2] if group.protocol == "connect" else MEMBERS
    for number, member in enumerate(members):
        yield Act(0 if not number else draw.uniform(0.5, 3), "start", member)
    yield Act(PAUSE_S, "settle")
    if group.protocol == "connect":
        for connector in CONNECTORS:
            yield Act(WORKER_START_S, "connect", MEMBERS[0], (connector,))
    for cycle in range(cycles):
        parts = ["leave", "kill", "restart"]
        parts += ["subscribe"] if group.can_subscribe and not cycle else []
        parts += ["grow"] if not cycle and group.protocol != "connect" else []
        draw.shuffle(parts)
        for part in parts:
            member = draw.choice(members[1:])
            yield Act(PAUSE_S, "settle")
            match part:
                case "leave":
                    yield Act(draw.uniform(0, 2), "leave", member)
                    yield Act(PAUSE_S, "start", member)
                case "kill":
                    yield Act(draw.uniform(0, 2), "kill", member)
                    yield Act(expiry_s, "start", member)
                case "restart":
                    # The process is back before its session has run out, as a new member of the same client id.
                    yield Act(draw.uniform(0, 2), "kill", member)
                    yield Act(0.5, "start", member)
                    yield Act(expiry_s, "settle")
                case "subscribe":
                    yield Act(draw.uniform(0, 2), "subscribe", MEMBERS[0], group.topics)
                case "grow":
                    yield Act(draw.uniform(0, 2), "grow", topics=group.topics[:1])
    yield Act(PAUSE_S, "settle")
    if draw.random() < 0.5:
        for member in members:
            yield Act(draw.uniform(0, 2), "leave", member)
    yield Act(2, "settle")


def cycles_in(minutes: float) -> int:
    """How often groups with short time-outs go through everything in so many minutes."""
    return max(1, round((minutes * 60 - START_S) / CYCLE_S))


class MemberProcess:
    """A member in a process of its own."""

    def __init__(self, library: Library, settings: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "settings.json"
        file.write_text(json.dumps(settings))
        with (folder / "output.log").open("a") as output:
            self._process = subprocess.Popen(
                [*library.command, str(file)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                cwd=folder,
                env=os.environ | dict(library.environment),
            )

    def command(self, line: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def leave(self) -> bool:
        """Let it leave and end in order. False where it did not within the time: it is killed then."""
        try:
            self.command("stop")
            self._process.wait(LEAVE_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
            return False
        self._close()
        return self._process.returncode == 0

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._close()

    def end_of_input(self) -> None:
        """What ends a feed."""
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_TIMEOUT_S)
        self._process.kill()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def _close(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()


class _Life:
    """A group that lives through its script."""

    def __init__(
        self,
        broker: LiveBroker,
        library: Library,
        group: Group,
        folder: Path,
        journal: "Journal",
        plugins: Path | None = None,
    ) -> None:
        self._broker = broker
        self._plugins = str(plugins)
        self._library = library
        self._group = group
        self._folder = folder
        self._journal = journal
        self._members: dict[str, MemberProcess] = {}
        self._ports: dict[str, int] = {}

    def live(self, acts: Sequence[Act], begins_at: float) -> None:
        """From the first act to the last."""
        time.sleep(max(begins_at - time.monotonic(), 0))
        for act in acts:
            time.sleep(act.after_s)
            self._do(act)

    def end(self) -> None:
        """Kill who is still there."""
        for member in self._members.values():
            member.kill()

    def _do(self, act: Act) -> None:
        name = f"{self._group.group_id}-{act.member}"
        match act.what:
            case "start":
                self._journal.note(self._group, name, act, "begin")
                self._members[name] = MemberProcess(self._library, self._settings(name), self._folder / name)
            case "leave" | "kill":
                member = self._members.pop(name)
                if member.exit_code is not None:
                    self._journal.note(self._group, name, act, "was gone")
                    return
                self._journal.note(self._group, name, act, "begin")
                has_left = True
                if act.what == "leave":
                    has_left = member.leave()
                else:
                    member.kill()
                self._journal.note(self._group, name, act, "end" if has_left else "failed")
            case "subscribe":
                self._journal.note(self._group, name, act, "begin")
                self._members[name].command(f"subscribe {','.join(act.topics)}")
            case "connect":
                self._journal.note(self._group, name, act, "begin")
                self._make_connector(act.topics[0], self._ports[name])
            case "grow":
                self._journal.note(self._group, "", act, "begin")
                topic = act.topics[0]
                self._broker.ask({"do": "add_partitions", "topic": topic, "partitions": PARTITIONS + 2})

    def _make_connector(self, connector: str, port: int) -> None:
        """By the REST interface of a worker."""
        asked = Request(
            f"http://127.0.0.1:{port}/connectors/{connector}/config",
            json.dumps(CONNECTORS[connector] | {"file": str(self._folder / CONNECTORS[connector]["file"])}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        (self._folder / "source.txt").touch()
        gives_up_at = time.monotonic() + CONNECT_TIMEOUT_S
        while time.monotonic() < gives_up_at:
            try:
                with urlopen(asked, timeout=10):
                    return
            except OSError:
                time.sleep(1)
        raise RuntimeError(f"the connector {connector} cannot be made")

    def _settings(self, name: str) -> dict[str, Any]:
        group, folder = self._group, self._folder / name
        if group.protocol == "connect" and name not in self._ports:
            self._ports[name] = free_ports(1)[0]
        return {
            "rest_port": self._ports.get(name),
            "delay_ms": CONNECT_DELAY_MS,
            "plugins": self._plugins,
            "servers": self._broker.address,
            "group": group.group_id,
            "name": name,
            "topics": list(group.topics[:1]),
            "protocol": group.protocol,
            "session_ms": group.session_ms,
            "heartbeat_ms": group.heartbeat_ms,
            "commit_ms": group.commit_ms,
            "callbacks": str(folder / "callbacks.jsonl"),
            "folder": str(folder),
            **group.options,
        }


class Journal:
    """What was done, line by line, in order of time."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._path = path

    def note(self, group: Group, member: str, act: Act, phase: str) -> None:
        """Write a line now."""
        line = {
            "at": now_ms(),
            "group": group.group_id,
            "member": member,
            "act": act.what,
            "phase": phase,
            "topics": list(act.topics),
        }
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def now_ms() -> int:
    """Wall-clock time, as clients and brokers have it."""
    return time.time_ns() // 1_000_000


def play(
    broker: LiveBroker, installed: Installed, folder: Path, groups: Sequence[Group], *, seed: int, cycles: int
) -> Path:
    """Let the groups live through their scripts, then copy the coordinators' logs while the last members still live.

    Gives `folder`, which has `logs/` and `truth/` then.
    """
    truth, lives = folder / "truth", folder / "lives"
    truth.mkdir(parents=True)
    journal = Journal(truth / "acts.jsonl")
    groups = [group for group in groups if group.library in installed.libraries]
    partitions: dict[str, int] = {}
    for group in groups:
        partitions |= dict(zip(group.topics, (PARTITIONS, MORE_PARTITIONS), strict=True))
    for topic, count in partitions.items():
        broker.create_topic(topic, count)
    feed_settings = {"servers": broker.address, "partitions": partitions, "pause_s": FEED_PAUSE_S}
    feed = MemberProcess(installed.feed, feed_settings, lives / "feed")
    everyone = [
        _Life(broker, installed.libraries[group.library], group, lives, journal, installed.connect_plugins)
        for group in groups
    ]
    begins_at = time.monotonic() + 2
    try:
        with ThreadPoolExecutor(len(everyone)) as pool:
            done = [
                pool.submit(life.live, list(script(group, seed, cycles)), begins_at + number * START_PAUSE_S)
                for number, (life, group) in enumerate(zip(everyone, groups, strict=True))
            ]
        for each in done:
            each.result()
        copy_logs(broker.data, folder / "logs")
        ended_at = now_ms()
    finally:
        for life in everyone:
            life.end()
        feed.end_of_input()
    callbacks = sorted(
        (line for file in lives.glob("*/callbacks.jsonl") for line in file.read_text().splitlines()),
        key=lambda line: json.loads(line)["at"],
    )
    (truth / "callbacks.jsonl").write_text("".join(f"{line}\n" for line in callbacks))
    said = (fact for fact in facts_of(broker.log) if fact["at"] <= ended_at)
    (truth / "coordinator.jsonl").write_text("".join(f"{json.dumps(fact)}\n" for fact in said))
    facts = {
        "ended_at": ended_at,
        "seed": seed,
        "cycles": cycles,
        "left_out": installed.left_out,
        "groups": {group.group_id: _facts(group, installed) for group in groups},
    }
    (truth / "groups.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


def copy_logs(data: Path, to: Path) -> None:
    """The coordinators' logs and the cluster's metadata, as they are now."""
    to.mkdir(parents=True)
    for source in sorted(data.iterdir()):
        if source.is_dir() and source.name.rsplit("-", 1)[0] in COORDINATOR_TOPICS:
            shutil.copytree(source, to / source.name, ignore=shutil.ignore_patterns(*INDEXES))
    for name in ("meta.properties", "log-start-offset-checkpoint"):
        if (data / name).is_file():
            shutil.copy(data / name, to)


def _facts(group: Group, installed: Installed) -> dict[str, Any]:
    library = installed.libraries[group.library]
    return {
        "library": group.library,
        "version": library.version,
        "language": library.language,
        "protocol": group.protocol,
        "options": dict(group.options),
        "session_ms": group.session_ms,
        "heartbeat_ms": group.heartbeat_ms,
        "commit_ms": group.commit_ms,
        "topics": group.topics,
    }
