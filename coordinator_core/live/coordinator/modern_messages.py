"""Messages that consumer and share groups have in common; names and defaults of fields are Kafka's."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordinator_core.live.classic.messages import Response


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of a topic, by the topic's id."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions that a member should own, or may fetch from."""

    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ModernResponse(Response):
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(ModernResponse):
    """The response to a member. `assignment` None: unchanged."""

    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


Problem = tuple[bool, str]
"""Whether a request has the problem, and Kafka's message for it."""


def empty_ids(**ids: str | None) -> Iterator[Problem]:
    """A problem for each id, by its name in messages: it may be missing, but not empty."""
    return ((value is not None and not value.strip(), f"{name} can't be empty.") for name, value in ids.items())


def first_text(problems: Iterable[Problem]) -> str | None:
    """The message of the first problem that exists."""
    return next((text for is_there, text in problems if is_there), None)
