"""Dumps as a source: rows of raw keys and values, and what Kafka's tools print, made into batches of log partitions.

    unpacked = unpack_dumps(settings, staging=folder, run_all=partial(run_tasks, session))
    for log in unpacked.logs:
        for read in read_dump_log(log):  # as read_segment gives of a segment file
            ...

First tasks read the dump's files and write their rows, sorted, to a staging folder (`dump_staging.py`); then whoever
captures a log partition merges its rows there and packs them (`coordinator_core.log.pack`). Both hold a bounded amount
of rows, whatever the size of the dump.

What each kind of dump tells, and what is null or assumed because it does not:

- Rows (Parquet, Delta, JSON lines): key, value, offset, time. Not told: markers, and whether a record was written in a
  transaction, by which producer. The header columns of bronze.record_batches are null, as are `producer_id` and
  `is_transactional` of the commits; each commit counts as applied where it stands.
- kafka-dump-log: all of it, markers included. Batches that were not compressed come back to the byte; types of the
  metadata log which are not read here are left out.
- Lines of the console consumer's formatters: key and value alone. The partition is the one that Kafka's own rule gives
  for `partition_count` partitions, the offset the number of the record among those of its partition, the time none.
  Such offsets fit no other source: one dump, under a cluster id of its own.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.coverage import union
from coordinator_core.errors import EncodeError
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.log import fast
from coordinator_core.log.batch import Record
from coordinator_core.log.chunk import U8, BatchColumns, BoolArray, Finding
from coordinator_core.log.fill import KeyValues, decode_headers
from coordinator_core.log.pack import NO_HEADERS, PackableRecords, pack_records
from coordinator_core.log.scan import SegmentScan
from coordinator_core.log.segment import parse_partition_folder
from coordinator_core.lookup import key_partition
from coordinator_core.printed import PrintedRecord, formatter_record, is_formatter_object, parse_json
from coordinator_core.printed_log import PrintedBatch, PrintedGap, read_printed_log
from jobs.cli_enums import DumpFormat
from jobs.delta.filesystems import filesystem_of
from jobs.errors import SourceError
from jobs.settings import Settings
from jobs.sources.dumps.files import DumpFile, Line, find_dump_files, read_lines
from jobs.sources.dumps.rows import (
    ROWS_SCHEMA,
    BadRow,
    RowRules,
    RowsRead,
    bad_line,
    read_json_lines,
    read_parquet,
    row_group_sizes,
)
from jobs.sources.dumps.staging import PieceWriter, Run, merged
from jobs.sources.segments import DUMP, UNREADABLE_FILE, Segment, SegmentRead

RunAll = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]

DUPLICATE_OFFSET: Final = "DUPLICATE_OFFSET"
"""Code of a record which stands at the same offset as one before it in the dump, and differs."""
UNKNOWN_FORMAT: Final = "UNKNOWN_FORMAT"

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Rows packed at a time."""
BAD_ROWS_MAX: Final = 10_000
"""Bad rows of one file which are kept one by one; a last row counts the rest."""
BAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes kept of all of them."""
WORK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Files, or row groups of a Parquet file, which one task reads together."""

ROWS: Final = "rows"
BATCHES: Final = "batches"
FORMATTED: Final = "formatted"

BATCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("batch", pa.binary()),
    ]
)
"""Batches rebuilt from the output of kafka-dump-log."""


@dataclass(frozen=True, slots=True)
class DumpLog:
    """One log partition of one dump, unpacked. `read_dump_log` gives its batches."""

    topic: str
    partition: int
    uri: str
    """Of the whole dump: the source of the batches."""
    kind: str
    """ROWS, BATCHES or FORMATTED."""
    runs: tuple[Run, ...]
    untold: tuple[tuple[int, int], ...] = ()
    """Offsets whose records the dump has, and does not tell: ascending, disjoint, both ends inclusive."""
    log_start_offset: None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of its rows."""
        return sum(run.size_bytes for run in self.runs)

    @property
    def is_rows(self) -> bool:
        """Is it of rows of keys and values, without headers of batches?"""
        return self.kind == ROWS

    @property
    def has_offsets(self) -> bool:
        """Are its offsets the log's? False: numbers of lines, which fit no other source."""
        return self.kind != FORMATTED


@dataclass(frozen=True, slots=True)
class DumpFault:
    """Something of a dump that is in no log: a row of bronze.quarantine, stage FILE."""

    source: str
    row: BadRow


@dataclass(frozen=True, slots=True)
class Unpacked:
    """All dumps of a run."""

    logs: tuple[DumpLog, ...]
    """By dump, topic and partition."""
    faults: tuple[DumpFault, ...]
    sources: tuple[str, ...]
    """Files and dumps which were read: faults of an earlier run in them are replaced by these."""
    notes: tuple[str, ...]
    """What the dumps do not tell, in words."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What one task reads."""

    number: int
    uri: str
    files: tuple[DumpFile, ...]
    row_groups: tuple[int, ...] | None
    """Of the one Parquet file; None: all."""
    rules: RowRules
    staging: str


@dataclass(slots=True)
class _Done:
    """What one task read."""

    uri: str
    runs: list[tuple[str, str, int, Run]] = field(default_factory=list)
    """(kind, topic, partition, run)"""
    faults: list[DumpFault] = field(default_factory=list)
    other_topic_count: int = 0
    record_counts: dict[str, int] = field(default_factory=dict)
    """By kind."""
    untold: list[PrintedGap] = field(default_factory=list)
    inexact_count: int = 0
    """Batches of kafka-dump-log which are not the log's to the byte."""
    unread_count: int = 0
    """Records of the metadata log of types that are not read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Fields of a later Kafka, and how many records have them."""
    problem: str | None = None
    """What makes the whole dump unreadable: the run stops with it."""


def unpack_dumps(settings: Settings, *, staging: str, run_all: RunAll) -> Unpacked:
    """Read the files of all dumps into `staging`, a folder or URI of this run's own, to be deleted after the capture.

    `run_all` applies a function to each element of a list, somewhere: `partial(run_tasks, session)`.
    Raises SourceError for a dump that is not there, that no format fits, or that lacks a column.
    """
    uris, rules = settings.dumps, RowRules(settings.dump, settings.topics)
    works: list[_Work] = []
    faults: list[DumpFault] = []
    sources: list[str] = []
    for uri in uris:
        files, unknown = find_dump_files(uri, rules.dump.format)
        if not files:
            raise SourceError(f"no file of {uri} is Parquet, JSON lines or the output of kafka-dump-log")
        for path, message in unknown:
            faults.append(DumpFault(path, BadRow(message, None, None, None, None, b"", UNKNOWN_FORMAT)))
        sources += [uri, *(file.path for file in files), *(path for path, _ in unknown)]
        works += _works(uri, files, rules, staging, len(works))
    done: Sequence[_Done] = run_all(unpack, works)
    problem = next((task.problem for task in done if task.problem is not None), None)
    if problem is not None:
        raise SourceError(problem)
    return Unpacked(
        logs=tuple(_logs(uris, done)),
        faults=(*faults, *chain.from_iterable(task.faults for task in done)),
        sources=tuple(dict.fromkeys(sources)),
        notes=tuple(chain.from_iterable(_notes(uri, done, rules) for uri in dict.fromkeys(uris))),
    )


def _works(uri: str, files: Sequence[DumpFile], rules: RowRules, staging: str, number: int) -> Iterator[_Work]:
    """Work of about one size, in the order of the dump. Lines of formatters are numbered over all files: one task."""
    numbered = _is_formatted(files)
    if numbered:
        yield _Work(number, uri, tuple(files), None, rules, staging)
        return
    together: list[DumpFile] = []
    for file in files:
        if file.format is DumpFormat.PARQUET and file.size_bytes > WORK_BYTES_MAX:
            if together:
                yield _Work(number, uri, tuple(together), None, rules, staging)
                together, number = [], number + 1
            for row_groups in _row_groups(file):
                yield _Work(number, uri, (file,), row_groups, rules, staging)
                number += 1
            continue
        if together and sum(item.size_bytes for item in together) + file.size_bytes > WORK_BYTES_MAX:
            yield _Work(number, uri, tuple(together), None, rules, staging)
            together, number = [], number + 1
        together.append(file)
    if together:
        yield _Work(number, uri, tuple(together), None, rules, staging)


def _row_groups(file: DumpFile) -> Iterator[tuple[int, ...] | None]:
    filesystem, path = filesystem_of(file.path)
    try:
        with filesystem.open_input_file(path) as source:
            sizes = row_group_sizes(source)
    except (OSError, pa.ArrowInvalid):
        yield None  # its task says what is wrong
        return
    together: list[int] = []
    for index, size in enumerate(sizes):
        if together and sum(sizes[item] for item in together) + size > WORK_BYTES_MAX:
            yield tuple(together)
            together = []
        together.append(index)
    yield tuple(together)


def _is_formatted(files: Iterable[DumpFile]) -> bool:
    """Is one of the JSON files printed by a formatter?"""
    return any(file.format is DumpFormat.JSON and _starts_formatted(file) for file in files)


def _starts_formatted(file: DumpFile) -> bool:
    try:
        with _open_text(file) as stream:
            return any(_is_formatter_line(line) for line in _first(read_lines(stream), FORMAT_LINES))
    except OSError:
        return False


FORMAT_LINES: Final = 5
"""Lines from which the kind of a JSON file is told: the first may be junk."""


def _first(lines: Iterator[Line], count: int) -> Iterator[Line]:
    for _, line in zip(range(count), lines, strict=False):
        yield line


def _is_formatter_line(line: Line) -> bool:
    try:
        return line.is_whole and is_formatter_object(parse_json(line.data.decode()))
    except (EncodeError, UnicodeDecodeError):
        return False


def _open_text(file: DumpFile) -> Any:
    filesystem, path = filesystem_of(file.path)
    return filesystem.open_input_stream(path, compression="detect")


def _logs(uris: Sequence[str], done: Iterable[_Done]) -> Iterator[DumpLog]:
    runs: dict[tuple[int, str, int, str], list[Run]] = {}
    untold: dict[tuple[int, str, int, str], list[tuple[int, int]]] = {}
    order = {uri: index for index, uri in reversed([*enumerate(uris)])}
    for task in done:
        for kind, topic, partition, run in task.runs:
            runs.setdefault((order[task.uri], topic, partition, kind), []).append(run)
        for gap in task.untold:
            place = order[task.uri], gap.topic, gap.partition, BATCHES
            untold.setdefault(place, []).append((gap.first_offset, gap.last_offset))
    for place in sorted({*runs, *untold}):
        index, topic, partition, kind = place
        found = tuple(runs.get(place, ()))
        yield DumpLog(topic, partition, uris[index], kind, found, tuple(union(untold.get(place, ()))))


def _notes(uri: str, done: Sequence[_Done], rules: RowRules) -> Iterator[str]:
    tasks = [task for task in done if task.uri == uri]
    counts = {kind: sum(task.record_counts.get(kind, 0) for task in tasks) for kind in (ROWS, BATCHES, FORMATTED)}
    if counts[ROWS]:
        yield (
            f"{uri}: {counts[ROWS]:,} records of keys and values. Markers, producers and transactions are not told: "
            "they are null, and every commit counts as applied where it stands"
        )
    if counts[FORMATTED]:
        yield (
            f"{uri}: {counts[FORMATTED]:,} records as a console formatter prints them. Offsets are their numbers, "
            f"partitions are those of topics with {rules.dump.partition_count} (dump_partition_count), times, markers "
            "and transactions are not told; records of other types are not printed. Capture nothing else of this topic "
            "under this cluster id"
        )
    inexact_count, unread_count = sum(task.inexact_count for task in tasks), sum(task.unread_count for task in tasks)
    if inexact_count:
        yield (
            f"{uri}: {inexact_count:,} batches hold the records that were printed, but are not the log's to the byte: "
            "they were compressed, or hold what the tool does not print"
        )
    if unread_count:
        yield f"{uri}: {unread_count:,} records of the metadata log are of types that are not read, and left out"
    left_out = sum((task.left_out for task in tasks), Counter[str]())
    if left_out:
        fields = ", ".join(f"{name} ({count:,})" for name, count in sorted(left_out.items()))
        yield (
            f"{uri}: records with fields of a later Kafka are read without these fields, since a dump does not say how "
            f"they are written: {fields}. Capture segments or the live log to keep them"
        )
    other_count = sum(task.other_topic_count for task in tasks)
    if other_count:
        yield f"{uri}: {other_count:,} records of topics that are not chosen (topics) were left out"


# --- in a task


def unpack(work: _Work) -> _Done:
    """Read some files of a dump and stage what they hold."""
    done = _Done(work.uri)
    name = f"{work.number:05d}"
    rows = PieceWriter(work.staging, f"{name}-{ROWS}", "offset")
    batches = PieceWriter(work.staging, f"{name}-{BATCHES}", "base_offset")
    formatted = PieceWriter(work.staging, f"{name}-{FORMATTED}", "offset")
    numbers: dict[tuple[str, int], int] = {}
    for file in work.files:
        faults = _Faults(file.path)
        try:
            if file.format is DumpFormat.PARQUET:
                _unpack_parquet(file, work, rows, faults, done)
            elif file.format is DumpFormat.DUMP_LOG:
                _unpack_printed_log(file, work, batches, faults, done)
            elif _starts_formatted(file):
                _unpack_formatted(file, work, formatted, faults, done, numbers)
            else:
                with _open_text(file) as stream:
                    for read in read_json_lines(read_lines(stream), work.rules, file.constants):
                        _add_rows(read, rows, faults, done)
        except SourceError as error:
            done.problem = f"{file.path}: {error}"
            return done
        except (OSError, pa.ArrowException) as error:
            # pyarrow's texts may repeat what the file holds
            message = f"cannot be read to its end: {type(error).__name__}"
            faults.add(BadRow(message, None, None, None, None, b"", UNREADABLE_FILE))
        done.faults += faults.all()
    for kind, writer in ((ROWS, rows), (BATCHES, batches), (FORMATTED, formatted)):
        writer.flush()
        done.runs += [(kind, *run) for run in writer.runs]
    return done


class _Faults:
    """The bad rows of one file, as many as are kept."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: list[DumpFault] = []
        self._bytes = 0
        self._dropped_count = 0

    def add(self, row: BadRow) -> None:
        """One more."""
        if len(self._kept) >= BAD_ROWS_MAX:
            self._dropped_count += 1
            return
        if self._bytes + len(row.payload) > BAD_BYTES_MAX:
            row = row._replace(payload=b"")
        self._bytes += len(row.payload)
        self._kept.append(DumpFault(self._source, row))

    def all(self) -> list[DumpFault]:
        """Those that are kept, and how many more there were."""
        if not self._dropped_count:
            return self._kept
        message = f"{self._dropped_count:,} more rows of this file are no records"
        return [*self._kept, DumpFault(self._source, BadRow(message, None, None, None, None, b""))]


def _add_rows(read: RowsRead, writer: PieceWriter, faults: _Faults, done: _Done) -> None:
    writer.write(read.rows)
    for row in read.bad:
        faults.add(row)
    done.other_topic_count += read.other_topic_count
    done.record_counts[ROWS] = done.record_counts.get(ROWS, 0) + read.rows.num_rows


def _unpack_parquet(file: DumpFile, work: _Work, writer: PieceWriter, faults: _Faults, done: _Done) -> None:
    filesystem, path = filesystem_of(file.path)
    with filesystem.open_input_file(path) as source:
        for read in read_parquet(source, work.rules, file.constants, work.row_groups):
            _add_rows(read, writer, faults, done)


def _unpack_printed_log(file: DumpFile, work: _Work, writer: PieceWriter, faults: _Faults, done: _Done) -> None:
    log = parse_partition_folder(posixpath.basename(file.path).split(".")[0])
    positions: dict[int, int] = {}
    waiting: list[PrintedBatch] = []
    waiting_bytes = 0
    with _open_text(file) as stream:
        for item in read_printed_log(_text_lines(read_lines(stream), faults, positions), log=log):
            if isinstance(item, PrintedGap):
                if item.topic in work.rules.topics:
                    done.untold.append(item)
            elif not isinstance(item, PrintedBatch):
                faults.add(
                    BadRow(
                        message=f"line {item.line_number}: {item.message}",
                        topic=item.topic,
                        partition=item.partition,
                        offset=item.offset,
                        byte_position=positions.get(item.line_number),
                        payload=item.text.encode(errors="replace")[:QUARANTINE_BYTES_MAX],
                        code=item.code,
                    )
                )
            elif item.topic not in work.rules.topics:
                done.other_topic_count += item.record_count
            else:
                done.inexact_count += not item.is_exact and not item.unread_count and not item.left_out
                done.left_out.update(dict(item.left_out))
                done.unread_count += item.unread_count
                done.record_counts[BATCHES] = done.record_counts.get(BATCHES, 0) + item.record_count
                waiting.append(item)
                waiting_bytes += len(item.data)
                if waiting_bytes > READ_BYTES_MAX:
                    writer.write(_batches_table(waiting))
                    waiting, waiting_bytes = [], 0
    writer.write(_batches_table(waiting))


def _batches_table(batches: Sequence[PrintedBatch]) -> pa.Table:
    columns = [
        [batch.topic for batch in batches],
        [batch.partition for batch in batches],
        [batch.base_offset for batch in batches],
        [batch.last_offset for batch in batches],
        [batch.data for batch in batches],
    ]
    arrays = [pa.array(values, item.type) for values, item in zip(columns, BATCHES_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=BATCHES_SCHEMA)


def _text_lines(lines: Iterable[Line], faults: _Faults, positions: dict[int, int]) -> Iterator[tuple[int, str]]:
    """Lines as text. `positions` keeps where the last line begins."""
    for line in lines:
        positions.clear()
        positions[line.number] = line.position
        try:
            if not line.is_whole:
                raise ValueError
            text = line.data.decode()
        except ValueError:
            reason = "not UTF-8" if line.is_whole else "a line longer than any record"
            faults.add(bad_line(line, reason))
            # a batch that lacks a line goes on without it
            continue
        yield line.number, text


def _unpack_formatted(
    file: DumpFile,
    work: _Work,
    writer: PieceWriter,
    faults: _Faults,
    done: _Done,
    numbers: dict[tuple[str, int], int],
) -> None:
    """`numbers`: the next offset of each log partition, over all files."""
    waiting: list[tuple[Any, ...]] = []
    waiting_bytes = 0
    with _open_text(file) as stream:
        for line in read_lines(stream):
            try:
                if not line.is_whole:
                    raise EncodeError("a line longer than any record")
                record = formatter_record(parse_json(line.data.decode()))
            except (EncodeError, UnicodeDecodeError) as error:
                faults.add(bad_line(line, str(error) if isinstance(error, EncodeError) else "not UTF-8"))
                continue
            if record.topic not in work.rules.topics:
                done.other_topic_count += 1
                continue
            done.left_out.update(record.left_out)
            waiting.append(_numbered(record, work.rules.dump.partition_count, numbers))
            waiting_bytes += len(line.data)
            if waiting_bytes > READ_BYTES_MAX:
                writer.write(_formatted_table(waiting))
                done.record_counts[FORMATTED] = done.record_counts.get(FORMATTED, 0) + len(waiting)
                waiting, waiting_bytes = [], 0
    writer.write(_formatted_table(waiting))
    done.record_counts[FORMATTED] = done.record_counts.get(FORMATTED, 0) + len(waiting)


def _numbered(record: PrintedRecord, partition_count: int, numbers: dict[tuple[str, int], int]) -> tuple[Any, ...]:
    partition = key_partition(record.coordinator_key, partition_count)
    offset = numbers.get((record.topic, partition), 0)
    numbers[record.topic, partition] = offset + 1
    return record.topic, partition, offset, -1, False, record.key, record.value, NO_HEADERS


def _formatted_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(ROWS_SCHEMA)
    arrays = [pa.array(values, item.type) for values, item in zip(columns, ROWS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ROWS_SCHEMA)


# --- one log partition


def read_dump_log(
    log: DumpLog, *, known: Sequence[tuple[int, int]] = (), met: Callable[[pa.Table, pa.Table], object] | None = None
) -> Iterator[SegmentRead]:
    """The batches of a log partition, in offset order, some megabytes at a time.

    `known`: ascending, disjoint ranges of offsets, both ends inclusive, which are captured already: rows of such
    offsets are not packed, so that no batch overlaps with what there is. `met` is called with the next rows, and with
    those of them that are left out. Records which come twice and differ are findings of the read.
    """
    packer = _BatchPacker(log) if log.kind == BATCHES else _RowPacker(log)
    column = "base_offset" if log.kind == BATCHES else "offset"
    for rows in merged(log.runs, column):
        if log.kind == BATCHES:
            yield from packer.feed(rows)
            continue
        is_new = _is_new(rows, column, known)
        if met is not None:
            met(rows, rows.filter(pa.array(~is_new)))
        yield from packer.feed(rows if is_new.all() else rows.filter(pa.array(is_new)))
    yield from packer.finish()


def _is_new(rows: pa.Table, column: str, known: Sequence[tuple[int, int]]) -> BoolArray:
    if not known:
        return np.ones(rows.num_rows, np.bool_)
    offset = rows[column].to_numpy()
    nearest = np.searchsorted(np.array([first for first, _ in known], np.int64), offset, side="right") - 1
    lasts = np.array([last for _, last in known], np.int64)
    is_new: BoolArray = (nearest < 0) | (lasts[nearest] < offset)
    return is_new


class _Packer:
    """What both kinds share: rows wait until there is enough to make a read of."""

    def __init__(self, log: DumpLog) -> None:
        self._log = log
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._findings: list[Finding] = []
        self._next_offset = -1

    def feed(self, rows: pa.Table) -> Iterator[SegmentRead]:
        """More rows, ascending by offset."""
        if rows.num_rows:
            self._waiting.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= READ_BYTES_MAX:
            yield from self._flush(is_end=False)

    def finish(self) -> Iterator[SegmentRead]:
        """There are no more."""
        yield from self._flush(is_end=True)

    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        raise NotImplementedError

    def _read(self, data: U8, base_offset: int) -> SegmentRead:
        columns, _, end_position, stop = fast.frame_batches(data, 0, len(data))
        assert stop == fast.STOP_END, "packed batches are whole"
        batches = BatchColumns(*columns)
        first = base_offset if self._next_offset < 0 else self._next_offset
        self._next_offset = int(batches.last_offset[-1]) + 1 if len(batches) else first
        findings, self._findings = tuple(self._findings), []
        return SegmentRead(
            Segment(
                path=self._log.uri,
                name=f"{first:020d}",
                base_offset=first,
                size_bytes=len(data),
                is_last=False,
                source_kind=DUMP,
                is_header_told=self._log.kind == BATCHES,
            ),
            pa.py_buffer(data),
            SegmentScan(batches, np.ones(len(batches), np.bool_), findings, (), self._next_offset, end_position),
        )


class _RowPacker(_Packer):
    """Packs rows of keys and values."""

    def __init__(self, log: DumpLog) -> None:
        super().__init__(log)
        self._last: dict[str, Any] | None = None
        """The last record, should the next rows begin with its offset."""

    def feed(self, rows: pa.Table) -> Iterator[SegmentRead]:
        """Of records with one offset the first is taken."""
        yield from super().feed(self._distinct(rows))

    def _distinct(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        offset = rows["offset"].to_numpy()
        is_again = np.zeros(len(offset), np.bool_)
        is_again[1:] = offset[1:] == offset[:-1]
        is_again[0] = self._last is not None and self._last["offset"] == offset[0]
        for row in np.flatnonzero(is_again).tolist():
            record = rows.slice(row, 1).to_pylist()[0]
            if row == 0 or not is_again[row - 1]:
                first = self._last if row == 0 else rows.slice(row - 1, 1).to_pylist()[0]
            if record != first:
                self._findings.append(_duplicate(record["offset"], record["value"] or b"", "another record"))
        kept = rows.filter(pa.array(~is_again)) if is_again.any() else rows
        if kept.num_rows:
            self._last = kept.slice(kept.num_rows - 1, 1).to_pylist()[0]
        return kept

    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        data, count = pack_records(_packable(rows), is_end=is_end)
        rest = rows.slice(count)
        self._waiting = [rest] if rest.num_rows else []
        self._bytes = rest.nbytes if rest.num_rows else 0
        if count:
            yield self._read(data, int(rows["offset"][0].as_py()))


class _BatchPacker(_Packer):
    """Joins batches which came whole."""

    def __init__(self, log: DumpLog) -> None:
        super().__init__(log)
        self._last_offset = -1
        self._last_batch = b""

    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        parts: list[bytes] = []
        base_offset = -1
        for rows in self._waiting:
            columns = (rows[name].to_pylist() for name in ("base_offset", "last_offset", "batch"))
            for first, last, batch in zip(*columns, strict=True):
                if first <= self._last_offset:
                    if batch != self._last_batch:
                        self._findings.append(_duplicate(first, batch, "another batch"))
                    continue
                base_offset = first if base_offset < 0 else base_offset
                self._last_offset, self._last_batch = last, batch
                parts.append(batch)
        self._waiting, self._bytes = [], 0
        if parts or self._findings:
            yield self._read(np.frombuffer(b"".join(parts), np.uint8), max(base_offset, 0))


def _duplicate(offset: int, payload: bytes, what: str) -> Finding:
    return Finding(
        stage="FILE",
        code=DUPLICATE_OFFSET,
        message=f"{what} of the dump has its offsets, and differs: the first is taken",
        offset=offset,
        payload=payload[:QUARANTINE_BYTES_MAX],
    )


def key_values(rows: pa.Table) -> KeyValues:
    """Rows of ROWS_SCHEMA as keys and values to be compared."""
    return KeyValues(rows["offset"].to_numpy(), *_byte_ranges(rows["key"]), *_byte_ranges(rows["value"]))


def record_at(rows: pa.Table, row: int) -> Record:
    """One of them as a record."""
    found = rows.slice(row, 1).to_pylist()[0]
    headers = decode_headers(found["headers"])
    return Record(found["offset"], found["timestamp_ms"], found["key"], found["value"], headers)


def _packable(rows: pa.Table) -> PackableRecords:
    key_data, key_start, key_length = _byte_ranges(rows["key"])
    value_data, value_start, value_length = _byte_ranges(rows["value"])
    header_data, header_start, header_length = _byte_ranges(rows["headers"])
    return PackableRecords(
        offset=rows["offset"].to_numpy(),
        timestamp_ms=rows["timestamp_ms"].to_numpy(),
        is_log_append_time=rows["is_log_append_time"].to_numpy(),
        key_data=key_data,
        key_start=key_start,
        key_length=key_length,
        value_data=value_data,
        value_start=value_start,
        value_length=value_length,
        header_data=header_data,
        header_start=header_start,
        header_length=header_length,
    )


def _byte_ranges(column: pa.ChunkedArray) -> tuple[U8, Any, Any]:
    """The bytes of a binary column of one chunk, and where each value is in them; a length of -1 is null."""
    array = column.combine_chunks()
    _, positions, data = array.buffers()
    starts = np.frombuffer(positions, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(starts).astype(np.int32)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return (np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)), starts[:-1], lengths
