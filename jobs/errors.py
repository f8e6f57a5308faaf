"""Errors of the jobs: each becomes one line on stderr and an exit code, never a traceback (unless --debug)."""

from typing import Any, ClassVar


class JobError(Exception):
    """The job cannot be done. The text says what is wrong and, where there is one, the remedy."""

    exit_code: ClassVar[int] = 1


class SettingsError(JobError):
    """A setting is unknown, or its value is not allowed. Names the setting and where it was found."""

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
