"""The folder of a run's temporary files: one, locked, and gone with its process or with the next run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.spark.run_folder import UNFINISHED, delete_abandoned
from tests.conftest import PROJECT_ROOT

PROGRAM = """
import os, sys, tempfile
from jobs.spark.run_folder import use_run_folder
folder = use_run_folder()
assert use_run_folder() == folder
(folder / "liblz4.so").touch()
print(folder, tempfile.gettempdir(), os.environ["TMPDIR"], os.environ["PYSPARK_SUBMIT_ARGS"], sep="|", flush=True)
sys.stdin.readline()
"""


class Run:
    """A process that uses a run folder until its stdin says otherwise."""

    def __init__(self, base: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(base), "PYSPARK_SUBMIT_ARGS": "--name x pyspark-shell"}
        command = [sys.executable, "-c", PROGRAM]
        self.process = subprocess.Popen(
            command, cwd=PROJECT_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip().split("|")
        self.folder = Path(self.said[0])

    def end(self, signal_number: int | None = None) -> None:
        """By itself, or by a signal."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        self.process.communicate("")


def test_what_a_killed_run_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    """At once, and the folder of a run that is at work stays; one that ends by itself takes its own along."""
    at_work, killed = Run(tmp_path), Run(tmp_path)
    killed.end(signal.SIGKILL)
    assert (killed.folder / "liblz4.so").exists()
    following = Run(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([at_work.folder, following.folder])
    assert (at_work.folder / "liblz4.so").exists()
    at_work.end()
    following.end()
    assert list(tmp_path.iterdir()) == []


def test_python_and_the_jvm_are_reported(tmp_path: Path) -> None:
    """Workers inherit the variable, Spark gets an option in addition to the user's."""
    run = Run(tmp_path)
    run.end()
    options = f"--conf spark.driver.defaultJavaOptions=-Djava.io.tmpdir={run.folder} --name x pyspark-shell"
    assert run.said[1:] == [str(run.folder), str(run.folder), options]


def test_what_is_not_a_run_folder_stays(tmp_path: Path) -> None:
    """Other files, links, and a folder that a process is about to lock; one that it never locked goes some day."""
    (tmp_path / "other").mkdir()
    (tmp_path / "groupledger-file").touch()
    (tmp_path / "groupledger-link").symlink_to(tmp_path / "other")
    (tmp_path / f"{UNFINISHED}young").mkdir()
    (tmp_path / f"{UNFINISHED}old").mkdir()
    os.utime(tmp_path / f"{UNFINISHED}old", (0, 0))
    delete_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "other",
        "groupledger-file",
        "groupledger-link",
        f"{UNFINISHED}young",
    }


def test_the_jvm_puts_its_files_there(spark: SparkSession) -> None:
    """Native libraries, and Spark's blocks where no setting says otherwise."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getProperty("java.io.tmpdir") == os.environ["TMPDIR"]
