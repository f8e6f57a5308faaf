"""The end of the next micro-batch of a `kafka_log` stream. Its offsets: `{"<topic>-<partition>": next offset}`.

A stream over segment files frames them, so its limits are exact to the batch and byte. A cluster only reports offsets:
between two offsets there are at most as many batches as offsets, and their bytes are estimated from samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from jobs.sources.broker_log import BrokerLog, list_broker_logs
from jobs.sources.bytes_per_offset import bytes_per_offset
from jobs.sources.fetch import LogRange
from jobs.sources.segments import PartitionLog, Segment, find_partitions, read_segment

Offsets = dict[str, int]
"""`<topic>-<partition>` -> next offset. A log partition that is missing starts at its beginning."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a micro-batch; None: no limit."""

    batch_count_max: int | None = None
    bytes_max: int | None = None


NO_LIMITS: Final = Limits()


def log_key(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class SegmentOffsets:
    """Offsets of segment files. A micro-batch takes logs in the order of topics and partitions."""

    def __init__(self, uri: str, topics: Sequence[str], partitions: Sequence[int] | None) -> None:
        self._uri, self._topics, self._partitions = uri, topics, partitions
        self._framed: dict[tuple[str, int], tuple[I64, I64]] = {}

    def find(self) -> list[PartitionLog]:
        return find_partitions(self._uri, self._topics, self._partitions)

    def next(self, start: Mapping[str, int], limits: Limits, target: Mapping[str, int] | None) -> Offsets:
        """The end of the next micro-batch from `start`, at most `target`. The first batch is always included."""
        count_left, bytes_left = limits.batch_count_max, limits.bytes_max
        end = dict(start)
        is_first = True
        for log in self.find():
            key = log_key(log.topic, log.partition)
            next_offsets, sizes = self._batches(log, start.get(key, 0))
            count = len(next_offsets)
            if target is not None:
                count = int(np.searchsorted(next_offsets, target.get(key, 0), side="right"))
            if count_left is not None:
                count = min(count, count_left)
            if bytes_left is not None:
                fitting = int(np.searchsorted(np.cumsum(sizes[:count]), bytes_left, side="right"))
                is_cut = fitting < count
                count = max(fitting, min(count, int(is_first)))
                bytes_left = 0 if is_cut else bytes_left - int(sizes[:count].sum())
            if count_left is not None:
                count_left -= count
            if count:
                end[key] = int(next_offsets[count - 1])
                is_first = False
        return end

    def _batches(self, log: PartitionLog, from_offset: int) -> tuple[I64, I64]:
        """(next offset, size) of each batch from an offset on, cached."""
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for segment in segments_from(log.segments, from_offset):
            key = segment.path, segment.size_bytes
            if key not in self._framed:
                batches = read_segment(segment).scan.batches
                self._framed[key] = batches.last_offset + 1, batches.size
            parts.append(self._framed[key])
        next_offsets = np.concatenate([part[0] for part in parts])
        is_new = next_offsets > from_offset
        return next_offsets[is_new], np.concatenate([part[1] for part in parts])[is_new]


def segments_from(segments: Sequence[Segment], from_offset: int) -> Sequence[Segment]:
    """The segments that can contain an offset, or later ones."""
    first = max((i for i, segment in enumerate(segments) if segment.base_offset <= from_offset), default=0)
    return segments[first:]


class BrokerOffsets:
    """Offsets of a live cluster, up to the high watermark.

    A micro-batch takes of each log its share of the new offsets.
    """

    def __init__(
        self, address: BrokerAddress, topics: Sequence[str], partitions: Sequence[int] | None, timeout_ms: int
    ) -> None:
        self._address, self._topics, self._partitions = address, topics, partitions
        self._timeout_ms = timeout_ms
        self._broker: Broker | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the connection."""
        return self.__dict__ | {"_broker": None}

    def find(self) -> list[BrokerLog]:
        """The current log partitions. After an error the next call reconnects."""
        try:
            found = list_broker_logs(self._connected(), self._topics)
        except BrokerError:
            self.close()
            raise
        return [log for log in found if self._partitions is None or log.partition in self._partitions]

    def close(self) -> None:
        """Close the connection."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def next(self, start: Mapping[str, int], limits: Limits, target: Mapping[str, int] | None) -> Offsets:
        """The end of the next micro-batch from `start`, at most `target`."""
        new = self._new(start, target)
        counts = [it.to_offset - it.from_offset for it in new]
        if limits.batch_count_max is not None:
            counts = shares(counts, limits.batch_count_max)
        if limits.bytes_max is not None and new:
            samples = bytes_per_offset(self._connected(), new)
            # use the highest density: a compacted log is sparse where it is old
            densities = [max(samples.get((it.topic, it.partition), (0.0,))) for it in new]
            sizes = [int(count * density) for count, density in zip(counts, densities, strict=True)]
            if sum(sizes) > limits.bytes_max:
                allowed = shares(sizes, limits.bytes_max)
                counts = [
                    min(count, int(size / density)) if density else count
                    for count, size, density in zip(counts, allowed, densities, strict=True)
                ]
                if not any(counts):
                    counts[0] = 1
        ends = {log_key(it.topic, it.partition): it.from_offset + n for it, n in zip(new, counts, strict=True) if n}
        return dict(start) | ends

    def between(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogRange]:
        """The ranges between two offsets of the stream, by log partition; empty ones are left out.

        A range may begin below the log start offset if Kafka deleted data meanwhile. Raises BrokerError when a log ends
        before `end`.
        """
        found = []
        for log in self.find():
            key = log_key(log.topic, log.partition)
            chosen = log.range(start.get(key, log.log_start_offset), end.get(key, 0))
            if chosen.from_offset < chosen.to_offset:
                self._check(log, chosen.to_offset)
                found.append(chosen)
        return found

    def _new(self, start: Mapping[str, int], target: Mapping[str, int] | None) -> list[LogRange]:
        """The new ranges after `start`, up to the target."""
        new = []
        for log in self.find():
            key = log_key(log.topic, log.partition)
            self._check(log, start.get(key, 0))
            to_offset = log.next_offset if target is None else min(target.get(key, 0), log.next_offset)
            chosen = log.range(max(start.get(key, 0), log.log_start_offset), to_offset)
            if chosen.from_offset < chosen.to_offset:
                new.append(chosen)
        return new

    def _check(self, log: BrokerLog, offset: int) -> None:
        if log.next_offset < offset:
            raise BrokerError(
                f"{log_key(log.topic, log.partition)} ends at offset {log.next_offset}, and was read up to {offset}:"
                " the topic was recreated, or an unclean leader election has cut it. A new checkpoint reads it from its"
                " start",
                code="LOG_CUT",
            )

    def _connected(self) -> Broker:
        if self._broker is None:
            self._broker = Broker.connect(self._address, timeout_ms=self._timeout_ms)
        return self._broker


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """Scale `wanted` proportionally to a total of at most `most`; rounding remainders go to the first ones."""
    total = sum(wanted)
    if total <= most:
        return list(wanted)
    given = [it * most // total for it in wanted]
    left = most - sum(given)
    for index, it in enumerate(wanted):
        if left and given[index] < it:
            given[index] += 1
            left -= 1
    return given
