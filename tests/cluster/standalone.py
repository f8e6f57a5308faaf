"""A Spark standalone cluster on this machine: a master and workers, each a process of its own, as spark-class starts
them from pip's pyspark."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from tests.faults.harness import EXECUTOR, WORKER, kill, processes_of
from tests.live.broker import free_ports

HOST: Final = "127.0.0.1"
MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
UP_TIMEOUT_S: Final = 90
SPARK_HOME: Final = Path(pyspark.__file__).parent


@dataclass
class Worker:
    """A worker's process, and all that it starts: a session of processes."""

    process: subprocess.Popen[bytes]

    def executors(self) -> list[int]:
        """Pids of its executors."""
        return processes_of(self.process.pid, EXECUTOR)

    def kill(self) -> None:
        """The machine is gone: the worker, its executors and their Python workers (SIGKILL)."""
        python_workers = processes_of(self.process.pid, WORKER)
        for pid in (self.process.pid, *self.executors(), *python_workers):
            kill(pid)


@dataclass
class StandaloneCluster:
    """A cluster in a folder; leave the `with` block to end it."""

    folder: Path
    worker_count: int = 2
    cores: int = 1
    """Of each worker."""
    memory: str = "2g"
    workers: list[Worker] = field(default_factory=list)
    _port: int = field(default_factory=lambda: free_ports(1)[0])
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        """What --master takes."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["--host", HOST, "--port", str(self._port), "--webui-port", "0"]
        self._start("master", MASTER_CLASS, words)
        self._await("master", "I have been elected leader")
        for number in range(self.worker_count):
            work = str(self.folder / f"work-{number}")
            words = ["--host", HOST, "--port", "0", "--webui-port", "0", "--work-dir", work]
            words += ["--cores", str(self.cores), "--memory", self.memory, self.url]
            self.workers.append(Worker(self._start(f"worker-{number}", WORKER_CLASS, words)))
        for number in range(self.worker_count):
            self._await(f"worker-{number}", "Successfully registered with master")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self._stack.close()

    def _start(self, name: str, main: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        inherited.pop("PYTHONPATH", None)  # workers of a cluster do not know where the project is
        inherited.pop("NUMBA_CACHE_DIR", None)
        environment: Mapping[str, str] = inherited | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), main, *words],
            env=dict(environment),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _await(self, name: str, words: str) -> None:
        path = self.folder / f"{name}.log"
        await_that(lambda: words in path.read_text(errors="replace"), UP_TIMEOUT_S, path.read_text)


def await_that(condition: Callable[[], bool], timeout_s: float, said: Callable[[], str]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, said()[-4000:]
        time.sleep(0.05)
