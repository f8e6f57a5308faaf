"""Errors of a share partition. A `RefusedRequest` is the member's fault and is sent to it; the others are bugs of the
caller.
"""

from typing import ClassVar

from coordinator_core.errors import CoreError


class SharePartitionError(CoreError):
    """Base of all errors of a share partition. A call that raises one has not changed the state of any record."""


class IllegalTransition(SharePartitionError):
    """A transition that the table of states does not have (RecordState.validateTransition)."""


class UnknownWrite(SharePartitionError):
    """The result of a write that is not in flight: never issued, or already completed."""


class InvalidReadState(SharePartitionError):
    """A persisted state from which no share partition can start; the partition is then FAILED."""


class NotInitialized(SharePartitionError):
    """The share partition is in a state that does not allow start-up: INITIALIZING, FAILED or FENCED."""


class RefusedRequest(SharePartitionError):
    """A request that is answered with an error. Transitions that it had begun are rolled back."""

    error_class: ClassVar[str]
    """Kafka's exception class, without its package."""


class InvalidRecordState(RefusedRequest):
    """The member may not acknowledge the records: not acquired, acquired by another member, or already pending."""

    error_class = "InvalidRecordStateException"


class InvalidRequest(RefusedRequest):
    """The request is invalid: an unknown acknowledge type, or offsets that were never fetched."""

    error_class = "InvalidRequestException"
