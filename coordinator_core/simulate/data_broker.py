"""What one broker has of share groups: sessions, share partitions in flight, and fetches that wait."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator_core.assignors.client_group import TopicPartition
from coordinator_core.lookup import SharePartitionKey
from coordinator_core.share_partition.state import SharePartition
from coordinator_core.share_state.persister import Persister
from coordinator_core.simulate.clients.share_messages import OPEN_EPOCH
from coordinator_core.simulate.dead_letters import DeadLetterSender

if TYPE_CHECKING:
    from coordinator_core.simulate.delayed_share_fetch import DelayedShareFetch


@dataclass(slots=True)
class Served:
    """A share partition on its leader."""

    group_id: str
    at: TopicPartition
    key: SharePartitionKey
    partition: SharePartition
    deadline_ms: int | None = None
    """When the next look at its locks is scheduled for."""
    fetch_lock: object | None = None
    """The fetch that reads it now: no other one may meanwhile (SharePartition.fetchLock)."""
    seen_start_offset: int = 0
    """Its start offset after the last command: of a write that ends, whether it moved that."""


@dataclass(slots=True)
class ShareSession:
    """What a broker has of the session of one member (ShareSession)."""

    epoch: int = OPEN_EPOCH
    """Which the next request has to have."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """As the member added them."""


@dataclass(slots=True)
class DataBroker:
    """What one broker has of share groups."""

    broker_id: int
    persister: Persister
    draws: random.Random
    """For which broker it asks."""
    letters: DeadLetterSender
    sessions: dict[tuple[str, str], ShareSession] = field(default_factory=dict)
    """By group and member."""
    served: dict[tuple[str, TopicPartition], Served] = field(default_factory=dict)
    retry_ms: int | None = None
    """When the persister is looked at next."""
    parked: dict[tuple[str, TopicPartition], dict["DelayedShareFetch", None]] = field(default_factory=dict)
    """The fetches that wait for a share partition, in the order of their arrival (DelayedOperationPurgatory)."""
    on_lost: dict[int, Callable[[], None]] = field(default_factory=dict)
    """For each request without a response yet: what becomes of it where the broker dies."""
    is_gone: bool = False
