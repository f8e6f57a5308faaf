"""Errors of the jobs: each becomes one line on stderr and an exit code, never a traceback (unless --debug)."""

from typing import ClassVar


class JobError(Exception):
    """The job cannot be done. The text says what is wrong and, where there is one, the remedy."""

    exit_code: ClassVar[int] = 1


class SettingsError(JobError):
    """A setting is unknown, or its value is not allowed. Names the setting and where it was found."""

    exit_code: ClassVar[int] = 2


class SourceError(JobError):
    """A source of logs cannot be read: no such folder, nothing in it, no right to read it."""


class WarehouseError(JobError):
    """A table cannot be read or written."""
