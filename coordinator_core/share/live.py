"""What a live share group has besides its records, lost at a reload, and what is derived of its state and kept.

Derived values hang on the identity of the immutable objects that they were made of: a heartbeat which changes nothing
takes no look at the other members.
"""

from dataclasses import dataclass
from typing import Final

from coordinator_core.coordinator.operation import Context
from coordinator_core.share.state import ShareGroup, ShareGroupStatePartitions

METADATA_REFRESH_INTERVAL_MS: Final = 2**31 - 1
"""GroupMetadataManager.METADATA_REFRESH_INTERVAL_MS: the hash of the topics is looked at again when they change."""


@dataclass(slots=True)
class Refresh:
    """Until when the metadata hash of a group holds, if the group has reached the epoch (DeadlineAndEpoch)."""

    deadline_ms: int
    group_epoch: int


@dataclass(slots=True)
class PictureNote:
    """When the picture of the share partitions was replayed last. `before` is restored where the append failed."""

    before: ShareGroupStatePartitions | None
    before_ms: int
    replayed_ms: int


@dataclass(slots=True)
class Derived:
    """What was made of parts of a group, and of which objects."""

    is_pending: bool = False
    pending_of: tuple[object, ...] = ()
    settled_with: tuple[object, ...] = ()
    """What leaves nothing to initialise, at whatever time."""


class ShareLive:
    """All share groups of one coordinator; `Context.live(ShareLive)`."""

    def __init__(self) -> None:
        self.loaded_ms = 0
        """When the coordinator was loaded: it knows no earlier time."""
        self.refreshes: dict[str, Refresh] = {}
        self.pictures: dict[str, PictureNote] = {}
        self.derived: dict[str, Derived] = {}

    def forget(self, group_id: str) -> None:
        """The group goes: one of the same id which comes later is another group."""
        self.refreshes.pop(group_id, None)
        self.pictures.pop(group_id, None)
        self.derived.pop(group_id, None)

    def of(self, group_id: str) -> Derived:
        """What is derived of the group."""
        derived = self.derived.get(group_id)
        if derived is None:
            derived = self.derived[group_id] = Derived()
        return derived

    def is_metadata_expired(self, group: ShareGroup, now_ms: int) -> bool:
        """ModernGroup.hasMetadataExpired; also where the record of the epoch was never written."""
        refresh = self.refreshes.get(group.group_id)
        return refresh is None or now_ms >= refresh.deadline_ms or group.group_epoch < refresh.group_epoch

    def picture_ms(self, group_id: str, picture: ShareGroupStatePartitions) -> int:
        """When the picture was replayed, epoch milliseconds: from then on initialisations count.

        No record has this time, so a load sets it again.
        """
        note = self.pictures.get(group_id)
        if note is None:
            return self.loaded_ms
        return note.before_ms if picture is note.before else note.replayed_ms

    def note_picture(self, context: Context, group_id: str) -> None:
        """A new picture of the group's share partitions is about to be written."""
        before = context.shard.groups.share_partitions.get(group_id)
        before_ms = self.loaded_ms if before is None else self.picture_ms(group_id, before)
        self.pictures[group_id] = PictureNote(before, before_ms, context.now_ms)


def are_same(left: tuple[object, ...], *right: object) -> bool:
    """Whether these are the very same objects."""
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def on_metadata(context: Context, changed: frozenset[str]) -> None:
    """Groups which read a topic that changed look at the hash of their topics at the next heartbeat."""
    live = context.live(ShareLive)
    for group_id in tuple(live.refreshes):
        group = context.shard.groups.groups.get(group_id)
        if not isinstance(group, ShareGroup) or not changed.isdisjoint(group.name_counts):
            del live.refreshes[group_id]
