"""All states of a record and of its share partition, with two tables of the transitions between them.

A record is AVAILABLE until a member acquires it. While it is ACQUIRED a lock runs; if the member does not acknowledge
it before the lock expires, it is released. ACKNOWLEDGED and ARCHIVED are final. A change that must be persisted is
*pending* until the share coordinator has answered: the record already has its new state, and is rolled back if the
write fails.

The only exception from `VALID_PREVIOUS` is archiving in memory (`ARCHIVED_SILENTLY_FROM`): records that the log no
longer has, or that an aborted transaction wrote, are archived without being persisted.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from coordinator_core.live.share_partition.errors import IllegalTransition


class RecordState(IntEnum):
    """Delivery states, with their persisted ids (org.apache.kafka.server.share.fetch.RecordState)."""

    AVAILABLE = 0
    """Waits for delivery. Acquire -> ACQUIRED."""
    ACQUIRED = 1
    """A member has it under a lock; never persisted. Accept -> ACKNOWLEDGED. Reject, gap -> ARCHIVED. Release, end of
    the session, expiry of the lock -> AVAILABLE, or ARCHIVED at the delivery limit. Renew: stays, with a new lock. With
    a dead letter topic, reject and the delivery limit -> ARCHIVING.
    """
    ACKNOWLEDGED = 2
    """A member has processed it. Final."""
    ARCHIVING = 3
    """Since Kafka 4.4, in a group with a dead letter topic: being copied there (KIP-1191). The copy is done, or has
    failed permanently -> ARCHIVED."""
    ARCHIVED = 4
    """Will not be delivered again: rejected, a gap, at the delivery limit, or no longer in the log. Final."""


VALID_PREVIOUS: Final[Mapping[RecordState, frozenset[RecordState]]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE}),
    RecordState.ACKNOWLEDGED: frozenset({RecordState.ACQUIRED}),
    RecordState.ARCHIVING: frozenset({RecordState.ACQUIRED}),
    RecordState.ARCHIVED: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING}),
}
"""New state -> the states that it may follow (RecordState.validateTransition)."""

ARCHIVED_SILENTLY_FROM: Final = frozenset({RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING})
"""States from which a record may be archived in memory, before or without a write (InFlightState.archive)."""

TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""The final states (SharePartition.isStateTerminal)."""


def check_transition(previous: RecordState, following: RecordState) -> None:
    """Raise IllegalTransition unless a record in the state `previous` may go to `following`."""
    if previous not in VALID_PREVIOUS[following]:
        raise IllegalTransition(f"no transition {previous.name} -> {following.name}")


class AcknowledgeType(IntEnum):
    """How a member acknowledges a record (clients' AcknowledgeType; only the client library sends 0)."""

    GAP = 0
    """The offset has no record for the member: compacted, or a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Still processing: the lock restarts, nothing else changes and nothing is persisted."""


ACKNOWLEDGED_STATE: Final[Mapping[AcknowledgeType, RecordState]] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state that an acknowledgement asks for (SharePartition.ACK_TYPE_TO_RECORD_STATE). RENEW asks for none."""


class SharePartitionState(StrEnum):
    """The life cycle of a share partition on its leader (kafka.server.share.SharePartitionState)."""

    EMPTY = "EMPTY"
    """Created. Start-up -> INITIALIZING."""
    INITIALIZING = "INITIALIZING"
    """Its state is being read. A valid state -> ACTIVE; an error or an invalid state -> FAILED."""
    ACTIVE = "ACTIVE"
    """Records are acquired and acknowledged. Another broker leads -> FENCED."""
    FAILED = "FAILED"
    """Could not start. Final: the broker discards it and creates another."""
    FENCED = "FENCED"
    """The broker is no longer its leader. Acquires nothing; locks still expire."""


VALID_PREVIOUS_PARTITION: Final[Mapping[SharePartitionState, frozenset[SharePartitionState]]] = {
    SharePartitionState.EMPTY: frozenset(),
    SharePartitionState.INITIALIZING: frozenset({SharePartitionState.EMPTY}),
    SharePartitionState.ACTIVE: frozenset({SharePartitionState.INITIALIZING}),
    SharePartitionState.FAILED: frozenset({SharePartitionState.INITIALIZING}),
    SharePartitionState.FENCED: frozenset(SharePartitionState),
}
"""New state -> the states that it may follow. Fencing (SharePartition.markFenced) is always possible."""
