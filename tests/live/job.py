"""Jobs as users run them: `./spark-submit.sh`, a process of its own, which can be killed with all that it started."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deltalake import DeltaTable

from tests.conftest import PROJECT_ROOT
from tests.live.disk import TOPICS
from tests.live.ledger import CLUSTER_ID

JOB_TIMEOUT_S: Final = 300
END_TIMEOUT_S: Final = 120
LINES_SHOWN: Final = 40


class Job:
    """A running job; leave the `with` block, or call `kill`, to end it."""

    def __init__(
        self,
        folder: Path,
        job: str,
        *words: str,
        environment: dict[str, str] | None = None,
        spark_options: Sequence[str] = (),
    ) -> None:
        """Start it over the warehouse `folder / "warehouse"`; what it says goes into `folder`."""
        self._name = job
        self._bronze = folder / "warehouse" / "bronze" / "record_batches"
        self._said = folder / f"{job}.out"
        with self._said.open("a") as said:
            self._process = subprocess.Popen(
                [
                    str(PROJECT_ROOT / "spark-submit.sh"),
                    *spark_options,
                    job,
                    "--warehouse",
                    str(folder / "warehouse"),
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=os.environ | {"GROUPLEDGER_CLUSTER_ID": CLUSTER_ID} | (environment or {}),
                start_new_session=True,  # a group of processes, to be killed together
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def said(self) -> str:
        """All that this job, and those of its name before it, said."""
        return self._said.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Of the driver, which leads a session of its own."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self._process.poll() is None

    def await_commit(self) -> None:
        """Wait until this capture has added to bronze."""
        before = max(self._bronze_version(), 0)  # an empty table is none
        self.await_that(lambda: self._bronze_version() > before)

    def await_that(self, condition: Callable[[], bool], timeout_s: float = JOB_TIMEOUT_S) -> None:
        """Wait until something holds while the job goes on."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.is_running, f"{self._name} has ended:\n{self.end_of_said()}"
            assert time.monotonic() < deadline, f"{self._name} does not get there:\n{self.end_of_said()}"
            time.sleep(0.2)

    def _bronze_version(self) -> int:
        is_there = DeltaTable.is_deltatable(str(self._bronze))
        return DeltaTable(str(self._bronze)).version() if is_there else -1

    def kill(self) -> None:
        """End it at once, driver, JVM and all (SIGKILL)."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # where the driver is gone already, its JVM may live
        self._process.wait()

    def interrupt(self) -> int:
        """Ask it to end (SIGTERM), and give its exit code."""
        self._process.terminate()
        return self.wait(END_TIMEOUT_S)

    def wait(self, timeout_s: float = JOB_TIMEOUT_S) -> int:
        """Its exit code, once it has ended. It is killed where it takes longer."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self._name} does not end within {timeout_s:g} s:\n{self.end_of_said()}") from None

    def end_of_said(self) -> str:
        """Its last lines."""
        return "\n".join(self.said.splitlines()[-LINES_SHOWN:])


def capture_words(bootstrap_servers: str) -> list[str]:
    """What tells capture where to read the coordinators' topics."""
    topics = [word for topic in TOPICS for word in ("--topic", topic)]
    return ["--bootstrap-server", bootstrap_servers, *topics]
