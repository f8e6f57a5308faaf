"""Look up archived records of share groups in the source topics, while retention lasts.

For each offset there is one row: a record with its key, headers, sizes and, on request, its value; or why there is
none. A control record or a hole proves that the offset was a gap and nothing was lost (REPLAY rule E: REJECT or GAP).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, groupby, zip_longest
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.batch import Record
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import DecodeError
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from jobs.errors import SourceError
from jobs.sources.broker import Broker
from jobs.sources.broker_log import list_broker_logs, read_ranges
from jobs.sources.fetch import LogRange
from jobs.sources.segments import PartitionLog, SegmentRead, find_partitions, read_segment

NEAR_OFFSETS_MAX: Final = 10_000
"""Offsets this close together in a live log are read in one request."""
OFFSETS_MAX: Final = 1_000_000
"""Maximum number of offsets in one call: a range of archived offsets may be long, but its cost must be bounded."""


Wanted = Mapping[tuple[str, int], Sequence[int]]
"""Offsets by topic and partition, ascending."""


class Presence(StrEnum):
    """What the source log has at an offset."""

    RECORD = "RECORD"
    CONTROL = "CONTROL"
    """A transaction marker: it was never delivered."""
    GAP = "GAP"
    """A hole in the log: compacted away, or never written."""
    EXPIRED = "EXPIRED"
    """Below the log start offset: deleted by retention or DeleteRecords."""
    BEYOND = "BEYOND"
    """Above the last known offset: the segments were copied before it was written."""
    UNREADABLE = "UNREADABLE"
    """Its batch is damaged."""
    NO_LOG = "NO_LOG"
    """None of the sources has the partition."""


class RecordRange(NamedTuple):
    """Offsets of a partition, both ends inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


class Payload(NamedTuple):
    """One offset of a source topic. Sizes in bytes; None where there is no record, or that part is null."""

    topic: str
    partition: int
    offset: int
    presence: Presence
    timestamp_ms: int | None = None
    key: bytes | None = None
    value_size: int | None = None
    value: bytes | None = None
    """None unless values were requested."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_payloads(
    sources: Sequence[str],
    ranges: Iterable[RecordRange],
    *,
    broker: Broker | None = None,
    with_values: bool = False,
) -> list[Payload]:
    """What the sources (folders or URIs as for `--segments`, and a live cluster) have at the offsets of the ranges, in
    order, each once.

    Where several sources have a partition, the first one with a record counts, the cluster last. Raises SourceError
    where a source cannot be read, or the ranges have more than OFFSETS_MAX offsets.
    """
    wanted = _wanted(ranges)
    found: dict[tuple[str, int, int], Payload] = {}
    payloads = chain.from_iterable(_in_segments(source, wanted) for source in sources)
    if broker is not None:
        payloads = chain(payloads, _in_cluster(broker, wanted))
    for payload in payloads:
        place = payload.topic, payload.partition, payload.offset
        known = found.get(place)
        if known is None or (known.presence is not Presence.RECORD and payload.presence is Presence.RECORD):
            found[place] = payload if with_values else payload._replace(value=None)
    return [
        found.get((topic, partition, offset)) or Payload(topic, partition, offset, Presence.NO_LOG)
        for (topic, partition), offsets in sorted(wanted.items())
        for offset in offsets
    ]


def _in_segments(source: str, wanted: Wanted) -> Iterator[Payload]:
    """What the wanted partitions of a source have; it need not have any."""
    try:
        logs = find_partitions(source, sorted({topic for topic, _ in wanted}))
    except SourceError as error:
        if str(error).startswith("nothing to read"):
            return
        raise
    for log in logs:
        yield from _read_log(log, wanted.get((log.topic, log.partition), ()))


def _in_cluster(broker: Broker, wanted: Wanted) -> Iterator[Payload]:
    """Fetch only the batches that contain wanted offsets, or are close between two of them."""
    topics = sorted({topic for topic, _ in wanted})
    left: dict[LogRange, Sequence[int]] = {}
    for log in list_broker_logs(broker, topics, is_any_needed=False):
        kept, expired = _split(wanted.get((log.topic, log.partition), ()), log.log_start_offset)
        beyond, inside = _split(kept, log.next_offset)
        yield from _without_record(log.topic, log.partition, expired, Presence.EXPIRED)
        yield from _without_record(log.topic, log.partition, beyond, Presence.BEYOND)
        for near in _near_together(inside):
            left[log.range(near[0], near[-1] + 1)] = near
    for asked, read in read_ranges(broker, left):
        batches = read.scan.batches
        if not len(batches):
            # Kafka deleted the beginning of the range meanwhile
            left[asked], gone = _split(left[asked], read.log_start_offset or 0)
            yield from _without_record(asked.topic, asked.partition, gone, Presence.EXPIRED)
            continue
        left[asked], inside = _split(left[asked], int(batches.last_offset[-1]) + 1)
        yield from _look_up(asked.topic, asked.partition, read, inside)
    for asked, offsets in left.items():
        yield from _without_record(asked.topic, asked.partition, offsets, Presence.GAP)


def _without_record(topic: str, partition: int, offsets: Sequence[int], presence: Presence) -> Iterator[Payload]:
    return (Payload(topic, partition, offset, presence) for offset in offsets)


def _near_together(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Ascending offsets, split where a separate fetch costs less than the data between."""
    start = 0
    for end in range(1, len(offsets) + 1):
        if end == len(offsets) or offsets[end] - offsets[end - 1] > NEAR_OFFSETS_MAX:
            yield list(offsets[start:end])
            start = end


def _split(offsets: Sequence[int], at: int) -> tuple[Sequence[int], Sequence[int]]:
    """Offsets from `at` on, and those before."""
    place = bisect_left(offsets, at)
    return offsets[place:], offsets[:place]


def _wanted(ranges: Iterable[RecordRange]) -> Wanted:
    """The offsets of each partition, in order."""
    wanted: dict[tuple[str, int], set[int]] = defaultdict(set)
    count = 0
    for one in ranges:
        count += one.last_offset - one.first_offset + 1
        if count > OFFSETS_MAX:
            raise SourceError(f"more than {OFFSETS_MAX:,} offsets to look up: choose a group or a shorter time")
        wanted[one.topic, one.partition].update(range(one.first_offset, one.last_offset + 1))
    return {place: sorted(offsets) for place, offsets in wanted.items()}


def _read_log(log: PartitionLog, offsets: Sequence[int]) -> Iterator[Payload]:
    """Read segment by segment, only those that may contain a wanted offset."""
    log_start = max(log.segments[0].base_offset, log.log_start_offset or 0)
    left, expired = _split(offsets, log_start)
    yield from _without_record(log.topic, log.partition, expired, Presence.EXPIRED)
    for segment, following in zip_longest(log.segments, log.segments[1:]):
        left, inside = ((), left) if following is None else _split(left, following.base_offset)
        if inside:
            read = read_segment(segment)
            batches = read.scan.batches
            # a segment without batches ends where it begins
            end_offset = int(batches.last_offset[-1]) + 1 if len(batches) else segment.base_offset
            beyond, there = _split(inside, end_offset)
            yield from _look_up(log.topic, log.partition, read, there)
            presence = Presence.BEYOND if following is None else Presence.GAP
            yield from _without_record(log.topic, log.partition, beyond, presence)


def _look_up(topic: str, partition: int, read: SegmentRead, offsets: Sequence[int]) -> Iterator[Payload]:
    """What the batches of a read have at offsets up to the last of them."""
    batches = read.scan.batches
    rows = np.searchsorted(batches.last_offset, np.array(offsets, np.int64)).tolist()
    for row, of_batch in groupby(zip(rows, offsets, strict=True), itemgetter(0)):
        records = _records(read.content(row))
        for _, offset in of_batch:
            if records is None:
                yield Payload(topic, partition, offset, Presence.UNREADABLE)
            elif (record := records.get(offset)) is None:
                yield Payload(topic, partition, offset, Presence.GAP)
            elif batches.is_control[row]:
                yield Payload(topic, partition, offset, Presence.CONTROL, record.timestamp_ms)
            else:
                size = None if record.value is None else len(record.value)
                found = (record.timestamp_ms, record.key, size, record.value, record.headers)
                yield Payload(topic, partition, offset, Presence.RECORD, *found)


def _records(batch: bytes) -> dict[int, Record] | None:
    """A batch's records by offset; None where it cannot be read."""
    try:
        return {record.offset: record for record in iter_records(batch, bytes_max=BATCH_DECOMPRESSED_BYTES_MAX)}
    except DecodeError:
        return None
