"""The state of bronze for one cluster, read once before a capture is planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import pyarrow as pa

from coordinator_core.bytes.coverage import BEFORE_FIRST, BETWEEN, CoverageKind, CoverageRange, intersect, union
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.copies import Copies, capture_application
from jobs.bronze.retention import deleted_ranges
from jobs.bronze.work import SETTLED, TaskDone
from jobs.bronze.writer import DAMAGED
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import CaptureConflict
from schemas.tables import TABLES
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES
from schemas.tables.declare import Table

QUARANTINE: Final = TABLES["bronze.quarantine"]


@dataclass(frozen=True, slots=True)
class Bronze:
    """What bronze has of a cluster, and the last capture of it: a capture that commits after another one is refused."""

    cluster_id: str
    known: Mapping[LogPartition, tuple[OffsetRange, ...]]
    """Offsets that the files of bronze.record_batches span; ascending, disjoint."""
    damaged: Mapping[LogPartition, frozenset[int]]
    """Base offsets of damaged batches."""
    coverage: Mapping[LogPartition, Sequence[CoverageRange]]
    versions: Mapping[str, int]
    """Version of the last commit by a capture of this cluster, by full name of the table."""
    ends: Mapping[LogPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    """First and last offset of the batch at the end of each `known` range, as of loading; ascending. Missing where
    retention deleted that batch."""
    files: Mapping[LogPartition, tuple[TableFile, ...]] = field(default_factory=dict)
    """Files of bronze.record_batches, as of loading."""
    dropped: Mapping[LogPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    """Offsets that retention deleted."""
    copies: Copies = field(default_factory=Copies)

    @classmethod
    def load(cls, tables: ClusterTables) -> Self:
        """The current state. Creates the tables that do not exist."""
        versions = tables.warehouse.ensure_all(
            (RECORD_BATCHES, COVERAGE, QUARANTINE), capture_application(tables.cluster_id)
        )
        dropped = deleted_ranges(tables)
        files = captured_files(tables)
        known, ends, damaged = _known_offsets(files, dropped)
        coverage = coverage_rows.from_table(tables.read(COVERAGE))
        copies = Copies.load(tables)
        return cls(tables.cluster_id, known, damaged, coverage, versions, ends, files, dropped, copies)

    def settled(self, partition: LogPartition) -> tuple[OffsetRange, ...]:
        """Offsets of a log partition that need not be read again: captured in files, or removed by compaction.

        Coverage and files may disagree (a capture crashed, a table was restored to an older version), so both must
        agree.
        """
        captured: list[OffsetRange] = []
        compacted: list[OffsetRange] = []
        for r in self.coverage.get(partition, ()):
            if r.kind in SETTLED:
                (captured if r.kind is CoverageKind.CAPTURED else compacted).append((r.from_offset, r.to_offset))
        return tuple(union([*intersect(captured, self.known.get(partition, ())), *compacted]))

    def looked_at(self, partition: LogPartition) -> tuple[OffsetRange, ...]:
        """Offsets about which more is known than that they were never captured: settled, damaged, or gone
        from the log.
        """
        seen = [
            (r.from_offset, r.to_offset)
            for r in self.coverage.get(partition, ())
            if r.kind is CoverageKind.CORRUPT
            or (r.kind is CoverageKind.MISSING and r.reason not in (BEFORE_FIRST, BETWEEN))
        ]
        return tuple(union([*self.settled(partition), *seen]))

    def after(
        self,
        done: Sequence[TaskDone],
        coverage: Mapping[LogPartition, Sequence[CoverageRange]],
        versions: Mapping[str, int],
    ) -> Self:
        """The state after the results of tasks are committed, without reading it again."""
        known, damaged = dict(self.known), dict(self.damaged)
        for result in done:
            for partition, ranges in result.known.items():
                if ranges:
                    known[partition] = tuple(union([*known.get(partition, ()), *ranges]))
            for partition, offsets in result.damaged.items():
                if offsets:
                    damaged[partition] = damaged.get(partition, frozenset()) | offsets
        return replace(self, known=known, damaged=damaged, coverage=coverage, versions=versions)


def captured_files(tables: ClusterTables) -> dict[LogPartition, tuple[TableFile, ...]]:
    """Files of bronze.record_batches of a cluster that have rows, by log partition."""
    files: dict[LogPartition, list[TableFile]] = {}
    for file in tables.files(RECORD_BATCHES):
        values = file.partition_values
        if file.row_count:
            files.setdefault((values["topic"], values["partition"]), []).append(file)
    return {partition: tuple(found) for partition, found in files.items()}


def _known_offsets(
    files: Mapping[LogPartition, Sequence[TableFile]], dropped: Mapping[LogPartition, Sequence[OffsetRange]]
) -> tuple[
    dict[LogPartition, tuple[OffsetRange, ...]],
    dict[LogPartition, tuple[OffsetRange, ...]],
    dict[LogPartition, frozenset[int]],
]:
    """Offsets that the files of bronze.record_batches span or spanned; the batches at the ends of these ranges; and
    base offsets of damaged batches."""
    known: dict[LogPartition, list[OffsetRange]] = {partition: list(ranges) for partition, ranges in dropped.items()}
    last_batches: dict[LogPartition, dict[int, int]] = {}
    damaged: dict[LogPartition, frozenset[int]] = {}
    for partition, of_log in files.items():
        for file in of_log:
            if file.path.rpartition("/")[2].startswith(DAMAGED):
                damaged[partition] = damaged.get(partition, frozenset()) | {file.minimum["base_offset"]}
            else:
                last_offset = file.maximum["last_offset"]
                known.setdefault(partition, []).append((file.minimum["base_offset"], last_offset))
                last_batches.setdefault(partition, {})[last_offset] = file.maximum["base_offset"]
    joined = {partition: tuple(union(ranges)) for partition, ranges in known.items()}
    ends = {
        partition: tuple((batches[last], last) for _, last in joined[partition] if last in batches)
        for partition, batches in last_batches.items()
    }
    return joined, ends, damaged


def replace_cluster(warehouse: Warehouse, table: Table, rows: pa.Table, bronze: Bronze) -> None:
    committed = warehouse.write(
        table,
        rows,
        app_id=capture_application(bronze.cluster_id),
        version=bronze.versions[table.full_name] + 1,
        mode=OVERWRITE,
        replace={"cluster_id": bronze.cluster_id},
    )
    if committed.skipped:
        raise CaptureConflict
