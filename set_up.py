"""Set-up of what jobs need, once where it is missing: called by bootstrap.py before a job, and for `--set-up`.

Uses only the standard library, like bootstrap.py, since it runs before the environment exists, in a checkout as in a
wheel. It creates a Python environment in .venv, Delta's jars and compiled kernels in .cache, and archives for the
machines of a cluster. It looks for Java, but does not install it.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

FAILED: Final = 1
WRONG: Final = 2
"""Exit code: wrong arguments, or something that must be installed first."""
RUN: Final = "run"
DEV: Final = "dev"
LOCKS: Final = {RUN: ("requirements.txt",), DEV: ("requirements.txt", "requirements-dev.txt")}
"""The lock files of an environment for jobs, and of one for tests too; the last file refers to the others."""
UV_LOCK: Final = "requirements-uv.txt"
BUILD_LOCK: Final = "requirements-build.txt"
UV_NAMES: Final = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Settings of pip that say where packages come from, and uv's variables for them."""
SPARK_PACKAGES: Final = frozenset({"pyspark", "delta-spark"})
"""pyspark is built from its source, which takes as long as to install all other packages and compile the kernels:
both happen at one time, since kernels need no Spark."""
PYTHONS: Final = ("python3.11", "python3.12", "python3.13", "python3", "python")
KERNELS: Final = "coordinator_core"
"""numba checks the file of a kernel, but not the files of functions that it calls: so the cache key covers this
package."""
PACKED_FOLDERS: Final = ("schemas", "coordinator_core", "simulator", "jobs", "conf")
LOG_LINES_SHOWN: Final = 15
FREE_BYTES_LOW: Final = 100 << 20
"""Where a step fails with less on the disk, that is likely why, and its output may be lost too."""
MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
NETWORK_TIMEOUT_S: Final = 30
JAVA_MIN: Final = 17
INSTALL_JAVA: Final = (
    "install a full JDK 17 (Debian, Ubuntu: apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17), "
    "and set JAVA_HOME if it is not the java on the PATH"
)
PYTHON_KNOWN: Final = "Python 3.11, 3.12 or 3.13 with venv"
"""The locks have packages for these: without a compiler, none can be made for a later one."""
INSTALL_PYTHON: Final = (
    "install one (Debian, Ubuntu: apt install python3.11-venv; macOS: brew install python@3.11), "
    "or name it in GROUPLEDGER_PYTHON"
)


class BootstrapError(Exception):
    """An error of one line, with the remedy, and an exit code; `output`: the last lines of the command that failed."""

    def __init__(self, code: int, text: str, output: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.output = output


def say(text: str) -> None:
    """Print a line on stderr: stdout belongs to the job."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Places:
    """The folders of a checkout or an installed wheel."""

    root: Path
    """Contains bootstrap.py, this file, conf/ and the code."""
    cache: Path
    """Where set-up keeps its results."""
    python: str
    """The Python that runs jobs."""
    is_installed: bool
    """In a wheel the folders are inside the package `groupledger`, and its environment is the one that it is
    installed in."""

    @property
    def imports(self) -> Path:
        """The folder from which the code is imported."""
        return self.root.parent if self.is_installed else self.root

    @property
    def package(self) -> str:
        """Prefix of `jobs` in module names."""
        return f"{self.root.name}." if self.is_installed else ""

    @property
    def venv(self) -> Path:
        """The virtual environment of a checkout."""
        return self.root / ".venv"

    @property
    def jars(self) -> Path:
        """Folder of Delta's jars."""
        return self.cache / "jars"

    @property
    def defaults(self) -> Path:
        """Spark's settings."""
        return self.root / "conf" / "spark-defaults.conf"

    @cached_property
    def delta_jars(self) -> Mapping[str, str]:
        """Delta's jars: path in a Maven repository -> SHA-256."""
        lines = (self.root / "conf" / "jars.sha256").read_text("utf-8").splitlines()
        return {path: digest for digest, path in map(str.split, lines)}

    @property
    def entry(self) -> Path:
        """The file that Spark runs, with a job and its options."""
        return self.root / "jobs" / "__main__.py"

    @cached_property
    def kernels(self) -> Path:
        """Folder of numba's cache for this version of the code."""
        return self.cache / "numba" / checksum(files_below(self.root, [KERNELS], "*.py"))

    @cached_property
    def spark_home(self) -> Path:
        """The folder of pyspark in the environment."""
        if not self.is_installed:
            return next(self.venv.glob("lib/python3.*/site-packages/pyspark"), self.venv / "pyspark")
        code = 'from importlib.util import find_spec; print(find_spec("pyspark").submodule_search_locations[0])'
        found = _printed([self.python, "-c", code])
        if found is None:
            raise BootstrapError(FAILED, f"{self.python} has no pyspark: install groupledger again with pip")
        return Path(found.strip())


def find_places(root: Path, environment: Mapping[str, str]) -> Places:
    """The folders of the project in `root`. Raises BootstrapError for a wheel that was not started by its command."""
    own_cache = environment.get("GROUPLEDGER_CACHE")
    if not (root / "__init__.py").is_file():
        return Places(root, Path(own_cache or root / ".cache").absolute(), str(root / ".venv/bin/python"), False)
    if not (python := environment.get("GROUPLEDGER_PYTHON")):
        raise BootstrapError(WRONG, "GROUPLEDGER_PYTHON is not set: start jobs with the command groupledger")
    user_cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or '/nonexistent'}/.cache"
    return Places(root, Path(own_cache or f"{user_cache}/groupledger").absolute(), python, True)


def files_below(root: Path, folders: Iterable[str], pattern: str = "*") -> list[Path]:
    """Files of the code, in the same order on all machines, without compiled Python files."""
    found = (path for folder in folders for path in (root / folder).rglob(pattern))
    return sorted(path for path in found if path.suffix != ".pyc" and path.is_file())


def checksum(files: Iterable[Path]) -> str:
    """A digest of the contents of files."""
    crc, size = 0, 0
    for path in files:
        data = path.read_bytes()
        crc, size = zlib.crc32(data, crc), size + len(data)
    return f"{crc:08x}-{size}"


INTERRUPTED: Final = (-signal.SIGINT, 128 + signal.SIGINT)
"""Exit codes after Ctrl-C: from the system, and from shells and Java."""


def run_logged(
    command: Sequence[str | Path], log: Path, failure: str, environment: Mapping[str, str], cwd: Path | None = None
) -> None:
    """Run a command with its output in a file.

    On failure, raises BootstrapError with the last lines of the file; after Ctrl-C KeyboardInterrupt.
    """
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                pass_fds=_locks,
                check=False,
            )
        except OSError as error:
            raise BootstrapError(FAILED, f"{failure}: {command[0]} cannot be run ({error.strerror})") from None
    if done.returncode in INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        free = shutil.disk_usage(log.parent).free
        low = f" ({free >> 20} MiB of the disk are free: make room)" if free < FREE_BYTES_LOW else ""
        raise BootstrapError(FAILED, f"{failure}{low}; its whole output is in {log}", lines[-LOG_LINES_SHOWN:])


_locks: list[int] = []
"""Locks of this process. Commands inherit them: if this process is killed, nobody else sets up what they still
write."""


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """One set-up at a time; a process that waited finds it complete."""
    lock = None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / "set-up.lock", os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _locks.append(lock)
        yield
    except OSError as error:
        remedy = "make room there" if error.errno == errno.ENOSPC else "ask whoever may write there to run it once"
        raise BootstrapError(
            FAILED,
            f"{error.filename or cache} cannot be written ({error.strerror}): {remedy}, use a clone that you may "
            f"write, or, for what is kept in {cache}, name another folder in GROUPLEDGER_CACHE",
        ) from None
    finally:
        _locks.clear()
        if lock is not None:
            os.close(lock)


def is_environment_ready(places: Places, kind: str) -> bool:
    """Was the environment made from the current lock files, and does its Python run?"""
    stamp = _stamp(places, kind)
    return stamp.is_file() and stamp.read_text() == _lock_checksum(places, kind) and _runs(places.python, "")


def make_environment(places: Places, kind: str, environment: Mapping[str, str]) -> None:
    """Create .venv, or update it to its lock."""
    stamps = [stamp for stamp in {_stamp(places, each) for each in LOCKS} if stamp.is_file()]
    for stamp in stamps:
        stamp.unlink()
    if stamps and _runs(places.python, "import pip"):
        say("Bringing the Python environment in .venv up to its lock ...")
    else:
        # nothing is kept of one that was never finished: installers take a package of which a part exists for whole
        python = find_python(environment)
        say(f"Making the Python environment in .venv with {python} (once, a minute or two) ...")
        if places.venv.is_symlink():
            places.venv.unlink()
        elif places.venv.exists():
            shutil.rmtree(places.venv)
        places.venv.mkdir()
        run_logged([python, "-m", "venv", places.venv], places.cache / "venv.log", "python -m venv failed", environment)
    spark, others = _locked_packages(places, kind)
    installer = _installer(places, environment)
    with ThreadPoolExecutor() as pool:
        building = pool.submit(installer.install, places, "spark", spark)
        installer.install(places, "packages", others)
        making = pool.submit(_make_missing, places, _python_environment(places, environment))
        building.result()
        for made in (RUN, kind):
            _stamp(places, made).write_text(_lock_checksum(places, made))
        making.result()


def _locked_packages(places: Places, kind: str) -> tuple[list[str], list[str]]:
    """The packages of the lock files, each with its hashes: Spark's, and all others."""
    text = "".join((places.root / name).read_text("utf-8") for name in LOCKS[kind])
    packages = re.findall(r"^\w.*(?:(?<=\\)\n.*)*\n", text, re.MULTILINE)
    spark = [package for package in packages if package.split("==")[0] in SPARK_PACKAGES]
    return spark, [package for package in packages if package not in spark]


@dataclass(frozen=True)
class Installer:
    """The command that installs packages of a lock file: uv, or pip."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def install(self, places: Places, name: str, packages: Sequence[str]) -> None:
        """Install packages, each file by its hash; the lock names all that they depend on. Modules that are used are
        compiled when they are first imported."""
        lock, log = places.cache / f"{name}.txt", places.cache / f"install-{name}.log"
        lock.write_text("".join(packages), "utf-8")
        command: list[str | Path] = [*self.command, "--no-deps", "--require-hashes", "-r", lock]
        run_logged(
            command,
            log,
            "the packages could not be installed: start again when the network, or a proxy, gives them",
            self.environment,
        )


def _installer(places: Places, environment: Mapping[str, str]) -> Installer:
    """uv, installed by pip, with pip's settings; pip itself where uv does not exist for this machine."""
    pip = (places.python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile")
    by_pip = Installer(pip, environment)
    try:
        by_pip.install(places, "uv", [(places.root / UV_LOCK).read_text("utf-8")])
    except BootstrapError:
        say("uv could not be installed: pip installs the others, too")
        return by_pip
    # a lock file says which versions, so only an unreachable place matters; the last setting of a name is pip's choice
    listed = re.findall(r"\.([\w-]+)='(.*)'$", _printed([*pip[:3], "config", "list"], environment) or "", re.MULTILINE)
    settings = {UV_NAMES[name]: value for name, value in reversed(listed) if name in UV_NAMES}
    if not os.access(environment.get("HOME", ""), os.W_OK):
        settings["UV_NO_CACHE"] = "1"
    command = (str(places.venv / "bin" / "uv"), "pip", "install", "--python", places.python)
    # Spark's package is unpacked as soon as it is built: compressing it takes most of the time
    building = (
        "--build-constraints",
        str(places.root / BUILD_LOCK),
        "--config-setting=--build-option=--compression=stored",
    )
    return Installer((*command, *building), {**environment, **settings})


def _stamp(places: Places, kind: str) -> Path:
    return places.venv / f".locked-{kind}"


def _lock_checksum(places: Places, kind: str) -> str:
    return checksum(places.root / name for name in LOCKS[kind])


def _runs(python: str, code: str) -> bool:
    return _printed([python, "-c", code]) is not None


def _printed(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Output of a command; None where it fails or does not exist."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        done = subprocess.run(command, stdout=pipe, stderr=null, env=environment, errors="replace", check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def find_python(environment: Mapping[str, str]) -> str:
    """A Python that can create the environment: one that the locks have packages for, with venv and pip."""
    own = environment.get("GROUPLEDGER_PYTHON")
    for candidate in (own,) if own else PYTHONS:
        found = shutil.which(candidate, path=environment.get("PATH"))
        if found and _runs(found, "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"):
            return found
    if own:
        raise BootstrapError(WRONG, f"GROUPLEDGER_PYTHON={own} is not a {PYTHON_KNOWN}: correct it, or unset it")
    raise BootstrapError(WRONG, f"no {PYTHON_KNOWN}: {INSTALL_PYTHON}")


@dataclass(frozen=True)
class Java:
    """The Java that runs Spark."""

    path: str
    modules: str
    """Output of `java --list-modules`: a line NAME@VERSION for each module."""

    @property
    def version(self) -> int:
        """The major version; 8 and older cannot list modules."""
        found = re.search(r"^java\.base@(\d+)", self.modules, re.MULTILINE)
        return int(found[1]) if found else 8


def find_java(environment: Mapping[str, str]) -> Java:
    """Java 17 or newer, with the incubator's vector module, which Spark 4.2 loads.

    Raises BootstrapError if there is none.
    """
    home = environment.get("JAVA_HOME")
    path = shutil.which(f"{home}/bin/java") if home else shutil.which("java", path=environment.get("PATH"))
    if path is None:
        lacking = f"JAVA_HOME={home} has no bin/java" if home else "no Java"
        raise BootstrapError(WRONG, f"{lacking}: {INSTALL_JAVA}")
    asking = [path, "--list-modules"]
    try:
        listed = subprocess.run(asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError as error:
        raise BootstrapError(WRONG, f"{path} cannot be run ({error.strerror}): {INSTALL_JAVA}") from None
    java = Java(path, listed.stdout)
    if java.version < JAVA_MIN:
        raise BootstrapError(WRONG, f"{path} is older than Java {JAVA_MIN}: {INSTALL_JAVA}")
    if "jdk.incubator.vector" not in java.modules:
        lacking = f"{path} lacks the module jdk.incubator.vector, as cut-down runtimes do"
        raise BootstrapError(WRONG, f"{lacking}: {INSTALL_JAVA}")
    return java


def have_jars(places: Places) -> bool:
    """Do Delta's jars exist in the version of this release?"""
    return all((places.jars / Path(path).name).is_file() for path in places.delta_jars)


def fetch_jars(places: Places, environment: Mapping[str, str]) -> None:
    """Fetch Delta's jars from Maven Central, or from the mirror in DEFAULT_ARTIFACT_REPOSITORY, as Spark calls it."""
    # later starts do not wait for these
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415

    say("Fetching Delta's jars (once) ...")
    repository = environment.get("DEFAULT_ARTIFACT_REPOSITORY") or MAVEN_CENTRAL
    # the folder appears with all jars or not at all
    made = places.jars.with_name("part-jars")
    for old in (made, places.jars):
        shutil.rmtree(old, ignore_errors=True)
    made.mkdir()
    for path, digest in places.delta_jars.items():
        url = f"{repository.rstrip('/')}/{path}"
        try:
            with urlopen(url, timeout=NETWORK_TIMEOUT_S) as response:
                jar = response.read()
        except (OSError, HTTPException, ValueError) as error:
            raise BootstrapError(
                FAILED,
                f"{url} could not be fetched ({error}): start again when the network, https_proxy or the mirror in "
                "DEFAULT_ARTIFACT_REPOSITORY gives it",
            ) from None
        if hashlib.sha256(jar).hexdigest() != digest:
            raise BootstrapError(
                FAILED,
                f"{url} gave another file than conf/jars.sha256 names: start again, or name another mirror in "
                "DEFAULT_ARTIFACT_REPOSITORY",
            )
        (made / Path(path).name).write_bytes(jar)
    made.rename(places.jars)


def have_kernels(places: Places) -> bool:
    """Are the kernels of this version of the code compiled?"""
    return (places.kernels / ".compiled").is_file()


def compile_kernels(places: Places, environment: Mapping[str, str]) -> None:
    """Let numba compile the kernels, so that no job waits for it."""
    say("Compiling the kernels (once, half a minute) ...")
    for old in (places.kernels.parent, places.cache / "classes"):  # the latter is from releases before this file
        shutil.rmtree(old, ignore_errors=True)
    places.kernels.mkdir(parents=True)
    compiling = [places.python, "-m", f"{places.package}jobs.operations.compile_kernels"]
    log = places.cache / "compile.log"
    run_logged(compiling, log, "the kernels could not be compiled", environment, places.imports)
    (places.kernels / ".compiled").touch()


def set_up(places: Places, environment: Mapping[str, str]) -> None:
    """Fetch the jars and compile the kernels, where they are missing."""
    if not (have_jars(places) and have_kernels(places)):
        with locked(places.cache):
            _make_missing(places, environment)


def _make_missing(places: Places, environment: Mapping[str, str]) -> None:
    steps = ((have_jars, fetch_jars), (have_kernels, compile_kernels))
    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(make, places, environment) for is_done, make in steps if not is_done(places)]:
            future.result()


def packed(places: Places, environment: Mapping[str, str]) -> str:
    """Archives with everything that machines of a cluster need besides Spark; Spark unpacks them in each worker's
    folder.

    The packages are packed once per lock, the code with its compiled kernels once per version of the code.
    """
    if places.is_installed:
        raise BootstrapError(
            WRONG,
            "a cluster is served from a checkout: install the project from its repository, "
            "or put a checkout on the cluster's machines and name it in --home",
        )
    folder = places.cache / "packed"
    packages = folder / f"environment-{_lock_checksum(places, RUN)}.tar.gz"
    code = folder / f"code-{checksum(files_below(places.root, PACKED_FOLDERS))}.tar.gz"
    if not (packages.is_file() and code.is_file()):
        with locked(places.cache):
            if not (packages.is_file() and code.is_file()):
                say("Packing what the cluster's machines need (once a version, a minute) ...")
                packing = (places.python, "-m", "jobs.spark.cluster_archives", packages, code)
                log = places.cache / "pack.log"
                run_logged(packing, log, "the environment could not be packed", environment, places.root)
    return f"{packages}#environment,{code}#groupledger"


def ready_environment(places: Places, kind: str, environment: Mapping[str, str]) -> None:
    """Make the environment of a checkout, once per lock."""
    if not is_environment_ready(places, kind):
        with locked(places.cache):
            if not is_environment_ready(places, kind):
                make_environment(places, kind, environment)


def job_environment(places: Places, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of set-up and jobs, without those of another Spark on this machine."""
    own = {name: value for name, value in environment.items() if name != "SPARK_CONF_DIR"}
    return _python_environment(places, own) | {"SPARK_HOME": str(places.spark_home)}


def _python_environment(places: Places, environment: Mapping[str, str]) -> dict[str, str]:
    before = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{places.imports}:{before}" if before else str(places.imports),
        "NUMBA_CACHE_DIR": str(places.kernels),
        "PYTHONHASHSEED": "0",
    }
