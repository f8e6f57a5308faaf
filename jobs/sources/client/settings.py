"""Typed access to client settings; errors name file and line, and notes collect what the user should know."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobs.errors import ClientPropertiesError
from jobs.sources.client.java_properties import PropertiesFile, printable, read_bounded

STORE_BYTES_MAX: Final = 16 << 20
JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that String.trim removes; Kafka trims every value."""


@dataclass(slots=True)
class ClientSettings:
    """Settings, trimmed as in Kafka. Values may be secrets: they are in no repr, error or note."""

    file: PropertiesFile
    notes: list[str] = field(default_factory=list)
    """What the user should know, one line each."""
    values: Mapping[str, str] = field(init=False, repr=False)
    _used: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.values = {key: value.strip(JAVA_BLANKS) for key, value in self.file.values.items()}

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, default: str = "") -> str:
        """A value, or the default if the key is missing."""
        self._used.add(key)
        return self.values.get(key, default)

    def unused(self) -> list[str]:
        """The keys that were never read, sorted."""
        return sorted(set(self.values) - self._used)

    def names(self, key: str) -> tuple[str, ...]:
        """A comma-separated list of names; empty if the key is missing or has no value."""
        return tuple(name.strip() for name in self.get(key).split(",") if name.strip())

    def number(self, key: str, least: int, most: int) -> int | None:
        """An integer within bounds; None if the key is missing. Raises ClientPropertiesError."""
        if key not in self:
            return None
        text = self.get(key)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(text) <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}")
        return int(text)

    def error(self, key: str, reason: str) -> ClientPropertiesError:
        """The error for a setting; `reason` must not contain a secret."""
        return self.file.error(key, reason)

    def note(self, key: str, text: str) -> None:
        """Add a note for the user."""
        self.notes.append(f"{self.file.name}: {printable(key)}: {text}")

    def check_path(self, key: str) -> None:
        """Check a setting that names a file: no URL, and no path of another machine. Raises ClientPropertiesError."""
        text = self.values[key]
        if not text:
            raise self.error(key, "is empty: name a file or leave it out")
        if "://" in text or text.lower().startswith(("file:", "jar:", "classpath:")):
            raise self.error(key, "must be the path of a file, not a URL")
        if text.startswith(("\\\\", "//")):
            raise self.error(key, "must be the path of a file on this machine, not of another one")
        if not text.isprintable():
            raise self.error(key, "holds control characters")

    def read(self, key: str) -> bytes:
        """The content of the file that a setting names: at its path, or by name among spark-submit's --files.

        Raises ClientPropertiesError.
        """
        self.check_path(key)
        path = find_file(self.get(key))
        try:
            return read_bounded(path, printable(str(path), 300), STORE_BYTES_MAX)
        except ClientPropertiesError as error:
            raise self.error(key, str(error)) from None


def find_file(path: str) -> Path:
    """A file at its path; if it does not exist, by its name among spark-submit's --files."""
    found = Path(path)
    if os.path.lexists(found) or "pyspark" not in sys.modules:
        return found
    from pyspark import SparkFiles  # noqa: PLC0415

    try:
        brought = Path(SparkFiles.getRootDirectory()) / found.name
    except Exception:  # no Spark in this process
        return found
    return brought if brought.is_file() else found
