"""Look up archived records of share groups in the source topics, while retention lasts.

For each offset there is one row: a record with its key, headers, sizes and, on request, its value; or why there is
none. A control record or a hole proves that the offset was a gap and nothing was lost (REPLAY rule E: REJECT or GAP).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.errors import DecodeError
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from coordinator_core.log.batch import Record
from coordinator_core.log.records import iter_records
from jobs.errors import SourceError
from jobs.settings import BrokerAddress
from jobs.sources.broker import TIMEOUT_MS, Broker
from jobs.sources.broker_log import list_broker_logs, read_ranges
from jobs.sources.fetch import LogRange
from jobs.sources.segments import PartitionLog, Segment, SegmentRead, as_array, find_partitions, read_segment

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


@dataclass(frozen=True, slots=True)
class Payload:
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
    cluster: BrokerAddress | None = None,
    timeout_ms: int = TIMEOUT_MS,
    with_values: bool = False,
) -> list[Payload]:
    """What the sources (folders or URIs as for `--segments`, and a live cluster) have at the offsets of the ranges, in
    order, each once.

    Where several sources have a partition, the first one with a record counts, the cluster last. Raises SourceError
    where a source cannot be read, or the ranges have more than OFFSETS_MAX offsets.
    """
    wanted = _wanted(ranges)
    found: dict[tuple[str, int, int], Payload] = {}
    payloads = chain.from_iterable(_in_segments(source, wanted, with_values) for source in sources)
    if cluster is not None:
        payloads = chain(payloads, _in_cluster(cluster, timeout_ms, wanted, with_values))
    for payload in payloads:
        place = payload.topic, payload.partition, payload.offset
        known = found.get(place)
        if known is None or (known.presence is not Presence.RECORD and payload.presence is Presence.RECORD):
            found[place] = payload
    return [
        found.get((topic, partition, offset)) or Payload(topic, partition, offset, Presence.NO_LOG)
        for (topic, partition), offsets in sorted(wanted.items())
        for offset in offsets
    ]


def _in_segments(source: str, wanted: Wanted, with_values: bool) -> Iterator[Payload]:
    for log in _logs(source, wanted):
        yield from _read_log(log, wanted[log.topic, log.partition], with_values=with_values)


def _in_cluster(address: BrokerAddress, timeout_ms: int, wanted: Wanted, with_values: bool) -> Iterator[Payload]:
    """Fetch only the batches that contain wanted offsets, or are close between two of them."""
    topics = sorted({topic for topic, _ in wanted})
    with Broker.connect(address, timeout_ms=timeout_ms) as broker:
        logs = list_broker_logs(broker, address, topics, is_any_needed=False)
        left: dict[LogRange, list[int]] = {}
        for log in logs:
            place = log.topic, log.partition
            offsets = wanted.get(place, ())
            for offset in offsets:
                if not log.log_start_offset <= offset < log.next_offset:
                    is_gone = offset < log.log_start_offset
                    yield Payload(*place, offset, Presence.EXPIRED if is_gone else Presence.BEYOND)
            inside = [offset for offset in offsets if log.log_start_offset <= offset < log.next_offset]
            for near in _near_together(inside):
                left[log.range(near[0], near[-1] + 1)] = near
        for asked, read in read_ranges(broker, left):
            batches = read.scan.batches
            if not len(batches):
                # Kafka deleted the beginning of the range meanwhile
                left[asked], gone = _split(left[asked], read.log_start_offset or 0)
                yield from (Payload(asked.topic, asked.partition, offset, Presence.EXPIRED) for offset in gone)
                continue
            end_offset = int(batches.last_offset[-1]) + 1
            inside = [offset for offset in left[asked] if offset < end_offset]
            left[asked] = left[asked][len(inside) :]
            yield from _look_up(asked.topic, asked.partition, read, inside, with_values=with_values)
    for asked, offsets in left.items():
        yield from (Payload(asked.topic, asked.partition, offset, Presence.GAP) for offset in offsets)


def _near_together(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Ascending offsets, split where a separate fetch costs less than the data between."""
    start = 0
    for end in range(1, len(offsets) + 1):
        if end == len(offsets) or offsets[end] - offsets[end - 1] > NEAR_OFFSETS_MAX:
            yield list(offsets[start:end])
            start = end


def _split(offsets: Sequence[int], at: int) -> tuple[list[int], list[int]]:
    """Offsets from `at` on, and those before."""
    return [offset for offset in offsets if offset >= at], [offset for offset in offsets if offset < at]


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


def _logs(source: str, wanted: Wanted) -> Iterator[PartitionLog]:
    """The wanted partitions that a source has; it need not have any."""
    topics = sorted({topic for topic, _ in wanted})
    try:
        logs = find_partitions(source, topics)
    except SourceError as error:
        if str(error).startswith("nothing to read"):
            return
        raise
    for log in logs:
        if (log.topic, log.partition) in wanted:
            yield log


def _read_log(log: PartitionLog, offsets: Sequence[int], *, with_values: bool) -> Iterator[Payload]:
    """Read segment by segment, only those that may contain a wanted offset."""
    ends = [segment.base_offset for segment in log.segments[1:]]
    log_start = max(log.segments[0].base_offset, log.log_start_offset or 0)
    left = [offset for offset in offsets if offset >= log_start]
    for offset in offsets:
        if offset < log_start:
            yield Payload(log.topic, log.partition, offset, Presence.EXPIRED)
    for segment, end_offset in zip(log.segments, [*ends, None], strict=True):
        inside = [offset for offset in left if end_offset is None or offset < end_offset]
        left = left[len(inside) :]
        if inside:
            yield from _read_segment(log, segment, inside, is_newest=end_offset is None, with_values=with_values)


def _read_segment(
    log: PartitionLog, segment: Segment, offsets: Sequence[int], *, is_newest: bool, with_values: bool
) -> Iterator[Payload]:
    read = read_segment(segment)
    batches = read.scan.batches
    # a segment without batches ends where it begins
    end_offset = int(batches.last_offset[-1]) + 1 if len(batches) else segment.base_offset
    beyond, inside = _split(offsets, end_offset)
    yield from _look_up(log.topic, log.partition, read, inside, with_values=with_values)
    presence = Presence.BEYOND if is_newest else Presence.GAP
    yield from (Payload(log.topic, log.partition, offset, presence) for offset in beyond)


def _look_up(
    topic: str, partition: int, read: SegmentRead, offsets: Sequence[int], *, with_values: bool
) -> Iterator[Payload]:
    """What the batches of a read have at offsets up to the last of them."""
    batches, data = read.scan.batches, as_array(read.data)
    rows = np.searchsorted(batches.last_offset, np.array(offsets, np.int64))
    records: dict[int, Record] | None = None
    read_row = -1
    for offset, row in zip(offsets, rows.tolist(), strict=True):
        if row != read_row:
            start = int(batches.position[row])
            records = _records(data[start : start + int(batches.size[row])].tobytes())
            read_row = row
        is_control = bool(batches.is_control[row])
        yield _payload(topic, partition, offset, records, is_control=is_control, with_values=with_values)


def _records(batch: bytes) -> dict[int, Record] | None:
    """A batch's records by offset; None where it cannot be read."""
    try:
        return {record.offset: record for record in iter_records(batch, bytes_max=BATCH_DECOMPRESSED_BYTES_MAX)}
    except DecodeError:
        return None


def _payload(
    topic: str,
    partition: int,
    offset: int,
    records: Mapping[int, Record] | None,
    *,
    is_control: bool,
    with_values: bool,
) -> Payload:
    if records is None:
        return Payload(topic, partition, offset, Presence.UNREADABLE)
    record = records.get(offset)
    if record is None:
        return Payload(topic, partition, offset, Presence.GAP)
    if is_control:
        return Payload(topic, partition, offset, Presence.CONTROL, record.timestamp_ms)
    return Payload(
        topic=topic,
        partition=partition,
        offset=offset,
        presence=Presence.RECORD,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value_size=None if record.value is None else len(record.value),
        value=record.value if with_values else None,
        headers=record.headers,
    )
