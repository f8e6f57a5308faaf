"""Kafka 4.3.1 as the tests need it: its jars from Maven, and the tests' own Java programs, compiled.

Both are made once, below `.cache` of the project. Mirrors and proxies are those of the user's own Maven settings.
"""

import fcntl
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT_ROOT

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
SOURCES: Final = tuple(sorted((HERE / "java").glob("*.java")))
LOG_CONFIGURATION: Final = HERE / "java" / "log4j2.xml"
CACHE: Final = PROJECT_ROOT / ".cache"

MAVEN_TIMEOUT_S: Final = 300
COMPILE_TIMEOUT_S: Final = 120


class KafkaUnavailable(Exception):
    """There is no Kafka to run here; the text says what is missing."""


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
        return _jdk_tool(name)


def kafka_home() -> KafkaHome:
    """Find or make it. Raises KafkaUnavailable without a JDK, without Maven, or where Maven cannot fetch Kafka."""
    java, javac = _jdk_tool("java"), _jdk_tool("javac")
    with _locked(CACHE / "live-kafka.lock"):
        jars = CACHE / f"live-kafka-{_sum(POM)}"
        if not jars.is_dir():
            _make(jars, _fetch)
        classes = CACHE / f"live-kafka-classes-{_sum(POM, *SOURCES)}"
        if not classes.is_dir():
            _make(classes, lambda folder: _compile(javac, jars, folder))
    return KafkaHome(java, jars, classes)


def _jdk_tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        raise KafkaUnavailable(f"no {name}: a live broker needs a full JDK 17")
    return found


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("no mvn: a live broker needs Maven, to fetch Kafka 4.3.1")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run([maven, "-q", "-B", "-f", str(POM), *goal], MAVEN_TIMEOUT_S, "Maven cannot fetch Kafka 4.3.1")


def _compile(javac: str, jars: Path, folder: Path) -> None:
    command = [javac, "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(folder), *map(str, SOURCES)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"the tests' Java programs do not compile:\n{error.stderr}") from error


def _run(command: list[str], timeout_s: int, what_failed: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.CalledProcessError as error:
        lines = (error.stdout + error.stderr).strip().splitlines()
        raise KafkaUnavailable(f"{what_failed}: {lines[0] if lines else 'no reason given'}") from error
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(f"{what_failed} within {timeout_s} seconds") from error


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside, then give it its name: a folder with this name is whole."""
    beside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    fill(beside)
    beside.rename(folder)


def _sum(*files: Path) -> str:
    return f"{zlib.crc32(b''.join(file.read_bytes() for file in files)):08x}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One test run at a time makes it; the others find it made."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
