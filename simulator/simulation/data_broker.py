"""The state of share groups on one broker: sessions, share partitions in flight, and parked fetches."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share_partition.state import AcquiredRecords, SharePartition
from coordinator_core.live.share_state.persister import Persister
from coordinator_core.replay.lookup import SharePartitionKey
from simulator.simulation.clients.share_messages import OPEN_EPOCH, ShareFetchRequest
from simulator.simulation.dead_letters import DeadLetterSender
from simulator.simulation.process import Process


@dataclass(slots=True)
class Served:
    """A share partition on its leader."""

    group_id: str
    at: TopicPartition
    key: SharePartitionKey
    partition: SharePartition
    deadline_ms: int | None = None
    """The time of the next scheduled check of its locks."""
    fetch_lock: "DelayedShareFetch | None" = None
    """The fetch that reads it now; other fetches must wait (SharePartition.fetchLock)."""
    seen_start_offset: int = 0
    """Its start offset after the last command: when a write ends, this shows whether the write moved it."""


Acquired = dict[TopicPartition, tuple[AcquiredRecords, ...]]


@dataclass(slots=True, eq=False)
class DelayedShareFetch:
    """One fetch, from its arrival to its answer."""

    process: Process
    request: ShareFetchRequest
    is_committed: bool
    """share.isolation.level is read_committed."""
    share_partitions: tuple[Served, ...]
    deadline_ms: int
    on_done: Callable[[Acquired], None]
    wake_ms: int = 0
    """The time of its next try, unless an event triggers one earlier."""
    is_parked: bool = True


@dataclass(slots=True)
class ShareSession:
    epoch: int = OPEN_EPOCH
    """The epoch that the next request must have."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """In the order in which the member added them."""


@dataclass(slots=True)
class DataBroker:
    """The state of share groups on one broker."""

    broker_id: int
    persister: Persister
    draws: random.Random
    """Random numbers for the choice of the broker to ask."""
    letters: DeadLetterSender
    sessions: dict[tuple[str, str], ShareSession] = field(default_factory=dict)
    """(group id, member id) -> session."""
    served: dict[tuple[str, TopicPartition], Served] = field(default_factory=dict)
    retry_ms: int | None = None
    """The next time to check the persister."""
    parked: dict[tuple[str, TopicPartition], dict[DelayedShareFetch, None]] = field(default_factory=dict)
    """The fetches that wait for a share partition, in the order of their arrival (DelayedOperationPurgatory)."""
    on_lost: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Request without a response yet -> what to do if the broker fails."""
    is_gone: bool = False
