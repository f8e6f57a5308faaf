"""Errors of the jobs: each becomes one line on stderr and an exit code, never a traceback (unless --debug)."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class JobError(Exception):
    """The job cannot be done. The message says what is wrong and, if there is one, the remedy."""

    exit_code: ClassVar[int] = 1


class SettingsError(JobError):
    """A setting is unknown or has an invalid value. Names the setting and where it was found."""

    exit_code: ClassVar[int] = 2


class ArgumentError(JobError):
    """An argument of the command line is wrong."""

    exit_code: ClassVar[int] = 2


class ClientPropertiesError(SettingsError):
    """A Java client's .properties file cannot be used. Names the file, line and key, never the value."""


class SourceError(JobError):
    """A source of logs cannot be read: the folder does not exist, is empty, or is not readable."""


class BrokerError(SourceError):
    """A Kafka cluster cannot be reached, or denies a request. `code` distinguishes the cases."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), code=self.code), (str(self),)


class WarehouseError(JobError):
    """A table cannot be read or written."""


NO_SPACE: Final = re.compile(r"no space left on device|os error 28\b|disk quota exceeded|os error 122\b", re.IGNORECASE)
"""Messages of the C library, Java, Arrow and delta-rs."""


def is_no_space(error: BaseException) -> bool:
    """Does an error, or one of its causes, mean that a disk or quota is full?"""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in FULL or NO_SPACE.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def no_space_text(error: BaseException, one_line: str) -> str:
    """The message for a full disk, for errors in or through Spark: the error of a task names the table and folder, that
    of a JVM names neither.
    """
    _, named, rest = str(error).partition(NoSpaceLeft.BEGIN)
    if named:
        return named + rest.splitlines()[0]
    return f"no space left on device: free some, in the temporary folder too ({one_line})"


@contextmanager
def writing(what: str, folder: str) -> Iterator[None]:
    """Context for writing `what` into `folder`: a full disk becomes one line that names both. Raises WarehouseError."""
    try:
        yield
    except NoSpaceLeft:
        raise
    except Exception as error:
        if is_no_space(error):
            raise NoSpaceLeft(what, folder) from error
        raise


class NoSpaceLeft(WarehouseError):
    """A disk or quota is full. Names what was to be written, and the folder."""

    BEGIN: ClassVar[str] = "no space left on device: cannot write"

    def __init__(self, what: str, folder: str) -> None:
        super().__init__(f"{self.BEGIN} {what} in {folder}. Free some space there and run the same command again")
        self._given = what, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return NoSpaceLeft, self._given


class TokenError(JobError):
    """The identity provider or the file gave no token. Contains no token or secret."""


class NotSubmittedError(JobError):
    """Spark was started without the settings that the jobs need."""


class SimulateError(JobError):
    """The simulation cannot run."""


class ScenarioFileError(SimulateError):
    """The scenario file is unreadable or invalid: names the file, the key and the remedy. Nothing was written."""

    exit_code: ClassVar[int] = 2


class KafkaVersionError(SimulateError):
    """The rules of this Kafka release are not known. Nothing was written."""

    exit_code: ClassVar[int] = 2


class ExportError(JobError):
    """The export cannot run."""


class CaptureConflict(WarehouseError):
    """Another capture of the cluster committed meanwhile. Nothing is duplicated or lost: try again."""

    def __init__(self) -> None:
        super().__init__("another capture of this cluster ran at the same time: run this one again")


class SqlError(JobError):
    """The query failed; the message is the engine's own, in one line."""


class StatementError(SqlError):
    """The statement is wrong, or does more than read."""

    exit_code: ClassVar[int] = 2


class WhatIfJobError(JobError):
    """The question cannot be answered from this ledger."""


class WhatIfArgumentError(WhatIfJobError):
    """The question can never be answered."""

    exit_code = 2


class NoSuchGroupError(JobError):
    """Groups that were requested by name do not exist at that time."""
