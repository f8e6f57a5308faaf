"""One broker's copy of a partition: consecutive batches, and their leader epochs.

Sources: UnifiedLog (append, truncation), LeaderEpochFileCache and KIP-101 (what two replicas have in common), KIP-279.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class StoredBatch(NamedTuple):
    """A record batch with its offsets. `next_offset` is exclusive; `max_timestamp_ms` is that of its header."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    data: bytes


class EpochStart(NamedTuple):
    """The first offset that a leader of this epoch wrote, or would have written."""

    leader_epoch: int
    start_offset: int


class Replica:
    """The log of one partition on one broker. It survives the broker's process, not its disk."""

    def __init__(self, broker_id: int, start_offset: int = 0) -> None:
        self.broker_id = broker_id
        self.epochs: list[EpochStart] = []
        self.high_watermark = start_offset
        """The high watermark that this broker knows: a follower learns the leader's with its next fetch."""
        self._batches: list[StoredBatch] = []
        self._base_offsets: list[int] = []
        self._start_offset = start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch; exclusive end of the stored part."""
        return self._batches[-1].next_offset if self._batches else self._start_offset

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last entry of the epoch cache; -1 without one."""
        return self.epochs[-1].leader_epoch if self.epochs else -1

    def batches(self, from_offset: int = 0) -> Iterator[StoredBatch]:
        """The batches that contain `from_offset` or later offsets."""
        first = max(0, bisect_right(self._base_offsets, from_offset) - 1)
        for index in range(first, len(self._batches)):
            if self._batches[index].next_offset > from_offset:
                yield self._batches[index]

    def append(self, batch: StoredBatch) -> None:
        """Store the next batch, and its epoch if that is new."""
        self.assign_epoch(batch.leader_epoch, batch.base_offset)
        self._batches.append(batch)
        self._base_offsets.append(batch.base_offset)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note that the leader of this epoch writes from `start_offset` on (LeaderEpochFileCache.assign)."""
        if leader_epoch > self.latest_epoch:
            while self.epochs and self.epochs[-1].start_offset >= start_offset:
                self.epochs.pop()
            self.epochs.append(EpochStart(leader_epoch, start_offset))

    def epoch_end(self, leader_epoch: int) -> EpochStart:
        """The largest epoch here up to `leader_epoch`, with its exclusive end (endOffsetFor, KIP-279).

        (-1, 0) if there is no such epoch.
        """
        index = bisect_right(self.epochs, leader_epoch, key=lambda entry: entry.leader_epoch)
        if index == 0:
            return EpochStart(-1, 0)
        end_offset = self.epochs[index].start_offset if index < len(self.epochs) else self.end_offset
        return EpochStart(self.epochs[index - 1].leader_epoch, end_offset)

    def truncate(self, offset: int) -> None:
        """Drop batches that reach beyond `offset`, and epochs that began there or later."""
        count = bisect_left(self._base_offsets, offset)
        while count and self._batches[count - 1].next_offset > offset:
            count -= 1
        del self._batches[count:]
        del self._base_offsets[count:]
        while self.epochs and self.epochs[-1].start_offset >= max(offset, self.end_offset):
            self.epochs.pop()
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def truncate_to_leader(self, leader: "Replica") -> None:
        """Drop what the leader does not have, epoch by epoch (KIP-101, KIP-279)."""
        while self.latest_epoch >= 0:
            common = leader.epoch_end(self.latest_epoch)
            own = self.epoch_end(common.leader_epoch)
            end_offset = min(common.start_offset, own.start_offset) if common.leader_epoch >= 0 else 0
            if common.leader_epoch == self.latest_epoch:
                if end_offset < self.end_offset:
                    self.truncate(end_offset)
                return
            self.truncate(end_offset)
            while self.epochs and self.epochs[-1].leader_epoch > common.leader_epoch:
                self.epochs.pop()
