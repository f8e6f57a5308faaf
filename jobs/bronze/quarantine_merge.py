"""Merge what a capture found into bronze.quarantine: rows stay, are replaced, or are resolved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange, subtract
from coordinator_core.bytes.log.segment import select_segments
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from coordinator_core.errors import TruncatedBatch
from jobs.bronze.quarantine import OVERLAPPING_BATCH, is_of_capture, with_current_words
from jobs.bronze.snapshot import QUARANTINE, Bronze, replace_cluster
from jobs.bronze.work import SETTLED, TaskDone
from jobs.bronze.writer import CaptureRun
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.warehouse import Warehouse
from jobs.sources.segments import UNREADABLE_FILE

QUARANTINE_COLUMNS: Final = QUARANTINE.column_names


@dataclass(frozen=True, slots=True)
class QuarantineMerge:
    """Rows of bronze.quarantine by their identity."""

    rows: pa.Table
    """All rows before this run."""
    before: Mapping[tuple[str, ...], dict[str, Any]]
    """Open rows about data that this run read again."""
    others: Mapping[tuple[str, ...], dict[str, Any]]
    """All other rows that capture wrote."""
    found: Mapping[tuple[str, ...], dict[str, Any]]
    """Rows that this run found."""
    has_former_words: bool = False
    """Some rows have a code or message that was renamed since."""

    @classmethod
    def load(cls, warehouse: Warehouse, bronze: Bronze, done: Sequence[TaskDone]) -> Self:
        """Load the rows of bronze, and add what tasks found."""
        sources = {source: position for result in done for source, position in result.read_sources.items()}
        stored = warehouse.read(QUARANTINE, where={"cluster_id": bronze.cluster_id})
        old = with_current_words(stored)
        places = zip(old["source"].to_pylist(), old["byte_position"].to_pylist(), strict=True)
        was_read = [source in sources and (at is None or at >= sources[source]) for source, at in places]
        is_old = pc.and_(pa.array(was_read, pa.bool_()), pc.is_null(old["resolved_at"]))
        of_capture = zip(old.to_pylist(), is_old.to_pylist(), is_of_capture(old).to_pylist(), strict=True)
        before: dict[tuple[str, ...], dict[str, Any]] = {}
        others: dict[tuple[str, ...], dict[str, Any]] = {}
        for row, is_again, is_its_own in of_capture:
            if is_its_own:
                (before if is_again else others)[_identity(row)] = row
        found = {_identity(row): row for result in done for row in result.quarantine}
        return cls(old, before, others, found, has_former_words=old != stored)

    @property
    def of_replay(self) -> pa.Table:
        """Rows that replay wrote."""
        return self.rows.filter(pc.invert(is_of_capture(self.rows)))

    def put_right(
        self, coverage: Mapping[LogPartition, Sequence[CoverageRange]]
    ) -> Mapping[LogPartition, Sequence[OffsetRange]]:
        """Offsets that earlier reads found damaged and this run found intact, without those that other damage may have
        contained.
        """
        right: dict[LogPartition, list[OffsetRange]] = {}
        for it, row in self.before.items():
            if it not in self.found:
                right.setdefault((row["topic"], row["partition"]), []).extend(_damaged_by(row, coverage))
        wrong: dict[LogPartition, list[OffsetRange]] = {}
        for row in (*self.found.values(), *(it for it in self.others.values() if it["resolved_at"] is None)):
            wrong.setdefault((row["topic"], row["partition"]), []).extend(_damaged_by(row, coverage))
        return {place: subtract(ranges, wrong.get(place, ())) for place, ranges in right.items()}


def _damaged_by(
    row: Mapping[str, Any], coverage: Mapping[LogPartition, Sequence[CoverageRange]]
) -> Sequence[OffsetRange]:
    """The offsets that damaged data may have contained: those of the row, else those of CORRUPT ranges in coverage."""
    first, last = row.get("from_offset"), row.get("to_offset")
    if first is not None and last is not None:
        return [(first, last)] if first <= last else []
    offset = row["base_offset"] if row["offset"] is None else row["offset"]
    ranges = coverage.get((row["topic"], row["partition"]), ())
    corrupt = [(r.from_offset, r.to_offset) for r in ranges if r.kind is CoverageKind.CORRUPT]
    return corrupt if offset is None else [(at, to) for at, to in corrupt if at <= offset <= to]


def write_quarantine(
    warehouse: Warehouse,
    bronze: Bronze,
    done: Sequence[TaskDone],
    quarantine: QuarantineMerge,
    coverage: Mapping[LogPartition, Sequence[CoverageRange]],
    run: CaptureRun,
) -> tuple[bool, Sequence[dict[str, Any]]]:
    """Write bronze.quarantine: rows of files that were read replace their former rows, and new rows of fetch responses
    are added. A row that is no longer true stays, as resolved.

    Returns whether the table was written (it is not if nothing changes), and the open rows.
    """
    before, others, found = quarantine.before, quarantine.others, quarantine.found
    torn = {_identity(row) for result in done for row in result.quarantine if row["code"] == TruncatedBatch.code}
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for it, row in found.items():
        if others.get(it, {}).get("resolved_at") is not None and it not in before:
            continue  # the same damage was found before, and bronze has intact bytes
        rows[it] = row | {"seen_at": before.get(it, others.get(it, row))["seen_at"]}
    for it, row in before.items():
        if it not in rows and it not in torn and row["code"] != TruncatedBatch.code:
            rows[it] = row | {
                "resolved_at": run.captured_at,
                "resolved_by": f"{row['source']}, read again, is good there",
            }
    for it, row in others.items():
        rows.setdefault(it, row)
    rows = {it: _resolved(row, coverage, run) for it, row in rows.items()}
    still_open = [row for row in rows.values() if row["resolved_at"] is None]
    if rows == {**others, **before} and not quarantine.has_former_words:
        return False, still_open
    schema = arrow_schema(QUARANTINE)
    table = pa.concat_tables(
        [quarantine.of_replay.cast(schema), pa.Table.from_pylist(list(rows.values()), schema=schema)]
    )
    replace_cluster(warehouse, QUARANTINE, table, bronze)
    return True, still_open


def _resolved(
    row: dict[str, Any], coverage: Mapping[LogPartition, Sequence[CoverageRange]], run: CaptureRun
) -> dict[str, Any]:
    """Resolve a row if bronze has intact records at its offsets."""
    row = {name: row.get(name) for name in QUARANTINE_COLUMNS}
    offset = row["base_offset"] if row["offset"] is None else row["offset"]
    if row["resolved_at"] is not None or row["topic"] is None:
        return row
    ranges = coverage.get((row["topic"], row["partition"]), ())
    if row["from_offset"] is not None and row["to_offset"] is not None:
        is_good = not subtract(
            [(row["from_offset"], row["to_offset"])] if row["from_offset"] <= row["to_offset"] else (),
            ((r.from_offset, r.to_offset) for r in ranges if r.kind in SETTLED),
        )
    elif offset is not None:
        is_good = any(r.kind in SETTLED and r.from_offset <= offset <= r.to_offset for r in ranges)
    else:
        is_good = _has_all_of_file(row, ranges)
    if not is_good or row["code"] == OVERLAPPING_BATCH:
        return row
    return row | {"resolved_at": run.captured_at, "resolved_by": "bronze has these offsets from a good copy"}


def _has_all_of_file(row: Mapping[str, Any], ranges: Sequence[CoverageRange]) -> bool:
    """Does bronze have every offset that a file which could not be opened may have, up to the end of what was captured?
    Its name has the first one. Of damage within a file it is not known which offsets the bytes hide: as long as the
    file is damaged, they may be offsets that no other copy has.
    """
    segments = select_segments([row["source"].rpartition("/")[2]]) if row["code"] == UNREADABLE_FILE else ()
    last_offset = max((r.to_offset for r in ranges), default=-1)
    if not segments or segments[0].base_offset > last_offset:
        return False
    settled = ((r.from_offset, r.to_offset) for r in ranges if r.kind in SETTLED)
    return not subtract([(segments[0].base_offset, last_offset)], settled)


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("topic", "partition", "source", "stage", "code", "base_offset", "byte_position", "message")
    return tuple(str(row[name]) for name in names)
