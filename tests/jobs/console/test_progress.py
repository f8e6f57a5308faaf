"""Progress: plain lines where nobody watches, a moving line on a terminal, and tables that people can read."""

import io
from time import sleep
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.console import progress
from jobs.console.progress import Pace, Steps, size_text, summary_table
from jobs.console.running import RunningStage, running_stage
from jobs.spark.executors import InProcess, SparkExecutor
from jobs.spark.tasks import run_tasks


@pytest.fixture(autouse=True)
def _able_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves on a dumb terminal, such as that of an editor or a cron job may be."""
    monkeypatch.setenv("TERM", "xterm")


def test_plain_output_is_one_line_a_step() -> None:
    """A log file gets the step and its time, nothing that moves; markup in a text is text."""
    out = io.StringIO()
    steps = Steps(console=Console(file=out, width=40))
    with steps.step("capture"):
        pass
    steps.say("group [bold]x[/bold] " + "long " * 20)
    lines = out.getvalue().splitlines()
    assert lines[0] == "capture: 0.0 s"
    assert lines[1].startswith("group [bold]x[/bold] long long")
    assert len(lines) == 2
    assert "\x1b" not in out.getvalue()


def test_a_table_says_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What looks like an emoji's code in a name is a name."""
    Steps().table(summary_table("captured", ("topic", "size"), [("a :warning: b", "1 B")]))
    assert "a :warning: b" in capsys.readouterr().err


def test_a_terminal_sees_the_step_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the step and the tasks done, and is gone when the step is."""
    monkeypatch.setattr(InProcess, "task_counts", lambda _: (3, 8))
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    with Steps(InProcess(), console).step("replay"):
        sleep(0.4)
    assert "replay" in out.getvalue()
    assert "3 of 8 tasks" in out.getvalue()


class Counter(NamedTuple):
    """An accumulator, as far as progress looks at it."""

    value: int


def test_a_terminal_sees_what_is_done_and_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tasks know their sizes, the line tells bytes, in the words of what is being done."""
    now = RunningStage("share state", 4_000_000, Counter(1_000_000))  # type: ignore[arg-type]
    monkeypatch.setattr(progress, "running_stage", lambda: now)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    out = io.StringIO()
    with Steps(None, Console(file=out, width=100, force_terminal=True)).step("replay"):
        sleep(0.4)
    assert "replay: share state" in out.getvalue()
    assert "1.0 MB of 4.0 MB" in out.getvalue()


def test_the_pace_and_the_time_left() -> None:
    """Both follow from what was done since the tasks began; at first, and before anything is done, neither is shown."""
    pace = Pace()
    begun = RunningStage("x", 90_000_000, Counter(0))  # type: ignore[arg-type]
    on = RunningStage("y", 90_000_000, Counter(30_000_000))  # type: ignore[arg-type]
    assert pace.printed(begun, 100.0) == pace.printed(begun, 110.0) == "0 B of 90.0 MB"
    assert pace.printed(on, 200.0) == pace.printed(on, 201.0) == "30.0 MB of 90.0 MB"
    assert pace.printed(on, 210.0) == "30.0 MB of 90.0 MB, 3.0 MB/s, 20 s left"
    assert pace.printed(on, 500.0) == "30.0 MB of 90.0 MB, 100.0 kB/s, 10 min left"


class Piece(NamedTuple):
    """Work that knows its size."""

    size_bytes: int


def half(piece: Piece) -> int:
    """Work done."""
    return piece.size_bytes // 2


class Kept(list[RunningStage]):
    """Forgets nothing."""

    def remove(self, item: RunningStage) -> None:
        """Keep it."""


def test_tasks_count_the_bytes_they_did(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of tasks is shown with the bytes of those that ended, and no longer than they run."""
    pieces = [Piece(10), Piece(20), Piece(30)]
    assert run_tasks(SparkExecutor(spark), half, pieces) == [5, 10, 15]
    assert running_stage() is None
    monkeypatch.setattr("jobs.console.running._stages", kept := Kept())
    run_tasks(SparkExecutor(spark), half, pieces, "halving")
    assert [(now.what, now.done_bytes, now.total_bytes) for now in kept] == [("halving", 60, 60)]


def test_an_error_ends_the_line_and_goes_on() -> None:
    """A step that fails leaves no thread and no line."""
    out = io.StringIO()
    steps = Steps(console=Console(file=out, width=80, force_terminal=True))
    with pytest.raises(ValueError, match="stop"), steps.step("x"):
        raise ValueError("stop")
    assert "x: " not in out.getvalue()


def test_no_tasks_run_between_jobs(spark: SparkSession) -> None:
    """Nothing is counted when nothing runs."""
    assert SparkExecutor(spark).task_counts() == (0, 0)


def test_summary_table_is_aligned() -> None:
    """Numbers have separators and stand to the right, null is empty."""
    out = io.StringIO()
    Console(file=out, width=60).print(summary_table("done", ("topic", "rows"), [("a", 1234567), ("b", None)]))
    shown = out.getvalue()
    assert "done" in shown
    assert "│ a     │ 1,234,567 │" in shown
    assert "│ b     │           │" in shown


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (857549665, "857.5 MB"), (2e15, "2000.0 TB")]
)
def test_sizes_for_people(size_bytes: float, text: str) -> None:
    """Bytes in the unit that fits."""
    assert size_text(size_bytes) == text
