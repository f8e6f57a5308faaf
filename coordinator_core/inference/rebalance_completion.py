"""When a rebalance was over: everybody had arrived.

In consumer, share and streams groups members reconcile one by one (CurrentAssignmentBuilder). A member has arrived at a
group epoch when it is STABLE at a member epoch no older. A static member that is away is not waited for.
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
"""Events which say who is there, and how far."""


def completion_times(events: Iterable[EventRow]) -> dict[int, int]:
    """When everybody had arrived, in ms, by the offset of the GENERATION_STARTED event; those never over are left out.

    `events` are one group's, in log order.
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
    """The member epochs at which members have arrived after some events, by member id; NOT_YET: at none."""
    members = _Members()
    for event in events:
        if event.event_type in RESTARTING_EVENTS:
            members = _Members()
        else:
            members.take(event)
    return members.arrived


class _Members:
    """The members there are, and how far each has come."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """(how far, member id); entries that no longer hold are dropped when they come up."""

    def take(self, event: EventRow) -> bool:
        """Take an event in. True if it says something of who is there or how far they are."""
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
        """How far the slowest member is; None where nobody is there."""
        while self._heap and self.arrived.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
