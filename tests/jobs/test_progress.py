"""Progress: plain lines where nobody watches, a moving line on a terminal, and tables that people can read."""

import io
from time import sleep

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs import progress
from jobs.progress import Steps, size_text, summary_table, tasks_of


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


def test_a_terminal_sees_the_step_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the step and the tasks done, and is gone when the step is."""
    monkeypatch.setattr(progress, "tasks_of", lambda _: (3, 8))
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    with Steps(object(), console).step("replay"):  # type: ignore[arg-type]
        sleep(0.4)
    assert "replay" in out.getvalue()
    assert "3/8" in out.getvalue()


def test_an_error_ends_the_line_and_goes_on() -> None:
    """A step that fails leaves no thread and no line."""
    out = io.StringIO()
    steps = Steps(console=Console(file=out, width=80, force_terminal=True))
    with pytest.raises(ValueError, match="stop"), steps.step("x"):
        raise ValueError("stop")
    assert "x: " not in out.getvalue()


@pytest.mark.spark
def test_no_tasks_run_between_jobs(spark: SparkSession) -> None:
    """Nothing is counted when nothing runs."""
    assert tasks_of(spark) == (0, 0)


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
