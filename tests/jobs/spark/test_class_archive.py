"""The archive of Spark's classes, written and mapped by true JVMs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT, takes_minutes


@takes_minutes
@pytest.mark.slow
@pytest.mark.spark
def test_a_jvm_maps_what_one_before_it_left(tmp_path: Path) -> None:
    """The second one would not start if the archive of the first did not fit it (-Xshare:on)."""
    archive = tmp_path / "spark.jsa"
    for options in (f"-XX:ArchiveClassesAtExit={archive}", f"-Xshare:on -XX:SharedArchiveFile={archive}"):
        environment = os.environ | {
            "PYTHONPATH": str(PROJECT_ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {PROJECT_ROOT}/conf/spark-defaults.conf pyspark-shell",
            "SPARK_SUBMIT_OPTS": options,
        }
        done = subprocess.run(
            [sys.executable, "-m", "jobs.spark.class_archive"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert archive.exists()
