"""Which log partition of a coordinator topic has a group, or the state of a share partition, at a given time.

Kafka uses partition `hash(key) % partition_count` of the topic. After partitions are added to `__consumer_offsets` or
`__share_group_state`, most keys hash to another log partition. The coordinator starts there without any state, and the
records in the former log partition are obsolete, though no record says so.

The partition count is known, with times, from the metadata log and from answers of a live cluster. Otherwise only the
highest partition number captured is known. That does not prove a count, so it only decides between log partitions that
both have records of a key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.replay.lookup import SharePartitionKey, key_codes
from coordinator_core.text import counted
from jobs.bronze.admin_snapshots import ADMIN
from jobs.bronze.partition_counts import SETTING
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX, arrow_schema, timestamps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.silver.coordinator_keys import KEY_COLUMNS, in_several
from schemas import consumer_offsets, share_group_state
from schemas.tables.bronze import COVERAGE, LOG_PARTITIONS, TOPICS
from schemas.tables.silver import COORDINATOR_PARTITIONS, PARTITION_COUNTS

GroupRow = TypeVar("GroupRow", bound=Mapping[str, Any])

COORDINATOR_TOPICS: Final = (consumer_offsets.TOPIC, share_group_state.TOPIC)
HIGHEST_SEEN: Final = "HIGHEST_SEEN"
EARLIER_COUNT: Final = "EARLIER_COUNT"
BEGAN_LAST: Final = "BEGAN_LAST"
FROM_THE_BEGINNING: Final = -1
"""Earlier than any timestamp (epoch ms)."""
NOW: Final = -1
"""End of an interval that is open."""


class CountSince(NamedTuple):
    """A partition count, and since when a source knows it (epoch ms)."""

    since_ms: int
    partition_count: int
    source: str


class LikelyCount(NamedTuple):
    """A partition count that a topic may have had at a time."""

    partition_count: int
    source: str
    is_known: bool
    """The topic is known to have had this count by then."""


class Age(NamedTuple):
    """From a time on (epoch ms): the partition counts that the topic may have had, the likeliest first."""

    since_ms: int
    counts: tuple[LikelyCount, ...]


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The partition count of one coordinator topic over time."""

    topic: str
    known: tuple[CountSince, ...] = ()
    """Counts that a source gives with a time, in order of time."""
    said: int = 0
    """The count that the user gave, or that a live capture read; 0: none."""
    seen: int = 0
    """The highest partition number found, plus one."""
    is_whole: bool = False
    """All partitions below `seen` were found, and there are several."""

    def known_at(self, at_ms: int | None) -> int | None:
        """The known count at a time (None: now)."""
        numbers = [it.partition_count for it in self.known if at_ms is None or it.since_ms <= at_ms]
        numbers += [self.said] if at_ms is None and self.said else []
        return max(numbers, default=None)

    def ages(self) -> tuple[Age, ...]:
        """The possible counts over time, from the beginning.

        The likeliest at any time is a count without a time that exceeds all known ones, since the topic may have had it
        all along. Then come the counts known by then, the newest first; where none is known by then, the first one
        known later.
        """
        # partitions are never removed
        untimed = max((self.seen, HIGHEST_SEEN), (self.said, SETTING))
        most = max((it.partition_count for it in self.known), default=0)
        first = [LikelyCount(*untimed, is_known=False)] if untimed[0] > most else []
        ages = [Age(FROM_THE_BEGINNING, (*first, *(LikelyCount(*it[1:], is_known=False) for it in self.known[:1])))]
        for index, (since_ms, _, _) in enumerate(self.known):
            by_then = {it.partition_count: it.source for it in self.known[: index + 1]}
            counts = [LikelyCount(count, by_then[count], is_known=True) for count in sorted(by_then, reverse=True)]
            ages.append(Age(since_ms, (*first, *counts)))
        return tuple(ages)


def partition_counts(tables: ClusterTables) -> dict[str, PartitionCounts]:
    """The partition counts of each coordinator topic of a cluster."""
    logged = WholeRun.newest(tables, with_unaudited=True).read(PARTITION_COUNTS).to_pylist()
    return counts_of(tables, logged)


def counts_of(
    tables: ClusterTables, logged: Iterable[Mapping[str, Any]], topics_version: int | None = None
) -> dict[str, PartitionCounts]:
    """The partition counts of each coordinator topic.

    `logged`: rows of silver.partition_counts; `topics_version`: version of bronze.topics, None: the newest, -1: none.
    """
    counts: dict[str, PartitionCounts] = {}
    rows = list(logged)
    for topic in COORDINATOR_TOPICS:
        answers: list[dict[str, Any]] = []
        if topics_version is None or topics_version >= 0:
            names = ["observed_at", "partition_count"]
            answers = tables.read(TOPICS, names, version=topics_version, topic=topic).to_pylist()
        times = [(_ms(row["observed_at"]), row["partition_count"], ADMIN) for row in answers]
        times += [
            (_ms(row["valid_from"]), row["partition_count"], row["learned_from"])
            for row in rows
            if row["topic"] == topic
        ]
        known: list[CountSince] = []
        for since in sorted(CountSince(*it) for it in times if it[1]):
            if not known or since.partition_count > known[-1].partition_count:
                known.append(since)
        captured = set(tables.read(COVERAGE, ["partition"], topic=topic)["partition"].to_pylist())
        found = tables.read(LOG_PARTITIONS, ["partition", "partition_count"], topic=topic).to_pylist()
        captured |= {row["partition"] for row in found}
        said = max((row["partition_count"] or 0 for row in found), default=0)
        seen = max(captured, default=-1) + 1
        counts[topic] = PartitionCounts(topic, tuple(known), said, seen, is_whole=1 < seen == len(captured))
    return counts


def _ms(at: datetime | int | None) -> int:
    """As epoch milliseconds; FROM_THE_BEGINNING where there is no valid time."""
    at_ms = at if at is None or isinstance(at, int) else epoch_ms(at)
    return at_ms if at_ms is not None and 0 <= at_ms <= TIMESTAMP_MS_MAX else FROM_THE_BEGINNING


@dataclass(frozen=True, slots=True)
class Move:
    """A key with records in several log partitions, and the one that Kafka uses."""

    key: str
    log_partition: int
    """The log partition that Kafka used at the time in question."""
    left: tuple[int, ...]
    """Log partitions with obsolete records of the key."""
    topic: str
    partition_count: int | None
    """The partition count that explains it; None: no count does, and the log partition where the key began last is
    assumed."""
    learned_from: str = HIGHEST_SEEN
    """The source of that count."""


class Stay(NamedTuple):
    """The log partition that Kafka used for a key in an interval (epoch ms, half-open)."""

    from_ms: int
    """-1: from the beginning."""
    to_ms: int
    """-1: until now."""
    log_partition: int
    former: tuple[int, ...]
    """Other log partitions with records of the key by then."""
    partition_count: int | None
    """None: no count explains it."""
    learned_from: str


def stays_of(code: int, began: Sequence[tuple[int, int]], ages: Sequence[Age]) -> list[Stay]:
    """The log partitions that Kafka used for a key over time.

    `code`: hash of the key (`key_codes`). `began`: log partitions with records of it, each with the time of the first
    one (epoch ms, -1: no timestamp). `ages`: partition counts of the topic over time.
    """
    first_ms = min(since_ms for _, since_ms in began)
    times = sorted({since_ms for _, since_ms in began} | {age.since_ms for age in ages if age.since_ms > first_ms})
    stays: list[Stay] = []
    for at_ms in times:
        places = [place for place in began if place[1] <= at_ms]
        counts = next(age.counts for age in reversed(ages) if age.since_ms <= at_ms)
        here = _here(code, places, counts, is_now=at_ms == times[-1])
        former = tuple(sorted(number for number, _ in places if number != here[0]))
        if stays and (stays[-1].log_partition, stays[-1].former, *stays[-1][4:]) == (here[0], former, *here[1:]):
            continue
        if stays:
            stays[-1] = stays[-1]._replace(to_ms=at_ms)
        stays.append(Stay(at_ms if stays else FROM_THE_BEGINNING, NOW, here[0], former, *here[1:]))
    return stays


def _here(
    code: int, places: Sequence[tuple[int, int]], counts: Sequence[LikelyCount], *, is_now: bool
) -> tuple[int, int | None, str]:
    """The log partition of a key, the partition count that explains it, and the source of that count."""
    is_earlier = False
    for partition_count, source, is_known in counts:
        here = code % partition_count
        if any(number == here for number, _ in places):
            return here, partition_count, EARLIER_COUNT if is_earlier else source
        is_earlier = is_earlier or is_known or is_now
    here, _ = max(places, key=lambda place: (place[1], place[0]))
    return here, None, BEGAN_LAST


def coordinator_partitions(keys: pa.Table, counts: Mapping[str, PartitionCounts], cluster_id: str) -> pa.Table:
    """Rows of silver.coordinator_partitions. `keys`: the keys in state.checkpoints of the cluster."""
    schema = arrow_schema(COORDINATOR_PARTITIONS)
    order = ["log_topic", *KEY_COLUMNS, "log_partition"]
    rows = in_several(keys).sort_by([(name, "ascending") for name in order])
    if not rows.num_rows:
        return schema.empty_table()
    firsts = _firsts(rows)
    of_key = rows.select(["log_topic", *KEY_COLUMNS]).take(pa.array(firsts))
    topics, *names = (of_key[name].to_pylist() for name in of_key.column_names)
    codes = key_codes(list(map(_key, *names))).tolist()
    log_partitions = rows["log_partition"].to_pylist()
    is_timed = rows["at"].is_valid().to_numpy()
    times = np.where(is_timed, epoch_ms_column(rows["at"]), FROM_THE_BEGINNING).tolist()
    ages = {topic: it.ages() for topic, it in counts.items()}
    found: list[Stay] = []
    index: list[int] = []
    for number, (begin, end) in enumerate(pairwise([*firsts.tolist(), rows.num_rows])):
        began = list(zip(log_partitions[begin:end], times[begin:end], strict=True))
        stays = stays_of(codes[number], began, ages[topics[number]])
        found += stays
        index += [number] * len(stays)
    from_ms, to_ms, places, former, partition_counts, sources = zip(*found, strict=True)
    columns = {
        **{name: of_key[name].take(pa.array(index)) for name in of_key.column_names},
        "cluster_id": pa.array([cluster_id] * len(found), pa.string()),
        "valid_from": timestamps(np.array(from_ms, np.int64)),
        "valid_to": timestamps(np.array(to_ms, np.int64)),
        "log_partition": pa.array(places, pa.int32()),
        "former_log_partitions": pa.array(former, schema.field("former_log_partitions").type),
        "partition_count": pa.array(partition_counts, pa.int32()),
        "learned_from": pa.array(sources, pa.string()),
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _firsts(rows: pa.Table) -> I64:
    """The index of the first row of each key."""
    is_first = np.zeros(rows.num_rows, np.bool_)
    is_first[0] = True
    for name in ("log_topic", *KEY_COLUMNS):
        column = rows[name].combine_chunks()
        codes = numbers_of(column) if name == "partition" else codes_of(rows[name])[0]
        is_first[1:] |= codes[1:] != codes[:-1]
    return np.flatnonzero(is_first)


def _key(group_id: str, topic_id: str | None, partition: int | None) -> str:
    """The coordinator's key of a group, or of a share partition."""
    if topic_id is None or partition is None:
        return group_id
    return SharePartitionKey(group_id, topic_id, partition).as_coordinator_key()


def is_same(rows: pa.Table, others: pa.Table) -> bool:
    """Do two tables have the same rows of silver.coordinator_partitions, in whatever order?"""
    order = [(name, "ascending") for name in COORDINATOR_PARTITIONS.key if name in rows.column_names]
    one, other = rows.sort_by(order), others.sort_by(order)
    return all(one[name].equals(other[name]) for name in COORDINATOR_PARTITIONS.column_names)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Keys that moved to another log partition, with those that have their obsolete records."""

    moves: Mapping[str, Move] = field(default_factory=dict)

    @classmethod
    def of(cls, moves: Iterable[Move]) -> Self:
        return cls({move.key: move for move in moves})

    def __bool__(self) -> bool:
        return bool(self.moves)

    def present(self, rows: Iterable[GroupRow]) -> list[GroupRow]:
        """The rows of groups that are not obsolete."""
        return [row for row in rows if not (self and self.is_past(row["group_id"], row["log_partition"]))]

    def is_past(self, key: str, log_partition: int) -> bool:
        """Are a key's records in this log partition obsolete?"""
        move = self.moves.get(key)
        return move is not None and log_partition != move.log_partition


@dataclass(frozen=True, slots=True)
class CoordinatorPartitions:
    """silver.coordinator_partitions of a cluster, as of the newest whole run."""

    rows: pa.Table

    @classmethod
    def newest(cls, tables: ClusterTables) -> Self:
        """As of now."""
        return cls(WholeRun.newest(tables).read(COORDINATOR_PARTITIONS))

    def left_behind(self, topic: str, at_ms: int | None, group_ids: Sequence[str] | None = None) -> LeftBehind:
        """The moves as of a time (None: now), of some groups or of all."""
        return LeftBehind.of(self._moves(topic, at_ms, group_ids))

    def left_at(self, topic: str) -> dict[tuple[str, int], int]:
        """By key and former log partition: when Kafka last used it for the key (epoch ms, exclusive); -1 if it never
        did while another one had records of the key.
        """
        ends: dict[tuple[str, int], int] = {}
        rows = self.rows.filter(pc.equal(self.rows["log_topic"], topic)).to_pylist() if self.rows.num_rows else []
        now: set[tuple[str, int]] = set()
        for row in rows:
            key = _key(*(row[name] for name in KEY_COLUMNS))
            if row["valid_to"] is None:
                now.add((key, row["log_partition"]))
                ends |= {(key, number): ends.get((key, number), -1) for number in row["former_log_partitions"]}
            else:
                place = key, row["log_partition"]
                ends[place] = max(_ms(row["valid_to"]), ends.get(place, -1))
        return {place: end for place, end in ends.items() if place not in now}

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
                    _key(*(row[name] for name in KEY_COLUMNS)),
                    row["log_partition"],
                    tuple(row["former_log_partitions"]),
                    topic,
                    row["partition_count"],
                    row["learned_from"],
                )


def move_text(move: Move) -> str:
    """A sentence for an answer that leaves out obsolete records."""
    return f"{_where(move)}, and are not in this answer"


def listed_move_text(move: Move) -> str:
    """A sentence for a list of all rows of gold, including those of former log partitions."""
    return f"{_where(move)}: rows of them that are still open are not valid any more"


def _where(move: Move) -> str:
    there = " and ".join(f"{move.topic}-{number}" for number in move.left)
    if move.learned_from == BEGAN_LAST:
        why = "its records began latest there, so the topic got more partitions"
    elif move.learned_from == EARLIER_COUNT:
        why = f"the last that Kafka used for it, when the topic had {counted(move.partition_count or 0, 'partition')}"
    else:
        why = f"Kafka looks for it there, now that the topic has {counted(move.partition_count or 0, 'partition')}"
    here = f"{move.topic}-{move.log_partition}"
    return f"it is in {here}: {why}. Its records in {there} are from before the topic got more partitions"
