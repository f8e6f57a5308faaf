"""Keys and values of control batches: transaction markers, and the KRaft log's leader change."""

from typing import Final

from schemas.wire import Array, Field, Int16, Int32, Message, Prefix, Role, Struct, Uuid

CONTROL_RECORD_TYPE_SCHEMA: Final = Message(
    "ControlRecordTypeSchema",
    Role.CONTROL_KEY,
    Prefix.VERSION,
    versions="0",
    fields=(
        Field(
            "type",
            Int16,
            about="0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 and 4 snapshot, 5 KRAFT_VERSION, 6 KRAFT_VOTERS.",
        ),
    ),
)

END_TXN_MARKER: Final = Message(
    "EndTxnMarker",
    Role.CONTROL_VALUE,
    Prefix.VERSION,
    versions="0",
    fields=(Field("coordinator_epoch", Int32, about="Epoch of the transaction coordinator which wrote the marker."),),
)

VOTER: Final = Struct(
    "Voter",
    (
        Field("voter_id", Int32, about="Node id of the voter."),
        Field("voter_directory_id", Uuid, versions="1+", about="Log directory of the voter."),
    ),
)

LEADER_CHANGE_MESSAGE: Final = Message(
    "LeaderChangeMessage",
    Role.CONTROL_VALUE,
    Prefix.NONE,
    versions="0-1",
    flexible="0+",
    fields=(
        Field("version", Int16, about="Version of the record."),
        Field("leader_id", Int32, about="Node id of the new leader."),
        Field("voters", Array(VOTER), about="All voters of the quorum."),
        Field("granting_voters", Array(VOTER), about="Voters who voted for the leader."),
    ),
)
