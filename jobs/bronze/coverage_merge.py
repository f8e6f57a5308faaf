"""Merge the coverage that a capture saw into bronze.coverage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from coordinator_core.bytes.coverage import (
    BEFORE_FIRST,
    BETWEEN,
    CoverageKind,
    CoverageRange,
    complete_coverage,
    intersect,
    merge_coverage,
    subtract,
)
from coordinator_core.bytes.log.copies import Lineage
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.snapshot import Bronze, replace_cluster
from jobs.bronze.work import TaskDone
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import COVERAGE


def merged_coverage(
    bronze: Bronze,
    done: Sequence[TaskDone],
    lineages: Mapping[LogPartition, Lineage],
    observed_at_ms: int,
    put_right: Mapping[LogPartition, Sequence[OffsetRange]],
) -> dict[LogPartition, Sequence[CoverageRange]]:
    """The coverage of the cluster after a capture. Ranges in `put_right` are no longer CORRUPT."""
    seen: dict[LogPartition, list[CoverageRange]] = {}
    rebuilt: dict[LogPartition, tuple[CoverageRange, ...]] = {}
    replaced: dict[LogPartition, list[OffsetRange]] = {}
    for result in done:
        for partition, ranges in result.coverage:
            seen.setdefault(partition, []).extend(ranges)
        rebuilt |= result.rebuilt
        for partition, claimed in result.replaced.items():
            replaced.setdefault(partition, []).extend(claimed)
    merged: dict[LogPartition, Sequence[CoverageRange]] = dict(bronze.coverage)
    for partition, observed in seen.items():
        together = [*_but_right(bronze.coverage.get(partition, ()), put_right.get(partition, ())), *observed]
        if partition in rebuilt:
            now = _but_unreadable(rebuilt[partition], together)
            together = [*now, *_left_of(together, now)]
        together = list(_but_claimed(together, replaced.get(partition, ())))
        of_the_log = _but_cut(together, lineages.get(partition, Lineage()))
        merged[partition] = complete_coverage(merge_coverage(of_the_log, ()), observed_at_ms=observed_at_ms)
    return merged


def _but_right(ranges: Sequence[CoverageRange], right: Sequence[OffsetRange]) -> Iterator[CoverageRange]:
    """The ranges without the damage that was put right."""
    for r in ranges:
        if r.kind is not CoverageKind.CORRUPT or not right:
            yield r
            continue
        for first, last in subtract([(r.from_offset, r.to_offset)], right):
            yield replace(r, from_offset=first, to_offset=last)


def _but_claimed(ranges: Iterable[CoverageRange], claimed: Sequence[OffsetRange]) -> Iterator[CoverageRange]:
    """The ranges without those that only headers of replaced damaged batches claim. The length of a damaged batch is
    known only from its header, which may itself be damaged."""
    for r in ranges:
        is_claim = r.kind is CoverageKind.CORRUPT and r.reason == coverage_rows.CRC_MISMATCH
        for first, last in subtract([(r.from_offset, r.to_offset)], claimed if is_claim else ()):
            yield replace(r, from_offset=first, to_offset=last)


def _but_cut(ranges: Iterable[CoverageRange], lineage: Lineage) -> Iterator[CoverageRange]:
    """The ranges without holes and damage that occur only in a tail that the log no longer has."""
    ends: dict[int, int | None] = {}
    for r in ranges:
        if r.leader_epoch is None:
            yield r
            continue
        if r.leader_epoch not in ends:
            ends[r.leader_epoch] = lineage.end_of(r.leader_epoch)
        end = ends[r.leader_epoch]
        if end is None or r.to_offset < end:
            yield r
        elif r.from_offset < end:
            yield replace(r, to_offset=end - 1)


def _but_unreadable(now: Sequence[CoverageRange], seen: Iterable[CoverageRange]) -> list[CoverageRange]:
    """The ranges without holes where dumps have records that they do not print."""
    unreported = [(r.from_offset, r.to_offset) for r in seen if r.reason == coverage_rows.NOT_PRINTED]
    return [
        replace(r, from_offset=first, to_offset=last)
        for r in now
        for first, last in subtract(
            [(r.from_offset, r.to_offset)], unreported if r.reason == coverage_rows.NOT_IN_DUMP else ()
        )
    ]


def _left_of(before: Iterable[CoverageRange], now: Iterable[CoverageRange]) -> list[CoverageRange]:
    """The part of the former coverage that remains true after batches were removed from bronze: since when the
    remaining records are known, and the ranges without records."""
    captured = [(r.from_offset, r.to_offset) for r in now if r.kind is CoverageKind.CAPTURED]
    left = []
    for r in before:
        if r.kind is CoverageKind.CAPTURED:
            for first, last in intersect([(r.from_offset, r.to_offset)], captured):
                left.append(CoverageRange(first, last, r.kind, r.observed_at_ms))
        elif r.kind is not CoverageKind.MISSING or r.reason not in (BEFORE_FIRST, BETWEEN):
            left.append(r)  # gaps that still exist are found again
    return left


def write_coverage(
    warehouse: Warehouse, bronze: Bronze, merged: Mapping[LogPartition, Sequence[CoverageRange]]
) -> bool:
    """Write coverage if it changed. Returns whether it did."""
    if all(tuple(merged[partition]) == tuple(bronze.coverage.get(partition, ())) for partition in merged):
        return False
    replace_cluster(warehouse, COVERAGE, coverage_rows.to_table(bronze.cluster_id, merged), bronze)
    return True
