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


class NoSuchColumn(SettingsError):
    """A condition is about a column that none of the known ones is."""


class SourceError(JobError):
    """A source of logs cannot be read."""


class NoSuchSource(SourceError):
    """A folder or dump that was named is not there, or has nothing to read."""

    exit_code: ClassVar[int] = 2


class BrokerError(SourceError):
    """A Kafka cluster cannot be reached, or denies a request. `code` distinguishes the cases."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), code=self.code), (str(self),)


class WarehouseError(JobError):
    """A table cannot be read or written."""


class TableDamaged(WarehouseError):
    """A file of a table is gone, or is not what was written. Names the table, the file, and what is wrong with it;
    `jobs.operations.damage` adds the remedy."""

    WORDS: ClassVar[re.Pattern[str]] = re.compile(r"(\w+\.\w+) is damaged: (.+): ([^:\n]+)")

    def __init__(self, table: str, path: str, fault: str) -> None:
        super().__init__(f"{table} is damaged: {path}: {fault}")
        self.table, self.path, self.fault = table, path, fault

    @property
    def is_of_log(self) -> bool:
        """Is it a file of Delta's log? Then no rows of the table can be read, of any cluster."""
        return "/_delta_log" in self.path

    def __reduce__(self) -> tuple[Any, ...]:
        return TableDamaged, (self.table, self.path, self.fault)

    @classmethod
    def of(cls, error: BaseException) -> "TableDamaged | None":
        """The damage that an error, or one of its causes, is about: Spark passes an error of a task on as text."""
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, TableDamaged):
                return seen
            named = cls.WORDS.search(str(seen))
            if named is not None:
                return cls(*named.groups())
            seen = seen.__cause__ or seen.__context__
        return None


OUTSIDE: Final = (MemoryError, OSError, JobError)
"""Errors of the machine or the warehouse: no group's records are at fault."""
REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NOT_ALLOWED: Final = re.compile(
    r"permission denied|os error 13\b|operation not permitted|os error 1\b|read-only file system|os error 30\b",
    re.IGNORECASE,
)
NO_SPACE: Final = re.compile(r"no space left on device|os error 28\b|disk quota exceeded|os error 122\b", re.IGNORECASE)
"""Messages of the C library, Java, Arrow and delta-rs."""


def is_no_space(error: BaseException) -> bool:
    """Does an error, or one of its causes, mean that a disk or quota is full?"""
    return _is_of(error, FULL, NO_SPACE)


def _is_of(error: BaseException, numbers: frozenset[int], messages: re.Pattern[str]) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in numbers or messages.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def named_text(error: BaseException) -> str | None:
    """What a task, in whatever error of Spark's, says that it could not write; None where it says no such thing."""
    for begin in (NoSpaceLeft.BEGIN, NotWritable.BEGIN):
        _, named, rest = str(error).partition(begin)
        if named:
            return named + rest.splitlines()[0]
    return None


def no_space_text(error: BaseException, one_line: str) -> str:
    """The message for a full disk, for errors in or through Spark: the error of a task names the table and folder, that
    of a JVM names neither.
    """
    return named_text(error) or f"no space left on device: free some, in the temporary folder too ({one_line})"


@contextmanager
def writing(what: str, folder: str) -> Iterator[None]:
    """Context for writing `what` into `folder`: a full disk, or a folder that must not be written, becomes one line
    that names both. Raises WarehouseError."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        if is_no_space(error):
            raise NoSpaceLeft(what, folder) from error
        if _is_of(error, REFUSED, NOT_ALLOWED):
            raise NotWritable(what, folder) from error
        raise


class NoSpaceLeft(WarehouseError):
    """A disk or quota is full. Names what was to be written, and the folder."""

    BEGIN: ClassVar[str] = "no space left on device: cannot write"

    def __init__(self, what: str, folder: str) -> None:
        super().__init__(f"{self.BEGIN} {what} in {folder}. Free some space there and run the same command again")
        self._given = what, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return NoSpaceLeft, self._given


class NotWritable(WarehouseError):
    """A folder is read-only, or not this user's to write. Names what was to be written, and the folder."""

    BEGIN: ClassVar[str] = "not writable: cannot write"

    def __init__(self, what: str, folder: str) -> None:
        super().__init__(
            f"{self.BEGIN} {what} in {folder}, which is read-only, or where this user may not write. Change that, or "
            "name another --warehouse"
        )
        self._given = what, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return NotWritable, self._given


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


class ExportError(ArgumentError):
    """There is nothing to export under that name, or no place for it."""


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


class NoSuchGroupError(ArgumentError):
    """Groups that were requested by name do not exist at that time."""
