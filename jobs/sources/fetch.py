"""Kafka's Fetch for copying a log: which offsets to request, and which batches of a response belong to a range.

A batch belongs to the range that contains its last offset. So adjacent ranges yield each batch once, wherever they are
cut.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.codec import make
from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.chunk import U8, BatchColumns
from coordinator_core.bytes.log.scan import RELATIVE_OFFSET_MAX, SegmentScan, scan_segment
from coordinator_core.bytes.log_partitions import LogPartition
from jobs.sources.api_request import ApiRequest
from schemas.fetch_protocol import FETCH, FETCH_PARTITION, FETCH_TOPIC
from schemas.wire import Uuid

VERSION_BEFORE_TOPIC_IDS: Final = 12
BASE_OFFSET_BYTES: Final = 8
"""A batch begins with its base offset, followed by its length."""
ZERO_UUID: Final = str(Uuid.default)
"""Kafka's representation of a missing id."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range of offsets of a log partition: the batches whose last offset is in it."""

    topic: str
    partition: int
    topic_id: str | None
    from_offset: int
    to_offset: int
    """Exclusive; at most the high watermark."""


@dataclass(frozen=True, slots=True)
class FramedAnswer:
    """The batches of a response that belong to a range."""

    data: pa.Buffer
    scan: SegmentScan
    is_end: bool
    """The response reaches the end of the range."""


def fetch_request(
    asked: Sequence[tuple[LogRange, int, int]],
    *,
    bytes_max: int,
    partition_bytes_max: int | None = None,
    wait_ms: int = 0,
) -> Any:
    """A fetch from one leader, for (range, leader epoch, first offset) each, up to the high watermark (isolation level
    0).

    The broker fills its response in this order. The first partition with data gets a batch even if that exceeds the
    limits.
    """
    by_topic: dict[str, list[tuple[LogRange, int, int]]] = {}
    for it in asked:
        by_topic.setdefault(it[0].topic, []).append(it)
    topics = [
        make(
            FETCH_TOPIC,
            topic=topic,
            topic_id=members[0][0].topic_id or ZERO_UUID,
            partitions=[
                make(
                    FETCH_PARTITION,
                    partition=chosen.partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=partition_bytes_max or bytes_max,
                )
                for chosen, leader_epoch, offset in members
            ],
        )
        for topic, members in by_topic.items()
    ]
    request = ApiRequest(FETCH, max_wait_ms=wait_ms, min_bytes=1, max_bytes=bytes_max, topics=topics)
    if any(it[0].topic_id is None for it in asked):
        request.max_version = VERSION_BEFORE_TOPIC_IDS
    return request


def answered_partitions(answer: Any, asked: Iterable[LogRange]) -> dict[LogPartition, Any]:
    """A response by log partition; newer versions identify topics by id."""
    topic_names = {it.topic_id: it.topic for it in asked}
    return {
        (topic.topic or topic_names.get(topic.topic_id, ""), partition.partition_index): partition
        for topic in answer.responses
        for partition in topic.partitions
    }


def frame_answer(data: pa.Buffer, from_offset: int, to_offset: int) -> FramedAnswer:
    """Frame the response to a fetch at `from_offset`, without batches whose last offset is `to_offset` or above.

    The last batch of a response may be truncated: it is left out, and comes with the next. Damaged bytes stay, to be
    reported.
    """
    array = np.frombuffer(data, np.uint8)
    base_offset = _scan_base(array, from_offset)
    offset_max = min(base_offset + RELATIVE_OFFSET_MAX, kernels.INT64_MAX - 1)
    columns, _, end_position, stop = kernels.frame_ordered_batches(array, 0, len(array), base_offset, offset_max)
    batches = BatchColumns(*columns)
    if stop not in {kernels.STOP_END, kernels.STOP_TRUNCATED}:
        scan = scan_segment(array, base_offset=base_offset)
        batches, end_position = scan.batches, len(array)
        if scan.skipped and scan.skipped[-1][1] == end_position:
            end_position = scan.skipped[-1][0]
    beyond = np.flatnonzero(batches.last_offset >= to_offset)
    is_end = len(beyond) > 0
    if is_end:
        end_position = int(batches.position[beyond[0]])
    return FramedAnswer(
        data.slice(0, end_position), scan_segment(array[:end_position], base_offset=base_offset), is_end
    )


def _scan_base(array: U8, from_offset: int) -> int:
    """The lowest possible base offset of a batch in a response.

    The first batch contains the requested offset, or is the next one that compaction kept, which may be further away
    than a segment can span. The CRC does not cover the base offset, so it is not accepted if it contradicts the batch
    after it.
    """
    second = _batch_end(array, 0)
    columns, is_true, *_ = kernels.frame_batches(array, 0, min(_batch_end(array, second), len(array)))
    batches = BatchColumns(*columns)
    if not len(is_true) or not is_true[0]:
        return from_offset
    first_offset, last_offset = int(batches.base_offset[0]), int(batches.last_offset[0])
    if len(is_true) > 1 and batches.base_offset[1] <= last_offset:
        return from_offset
    is_far = last_offset - from_offset >= RELATIVE_OFFSET_MAX // 2
    return first_offset if is_far or first_offset <= from_offset <= last_offset else from_offset


def _batch_end(array: U8, position: int) -> int:
    """The end of a batch according to its header; past the array if the batch is truncated or is no batch."""
    length = array[position + BASE_OFFSET_BYTES : position + kernels.LOG_OVERHEAD_BYTES].tobytes()
    return position + kernels.LOG_OVERHEAD_BYTES + int.from_bytes(length, "big")
