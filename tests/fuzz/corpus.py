"""Real batches and segments to start from: the recordings of real brokers and the vectors of Kafka's own builders."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from coordinator_core.bytes.log.records import frame_chunk
from coordinator_core.bytes.log.segment import parse_partition_folder
from tests.conformance.families.batches import entries, read_vectors
from tests.recorded import RECORDINGS

TESTS: Final = Path(__file__).parent.parent
SEGMENT_BYTES_MAX: Final = 6000
"""Mutants of whole segments start from runs of batches of about this size: what is longer only costs time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch, or a run of batches, with the topic whose records it holds."""

    topic: str
    base_offset: int
    data: bytes


@cache
def batches() -> tuple[Sample, ...]:
    """One sample a batch, each content once."""
    found: dict[bytes, Sample] = {}
    for run in segments():
        columns, _ = frame_chunk(run.data)
        for position, size, base_offset in zip(
            columns.position.tolist(), columns.size.tolist(), columns.base_offset.tolist(), strict=True
        ):
            data = run.data[position : position + size]
            found.setdefault(data[12:], Sample(run.topic, base_offset, data))
    for data in read_vectors(TESTS / "data" / "vectors" / "batches" / "batches.jsonl").values():
        for entry in entries(data):
            if len(entry) < SEGMENT_BYTES_MAX:
                base_offset = int.from_bytes(entry[:8], "big")
                found.setdefault(entry[12:], Sample("__consumer_offsets", base_offset, entry))
    return tuple(found.values())


@cache
def segments() -> tuple[Sample, ...]:
    """Runs of consecutive batches of every recorded segment of a coordinator's topic."""
    found: list[Sample] = []
    for file in sorted(RECORDINGS.glob("*/logs*/*/*.log")):
        place = parse_partition_folder(file.parent.name)
        if place is None or place[0] == "__cluster_metadata":
            continue
        data = file.read_bytes()
        columns, _ = frame_chunk(data)
        start, base_offset = 0, int(file.stem)
        for row in range(len(columns)):
            end = int(columns.position[row] + columns.size[row])
            if end - start >= SEGMENT_BYTES_MAX or end == len(data):
                found.append(Sample(place[0], base_offset, data[start:end]))
                start, base_offset = end, int(columns.last_offset[row]) + 1
    return tuple(found)
