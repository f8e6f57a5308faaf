"""File systems of paths and URIs."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Final

from pyarrow import fs

from jobs.errors import REFUSED, NotWritable
from schemas.tables import TABLES

HADOOP_SCHEMES: Final = frozenset({"hdfs", "viewfs"})
"""Stores that pyarrow can reach only with Hadoop's native libraries, and delta-rs without them."""

S3_SCHEMES: Final = frozenset({"s3", "s3a"})


@cache
def _hadoop_filesystem(authority: str) -> fs.FileSystem:
    from jobs.delta.hadoop import HadoopHandler  # noqa: PLC0415  (it needs delta-rs, and a replay of DataFrames does not)

    return fs.PyFileSystem(HadoopHandler(authority + "/"))


@cache
def _s3_filesystem(endpoint: str) -> fs.FileSystem:
    """S3 at the endpoint of an environment variable, which delta-rs reads by itself and pyarrow does not."""
    return fs.S3FileSystem(endpoint_override=endpoint)


def filesystem_of(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI or an absolute local path, and the path within it."""
    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    scheme, _, rest = uri.partition("://")
    if scheme in HADOOP_SCHEMES:
        name_node, _, path = rest.partition("/")
        return _hadoop_filesystem(f"{scheme}://{name_node}"), path
    if scheme in S3_SCHEMES and (
        endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    ):
        return _s3_filesystem(endpoint), rest
    # Hadoop calls S3 s3a; pyarrow calls it s3
    filesystem, path = fs.FileSystem.from_uri("s3://" + uri[len("s3a://") :] if uri.startswith("s3a://") else uri)
    return filesystem, path


def table_of(path: str) -> tuple[str, str] | None:
    """The warehouse, and the full name of the table, to which a path belongs; None: it belongs to none."""
    parts = path.split("/")
    for place in range(len(parts) - 2, -1, -1):
        name = ".".join(parts[place : place + 2])
        if name in TABLES:
            return "/".join(parts[:place]), name
    return None


def require_writable(folder: str) -> None:
    """Raise NotWritable where a local folder, or the nearest existing one above it, cannot be written. Creates
    nothing."""
    if "://" in folder:
        return
    path = Path(folder).absolute()
    there = next(it for it in (path, *path.parents) if it.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        if error.errno in (*REFUSED, errno.ENOENT):
            raise NotWritable("the warehouse", str(there)) from error


def delete_folder(folder: str) -> None:
    """Delete a folder and its contents, given as path or URI, if it exists."""
    filesystem, path = filesystem_of(folder)
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        filesystem.delete_dir(path)


def delete_file(path: str) -> None:
    """Delete a file, given as path or URI, if it exists."""
    filesystem, path = filesystem_of(path)
    if filesystem.get_file_info(path).type == fs.FileType.File:
        filesystem.delete_file(path)


def spark_uri(path: str) -> str:
    """A path for Hadoop: local ones become escaped file URIs, since `:`, `%` and spaces have a meaning there."""
    if "://" in path:
        return path
    # one slash, as Hadoop itself writes it: Delta compares the strings
    return "file:" + path


def write_whole(file: Path, data: bytes) -> None:
    """Write a local file as `whole_file` does."""
    with whole_file(file) as out:
        out.write(data)


@contextmanager
def whole_file(file: Path) -> Iterator[IO[bytes]]:
    """A local file while it is written, which then takes the place of the former one: concurrent readers see that, and
    it stays if writing fails. A link stays, and a device or a pipe is written to."""
    file = file.resolve()
    if file.exists() and not (file.is_file() or file.is_dir()):
        with file.open("wb") as out:
            yield out
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(number, "wb") as out:
            yield out
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
