"""Set up what jobs need, once, and start one: spark-submit.sh runs this file with any Python from 3.11.

Only the standard library, and nothing of this project: it runs before the environment exists, in a checkout as in a
wheel. It makes what is missing (a Python environment in .venv; Delta's jars and compiled kernels in .cache) and runs
the job under the real spark-submit. The job's words reach it unchanged, and its exit code comes back: 0 done,
1 failed, 2 wrong arguments or something that must be installed first, 3 done but something was quarantined or is
missing.

Spark's options come before the job's name. Two of them belong to this file: --dry-run prints what would be submitted;
--home PATH names the folder in which the machines of a cluster have this project (in an image, on a shared disk).
Without it they are sent the environment and the code.

The job is the parent of spark-submit, as in the pyspark shell (PYSPARK_SUBMIT_ARGS): spark-submit itself would give it
no standard input and write its stderr to its stdout. Only --deploy-mode cluster runs spark-submit directly.
"""

import sys


def _show_error(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Ctrl-C while modules are loaded is one line, too."""
    if kind is KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
    else:
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    sys.excepthook = _show_error

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

FAILED: Final = 1
WRONG: Final = 2
"""Wrong arguments, or something that must be installed first."""
INTERRUPTED: Final = 130
PARSED: Final = 64
"""Exit code of a job that only reads its arguments (GROUPLEDGER_PARSE_ONLY), where they are right."""

SET_UP: Final = "--set-up"
RUN: Final = "run"
DEV: Final = "dev"
LOCKS: Final = {RUN: ("requirements.txt",), DEV: ("requirements.txt", "requirements-dev.txt")}
"""The lock files of an environment for jobs, and of one for tests too; the last one names the others."""
ANSWERED_BY_THE_JOB: Final = frozenset({"-h", "--help", "--version"})
WITHOUT_VALUE: Final = frozenset({"--verbose", "-v", "--supervise"})
"""Spark's options that take no value."""
PYTHONS: Final = ("python3.11", "python3.12", "python3.13", "python3", "python")
KERNEL_PACKAGES: Final = ("coordinator_core", "jobs/delta/parquet")
"""numba checks the file of a kernel, not the files of what it calls: all of them are the key of what it compiled."""
PACKED_FOLDERS: Final = ("schemas", "coordinator_core", "jobs", "conf")
LOG_LINES_SHOWN: Final = 15
JAVA_MIN: Final = 17
JAVA_RENEWS_ARCHIVE: Final = 19
"""From this version a JVM makes its archive of loaded classes where there is none that fits."""
INSTALL_JAVA: Final = (
    "install a full JDK 17 (Debian, Ubuntu: apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17), "
    "and set JAVA_HOME if it is not the java on the PATH"
)
INSTALL_PYTHON: Final = (
    "install one (Debian, Ubuntu: apt install python3.11-venv; macOS: brew install python@3.11), "
    "or name it in GROUPLEDGER_PYTHON"
)


class BootstrapError(Exception):
    """One line for the user: what is wrong and what to do. With the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def say(text: str) -> None:
    """A line on stderr: stdout belongs to the job."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Places:
    """The folders of a checkout, or of an installed wheel."""

    root: Path
    """Has this file, conf/ and the folders of code."""
    cache: Path
    """Where what is made once is kept."""
    python: str
    """Runs the jobs."""
    is_installed: bool
    """A wheel has the folders inside its one package, `groupledger`, and uses the environment that it is in."""

    @property
    def imports(self) -> Path:
        """The folder from which the code is imported."""
        return self.root.parent if self.is_installed else self.root

    @property
    def package(self) -> str:
        """The prefix of `jobs` in the names of modules."""
        return f"{self.root.name}." if self.is_installed else ""

    @property
    def venv(self) -> Path:
        """The environment of a checkout."""
        return self.root / ".venv"

    @property
    def jars(self) -> Path:
        """Delta's jars."""
        return self.cache / "jars"

    @property
    def defaults(self) -> Path:
        """Spark's settings."""
        return self.root / "conf" / "spark-defaults.conf"

    @property
    def entry(self) -> Path:
        """What Spark runs, with a job and its options."""
        return self.root / "jobs" / "__main__.py"

    @cached_property
    def kernels(self) -> Path:
        """What numba compiled of this version of the code."""
        return self.cache / "numba" / checksum(files_below(self.root, KERNEL_PACKAGES, "*.py"))

    @cached_property
    def spark_home(self) -> Path:
        """Spark, as the environment has it."""
        if not self.is_installed:
            return next(self.venv.glob("lib/python3.*/site-packages/pyspark"), self.venv / "pyspark")
        code = 'from importlib.util import find_spec; print(find_spec("pyspark").submodule_search_locations[0])'
        found = _printed([self.python, "-c", code])
        if found is None:
            raise BootstrapError(FAILED, f"{self.python} has no pyspark: install groupledger again with pip")
        return Path(found.strip())


def find_places(root: Path, environment: Mapping[str, str]) -> Places:
    """The folders of the project in `root`. Raises BootstrapError for a wheel that is not started by its command."""
    own_cache = environment.get("GROUPLEDGER_CACHE")
    if not (root / "__init__.py").is_file():
        return Places(root, Path(own_cache or root / ".cache").absolute(), str(root / ".venv/bin/python"), False)
    if not (python := environment.get("GROUPLEDGER_PYTHON")):
        raise BootstrapError(WRONG, "GROUPLEDGER_PYTHON is not set: start jobs with the command groupledger")
    user_cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or '/nonexistent'}/.cache"
    return Places(root, Path(own_cache or f"{user_cache}/groupledger").absolute(), python, True)


def files_below(root: Path, folders: Iterable[str], pattern: str = "*") -> list[Path]:
    """Files of the code in one order on all machines, without what Python compiled."""
    found = (path for folder in folders for path in (root / folder).rglob(pattern))
    return sorted(path for path in found if path.suffix != ".pyc" and path.is_file())


def checksum(files: Iterable[Path]) -> str:
    """A name for the contents of files."""
    crc, size = 0, 0
    for path in files:
        data = path.read_bytes()
        crc, size = zlib.crc32(data, crc), size + len(data)
    return f"{crc:08x}-{size}"


def run_logged(
    command: Sequence[str | Path], log: Path, failure: str, environment: Mapping[str, str], cwd: Path | None = None
) -> None:
    """Run a command with its output in a file. Raises BootstrapError, after the last lines of the file, if it fails."""
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
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        say("\n".join(lines[-LOG_LINES_SHOWN:]))
        raise BootstrapError(FAILED, f"{failure}; its whole output is in {log}")


_locks: list[int] = []
"""Locks of this process. Its commands hold them too: if it is killed, nobody else sets up what they still write."""


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """One set-up at a time; who waited finds the work done."""
    lock = None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / "set-up.lock", os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _locks.append(lock)
        yield
    except OSError as error:
        raise BootstrapError(
            FAILED,
            f"{error.filename or cache} cannot be written ({error.strerror}): set-up keeps in {cache} what it fetches "
            "and compiles; make room for it, or name another folder in GROUPLEDGER_CACHE",
        ) from None
    finally:
        _locks.clear()
        if lock is not None:
            os.close(lock)


def is_environment_ready(places: Places, kind: str) -> bool:
    """Was the environment made from these lock files, and does its Python run?"""
    stamp = _stamp(places, kind)
    return stamp.is_file() and stamp.read_text() == _lock_checksum(places, kind) and _runs(places.python, "")


def make_environment(places: Places, kind: str, environment: Mapping[str, str]) -> None:
    """Make .venv, or bring it up to its lock."""
    log = places.cache / "pip.log"
    if _runs(places.python, "import pip"):
        say("Bringing the Python environment in .venv up to its lock ...")
    else:
        python = find_python(environment)
        say(f"Making the Python environment in .venv with {python} (once, a minute or two) ...")
        if places.venv.is_symlink():
            places.venv.unlink()
        shutil.rmtree(places.venv, ignore_errors=True)
        run_logged([python, "-m", "venv", places.venv], log, "python -m venv failed", environment)
    lock = places.root / LOCKS[kind][-1]
    if not _installed_by_uv(places, lock, log, environment):
        install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r"]
        run_logged(
            [places.python, *install, lock], log, "pip could not install the packages (network? proxy?)", environment
        )
    for made in (RUN, kind):
        _stamp(places, made).write_text(_lock_checksum(places, made))


def _installed_by_uv(places: Places, lock: Path, log: Path, environment: Mapping[str, str]) -> bool:
    """Did uv install the packages? It ignores pip's settings (a mirror, a proxy): where pip has some, pip installs."""
    uv = shutil.which("uv", path=environment.get("PATH"))
    if uv is None:
        return False
    settings = _printed([places.python, "-m", "pip", "config", "list"], environment)
    if settings is None or settings.strip():
        return False
    try:
        run_logged([uv, "pip", "install", "--python", places.python, "-r", lock], log, "uv failed", environment)
    except BootstrapError as error:
        say(f"{error}; pip tries it")
        return False
    return True


def _stamp(places: Places, kind: str) -> Path:
    return places.venv / f".locked-{kind}"


def _lock_checksum(places: Places, kind: str) -> str:
    return checksum(places.root / name for name in LOCKS[kind])


def _runs(python: str, code: str) -> bool:
    return _printed([python, "-c", code]) is not None


def _printed(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """What a command prints; None where it fails, or cannot be run."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        done = subprocess.run(command, stdout=pipe, stderr=null, env=environment, errors="replace", check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def find_python(environment: Mapping[str, str]) -> str:
    """A Python that can make the environment: 3.11 or newer, with venv and pip."""
    own = environment.get("GROUPLEDGER_PYTHON")
    for candidate in (own,) if own else PYTHONS:
        found = shutil.which(candidate, path=environment.get("PATH"))
        if found and _runs(found, "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"):
            return found
    if own:
        raise BootstrapError(
            WRONG, f"GROUPLEDGER_PYTHON={own} is not a Python 3.11 or newer with venv: correct it, or unset it"
        )
    raise BootstrapError(WRONG, f"no Python 3.11 or newer with venv: {INSTALL_PYTHON}")


@dataclass(frozen=True)
class Java:
    """The Java that runs Spark."""

    path: str
    modules: str
    """What `java --list-modules` prints: NAME@VERSION in each line."""

    @property
    def version(self) -> int:
        """Its major version; 8 and older do not list their modules."""
        found = re.search(r"^java\.base@(\d+)", self.modules, re.MULTILINE)
        return int(found[1]) if found else 8


def find_java(environment: Mapping[str, str]) -> Java:
    """Java 17 or newer, with the incubator's vector module, which Spark 4.2 loads. Else raises BootstrapError."""
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


def delta_version(places: Places) -> str:
    """The version of Delta's jars in Spark's settings."""
    found = re.search(r"^spark\.jars\.packages\s.*:([^:\s]+)\s*$", places.defaults.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise BootstrapError(FAILED, f"{places.defaults} lacks spark.jars.packages GROUP:NAME:VERSION: restore it")
    return found[1]


def have_jars(places: Places) -> bool:
    """Are Delta's jars there, in the version of the settings?"""
    return any(places.jars.glob(f"io.delta_*-{delta_version(places)}.jar"))


def fetch_jars(places: Places, environment: Mapping[str, str]) -> None:
    """Let Spark resolve Delta's jars from Maven, and keep them: later starts neither ask nor wait for it."""
    say("Fetching Delta's jars (once) ...")
    log, version = places.cache / "ivy.log", delta_version(places)
    # an empty Python file as the application: all that Spark does is to resolve the packages of spark-defaults.conf
    submit = (places.spark_home / "bin" / "spark-submit", "--properties-file", places.defaults)
    own_python = {"PYSPARK_PYTHON": places.python, "PYSPARK_DRIVER_PYTHON": places.python}
    run_logged(
        (*submit, places.root / "jobs" / "__init__.py"),
        log,
        "Delta's jars could not be fetched from Maven (network? proxy?)",
        {**environment, **own_python},
    )
    folder = re.search(r"^The jars for the packages stored in: (.*)$", log.read_text("utf-8", "replace"), re.MULTILINE)
    found = sorted(Path(folder[1]).glob(f"io.delta_*-{version}.jar")) if folder else []
    if not found:
        raise BootstrapError(FAILED, f"Maven gave no jars of Delta {version}; its whole output is in {log}")
    # a folder of all the jars, or none
    made = places.jars.with_name("part-jars")
    for old in (made, places.jars):
        shutil.rmtree(old, ignore_errors=True)
    made.mkdir()
    for jar in found:
        shutil.copy(jar, made)
    made.rename(places.jars)


def have_kernels(places: Places) -> bool:
    """Did numba compile the kernels of this version of the code?"""
    return (places.kernels / ".compiled").is_file()


def compile_kernels(places: Places, environment: Mapping[str, str]) -> None:
    """Let numba compile the kernels, so that no job waits for it."""
    say("Compiling the kernels (once, half a minute) ...")
    for old in (places.kernels.parent, places.cache / "classes"):  # the latter is of releases before this file
        shutil.rmtree(old, ignore_errors=True)
    places.kernels.mkdir(parents=True)
    compiling = [places.python, "-m", f"{places.package}jobs.operations.compile_kernels"]
    log = places.cache / "compile.log"
    run_logged(compiling, log, "the kernels could not be compiled", environment, places.imports)
    (places.kernels / ".compiled").touch()


def set_up(places: Places, environment: Mapping[str, str]) -> None:
    """Fetch the jars and compile the kernels, both at a time, where they are missing."""
    steps = ((have_jars, fetch_jars), (have_kernels, compile_kernels))
    if not all(is_done(places) for is_done, _ in steps):
        with locked(places.cache), ThreadPoolExecutor() as pool:
            for future in [pool.submit(make, places, environment) for is_done, make in steps if not is_done(places)]:
                future.result()


@dataclass
class SparkOptions:
    """The options before the job's name, and where they put driver and executors."""

    words: list[str] = field(default_factory=list)
    master: str = ""
    deploy_mode: str = "client"
    home: str = ""
    """The project's folder on the machines of a cluster."""
    is_dry_run: bool = False

    @property
    def is_local(self) -> bool:
        """Do Python workers run on the driver's machine?"""
        return self.master in ("", "local") or self.master.startswith("local[")

    def add(self, option: str, value: str, given: Iterable[str]) -> None:
        """An option with its value, as it was given: in one word or two."""
        if option == "--home":
            self.home = value.removesuffix("/")
        elif option == "--properties-file":
            self._add_properties(Path(value))
        else:
            self.words.extend(given)
            self._note(option, value)

    def _add_properties(self, path: Path) -> None:
        """A properties file of the user adds to ours, where spark-submit would take the last one alone."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise BootstrapError(WRONG, f"--properties-file {path} cannot be read: {reason}") from None
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            pair = re.fullmatch(r"([^\s=:]+)(?:\s*[=:]\s*|\s+)(.*\S)", line.strip())
            if pair is None:
                raise BootstrapError(WRONG, f"--properties-file {path}, line {number}: not NAME VALUE: {line}")
            setting = f"{pair[1]}={pair[2]}"
            self.add("--conf", setting, ("--conf", setting))

    def _note(self, option: str, value: str) -> None:
        name, _, setting = value.partition("=") if option == "--conf" else (option, "", value)
        if name in ("--master", "spark.master"):
            self.master = setting
        elif name in ("--deploy-mode", "spark.submit.deployMode"):
            self.deploy_mode = setting


def split_words(words: Sequence[str]) -> tuple[SparkOptions, list[str]]:
    """Spark's options, and the job with its own."""
    options, rest = SparkOptions(), list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ANSWERED_BY_THE_JOB | {SET_UP}:
        word = rest.pop(0)
        if word == "--dry-run":
            options.is_dry_run = True
        elif word in WITHOUT_VALUE:
            options.words.append(word)
        elif word.startswith("--") and "=" in word:
            option, _, value = word.partition("=")
            options.add(option, value, (word,))
        elif rest:
            value = rest.pop(0)
            options.add(word, value, (word, value))
        else:
            raise BootstrapError(WRONG, f"Spark's option {word} needs a value")
    return options, rest


@dataclass(frozen=True)
class Submission:
    """What spark-submit is started with."""

    words: list[str]
    application: str
    environment: dict[str, str]

    def command(self, places: Places, job: Sequence[str]) -> list[str]:
        """The words of spark-submit itself."""
        return [str(places.spark_home / "bin" / "spark-submit"), *self.words, self.application, *job]

    def printed(self, places: Places, job: Sequence[str]) -> str:
        """The same for people: an option a line, as a shell reads it."""
        names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        lines = [" ".join(f"{name}={shlex.quote(self.environment[name])}" for name in names)]
        lines.append(shlex.quote(self.command(places, job)[0]))
        for word in self.command(places, job)[1:]:
            if word.startswith("--") or word == self.application:
                lines.append("   ")
            lines[-1] += f" {shlex.quote(word)}"
        return " \\\n".join(lines)


def submission(
    places: Places, options: SparkOptions, job: Sequence[str], base: Mapping[str, str], java: Java
) -> Submission:
    """What Spark is given for a job: our settings first, the user's last, so that they win."""
    is_cluster_mode = options.deploy_mode == "cluster"
    python, driver_python, application, jars = places.python, places.python, str(places.entry), str(places.jars)
    settings: list[str] = []
    ahead: dict[str, str] = {}
    if options.home:
        python = f"{options.home}/.venv/bin/python"
        settings += [
            *("--conf", f"spark.executorEnv.PYTHONPATH={options.home}"),
            *("--conf", f"spark.executorEnv.NUMBA_CACHE_DIR={options.home}/.cache/numba/{places.kernels.name}"),
        ]
        if is_cluster_mode:
            driver_python, application = python, f"local://{options.home}/jobs/__main__.py"
            jars = f"local://{options.home}/.cache/jars"
            settings += ["--conf", f"spark.pyspark.python={python}"]
    elif not options.is_local:
        python = "./environment/bin/python"
        settings += ["--archives", packed(places, base)]
        settings += _cluster_variables("spark.executorEnv.")
        if is_cluster_mode:
            driver_python = python
            settings += ["--conf", f"spark.pyspark.python={python}"]
            settings += _cluster_variables("spark.yarn.appMasterEnv.")
            settings += _cluster_variables("spark.kubernetes.driverEnv.")
    else:
        # Python workers run on the driver's machine: their parent process may start before Spark is up
        ahead = {"GROUPLEDGER_WORKERS_AHEAD": "true"}
    # queries run for longer than a night's JVM does: they get the compiler that takes its time
    thorough = ["--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC"] if job[:1] == ["sql"] else []
    # where the driver runs in the cluster, the JVM here only hands it over
    jvm = [logging_option(places), *([] if is_cluster_mode else class_archive_options(places, java, base))]
    words = [
        *("--properties-file", str(places.defaults)),
        *thorough,
        *("--conf", "spark.jars.packages=", "--conf", "spark.jars.excludes="),
        *("--jars", ",".join(f"{jars}/{jar.name}" for jar in sorted(places.jars.glob("*.jar")))),
        *settings,
        *options.words,
    ]
    environment = {
        **base,
        **ahead,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": driver_python,
        "SPARK_SUBMIT_OPTS": f"{base.get('SPARK_SUBMIT_OPTS', '')} {shlex.join(jvm)}".strip(),
    }
    return Submission(words, application, environment)


def _cluster_variables(prefix: str) -> list[str]:
    """Where the machines of a cluster find the code, and its kernels, in the archive that they were sent."""
    return [
        *("--conf", f"{prefix}PYTHONPATH=./groupledger"),
        *("--conf", f"{prefix}NUMBA_CACHE_LOCATOR_CLASSES=InTreeCacheLocator"),
    ]


def logging_option(places: Places) -> str:
    """How a JVM logs. log4j reads a URL: a space in a path would end it."""
    return f"-Dlog4j2.configurationFile={(places.root / 'conf' / 'log4j2.properties').as_uri()}"


def class_archive_options(places: Places, java: Java, environment: Mapping[str, str]) -> list[str]:
    """Where the driver's JVM keeps Spark's classes as it has read and verified them.

    The first JVM writes that archive at its end, after its job; later ones map it and start with half the work. It
    fits one Java and one Spark. Without one that JVM works as well.
    """
    # for the JVM a colon separates two archives
    if not os.access(places.cache, os.W_OK) or ":" in str(places.cache):
        return []
    jars = sorted(path.name for path in (places.spark_home / "jars").glob("*.jar"))
    made_for = "\n".join((java.path, java.modules, str(places.spark_home), *jars))
    archive = places.cache / f"classes-{zlib.crc32(os.fsencode(made_for)):08x}.jsa"
    use = f"-XX:SharedArchiveFile={archive}"
    if java.version >= JAVA_RENEWS_ARCHIVE:
        options = ["-XX:+AutoCreateSharedArchive", use]
    elif _is_whole(archive):
        options = [use]
    else:
        options = [f"-XX:ArchiveClassesAtExit={archive}"] if _can_archive_classes(places, java, environment) else []
    for other in places.cache.glob("classes-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)
    # the JVM writes to the job's stdout which classes an archive cannot have, and which archive does not fit
    return [*options, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _can_archive_classes(places: Places, java: Java, environment: Mapping[str, str]) -> bool:
    """Does a JVM start at all that is to write an archive of its classes?

    Before Java 19 it ends at once where it has no archive of Java's own classes to add to: cut-down runtimes come
    without one, and options of the user's may turn it off (-Xshare:off) or name another one.
    """
    trial = places.cache / f"trial-{os.getpid()}.jsa"
    quiet = subprocess.DEVNULL
    try:
        own = shlex.split(environment.get("SPARK_SUBMIT_OPTS", ""))
        asking = [java.path, *own, f"-XX:ArchiveClassesAtExit={trial}", "-Xlog:disable", "-version"]
        return subprocess.run(asking, stdout=quiet, stderr=quiet, env=environment, check=False).returncode == 0
    except (OSError, ValueError):
        return False
    finally:
        trial.unlink(missing_ok=True)


def _is_whole(archive: Path) -> bool:
    """A JVM writes the first bytes of an archive last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def packed(places: Places, environment: Mapping[str, str]) -> str:
    """What machines of a cluster need besides Spark, as archives which Spark unpacks in each worker's folder.

    The packages are packed once a lock, the code with its compiled kernels once a version of the code.
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


def bootstrap(words: Sequence[str], root: Path, environment: Mapping[str, str]) -> int:
    """Set up what is missing and become the job; the exit code where there is none to run."""
    places = find_places(root, environment)
    if environment.get("_GROUPLEDGER_COMPLETE"):
        # the user pressed a key, and the shell asks what may follow: that waits for no set-up
        return become([places.python, str(places.entry)], environment) if os.access(places.python, os.X_OK) else FAILED
    if words[:1] == [SET_UP]:
        return only_set_up(places, words[1:], environment)
    options, job = split_words(words)
    if not places.is_installed:
        ready_environment(places, RUN, environment)
    own = job_environment(places, environment)
    code = parsed(places, job, own)
    if code != PARSED:
        return code
    java = find_java(environment)
    set_up(places, own)
    submit = submission(places, options, job, own, java)
    if options.is_dry_run:
        # paths may have bytes that are no text
        sys.stdout.buffer.write(os.fsencode(submit.printed(places, job)) + b"\n")
        return 0
    if options.deploy_mode == "cluster":
        return become(submit.command(places, job), submit.environment)
    arguments = {"PYSPARK_SUBMIT_ARGS": f"{shlex.join(submit.words)} pyspark-shell"}
    return become([places.python, str(places.entry), *job], {**submit.environment, **arguments})


def only_set_up(places: Places, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """For images (`--set-up run`) and the Makefile (`--set-up dev`, for tests too): all that jobs need, and no job."""
    kind = words[0] if words else RUN
    if len(words) > 1 or kind not in LOCKS:
        raise BootstrapError(WRONG, f"{SET_UP} takes run or dev, not: {shlex.join(words)}")
    find_java(environment)
    if not places.is_installed:
        ready_environment(places, kind, environment)
    set_up(places, job_environment(places, environment))
    return 0


def ready_environment(places: Places, kind: str, environment: Mapping[str, str]) -> None:
    """The environment of a checkout, made once a lock."""
    if not is_environment_ready(places, kind):
        with locked(places.cache):
            if not is_environment_ready(places, kind):
                make_environment(places, kind, environment)


def job_environment(places: Places, environment: Mapping[str, str]) -> dict[str, str]:
    """What set-up and jobs find in their environment. Another Spark on this machine has no say in it."""
    own = {name: value for name, value in environment.items() if name != "SPARK_CONF_DIR"}
    before = own.get("PYTHONPATH")
    return own | {
        "PYTHONPATH": f"{places.imports}:{before}" if before else str(places.imports),
        "NUMBA_CACHE_DIR": str(places.kernels),
        "PYTHONHASHSEED": "0",
        "SPARK_HOME": str(places.spark_home),
    }


def parsed(places: Places, job: Sequence[str], environment: Mapping[str, str]) -> int:
    """Let the job read its arguments alone: wrong ones and --help are answered before a JVM starts."""
    command = [places.python, str(places.entry), *job]
    code = subprocess.run(command, env={**environment, "GROUPLEDGER_PARSE_ONLY": "1"}, check=False).returncode
    return code if code >= 0 else 128 - code


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a command in the place of this process: signals and the exit code are its own."""
    sys.stdout.flush()
    os.execvpe(command[0], list(command), environment)


def main() -> int:
    """Exit code of spark-submit.sh."""
    try:
        return bootstrap(sys.argv[1:], Path(__file__).absolute().parent, dict(os.environ))
    except BootstrapError as error:
        say(f"error: {error}")
        return error.code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
