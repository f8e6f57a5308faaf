"""Set up what jobs need, once, and start one: spark-submit.sh runs this file with any Python from 3.11.

Uses only the standard library and set_up.py, since both run before the environment exists, in a checkout as in a wheel.
set_up.py creates what is missing (a Python environment in .venv; Delta's jars and compiled kernels in .cache), and this
file runs the job under the real spark-submit. The job's arguments are passed unchanged, and its exit code is returned:
0 done, 1 failed, 2 wrong arguments or something that must be installed first, 3 done but something was quarantined or
is missing.

Spark's options come before the job's name. Two options belong to this file: --dry-run prints what would be submitted;
--home PATH names the folder with this project on the machines of a cluster (in an image, on a shared disk). Without it
the environment and the code are sent to them.

The job is the parent process of spark-submit, as in the pyspark shell (PYSPARK_SUBMIT_ARGS): otherwise spark-submit
would give it no standard input and write its stderr to stdout. Only --deploy-mode cluster runs spark-submit directly.
"""

import sys


def _show_error(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Ctrl-C during imports prints one line, too."""
    if kind is KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
    else:
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    sys.excepthook = _show_error

import os
import re
import shlex
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

if __name__ == "__main__":
    # -I excludes this folder. It comes last, since a wheel has other modules in it, and none may shadow one of Python's
    sys.path.append(str(Path(__file__).absolute().parent))

from set_up import (
    FAILED,
    LOCKS,
    RUN,
    WRONG,
    BootstrapError,
    Java,
    Places,
    find_java,
    find_places,
    job_environment,
    packed,
    ready_environment,
    say,
    set_up,
)

INTERRUPTED: Final = 130
PARSED: Final = 64
"""Exit code of a job that only parses its arguments (GROUPLEDGER_PARSE_ONLY), if they are valid."""

SET_UP: Final = "--set-up"
ANSWERED_BY_THE_JOB: Final = frozenset({"-h", "--help", "--version"})
WITHOUT_VALUE: Final = frozenset({"--verbose", "-v", "--supervise"})
"""Spark's options that take no value."""
JAVA_RENEWS_ARCHIVE: Final = 19
"""From this version on, a JVM creates its class archive (CDS) itself if none fits."""
JAVA_OPTIONS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Environment variables with options for the JVM."""


@dataclass
class SparkOptions:
    """The options before the job's name, and where they place driver and executors."""

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
        """Add an option with its value; `given`: as one or two arguments."""
        if option == "--home":
            self.home = value.removesuffix("/")
        elif option == "--properties-file":
            self._add_properties(Path(value))
        else:
            self.words.extend(given)
            self._note(option, value)

    def _add_properties(self, path: Path) -> None:
        """Merge the user's properties file with ours, since spark-submit would use only the last one."""
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
    """How spark-submit is started."""

    words: list[str]
    application: str
    environment: dict[str, str]

    def command(self, places: Places, job: Sequence[str]) -> list[str]:
        """The command line of spark-submit itself."""
        return [str(places.spark_home / "bin" / "spark-submit"), *self.words, self.application, *job]

    def printed(self, places: Places, job: Sequence[str]) -> str:
        """The command line for people: one option per line, quoted for a shell."""
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
    """The submission of a job: our settings first, the user's last, so that they take precedence."""
    is_cluster_mode = options.deploy_mode == "cluster"
    python, driver_python, application, jars = places.python, places.python, str(places.entry), str(places.jars)
    settings: list[str] = []
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
    # queries run longer than a night's JVM: they keep the optimizing JIT compiler
    thorough = ["--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC"] if job[:1] == ["sql"] else []
    # if the driver runs in the cluster, the JVM here only submits it
    jvm = [logging_option(places), *([] if is_cluster_mode else class_archive_options(places, java, base))]
    words = [
        *("--properties-file", str(places.defaults)),
        *thorough,
        *("--jars", ",".join(f"{jars}/{jar.name}" for jar in sorted(places.jars.glob("*.jar")))),
        *settings,
        *options.words,
    ]
    environment = {
        **base,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": driver_python,
        "SPARK_SUBMIT_OPTS": f"{base.get('SPARK_SUBMIT_OPTS', '')} {shlex.join(jvm)}".strip(),
    }
    return Submission(words, application, environment)


def _cluster_variables(prefix: str) -> list[str]:
    """Environment variables for the code and kernels in the archive that the machines of a cluster get."""
    return [
        *("--conf", f"{prefix}PYTHONPATH=./groupledger"),
        *("--conf", f"{prefix}NUMBA_CACHE_LOCATOR_CLASSES=InTreeCacheLocator"),
    ]


def logging_option(places: Places) -> str:
    """The JVM's logging option. log4j expects a URL: a space in a path would end it."""
    return f"-Dlog4j2.configurationFile={(places.root / 'conf' / 'log4j2.properties').as_uri()}"


def class_archive_options(places: Places, java: Java, environment: Mapping[str, str]) -> list[str]:
    """JVM options for a class archive (CDS) with Spark's loaded and verified classes: the first JVM writes it when it
    ends, later ones map it and start with half the work. It fits one Java and one Spark.
    """
    of_the_user = " ".join(environment.get(name, "") for name in JAVA_OPTIONS)
    # for the JVM a colon separates two archives
    if not os.access(places.cache, os.W_OK) or ":" in str(places.cache) or re.search("Xshare|Archive", of_the_user):
        return []
    jars = sorted(path.name for path in (places.spark_home / "jars").glob("*.jar"))
    made_for = "\n".join((java.path, java.modules, str(places.spark_home), *jars))
    archive = places.cache / f"classes-{zlib.crc32(os.fsencode(made_for)):08x}.jsa"
    options = [f"-XX:SharedArchiveFile={archive}"]
    if java.version >= JAVA_RENEWS_ARCHIVE:
        options.append("-XX:+AutoCreateSharedArchive")
    elif not _is_whole(archive):
        # it extends the archive of Java's own classes: without one, as in minimal runtimes, the JVM would not start
        javas_own = Path(java.path).resolve().parents[1] / "lib" / "server" / "classes.jsa"
        options = [f"-XX:ArchiveClassesAtExit={archive}"] if javas_own.exists() else []
    for other in places.cache.glob("classes-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)
    # otherwise the JVM writes to the job's stdout which classes cannot be archived, and which archive does not fit
    return [*options, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _is_whole(archive: Path) -> bool:
    """Is the archive complete? A JVM writes its first bytes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def bootstrap(words: Sequence[str], root: Path, environment: Mapping[str, str]) -> int:
    """Set up what is missing and become the job. Returns an exit code where there is no job to run."""
    places = find_places(root, environment)
    if environment.get("_GROUPLEDGER_COMPLETE"):
        # shell completion waits for the answer, so no set-up
        return become([places.python, str(places.entry)], environment) if os.access(places.python, os.X_OK) else FAILED
    if words[:1] == [SET_UP]:
        return only_set_up(places, words[1:], environment)
    options, job = split_words(words)
    if not places.is_installed:
        if not (os.access(places.python, os.X_OK) or ANSWERED_BY_THE_JOB & {*job}):
            find_java(environment)  # not after minutes of set-up
        ready_environment(places, RUN, environment)
    own = job_environment(places, environment)
    code = parsed(places, job, own)
    if code != PARSED:
        return code
    java = find_java(environment)
    set_up(places, own)
    submit = submission(places, options, job, own, java)
    if options.is_dry_run:
        # paths may contain bytes that are not text
        sys.stdout.buffer.write(os.fsencode(submit.printed(places, job)) + b"\n")
        return 0
    if options.deploy_mode == "cluster":
        return become(submit.command(places, job), submit.environment)
    arguments = {"PYSPARK_SUBMIT_ARGS": f"{shlex.join(submit.words)} pyspark-shell"}
    return become([places.python, str(places.entry), *job], {**submit.environment, **arguments})


def only_set_up(places: Places, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Set up everything that jobs need, without a job: for images (`--set-up run`) and the Makefile (`--set-up dev`,
    also for tests).
    """
    kind = words[0] if words else RUN
    if len(words) > 1 or kind not in LOCKS:
        raise BootstrapError(WRONG, f"{SET_UP} takes run or dev, not: {shlex.join(words)}")
    find_java(environment)
    if not places.is_installed:
        ready_environment(places, kind, environment)
    set_up(places, job_environment(places, environment))
    return 0


def parsed(places: Places, job: Sequence[str], environment: Mapping[str, str]) -> int:
    """Let the job parse its arguments only: errors and --help are answered before a JVM starts."""
    command = [places.python, str(places.entry), *job]
    code = subprocess.run(command, env={**environment, "GROUPLEDGER_PARSE_ONLY": "1"}, check=False).returncode
    return code if code >= 0 else 128 - code


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a command, which gets its signals and determines the exit code."""
    if sys.stdout is not None:  # it may be closed
        sys.stdout.flush()
    os.execvpe(command[0], list(command), environment)


def main() -> int:
    """Returns the exit code of spark-submit.sh."""
    try:
        return bootstrap(sys.argv[1:], Path(__file__).absolute().parent, dict(os.environ))
    except BootstrapError as error:
        say("\n".join((*error.output, f"error: {error}")))
        return error.code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
