"""When a rebalance was over: all members had reached the group epoch.

In consumer, share and streams groups members reconcile one by one (CurrentAssignmentBuilder). A member has reached a
group epoch when it is STABLE at that member epoch or a newer one. A static member that is away is not waited for.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.history.rows import EventRow

STABLE: Final = "STABLE"
RECONCILED: Final = "MEMBER_RECONCILED"
NOT_YET: Final = -1
STATIC_MEMBER_AWAY_EPOCH: Final = -2
RESTARTING_EVENTS: Final = frozenset({"GROUP_CREATED", "GROUP_DELETED", "GROUP_CONVERTED"})


PRESENCE: Final = frozenset(
    {"MEMBER_JOINED", "STATIC_MEMBER_REPLACED", "MEMBER_LEFT", "STATIC_MEMBER_LEFT", RECONCILED}
)
"""Events that show which members there are, and which epoch they have reached."""


def completion_times(events: Iterable[EventRow]) -> dict[int, int]:
    """When all members had reached the epoch (ms), by the offset of its GENERATION_STARTED event; epochs that were
    never completed are left out.

    `events`: of one group, in log order.
    """
    waiting: deque[EventRow] = deque()
    members = _Members()
    completed: dict[int, int] = {}
    for event in events:
        if event.event_type in RESTARTING_EVENTS:
            members = _Members()
            waiting.clear()
        elif event.event_type == "GENERATION_STARTED":
            waiting.append(event)
        elif not members.take(event):
            continue
        slowest = members.slowest()
        while waiting and (slowest is None or slowest >= (waiting[0].generation or 0)):
            completed[waiting.popleft().log_offset] = event.at
    return completed


def arrived_after(events: Iterable[EventRow]) -> Mapping[str, int]:
    """The member epoch that each member has reached after some events, by member id; NOT_YET if it has reached
    none."""
    members = _Members()
    for event in events:
        if event.event_type in RESTARTING_EVENTS:
            members = _Members()
        else:
            members.take(event)
    return members.arrived


class _Members:
    """The current members, and the epoch that each has reached."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """(epoch, member id); stale entries are dropped when they come up."""

    def take(self, event: EventRow) -> bool:
        """Apply an event. Returns True if it changes which members there are, or which epoch they have reached."""
        member_id = event.member_id
        if member_id is None:
            return False
        match event.event_type:
            case "MEMBER_JOINED":
                self._set(member_id, NOT_YET)
            case "STATIC_MEMBER_REPLACED":
                self.arrived.pop(event.details.get("replaced_member_id", ""), None)
                self._set(member_id, max(self.arrived.get(member_id, NOT_YET), NOT_YET))
            case "MEMBER_LEFT" | "STATIC_MEMBER_LEFT":
                self.arrived.pop(member_id, None)
            case "MEMBER_RECONCILED":
                self._reconcile(member_id, event)
            case _:
                return False
        return True

    def _reconcile(self, member_id: str, event: EventRow) -> None:
        epoch = event.generation or 0
        if epoch == STATIC_MEMBER_AWAY_EPOCH:
            self.arrived.pop(member_id, None)
            return
        so_far = self.arrived.get(member_id, NOT_YET)
        self._set(member_id, max(so_far, epoch if event.details.get("state") == STABLE else NOT_YET))

    def _set(self, member_id: str, epoch: int) -> None:
        if self.arrived.get(member_id) != epoch:
            self.arrived[member_id] = epoch
            heapq.heappush(self._heap, (epoch, member_id))

    def slowest(self) -> int | None:
        """The epoch that the slowest member has reached; None without members."""
        while self._heap and self.arrived.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
