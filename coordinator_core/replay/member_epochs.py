"""Special member epochs, by which a heartbeat of a modern group says what it asks for (KIP-848, KIP-932, KIP-1071).

In a record, the negative ones say how the member left.
"""

from typing import Final

JOIN_GROUP_MEMBER_EPOCH: Final = 0
"""The member joins, or rejoins without an assignment."""
LEAVE_GROUP_MEMBER_EPOCH: Final = -1
"""The member leaves. As state: its current assignment was deleted; the member itself is removed with its metadata."""
LEAVE_GROUP_STATIC_MEMBER_EPOCH: Final = -2
"""A static member leaves temporarily: its group instance id keeps its partitions."""
