"""The events that a client gets and the actions that it returns: the docstring of the package has the contract."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from schemas.error_codes import ErrorCode
from simulator.simulation.scenario import GroupSpec


class Service(StrEnum):
    """The coordinator, or the leader, that serves a request."""

    GROUP = "group"
    """The coordinator of the group `Send.key`."""
    TRANSACTION = "transaction"
    """The coordinator of the transactional id `Send.key`."""
    DATA = "data"
    """The leader of the data partition `Send.key`, a TopicPartition."""


RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors after which a client retries, at the coordinator that it finds then."""

RETRY_BACKOFF_MS: Final = 100
"""retry.backoff.ms of all clients."""

POLL, RETRY, BUSY, POLL_EXPIRED = "poll", "retry", "busy", "poll-expired"
"""Timers of all members: the next poll; the request again; the application's thread is free again; it was busy for
longer than allowed."""


COOPERATIVE: Final = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings of one member: its own ones, and in `spec` those that all members of the group have."""

    spec: GroupSpec
    group_id: str
    client_id: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...] = ()
    """Classic: the preferred one first. Consumer protocol: the first is the server-side assignor to request; empty:
    any.
    """
    max_poll_interval_ms: int = 300_000
    rack_id: str | None = None
    """client.rack."""
    instance_id: str | None = None
    """group.instance.id."""

    @property
    def is_cooperative(self) -> bool:
        """Whether the rebalance protocol that all assignors support is COOPERATIVE: only if none is eager."""
        return all(name == COOPERATIVE for name in self.assignors)

    @property
    def auto_commit_interval_ms(self) -> int | None:
        """None: it does not commit."""
        return None if self.spec.commits == "none" else self.spec.commit_interval_ms

    def busy_for(self, duration_ms: int) -> list["SetTimer"]:
        """The timers of a thread that is busy from now on: the heartbeat thread watches the poll interval."""
        timers = [SetTimer(BUSY, duration_ms)]
        if duration_ms > self.max_poll_interval_ms:
            timers.append(SetTimer(POLL_EXPIRED, self.max_poll_interval_ms))
        return timers


# --- events ---


@dataclass(frozen=True, slots=True)
class Started:
    """The process has started."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the request with this tag; `error` replaces the response if the request as a whole was refused.

    REQUEST_TIMED_OUT also means an answer that never came.
    """

    tag: str
    response: Any
    error: ErrorCode | None = None
    request: Any = None

    @property
    def code(self) -> ErrorCode:
        return self.error or ErrorCode(getattr(self.response, "error_code", 0) or 0)


@dataclass(frozen=True, slots=True)
class TimerFired:
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Close properly: the simulation waits until the client returns `Closed`."""


@dataclass(frozen=True, slots=True)
class SlowPoll:
    """The records of the last poll take `duration_ms` to process: the client's own thread is busy until then."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The client's metadata shows that topics were created or deleted, or have grown."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


Event = Started | Answered | TimerFired | Stop | SlowPoll | TopicsChanged | Subscribe


# --- actions ---


@dataclass(frozen=True, slots=True)
class Send:
    """A request. `api_version` is the version of its API."""

    service: Service
    key: Any
    operation: str
    request: Any
    tag: str
    api_version: int
    timeout_ms: int | None = None
    """After this time the client gives up the request, and treats the connection as broken. None: for requests that
    wait for no other member, and are answered, or lost with their broker, in less time."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """`TimerFired(name)` in `delay_ms`; this replaces a running timer of that name."""

    name: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    name: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send a heartbeat (`Member.heartbeat`) every `interval_ms` from now on, the first in `interval_ms`; 0: no more."""

    interval_ms: int


@dataclass(frozen=True, slots=True)
class Took:
    """The client believes from now on that it owns these partitions, and reads from these offsets on."""

    positions: Sequence[tuple[TopicPartition, int]]
    generation: int


@dataclass(frozen=True, slots=True)
class Gave:
    """It no longer believes so; each partition has the next offset that it would have read. `ended_by`: REVOKED, LOST
    or CLOSED.
    """

    positions: Sequence[tuple[TopicPartition, int]]
    ended_by: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The client has ended: after `Stop`, or because of an error from which clients do not recover."""

    reason: str = "STOPPED"


Action = Send | SetTimer | CancelTimer | Heartbeat | Took | Gave | Closed
Actions = list[Action]
