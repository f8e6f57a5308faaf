"""Progress and results of a job, on stderr, so that stdout has only answers."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from time import perf_counter
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from coordinator_core.text import duration_text
from jobs.console.names import LINE_CHARACTERS_MAX
from jobs.console.output import folded_text, printable, room_for
from jobs.console.running import RunningStage, running_stage

POLL_SECONDS: Final = 0.2
TELLING_SECONDS: Final = 2.0
"""Before this time, rates and remaining time are too uncertain to be shown."""


class Runs(Protocol):
    """What runs tasks: `jobs.spark.executors.Executor`."""

    def task_counts(self) -> tuple[int, int]:
        """(done, all) tasks of what runs now."""
        ...


class Steps:
    """Prints the steps of a job: a live line on a terminal, else one plain line each."""

    def __init__(self, executor: Runs | None = None, console: Console | None = None) -> None:
        self._executor = executor
        # without a terminal, wide enough for any table
        width = None if sys.stderr.isatty() else 160
        self._console = console or Console(stderr=True, highlight=False, emoji=False, width=width)
        self._answers = console or Console(highlight=False, emoji=False)
        self._is_quiet = False
        self._has_tables = True
        self.facts: dict[str, Any] = {}
        """What was printed, for other programs: plain values with stable names."""

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def show(self, *, is_quiet: bool, has_tables: bool, is_answered: bool) -> None:
        """Choose what is printed: nothing at all; tables, too; answers on stdout, or there as all else."""
        self._is_quiet, self._has_tables = is_quiet, has_tables
        if not is_answered:
            self._answers = self._console

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Context of a step; on a terminal it shows the running Spark stage: share done, rate, and time left."""
        started = perf_counter()
        if self._console.is_terminal and not self._is_quiet:
            with _Line(name, self._executor, self._console):
                yield
        else:
            yield
        self.say(f"{name}: {perf_counter() - started:.1f} s")

    def say(self, text: str) -> None:
        """Print one line literally: names are not interpreted as markup or emoji codes, and line feeds are escaped."""
        self._print(self._console, text)

    def answer(self, text: str) -> None:
        """Print one line likewise, on stdout: what the job was run for."""
        self._print(self._answers, text)

    def _print(self, console: Console, text: str) -> None:
        if not self._is_quiet:
            console.print(folded_text(printable(text), console.file), markup=False, emoji=False, soft_wrap=True)

    @property
    def width(self) -> int:
        """Of a line of an answer, in characters."""
        return min(room_for(self._answers.file) or LINE_CHARACTERS_MAX, LINE_CHARACTERS_MAX)

    def table(self, table: RichTable) -> None:
        """Print a table, at the end of a job."""
        if self._has_tables and not self._is_quiet:
            self._console.print(table)


class _Line:
    """A progress line for the running Spark stage."""

    def __init__(self, name: str, executor: Runs | None, console: Console) -> None:
        self._executor = executor
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[printed]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._name = name
        self._task = self._progress.add_task(name, total=None, printed="")
        self._pace = Pace()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._progress.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._progress.stop()

    def _follow(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            now = running_stage()
            if now is not None and now.total_bytes:
                printed = self._pace.printed(now, perf_counter())
                self._show(now.what, now.done_bytes, now.total_bytes, printed)
            elif self._executor is not None:
                done, total = self._executor.task_counts()
                what = now.what if now is not None else ""
                self._show(what, done, total, f"{done:,} of {total:,} tasks" if total else "")

    def _show(self, what: str, done: int, total: int, printed: str) -> None:
        description = f"{self._name}: {what}" if what else self._name
        self._progress.update(self._task, description=description, completed=done, total=total or None, printed=printed)


class Pace:
    """The rate of tasks, and the time left at this rate."""

    def __init__(self) -> None:
        self._of: RunningStage | None = None
        self._since = 0.0

    def printed(self, now: RunningStage, at: float) -> str:
        """In words; `at`: seconds of any monotonic clock."""
        if now is not self._of:
            self._of, self._since = now, at
        seconds, done = at - self._since, now.done_bytes
        printed = f"{size_text(done)} of {size_text(now.total_bytes)}"
        if not done or seconds < TELLING_SECONDS:
            return printed
        left = (now.total_bytes - done) * seconds / done
        return f"{printed}, {size_text(done / seconds)}/s, {duration_text(1000 * ceil(left))} left"


def summary_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> RichTable:
    """A table for people: first column left-aligned, numbers right-aligned with separators."""
    table = RichTable(title=title, title_justify="left", title_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def size_text(size_bytes: float) -> str:
    """A size for people: 12 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
