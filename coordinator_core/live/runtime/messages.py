"""Requests to the runtime, and its answers."""

from dataclasses import dataclass
from typing import Any, Final

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.operation import Client
from coordinator_core.live.coordinator.records import Producer
from schemas.error_codes import ErrorCode

NO_REQUEST: Final = -1
"""No request waits for the answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """An operation of a coordinator, by its name. `request_id` identifies it in the `Answer`.

    `new_uuid` is the suffix of a new member id, if the operation needs one: the runtime uses no random numbers.
    """

    operation: str
    message: Any
    request_id: int = NO_REQUEST
    api_version: int = -1
    client: Client | None = None
    new_uuid: str = ""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A transaction marker to write and replay (WriteTxnMarkers). Its answer has the response None."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int = 0
    """Epoch of the transaction coordinator, which is written into the marker."""
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
        if self.error is not None:
            return self.error.code
        return ErrorCode(getattr(self.response, "error_code", None) or ErrorCode.NONE)
