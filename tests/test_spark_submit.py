"""spark-submit.sh and bootstrap.py with a Python, a Java and a Spark that note what they get; once with real ones."""

import ast
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bootstrap
import set_up
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

TOOLS = ("bash", "env", "dirname", "readlink", "cat", "cp", "grep", "mkdir", "sleep", "touch")
"""The first four are the shell's, all are the fakes'."""

MEETING = """
meet() { # at what, whom: with FAKE_MEETING fails where the other is not running at the same time
    [[ ${FAKE_MEETING:-} == "$1" ]] || return 0
    for _ in {1..50}; do
        ! grep -qx "$2" "$FAKES/log" || return 0
        sleep 0.1
    done
    echo "alone"; exit 1
}
"""

INSTALLING = (
    MEETING
    + """
install_packages() {
    [[ "${*: -3}" == "--require-hashes -r "* ]] || { echo "any file would do"; exit 1; }
    mapfile -t packages < <(grep -o '^[^ ]*==[^ ]*' "${@: -1}")
    [[ $(grep -c 'hash=sha256:' "${@: -1}") == "${#packages[@]}" ]] || { echo "hashes are missing"; exit 1; }
    echo "$1 ${packages[*]}" >>"$FAKES/log"
    [[ ${packages[*]} != *pyspark* ]] || meet install compile
    sleep "${FAKE_INSTALL_SECONDS:-0}"
    echo "$1 says why"
    exit "${FAKE_INSTALL:-0}"
}
"""
)

FAKE_UV = (
    """#!/bin/bash
env -0 >"$FAKES/uv-environment"
"""
    + INSTALLING
    + """
install_packages uv "$@"
"""
)

FAKE_PYTHON = (
    """#!/bin/bash
# python, as far as spark-submit.sh and bootstrap.py know it; bootstrap.py itself is run by a true one
"""
    + INSTALLING
    + """
case "$1 $2" in
    "-I -S")
        exec "$REAL_PYTHON" "$@" ;;
    "-m venv")
        mkdir -p "$3/bin" "$3/lib/python3.11/site-packages/pyspark/bin"
        cp "$FAKES/python3.11" "$3/bin/python"
        cp "$FAKES/spark" "$3/lib/python3.11/site-packages/pyspark/bin/spark-submit" ;;
    "-c from importlib.util"*)
        mkdir -p "$FAKES/pyspark/bin"; cp "$FAKES/spark" "$FAKES/pyspark/bin/spark-submit"; echo "$FAKES/pyspark" ;;
    "-m pip")
        [[ $3 != config ]] || { printf '%s' "${FAKE_PIP_CONFIG:-}"; exit; }
        if [[ ${@: -1} == */uv.txt ]]; then
            cp "$FAKES/uv" "${0%/*}/uv"
            exit "${FAKE_UV:-0}"
        fi
        install_packages pip "$@" ;;
    "-m jobs.operations.compile_kernels" | "-m groupledger.jobs.operations.compile_kernels")
        echo compile >>"$FAKES/log"
        echo "numba says why"
        exit "${FAKE_COMPILE:-0}" ;;
    "-m jobs.spark.cluster_archives")
        echo pack >>"$FAKES/log"
        echo "the packer says why"
        [[ ${FAKE_PACK:-0} == 0 ]] || exit 1
        mkdir -p "${3%/*}"; touch "$3" "$4" ;;
    */jobs/__main__.py*)
        shift
        [[ -z ${_GROUPLEDGER_COMPLETE:-} ]] || { echo "may follow"; exit; }
        if [[ ${GROUPLEDGER_PARSE_ONLY:-} == 1 ]]; then
            printf '%s\\0' "$@" >"$FAKES/parsed"
            echo parse >>"$FAKES/log"
            exit "${FAKE_PARSE:-64}"
        fi
        echo job >>"$FAKES/log"
        printf '%s\\0' "$@" >"$FAKES/words"
        { env -0; printf 'CWD=%s\\0' "$PWD"; } >"$FAKES/environment"
        echo out; echo err >&2; cat >"$FAKES/stdin"
        exit "${FAKE_CODE:-0}" ;;
esac
"""
)

FAKE_SPARK = """#!/bin/bash
# spark-submit notes its words
printf '%s\\0' "$@" >"$FAKES/submitted"
exit "${FAKE_CODE:-0}"
"""

JAR = "io/delta/delta-spark/1/delta-spark-1.jar"

MODULES = "java.base@17.0.15\\njdk.incubator.vector@17.0.15\\n"


class Shell:
    """A copy of the project's shell, and all that it calls replaced."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "pro ject"
        self.fakes = folder / "fakes"
        self.tools = folder / "tools"
        for made in (self.root / "jobs", self.root / "conf", self.fakes, self.tools):
            made.mkdir(parents=True)
        for own in ("spark-submit.sh", "bootstrap.py", "set_up.py"):
            shutil.copy(PROJECT_ROOT / own, self.root)
        shutil.copy(PROJECT_ROOT / "conf" / "spark-defaults.conf", self.root / "conf")
        (self.root / "jobs" / "__init__.py").touch()
        for package in ("coordinator_core", "schemas"):
            (self.root / package).mkdir()
        (self.root / "coordinator_core" / "fast.py").write_text("a loop\n")
        self.lock("requirements.txt", "a==1", "pyspark==1")
        self.lock("requirements-dev.txt", "b==1")
        self.lock("requirements-uv.txt", "uv==1")
        self.maven = folder / "maven"
        (self.maven / JAR).parent.mkdir(parents=True)
        (self.maven / JAR).write_text("a jar")
        (self.root / "conf" / "jars.sha256").write_text(f"{hashlib.sha256(b'a jar').hexdigest()}  {JAR}\n")
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.tools / tool).symlink_to(found)
        self.script("python3.11", FAKE_PYTHON)
        self.script("uv", FAKE_UV)
        self.script("spark", FAKE_SPARK)
        self.script("java", f"#!/bin/bash\nprintf '{MODULES}'\n")
        self.environment = {
            "PATH": f"{self.fakes}:{self.tools}",
            "FAKES": str(self.fakes),
            "HOME": str(folder),
            "DEFAULT_ARTIFACT_REPOSITORY": self.maven.as_uri(),
            "REAL_PYTHON": sys.executable,
        }

    def lock(self, name: str, *packages: str) -> None:
        """A lock file."""
        lines = "".join(f"{package} \\\n    --hash=sha256:{'0' * 64}\n" for package in packages)
        (self.root / name).write_text(f"# locked\n{lines}")

    def script(self, name: str, text: str) -> None:
        """A command on the PATH."""
        path = self.fakes / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *words: str, command: Path | None = None, cwd: Path | None = None, **environment: str) -> Any:
        """Start it, and do not wait."""
        return subprocess.Popen(
            [str(command or self.root / "spark-submit.sh"), *words],
            env=self.environment | environment,
            cwd=cwd or self.fakes,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: str, **options: Any) -> tuple[int, str, str]:
        """Run it: exit code, stdout, stderr."""
        process = self.start(*words, **options)
        out, err = process.communicate("typed", timeout=60)
        return process.returncode, out, err

    def noted(self, name: str) -> list[str]:
        """What a fake noted: words, or lines of the log."""
        path = self.fakes / name
        if not path.exists():
            return []
        text = path.read_text()
        return text.splitlines() if name == "log" else text.split("\0")[:-1]

    def job_environment(self) -> dict[str, str]:
        """What the job found in its environment, and its current folder as CWD."""
        return dict(pair.split("=", 1) for pair in self.noted("environment"))

    def submit_words(self) -> list[str]:
        """What pyspark will start spark-submit with."""
        return shlex.split(self.job_environment()["PYSPARK_SUBMIT_ARGS"])

    def installed(self) -> Path:
        """The same in the layout of a wheel: inside the package groupledger. Gives the shell's path."""
        site = self.root.parent / "site packages"
        site.mkdir()
        shutil.move(self.root, site / "groupledger")
        (site / "groupledger" / "__init__.py").touch()
        self.environment |= {
            "GROUPLEDGER_PYTHON": str(self.fakes / "python3.11"),
            "GROUPLEDGER_ENTRY": "groupledger",
            "XDG_CACHE_HOME": str(self.root.parent / "cache"),
        }
        self.root = site
        return site / "groupledger" / "spark-submit.sh"


@pytest.fixture
def fresh(tmp_path: Path) -> Shell:
    """The shell with nothing set up."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def set_up_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which set-up has run."""
    shell = Shell(tmp_path_factory.mktemp("set-up"))
    assert shell("--set-up", "run")[0] == 0
    return shell.root


@pytest.fixture
def shell(fresh: Shell, set_up_once: Path) -> Shell:
    """The shell after its set-up."""
    for made in (".venv", ".cache"):
        shutil.copytree(set_up_once / made, fresh.root / made)
    return fresh


AWKWARD = ["a b", "", "*", "it's", 'say "x"', "$HOME", "`id`", "\\", "new\nline", "ü", "--", "-e", "--help me", "a=b;c"]


def test_words_reach_the_job_unchanged(shell: Shell) -> None:
    """Spaces, quotes, globs, empty words: as they were given, for the check and for the job."""
    code, _, _ = shell("sql", *AWKWARD)
    assert code == 0
    assert shell.noted("words") == ["sql", *AWKWARD]
    assert shell.noted("parsed") == ["sql", *AWKWARD]


SPARK_OPTIONS = [
    ["--master", "local[2]"],
    ["--conf", "spark.x=a b'c\"$d", "--verbose", "--driver-memory=4g", "-v"],
    ["--name", "nightly"],
]


@pytest.mark.parametrize("options", SPARK_OPTIONS)
def test_options_before_the_job_are_sparks(shell: Shell, options: list[str]) -> None:
    """They come after our own, so that they win, and are split again into the same words."""
    assert shell(*options, "nightly", "--segments", "x")[0] == 0
    words = shell.submit_words()
    assert words[-len(options) - 1 :] == [*options, "pyspark-shell"]
    assert words[:2] == ["--properties-file", f"{shell.root}/conf/spark-defaults.conf"]
    assert words[words.index("--jars") + 1] == f"{shell.root}/.cache/jars/delta-spark-1.jar"
    assert shell.noted("words") == ["nightly", "--segments", "x"]


@pytest.mark.parametrize("option", [["--deploy-mode", "cluster"], ["--deploy-mode=cluster"]])
def test_a_driver_in_the_cluster_is_started_by_spark_submit(shell: Shell, option: list[str]) -> None:
    """There the driver runs elsewhere: spark-submit gets the job as its application, words unchanged."""
    assert shell("--master", "yarn", *option, "capture", *AWKWARD, FAKE_CODE="3")[0] == 3
    words = shell.noted("submitted")
    at = words.index(f"{shell.root}/jobs/__main__.py")
    assert words[at - len(option) : at] == option
    assert words[at + 1 :] == ["capture", *AWKWARD]
    assert shell.noted("words") == []


def value_of(words: list[str], option: str, start: str = "") -> str:
    """The word after an option, where it begins so."""
    return next(word for before, word in pairwise(words) if before == option and word.startswith(start))


@pytest.mark.parametrize(
    "options",
    [["--master", "spark://m:1"], ["--master=yarn"], ["--conf", "spark.master=k8s://x"]],
    ids=lambda it: it[-1],
)
def test_machines_of_a_cluster_are_sent_what_they_need(shell: Shell, options: list[str]) -> None:
    """Packages and code go along as archives, packed once a version; Python and imports are those of the archives."""
    for _ in range(2):
        assert shell(*options, "nightly")[0] == 0
    assert shell.noted("log").count("pack") == 1
    words = shell.submit_words()
    environment, code = (archive.partition("#") for archive in value_of(words, "--archives").split(","))
    assert (environment[2], code[2]) == ("environment", "groupledger")
    assert Path(environment[0]).exists() and Path(code[0]).exists()
    assert value_of(words, "--conf", "spark.executorEnv.PYTHONPATH") == "spark.executorEnv.PYTHONPATH=./groupledger"
    said = shell.job_environment()
    assert said["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert said["PYSPARK_DRIVER_PYTHON"] == f"{shell.root}/.venv/bin/python"
    assert words[-len(options) - 1 : -1] == options
    (shell.root / "jobs" / "__init__.py").write_text("changed = True\n")
    assert shell(*options, "nightly")[0] == 0
    assert shell.noted("log").count("pack") == 2


def test_what_cannot_be_packed(shell: Shell) -> None:
    """Why is said, and nothing is submitted."""
    code, _, err = shell("--master", "yarn", "nightly", FAKE_PACK="1")
    assert code == 1
    assert "the packer says why" in err
    assert err.splitlines()[-1].startswith("error: the environment could not be packed")
    assert shell.noted("words") == []


@pytest.mark.parametrize("master", ["local", "local[4,3]"])
def test_one_machine_needs_no_archives(shell: Shell, master: str) -> None:
    """There the workers are children of the driver."""
    assert shell("--master", master, "nightly")[0] == 0
    assert "--archives" not in shell.submit_words()
    assert "pack" not in shell.noted("log")


def test_a_properties_file_adds_to_ours(shell: Shell, tmp_path: Path) -> None:
    """spark-submit would read the last one alone; each line becomes an option, in its place among the others."""
    file = tmp_path / "mine.conf"
    file.write_text("# a comment\n\nspark.master  yarn\nspark.a.b=c d  \n  spark.x: y=z")
    assert shell("--conf", "spark.before=1", "--properties-file", str(file), "--name", "n", "nightly")[0] == 0
    words = shell.submit_words()
    assert words.count("--properties-file") == 1
    given = ["spark.before=1", "spark.master=yarn", "spark.a.b=c d", "spark.x=y=z"]
    assert words[-11:-1] == [*(word for pair in given for word in ("--conf", pair)), "--name", "n"]
    assert "--archives" in words


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("spark.alone\n", "not NAME VALUE: spark.alone")])
def test_a_properties_file_that_is_none(shell: Shell, tmp_path: Path, text: str | None, said: str) -> None:
    """One line says which and why."""
    file = tmp_path / "mine.conf"
    if text is not None:
        file.write_text(text)
    code, _, err = shell("--properties-file", str(file), "nightly")
    assert code == 2
    assert f"--properties-file {file}" in err and said in err


def dry_run(shell: Shell, *words: str) -> tuple[dict[str, str], list[str]]:
    """Variables and words of the command that a dry run prints."""
    code, out, err = shell("--dry-run", *words)
    assert code == 0, err
    split = shlex.split(out.replace("\\\n", " "))
    assert "job" not in shell.noted("log") and shell.noted("submitted") == []
    variables = dict(word.split("=", 1) for word in split[:2])
    return variables, split[2:]


EXAMPLES = PROJECT_ROOT / "conf" / "clusters"


def test_a_dry_run_on_yarn(shell: Shell) -> None:
    """Client mode: driver here, packed Python there. Cluster mode: the driver too finds the archives."""
    example = ["--properties-file", str(EXAMPLES / "yarn.conf")]
    variables, words = dry_run(shell, *example, "nightly", "--warehouse", "hdfs:///a b")
    assert words[0].endswith("/bin/spark-submit")
    assert variables["PYSPARK_DRIVER_PYTHON"] == f"{shell.root}/.venv/bin/python"
    assert "spark.master=yarn" in words
    assert words[-4:] == [f"{shell.root}/jobs/__main__.py", "nightly", "--warehouse", "hdfs:///a b"]
    variables, words = dry_run(shell, *example, "--deploy-mode", "cluster", "nightly")
    assert variables["PYSPARK_DRIVER_PYTHON"] == "./environment/bin/python"
    assert "spark.yarn.appMasterEnv.PYTHONPATH=./groupledger" in words
    assert "spark.pyspark.python=./environment/bin/python" in words


def test_a_dry_run_on_kubernetes(shell: Shell) -> None:
    """In an image that has the project nothing is sent: program, jars and Python are the image's."""
    example = ["--properties-file", str(EXAMPLES / "kubernetes.conf"), "--home", "/opt/groupledger/"]
    variables, words = dry_run(shell, *example, "audit")
    assert "--archives" not in words and "pack" not in shell.noted("log")
    assert words[-2:] == ["local:///opt/groupledger/jobs/__main__.py", "audit"]
    assert variables["PYSPARK_PYTHON"] == "/opt/groupledger/.venv/bin/python"
    jars = words[words.index("--jars") + 1].split(",")
    assert jars == ["local:///opt/groupledger/.cache/jars/delta-spark-1.jar"]
    assert "spark.submit.deployMode=cluster" in words
    _, words = dry_run(shell, "--properties-file", str(EXAMPLES / "kubernetes.conf"), "audit")
    assert "spark.kubernetes.driverEnv.PYTHONPATH=./groupledger" in words
    assert value_of(words, "--archives").endswith("#groupledger")


def test_a_dry_run_on_standalone(shell: Shell) -> None:
    """The driver stays here; the machines have the project on a shared disk, or are sent it."""
    example = ["--properties-file", str(EXAMPLES / "standalone.conf")]
    _, words = dry_run(shell, *example, "replay")
    assert "spark.master=spark://spark-master:7077" in words
    variables, words = dry_run(shell, *example, "--home", "/shared", "replay")
    assert variables == {
        "PYSPARK_PYTHON": "/shared/.venv/bin/python",
        "PYSPARK_DRIVER_PYTHON": f"{shell.root}/.venv/bin/python",
    }
    assert "spark.executorEnv.PYTHONPATH=/shared" in words
    assert words[-2:] == [f"{shell.root}/jobs/__main__.py", "replay"]


def test_standard_streams_are_the_callers(shell: Shell) -> None:
    """Answers on stdout, everything else on stderr, and what is typed reaches the job."""
    assert shell("sql") == (0, "out\n", "err\n")
    assert (shell.fakes / "stdin").read_text() == "typed"


def test_an_option_without_its_value_is_wrong(fresh: Shell) -> None:
    """Spark's option at the end has nothing to take."""
    code, _, err = fresh("--master")
    assert (code, err.splitlines()[-1]) == (2, "error: Spark's option --master needs a value")


def test_the_jobs_exit_code_comes_back(shell: Shell) -> None:
    """Whatever spark-submit ends with."""
    for code in (0, 1, 2, 3, 130):
        assert shell("nightly", FAKE_CODE=str(code))[0] == code


@pytest.mark.parametrize("parse_code", [0, 2])
def test_help_and_wrong_arguments_start_no_spark(fresh: Shell, parse_code: int) -> None:
    """They are answered by Python alone, without a Java too."""
    (fresh.fakes / "java").unlink()
    assert fresh("--help", FAKE_PARSE=str(parse_code))[0] == parse_code
    assert fresh.noted("parsed") == ["--help"]
    assert fresh.noted("log")[-1] == "parse"
    assert "job" not in fresh.noted("log")


def test_no_job_shows_the_usage(shell: Shell) -> None:
    """Nothing given: Python's own usage, no Spark."""
    shell(FAKE_PARSE="2")
    assert shell.noted("parsed") == [""] or shell.noted("parsed") == []
    assert shell.noted("words") == []


def test_it_works_from_anywhere_and_through_links(shell: Shell, tmp_path: Path) -> None:
    """Two links deep, one relative: the project is found, and the current folder stays the caller's."""
    there = tmp_path / "else where"
    there.mkdir()
    (there / "first").symlink_to(shell.root / "spark-submit.sh")
    (there / "second").symlink_to("first")
    assert shell("nightly", command=there / "second", cwd=there)[0] == 0
    environment = shell.job_environment()
    assert environment["CWD"] == str(there)
    assert shell.noted("words") == ["nightly"]


def test_loops_are_compiled_once_a_version_of_the_code(fresh: Shell) -> None:
    """The first start compiles, the second does not, changed code does again and leaves nothing of the old."""
    for _ in range(2):
        assert fresh("nightly")[0] == 0
    assert (fresh.fakes / "log").read_text().split().count("compile") == 1
    (fresh.root / "coordinator_core" / "fast.py").write_text("another loop\n")
    assert fresh("nightly")[0] == 0
    assert (fresh.fakes / "log").read_text().split().count("compile") == 2
    assert len(list((fresh.root / ".cache" / "numba").iterdir())) == 1


def archive_options(shell: Shell) -> list[str]:
    """The options of the last job's JVM for an archive of its classes."""
    options = shlex.split(shell.job_environment()["SPARK_SUBMIT_OPTS"])
    return [option for option in options if option.startswith("-XX")]


def java(shell: Shell, version: str) -> None:
    """Let Java be of this version, with an archive of its own classes."""
    own = shell.fakes.parent / "lib" / "server" / "classes.jsa"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.touch()
    shell.script("java", f"#!/bin/bash\nprintf '{MODULES.replace('17.0.15', version)}'\n")


def test_classes_are_kept_once_a_java(shell: Shell) -> None:
    """A job's JVM leaves its classes, and the next ones map them; another Java leaves its own, and the old ones go."""
    java(shell, "17.0.15")
    assert shell("nightly", SPARK_SUBMIT_OPTS="-Dmine=1")[0] == 0
    assert shlex.split(shell.job_environment()["SPARK_SUBMIT_OPTS"])[0] == "-Dmine=1"
    (option,) = archive_options(shell)
    archive = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    assert archive.parent == shell.root / ".cache"
    archive.write_bytes(bytes(100))  # a JVM that was killed while it wrote: the first bytes come last
    assert shell("nightly")[0] == 0
    assert archive_options(shell) == [option]
    archive.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(100))
    assert shell("nightly")[0] == 0
    assert archive_options(shell) == [f"-XX:SharedArchiveFile={archive}"]
    java(shell, "18.0.1")
    assert shell("nightly")[0] == 0
    assert archive_options(shell) != [option] and not archive.exists()


def test_a_java_without_an_archive_of_its_own_runs_the_job_all_the_same(shell: Shell) -> None:
    """Cut-down runtimes have none to add to, and their JVM would not start with the option."""
    assert shell("nightly")[0] == 0
    assert archive_options(shell) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"JAVA_TOOL_OPTIONS": "-Xshare:off"},
        {"JDK_JAVA_OPTIONS": "-XX:SharedArchiveFile=/classes.jsa"},
        {"SPARK_SUBMIT_OPTS": "-XX:ArchiveClassesAtExit='/my classes.jsa'"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_the_users_own_choice_of_an_archive_holds(shell: Shell, variables: dict[str, str]) -> None:
    """The JVM gets no other one, with which it would not start, or not as the user wants."""
    java(shell, "17.0.15")
    assert shell("nightly", **variables)[0] == 0
    options = shlex.split(shell.job_environment()["SPARK_SUBMIT_OPTS"])
    assert not any(str(shell.root / ".cache") in option for option in options)


def test_a_real_java_starts_with_the_options(tmp_path: Path) -> None:
    """It leaves an archive when it ends, if it had one of its own to add to, and the next one takes it."""
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": "", "GROUPLEDGER_CACHE": str(tmp_path)}
    places = set_up.find_places(PROJECT_ROOT, environment)
    java = set_up.find_java(environment)
    made = []
    for _ in range(2):
        options = bootstrap.class_archive_options(places, java, environment)
        asked = subprocess.run([java.path, *options, "-version"], check=True, capture_output=True, text=True)
        assert asked.stdout == ""
        made.append(list(tmp_path.iterdir()))
    assert made[0] == made[1]
    assert all(f"-XX:SharedArchiveFile={archive}" in options for archive in made[0])


@pytest.mark.parametrize("version", ["19", "25.0.3"])
def test_a_later_java_renews_its_archive_itself(shell: Shell, version: str) -> None:
    """From Java 19 the options are the same in each start."""
    java(shell, version)
    for _ in range(2):
        assert shell("nightly")[0] == 0
        use, create = archive_options(shell)
        assert create == "-XX:+AutoCreateSharedArchive"
        assert use.startswith(f"-XX:SharedArchiveFile={shell.root}/.cache/classes-")


def test_no_archive_below_a_folder_with_a_colon(fresh: Shell, tmp_path: Path) -> None:
    """The JVM would take it for two archives."""
    assert fresh("nightly", GROUPLEDGER_CACHE=str(tmp_path / "a:b"))[0] == 0
    assert archive_options(fresh) == []


def test_loops_that_do_not_compile(fresh: Shell) -> None:
    """One clear line, what was said before it, and the next start tries again."""
    code, _, errors = fresh("nightly", FAKE_COMPILE="1")
    assert code == 1
    assert "numba says why" in errors
    assert "error: the kernels could not be compiled" in errors
    assert fresh("nightly")[0] == 0


def test_the_environment_of_the_job(shell: Shell) -> None:
    """Workers and driver run one Python and find the packages; another Spark's folders do not speak here."""
    assert shell("nightly", SPARK_HOME="/other", SPARK_CONF_DIR="/other/conf", PYTHONPATH="/mine")[0] == 0
    environment = shell.job_environment()
    python = f"{shell.root}/.venv/bin/python"
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == python
    assert environment["PYTHONPATH"] == f"{shell.root}:/mine"
    compiled = Path(environment["NUMBA_CACHE_DIR"])
    assert compiled.parent == shell.root / ".cache" / "numba"
    assert (compiled / ".compiled").exists()
    assert environment["SPARK_HOME"] == f"{shell.root}/.venv/lib/python3.11/site-packages/pyspark"
    assert "SPARK_CONF_DIR" not in environment
    log4j = str(shell.root).replace(" ", "%20")
    assert f"-Dlog4j2.configurationFile=file://{log4j}/conf/log4j2.properties" in environment["SPARK_SUBMIT_OPTS"]


def test_set_up_is_done_once(fresh: Shell) -> None:
    """The first start makes the environment and fetches the jars; the second only checks; a new lock is installed."""
    _, _, err = fresh("nightly")
    said = [line.split()[0] for line in err.splitlines()]
    assert (said[0], sorted(said[1:3]), said[3:]) == ("Making", ["Compiling", "Fetching"], ["err"])
    log = fresh.noted("log")
    assert (sorted(log[:3]), log[3:]) == (["compile", "uv a==1", "uv pyspark==1"], ["parse", "job"])
    assert fresh("nightly")[2] == "err\n"
    assert fresh.noted("log")[5:] == ["parse", "job"]
    fresh.lock("requirements.txt", "a==2", "pyspark==1")
    assert fresh("nightly")[2].startswith("Bringing")
    assert sorted(fresh.noted("log")[7:9]) == ["uv a==2", "uv pyspark==1"]


def test_set_up_for_tests_serves_jobs_too(fresh: Shell) -> None:
    """`--set-up dev` installs what tests need, fetches the jars and runs no job; a job needs nothing more."""
    assert fresh("--set-up", "dev")[0] == 0
    assert sorted(fresh.noted("log")) == ["compile", "uv a==1 b==1", "uv pyspark==1"]
    assert fresh("--set-up", "dev")[2] == ""
    assert fresh("nightly")[2] == "err\n"
    assert fresh.noted("log")[3:] == ["parse", "job"]


def test_set_up_without_tests(fresh: Shell) -> None:
    """`--set-up run`, for images, installs what jobs need and runs none."""
    assert fresh("--set-up", "run")[0] == 0
    assert sorted(fresh.noted("log")) == ["compile", "uv a==1", "uv pyspark==1"]
    assert fresh("nightly")[2] == "err\n"


def test_two_first_starts_at_once_set_up_once(fresh: Shell) -> None:
    """The second waits for the first, and finds the work done."""
    both = [fresh.start("nightly", FAKE_INSTALL_SECONDS="1") for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(line for line in fresh.noted("log") if line.startswith("uv")) == ["uv a==1", "uv pyspark==1"]
    assert (fresh.noted("log").count("compile"), fresh.noted("log").count("job")) == (1, 2)


def test_kernels_are_compiled_while_spark_is_installed(fresh: Shell) -> None:
    """Spark's installation waits until the kernels' compilation has started, and would fail alone."""
    assert fresh("nightly", FAKE_MEETING="install")[0] == 0


def test_what_was_made_before_a_failure_stays(fresh: Shell) -> None:
    """Packages and kernels are made though Maven cannot be reached: the next start only fetches the jars."""
    assert fresh("nightly", DEFAULT_ARTIFACT_REPOSITORY="file:///nowhere")[0] == 1
    before = len(fresh.noted("log"))
    assert fresh("nightly")[0] == 0
    assert fresh.noted("log")[before:] == ["parse", "job"]


def test_what_a_killed_start_left_is_not_kept(fresh: Shell) -> None:
    """An environment that was never finished, or not since its lock changed, goes: an installer would take a
    package of which a part is there for whole."""
    for lock in ("a==1", "a==2"):
        fresh.lock("requirements.txt", lock, "pyspark==1")
        process = fresh.start("nightly", FAKE_INSTALL_SECONDS="60")
        while f"uv {lock}" not in fresh.noted("log"):
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        (fresh.root / ".venv" / "a part of a package").touch()
        code, _, err = fresh("nightly")
        assert code == 0 and err.startswith("Making")
        assert not (fresh.root / ".venv" / "a part of a package").exists()
        assert fresh("nightly")[2] == "err\n"


def test_nobody_sets_up_what_a_killed_start_still_writes(fresh: Shell) -> None:
    """uv goes on when its parent is killed, and keeps the lock."""
    process = fresh.start("nightly", FAKE_INSTALL_SECONDS="2")
    while not any(line.startswith("uv") for line in fresh.noted("log")):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    with (fresh.root / ".cache" / "set-up.lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_pip_installs_where_there_is_no_uv(fresh: Shell) -> None:
    """uv has no wheel for the machine: a line says so, and pip checks the same hashes."""
    code, _, err = fresh("nightly", FAKE_UV="1")
    assert code == 0
    assert sorted(line for line in fresh.noted("log") if line.startswith(("uv ", "pip "))) == [
        *("pip a==1", "pip pyspark==1")
    ]
    assert "pip installs the others, too" in err
    assert fresh("nightly")[2] == "err\n"


def test_uv_has_the_settings_of_pip(fresh: Shell) -> None:
    """A mirror, its certificate and a proxy; what the environment says comes before the file."""
    config = (
        ":env:.index-url='https://mirror/simple'\n:env:.no-input='1'\n"
        "global.cert='/etc/ca.pem'\nglobal.index-url='https://other/simple'\nglobal.proxy='http://proxy:1'\n"
    )
    assert fresh("nightly", FAKE_PIP_CONFIG=config)[0] == 0
    found = dict(line.split("=", 1) for line in fresh.noted("uv-environment"))
    wanted = {
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "ALL_PROXY": "http://proxy:1",
    }
    assert {name: found.get(name) for name in wanted} == wanted


@contextmanager
def maven(answer: bytes) -> Iterator[str]:
    """A server that gives the same bytes whatever it is asked, and its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nhalf", "gave another file than conf/jars.sha256 names"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhalf", "could not be fetched (IncompleteRead(4 bytes"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "could not be fetched (HTTP Error 404: Not Found)"),
        (b"", "could not be fetched (Remote end closed connection"),
    ],
    ids=["other bytes", "cut off", "not there", "no answer"],
)
def test_a_jar_that_does_not_come_whole(fresh: Shell, answer: bytes, words: str) -> None:
    """Its address, why, and what to do, in one line; nothing of it is kept, and the next start fetches it again."""
    with maven(answer) as mirror:
        code, _, err = fresh("nightly", DEFAULT_ARTIFACT_REPOSITORY=f"{mirror}/")
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 1
    assert len(errors) == 1 and errors[0].startswith(f"error: {mirror}/{JAR} {words}")
    assert "start again" in errors[0] and "DEFAULT_ARTIFACT_REPOSITORY" in errors[0]
    assert not (fresh.root / ".cache" / "jars").exists()
    assert fresh("nightly")[0] == 0


def test_without_a_network(fresh: Shell) -> None:
    """The first start says what it needs; once it is set up, none is asked."""
    nothing = {"DEFAULT_ARTIFACT_REPOSITORY": "http://127.0.0.1:9"}
    code, _, err = fresh("nightly", **nothing)
    assert code == 1
    assert "Connection refused" in err.splitlines()[-1] and "network" in err.splitlines()[-1]
    assert fresh("nightly")[0] == 0
    assert fresh("nightly", FAKE_INSTALL="1", **nothing)[0] == 0


def test_a_set_up_that_fails_is_not_taken_for_done(fresh: Shell) -> None:
    """uv's own words and where to find them; the next start tries again."""
    code, _, err = fresh("nightly", FAKE_INSTALL="1")
    assert code == 1
    *_, why, line = err.splitlines()
    assert (why, err.count(why)) == ("uv says why", 1), "of Spark and the others, one says it"
    assert line.startswith("error: the packages could not be installed: start again when the network")
    assert "parse" not in fresh.noted("log")
    assert fresh("nightly")[0] == 0


def test_a_wheel_brings_the_same_shell(fresh: Shell) -> None:
    """Inside the package groupledger: it makes no environment, and keeps what it made in the user's cache."""
    path = fresh.installed()
    assert fresh("nightly", *AWKWARD, command=path)[0] == 0
    assert fresh.noted("log") == ["parse", "compile", "job"]
    assert fresh.noted("words") == ["nightly", *AWKWARD]
    environment = fresh.job_environment()
    assert environment["PYSPARK_PYTHON"] == environment["GROUPLEDGER_PYTHON"]
    assert environment["PYTHONPATH"] == str(fresh.root)
    assert environment["SPARK_HOME"] == f"{fresh.fakes}/pyspark"
    assert environment["NUMBA_CACHE_DIR"].startswith(f"{fresh.root.parent}/cache/groupledger/numba/")
    assert (
        f"{str(fresh.root).replace(' ', '%20')}/groupledger/conf/log4j2.properties" in environment["SPARK_SUBMIT_OPTS"]
    )
    assert sorted(path.name for path in fresh.root.iterdir() if path.name.startswith(".")) == []
    assert fresh("replay", command=path)[2] == "err\n"
    assert fresh.noted("log")[3:] == ["parse", "job"]


def test_queries_get_the_slow_and_thorough_compiler(shell: Shell) -> None:
    """`sql` alone: its JVM lives for longer than a night's. What the user says counts more."""
    own = "spark.driver.extraJavaOptions=-XX:+UseSerialGC"
    assert shell("sql", "-e", "select 1")[0] == 0
    assert own in shell.submit_words()
    assert shell("--conf", "spark.driver.extraJavaOptions=-Xint", "sql")[0] == 0
    words = shell.submit_words()
    assert words.index(own) < words.index("spark.driver.extraJavaOptions=-Xint")
    assert shell("nightly")[0] == 0
    assert own not in shell.submit_words()


def test_the_cache_may_be_elsewhere(fresh: Shell, tmp_path: Path) -> None:
    """GROUPLEDGER_CACHE names it, for images and folders that nobody may write; one that cannot be made is said."""
    assert fresh("nightly", GROUPLEDGER_CACHE=str(tmp_path / "a b"))[0] == 0
    assert sorted(path.name for path in (tmp_path / "a b").glob("j*")) == ["jars"]
    (tmp_path / "file").touch()
    code, _, err = fresh("nightly", GROUPLEDGER_CACHE=str(tmp_path / "file" / "x"))
    assert code == 1
    assert "name another folder in GROUPLEDGER_CACHE" in err


def test_a_pressed_key_is_answered_at_once(fresh: Shell) -> None:
    """What may follow comes from Python alone: no Java, no set-up; and nothing where nothing is set up yet."""
    asked = {"_GROUPLEDGER_COMPLETE": "complete_bash"}
    assert fresh(**asked)[:2] == (1, "")
    assert fresh("nightly")[0] == 0
    (fresh.fakes / "java").unlink()
    assert fresh(**asked) == (0, "may follow\n", "")


def test_a_cache_that_cannot_be_written(shell: Shell) -> None:
    """What cannot be written and where to keep it instead, in one line without a traceback."""
    shutil.rmtree(shell.root / ".cache" / "numba")
    (shell.root / ".cache" / "numba").touch()
    code, _, err = shell("nightly")
    assert code == 1
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert f"{shell.root}/.cache/numba" in line and "GROUPLEDGER_CACHE" in line
    assert "Traceback" not in err


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
FULL = 'mkdir "$0/.cache" && mount -t tmpfs -o size=4k none "$0/.cache"'


def mounted(shell: Shell, mount: str, **environment: str) -> tuple[int, list[str]]:
    """A start in a mount namespace of its own: exit code, and lines of stderr."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} || exit 77; exec "$0/spark-submit.sh" nightly', str(shell.root)],
        env=shell.environment | environment | {"PATH": f"{shell.environment['PATH']}:{os.environ['PATH']}"},
        cwd=shell.fakes,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode in (77, 126, 127) or "unshare: " in done.stderr:
        pytest.skip("who runs this may not mount")
    return done.returncode, done.stderr.splitlines()


def test_a_disk_without_room(fresh: Shell) -> None:
    """One line says what cannot be written; with room, the next start does it."""
    code, (*_, line) = mounted(fresh, FULL)
    assert code == 1
    assert "cannot be written (No space left on device): make room" in line
    assert fresh("nightly")[0] == 0


def test_a_clone_that_nobody_may_write(fresh: Shell, tmp_path: Path) -> None:
    """One line says so, also where the cache is elsewhere; what was set up before runs there."""
    elsewhere = {"GROUPLEDGER_CACHE": str(tmp_path / "cache")}
    for variables, what in (({}, ".cache"), (elsewhere, ".venv")):
        code, (*_, line) = mounted(fresh, READ_ONLY, **variables)
        assert code == 1
        assert f"{fresh.root}/{what} cannot be written (Read-only file system): " in line
        assert "use a clone that you may write" in line
    assert fresh("nightly")[0] == 0
    assert mounted(fresh, READ_ONLY) == (0, ["err"])
    fresh.lock("requirements.txt", "a==2", "pyspark==1")
    code, (*_, line) = mounted(fresh, READ_ONLY, **elsewhere)
    assert code == 1 and "(Read-only file system): " in line


def test_set_up_of_something_unknown(fresh: Shell) -> None:
    """Nothing is installed for a word that is mistyped."""
    code, _, err = fresh("--set-up", "tests")
    assert (code, err) == (2, "error: --set-up takes run or dev, not: tests\n")
    assert fresh.noted("log") == []


def test_bootstrap_needs_no_package() -> None:
    """It and what it imports run before any is installed, and in a wheel next to other modules."""
    for own, others in (("bootstrap.py", {"set_up"}), ("set_up.py", set[str]())):
        tree = ast.parse((PROJECT_ROOT / own).read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == others


def broken_java_home(shell: Shell) -> dict[str, str]:
    """JAVA_HOME names a folder without Java."""
    return {"JAVA_HOME": str(shell.root)}


def no_java(shell: Shell) -> dict[str, str]:
    """No Java at all."""
    (shell.fakes / "java").unlink()
    return {}


def java_8(shell: Shell) -> dict[str, str]:
    """Java 8 does not know --list-modules."""
    shell.script("java", "#!/bin/bash\necho 'Unrecognized option: --list-modules' >&2; exit 1\n")
    return {}


def java_11(shell: Shell) -> dict[str, str]:
    """Too old for Spark 4."""
    shell.script("java", "#!/bin/bash\nprintf 'java.base@11.0.2\\njdk.incubator.vector@11\\n'\n")
    return {}


def cut_down_java(shell: Shell) -> dict[str, str]:
    """A runtime made by jlink without the incubator's module."""
    shell.script("java", "#!/bin/bash\nprintf 'java.base@17.0.2\\n'\n")
    return {}


def no_python(shell: Shell) -> dict[str, str]:
    """No Python on the PATH."""
    (shell.fakes / "python3.11").unlink()
    return {}


def python_3_14(shell: Shell) -> dict[str, str]:
    """Only a Python for which the locks have no packages."""
    later = "import sys; sys.version_info = (3, 14, 0, 'final', 0); "
    asked = f"""[[ $1 != -c ]] || exec "$REAL_PYTHON" -c "{later}$2"\n"""
    shell.script("python3", FAKE_PYTHON.replace("case ", f"{asked}case ", 1))
    (shell.fakes / "python3.11").unlink()
    return {}


def wrong_python(shell: Shell) -> dict[str, str]:
    """GROUPLEDGER_PYTHON names what is none."""
    return {"GROUPLEDGER_PYTHON": "/bin/false"}


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (broken_java_home, "has no bin/java"),
        (no_java, "no Java"),
        (java_8, "older than Java 17"),
        (java_11, "older than Java 17"),
        (cut_down_java, "lacks the module jdk.incubator.vector"),
        (no_python, "no Python 3.11, 3.12 or 3.13"),
        (wrong_python, "GROUPLEDGER_PYTHON=/bin/false is not a Python 3.11, 3.12 or 3.13"),
        (python_3_14, "no Python 3.11, 3.12 or 3.13"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_missing_is_one_line_with_its_remedy(
    fresh: Shell, break_it: Callable[[Shell], dict[str, str]], words: str
) -> None:
    """Exit code 2 and one line that says what to install or to correct; no Spark is started."""
    code, _, err = fresh("nightly", **break_it(fresh))
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2
    assert len(errors) == 1 and words in errors[0]
    assert "install" in errors[0] or "correct" in errors[0]
    assert fresh.noted("words") == fresh.noted("log") == []


def test_a_later_python_will_do(fresh: Shell) -> None:
    """python3.11 is not needed where python3 is new enough; GROUPLEDGER_PYTHON is taken before both."""
    (fresh.fakes / "python3.11").rename(fresh.fakes / "real")
    fresh.script("python3", '#!/bin/bash\nexec "$FAKES/real" "$@"\n')
    text = FAKE_PYTHON.replace("$FAKES/python3.11", "$FAKES/real")
    fresh.script("real", text)
    assert fresh("nightly")[0] == 0
    shutil.rmtree(fresh.root / ".venv")
    _, _, err = fresh("nightly", GROUPLEDGER_PYTHON=str(fresh.fakes / "real"))
    assert f"with {fresh.fakes}/real" in err


@takes_minutes
def test_the_real_thing(tmp_path: Path) -> None:
    """The recording is captured and asked in another folder, with the true Python, Java and Spark."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}
    environment.pop("PYTHONPATH", None)

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(PROJECT_ROOT / "spark-submit.sh"), *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    logs = str(RECORDINGS / "full-a" / "logs")
    words = ("capture", "--segments", logs, "--warehouse", "ware house", "--cluster-id", "c d")
    captured = start("--master", "local[2,3]", *words)
    assert captured.returncode == 0, captured.stderr
    assert (tmp_path / "ware house" / "bronze" / "record_batches" / "_delta_log").is_dir()
    query = "select count(*) as n from bronze.record_batches where cluster_id = 'c d' and topic like '\\_\\_con%'"
    asked = start("sql", "--engine", "spark", "--warehouse", "ware house", "--format", "csv", "-e", query)
    assert (asked.returncode, asked.stdout) == (0, "n\n777\n"), asked.stderr
    nothing = start("sql", "--warehouse", "nowhere", "-e", "select 1")
    assert nothing.returncode == 2
    assert "no tables in" in nothing.stderr
    assert "Traceback" not in nothing.stderr


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), signal.SIGINT)", "sys.exit(130)"])
def test_a_step_of_set_up_that_ctrl_c_ends_shows_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    """Steps run in threads, and each process gets the signal: the one line is that of bootstrap.py."""
    command = [sys.executable, "-c", f"import os, signal, sys; print('its output', flush=True); {ends}"]
    with pytest.raises(KeyboardInterrupt):
        set_up.run_logged(command, tmp_path / "log", "it failed", os.environ)
    assert capsys.readouterr() == ("", "")


def test_a_step_that_fails_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own output may have found no room."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    with pytest.raises(set_up.BootstrapError, match=r"^it failed \(3 MiB of the disk are free: make room\); its whole"):
        set_up.run_logged(["false"], tmp_path / "log", "it failed", os.environ)


def test_the_jars_are_those_of_the_locked_delta() -> None:
    """A new version of Delta comes with hashes of its own jars, and no jar of another version."""
    lock = (PROJECT_ROOT / "requirements.txt").read_text(encoding="utf-8")
    [version] = re.findall(r"^delta-spark==(\S+)", lock, re.MULTILINE)
    jars = set_up.find_places(PROJECT_ROOT, {}).delta_jars
    names = {Path(path).parts[2]: path for path in jars}
    assert {"delta-spark_4.2_2.13", "delta-storage"} <= {*names}
    assert sorted(jars) == sorted(f"io/delta/{name}/{version}/{name}-{version}.jar" for name in names)
