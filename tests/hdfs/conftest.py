"""A real HDFS in a process of its own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.maven import Unavailable, jars_and_classes, jdk_tool

HERE: Final = Path(__file__).resolve().parent
END_TIMEOUT_S: Final = 30


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, as hdfs://127.0.0.1:PORT. It ends with the tests: when its standard input does."""
    try:
        jars, classes = jars_and_classes("hdfs", HERE / "pom.xml", [HERE / "MiniHdfs.java"])
    except Unavailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("hdfs")
    command = [jdk_tool("java"), "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{classes}{os.pathsep}{jars}/*", "MiniHdfs"]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(
            [*command, str(folder / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "said").read_text()
        yield address
        process.communicate(timeout=END_TIMEOUT_S)
