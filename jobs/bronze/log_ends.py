"""Which log partitions there are, and up to when each was read: how far an answer reaches.

A live cluster was read up to its high watermark: what was written before the capture began is in bronze, also of a log
partition in which nothing was written for long. A copied log directory or a dump proves less. Up to its last record a
log partition was read; whether it was written to after that, nothing in the copy tells: files of one folder may have
been copied hours apart, the time of a file is that of the copy as often as not, and a fresh log partition says nothing
of a stale one in the next folder. So each log partition of a copy reaches to its own last record, and a statement about
several to the least of these. Where the user says when a copy was made (`--copied-at`), it reaches up to that time.

A log partition that is in no source at all (one disk of two, one broker of several) is noticed where it is known how
many there are (`jobs.bronze.partition_counts`). Where nothing tells it, completeness cannot be said.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa

from coordinator_core.log_partitions import LogPartition
from jobs.bronze.partition_counts import SETTING, KnownCount, known_counts
from jobs.console.output import time_text
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import OVERWRITE, Warehouse
from jobs.errors import ArgumentError
from jobs.sources.segments import LogPlace
from schemas.tables.bronze import COVERAGE, LOG_PARTITIONS

COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__share_group_state")
NAMED_MAX: Final = 10
RANGE_COLUMNS: Final = ("topic", "partition", "from_offset", "kind", "first_timestamp", "last_timestamp")


class LogEnd(NamedTuple):
    """A log partition that was found. Times are epoch ms."""

    partition: int
    first_record_ms: int | None
    last_record_ms: int | None
    """Of the last record that was read; None: it was empty, or its records have no time."""
    live_until_ms: int | None
    """All that a live cluster had until then was read, or a copy that was made then; None: from copies of whatever time
    alone."""
    is_empty: bool

    @property
    def bound_ms(self) -> int | None:
        """Up to when it was read, as far as that is proven."""
        known = [it for it in (self.last_record_ms, self.live_until_ms) if it is not None]
        return max(known, default=None)


class LogEnds(NamedTuple):
    """The log partitions of a coordinator topic."""

    topic: str
    ends: Mapping[int, LogEnd]
    known: KnownCount | None
    """How many there are, as far as anything but their own names tells it."""

    @property
    def seen_count(self) -> int:
        """As many as there are at least, by the highest number that was found."""
        return max(self.ends, default=-1) + 1

    @property
    def is_count_known(self) -> bool:
        """What tells the number of log partitions is not behind what was found."""
        return self.known is not None and self.known.partition_count >= self.seen_count

    @property
    def missing(self) -> tuple[int, ...]:
        """Log partitions that are in no source; none where nothing tells how many there are: a few may have been chosen
        to be looked at, and completeness is not said then anyway."""
        count = 0 if self.known is None else max(self.seen_count, self.known.partition_count)
        return tuple(partition for partition in range(count) if partition not in self.ends)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Log partitions that there are and that are in no source: as `missing`, and where nothing tells how many there
        are those below the highest number that was found."""
        return self.missing or tuple(partition for partition in range(self.seen_count) if partition not in self.ends)

    @property
    def begins_ms(self) -> int | None:
        """When the earliest record that was read was written."""
        return min((it.first_record_ms for it in self.ends.values() if it.first_record_ms is not None), default=None)

    @property
    def newest_ms(self) -> int | None:
        """Up to when any log partition was read."""
        return max((it.bound_ms for it in self.ends.values() if it.bound_ms is not None), default=None)

    @property
    def proven_ms(self) -> int | None:
        """Up to when all log partitions were read; None where one of them proves no time."""
        bounds = [it.bound_ms for it in self.ends.values()]
        known = [it for it in bounds if it is not None]
        return min(known) if known and len(known) == len(bounds) else None

    def short_of(self, at_ms: int) -> list[LogEnd]:
        """Log partitions which are not proven to be read up to a time, by number."""
        return [it for _, it in sorted(self.ends.items()) if it.bound_ms is None or it.bound_ms < at_ms]


def log_ends(
    warehouse: Warehouse,
    cluster_id: str,
    topics: Collection[str] = COORDINATOR_TOPICS,
    settings: Mapping[str, int] | None = None,
) -> dict[str, LogEnds]:
    """What is known of the log partitions of some topics. `settings`: numbers of partitions that the user says."""
    of_cluster: dict[str, Any] = {"cluster_id": cluster_id}
    coverage: dict[LogPartition, list[Mapping[str, Any]]] = {}
    for row in warehouse.read(COVERAGE, RANGE_COLUMNS, where=of_cluster).to_pylist():
        coverage.setdefault((row["topic"], row["partition"]), []).append(row)
    rows = warehouse.read(LOG_PARTITIONS, where=of_cluster).to_pylist()
    kept = {(row["topic"], row["partition"]): row for row in rows}
    said: dict[str, int] = {}
    for row in rows:
        if row["partition_count"] is not None:
            said[row["topic"]] = max(row["partition_count"], said.get(row["topic"], 0))
    for topic, count in (settings or {}).items():
        said[topic] = max(count, said.get(topic, 0))
    known = known_counts(warehouse, cluster_id, said)
    found: dict[str, dict[int, LogEnd]] = {topic: {} for topic in topics}
    for topic, partition in {*coverage, *kept}:
        if topic in found:
            row = kept.get((topic, partition), {})
            end = _end(partition, coverage.get((topic, partition), ()), row.get("read_until"))
            found[topic][partition] = end
    return {topic: LogEnds(topic, ends, known.get(topic)) for topic, ends in found.items()}


def _end(partition: int, ranges: Iterable[Mapping[str, Any]], read_until: datetime | None) -> LogEnd:
    captured = sorted((row for row in ranges if row["kind"] == "CAPTURED"), key=lambda row: row["from_offset"])
    first = [row["first_timestamp"] for row in captured if row["first_timestamp"] is not None]
    last = [row["last_timestamp"] for row in captured if row["last_timestamp"] is not None]
    return LogEnd(
        partition,
        first_record_ms=epoch_ms(min(first)) if first else None,
        last_record_ms=epoch_ms(last[-1]) if last else None,
        live_until_ms=None if read_until is None else epoch_ms(read_until),
        is_empty=not captured,
    )


def keep_log_partitions(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    found: Iterable[LogPlace],
    live: Iterable[LogPlace] = (),
    copied: Iterable[LogPlace] = (),
    copied_at: datetime | None = None,
    said: Mapping[str, int],
    seen_at: datetime,
) -> None:
    """Keep which log partitions a capture found, empty ones too, and that it read the `live` ones to their end.

    `copied_at`: when those of `copied` were copied, as the user says: they are complete up to then. `said`: numbers of
    partitions that the user says. Nothing is written where nothing is new.
    """
    of_cluster: dict[str, Any] = {"cluster_id": cluster_id}
    old = {
        (row["topic"], row["partition"]): row for row in warehouse.read(LOG_PARTITIONS, where=of_cluster).to_pylist()
    }
    new = dict(old)
    live_places = {(it.topic, it.partition): seen_at for it in live}
    read_until = dict(live_places)
    if copied_at is not None:
        # of a live cluster more is known
        read_until = {(it.topic, it.partition): copied_at for it in copied} | live_places
    live_counts: dict[str, int] = {}
    for topic, _ in live_places:
        live_counts[topic] = live_counts.get(topic, 0) + 1
    for place in dict.fromkeys((*((it.topic, it.partition) for it in found), *read_until)):
        row = new.get(place) or {
            **of_cluster,
            "topic": place[0],
            "partition": place[1],
            "first_seen_at": seen_at,
            "read_until": None,
            "partition_count": None,
        }
        if place in read_until:
            row = row | {"read_until": max(row["read_until"] or read_until[place], read_until[place])}
        new[place] = row
    for place, row in new.items():
        counts = [row["partition_count"], said.get(place[0]), live_counts.get(place[0])]
        new[place] = row | {"partition_count": max((it for it in counts if it is not None), default=None)}
    if new == old:
        return
    warehouse.ensure(LOG_PARTITIONS)
    application = f"log_partitions/{cluster_id}"
    rows = pa.Table.from_pylist([new[place] for place in sorted(new)], schema=arrow_schema(LOG_PARTITIONS))
    version = warehouse.last_version(LOG_PARTITIONS, application) + 1
    warehouse.write(LOG_PARTITIONS, rows, app_id=application, version=version, mode=OVERWRITE, replace=of_cluster)


def require_copied_behind_records(
    warehouse: Warehouse, cluster_id: str, copied: Iterable[LogPlace], copied_at_ms: int
) -> None:
    """Raise ArgumentError where a log partition has records that are newer than its copy is said to be, and nothing
    else vouches for them."""
    places = {(it.topic, it.partition) for it in copied}
    for topic, ends in log_ends(warehouse, cluster_id, {topic for topic, _ in places}).items():
        for partition, end in sorted(ends.ends.items()):
            last_ms = end.last_record_ms
            if (topic, partition) not in places or last_ms is None or last_ms <= copied_at_ms:
                continue
            if end.live_until_ms is None or end.live_until_ms < last_ms:
                raise ArgumentError(
                    f"--copied-at {time_text(copied_at_ms)} cannot be: {topic}-{partition} has a record of "
                    f"{time_text(last_ms)}. What was read is in bronze, complete up to its last record. Run it again "
                    "with the time at which copying began, or without --copied-at"
                )


def missing_lines(all_ends: Mapping[str, LogEnds]) -> list[str]:
    """In words: log partitions that are in no source, and topics of which it is not known how many they have."""
    lines = []
    for topic, ends in all_ends.items():
        if ends.missing:
            count = max(ends.seen_count, 0 if ends.known is None else ends.known.partition_count)
            lines.append(
                f"{len(ends.missing):,} of {count:,} log partitions of {topic} are in no source "
                f"({numbers(ends.missing)}): what they hold is in no table. Name every log directory that has some of "
                "them, of each disk and broker, with a --segments of its own"
            )
        if ends.ends and not ends.is_count_known:
            lines.append(count_unknown(ends))
    return lines


def count_unknown(ends: LogEnds) -> str:
    """Why nobody knows how many log partitions there are, and what to do."""
    absent = f"; in no source: {numbers(ends.unseen)}" if ends.unseen else ""
    seen = f"{len(ends.ends):,} of at least {ends.seen_count:,} were found{absent}"
    if ends.known is not None:
        source = "--partitions says" if ends.known.source == SETTING else "what was known of it last says"
        seen = f"{source} {ends.known.partition_count:,}, and number {ends.seen_count - 1:,} was found"
    return (
        f"how many log partitions {ends.topic} has is not known ({seen}): say it with --partitions {ends.topic}=COUNT, "
        "or capture __cluster_metadata too"
    )


def numbers(partitions: Sequence[int]) -> str:
    """Some of them, if there are many."""
    named = ", ".join(str(partition) for partition in partitions[:NAMED_MAX])
    return named if len(partitions) <= NAMED_MAX else f"{named} and {len(partitions) - NAMED_MAX:,} more"
