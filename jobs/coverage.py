"""Coverage of log partitions: from the scan of their segments, and as rows of bronze.coverage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.coverage import CoverageKind, CoverageRange, merge_coverage, subtract
from coordinator_core.errors import DecodeError
from coordinator_core.log.records import missing_offsets
from jobs.arrow_schemas import TIMESTAMP_MS_MAX, arrow_schema
from jobs.sources.segments import SegmentRead, as_array
from schemas.tables import TABLES

COVERAGE: Final = TABLES["bronze.coverage"]

COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""cleanup.policy=compact: a hole between two batches is the cleaner's work. In the other internal topics (policy
delete) offsets are dense, and a hole is something that was lost."""

COMPACTION: Final = "compaction left no record here"
CRC_MISMATCH: Final = "the checksum of the batch does not fit its bytes"
SKIPPED: Final = "bytes which are no batch were skipped here"
HOLE: Final = "a hole in the log of a topic which is never compacted"
LOG_START: Final = "deleted by Kafka: below the log start offset"

LogPartition = tuple[str, int]
"""(topic, partition)"""


def scanned_coverage(
    reads: Sequence[SegmentRead],
    *,
    topic: str,
    offset_end: int | None,
    log_start_offset: int | None,
    observed_at_ms: int,
) -> tuple[CoverageRange, ...]:
    """What consecutive segments of one source say of their log partition.

    `reads` ascends by base offset. `offset_end`: where the next part of the same log begins, exclusive; None at its
    end. Offsets from the first segment's base offset on are spoken of, and those below the log start offset.
    """
    ranges: list[CoverageRange] = []
    next_offset = -1
    was_skipped = False
    for read in reads:
        if next_offset < 0:
            next_offset = read.segment.base_offset
        batches = read.scan.batches
        is_after_skip = _rows_after_skips(read)
        for first, last in _stretches(read, is_after_skip):
            from_offset, to_offset = int(batches.base_offset[first]), int(batches.last_offset[last - 1])
            was_skipped = was_skipped or bool(is_after_skip[first])
            if from_offset > next_offset:
                ranges.append(_hole(next_offset, from_offset - 1, topic, was_skipped, observed_at_ms))
            was_skipped = False
            next_offset = to_offset + 1
            if not read.scan.crc_valid[first]:
                ranges.append(CoverageRange(from_offset, to_offset, CoverageKind.CORRUPT, observed_at_ms, CRC_MISMATCH))
            else:
                ranges += _captured(read, first, last, observed_at_ms)
        was_skipped = was_skipped or any(end >= read.scan.end_position for _, end in read.scan.skipped)
    if offset_end is not None and 0 <= next_offset < offset_end:
        ranges.append(_hole(next_offset, offset_end - 1, topic, was_skipped, observed_at_ms))
    if log_start_offset:
        ranges.append(CoverageRange(0, log_start_offset - 1, CoverageKind.MISSING, observed_at_ms, LOG_START))
    return merge_coverage(ranges, ())


def _rows_after_skips(read: SegmentRead) -> NDArray[np.bool_]:
    """Does a skipped byte range end where the batch begins? One bool a batch."""
    is_after = np.zeros(len(read.scan.batches), np.bool_)
    rows = np.searchsorted(read.scan.batches.position, [end for _, end in read.scan.skipped])
    is_after[rows[rows < len(is_after)]] = True
    return is_after


def _stretches(read: SegmentRead, is_after_skip: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of batches whose offsets follow each other and of which the same can be said.

    A batch that lacks records stands alone, since its holes need a look inside.
    """
    batches, crc_valid = read.scan.batches, read.scan.crc_valid
    count = len(batches)
    if not count:
        return
    is_alone = _lacks_records(read)
    is_break = np.ones(count, np.bool_)
    is_break[1:] = (
        (batches.base_offset[1:] != batches.last_offset[:-1] + 1)
        | (crc_valid[1:] != crc_valid[:-1])
        | is_alone[1:]
        | is_alone[:-1]
        | is_after_skip[1:]
    )
    starts = np.flatnonzero(is_break).tolist()
    yield from zip(starts, [*starts[1:], count], strict=True)


def _lacks_records(read: SegmentRead) -> NDArray[np.bool_]:
    batches = read.scan.batches
    is_short: NDArray[np.bool_] = batches.record_count != batches.last_offset - batches.base_offset + 1
    return is_short


def _captured(read: SegmentRead, first: int, last: int, observed_at_ms: int) -> Iterator[CoverageRange]:
    batches = read.scan.batches
    rows = slice(first, last)
    from_offset, to_offset = int(batches.base_offset[first]), int(batches.last_offset[last - 1])
    holes: Sequence[tuple[int, int]] = ()
    if last == first + 1 and bool(_lacks_records(read)[first]):
        start = int(batches.position[first])
        try:
            holes = missing_offsets(as_array(read.data)[start : start + int(batches.size[first])].tobytes())
        except DecodeError:
            holes = ()  # its records cannot be told: replay quarantines the batch, which is captured all the same
    # where compaction has set a delete horizon, the field of the base timestamp holds that
    is_horizon = batches.has_delete_horizon[rows]
    earliest = np.where(is_horizon, batches.max_timestamp_ms[rows], batches.base_timestamp_ms[rows])
    known_first = earliest[(earliest >= 0) & (earliest <= TIMESTAMP_MS_MAX)]
    latest = batches.max_timestamp_ms[rows]
    known_last = latest[(latest >= 0) & (latest <= TIMESTAMP_MS_MAX)]
    for part_from, part_to in subtract([(from_offset, to_offset)], holes):
        yield CoverageRange(
            part_from,
            part_to,
            CoverageKind.CAPTURED,
            observed_at_ms,
            first_timestamp_ms=int(known_first.min()) if len(known_first) else None,
            last_timestamp_ms=int(known_last.max()) if len(known_last) else None,
        )
    for hole in holes:
        yield CoverageRange(*hole, CoverageKind.COMPACTED, observed_at_ms, COMPACTION)


def _hole(first: int, last: int, topic: str, was_skipped: bool, observed_at_ms: int) -> CoverageRange:
    if was_skipped:
        return CoverageRange(first, last, CoverageKind.CORRUPT, observed_at_ms, SKIPPED)
    if topic in COMPACTED_TOPICS:
        return CoverageRange(first, last, CoverageKind.COMPACTED, observed_at_ms, COMPACTION)
    return CoverageRange(first, last, CoverageKind.MISSING, observed_at_ms, HOLE)


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(at: datetime) -> int:
    """A time as epoch milliseconds."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def to_datetime(timestamp_ms: int) -> datetime:
    """Epoch milliseconds as a time."""
    return EPOCH + timedelta(milliseconds=timestamp_ms)


def to_table(cluster_id: str, coverage: Mapping[LogPartition, Iterable[CoverageRange]]) -> pa.Table:
    """Rows of bronze.coverage of one cluster, by log partition and offset."""
    rows = [
        {
            "cluster_id": cluster_id,
            "topic": topic,
            "partition": partition,
            "from_offset": r.from_offset,
            "to_offset": r.to_offset,
            "kind": r.kind.name,
            "reason": r.reason,
            "first_timestamp": None if r.first_timestamp_ms is None else to_datetime(r.first_timestamp_ms),
            "last_timestamp": None if r.last_timestamp_ms is None else to_datetime(r.last_timestamp_ms),
            "observed_at": to_datetime(r.observed_at_ms),
        }
        for (topic, partition), ranges in sorted(coverage.items())
        for r in ranges
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(COVERAGE))


def from_table(rows: pa.Table) -> dict[LogPartition, list[CoverageRange]]:
    """Coverage by log partition from rows of bronze.coverage of one cluster."""
    coverage: dict[LogPartition, list[CoverageRange]] = {}
    for row in rows.to_pylist():
        coverage.setdefault((row["topic"], row["partition"]), []).append(_range(row))
    return coverage


def _range(row: Mapping[str, Any]) -> CoverageRange:
    first, last = row["first_timestamp"], row["last_timestamp"]
    return CoverageRange(
        from_offset=row["from_offset"],
        to_offset=row["to_offset"],
        kind=CoverageKind[row["kind"]],
        observed_at_ms=epoch_ms(row["observed_at"]),
        reason=row["reason"],
        first_timestamp_ms=None if first is None else epoch_ms(first),
        last_timestamp_ms=None if last is None else epoch_ms(last),
    )
