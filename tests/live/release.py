"""Brokers of other releases of Kafka, as Maven has them, each in a process of its own on free ports of 127.0.0.1.

    with ReleasedBroker(release_home("3.5.2"), tmp_path / "broker") as broker:
        broker.address, broker.data / "__consumer_offsets-0"
            broker.upgrade(release_home("3.9.1"))   # stops it, and starts the other one over the same folder
        with ReleasedClients(broker) as clients:  # those of the release itself
            clients.ask("commit", group="g", topic="t", partition=0, offset=5)

A broker runs with KRaft where its release has that, else with a ZooKeeper of its own in the same process. It is started
by Kafka's own main class; the process ends when its standard input does (java/release/StockBroker.java).
"""

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.live.broker import SETTINGS, Node, free_ports
from tests.live.kafka_home import HERE, LOG_CONFIGURATION
from tests.live.program import JavaProgram, ProgramError, Running, start_on_free_port, write_properties
from tests.maven import CACHE, jars_and_classes, jdk_tool

SOURCES: Final = tuple(sorted((HERE / "java" / "release").glob("*.java")))
START_TIMEOUT_S: Final = 120
FORMAT_TIMEOUT_S: Final = 60
CLUSTER_ID: Final = "GroupledgerReleases000"
FIRST_KRAFT: Final = (3, 3)
"""The first release whose KRaft is meant for production."""
FIRST_SCALA_213: Final = (2, 4)
FIRST_LOG4J_2: Final = (4, 0)
FIRST_WITHOUT_JAXB: Final = (2, 0)

POM: Final = """<!-- Kafka {version}, and what it logs with. -->
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>groupledger</groupId>
  <artifactId>live-release</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{scala}</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>log4j</groupId><artifactId>log4j</artifactId></exclusion>
        <exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-log4j12</artifactId></exclusion>
      </exclusions>
    </dependency>
    {logging}
    {more}
  </dependencies>
</project>
"""
LOG4J_2: Final = """<dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version>
    </dependency>"""
RELOAD4J: Final = """<dependency>
      <groupId>ch.qos.reload4j</groupId><artifactId>reload4j</artifactId><version>1.2.25</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version>
    </dependency>"""
JAXB: Final = """<dependency>
      <groupId>javax.xml.bind</groupId><artifactId>jaxb-api</artifactId><version>2.3.1</version>
    </dependency>"""
"""Part of Java itself until Java 11."""
LOG4J_1_PROPERTIES: Final = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
OLD_ON_NEW_JAVA: Final = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
"""Releases before 2.0 know no Java 17: they unmap index files in a way of Java 8."""


@dataclass(frozen=True, slots=True)
class ReleaseHome:
    """What starts programs of a release."""

    version: str
    jars: Path
    classes: Path
    java_options: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor number; 0.x releases have three, of which the first two count as one: 0.11 is (0, 11)."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    @property
    def has_kraft(self) -> bool:
        """Whether its brokers run without ZooKeeper."""
        return self.release >= FIRST_KRAFT

    def command(self, program: str, *arguments: str, heap_mb: int = 384) -> list[str]:
        """The process of a program."""
        return [
            jdk_tool("java"),
            "-Xms64m",
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *OLD_ON_NEW_JAVA,
            *self.java_options,
            f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
            "-Dzookeeper.snapshot.trust.empty=true",  # what an older ZooKeeper left has none
            f"-Dlog4j.configuration={_log4j_1().as_uri()}",
            "-cp",
            f"{self.classes}{os.pathsep}{self.jars}/*",
            program,
            *arguments,
        ]


def release_home(version: str) -> ReleaseHome:
    """Fetch it, once. Raises Unavailable without a JDK, without Maven, or where Maven cannot fetch it."""
    release = ReleaseHome(version, Path(), Path()).release
    scala = "2.13" if release >= FIRST_SCALA_213 else "2.11"
    logging = LOG4J_2 if release >= FIRST_LOG4J_2 else RELOAD4J
    CACHE.mkdir(exist_ok=True)
    pom = CACHE / f"live-release-{version}.xml"
    more = JAXB if release < FIRST_WITHOUT_JAXB else ""
    text = POM.format(version=version, scala=scala, logging=logging, more=more)
    if not pom.exists() or pom.read_text() != text:
        pom.write_text(text)
    jars, classes = jars_and_classes(f"live-release-{version}", pom, SOURCES)
    return ReleaseHome(version, jars, classes)


def _log4j_1() -> Path:
    path = CACHE / "live-release-log4j.properties"
    if not path.exists():
        path.write_text(LOG4J_1_PROPERTIES)
    return path


class ReleasedBroker(Running):
    """A running broker of a release; leave the `with` block, or call `stop`, to end it."""

    def __init__(
        self,
        home: ReleaseHome,
        folder: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        features: Sequence[str] = (),
        zookeeper: bool = False,
        node: Node | None = None,
    ) -> None:
        """Start it in a new folder, and wait until it listens. `features` are levels which a KRaft log begins with, as
        `share.version=1`; `zookeeper`: also where the release has KRaft; `node`: with more listeners, which `settings`
        tell about. Raises ProgramError with the end of its log."""
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self._settings = dict(settings or {})
        self._is_kraft = home.has_kraft and not zookeeper
        self._zookeeper_port = 0
        self._is_formatted = not self._is_kraft
        self._features = tuple(features)
        self.home = home
        self.node = node or Node.alone()
        self._program = self._start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.node.ports['PLAINTEXT']}"

    @property
    def log(self) -> Path:
        """What brokers write about themselves."""
        return self.folder / "broker.log"

    def upgrade(self, home: ReleaseHome, settings: Mapping[str, str | int] | None = None) -> None:
        """End it in order, and start another release over the same folder, at the same address."""
        self.stop()
        self.home = home
        self._settings |= settings or {}
        self._program = self._start()

    def stop(self) -> None:
        """Shut it down; where that takes too long, kill it."""
        self._program.stop()

    def tool(self, program: str, *arguments: str, timeout_s: float = FORMAT_TIMEOUT_S) -> str:
        """What a program of this release prints. Raises ProgramError."""
        done = subprocess.run(
            self.home.command(program, *arguments), capture_output=True, text=True, check=False, timeout=timeout_s
        )
        if done.returncode:
            raise ProgramError(f"{program} of {self.home.version} fails:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _start(self) -> JavaProgram:
        return start_on_free_port(self._launch, self._wait)

    def _launch(self) -> JavaProgram:
        properties = self.folder / "server.properties"
        of_node = dict(self.node.settings())
        common = {**SETTINGS, **of_node, **self._settings, "log.dirs": str(self.data)}
        more: list[str] = []
        if not self._is_kraft:
            (self._zookeeper_port,) = free_ports(1)
            zookeeper = self.folder / "zookeeper"
            zookeeper.mkdir(exist_ok=True)
            port = self.node.ports["PLAINTEXT"]
            for name in ("process.roles", "controller.listener.names", "controller.quorum.voters", "node.id"):
                common.pop(name, None)
            common |= {
                "broker.id": self.node.node_id,
                "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            }
            more = [str(zookeeper), str(self._zookeeper_port)]
        write_properties(properties, common)
        if not self._is_formatted:
            levels = [word for feature in self._features for word in ("--feature", feature)]
            self.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), *levels)
            self._is_formatted = True
        return JavaProgram(self.home.command("StockBroker", str(properties), *more), self.folder, self.log)

    def _wait(self, program: JavaProgram) -> None:
        program.answer(START_TIMEOUT_S)
        deadline = time.monotonic() + START_TIMEOUT_S
        host, port = self.address.split(":")
        while time.monotonic() < deadline:
            if not program.is_running:
                break
            with suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            time.sleep(0.2)
        end = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        raise ProgramError(f"Kafka {self.home.version} does not start:\n{end}")


class ReleasedClients(Running):
    """Clients of a broker's own release; leave the `with` block to end them: members do not leave then."""

    def __init__(self, broker: ReleasedBroker) -> None:
        """Start them. Raises ProgramError."""
        command = broker.home.command("ReleaseClients", broker.address)
        self._program = JavaProgram(command, broker.folder, broker.folder / "clients.log")
        self._program.answer(START_TIMEOUT_S)

    def stop(self) -> None:
        """End them."""
        self._program.stop()

    def ask(self, command: str, **fields: str | int) -> Any:
        """Let one of them do something (java/release/ReleaseClients.java), and give the answer. Raises ProgramError."""
        return self._program.ask({"do": command, **fields})
