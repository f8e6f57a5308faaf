"""Which log partition of a coordinator topic holds a group, or a share partition's state, at a time.

Kafka looks in partition `hash(key) % partitions` of the topic. Where somebody adds partitions to `__consumer_offsets`
or `__share_group_state`, most keys hash to another log partition from then on. The coordinator begins them there with
nothing, and what the log partition of before has of them is of the past, though no record in it says so.

The number of partitions is known from the metadata log and from what a live cluster answered, with times. Else there is
only the highest number of a log partition that was captured. That proves no number, so it only decides between log
partitions that both have records of a key.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from coordinator_core.lookup import key_partition
from jobs.runs import WholeRun
from jobs.sinks import Warehouse
from jobs.times import epoch_ms
from schemas import consumer_offsets, share_group_state
from schemas.tables.bronze import COVERAGE, TOPICS
from schemas.tables.silver import PARTITION_COUNTS

GroupRow = TypeVar("GroupRow", bound=Mapping[str, Any])

COORDINATOR_TOPICS: Final = (consumer_offsets.TOPIC, share_group_state.TOPIC)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The number of partitions of one coordinator topic over time."""

    topic: str
    known: tuple[tuple[int, int], ...] = ()
    """(epoch ms, number) where a source knows it, ascending in time."""
    seen: int = 0
    """The highest number of a log partition that was captured, plus one."""
    is_whole: bool = False
    """All log partitions up to that one were captured, and there are several."""

    def known_at(self, at_ms: int | None) -> int | None:
        """The number at a time (None: the newest), where a source that knows it spoke by then."""
        numbers = [number for since_ms, number in self.known if at_ms is None or since_ms <= at_ms]
        return numbers[-1] if numbers else None

    def likely_at(self, at_ms: int | None) -> int:
        """The number at a time: what is known, else known of later, else seen."""
        known = self.known_at(at_ms)
        if known is None:
            known = self.known[0][1] if self.known else None
        return self.seen if known is None else known


def partition_counts(warehouse: Warehouse, cluster_id: str) -> dict[str, PartitionCounts]:
    """Of each coordinator topic of a cluster."""
    counts: dict[str, PartitionCounts] = {}
    logged = WholeRun.newest(warehouse, cluster_id).read(PARTITION_COUNTS).to_pylist()
    for topic in COORDINATOR_TOPICS:
        where = {"cluster_id": cluster_id, "topic": topic}
        answers = warehouse.read(TOPICS, ["told_at", "partition_count"], where=where).to_pylist()
        times = [(row["told_at"], row["partition_count"]) for row in answers]
        times += [(row["valid_from"], row["partition_count"]) for row in logged if row["topic"] == topic]
        known = sorted((0 if at is None else epoch_ms(at), number) for at, number in times if number)
        captured = set(warehouse.read(COVERAGE, ["partition"], where=where)["partition"].to_pylist())
        seen = max(captured, default=-1) + 1
        counts[topic] = PartitionCounts(topic, tuple(known), seen, is_whole=1 < seen == len(captured))
    return counts


@dataclass(frozen=True, slots=True)
class Move:
    """A key with records in several log partitions, and the one that held it."""

    key: str
    log_partition: int
    """Where it was at the time that is asked for."""
    left: tuple[int, ...]
    """Where records of it are of the past."""
    topic: str
    partition_count: int | None
    """The number of partitions by which it is there; None where none explains it: it is where it began last."""


@dataclass(slots=True)
class Places:
    """Log partitions with records of each key, by time."""

    earliest: dict[str, dict[int, int]] = field(default_factory=dict)
    """By key and log partition, when the first of its records there was written (epoch ms), -1 where it has no time.

    Numbers of partitions only grow, so a key is where it began last. Its newest record says less: the coordinator of
    before goes on to expire members and offsets.
    """

    def add(self, rows: Iterable[tuple[str, int, int | None]]) -> None:
        """More records: key, log partition, and time where one is known."""
        for key, log_partition, at_ms in rows:
            places = self.earliest.setdefault(key, {})
            time = -1 if at_ms is None else at_ms
            places[log_partition] = min(places.get(log_partition, time), time)

    @property
    def several(self) -> list[str]:
        """The keys with records in several log partitions."""
        return [key for key, places in self.earliest.items() if len(places) > 1]

    def moves(self, counts: PartitionCounts, at_ms: int | None) -> Iterator[Move]:
        """The keys with records in several log partitions."""
        for key in self.several:
            yield _move(key, self.earliest[key], counts, at_ms)


def _move(key: str, places: Mapping[int, int], counts: PartitionCounts, at_ms: int | None) -> Move:
    number = counts.likely_at(at_ms)
    here = key_partition(key, number) if number > 0 else -1
    if here not in places:
        here = max(places, key=lambda log_partition: (places[log_partition], log_partition))
        number = 0
    left = tuple(sorted(places.keys() - {here}))
    return Move(key, here, left, counts.topic, number or None)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Places whose records are of the past, by key."""

    moves: Mapping[str, Move] = field(default_factory=dict)

    @classmethod
    def of(cls, moves: Iterable[Move]) -> Self:
        """By key."""
        return cls({move.key: move for move in moves})

    def __bool__(self) -> bool:
        return bool(self.moves)

    def present(self, rows: Iterable[GroupRow]) -> list[GroupRow]:
        """Rows of groups without those of the past."""
        return [row for row in rows if not (self and self.is_past(row["group_id"], row["log_partition"]))]

    def is_past(self, key: str, log_partition: int) -> bool:
        """Are a key's records in a log partition of the past?"""
        move = self.moves.get(key)
        return move is not None and log_partition != move.log_partition


def move_text(move: Move) -> str:
    """In words, of an answer without what is of before."""
    return f"{_where(move)} has of it is of before, and is not in this answer"


def listed_move_text(move: Move) -> str:
    """In words, of a list of all that gold has: rows of log partitions of before are in it, too."""
    return f"{_where(move)} has of it is of before: rows of that log partition that are still open hold no more"


def _where(move: Move) -> str:
    there = " and ".join(f"{move.topic}-{number}" for number in move.left)
    if move.partition_count is None:
        why = "it began there last, so the topic got more partitions"
    else:
        why = f"Kafka looks for it there, now that the topic has {move.partition_count} partitions"
    here = f"{move.topic}-{move.log_partition}"
    return f"it is in {here}: {why}. What {there}"
