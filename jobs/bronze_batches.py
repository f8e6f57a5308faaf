"""The batches of one log partition that are in bronze already: looked up, compared, and taken out where others count.

A capture asks for them only where a source has offsets that bronze has, too. Files of bronze are read as far as their
offsets meet, the columns of headers alone; the bytes of batches only where two were cleaned and keep as many records.
What is taken out leaves its file in parts: no file may span offsets which could still be found elsewhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coordinator_core.coverage import IN_BATCH, CoverageKind, CoverageRange, merge_coverage, union
from coordinator_core.errors import DecodeError
from coordinator_core.log.batch import Record, build_batch
from coordinator_core.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, Origin
from coordinator_core.log.records import iter_records, missing_offsets
from jobs.arrow_schemas import TIMESTAMP_MS_MAX
from jobs.capture_writer import BATCHES, OffsetRange
from jobs.coverage import NOT_IN_DUMP
from jobs.merge_files import is_damaged, offsets_of, row_groups_in_order
from jobs.part_files import PartTarget, PartWriter, WrittenFile
from jobs.sinks import TableFile
from jobs.sources.segments import DUMP
from jobs.stores import filesystem_of
from schemas.tables.bronze import RECORD_BATCHES

HEADERS: Final = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "record_count",
    "source_kind",
    "is_transactional",
    "redacted_at",
    "crc_valid",
)
COVERED: Final = (
    "base_offset",
    "last_offset",
    "record_count",
    "base_timestamp",
    "max_timestamp",
    "source_kind",
    "magic",
    "crc_valid",
    "batch",
    "leader_epoch",
)
HORIZON_BYTE: Final = 22
HORIZON_BIT: Final = 0x40
"""Low byte of a batch's attributes, and the bit in it which says that the base timestamp is a delete horizon."""


class BronzeBatches:
    """Intact batches of bronze, and of files of this run that are closed, as far as they were asked for."""

    def __init__(self, files: Sequence[TableFile]) -> None:
        self._files = [file for file in files if file.row_count and not is_damaged(file)]
        self._damaged = [file for file in files if file.row_count and is_damaged(file)]
        self._firsts = np.array([offsets_of(file)[0] for file in self._files], np.int64)
        self._lasts = np.array([offsets_of(file)[1] for file in self._files], np.int64)
        self._is_loaded = np.zeros(len(self._files), np.bool_)
        self._own_count = 0
        """Files of this run among them."""
        self._open: tuple[int, pa.Table] | None = None
        self.rows = BatchRows.empty()
        self._taken_out: dict[int, set[int]] = {}

    @property
    def has_taken_out(self) -> bool:
        """Has anything to be written anew?"""
        return bool(self._taken_out)

    @property
    def ranges(self) -> list[OffsetRange]:
        """Offsets of all batches."""
        self.load()
        return union(zip(self.rows.base_offset.tolist(), self.rows.last_offset.tolist(), strict=True))

    def load(self, first: int = 0, last: int = np.iinfo(np.int64).max) -> None:
        """Have the batches of all files that meet some offsets."""
        wanted = np.flatnonzero(~self._is_loaded & (self._firsts <= last) & (self._lasts >= first))
        parts = [_headers(self._files[index], index) for index in wanted.tolist()]
        self._is_loaded[wanted] = True
        for part in parts:
            self.rows = self.rows.with_others(part)

    def add(self, files: Iterable[TableFile]) -> None:
        """Files which this run has written and closed."""
        for file in files:
            index = len(self._files)
            self._files.append(file)
            headers = _headers(file, index)
            self._firsts = np.append(self._firsts, headers.base_offset.min())
            self._lasts = np.append(self._lasts, headers.last_offset.max())
            self._is_loaded = np.append(self._is_loaded, True)
            self._own_count += 1
            self.rows = self.rows.with_others(headers)

    def take_out(self, is_out: NDArray[np.bool_]) -> None:
        """Batches which others replace, one bool a row."""
        gone = self.rows.take(is_out)
        for place, base_offset in zip(gone.place.tolist(), gone.base_offset.tolist(), strict=True):
            self._taken_out.setdefault(place, set()).add(base_offset)
        self.rows = self.rows.take(~is_out)

    def cut_away(self, lineage: Lineage) -> list[tuple[BatchRows, str, bytes]]:
        """Take out what is of a tail that the log does not have any more. The first batch of each tail, where that was
        read, and its bytes."""
        is_cut = lineage.is_cut(self.rows)
        if not is_cut.any():
            return []
        epochs = self.rows.leader_epoch
        firsts = [
            row
            for row in np.flatnonzero(is_cut).tolist()
            if not (row and is_cut[row - 1] and epochs[row - 1] == epochs[row])
        ]
        found = [(self.rows.take(np.array([row])), self.source(row), self.content(row)) for row in firsts]
        self.take_out(is_cut)
        return found

    def content(self, row: int) -> bytes:
        """The bytes of a batch."""
        data: bytes = self._value(row, "batch")
        return data

    def source(self, row: int) -> str:
        """Where a batch was read."""
        return str(self._value(row, "source"))

    def _value(self, row: int, column: str) -> Any:
        place, base_offset = int(self.rows.place[row]), int(self.rows.base_offset[row])
        if self._open is None or self._open[0] != place:
            file = self._files[place]
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                columns = ["base_offset", "last_offset", "batch", "source"]
                self._open = place, pq.ParquetFile(source).read(columns=columns, use_threads=False)
        rows = self._open[1]
        index = pc.index(rows["base_offset"], base_offset).as_py()
        return rows[column][index].as_py()

    # --- what is written anew

    def finish(
        self, target: PartTarget, bad_offsets: Iterable[int]
    ) -> tuple[list[TableFile], list[WrittenFile], list[TableFile], list[TableFile]]:
        """Write files anew without what was taken out of them, and leave damaged batches out which are there intact.

        Files of bronze to be taken out; files written; files of this run that are not to be committed; all intact files
        that are there then.
        """
        removed: list[TableFile] = []
        written: list[WrittenFile] = []
        discarded: list[TableFile] = []
        bronze_count = len(self._files) - self._own_count
        now: list[TableFile] = []
        for index, file in enumerate(self._files):
            if index not in self._taken_out:
                now.append(file)
                continue
            (removed if index < bronze_count else discarded).append(file)
            parts = self._without(file, self._taken_out[index], target)
            written += parts
            now += [written_as_table_file(part, target, file) for part in parts]
        bad = set(bad_offsets)
        removed += [file for file in self._damaged if file.minimum["base_offset"] in bad]
        return removed, written, discarded, now

    def _without(self, file: TableFile, gone: set[int], target: PartTarget) -> list[WrittenFile]:
        """The rest of a file, a part for each run of batches between those that were taken out. Of a batch packed from
        rows, records at offsets that nothing else has are packed again."""
        parts: list[WrittenFile] = []
        writer: PartWriter | None = None
        out = pa.array(sorted(gone), pa.int64())
        for rows in row_groups_in_order([file], RECORD_BATCHES):
            is_out = pc.is_in(rows["base_offset"], value_set=out).to_numpy(zero_copy_only=False)
            breaks = np.flatnonzero(is_out[1:] != is_out[:-1]) + 1
            for first, after in zip([0, *breaks.tolist()], [*breaks.tolist(), rows.num_rows], strict=True):
                run = rows.slice(first, after - first)
                if is_out[first]:
                    if writer is not None:
                        parts.append(writer.close())
                        writer = None
                    for left in self._left_of(run):
                        with PartWriter(target, BATCHES, file.partition_values) as alone:
                            alone.write(left)
                            parts.append(alone.close())
                    continue
                if writer is None:
                    writer = PartWriter(target, BATCHES, file.partition_values)
                writer.write(run)
        if writer is not None:
            parts.append(writer.close())
        return parts

    def _left_of(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Of batches packed from rows that are taken out: records which no batch that is there covers."""
        for index in np.flatnonzero(rows["is_transactional"].is_null().to_numpy()).tolist():
            row = rows.slice(index, 1)
            try:
                records = list(iter_records(row["batch"][0].as_py()))
            except DecodeError:
                continue
            left = [record for record in records if not self._is_covered(record.offset)]
            for run in _runs_of(left, self._is_covered):
                data = build_batch(run, leader_epoch=UNKNOWN_EPOCH)
                times = [record.timestamp_ms for record in run]
                values = {
                    "base_offset": run[0].offset,
                    "last_offset": run[-1].offset,
                    "record_count": len(run),
                    "base_timestamp": _ms(times[0]),
                    "max_timestamp": _ms(max(times)),
                    "batch": data,
                }
                made = row
                for name, value in values.items():
                    type_ = made.schema.field(name).type
                    number = made.schema.get_field_index(name)
                    scalar = (
                        pa.array([value], pa.int64()).cast(type_) if "timestamp" in name else pa.array([value], type_)
                    )
                    made = made.set_column(number, name, scalar)
                yield made

    def _is_covered(self, offset: int) -> bool:
        at = int(np.searchsorted(self.rows.last_offset, offset, side="left"))
        return at < len(self.rows) and bool(self.rows.base_offset[at] <= offset)


def _ms(timestamp_ms: int) -> int | None:
    """In the unit of the columns; None where there is no time."""
    return timestamp_ms * 1_000 if 0 <= timestamp_ms <= TIMESTAMP_MS_MAX else None


def _runs_of(records: Sequence[Record], is_covered: Any) -> Iterator[list[Record]]:
    """Records between which nothing is covered, together."""
    run: list[Record] = []
    for record in records:
        if run and any(is_covered(offset) for offset in range(run[-1].offset + 1, record.offset)):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def written_as_table_file(file: WrittenFile, target: PartTarget, like: TableFile) -> TableFile:
    """A part file that is not committed yet, to be read like those of the table."""
    return TableFile(f"{target.folder}/{file.path}", file.size_bytes, file.row_count, like.partition_values)


def _headers(file: TableFile, place: int) -> BatchRows:
    filesystem, path = filesystem_of(file.path)
    with filesystem.open_input_file(path) as source:
        rows = pq.ParquetFile(source).read(columns=list(HEADERS), use_threads=False)
    rows = rows.filter(rows["crc_valid"])
    is_rows = rows["is_transactional"].is_null()
    is_dump = pc.equal(rows["source_kind"].cast(pa.string()), DUMP)
    is_erased = pc.is_valid(rows["redacted_at"])
    origin = np.full(rows.num_rows, int(Origin.LOG), np.int64)
    for is_so, kind in ((is_dump, Origin.PRINTED), (is_rows, Origin.ROWS), (is_erased, Origin.ERASED)):
        origin[is_so.to_numpy(zero_copy_only=False)] = int(kind)
    headers = BatchRows(
        rows["base_offset"].to_numpy(),
        rows["last_offset"].to_numpy(),
        pc.fill_null(rows["leader_epoch"], UNKNOWN_EPOCH).to_numpy().astype(np.int64),
        rows["record_count"].to_numpy().astype(np.int64),
        origin,
        np.full(rows.num_rows, place, np.int64),
    )
    return headers.take(np.argsort(headers.base_offset, kind="stable"))


def covered_by(files: Sequence[TableFile], observed_at_ms: int) -> tuple[CoverageRange, ...]:
    """What of a log partition is in the intact batches of some files, and which offsets within them have no record."""
    ranges: list[CoverageRange] = []
    for file in files:
        filesystem, path = filesystem_of(file.path)
        with filesystem.open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns=list(COVERED), use_threads=False)
                ranges += _covered(rows.filter(rows["crc_valid"]), observed_at_ms)
                ranges = list(merge_coverage(ranges, ()))
    return merge_coverage(ranges, ())


def _covered(rows: pa.Table, observed_at_ms: int) -> Iterator[CoverageRange]:
    def epoch_ms(name: str) -> list[int | None]:
        times: list[int | None] = rows[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
        return times

    columns = [rows[name].to_pylist() for name in ("base_offset", "last_offset", "record_count", "magic")]
    epochs = rows["leader_epoch"].to_pylist()
    kinds, batches = rows["source_kind"].cast(pa.string()).to_pylist(), rows["batch"]
    together: list[Any] | None = None
    for row, values in enumerate(zip(*columns, epoch_ms("base_timestamp"), epoch_ms("max_timestamp"), strict=True)):
        first, last, count, magic, earliest, latest = values
        batch = batches[row].as_buffer()
        if magic == 2 and batch[HORIZON_BYTE] & HORIZON_BIT:
            earliest = latest
        is_full = count == last - first + 1
        if together is not None and is_full and together[1] + 1 == first:
            together[1] = last
            together[2] = min((time for time in (together[2], earliest) if time is not None), default=None)
            together[3] = max((time for time in (together[3], latest) if time is not None), default=None)
            continue
        if together is not None:
            yield _captured(together[0], together[1], together[2], together[3], observed_at_ms)
        together = [first, last, earliest, latest] if is_full else None
        if not is_full:
            try:
                holes = missing_offsets(batch.to_pybytes())
            except DecodeError:
                holes = ()
            position = first
            for hole_first, hole_last in (*holes, (last + 1, last + 1)):
                if position < hole_first:
                    yield _captured(position, hole_first - 1, earliest, latest, observed_at_ms)
                position = hole_last + 1
            for hole in holes:
                reason = NOT_IN_DUMP if kinds[row] == DUMP else IN_BATCH
                epoch = epochs[row] if epochs[row] is not None and epochs[row] >= 0 else None
                yield CoverageRange(*hole, CoverageKind.COMPACTED, observed_at_ms, reason, leader_epoch=epoch)
    if together is not None:
        yield _captured(together[0], together[1], together[2], together[3], observed_at_ms)


def _captured(first: int, last: int, earliest: int | None, latest: int | None, at_ms: int) -> CoverageRange:
    return CoverageRange(
        first, last, CoverageKind.CAPTURED, at_ms, first_timestamp_ms=earliest, last_timestamp_ms=latest
    )
