"""The record types that consumer, share and streams groups each have: the same five kinds."""

from typing import Final, NamedTuple

from schemas.consumer_offsets import RecordType
from schemas.group_types import GroupType


class RecordFamily(NamedTuple):
    """The record types of one group type."""

    metadata: RecordType
    """The group epoch."""
    member: RecordType
    target_metadata: RecordType
    """The assignment epoch."""
    target: RecordType
    """The target of one member."""
    current: RecordType
    """The current assignment of one member."""

    @property
    def of_member(self) -> tuple[RecordType, ...]:
        """All records of a member, from the leaves up (GroupMetadataManager.removeMember)."""
        return self.current, self.target, self.member


def _family(group_type: GroupType) -> RecordFamily:
    kinds = (
        "METADATA",
        "MEMBER_METADATA",
        "TARGET_ASSIGNMENT_METADATA",
        "TARGET_ASSIGNMENT_MEMBER",
        "CURRENT_MEMBER_ASSIGNMENT",
    )
    return RecordFamily(*(RecordType[f"{group_type}_GROUP_{kind}"] for kind in kinds))


CONSUMER: Final = _family(GroupType.CONSUMER)
SHARE: Final = _family(GroupType.SHARE)
STREAMS: Final = _family(GroupType.STREAMS)
FAMILIES: Final = (CONSUMER, SHARE, STREAMS)
