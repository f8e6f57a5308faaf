"""A replicated partition: leader, in-sync replicas, high watermark (Partition, ReplicaManager, KIP-101, KIP-966).

The contract with callers is in the docstring of the package.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from coordinator_core.bytes.log.batch import parse_header
from coordinator_core.errors import NoSuchReplica
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.runtime.replica import EpochStart, Replica, StoredBatch
from schemas.error_codes import ErrorCode

MESSAGE_BYTES_MAX: Final = 1_048_588
"""`max.message.bytes` by default: 1 MiB and the overhead of a log entry."""

UNKNOWN_OFFSET: Final = -1
"""Fetch offset of a follower before its first fetch from this leader."""


class PartitionLog:
    """One partition of the cluster. Brokers are identified by their ids; the first of `replicas` is the first
    leader."""

    def __init__(
        self,
        topic: str,
        partition: int,
        replicas: Sequence[int] = (0,),
        *,
        min_insync_replicas: int = 1,
        leader_epoch: int = 0,
        start_offset: int = 0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.replicas = {broker_id: Replica(broker_id, start_offset) for broker_id in replicas}
        self.min_insync_replicas = min(min_insync_replicas, len(self.replicas))
        """Kafka's effective value: at most the number of replicas."""
        self.message_bytes_max = message_bytes_max
        self.log_start_offset = start_offset
        self.isr: tuple[int, ...] = tuple(self.replicas)
        """In-sync replicas, in the order of assignment."""
        self.leader: int | None = None
        self.leader_epoch = leader_epoch - 1
        self.on_high_watermark: Callable[[], None] | None = None
        """Called when the high watermark moved; the coordinator on the leader sets it."""
        self.on_append: Callable[[], None] | None = None
        """Called after every append; the code that moves the followers sets it."""
        self._follower_ends: dict[int, int] = {}
        self._follower_epochs: dict[int, int] = {}
        self.elect(next(iter(self.replicas)))

    @property
    def end_offset(self) -> int:
        """The leader's log end offset."""
        return self._leading().end_offset

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed, as far as the leader knows."""
        return self._leading().high_watermark

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """The leader's epoch cache, as in leader-epoch-checkpoint."""
        return tuple(self._leading().epochs)

    @property
    def is_under_min_isr(self) -> bool:
        """Too few replicas are in sync: writes are refused and the high watermark does not move (KIP-966)."""
        return len(self.isr) < self.min_insync_replicas

    def batches(self, from_offset: int = 0) -> Iterator[StoredBatch]:
        """The leader's batches that contain `from_offset` or later offsets."""
        return self._leading().batches(max(from_offset, self.log_start_offset))

    def stored_batches(self) -> Iterator[StoredBatch]:
        """All batches that the leader still stores, including those below the log start offset."""
        return self._leading().batches()

    def append(self, broker_id: int, batch: bytes) -> int:
        """Append a batch of magic 2 on the leader, at the end and in its epoch. Returns the new end offset.

        It sets base offset and leader epoch, which the checksum does not cover. Raises Refused with
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS or MESSAGE_TOO_LARGE; then nothing was appended.
        """
        if broker_id != self.leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.is_under_min_isr:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        if len(batch) > self.message_bytes_max:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE)
        leader = self._leading()
        header = parse_header(batch)
        base_offset = leader.end_offset
        next_offset = base_offset + header.last_offset - header.base_offset + 1
        data = struct.pack(">q", base_offset) + batch[8:12] + struct.pack(">i", self.leader_epoch) + batch[16:]
        leader.append(StoredBatch(base_offset, next_offset, self.leader_epoch, header.max_timestamp_ms, data))
        self._move_high_watermark()
        if self.on_append is not None:
            self.on_append()
        return next_offset

    def fetch(self, follower_id: int) -> bool:
        """One fetch of a follower from the leader; False if there was nothing to do.

        The fetch offset shows the leader what the follower has: only then can that count as committed.
        """
        if self.leader is None or follower_id == self.leader:
            return False
        leader, follower = self._leading(), self._replica(follower_id)
        if self._follower_epochs.get(follower_id) != self.leader_epoch:
            follower.truncate_to_leader(leader)
            self._follower_epochs[follower_id] = self.leader_epoch
        before = (self._follower_ends.get(follower_id), leader.high_watermark, follower.high_watermark, self.isr)
        self._follower_ends[follower_id] = follower.end_offset
        self._expand_isr(follower_id)
        self._move_high_watermark()
        copied = 0
        for batch in leader.batches(follower.end_offset):
            follower.append(batch)
            copied += 1
        for entry in leader.epochs:
            if entry.start_offset <= follower.end_offset:
                follower.assign_epoch(entry.leader_epoch, entry.start_offset)
        follower.high_watermark = min(leader.high_watermark, follower.end_offset)
        after = (self._follower_ends[follower_id], leader.high_watermark, follower.high_watermark, self.isr)
        return copied > 0 or before != after

    def replicate(self, followers: Sequence[int] | None = None) -> None:
        """Let the given followers (by default those in sync) fetch until there is nothing left to do."""
        for _ in range(len(self.replicas) + 2):
            chosen = self.isr if followers is None else followers
            moved = [self.fetch(follower_id) for follower_id in chosen]
            if not any(moved):
                return

    def shrink_isr(self, broker_id: int) -> None:
        """Remove a replica that died or fell behind from the ISR. The last one stays: no other replica has its records.

        A leader that is removed leads no more; `elect` makes another one leader.
        """
        if len(self.isr) > 1:
            self.isr = tuple(member for member in self.isr if member != broker_id)
        if broker_id == self.leader:
            self.leader = None
            self.on_high_watermark = None
        elif self.leader is not None:
            self._move_high_watermark()

    def elect(self, broker_id: int, *, is_unclean: bool = False) -> int:
        """Make a broker the leader, in a new epoch, which is returned. Records that only others have will be lost.

        Raises NoSuchReplica if it is not in sync, unless the election is unclean.
        """
        replica = self._replica(broker_id)
        if broker_id not in self.isr:
            if not is_unclean:
                raise NoSuchReplica(f"broker {broker_id} is not in sync")
            self.isr = (broker_id,)
        self.leader = broker_id
        self.leader_epoch += 1
        self.on_high_watermark = None
        self._follower_ends = dict.fromkeys(self.replicas, UNKNOWN_OFFSET)
        self._follower_epochs = {}
        replica.assign_epoch(self.leader_epoch, replica.end_offset)
        self._move_high_watermark()
        return self.leader_epoch

    def elect_next(self, alive: Sequence[int]) -> int | None:
        """Elect like the controller: the first replica in assignment order that is in sync and alive becomes leader.

        Returns the leader, or None if there is none; then the partition is offline.
        """
        for broker_id in self.replicas:
            if broker_id in self.isr and broker_id in alive:
                self.elect(broker_id)
                return broker_id
        self.leader = None
        self.on_high_watermark = None
        return None

    def delete_records(self, before_offset: int) -> int:
        """Raise the log start offset to `before_offset`, but not beyond the high watermark. Returns the log start
        offset.

        Batches stay stored, as on a broker until a whole segment is below the log start offset (DeleteRecords).
        """
        self.log_start_offset = max(self.log_start_offset, min(before_offset, self.high_watermark))
        return self.log_start_offset

    def _leading(self) -> Replica:
        if self.leader is None:
            raise NoSuchReplica(f"{self.topic}-{self.partition} has no leader")
        return self.replicas[self.leader]

    def _replica(self, broker_id: int) -> Replica:
        replica = self.replicas.get(broker_id)
        if replica is None:
            raise NoSuchReplica(f"broker {broker_id} has no replica of {self.topic}-{self.partition}")
        return replica

    def _expand_isr(self, follower_id: int) -> None:
        """A follower is in sync again once it has all committed records, and the start of the leader's epoch."""
        leader, fetched = self._leading(), self._follower_ends[follower_id]
        epoch_start = leader.epochs[-1].start_offset
        if follower_id not in self.isr and fetched >= max(leader.high_watermark, epoch_start):
            self.isr = tuple(member for member in self.replicas if member in {*self.isr, follower_id})

    def _move_high_watermark(self) -> None:
        """Move it to the smallest end offset in the ISR, never back (maybeIncrementLeaderHW)."""
        leader = self._leading()
        if self.is_under_min_isr:
            return
        ends = [leader.end_offset if member == self.leader else self._follower_ends[member] for member in self.isr]
        if min(ends) > leader.high_watermark:
            leader.high_watermark = min(ends)
            if self.on_high_watermark is not None:
                self.on_high_watermark()
