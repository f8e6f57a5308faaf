"""Servers that the tests need and Maven has: their jars, and the tests' own Java programs, compiled.

All is made once, below `.cache` of the project. Mirrors and proxies are those of the user's own Maven settings.
"""

import fcntl
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT_ROOT

CACHE: Final = PROJECT_ROOT / ".cache"
MAVEN_TIMEOUT_S: Final = 300
COMPILE_TIMEOUT_S: Final = 120


class Unavailable(Exception):
    """A server cannot be run here; the text says what is missing."""


def jdk_tool(name: str) -> str:
    """The path of java, javac or another tool of the JDK. Raises Unavailable where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name}: a server of the tests needs a full JDK 17")
    return found


def jars_and_classes(name: str, pom: Path, sources: Sequence[Path]) -> tuple[Path, Path]:
    """Folders with what a POM names and with compiled programs. Raises Unavailable without a JDK, without Maven, or
    where Maven cannot fetch."""
    javac = jdk_tool("javac")
    with locked(CACHE / f"{name}.lock"):
        jars = made(CACHE / f"{name}-{sum_of(pom)}", lambda folder: _fetch(pom, folder))
        named = CACHE / f"{name}-classes-{sum_of(pom, *sources)}"
        classes = made(named, lambda folder: _compile(javac, jars, sources, folder))
    return jars, classes


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"no mvn: Maven fetches what {pom.parent.name}/{pom.name} names")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    what_failed = f"Maven cannot fetch what {pom.parent.name}/{pom.name} names"
    try:
        subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), *goal],
            check=True,
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stdout + error.stderr).strip().splitlines()
        raise Unavailable(f"{what_failed}: {lines[0] if lines else 'no reason given'}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{what_failed} within {MAVEN_TIMEOUT_S} seconds") from error


def _compile(javac: str, jars: Path, sources: Sequence[Path], folder: Path) -> None:
    command = [javac, "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(folder), *map(str, sources)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"the tests' Java programs do not compile:\n{error.stderr}") from error


def made(folder: Path, fill: Callable[[Path], object]) -> Path:
    """The folder of this name, filled under another one: where it exists it is whole."""
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fill(unfinished)
        unfinished.rename(folder)
    return folder


def sum_of(*files: Path) -> str:
    """A checksum of files: it names a folder that is filled from them."""
    return f"{zlib.crc32(b''.join(file.read_bytes() for file in files)):08x}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One test run at a time makes it; the others find it made."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
