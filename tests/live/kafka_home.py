"""Kafka 4.3.1 as the tests need it: its jars from Maven, and the tests' own Java programs, compiled.

Both are made once: `tests.maven`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.maven import CACHE, jars_and_classes, jdk_tool

HERE: Final = Path(__file__).resolve().parent
VERSION: Final = "4.3.1"
POM: Final = HERE / "pom.xml"
SOURCES: Final = tuple(sorted((HERE / "java").glob("*.java")))
LOG_CONFIGURATION: Final = HERE / "java" / "log4j2.xml"


@dataclass(frozen=True, slots=True)
class KafkaHome:
    """What starts a Java program."""

    java: str
    jars: Path
    classes: Path

    def command(self, program: str, *arguments: str, heap_mb: int = 384) -> list[str]:
        """The process of a program of ours or of Kafka's: a small heap, and quick to start."""
        return [
            self.java,
            "-Xms64m",
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
            "-cp",
            f"{self.classes}{os.pathsep}{self.jars}/*",
            program,
            *arguments,
        ]

    def tool(self, name: str) -> str:
        """Another tool of the same JDK."""
        return jdk_tool(name)


def kafka_home() -> KafkaHome:
    """Find or make it. Raises Unavailable without a JDK, without Maven, or where Maven cannot fetch Kafka."""
    jars, classes = jars_and_classes("live-kafka", POM, SOURCES)
    return KafkaHome(jdk_tool("java"), jars, classes)


def clients_home(version: str) -> KafkaHome:
    """The same clients, and Kafka's tools, of another release. Raises Unavailable."""
    pom = CACHE / f"live-clients-{version}.xml"
    CACHE.mkdir(exist_ok=True)
    pom.write_text(POM.read_text().replace(VERSION, version))
    sources = [path for path in SOURCES if path.stem != "LiveBroker"]
    jars, classes = jars_and_classes(f"live-clients-{version}", pom, sources)
    return KafkaHome(jdk_tool("java"), jars, classes)
