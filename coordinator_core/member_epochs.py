"""Member epochs which are no epochs but say what a heartbeat of a modern group asks for (KIP-848, KIP-932, KIP-1071).

In a record the negative ones say where the member has gone.
"""

from typing import Final

JOIN_GROUP_MEMBER_EPOCH: Final = 0
"""The member joins, or joins again with nothing."""
LEAVE_GROUP_MEMBER_EPOCH: Final = -1
"""It leaves. As state: its current assignment was deleted; the member itself goes with its metadata."""
LEAVE_GROUP_STATIC_MEMBER_EPOCH: Final = -2
"""It leaves for a while: its group instance id keeps its partitions."""
