"""Estimate the bytes between two offsets of a log from samples, since the protocol does not report them.

A compacted log is sparse where it is old and dense where it is new, so it is sampled at its beginning, in its middle
and near its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from coordinator_core.bytes.log_partitions import LogPartition
from jobs.sources.broker import NO_ERROR, Broker
from jobs.sources.fetch import LogRange, answered_partitions, fetch_request, frame_answer

SAMPLE_BYTES: Final = 32 * 1024
"""Per log partition and place; a larger batch is returned whole only for the first partition of a request."""
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


def bytes_per_offset(broker: Broker, ranges: Sequence[LogRange]) -> dict[LogPartition, tuple[float, ...]]:
    """Bytes per offset at each sampled place, for one range a log partition; missing where no sample was available."""
    samples: dict[LogPartition, tuple[float, ...]] = {}
    for eighths in (0, 4, 7):
        places = [_after(it, eighths) for it in ranges]
        for place, density in _sampled(broker, places).items():
            samples[place] = (*samples.get(place, ()), density)
    return samples


def estimated_bytes(samples: Mapping[LogPartition, tuple[float, ...]], chosen: LogRange) -> int:
    densities = samples.get((chosen.topic, chosen.partition), ())
    offset_count = chosen.to_offset - chosen.from_offset
    return int(offset_count * sum(densities) / len(densities)) if densities else 0


def split_ranges(broker: Broker, ranges: Sequence[LogRange], bytes_max: int) -> list[LogRange]:
    """Split ranges into parts of about `bytes_max`, in order."""
    samples = bytes_per_offset(broker, ranges)
    parts: list[LogRange] = []
    for it in ranges:
        offset_count = it.to_offset - it.from_offset
        part_count = max(1, min(offset_count, -(-estimated_bytes(samples, it) // bytes_max)))
        cuts = [it.from_offset + offset_count * part // part_count for part in range(part_count + 1)]
        parts += [replace(it, from_offset=cuts[part], to_offset=cuts[part + 1]) for part in range(part_count)]
    return parts


def _after(chosen: LogRange, eighths: int) -> LogRange:
    """The range without its first `eighths` eighths."""
    return replace(chosen, from_offset=chosen.from_offset + (chosen.to_offset - chosen.from_offset) * eighths // 8)


def _sampled(broker: Broker, places: Sequence[LogRange]) -> dict[LogPartition, float]:
    by_leader: dict[int, list[tuple[LogRange, int, int]]] = {}
    for it in places:
        if it.from_offset < it.to_offset:
            leader = broker.leader(it.topic, it.partition)
            by_leader.setdefault(leader.node_id, []).append((it, leader.leader_epoch, it.from_offset))
    densities: dict[LogPartition, float] = {}
    for node_id, asked in by_leader.items():
        request = fetch_request(asked, bytes_max=ANSWER_BYTES_MAX, partition_bytes_max=SAMPLE_BYTES)
        answer = broker.send(request, node_id)
        found = answered_partitions(answer, [it for it, _, _ in asked])
        for it, _, _ in asked:
            density = _density(found.get((it.topic, it.partition)), it)
            if density is not None:
                densities[it.topic, it.partition] = density
    return densities


def _density(partition: Any, chosen: LogRange) -> float | None:
    """Bytes per offset in a response; None if it is empty or an error, which the actual read will report."""
    if partition is None or partition.error_code != NO_ERROR or not partition.records:
        return None
    framed = frame_answer(pa.py_buffer(partition.records), chosen.from_offset, chosen.to_offset)
    if framed.scan.next_offset <= chosen.from_offset:
        return None
    return float(framed.data.size / (framed.scan.next_offset - chosen.from_offset))
