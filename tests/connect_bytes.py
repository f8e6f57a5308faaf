"""What Kafka Connect's workers write into their protocol fields."""

from coordinator_core.bytes.client_protocols import (
    ConnectAssignment,
    ConnectMetadata,
    _encode_versioned,
    _structs,
)
from schemas.client_protocols import CONNECT_PROTOCOL_ASSIGNMENT, CONNECT_PROTOCOL_METADATA, CONNECTOR_ASSIGNMENT


def encode_connect_assignment(assignment: ConnectAssignment) -> bytes:
    """The inverse of `decode_connect_assignment`, in the assignment's version (0..2)."""
    return _encode_versioned(
        CONNECT_PROTOCOL_ASSIGNMENT,
        assignment,
        assignment=_structs(CONNECTOR_ASSIGNMENT, assignment.assigned),
        revoked=_structs(CONNECTOR_ASSIGNMENT, assignment.revoked) or (() if assignment.version else None),
        delay=assignment.delay_ms,
    )


def encode_connect_metadata(metadata: ConnectMetadata) -> bytes:
    """The inverse of `decode_connect_metadata`, in the metadata's version (0..2)."""
    allocation = None if metadata.allocation is None else encode_connect_assignment(metadata.allocation)
    return _encode_versioned(CONNECT_PROTOCOL_METADATA, metadata, allocation=allocation)
