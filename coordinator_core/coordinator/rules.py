"""What operations shared by all group types ask of a group (Kafka's interface Group).

Each group type gives one `GroupRules`, by the class of its state; see `GroupModule.rules`.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.offsets.state import CommittedOffset

Context_contra = TypeVar("Context_contra", contravariant=True)


class BaseTimestamp(Protocol):
    """From when the retention of a committed offset counts, epoch milliseconds (OffsetExpirationCondition)."""

    def __call__(self, committed: CommittedOffset, /) -> int: ...


@dataclass(frozen=True, slots=True)
class OffsetCommitter:
    """Who commits: `generation_id_or_member_epoch` is negative for an admin client or a stand-alone consumer."""

    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int
    is_transactional: bool
    api_version: int


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class CheckPartition(Protocol):
    """Raises Refused, for the whole commit, where it may not be for (topic name, topic id, partition)."""

    def __call__(self, topic: str, topic_id: str, partition: int, /) -> None: ...


class GroupRules(Protocol[Context_contra]):
    """One group type's answers. `group` is the object that `Context.group` gave.

    `Context_contra` is `operation.Context`: a context leads to the rules, so they do not import it.
    """

    type_name: str
    """As ListGroups prints it: classic, consumer, share, streams."""

    def validate_offset_commit(
        self, context: Context_contra, group: Any, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """Raise Refused, or say how each partition is to be checked (None: all are fine)."""
        ...

    def validate_offset_fetch(self, group: Any, member_id: str | None, member_epoch: int) -> None:
        """Raise Refused where a member may not read offsets."""
        ...

    def validate_offset_delete(self, group: Any) -> None:
        """Raise Refused where OffsetDelete is not for this group."""
        ...

    def validate_delete_group(self, group: Any) -> None:
        """Raise Refused where the group may not be deleted."""
        ...

    def tombstones(self, context: Context_contra, group: Any) -> tuple[CoordinatorRecord, ...]:
        """The records which delete the group, in order."""
        ...

    def is_subscribed_to(self, group: Any, topic: str) -> bool:
        """Whether the offsets of the topic are in use."""
        ...

    def is_empty(self, group: Any) -> bool:
        """Whether the group has no members, and goes with its last offset."""
        ...

    def should_expire(self, group: Any) -> bool:
        """Whether its offsets expire, and the group with the last of them."""
        ...

    def expiration_base(self, group: Any) -> BaseTimestamp | None:
        """From when retention counts; None: nothing expires now."""
        ...

    def refresh_on_commit(self, context: Context_contra, group: Any, member_id: str) -> None:
        """Count an accepted commit as a sign of life of the member, where the type does so."""
        ...

    def listed(self, group: Any) -> ListedGroup:
        """The line of ListGroups."""
        ...
