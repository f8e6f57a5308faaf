"""Coverage of log partitions: built from the reads of their segments, and as rows of bronze.coverage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.bytes.coverage import IN_BATCH, CoverageKind, CoverageRange, merge_coverage, subtract, with_times
from coordinator_core.bytes.log.records import missing_offsets
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.errors import DecodeError
from coordinator_core.text import counted
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX, arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms, to_datetime
from jobs.sources.segments import DUMP, Segment, SegmentRead
from schemas.tables.bronze import COVERAGE

COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics with cleanup.policy=compact: a hole between two batches is the cleaner's work. In the other internal topics
(policy delete) offsets are dense, and a hole means lost records."""

COMPACTION: Final = "compaction left no record here"
CRC_MISMATCH: Final = "the checksum of the batch does not fit its bytes"
SKIPPED: Final = "bytes which are no batch were skipped here"
OVERLAPPING: Final = "the batch overlaps in part with what bronze has: it is in bronze.quarantine"
HOLE: Final = "a hole in the log of a topic which is never compacted"
NOT_IN_DUMP: Final = "the dump tells no record here: a marker, compaction, or left out of the dump"
NOT_PRINTED: Final = "the dump has records here that it does not tell: dump again, with the decoder of the topic"
LOST_SEGMENT: Final = "a segment file is missing here: the log cleaner has not come this far"
LOST_LOG: Final = "a segment file is missing here: its index is in the folder"
LOG_START: Final = "deleted by Kafka: below the log start offset"

HOLES: Final = ("MISSING", "CORRUPT")
"""Kinds of ranges whose records are missing. What the cleaner removed is not a hole."""
PRUNED_TOPICS: Final = frozenset({"__share_group_state", "__cluster_metadata"})
"""Kafka continuously deletes the beginning of these logs: share state that a later snapshot contains, and metadata
that a checkpoint file contains."""
HOLES_LISTED_MAX: Final = 5


class CoverageScan:
    """Build the coverage of a log partition from consecutive reads of one source; no read is kept.

    The coverage begins at `from_offset` (None: at the base offset of the first read), and includes the offsets below
    the log start offset.
    """

    def __init__(
        self, topic: str, *, log_start_offset: int | None, observed_at_ms: int, from_offset: int | None = None
    ) -> None:
        self._topic = topic
        self._log_start_offset = log_start_offset or 0
        self._observed_at_ms = observed_at_ms
        self._ranges: list[CoverageRange] = []
        self._next_offset = -1 if from_offset is None else from_offset
        self._was_skipped = False
        self._is_dump = False
        self._epoch: int | None = None
        """Leader epoch of the next batch after the ranges so far."""
        self._without_epoch: list[int] = []
        """Indexes of the ranges after which no intact batch was read yet: they get the epoch of the next one."""
        self._unreported: Sequence[tuple[int, int]] = ()
        self._file: Segment | None = None
        """The file of the last read."""
        self._is_dense = False
        """It was never cleaned, as far as it was read: its batches follow one another, and none lacks a record."""

    def add(
        self, read: SegmentRead, rejected: NDArray[np.bool_] | None = None, silent: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the next read.

        `rejected`: intact batches that bronze does not take; `silent`: batches whose offsets are covered by other
        batches of bronze, so this read adds nothing about them. One bool a batch each.
        """
        if self._next_offset < 0:
            self._next_offset = read.segment.base_offset
        self._begin_file(read)
        self._is_dump = read.segment.source_kind == DUMP
        # Kafka may delete segments while they are read
        self._log_start_offset = max(self._log_start_offset, read.log_start_offset or 0)
        batches = read.scan.batches
        is_after_skip = _rows_after_skips(read)
        epochs = _epochs_behind(read)
        for first, last in _intervals(read, is_after_skip, rejected, silent):
            from_offset, to_offset = int(batches.base_offset[first]), int(batches.last_offset[last - 1])
            self._was_skipped = self._was_skipped or bool(is_after_skip[first])
            self._epoch = None if epochs is None or epochs[first] < 0 else int(epochs[first])
            if self._epoch is not None or read.scan.crc_valid[first]:
                self._fill_epochs()
            self._hole_until(from_offset)
            self._was_skipped = False
            self._next_offset = to_offset + 1
            if silent is not None and silent[first]:
                continue
            if not read.scan.crc_valid[first]:
                self._say(self._range(from_offset, to_offset, CoverageKind.CORRUPT, CRC_MISMATCH))
            elif rejected is not None and rejected[first]:
                self._say(self._range(from_offset, to_offset, CoverageKind.CORRUPT, OVERLAPPING))
            else:
                for r in _captured(read, first, last, self._observed_at_ms):
                    self._say(r)
        self._was_skipped = self._was_skipped or any(end >= read.scan.end_position for _, end in read.scan.skipped)

    def leave_out(self, unreported: Sequence[tuple[int, int]]) -> None:
        """Mark offsets of records that the source has but does not print: they are MISSING, whether they are holes or
        not.
        """
        self._unreported = unreported

    def finish(self, offset_end: int | None) -> tuple[CoverageRange, ...]:
        """The ranges of all reads.

        `offset_end`: the end of what was read, exclusive; None: the end of the last batch.
        """
        if offset_end is not None and self._next_offset >= 0:
            self._lost_until(offset_end)
            self._hole_until(offset_end)
        if self._log_start_offset:
            self._ranges.append(self._range(0, self._log_start_offset - 1, CoverageKind.MISSING, LOG_START))
        if self._unreported:
            found, self._ranges = self._ranges, []
            for r in found:
                is_hole = r.kind is CoverageKind.COMPACTED
                pieces = subtract([(r.from_offset, r.to_offset)], self._unreported if is_hole else ())
                self._ranges += [replace(r, from_offset=first, to_offset=last) for first, last in pieces]
            self._ranges += [
                self._range(first, last, CoverageKind.MISSING, NOT_PRINTED) for first, last in self._unreported
            ]
        return merge_coverage(self._ranges, ())

    def _begin_file(self, read: SegmentRead) -> None:
        if self._file is None or read.segment.path != self._file.path:
            self._lost_until(read.segment.base_offset)
            self._file, self._is_dense = read.segment, read.segment.is_uncleaned
        self._is_dense = self._is_dense and _is_dense(read, self._next_offset)

    def _lost_until(self, base_offset: int) -> None:
        """Add what is missing before the base offset of the next file, where the cleaner cannot have left the hole."""
        file = self._file
        if file is None or self._topic not in COMPACTED_TOPICS or self._was_skipped:
            return
        lost_from = self._next_offset if self._is_dense else file.lost_from
        if lost_from is not None and self._log_start_offset <= self._next_offset < base_offset:
            lost_from = max(lost_from, self._next_offset)
            self._epoch = None
            self._hole_until(lost_from)
            reason = LOST_SEGMENT if self._is_dense else LOST_LOG
            self._say(self._range(lost_from, base_offset - 1, CoverageKind.MISSING, reason))
            self._next_offset = base_offset

    def _hole_until(self, offset: int) -> None:
        """Add a hole from the next offset up to this one."""
        deleted_end = min(offset, self._log_start_offset)
        if self._next_offset < deleted_end and not self._was_skipped:
            self._say(self._range(self._next_offset, deleted_end - 1, CoverageKind.MISSING, LOG_START))
            self._next_offset = deleted_end
        if self._next_offset < offset:
            self._say(self._unexplained(self._next_offset, offset - 1))

    def _unexplained(self, first: int, last: int) -> CoverageRange:
        if self._was_skipped:
            return self._range(first, last, CoverageKind.CORRUPT, SKIPPED)
        if self._topic in COMPACTED_TOPICS:
            return self._range(first, last, CoverageKind.COMPACTED, NOT_IN_DUMP if self._is_dump else COMPACTION)
        return self._range(first, last, CoverageKind.MISSING, NOT_IN_DUMP if self._is_dump else HOLE)

    def _range(self, first: int, last: int, kind: CoverageKind, reason: str) -> CoverageRange:
        epoch = None if kind is CoverageKind.MISSING else self._epoch
        return CoverageRange(first, last, kind, self._observed_at_ms, reason, leader_epoch=epoch)

    def _fill_epochs(self) -> None:
        """Give the ranges that wait for a leader epoch the epoch of the intact batch that follows."""
        for index in self._without_epoch:
            self._ranges[index] = replace(self._ranges[index], leader_epoch=self._epoch)
        self._without_epoch.clear()

    def _say(self, r: CoverageRange) -> None:
        """Add a range. Adjacent ranges are joined at once, so memory is bounded by the number of holes."""
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last.kind is r.kind is CoverageKind.CAPTURED and last.to_offset + 1 == r.from_offset:
            self._ranges[-1:] = merge_coverage((last,), (r,))
        else:
            if r.kind in (CoverageKind.CORRUPT, CoverageKind.COMPACTED) and r.leader_epoch is None:
                self._without_epoch.append(len(self._ranges))
            self._ranges.append(r)


def _epochs_behind(read: SegmentRead) -> NDArray[np.int32] | None:
    """The leader epoch of each batch, or of the next intact one; negative where none is known. None where no header
    of the read is original."""
    if not read.segment.has_header:
        return None
    batches, crc_valid = read.scan.batches, read.scan.crc_valid
    epochs: NDArray[np.int32] = batches.leader_epoch.astype(np.int32)
    if not crc_valid.all():
        rows = np.flatnonzero(crc_valid)
        behind = np.searchsorted(rows, np.arange(len(epochs)))
        epochs = np.append(epochs[rows], np.int32(-1))[behind]
    return epochs


def _rows_after_skips(read: SegmentRead) -> NDArray[np.bool_]:
    """Does a skipped byte range end where the batch begins? One bool a batch."""
    is_after = np.zeros(len(read.scan.batches), np.bool_)
    rows = np.searchsorted(read.scan.batches.position, [end for _, end in read.scan.skipped])
    is_after[rows[rows < len(is_after)]] = True
    return is_after


def _intervals(
    read: SegmentRead, is_after_skip: NDArray[np.bool_], *marks: NDArray[np.bool_] | None
) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of batches with contiguous offsets that one coverage range can describe.

    A batch that lacks records is an interval of its own, since its records must be decoded to find the holes.
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
    for mark in marks:
        if mark is not None:
            is_break[1:] |= mark[1:] != mark[:-1]
    starts = np.flatnonzero(is_break).tolist()
    yield from zip(starts, [*starts[1:], count], strict=True)


def _lacks_records(read: SegmentRead) -> NDArray[np.bool_]:
    batches = read.scan.batches
    is_short: NDArray[np.bool_] = batches.record_count != batches.last_offset - batches.base_offset + 1
    return is_short


def _is_dense(read: SegmentRead, next_offset: int) -> bool:
    """Do the batches follow one another from an offset on, undamaged, and with all of their records?"""
    batches, scan = read.scan.batches, read.scan
    if not len(batches):
        return not scan.skipped
    expected = np.concatenate([[next_offset], batches.last_offset[:-1] + 1])
    is_whole = scan.crc_valid & (batches.base_offset == expected) & ~_lacks_records(read)
    return bool(is_whole.all()) and not scan.skipped


def _captured(read: SegmentRead, first: int, last: int, observed_at_ms: int) -> Iterator[CoverageRange]:
    batches = read.scan.batches
    rows = slice(first, last)
    from_offset, to_offset = int(batches.base_offset[first]), int(batches.last_offset[last - 1])
    holes: Sequence[tuple[int, int]] = ()
    if last == first + 1 and bool(_lacks_records(read)[first]):
        try:
            holes = missing_offsets(read.content(first))
        except DecodeError:
            holes = ()  # its records cannot be decoded: replay quarantines the batch, but it is captured
    # where compaction has set a delete horizon, it is stored in the field of the base timestamp
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
        reason = NOT_IN_DUMP if read.segment.source_kind == DUMP else IN_BATCH
        epoch = int(batches.leader_epoch[first]) if read.segment.has_header else -1
        yield CoverageRange(
            *hole, CoverageKind.COMPACTED, observed_at_ms, reason, leader_epoch=epoch if epoch >= 0 else None
        )


def to_table(cluster_id: str, coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> pa.Table:
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
            "leader_epoch": r.leader_epoch,
            "first_timestamp": None if first_ms is None else to_datetime(first_ms),
            "last_timestamp": None if last_ms is None else to_datetime(last_ms),
            "observed_at": to_datetime(r.observed_at_ms),
        }
        for (topic, partition), ranges in sorted(coverage.items())
        for r, first_ms, last_ms in with_times(ranges)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(COVERAGE))


def from_table(rows: pa.Table) -> dict[LogPartition, list[CoverageRange]]:
    """Coverage by log partition from rows of bronze.coverage of one cluster."""
    coverage: dict[LogPartition, list[CoverageRange]] = {}
    for row in rows.to_pylist():
        coverage.setdefault((row["topic"], row["partition"]), []).append(_range(row))
    return coverage


def _range(row: Mapping[str, Any]) -> CoverageRange:
    kind = CoverageKind[row["kind"]]
    # ranges of other kinds get their times when rows are made
    is_captured = kind is CoverageKind.CAPTURED
    first, last = (row["first_timestamp"], row["last_timestamp"]) if is_captured else (None, None)
    return CoverageRange(
        from_offset=row["from_offset"],
        to_offset=row["to_offset"],
        kind=kind,
        observed_at_ms=epoch_ms(row["observed_at"]),
        reason=row["reason"],
        leader_epoch=row["leader_epoch"],
        first_timestamp_ms=None if first is None else epoch_ms(first),
        last_timestamp_ms=None if last is None else epoch_ms(last),
    )


def is_hole(topic: str, kind: str, reason: str | None, from_offset: int) -> bool:
    """Are records missing that a capture should have?

    Records that the cleaner removed are not, nor those that Kafka pruned before the first capture of the log.
    """
    is_pruned = topic in PRUNED_TOPICS and kind == CoverageKind.MISSING.name and reason == LOG_START
    return kind in HOLES and not (is_pruned and from_offset == 0)


HOLE_SQL: Final = (
    f"r.kind IN {HOLES} AND NOT (r.topic IN {tuple(sorted(PRUNED_TOPICS))} AND r.kind = '{CoverageKind.MISSING.name}' "
    f"AND r.reason IS NOT DISTINCT FROM '{LOG_START}' AND r.from_offset = 0)"
)
"""`is_hole` as a condition of DuckDB's on a row `r`."""


def hole_count(tables: ClusterTables) -> int:
    """Number of holes in everything captured of a cluster."""
    columns = ["topic", "kind", "reason", "from_offset"]
    rows = tables.read(COVERAGE, columns).to_pylist()
    return sum(is_hole(row["topic"], row["kind"], row["reason"], row["from_offset"]) for row in rows)


def holes(coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> Iterator[tuple[LogPartition, CoverageRange]]:
    for place, ranges in sorted(coverage.items()):
        for r in ranges:
            if is_hole(place[0], r.kind.name, r.reason, r.from_offset):
                yield place, r


def hole_lines(found: Sequence[tuple[LogPartition, CoverageRange]]) -> Iterator[str]:
    """The first holes in words, and how many more there are."""
    for (topic, partition), r in found[:HOLES_LISTED_MAX]:
        yield (
            f"hole: {topic}-{partition} offsets {r.from_offset:,} to {r.to_offset:,} are {r.kind.name}: "
            f"{r.reason or 'for no known reason'}"
        )
    if len(found) > HOLES_LISTED_MAX:
        yield f"and {counted(len(found) - HOLES_LISTED_MAX, 'hole')} more"
