"""What goes into the runtime and what comes out of it."""

from dataclasses import dataclass
from typing import Any, Final

from coordinator_core.coordinator.errors import ErrorCode, Refused
from coordinator_core.coordinator.operation import Client
from coordinator_core.coordinator.records import Producer

NO_REQUEST: Final = -1
"""Nobody waits for the answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """An operation of a coordinator, by its name. `request_id` names it in the `Answer`.

    `new_uuid` ends the member id which the operation may need: the runtime draws no random numbers.
    """

    operation: str
    message: Any
    request_id: int = NO_REQUEST
    api_version: int = -1
    client: Client | None = None
    new_uuid: str = ""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A transaction marker to write and replay (WriteTxnMarkers). The answer's response is None."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int = 0
    """Of the transaction coordinator: it goes into the marker."""
    request_id: int = NO_REQUEST


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. Some responses carry an error code of their own while `error` is null."""

    partition: int
    request_id: int
    response: Any = None
    error: Refused | None = None

    @property
    def error_code(self) -> ErrorCode:
        """The error, wherever it is."""
        if self.error is not None:
            return self.error.code
        return ErrorCode(getattr(self.response, "error_code", None) or ErrorCode.NONE)
