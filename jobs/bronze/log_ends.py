"""Which log partitions exist, and up to what time each was read: how far an answer reaches.

A live cluster is read up to its high watermark: everything written before the capture began is in bronze, even for a
log partition without recent writes. A copied log directory or a dump proves less: a log partition was read up to its
last record, and the copy does not show whether more was written later. Files of one folder may have been copied hours
apart, the modification time of a file is often that of the copy, and a fresh log partition proves nothing about a stale
one in the next folder. So each log partition of a copy reaches to its own last record, and a statement about several
reaches to the earliest of these times. Where the user gives the time of the copy (`--copied-at`), it reaches up to that
time.

A log partition that is in no source (one disk of two, one broker of several) is noticed only where the partition count
is known (`jobs.bronze.partition_counts`). Where it is not known, completeness is not claimed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.log_partitions import LogPartition
from jobs.bronze.partition_counts import SETTING, KnownCount, known_counts
from jobs.console.output import time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.times import epoch_ms
from jobs.errors import ArgumentError
from jobs.sources.segments import LogPlace
from schemas.tables.bronze import COVERAGE, LOG_PARTITIONS

COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__share_group_state")
NAMED_MAX: Final = 10
RANGE_COLUMNS: Final = ("topic", "partition", "from_offset", "kind", "first_timestamp", "last_timestamp")


class LogEnd(NamedTuple):
    """A log partition that a capture found. Times are epoch ms."""

    partition: int
    first_record_ms: int | None
    last_record_ms: int | None
    """Timestamp of the last record that was read; None: no records, or records without timestamps."""
    live_until_ms: int | None
    """Everything written until then was read, from a live cluster or from a copy whose time is known; None: only
    copies of unknown time."""
    is_empty: bool

    @property
    def bound_ms(self) -> int | None:
        """The time up to which the log partition is proven to be read; None: none is proven."""
        known = [it for it in (self.last_record_ms, self.live_until_ms) if it is not None]
        return max(known, default=None)


class LogEnds(NamedTuple):
    """The log partitions of a coordinator topic."""

    topic: str
    ends: Mapping[int, LogEnd]
    known: KnownCount | None
    """The partition count of the topic, where anything other than the partitions found gives it."""

    @property
    def seen_count(self) -> int:
        """The least possible partition count: the highest partition number found, plus one."""
        return max(self.ends, default=-1) + 1

    @property
    def is_count_known(self) -> bool:
        """The partition count is known, and no partition beyond it was found."""
        return self.known is not None and self.known.partition_count >= self.seen_count

    @property
    def missing(self) -> tuple[int, ...]:
        """Log partitions that are in no source.

        Empty where the partition count is not known: the user may have chosen a few partitions, and completeness is not
        claimed then.
        """
        count = 0 if self.known is None else max(self.seen_count, self.known.partition_count)
        return tuple(partition for partition in range(count) if partition not in self.ends)

    @property
    def unseen(self) -> tuple[int, ...]:
        """As `missing`; where the partition count is not known, the gaps below the highest partition number found."""
        return self.missing or tuple(partition for partition in range(self.seen_count) if partition not in self.ends)

    @property
    def begins_ms(self) -> int | None:
        """Timestamp of the earliest record that was read."""
        return min((it.first_record_ms for it in self.ends.values() if it.first_record_ms is not None), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The latest time up to which any log partition was read."""
        return max((it.bound_ms for it in self.ends.values() if it.bound_ms is not None), default=None)

    @property
    def proven_ms(self) -> int | None:
        """The time up to which all log partitions were read; None where one of them proves no time."""
        bounds = [it.bound_ms for it in self.ends.values()]
        known = [it for it in bounds if it is not None]
        return min(known) if known and len(known) == len(bounds) else None

    def short_of(self, at_ms: int) -> list[LogEnd]:
        """Log partitions that are not proven to be read up to a time, by number."""
        return [it for _, it in sorted(self.ends.items()) if it.bound_ms is None or it.bound_ms < at_ms]


def newest_of(logs: Iterable[LogEnds]) -> int | None:
    """The time of the newest record that was read of several logs; None: of none of them is one known."""
    return max((it.newest_ms for it in logs if it.newest_ms is not None), default=None)


def log_ends(
    tables: ClusterTables,
    topics: Collection[str] = COORDINATOR_TOPICS,
    settings: Mapping[str, int] | None = None,
) -> dict[str, LogEnds]:
    """What is known of the log partitions of some topics. `settings`: partition counts that the user gives."""
    coverage: dict[LogPartition, list[Mapping[str, Any]]] = {}
    for row in tables.read(COVERAGE, RANGE_COLUMNS).to_pylist():
        coverage.setdefault((row["topic"], row["partition"]), []).append(row)
    rows = tables.read(LOG_PARTITIONS).to_pylist()
    kept = {(row["topic"], row["partition"]): row for row in rows}
    said: dict[str, int] = {}
    for row in rows:
        if row["partition_count"] is not None:
            said[row["topic"]] = max(row["partition_count"], said.get(row["topic"], 0))
    for topic, count in (settings or {}).items():
        said[topic] = max(count, said.get(topic, 0))
    known = known_counts(tables, said)
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
    tables: ClusterTables,
    *,
    found: Iterable[LogPlace],
    live: Iterable[LogPlace] = (),
    copied: Iterable[LogPlace] = (),
    copied_at: datetime | None = None,
    said: Mapping[str, int],
    seen_at: datetime,
) -> None:
    """Keep which log partitions a capture found, empty ones too, and that it read the `live` ones to their end.

    `copied_at`: when the log partitions in `copied` were copied, if the user gives it; they are complete up to then.
    `said`: partition counts that the user gives. Nothing is written where nothing is new.
    """
    old = {(row["topic"], row["partition"]): row for row in tables.read(LOG_PARTITIONS).to_pylist()}
    new = dict(old)
    live_places = {(it.topic, it.partition): seen_at for it in live}
    read_until = dict(live_places)
    if copied_at is not None:
        # for a live log partition, the time of this run counts
        read_until = {(it.topic, it.partition): copied_at for it in copied} | live_places
    live_counts: dict[str, int] = {}
    for topic, _ in live_places:
        live_counts[topic] = live_counts.get(topic, 0) + 1
    for place in dict.fromkeys((*((it.topic, it.partition) for it in found), *read_until)):
        row = new.get(place) or {
            "cluster_id": tables.cluster_id,
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
    rows = [new[place] for place in sorted(new)]
    tables.write(LOG_PARTITIONS, rows, app_id=f"log_partitions/{tables.cluster_id}", mode=OVERWRITE)


def require_copied_behind_records(tables: ClusterTables, copied: Iterable[LogPlace], copied_at_ms: int) -> None:
    """Raise ArgumentError where a log partition has records newer than the given time of its copy, unless a later live
    capture or copy covers them.
    """
    places = {(it.topic, it.partition) for it in copied}
    for topic, ends in log_ends(tables, {topic for topic, _ in places}).items():
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
    """Sentences about log partitions that are in no source, and about topics whose partition count is not known."""
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
    """Why the partition count is not known, and what to do."""
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
    """The numbers as text; only the first ones if there are many."""
    named = ", ".join(str(partition) for partition in partitions[:NAMED_MAX])
    return named if len(partitions) <= NAMED_MAX else f"{named} and {len(partitions) - NAMED_MAX:,} more"
