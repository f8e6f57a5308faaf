"""What machines of a cluster get besides Spark."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from jobs.spark.cluster_archives import pack_environment
from tools.recordings import extract


def test_an_environment_works_where_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python finds its packages, also if the environment was found through a link; Spark's are left out."""
    made, there = tmp_path / "made", tmp_path / "there" / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    (packages,) = made.glob("lib/python3*/site-packages")
    for name in ("mine", "pyspark", "pyspark-4.2.0.dist-info", "mine/__pycache__"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("at = __file__\n")
    link = tmp_path / "link"
    link.symlink_to(made)
    monkeypatch.setattr(sys, "prefix", str(link))
    pack_environment(tmp_path / "environment.tar.gz")
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        extract(archive, there, is_trusted=True)
    asked = [str(there / "bin" / "python"), "-c", "import mine; print(mine.at)"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True, env={})
    (unpacked,) = there.glob("lib/python3*/site-packages")
    assert done.stdout == f"{unpacked}/mine/__init__.py\n"
    assert sorted(path.name for path in unpacked.iterdir()) == ["mine"]
