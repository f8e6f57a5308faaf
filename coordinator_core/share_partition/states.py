"""Every state of a record and of its share partition, with the transitions between them in two tables.

A record is AVAILABLE until a member acquires it. While it is ACQUIRED a lock runs; the member acknowledges it before
the lock runs out, or it is given back. ACKNOWLEDGED and ARCHIVED are final. A change which must be persisted first is
*under way* until the share coordinator has answered: the record shows its new state already, and is rolled back if the
write fails.

The one way round `VALID_PREVIOUS` is archiving in memory (`ARCHIVED_SILENTLY_FROM`): records which the log no longer
holds, or which an aborted transaction wrote, are taken out of delivery without being persisted.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from coordinator_core.share_partition.errors import IllegalTransition


class RecordState(IntEnum):
    """Delivery states, by the ids which are persisted (org.apache.kafka.server.share.fetch.RecordState)."""

    AVAILABLE = 0
    """Waits for delivery. Acquire -> ACQUIRED."""
    ACQUIRED = 1
    """A member holds it under a lock; never persisted. Accept -> ACKNOWLEDGED. Reject, gap -> ARCHIVED. Release, end of
    the session, end of the lock -> AVAILABLE, or ARCHIVED once delivered as often as allowed. Renew: stays, with a new
    lock. With a dead letter topic reject, and the last delivery allowed -> ARCHIVING.
    """
    ACKNOWLEDGED = 2
    """A member has dealt with it. Final."""
    ARCHIVING = 3
    """Since Kafka 4.4, of a group with a dead letter topic: given up, and being copied there (KIP-1191). The copy is
    done, or has failed for good -> ARCHIVED."""
    ARCHIVED = 4
    """Will not be delivered again: rejected, a gap, delivered too often, or gone from the log. Final."""


VALID_PREVIOUS: Final[Mapping[RecordState, frozenset[RecordState]]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE}),
    RecordState.ACKNOWLEDGED: frozenset({RecordState.ACQUIRED}),
    RecordState.ARCHIVING: frozenset({RecordState.ACQUIRED}),
    RecordState.ARCHIVED: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING}),
}
"""New state -> the states it may follow (RecordState.validateTransition)."""

ARCHIVED_SILENTLY_FROM: Final = frozenset({RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING})
"""What may be archived in memory, before or without a write (InFlightState.archive)."""

TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""The final states (SharePartition.isStateTerminal)."""


def check_transition(previous: RecordState, following: RecordState) -> None:
    """Raise IllegalTransition unless a record in the state `previous` may go to `following`."""
    if previous not in VALID_PREVIOUS[following]:
        raise IllegalTransition(f"no transition {previous.name} -> {following.name}")


class AcknowledgeType(IntEnum):
    """What a member says of a record (clients' AcknowledgeType; 0 is said by the client library alone)."""

    GAP = 0
    """The offset holds no record for the member: compacted away, or a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Still at work: the lock restarts, nothing else changes and nothing is persisted."""


ACKNOWLEDGED_STATE: Final[Mapping[AcknowledgeType, RecordState]] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state which an acknowledgement asks for (SharePartition.ACK_TYPE_TO_RECORD_STATE). RENEW asks for none."""


class SharePartitionState(StrEnum):
    """The life cycle of a share partition on its leader (kafka.server.share.SharePartitionState)."""

    EMPTY = "EMPTY"
    """Just made. Start-up -> INITIALIZING."""
    INITIALIZING = "INITIALIZING"
    """Its state is being read. A state which fits -> ACTIVE; an error or one which does not -> FAILED."""
    ACTIVE = "ACTIVE"
    """Records are acquired and acknowledged. Another broker leads -> FENCED."""
    FAILED = "FAILED"
    """Could not start. Final: the broker throws it away and makes another."""
    FENCED = "FENCED"
    """No longer the leader's. Acquires nothing; locks still run out."""


VALID_PREVIOUS_PARTITION: Final[Mapping[SharePartitionState, frozenset[SharePartitionState]]] = {
    SharePartitionState.EMPTY: frozenset(),
    SharePartitionState.INITIALIZING: frozenset({SharePartitionState.EMPTY}),
    SharePartitionState.ACTIVE: frozenset({SharePartitionState.INITIALIZING}),
    SharePartitionState.FAILED: frozenset({SharePartitionState.INITIALIZING}),
    SharePartitionState.FENCED: frozenset(SharePartitionState),
}
"""New state -> the states it may follow. Fencing (SharePartition.markFenced) asks for none."""
