"""What a replay cannot apply because of a bug: it goes on, and the caller leaves those keys out."""

from collections.abc import Iterator
from contextlib import contextmanager

from coordinator_core.errors import ReplayFault, StateUnreadable
from coordinator_core.replay.lookup import Key, SharePartitionKey


class Faults(dict[Key, ReplayFault]):
    """The first fault of each group or share partition that could not be replayed. Its other rows mean nothing."""

    def note(self, error: Exception, key: Key, log_offset: int | None = None) -> None:
        """Note an exception. Raises it if it is no fault of the key."""
        if isinstance(error, MemoryError | StateUnreadable):
            raise error
        group_id = key.group_id if isinstance(key, SharePartitionKey) else key
        self.setdefault(key, ReplayFault.of(error, group_id, log_offset))

    @contextmanager
    def guard(self, key: Key, log_offset: int | None = None) -> Iterator[None]:
        """Note an exception of the block."""
        try:
            yield
        except Exception as error:
            self.note(error, key, log_offset)

    def raise_first(self) -> None:
        """Raise a fault, if there is one: for callers that replay a single key."""
        for fault in self.values():
            raise fault
