"""Files that a command writes because its user named them: never in place of others, in a folder that is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from jobs.errors import ArgumentError


def require_new(path: str | None) -> None:
    """Raise ArgumentError, before there is an answer, for a file that is there, or that has no folder."""
    if path is not None and Path(path).expanduser().exists():
        raise ArgumentError(f"{path} is there already: name a new file, or remove it first")
    require_folder(path)


def require_folder(path: str | None) -> None:
    """Raise ArgumentError for a file that has no folder: its name may be mistyped."""
    if path and not (folder := Path(path).expanduser().parent).is_dir():
        raise ArgumentError(f"cannot write {path}: there is no folder {folder}: make it, or name another file")


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """A new file while it is written: of one that is not written whole nothing is left, since part of a file would
    reset some partitions, and its name would block the next attempt. Raises ArgumentError as `require_new`, and for one
    that cannot be written."""
    require_new(path)
    file = Path(path).expanduser()
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            try:
                yield out
                out.flush()
            except BaseException:
                file.unlink()
                raise
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}: name another file") from error
