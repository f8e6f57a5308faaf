"""Errors of the jobs: each becomes one line on stderr and an exit code, never a traceback (unless --debug)."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class JobError(Exception):
    """The job cannot be done. The text says what is wrong and, where there is one, the remedy."""

    exit_code: ClassVar[int] = 1


class SettingsError(JobError):
    """A setting is unknown, or its value is not allowed. Names the setting and where it was found."""

    exit_code: ClassVar[int] = 2


class ArgumentError(JobError):
    """An argument of the command line is wrong."""

    exit_code: ClassVar[int] = 2


class ClientPropertiesError(SettingsError):
    """A Java client's .properties file cannot be used. Names the file, the line and the key, never the value."""


class SourceError(JobError):
    """A source of logs cannot be read: no such folder, nothing in it, no right to read it."""


class BrokerError(SourceError):
    """A Kafka cluster cannot be reached, or refuses what is asked. `code` tells the kinds apart."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return _broker_error, (str(self), self.code)


def _broker_error(message: str, code: str) -> BrokerError:
    return BrokerError(message, code=code)


class WarehouseError(JobError):
    """A table cannot be read or written."""


NO_SPACE: Final = re.compile(r"no space left on device|os error 28\b|disk quota exceeded|os error 122\b", re.IGNORECASE)
"""As the C library, Java, Arrow and delta-rs say it."""


def is_no_space(error: BaseException) -> bool:
    """Does an error, or one that it came of, say that a disk or a quota is full?"""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in FULL or NO_SPACE.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def no_space_text(error: BaseException, one_line: str) -> str:
    """One line of a full disk, of an error that came through Spark or from it: a task names the table and the folder, a
    JVM neither."""
    _, named, rest = str(error).partition(NoSpaceLeft.BEGIN)
    if named:
        return named + rest.splitlines()[0]
    return f"no space left on device: free some, in the temporary folder too ({one_line})"


@contextmanager
def writing(what: str, folder: str) -> Iterator[None]:
    """What is written here, and where: a full disk is one line that names both. Raises WarehouseError."""
    try:
        yield
    except NoSpaceLeft:
        raise
    except Exception as error:
        if is_no_space(error):
            raise NoSpaceLeft(what, folder) from error
        raise


class NoSpaceLeft(WarehouseError):
    """A disk or a quota is full. Names what was to be written, and the folder."""

    BEGIN: ClassVar[str] = "no space left on device: cannot write"

    def __init__(self, what: str, folder: str) -> None:
        super().__init__(f"{self.BEGIN} {what} in {folder}. Free some space there and run the same command again")
        self._given = what, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return NoSpaceLeft, self._given


class TokenError(JobError):
    """No token could be had from the identity provider or the file. Holds neither token nor secret."""


class NotSubmittedError(JobError):
    """Spark runs without the settings which the jobs need."""


class StreamFailed(JobError):
    """A continuous capture cannot go on."""


class SimulateError(JobError):
    """The simulation cannot be made."""


class ScenarioFileError(SimulateError):
    """The scenario file cannot be read, or is none: names the file, the key and what to do. Nothing was written."""

    exit_code: ClassVar[int] = 2


class KafkaVersionError(SimulateError):
    """The rules of this release are not known. Nothing was written."""

    exit_code: ClassVar[int] = 2


class ExportError(JobError):
    """The export cannot be made."""


class CaptureConflict(WarehouseError):
    """Another capture of the cluster committed meanwhile. Nothing was doubled and nothing is lost: try again."""

    def __init__(self) -> None:
        super().__init__("another capture of this cluster ran at the same time: run this one again")


class SqlError(JobError):
    """The query cannot be run; the text is Spark's own, in one line."""


class WhatIfJobError(JobError):
    """What was asked cannot be answered."""


class WhatIfArgumentError(WhatIfJobError):
    """What was asked can never be answered."""

    exit_code = 2


class NoSuchGroupError(JobError):
    """Groups that were asked for by name are not there at that time."""
