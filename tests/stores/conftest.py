"""Stores in processes of their own: a real HDFS, and a real S3 (MinIO), whose conditional puts are atomic."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyarrow import fs

from tests.lengths import takes_minutes
from tests.maven import CACHE, Unavailable, jars_and_classes, jdk_tool, locked

HERE: Final = Path(__file__).resolve().parent
END_TIMEOUT_S: Final = 30
START_TIMEOUT_S: Final = 30
BUILD_TIMEOUT_S: Final = 900
MINIO: Final = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
SECRET: Final = "of-the-tests-alone"


@pytest.fixture(scope="session", params=["hdfs", pytest.param("s3", marks=takes_minutes)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an empty folder there. The servers end with the tests."""
    start = {"hdfs": _hdfs, "s3": _s3}[request.param]
    try:
        with start(tmp_path_factory.mktemp(request.param)) as address:
            yield address
    except Unavailable as error:
        pytest.skip(str(error))


@contextmanager
def _hdfs(folder: Path) -> Iterator[str]:
    jars, classes = jars_and_classes("hdfs", HERE / "pom.xml", [HERE / "MiniHdfs.java"])
    command = [
        jdk_tool("java"),
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{classes}{os.pathsep}{jars}/*",
        "MiniHdfs",
    ]
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
        # it ends when its standard input does
        process.communicate(timeout=END_TIMEOUT_S)


def _minio() -> Path:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no go: MinIO is built from its Go module")
    with locked(CACHE / "minio.lock"):
        folder = CACHE / f"minio-{MINIO.rpartition('-')[2]}"
        if not (folder / "minio").exists():
            built = subprocess.run(
                [go, "install", MINIO],
                env=os.environ | {"GOBIN": str(folder)},
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if built.returncode:
                raise Unavailable(f"Go cannot build MinIO: {built.stderr.strip().splitlines()[-1]}")
    return folder / "minio"


@contextmanager
def _s3(folder: Path) -> Iterator[str]:
    program = _minio()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_clients = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "groupledger",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        (folder / "said").open("w") as said,
        subprocess.Popen(
            [program, "server", "--address", f"127.0.0.1:{port}", "--console-address", "127.0.0.1:0", folder / "data"],
            env={**os.environ, "MINIO_ROOT_USER": "groupledger", "MINIO_ROOT_PASSWORD": SECRET},
            stdout=said,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        for name, value in of_clients.items():
            patch.setenv(name, value)
        try:
            _make_bucket(of_clients["AWS_ENDPOINT_URL"], folder / "said")
            yield "s3://bucket"
        finally:
            process.terminate()


def _make_bucket(endpoint: str, said: Path) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True).create_dir("bucket")
        except OSError:
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.2)
        else:
            return
