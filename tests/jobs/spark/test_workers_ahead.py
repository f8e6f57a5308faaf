"""The process that loads what workers are forked with before Spark asks for it, and how Spark comes to it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import unpack

import pytest

from jobs.spark import workers_ahead
from jobs.spark.run_folder import JVM_OPTIONS, SUBMIT_ARGS
from jobs.spark.workers_ahead import AHEAD, DAEMON, OF_EVERY_WORKER, hand_over, start_ahead
from tests.conftest import PROJECT_ROOT

SECONDS = 60
DRIVER = f"""
import os, sys
from jobs.spark.workers_ahead import start_ahead
start_ahead({{"spark.executorEnv.GIVEN": "yes"}})
print(os.environ[{AHEAD!r}], flush=True)
sys.stdin.read()
"""
WAITING = """
import os, sys
from jobs.spark.workers_ahead import take_over
if not take_over(int(sys.argv[1]), sys.argv[2]):
    sys.exit(3)
print(sys.argv[1:], sys.path[0], os.environ["SPARK_LINES"], sys.stdin.read(), flush=True)
"""
CHILD = """
import sys
from jobs.spark.workers_ahead import hand_over
sys.path.insert(0, "/given")
sys.exit(0 if hand_over(["pyspark.worker", "more"]) else 4)
"""


def python(text: str, *words: str, env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[str]:
    """A process of this Python, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT_ROOT,
        env=env,
        pass_fds=pass_fds,
    )


@contextmanager
def waiting(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A process that waits to be taken over, and the environment in which Spark's child finds it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "workers"))
        listener.listen(1)
        number = listener.fileno()
        process = python(WAITING, str(number), str(folder), pass_fds=(number,), env=dict(environment))
    with process:
        yield process, {**environment, AHEAD: str(folder / "workers")}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a short name, as a socket's must be."""
    return tmp_path_factory.mktemp("w")


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a driver."""
    inherited = {name: value for name, value in os.environ.items() if name != SUBMIT_ARGS}
    return {**inherited, "PYTHONPATH": str(PROJECT_ROOT), "SPARK_HOME": "/spark"}


def test_spark_takes_over_what_the_driver_started(environment: dict[str, str]) -> None:
    """Spark's child is answered by the process of the driver, which is Spark's daemon from then on and ends with it."""
    driver = python(DRIVER, env={**environment, AHEAD: "true"})
    with driver:
        assert driver.stdin is not None and driver.stdout is not None
        path = driver.stdout.readline().strip()
        run_folder = str(Path(path).parent.parent)
        reported = {**environment, **OF_EVERY_WORKER, "GIVEN": "yes", AHEAD: path, "SPARK_BUFFER_SIZE": "65536"}
        reported |= {
            "TMPDIR": run_folder,
            SUBMIT_ARGS: f"--conf {JVM_OPTIONS}=-Djava.io.tmpdir={run_folder} pyspark-shell",
        }
        with subprocess.Popen(
            [sys.executable, "-m", DAEMON, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=reported,
            cwd=PROJECT_ROOT,
        ) as child:
            assert child.stdin is not None and child.stdout is not None
            (port,) = unpack("!i", child.stdout.read(4))
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
                (worker,) = unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                ahead = _parent(worker)
                assert _parent(ahead) == driver.pid, "a worker is forked from what the driver started"
                assert not Path(path).parent.exists(), "its socket is asked for once"
            child.stdin.close()
            assert child.wait(SECONDS) == 0
        assert not Path(f"/proc/{ahead}").exists() or _state(ahead) == "Z"
        driver.stdin.close()
        driver.wait(SECONDS)


def test_a_daemon_has_what_spark_gave_its_child(folder: Path, environment: dict[str, str]) -> None:
    """Arguments, places of modules, environment and the standard streams."""
    with waiting(folder, environment) as (process, known):
        known |= {"SPARK_LINES": "sent", "PYTHONPATH": f"/spark/python/lib/pyspark.zip:{known['PYTHONPATH']}"}
        with python(CHILD, env=known) as child:
            output, _ = child.communicate("in", timeout=SECONDS)
            assert output == "['pyspark.worker', 'more'] /given sent in\n"
            assert child.returncode == 0
        assert process.wait(SECONDS) == 0


def test_spark_may_be_found_by_a_link(folder: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """The JVM names its jar by the true path, where SPARK_HOME is that of a link: the process is taken over."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "spark")
    with waiting(folder, {**environment, "SPARK_HOME": f"{tmp_path}/link"}) as (process, known):
        places = f"{tmp_path}/link/python/lib/pyspark.zip:{tmp_path}/spark/jars/spark-core.jar"
        known |= {"SPARK_LINES": "sent", "PYTHONPATH": f"{places}:{known['PYTHONPATH']}"}
        with python(CHILD, env=known) as child:
            child.communicate("in", timeout=SECONDS)
            assert child.returncode == 0
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    "other",
    [
        {"MALLOC_TRIM_THRESHOLD_": "1"},
        {"PYTHONPATH": f"/other:{PROJECT_ROOT}"},
        {"PYTHONHASHSEED": "77"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_environment_is_not_taken(folder: Path, environment: dict[str, str], other: dict[str, str]) -> None:
    """What Python or a library reads as it starts must be the same: Spark's child loads by itself."""
    with waiting(folder, environment) as (process, known):
        with python(CHILD, env={**known, "SPARK_LINES": "sent", **other}) as child:
            child.communicate(timeout=SECONDS)
            assert child.returncode == 4
        assert process.wait(SECONDS) == 3


def test_it_ends_with_the_driver(folder: Path, environment: dict[str, str]) -> None:
    """Where the driver ends before Spark has asked, nothing stays."""
    with waiting(folder, environment) as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 3
    assert not folder.exists()


@pytest.mark.parametrize("path", ["", "true", "/nowhere/workers"])
def test_without_one_sparks_child_loads_by_itself(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """On a cluster there is none; here it may have failed."""
    monkeypatch.setenv(AHEAD, path)
    assert not hand_over(["pyspark.worker"])


def test_nothing_is_started_unless_the_job_was_submitted_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of a cluster are started there."""
    monkeypatch.delenv(AHEAD, raising=False)
    monkeypatch.setattr(subprocess, "Popen", lambda *_: pytest.fail("a process was started"))
    start_ahead({})
    assert AHEAD not in os.environ


def test_a_name_too_long_for_a_socket_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark's child loads by itself, and no folder stays."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(workers_ahead, "use_run_folder", lambda: long)
    monkeypatch.setenv(AHEAD, "true")
    start_ahead({})
    assert os.environ[AHEAD] == "true"
    assert not list(long.iterdir())


def _stat(pid: int) -> list[str]:
    """State, parent, ... as the kernel tells them."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])
