"""What a live share group has in addition to its records, lost at a reload; and values derived from its state, cached.

Derived values are cached by the identity of the immutable objects that they were computed from: a heartbeat that
changes nothing does not look at the other members.
"""

from dataclasses import dataclass
from typing import Final

from coordinator_core.live.coordinator.operation import Context
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions

METADATA_REFRESH_INTERVAL_MS: Final = 2**31 - 1
"""GroupMetadataManager.METADATA_REFRESH_INTERVAL_MS: in effect, the hash of the topics is recomputed only when they
change.
"""


@dataclass(slots=True)
class Refresh:
    """Until when a group's metadata hash is valid, provided the group has reached the epoch (DeadlineAndEpoch)."""

    deadline_ms: int
    group_epoch: int


@dataclass(slots=True)
class StatePartitionsNote:
    """When the state of the share partitions was replayed last. `before` is restored where the append failed."""

    before: ShareGroupStatePartitions | None
    before_ms: int
    replayed_ms: int


@dataclass(slots=True)
class Derived:
    """Values derived from parts of a group, and the objects they were derived from."""

    is_pending: bool = False
    pending_of: tuple[object, ...] = ()
    settled_with: tuple[object, ...] = ()
    """The objects with which there is nothing to initialize, at any time."""


class ShareLive:
    """All share groups of one coordinator; `Context.live(ShareLive)`."""

    def __init__(self) -> None:
        self.loaded_ms = 0
        """The time at which the coordinator was loaded; earlier times are unknown."""
        self.refreshes: dict[str, Refresh] = {}
        self.state_partitions_notes: dict[str, StatePartitionsNote] = {}
        self.derived: dict[str, Derived] = {}

    def forget(self, group_id: str) -> None:
        """The group is deleted: a later one with the same id is another group."""
        self.refreshes.pop(group_id, None)
        self.state_partitions_notes.pop(group_id, None)
        self.derived.pop(group_id, None)

    def of(self, group_id: str) -> Derived:
        derived = self.derived.get(group_id)
        if derived is None:
            derived = self.derived[group_id] = Derived()
        return derived

    def is_metadata_expired(self, group: ShareGroup, now_ms: int) -> bool:
        """ModernGroup.hasMetadataExpired; also true if the record of the epoch was never written."""
        refresh = self.refreshes.get(group.group_id)
        return refresh is None or now_ms >= refresh.deadline_ms or group.group_epoch < refresh.group_epoch

    def state_partitions_ms(self, group_id: str, state_partitions: ShareGroupStatePartitions) -> int:
        """When the state was replayed, epoch milliseconds: initializations count from then on.

        No record has this time, so loading resets it.
        """
        note = self.state_partitions_notes.get(group_id)
        if note is None:
            return self.loaded_ms
        return note.before_ms if state_partitions is note.before else note.replayed_ms

    def note_state_partitions(self, context: Context, group_id: str) -> None:
        """Note that a new state of the group's share partitions is about to be written."""
        before = context.shard.groups.share_partitions.get(group_id)
        before_ms = self.loaded_ms if before is None else self.state_partitions_ms(group_id, before)
        self.state_partitions_notes[group_id] = StatePartitionsNote(before, before_ms, context.now_ms)


def are_same(left: tuple[object, ...], *right: object) -> bool:
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def on_metadata(context: Context, changed: frozenset[str]) -> None:
    """Groups that read a changed topic recompute the hash of their topics at the next heartbeat."""
    live = context.live(ShareLive)
    for group_id in tuple(live.refreshes):
        group = context.shard.groups.groups.get(group_id)
        if not isinstance(group, ShareGroup) or not changed.isdisjoint(group.name_counts):
            del live.refreshes[group_id]
