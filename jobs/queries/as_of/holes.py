"""What is missing of the coordinators' logs before a time, in words, by log partition.

An answer about groups lacks what was in it: for groups that the answer shows, and for those that it knows nothing of.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from coordinator_core.bytes.coverage import CoverageKind
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from coordinator_core.replay.lookup import key_partition
from coordinator_core.text import counted
from jobs.bronze.coverage import HOLES, LOG_START
from jobs.console.names import some_of
from jobs.delta.times import epoch_ms
from jobs.queries.as_of.as_of import GROUPS_LOG, SilverAt
from jobs.silver.homes import PartitionCounts

LACKING: Final = "what was in them is not in this answer"


def gaps(silver: SilverAt, log: str, *, is_history: bool = False) -> Iterator[tuple[int, str]]:
    """Log partitions, and their ranges before the time that were not read. `is_history`: the answer is about all times
    up to then, so what Kafka had deleted counts, too."""
    for row in silver.coverage(log):
        if row["kind"] not in HOLES:
            continue
        if row["reason"] == LOG_START and not _may_have_counted(silver, row, is_history):
            continue
        after_ms = None if row["first_timestamp"] is None else epoch_ms(row["first_timestamp"])
        if _may_be_before(silver, (log, row["partition"]), row["from_offset"], after_ms):
            yield (
                row["partition"],
                f"offsets {row['from_offset']} to {row['to_offset']} of {log}-{row['partition']} are "
                f"{row['kind']} ({row['reason']})",
            )


def compacted(silver: SilverAt, *, is_history: bool = False) -> dict[int, str]:
    """By log partition of groups: the records before the time that compaction had removed when the log was read. Later
    records replaced them, perhaps not before the time. What was replaced after the log was read is in bronze."""
    found: dict[int, list[OffsetRange]] = {}
    after: dict[int, int | None] = {}
    for row in sorted(silver.coverage(GROUPS_LOG), key=lambda row: (row["partition"], row["from_offset"])):
        log_partition, first = row["partition"], row["from_offset"]
        if row["last_timestamp"] is not None:
            after[log_partition] = epoch_ms(row["last_timestamp"])
        if row["kind"] != CoverageKind.COMPACTED.name or not _may_have_counted(silver, row, is_history):
            continue
        if _may_be_before(silver, (GROUPS_LOG, log_partition), first, after.get(log_partition)):
            found.setdefault(log_partition, []).append((first, row["to_offset"]))
    return {log_partition: _compacted_text(log_partition, ranges) for log_partition, ranges in sorted(found.items())}


def _compacted_text(log_partition: int, ranges: Sequence[OffsetRange]) -> str:
    count = sum(last - first + 1 for first, last in ranges)
    return (
        f"{counted(count, 'record')} of {GROUPS_LOG}-{log_partition} between offsets {min(ranges)[0]} and "
        f"{max(ranges)[1]} had been compacted when it was read"
    )


def elsewhere(silver: SilverAt, log_partitions: Collection[int], *, is_history: bool = False) -> str | None:
    """The same of all log partitions of groups but these, in a few words; None where nothing is missing."""
    texts = [(number, text) for number, text in gaps(silver, GROUPS_LOG, is_history=is_history)]
    texts += compacted(silver, is_history=is_history).items()
    return some_of(text for number, text in texts if number not in log_partitions) or None


def where_absent(silver: SilverAt, group_ids: Collection[str], *, is_history: bool = False) -> list[str]:
    """The same where these groups would be, of which nothing is known: in any log partition, if it is not known how
    many there are."""
    number = number_now(silver.partition_counts(GROUPS_LOG), silver.at_ms)
    if number is None:
        text = elsewhere(silver, (), is_history=is_history)
        return [] if text is None else [text]
    places = {key_partition(group_id, number) for group_id in group_ids}
    texts = [text for place, text in gaps(silver, GROUPS_LOG, is_history=is_history) if place in places]
    return texts + [text for place, text in compacted(silver, is_history=is_history).items() if place in places]


def number_now(counts: PartitionCounts, at_ms: int | None) -> int | None:
    """The partition count at a time, where it is known or all partitions were found. What was captured says nothing
    about earlier times."""
    known = counts.known_at(at_ms)
    return counts.seen if known is None and at_ms is None and counts.is_whole else known


def _may_have_counted(silver: SilverAt, row: Mapping[str, Any], is_history: bool) -> bool:
    """May records that Kafka removed before they were read have been in force at the time? Of a history all count."""
    return is_history or (silver.at_ms is not None and epoch_ms(row["observed_at"]) > silver.at_ms)


def _may_be_before(silver: SilverAt, place: LogPartition, offset: int, after_ms: int | None) -> bool:
    """May an offset have been written by the time of `silver`? `after_ms`: timestamp of the record before it."""
    log_end = silver.log_end(place)
    if log_end is not None:
        return offset < log_end
    return silver.at_ms is None or after_ms is None or after_ms <= silver.at_ms
