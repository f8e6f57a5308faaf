"""Which log partition of a coordinator topic holds a group, or a share partition's state, at a time.

Kafka looks in partition `hash(key) % partitions` of the topic. Where somebody adds partitions to `__consumer_offsets`
or `__share_group_state`, most keys hash to another log partition from then on. The coordinator begins them there with
nothing, and what the log partition of before has of them is of the past, though no record in it says so.

The number of partitions is known from the metadata log and from what a live cluster answered, with times. Else there is
only the highest number of a log partition that was captured. That proves no number, so it only decides between log
partitions that both have records of a key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.lookup import SharePartitionKey, key_partition
from jobs.arrow_schemas import TIMESTAMP_MS_MAX, arrow_schema, timestamps
from jobs.coordinator_keys import in_several
from jobs.partition_counts import SETTING
from jobs.runs import WholeRun
from jobs.sinks import Warehouse
from jobs.times import epoch_ms
from jobs.told import ADMIN
from schemas import consumer_offsets, share_group_state
from schemas.tables.bronze import COVERAGE, LOG_PARTITIONS, TOPICS
from schemas.tables.silver import COORDINATOR_PARTITIONS, PARTITION_COUNTS

GroupRow = TypeVar("GroupRow", bound=Mapping[str, Any])

COORDINATOR_TOPICS: Final = (consumer_offsets.TOPIC, share_group_state.TOPIC)
HIGHEST_SEEN: Final = "HIGHEST_SEEN"
EARLIER_COUNT: Final = "EARLIER_COUNT"
BEGAN_LAST: Final = "BEGAN_LAST"
FROM_THE_BEGINNING: Final = -1
"""Before any time (epoch ms)."""


class CountSince(NamedTuple):
    """A number of partitions, and since when a source knows it (epoch ms)."""

    since_ms: int
    partition_count: int
    source: str


class CountNow(NamedTuple):
    """A number of partitions that has no time."""

    partition_count: int
    source: str


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The number of partitions of one coordinator topic over time."""

    topic: str
    known: tuple[CountSince, ...] = ()
    """Where a source knows it, ascending in time."""
    said: int = 0
    """As the user said, or as many as a live capture read; 0: nobody did."""
    seen: int = 0
    """The highest number of a log partition that was found, plus one."""
    is_whole: bool = False
    """All log partitions up to that one were found, and there are several."""

    def known_at(self, at_ms: int | None) -> int | None:
        """The number at a time (None: the newest), where a source that knows it spoke by then."""
        numbers = [it.partition_count for it in self.known if at_ms is None or it.since_ms <= at_ms]
        numbers += [self.said] if at_ms is None and self.said else []
        return max(numbers, default=None)

    def likely_at(self, at_ms: int | None) -> list[CountNow]:
        """Numbers that the topic may have had at a time, the likeliest first: one without a time that is more than all
        that is known, as nobody knows since when the topic has had so many; then what is known by then, from the newest
        to the oldest; where nothing is known by then, what is known of later."""
        by_then = [it for it in self.known if at_ms is None or it.since_ms <= at_ms] or self.known[:1]
        sources = {it.partition_count: it.source for it in by_then}
        # partitions are never taken away
        untimed = max(CountNow(self.seen, HIGHEST_SEEN), CountNow(self.said, SETTING))
        if untimed.partition_count > max((it.partition_count for it in self.known), default=0):
            sources[untimed.partition_count] = untimed.source
        return [CountNow(count, sources[count]) for count in sorted(sources, reverse=True)]


def partition_counts(warehouse: Warehouse, cluster_id: str) -> dict[str, PartitionCounts]:
    """Of each coordinator topic of a cluster."""
    logged = WholeRun.newest(warehouse, cluster_id).read(PARTITION_COUNTS).to_pylist()
    return counts_of(warehouse, cluster_id, logged)


def counts_of(
    warehouse: Warehouse, cluster_id: str, logged: Iterable[Mapping[str, Any]], told_topics_version: int | None = None
) -> dict[str, PartitionCounts]:
    """Of each coordinator topic. `logged`: rows of silver.partition_counts; `told_topics_version`: of bronze.topics,
    the newest if None, none if -1."""
    counts: dict[str, PartitionCounts] = {}
    rows = list(logged)
    for topic in COORDINATOR_TOPICS:
        where = {"cluster_id": cluster_id, "topic": topic}
        answers: list[dict[str, Any]] = []
        if told_topics_version is None or told_topics_version >= 0:
            answers = warehouse.read(
                TOPICS, ["told_at", "partition_count"], where=where, version=told_topics_version
            ).to_pylist()
        times = [(_ms(row["told_at"]), row["partition_count"], ADMIN) for row in answers]
        times += [
            (_ms(row["valid_from"]), row["partition_count"], row["learned_from"])
            for row in rows
            if row["topic"] == topic
        ]
        known = sorted(CountSince(*it) for it in times if it[1])
        captured = set(warehouse.read(COVERAGE, ["partition"], where=where)["partition"].to_pylist())
        found = warehouse.read(LOG_PARTITIONS, ["partition", "partition_count"], where=where).to_pylist()
        captured |= {row["partition"] for row in found}
        said = max((row["partition_count"] or 0 for row in found), default=0)
        seen = max(captured, default=-1) + 1
        counts[topic] = PartitionCounts(topic, tuple(known), said, seen, is_whole=1 < seen == len(captured))
    return counts


def _ms(at: datetime | int | None) -> int:
    """As epoch milliseconds; none is before any."""
    at_ms = at if at is None or isinstance(at, int) else epoch_ms(at)
    return at_ms if at_ms is not None and 0 <= at_ms <= TIMESTAMP_MS_MAX else FROM_THE_BEGINNING


@dataclass(frozen=True, slots=True)
class Move:
    """A key with records in several log partitions, and where Kafka looks for it."""

    key: str
    log_partition: int
    """Where it was at the time that is asked for."""
    left: tuple[int, ...]
    """Where records of it are of the past."""
    topic: str
    partition_count: int | None
    """The number of partitions by which it is there; None where none explains it: it is where it began last."""
    learned_from: str = HIGHEST_SEEN
    """What tells that number."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Where Kafka looked for a key in an interval (epoch ms, half open)."""

    from_ms: int
    """-1: from the beginning."""
    to_ms: int | None
    """None: now."""
    move: Move


def stays_of(key: str, began: Mapping[int, int], counts: PartitionCounts) -> list[Stay]:
    """Where Kafka looked for a key over time. `began`: by log partition with records of it, when these begin (epoch ms,
    -1 for no time)."""
    times = sorted({*began.values(), *(it.since_ms for it in counts.known if it.since_ms > min(began.values()))})
    changes: list[tuple[int, Move]] = []
    for at_ms in times:
        move = _move(key, began, counts, None if at_ms == times[-1] else at_ms)
        if not changes or changes[-1][1] != move:
            changes.append((at_ms, move))
    ends = [*(at_ms for at_ms, _ in changes[1:]), None]
    return [
        Stay(at_ms if index else FROM_THE_BEGINNING, end, move)
        for index, ((at_ms, move), end) in enumerate(zip(changes, ends, strict=True))
    ]


def _move(key: str, began: Mapping[int, int], counts: PartitionCounts, at_ms: int | None) -> Move:
    places = {number: since_ms for number, since_ms in began.items() if at_ms is None or since_ms <= at_ms}
    numbers = counts.likely_at(at_ms)
    for index, number in enumerate(numbers):
        here = key_partition(key, number.partition_count)
        if here in places:
            is_earlier = any(_is_known_by(newer, counts, at_ms) for newer in numbers[:index])
            how = EARLIER_COUNT if is_earlier else number.source
            return Move(key, here, _others(places, here), counts.topic, number.partition_count, how)
    here = max(places, key=lambda log_partition: (places[log_partition], log_partition))
    return Move(key, here, _others(places, here), counts.topic, None, BEGAN_LAST)


def _is_known_by(number: CountNow, counts: PartitionCounts, at_ms: int | None) -> bool:
    """Did the topic have so many partitions by a time, as far as is known?"""
    if at_ms is None:
        return True
    return any(it.partition_count == number.partition_count and it.since_ms <= at_ms for it in counts.known)


def _others(places: Iterable[int], here: int) -> tuple[int, ...]:
    return tuple(sorted(number for number in places if number != here))


def coordinator_partitions(keys: pa.Table, counts: Mapping[str, PartitionCounts], cluster_id: str) -> pa.Table:
    """Rows of silver.coordinator_partitions. `keys`: rows of state.coordinator_keys of the cluster."""
    by_key = itemgetter("log_topic", "group_id", "topic_id", "partition")
    several = sorted(
        in_several(keys).to_pylist(),
        key=lambda row: (row["log_topic"], row["group_id"], row["topic_id"] or "", row["partition"] or 0),
    )
    columns: dict[str, list[Any]] = {name: [] for name in COORDINATOR_PARTITIONS.column_names}
    for place, rows in groupby(several, by_key):
        topic, group_id, topic_id, partition = place
        key = group_id if topic_id is None else SharePartitionKey(group_id, topic_id, partition).as_coordinator_key()
        began = {row["log_partition"]: _ms(row["began_at"]) for row in rows}
        for stay in stays_of(key, began, counts[topic]):
            values = (
                *(cluster_id, *place),
                *(_time(stay.from_ms), _time(stay.to_ms), stay.move.log_partition, stay.move.left),
                *(stay.move.partition_count, stay.move.learned_from),
            )
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return pa.table(columns, schema=arrow_schema(COORDINATOR_PARTITIONS))


def is_same(rows: pa.Table, others: pa.Table) -> bool:
    """Do two tables have the same rows of silver.coordinator_partitions, in whatever order?"""
    order = [(name, "ascending") for name in COORDINATOR_PARTITIONS.key if name in rows.column_names]
    one, other = rows.sort_by(order), others.sort_by(order)
    return all(one[name].equals(other[name]) for name in COORDINATOR_PARTITIONS.column_names)


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None or at_ms < 0 else EPOCH + timedelta(milliseconds=at_ms)


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


@dataclass(frozen=True, slots=True)
class CoordinatorPartitions:
    """silver.coordinator_partitions of a cluster, as the newest whole run left it."""

    rows: pa.Table

    def left_behind(self, topic: str, at_ms: int | None, group_ids: Sequence[str] | None = None) -> LeftBehind:
        """What is of the past at a time (None: now), of some groups or of all."""
        return LeftBehind.of(self._moves(topic, at_ms, group_ids))

    def _moves(self, topic: str, at_ms: int | None, group_ids: Sequence[str] | None) -> Iterator[Move]:
        if not self.rows.num_rows:
            return
        rows = self.rows.filter(pc.equal(self.rows["log_topic"], topic))
        if group_ids is not None:
            rows = rows.filter(pc.is_in(rows["group_id"], value_set=pa.array(group_ids, pa.string())))
        if at_ms is None:
            rows = rows.filter(rows["valid_to"].is_null())
        else:
            time = timestamps(np.array([at_ms], np.int64))[0]
            has_begun = pc.or_kleene(rows["valid_from"].is_null(), pc.less_equal(rows["valid_from"], time))
            is_open = pc.or_kleene(rows["valid_to"].is_null(), pc.greater(rows["valid_to"], time))
            rows = rows.filter(pc.and_(has_begun, is_open))
        for row in rows.to_pylist():
            if row["former_log_partitions"]:
                yield Move(
                    _key_of(row),
                    row["log_partition"],
                    tuple(row["former_log_partitions"]),
                    topic,
                    row["partition_count"],
                    row["learned_from"],
                )


def _key_of(row: Mapping[str, Any]) -> str:
    group_id: str = row["group_id"]
    if row["topic_id"] is None:
        return group_id
    return SharePartitionKey(group_id, row["topic_id"], row["partition"]).as_coordinator_key()


def move_text(move: Move) -> str:
    """In words, of an answer without what is of before."""
    return f"{_where(move)} has of it is of before, and is not in this answer"


def listed_move_text(move: Move) -> str:
    """In words, of a list of all that gold has: rows of log partitions of before are in it, too."""
    return f"{_where(move)} has of it is of before: rows of that log partition that are still open hold no more"


def _where(move: Move) -> str:
    there = " and ".join(f"{move.topic}-{number}" for number in move.left)
    if move.learned_from == BEGAN_LAST:
        why = "it began there last, so the topic got more partitions"
    elif move.learned_from == EARLIER_COUNT:
        why = f"Kafka looked for it there last, when the topic had {move.partition_count} partitions"
    else:
        why = f"Kafka looks for it there, now that the topic has {move.partition_count} partitions"
    here = f"{move.topic}-{move.log_partition}"
    return f"it is in {here}: {why}. What {there}"
