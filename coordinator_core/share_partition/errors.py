"""What a share partition refuses. `RefusedRequest` is the member's fault and is answered; the others are the
caller's.
"""

from typing import ClassVar

from coordinator_core.errors import CoreError


class SharePartitionError(CoreError):
    """Base of every error of the share partition. What raises one has changed no record's state."""


class IllegalTransition(SharePartitionError):
    """A transition which the table of states does not hold (RecordState.validateTransition)."""


class UnknownWrite(SharePartitionError):
    """The result of a write which is not under way: never issued, or completed before."""


class InvalidReadState(SharePartitionError):
    """A persisted state from which no share partition can start; it is FAILED from then on."""


class NotInitialized(SharePartitionError):
    """The share partition is in a state which allows no start-up: being read, failed, or fenced."""


class RefusedRequest(SharePartitionError):
    """A request which is answered with an error. Transitions which it had begun are rolled back."""

    error_class: ClassVar[str]
    """Kafka's exception class, without its package."""


class InvalidRecordState(RefusedRequest):
    """The records are not the member's to acknowledge: not acquired, another's, or under way already."""

    error_class = "InvalidRecordStateException"


class InvalidRequest(RefusedRequest):
    """The request itself cannot be: an unknown acknowledge type, or offsets which nobody fetched."""

    error_class = "InvalidRequestException"
