"""Hosts of members that return from another host: gold rows name a member by its last host, also earlier rows."""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from coordinator_core.inference.commits.commit_anomalies import OwnersAt
from coordinator_core.inference.facts.rows import OwnerRow


class Moved(NamedTuple):
    """A member that returned from another host."""

    from_log_offset: int
    """Where its membership interval begins."""
    host: str
    """Its last host."""


class HostsNow:
    """Current hosts of one group's members, for earlier gold rows."""

    def __init__(
        self, owners: Iterable[OwnerRow], changed: Set[str], moved: Mapping[str, Moved], settled_at: int
    ) -> None:
        self.changed = changed
        """The ids of the members whose hosts changed."""
        self._owners = OwnersAt(owner for owner in owners if owner.member_id in changed)
        """The owners in the part of the log that is not settled."""
        self.moved = moved
        """Member id -> those of them that are in the settled part as well."""
        self.settled_at = settled_at
        """The log is settled up to this offset."""

    def of(self, topic: str, partition: int, log_offset: int, member_id: str | None, host: str | None) -> str | None:
        """The host of the member that owned a partition at a log offset. `host`: the earlier value."""
        if log_offset <= self.settled_at:
            return self.of_settled(member_id, log_offset, host)
        owner = self._owners.at(topic, partition, log_offset) if member_id in self.changed else None
        return host if owner is None else owner.client_host

    def of_settled(self, member_id: str | None, log_offset: int, host: str | None) -> str | None:
        """The host of a member that owned a partition from a log offset in the settled past on. `host`: the earlier
        value.
        """
        moved = None if member_id is None else self.moved.get(member_id)
        return host if moved is None or log_offset < moved.from_log_offset else moved.host
