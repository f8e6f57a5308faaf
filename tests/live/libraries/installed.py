"""The client libraries, installed at first use below `.cache/clients`, at the versions that their files name.

Python's into a folder of their own, JavaScript's by npm, Go's built by `go build`, Java's by Maven. Mirrors and proxies
are those of the user's own settings. A library whose tools are not here is left out, and said.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT_ROOT
from tests.live.kafka_home import KafkaHome
from tests.maven import locked, made, sum_of

HERE: Final = Path(__file__).resolve().parent
CACHE: Final = PROJECT_ROOT / ".cache" / "clients"
INSTALL_TIMEOUT_S: Final = 600
GO_PROGRAMS: Final = ("franz", "sarama", "segmentio")


@dataclass(frozen=True, slots=True)
class Library:
    """A client library: how a member of it is started, with a settings file as the last argument."""

    name: str
    language: str
    version: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """What could be installed, and why the rest could not."""

    libraries: dict[str, Library]
    feed: Library
    """Writes records into topics (py/feed.py)."""
    connect_plugins: Path | None
    """The jar of the connectors."""
    left_out: dict[str, str]
    """Reason, by language."""


def install(home: KafkaHome) -> Installed:
    """Install what is not there yet. Raises CalledProcessError where the Python libraries cannot be had."""
    CACHE.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}
    libraries: list[Library] = []
    with locked(CACHE / "install.lock"):
        python = _python()
        for name, program, version in (
            ("confluent-kafka", "confluent.py", "2.16.1"),
            ("kafka-python", "kafka_python.py", "3.0.12"),
            ("aiokafka", "aio.py", "0.14.0"),
        ):
            libraries.append(_python_program(python, name, program, version))
        for language, more in (("JavaScript", _javascript), ("Go", _go)):
            try:
                libraries.extend(more())
            except (OSError, subprocess.SubprocessError) as error:
                left_out[language] = _reason(error)
        libraries.extend(_java(home))
        connect: Path | None = None
        try:
            worker, connect = _connect(home)
            libraries.append(worker)
        except (OSError, subprocess.SubprocessError) as error:
            left_out["Connect"] = _reason(error)
    feed = _python_program(python, "feed", "feed.py", "")
    return Installed({library.name: library for library in libraries}, feed, connect, left_out)


def _python() -> Path:
    asked = HERE / "py" / "requirements.txt"
    return made(
        CACHE / f"py-{sum_of(asked)}",
        lambda folder: _run(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "-r", str(asked)),
    )


def _python_program(folder: Path, name: str, program: str, version: str) -> Library:
    environment = (("PYTHONPATH", str(folder)),)
    return Library(name, "Python", version, (sys.executable, str(HERE / "py" / program)), environment)


def _javascript() -> Iterator[Library]:
    node, npm = _tool("node"), _tool("npm")
    sources = sorted(it for it in (HERE / "js").iterdir() if it.is_file())

    def fill(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        _run(npm, "install", "--no-audit", "--no-fund", "--loglevel=error", folder=folder)

    folder = made(CACHE / f"js-{sum_of(*sources)}", fill)
    yield Library("kafkajs", "JavaScript", "2.2.4", (node, str(folder / "kafkajs.js")))
    yield Library("platformatic", "JavaScript", "1.34.0", (node, str(folder / "platformatic.js")))


def _go() -> Iterator[Library]:
    go = _tool("go")
    sources = sorted(it for it in (HERE / "go").rglob("*") if it.is_file())
    folder = made(
        CACHE / f"go-{sum_of(*sources)}",
        lambda folder: _run(
            go, "build", "-o", f"{folder}/", *(f"./{program}" for program in GO_PROGRAMS), folder=HERE / "go"
        ),
    )
    for name, program, version in (
        ("franz-go", "franz", "1.22.3"),
        ("sarama", "sarama", "1.61.1"),
        ("kafka-go", "segmentio", "0.4.51"),
    ):
        yield Library(name, "Go", version, (str(folder / program),))


def _java(home: KafkaHome) -> Iterator[Library]:
    source = HERE / "java" / "Member.java"
    classpath = f"{home.jars}/*"
    classes = made(
        CACHE / f"java-{sum_of(source)}-{home.jars.name}",
        lambda folder: _run(
            home.tool("javac"), "-nowarn", "-proc:none", "-cp", classpath, "-d", str(folder), str(source)
        ),
    )
    own = KafkaHome(home.java, home.jars, classes)
    yield Library("java", "Java", "4.3.1", tuple(own.command("Member", heap_mb=128)))


def _connect(home: KafkaHome) -> tuple[Library, Path]:
    """The worker, and the jar of the connectors."""
    pom, source = HERE / "java" / "pom.xml", HERE / "java" / "Worker.java"
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
    jars = made(
        CACHE / f"connect-{sum_of(pom)}",
        lambda folder: _run(_tool("mvn"), "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={folder}"),
    )
    classes = made(
        CACHE / f"worker-{sum_of(pom, source)}",
        lambda folder: _run(
            home.tool("javac"), "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(folder), str(source)
        ),
    )
    command = KafkaHome(home.java, jars, classes).command("Worker", heap_mb=256)
    return Library("connect", "Java", "4.3.1", tuple(command)), next(jars.glob("connect-file-*.jar"))


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"no {name}")
    return found


def _run(*command: str, folder: Path | None = None) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = f"{error.stdout}{error.stderr}".strip().splitlines()
        return lines[-1] if lines else str(error)
    return str(error)
