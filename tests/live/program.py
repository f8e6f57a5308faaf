"""A Java program of the tests in a process of its own: commands go in, answers come out, a JSON object a line each.

The process ends when its standard input does (java/Commands.java): also where the test run is killed.
"""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final, Self

ANSWER_TIMEOUT_S: Final = 90
END_TIMEOUT_S: Final = 20
STARTS_MAX: Final = 3
LOG_LINES_SHOWN: Final = 30
BACKSLASH: Final = "\\"


class ProgramError(Exception):
    """The program did not start, did not answer, or answered with an error."""


class Running:
    """What runs until `stop`, or until its `with` block is left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it in order."""
        raise NotImplementedError


class JavaProgram(Running):
    """A running program; leave the `with` block, or call `stop`, to end it."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        """Start it, without waiting for its first answer (`answer`). What it says of itself is added to `log`."""
        self.log = log
        with log.open("a") as written:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, text=True, cwd=folder
            )

    @property
    def process_id(self) -> int:
        """Of the program's process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def ask(self, command: Mapping[str, Any], timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Send a command and give its answer. Raises ProgramError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ProgramError(f"the program has ended\n{self._end_of_log()}") from error
        return self.answer(timeout_s)

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """The next answer. Without one in time the program is killed, and ProgramError raised."""
        assert self._process.stdout is not None
        timer = Timer(timeout_s, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise ProgramError(f"no answer within {timeout_s:g} s, or the program ended\n{self._end_of_log()}")
        answer = json.loads(line)
        if "ok" not in answer:
            raise ProgramError(f"{answer.get('error', line)}\n{self._end_of_log()}")
        return answer["ok"]

    def stop(self) -> None:
        """Let it end in order; where that takes too long, kill it."""
        if self.is_running:
            try:
                self.ask({"do": "stop"})
            except ProgramError:
                self._process.kill()
        self._end()

    def kill(self) -> None:
        """End it at once, as a power cut would (SIGKILL)."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        """Close what ties the process to this one, and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # of a command which it will not read any more
                    pipe.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])


def start_on_free_port(launch: Callable[[], JavaProgram], wait: Callable[[JavaProgram], object]) -> JavaProgram:
    """Launch a program and wait until it serves: its port may be taken by another process before it has it, or not be
    given back yet. Raises ProgramError."""
    for start in range(1, STARTS_MAX + 1):
        program = launch()
        try:
            wait(program)
        except ProgramError:
            program.kill()
            if start == STARTS_MAX or "Address already in use" not in program.log.read_text(errors="replace"):
                raise
            time.sleep(1)
        else:
            return program
    raise AssertionError("the last try returns or raises")


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Write a Java properties file; values are plain text without line ends. Gives the path."""
    lines = (f"{name}={str(value).replace(BACKSLASH, 2 * BACKSLASH)}\n" for name, value in settings.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path
