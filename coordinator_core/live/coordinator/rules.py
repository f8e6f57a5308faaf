"""The rules of a group for operations shared by all group types (Kafka's interface Group).

Each group type provides one `GroupRules`, by the class of its state; see `GroupModule.rules`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.offsets.state import CommittedOffset

if TYPE_CHECKING:
    from coordinator_core.live.coordinator.operation import Context


class BaseTimestamp(Protocol):
    """From when the retention of a committed offset counts, in epoch milliseconds (OffsetExpirationCondition)."""

    def __call__(self, committed: CommittedOffset, /) -> int: ...


@dataclass(frozen=True, slots=True)
class OffsetCommitter:
    """The sender of a commit. `generation_id_or_member_epoch` is negative for an admin client or a stand-alone
    consumer.
    """

    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int
    is_transactional: bool
    api_version: int


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class CheckPartition(Protocol):
    """Raises Refused, for the whole commit, if (topic name, topic id, partition) may not be committed."""

    def __call__(self, topic: str, topic_id: str, partition: int, /) -> None: ...


def commit_timestamp(committed: CommittedOffset) -> int:
    """Retention counts from the commit."""
    return committed.commit_timestamp_ms


class GroupRules(ABC):
    """The rules of one group type. `group` is the object returned by `Context.group`."""

    type_name: str
    """As ListGroups prints it: classic, consumer, share, streams."""

    @abstractmethod
    def validate_offset_commit(
        self, context: "Context", group: Any, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """Raise Refused, or return the check for each partition (None: all are allowed)."""

    @abstractmethod
    def validate_offset_fetch(self, group: Any, member_id: str | None, member_epoch: int) -> None:
        """Raise Refused if a member may not read offsets."""

    @abstractmethod
    def validate_offset_delete(self, group: Any) -> None:
        """Raise Refused if OffsetDelete is not possible for this group."""

    @abstractmethod
    def validate_delete_group(self, group: Any) -> None:
        """Raise Refused if the group may not be deleted."""

    @abstractmethod
    def tombstones(self, context: "Context", group: Any) -> tuple[CoordinatorRecord, ...]:
        """The records that delete the group, in order."""

    @abstractmethod
    def is_subscribed_to(self, group: Any, topic: str) -> bool:
        """Whether the offsets of the topic are in use."""

    def is_empty(self, group: Any) -> bool:
        """Whether the group has no members, so that it is deleted with its last offset."""
        return not group.members

    def should_expire(self, group: Any) -> bool:
        """Whether its offsets expire, and the group with the last of them."""
        return True

    def expiration_base(self, group: Any) -> BaseTimestamp | None:
        """From when retention counts; None: nothing expires now."""
        return commit_timestamp

    @abstractmethod
    def refresh_on_commit(self, context: "Context", group: Any, member_id: str) -> None:
        """Restart the session of the member for an accepted commit, if the group type does so."""

    @abstractmethod
    def listed(self, group: Any) -> ListedGroup: ...
