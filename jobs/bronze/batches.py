"""The batches of one log partition that bronze already has: look-up, comparison, and removal where other copies count.

A capture loads them only where a source has offsets that bronze has too. It opens only the files of bronze whose
offsets overlap, and reads only the header columns. It reads the bytes of batches only where both copies were compacted
and kept the same number of records. A file from which batches are removed is split at the removed batches: no file may
span offsets that another source could still have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from coordinator_core.bytes.coverage import (
    IN_BATCH,
    CoverageKind,
    CoverageRange,
    intersect,
    merge_coverage,
    subtract,
    union,
)
from coordinator_core.bytes.log.batch import Record, build_batch, parse_header
from coordinator_core.bytes.log.chunk import BatchColumns
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, Origin, has_no_epoch
from coordinator_core.bytes.log.fill import KeyValues, compare, with_records, without_records
from coordinator_core.bytes.log.records import checksums_at, decode_chunk, iter_records, missing_offsets
from coordinator_core.bytes.log_partitions import OffsetRange
from coordinator_core.errors import DecodeError, EncodeError
from coordinator_core.limits import PARTED_BYTES_MAX
from jobs.bronze.coverage import NOT_IN_DUMP
from jobs.bronze.writer import BATCHES, is_damaged, offsets_of
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile
from jobs.delta.row_groups import row_groups_in_order
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile
from jobs.sources.segments import DUMP, HEADER_COLUMNS
from schemas.tables.bronze import RECORD_BATCHES

HEADERS: Final = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "record_count",
    "magic",
    "source_kind",
    "producer_epoch",
    "redacted_at",
    "crc_valid",
    "filled_offsets",
)
PACKED: Final = ("base_offset", "producer_epoch", "batch")
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
COMPARED: Final = (
    "base_offset",
    "magic",
    "batch",
    "source",
    "source_kind",
    "producer_epoch",
    "is_control",
    "filled_offsets",
)
DIFFERENCES_MAX: Final = 1_000
"""At most this many offsets of a log partition at which copies have different records become rows of quarantine."""
HORIZON_BYTE: Final = 22
HORIZON_BIT: Final = 0x40
"""Low byte of a batch's attributes, and the bit in it that marks the base timestamp as a delete horizon."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two copies have different records at one offset, and one copy is a dump of rows."""

    base_offset: int
    """Base offset of the batch in bronze."""
    record: Record
    """The record that does not count."""
    source: str
    """Source of the batch in bronze."""
    is_log: bool
    """True: the batch in bronze was captured from the log. False: it comes from a dump, too."""


class BronzeBatches:
    """Intact batches of bronze and of the closed files of this run, loaded as they are needed."""

    def __init__(self, files: Sequence[TableFile]) -> None:
        self._files = [file for file in files if file.row_count and not is_damaged(file)]
        self._damaged = [file for file in files if file.row_count and is_damaged(file)]
        self._firsts = np.array([offsets_of(file)[0] for file in self._files], np.int64)
        self._lasts = np.array([offsets_of(file)[1] for file in self._files], np.int64)
        self._is_loaded = np.zeros(len(self._files), np.bool_)
        self._own_count = 0
        """How many of the files were written by this run."""
        self._open: tuple[int, pa.Table] | None = None
        self.rows = BatchRows.empty()
        self._taken_out: dict[int, set[int]] = {}
        self._fills: dict[tuple[int, int], dict[int, Record]] = {}
        """Records to add to batches: (file index, base offset of the batch) -> offset -> record."""
        self._differences: dict[int, Difference] = {}

    @property
    def has_changes(self) -> bool:
        """Must a file be rewritten?"""
        return bool(self._taken_out) or bool(self._fills)

    def ranges(self, from_offset: int) -> list[OffsetRange]:
        """The offsets of batches, at least of those that end at an offset or behind it."""
        self.load(from_offset)
        return union(zip(self.rows.base_offset.tolist(), self.rows.last_offset.tolist(), strict=True))

    def load(self, first: int = 0, last: int = np.iinfo(np.int64).max) -> None:
        """Load the batches of all files whose offsets overlap with a range (both ends inclusive)."""
        wanted = np.flatnonzero(~self._is_loaded & (self._firsts <= last) & (self._lasts >= first))
        parts = [_headers(self._files[index], index) for index in wanted.tolist()]
        self._is_loaded[wanted] = True
        for part in parts:
            self.rows = self.rows.with_others(part)

    def has_copies(self, batches: BatchColumns, is_asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """For each damaged batch: is its base offset in an intact batch that can be a copy of it? False where
        `is_asked` is false. Rows of a dump have no header, and a batch of an older leader epoch is another batch."""
        is_there = np.zeros(len(batches), np.bool_)
        for index in np.flatnonzero(is_asked).tolist():
            offset = int(batches.base_offset[index])
            self.load(offset, offset)
            rows, row = self.rows, int(np.searchsorted(self.rows.base_offset, offset, side="right")) - 1
            if row >= 0 and rows.last_offset[row] >= offset and rows.origin[row] != Origin.ROWS:
                is_there[index] = rows.leader_epoch[row] >= batches.leader_epoch[index]
        return is_there

    def add(self, files: Iterable[TableFile]) -> None:
        """Add files that this run has written and closed."""
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
        """Remove batches that others replace: one bool a row."""
        gone = self.rows.take(is_out)
        for place, base_offset in zip(gone.place.tolist(), gone.base_offset.tolist(), strict=True):
            self._taken_out.setdefault(place, set()).add(base_offset)
        self.rows = self.rows.take(~is_out)

    def cut_away(self, lineage: Lineage) -> list[tuple[BatchRows, str, list[bytes]]]:
        """Remove the batches of tails that the log no longer has.

        Returns for each tail: its first batch; the source of that batch; the bytes of the first batch, or of all
        batches where they carry no leader epoch (see `whole_tail`).
        """
        is_cut = lineage.is_cut(self.rows)
        if not is_cut.any():
            return []
        epochs = self.rows.leader_epoch
        firsts = [
            row
            for row in np.flatnonzero(is_cut).tolist()
            if not (row and is_cut[row - 1] and epochs[row - 1] == epochs[row])
        ]
        found = [
            (self.rows.take(np.array([row])), self.source(row), whole_tail(row, is_cut, epochs, self.content))
            for row in firsts
        ]
        self.take_out(is_cut)
        return found

    def content(self, row: int) -> bytes:
        data: bytes = self._value(row, "batch")
        return data

    def without_fills(self, row: int) -> tuple[bytes, bool]:
        """The bytes of a batch as the copy of the log had them, and whether records had been added to it. If so, the
        bytes are not compressed."""
        filled = self._value(row, "filled_offsets")
        return (without_records(self.content(row), filled), True) if filled else (self.content(row), False)

    def checksums(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The CRCs stored in the headers of some batches. `rows` ascend."""
        found = np.zeros(len(rows), np.int64)
        for place in np.unique(self.rows.place[rows]).tolist():
            here = np.flatnonzero(self.rows.place[rows] == place)
            bases = self.rows.base_offset[rows[here]]
            for batches in self._compared(place, bases):
                column = batches["batch"].combine_chunks()
                starts = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column)]
                data = np.frombuffer(column.buffers()[2], np.uint8)
                at = np.searchsorted(bases, batches["base_offset"].to_numpy())
                found[here[at]] = checksums_at(data, starts.astype(np.int64), batches["magic"].to_numpy())
        return found

    def source(self, row: int) -> str:
        return str(self._value(row, "source"))

    def _value(self, row: int, column: str) -> Any:
        place, base_offset = int(self.rows.place[row]), int(self.rows.base_offset[row])
        if self._open is None or self._open[0] != place:
            file = self._files[place]
            with Scanner(file.path) as scanner:
                self._open = place, scanner.read(("base_offset", "last_offset", "batch", "source", "filled_offsets"))
        rows = self._open[1]
        if column not in rows.column_names:
            return None
        index = pc.index(rows["base_offset"], base_offset).as_py()
        return rows[column][index].as_py()

    # --- rows of dumps at offsets that batches span

    def meet(self, come: KeyValues, record_at: Callable[[int], Record]) -> None:
        """Add the rows of a dump, ascending, to the batches that span their offsets and lack them; `finish` writes
        them.

        Of two dumps that differ, the later record counts; a batch of the log counts before any dump. A batch from which
        an id was erased is not changed.
        """
        rows = self.rows
        at = np.searchsorted(rows.last_offset, come.offset, side="left")
        is_met = at < len(rows)
        is_met[is_met] = rows.base_offset[at[is_met]] <= come.offset[is_met]
        is_met[is_met] = rows.origin[at[is_met]] != Origin.ERASED
        for place in np.unique(rows.place[at[is_met]]).tolist():
            here = np.flatnonzero(is_met)
            here = here[rows.place[at[here]] == place]
            for batches in self._compared(place, np.unique(rows.base_offset[at[here]])):
                bases = batches["base_offset"].to_numpy()
                found = here[np.isin(rows.base_offset[at[here]], bases)]
                self._meet_batches(place, batches, come.take(found), rows.base_offset[at[found]], found, record_at)

    def _compared(self, place: int, base_offsets: NDArray[np.int64]) -> Iterator[pa.Table]:
        """Read some batches of a file, row group by row group."""
        file = self._files[place]
        wanted = pa.array(base_offsets)
        for rows in row_groups_in_order([file], RECORD_BATCHES, COMPARED):
            batches = rows.filter(pc.is_in(rows["base_offset"], value_set=wanted))
            if batches.num_rows:
                yield batches

    def _meet_batches(
        self,
        place: int,
        batches: pa.Table,
        come: KeyValues,
        bases: NDArray[np.int64],
        numbers: NDArray[np.int64],
        record_at: Callable[[int], Record],
    ) -> None:
        """Compare rows of a dump with the batches of one file.

        `bases`: base offset of the batch that spans each row; `numbers`: the index of each row, for `record_at`.
        """
        chunk = decode_chunk(b"".join(batches["batch"].to_pylist()), crc="skip")
        is_missing, differs = compare(KeyValues.of(chunk), come)
        if not is_missing.any() and not differs.any():
            return
        rows = {row["base_offset"]: row for row in batches.drop_columns("batch").to_pylist()}
        known_of: dict[int, dict[int, Record]] = {}
        for index in np.flatnonzero(is_missing | differs).tolist():
            base_offset, record = int(bases[index]), record_at(int(numbers[index]))
            row = rows[base_offset]
            is_dump = row["producer_epoch"] is None or record.offset in (row["filled_offsets"] or ())
            if not is_missing[index]:
                if base_offset not in known_of:
                    known_of[base_offset] = self._records(base_offset)
                known = known_of[base_offset][record.offset]
                if not is_dump or _order(record) <= _order(known):
                    self._differ(Difference(base_offset, record, row["source"], not is_dump))
                    continue
                self._differ(Difference(base_offset, known, row["source"], is_log=False))
            if not row["is_control"]:
                fills = self._fills.setdefault((place, base_offset), {})
                fills[record.offset] = max(record, fills.get(record.offset, record), key=_order)

    def _records(self, base_offset: int) -> dict[int, Record]:
        """The records of a batch of bronze, by offset; the first one where several have the same offset."""
        row = int(np.searchsorted(self.rows.base_offset, base_offset))
        records: dict[int, Record] = {}
        for record in iter_records(self.content(row)):
            records.setdefault(record.offset, record)
        return records

    def _differ(self, difference: Difference) -> None:
        if len(self._differences) < DIFFERENCES_MAX:
            self._differences.setdefault(difference.record.offset, difference)

    def differences(self) -> list[Difference]:
        """Offsets at which a dump has another record, since the last call: at most DIFFERENCES_MAX."""
        found = [difference for _, difference in sorted(self._differences.items())]
        self._differences.clear()
        return found

    def changed_from(self) -> int | None:
        """The least base offset of the batches that get records; None: no batch does."""
        return min((base_offset for _, base_offset in self._fills), default=None)

    def _release(self, dumped: Sequence[OffsetRange], left_out: Sequence[bytes]) -> dict[int, list[pa.Table]]:
        """Keep the records of dumps that removed batches contain. Where another batch spans the offset, the record
        is added to that batch. Otherwise it gets a batch of its own; these are returned by file index."""
        alone: dict[int, list[pa.Table]] = {}
        others: dict[int, Record] = {}
        for it in (record for batch in left_out for record in iter_records(batch)):
            others[it.offset] = max(it, others.get(it.offset, it), key=_order)
        if dumped:
            # a removed batch of the log may have another record there, which no dump had
            dumped = subtract(dumped, self._removed_rows())
        for place, gone in self._taken_out.items():
            out = pa.array(sorted(gone), pa.int64())
            for rows in row_groups_in_order([self._files[place]], RECORD_BATCHES):
                met: list[Record] = []
                batches = rows.filter(pc.is_in(rows["base_offset"], value_set=out))
                is_rows = batches["producer_epoch"].is_null().to_pylist()
                spans = zip(batches["base_offset"].to_pylist(), batches["last_offset"].to_pylist(), strict=True)
                is_control = batches["is_control"].to_pylist()
                for index, span in enumerate(spans):
                    known = [span] if is_rows[index] else () if is_control[index] else intersect([span], dumped)
                    here = [it for offset, it in others.items() if span[0] <= offset <= span[1]]
                    if not known and not here:
                        continue
                    row = batches.slice(index, 1)
                    try:
                        records = list(iter_records(row["batch"][0].as_py()))
                    except DecodeError:
                        continue
                    records = [it for it in records if any(first <= it.offset <= last for first, last in known)]
                    if here:
                        records = _later([*records, *here])
                    met += [it for it in records if self._is_covered(it.offset)]
                    left = [it for it in records if not self._is_covered(it.offset)]
                    alone.setdefault(place, []).extend(self._alone(left, row))
                met = _later(met)
                if met:
                    self.meet(KeyValues.of_records(met), met.__getitem__)
        return alone

    def _removed_rows(self) -> list[OffsetRange]:
        """The offsets of all records in the removed batches that were packed from rows of dumps."""
        offsets: set[int] = set()
        for place, gone in self._taken_out.items():
            for rows in row_groups_in_order([self._files[place]], RECORD_BATCHES, PACKED):
                is_out = pc.is_in(rows["base_offset"], value_set=pa.array(sorted(gone), pa.int64()))
                batches = rows.filter(pc.and_(is_out, rows["producer_epoch"].is_null()))
                for batch in batches["batch"].to_pylist():
                    offsets.update(record.offset for record in iter_records(batch))
        return union((offset, offset) for offset in offsets)

    # --- writing files again

    def finish(
        self,
        target: PartTarget,
        bad_offsets: Iterable[int],
        dumped: Sequence[OffsetRange] = (),
        left_out: Sequence[bytes] = (),
    ) -> tuple[list[TableFile], list[WrittenFile], list[TableFile], list[TableFile]]:
        """Rewrite the files that lose batches or get records of dumps, and remove the files of damaged batches that are
        intact in another copy (`bad_offsets`: their base offsets).

        `dumped`: offsets at which dumps had records; `left_out`: batches of dump records that did not count until now.

        Returns: files to be removed from bronze; files written; files of this run that must not be committed; all
        intact files after the rewrite.
        """
        alone = self._release(dumped, left_out)
        fills: dict[int, dict[int, dict[int, Record]]] = {}
        for (place, base_offset), records in self._fills.items():
            fills.setdefault(place, {})[base_offset] = records
        removed: list[TableFile] = []
        written: list[WrittenFile] = []
        discarded: list[TableFile] = []
        bronze_count = len(self._files) - self._own_count
        now: list[TableFile] = []
        for index, file in enumerate(self._files):
            if index not in self._taken_out and index not in fills:
                now.append(file)
                continue
            (removed if index < bronze_count else discarded).append(file)
            parts = _rewritten(file, self._taken_out.get(index, set()), fills.get(index, {}), target)
            for left in alone.get(index, ()):
                with PartWriter(target, BATCHES, file.partition_values) as writer:
                    writer.write(left)
                    parts.append(writer.close())
            written += parts
            now += [written_as_table_file(part, target, file) for part in parts]
        bad = set(bad_offsets)
        removed += [file for file in self._damaged if file.minimum["base_offset"] in bad]
        return removed, written, discarded, now

    def _alone(self, records: Sequence[Record], row: pa.Table) -> Iterator[pa.Table]:
        """Turn records of a removed batch into rows of batches without known headers."""
        for run in _runs_of(records, self._is_covered):
            times = [record.timestamp_ms for record in run]
            values = dict.fromkeys(HEADER_COLUMNS) | {
                "base_offset": run[0].offset,
                "last_offset": run[-1].offset,
                "record_count": len(run),
                "magic": 2,
                "codec": "NONE",
                "base_timestamp": _ms(times[0]),
                "max_timestamp": _ms(max(times)),
                "batch": build_batch(run, leader_epoch=UNKNOWN_EPOCH),
                "source_kind": DUMP,
                "filled_offsets": None,
            }
            yield _changed(row, values)

    def _is_covered(self, offset: int) -> bool:
        at = int(np.searchsorted(self.rows.last_offset, offset, side="left"))
        return at < len(self.rows) and bool(self.rows.base_offset[at] <= offset)


def whole_tail(
    first: int, is_cut: NDArray[np.bool_], epochs: NDArray[np.int64], content: Callable[[int], bytes]
) -> list[bytes]:
    """The bytes of the batches of a tail, from its row `first` on.

    Only the first batch where it carries a leader epoch: then no other copy can have the same batch without one.
    """
    found = [content(first)]
    left = PARTED_BYTES_MAX - len(found[0])
    row = first + 1
    while has_no_epoch(found[0]) and row < len(epochs) and is_cut[row] and epochs[row] == epochs[first]:
        data = content(row)
        left -= len(data)
        if left < 0:
            break
        found.append(data)
        row += 1
    return found


def _rewritten(
    file: TableFile, gone: set[int], fills: Mapping[int, Mapping[int, Record]], target: PartTarget
) -> list[WrittenFile]:
    """Write a file again without the batches in `gone` and with the records in `fills`, both by base offset. Each
    run of batches between removed ones gets a part file."""
    parts: list[WrittenFile] = []
    writer: PartWriter | None = None
    out = pa.array(sorted(gone), pa.int64())
    for rows in row_groups_in_order([file], RECORD_BATCHES):
        is_out = pc.is_in(rows["base_offset"], value_set=out).to_numpy(zero_copy_only=False)
        breaks = np.flatnonzero(is_out[1:] != is_out[:-1]) + 1
        for first, after in zip([0, *breaks.tolist()], [*breaks.tolist(), rows.num_rows], strict=True):
            if is_out[first]:
                if writer is not None:
                    parts.append(writer.close())
                    writer = None
                continue
            if writer is None:
                writer = PartWriter(target, BATCHES, file.partition_values)
            writer.write(_filled(rows.slice(first, after - first), fills))
    if writer is not None:
        parts.append(writer.close())
    return parts


def _filled(rows: pa.Table, fills: Mapping[int, Mapping[int, Record]]) -> pa.Table:
    """Add records to some batches."""
    if not fills:
        return rows
    base_offset = rows["base_offset"]
    chosen = np.flatnonzero(pc.is_in(base_offset, value_set=pa.array(sorted(fills), pa.int64())).to_numpy())
    pieces, position = [], 0
    for index in chosen.tolist():
        row = rows.slice(index, 1)
        records = fills[base_offset[index].as_py()]
        try:
            batch = with_records(row["batch"][0].as_py(), [records[offset] for offset in sorted(records)])
        except (DecodeError, EncodeError):
            continue  # the batch cannot be decoded and stays as it is: replay quarantines it
        header = parse_header(batch)
        before = row["filled_offsets"][0].as_py() or []
        is_rows = row["producer_epoch"][0].as_py() is None
        values = {
            "record_count": header.record_count,
            "magic": header.magic,
            "codec": "NONE",
            "max_timestamp": _ms(header.max_timestamp_ms),
            "batch": batch,
            "filled_offsets": None if is_rows else sorted({*before, *records}),
        }
        if row["magic"][0].as_py() < header.magic:
            values["base_timestamp"] = _ms(header.base_timestamp_ms)
        pieces += [rows.slice(position, index - position), _changed(row, values)]
        position = index + 1
    return pa.concat_tables([*pieces, rows.slice(position)]).combine_chunks()


def _changed(row: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """One row with other values; timestamps are in the unit of the columns."""
    for name, value in values.items():
        field = row.schema.field(name)
        is_time = value is not None and pa.types.is_timestamp(field.type)
        column = pa.array([value], pa.int64()).cast(field.type) if is_time else pa.array([value], field.type)
        row = row.set_column(row.schema.get_field_index(name), field, column)
    return row


def _later(records: Iterable[Record]) -> list[Record]:
    """The records by offset; of several at one offset, the later."""
    found: dict[int, Record] = {}
    for it in records:
        found[it.offset] = max(it, found.get(it.offset, it), key=_order)
    return [found[offset] for offset in sorted(found)]


def _order(record: Record) -> tuple[int, bool, bytes, bool, bytes]:
    """Sort key: of two records that dumps have at one offset, the greater one counts. A record in a leader's lost
    tail is older than the one that the next leader wrote at that offset."""
    key, value = record.key, record.value
    return record.timestamp_ms, key is not None, key or b"", value is not None, value or b""


def _ms(timestamp_ms: int) -> int | None:
    """A timestamp in the unit of the columns; None where it is not a valid time."""
    return timestamp_ms * 1_000 if 0 <= timestamp_ms <= TIMESTAMP_MS_MAX else None


def _runs_of(records: Sequence[Record], is_covered: Any) -> Iterator[list[Record]]:
    """Group records so that no covered offset lies between two records of one group."""
    run: list[Record] = []
    for record in records:
        if run and any(is_covered(offset) for offset in range(run[-1].offset + 1, record.offset)):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def written_as_table_file(file: WrittenFile, target: PartTarget, like: TableFile) -> TableFile:
    """A part file that is not committed yet, as a TableFile that can be read."""
    return TableFile(f"{target.folder}/{file.path}", file.size_bytes, file.row_count, like.partition_values)


def _headers(file: TableFile, place: int) -> BatchRows:
    with Scanner(file.path) as scanner:
        rows = scanner.read(HEADERS)
    rows = rows.filter(rows["crc_valid"])
    count = rows["record_count"].to_numpy().astype(np.int64)
    if "filled_offsets" in rows.column_names:
        # records from dumps do not count: copies of the log are compared by what compaction left in them
        count = count - pc.fill_null(pc.list_value_length(rows["filled_offsets"]), 0).to_numpy()
    is_rows = rows["producer_epoch"].is_null()
    is_dump = pc.equal(rows["source_kind"].cast(pa.string()), DUMP)
    is_erased = pc.is_valid(rows["redacted_at"])
    origin = np.full(rows.num_rows, int(Origin.LOG), np.int64)
    for is_so, kind in ((is_dump, Origin.PRINTED), (is_rows, Origin.ROWS), (is_erased, Origin.ERASED)):
        origin[is_so.to_numpy(zero_copy_only=False)] = int(kind)
    headers = BatchRows(
        rows["base_offset"].to_numpy(),
        rows["last_offset"].to_numpy(),
        pc.fill_null(rows["leader_epoch"], UNKNOWN_EPOCH).to_numpy().astype(np.int64),
        count,
        origin,
        rows["magic"].to_numpy() >= 2,
        np.full(rows.num_rows, place, np.int64),
    )
    return headers.take(np.argsort(headers.base_offset, kind="stable"))


def covered_by(files: Sequence[TableFile], observed_at_ms: int) -> tuple[CoverageRange, ...]:
    """Coverage of the intact batches in some files of a log partition: captured offsets, and offsets without a
    record."""
    ranges: list[CoverageRange] = []
    for file in files:
        with Scanner(file.path) as scanner:
            for rows in scanner.row_groups(COVERED):
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
