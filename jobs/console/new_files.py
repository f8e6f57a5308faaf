"""Files that a command writes because its user named them: never in place of others."""

from pathlib import Path
from typing import Final

from jobs.errors import ArgumentError

THERE_ALREADY: Final = "{path} is there already: name a new file, or remove it first"


def write_new(path: Path, text: str) -> None:
    """Write a text into a new file. Raises ArgumentError for one that is there, or that cannot be written."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                # a partial file would reset only some partitions, and its name would block the next attempt
                path.unlink()
                raise
    except FileExistsError as error:
        raise ArgumentError(THERE_ALREADY.format(path=path)) from error
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}: name another file") from error
