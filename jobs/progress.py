"""What a job tells while it runs and when it is done: on stderr, so that stdout holds answers only."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

POLL_SECONDS: Final = 0.2


def stderr_console() -> Console:
    """Where progress goes. On a terminal it is as wide as that, else wide enough for any table."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 160)


class Steps:
    """Names the steps of a job as they happen: a moving line on a terminal, one plain line each elsewhere."""

    def __init__(self, session: SparkSession | None = None, console: Console | None = None) -> None:
        self._session = session
        self._console = console or stderr_console()

    @property
    def is_terminal(self) -> bool:
        """Is somebody looking?"""
        return self._console.is_terminal

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step; on a terminal with the number of Spark tasks done so far."""
        started = perf_counter()
        if self._console.is_terminal:
            with _Line(name, self._session, self._console):
                yield
        else:
            yield
        self.say(f"{name}: {perf_counter() - started:.1f} s")

    def say(self, text: str) -> None:
        """One line, as it is: what looks like markup in a name is a name."""
        self._console.print(text, markup=False, soft_wrap=True)

    def table(self, table: RichTable) -> None:
        """A table, at the end of a job."""
        self._console.print(table)


class _Line:
    """A progress line which follows the running Spark stage."""

    def __init__(self, name: str, session: SparkSession | None, console: Console) -> None:
        self._session = session
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(name, total=None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._progress.stop()

    def _follow(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            if self._session is not None:
                done, total = tasks_of(self._session)
                self._progress.update(self._task, completed=done, total=total or None)


def tasks_of(session: SparkSession) -> tuple[int, int]:
    """(done, all) Spark tasks of the stages which run now."""
    tracker = session.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    running = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in running), sum(info.numTasks for info in running)


def summary_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> RichTable:
    """A table for people: the first column to the left, numbers with separators to the right."""
    table = RichTable(title=title, title_justify="left", title_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def size_text(size_bytes: float) -> str:
    """Bytes for people: 12 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
