"""Dumps as a source: rows of raw keys and values, and output of Kafka's tools, converted to batches of log partitions.

    unpacked = unpack_dumps(settings, staging=folder, run_all=partial(run_tasks, session))
    for log in unpacked.logs:
        for read in read_dump_log(log):  # like read_segment for a segment file
            ...

First, tasks read the dump's files and write their rows, sorted, to a staging folder (`staging.py`). Then the task that
captures a log partition merges its rows and packs them (`coordinator_core.bytes.log.pack`). Both keep a bounded number
of rows in memory, whatever the size of the dump.

What each kind of dump contains, and what is null or assumed where it lacks something:

- Rows (Parquet, Delta, JSON lines): key, value, offset, timestamp. Where they have `producer_id` and `is_control`,
  markers among them, they tell transactions, and with `base_offset` all that silver is made of. Else they lack markers,
  producers, and whether a record was written in a transaction: the header columns of bronze.record_batches are null, as
  are `producer_id` and `is_transactional` of commits; each commit counts as applied at its own offset.
- Rows of whole batches (Parquet, Delta), as the data source `kafka_log` gives them: everything.
- kafka-dump-log: everything, including markers. Batches that were not compressed are reconstructed byte for byte;
  record types of the metadata log that this project does not read are left out. What a release before 3.8 printed is
  refused: a row of bronze.quarantine says to run a newer one.
- Output of the console consumer's formatters: only key and value. The partition follows from Kafka's hash and
  `partition_count`, the offset is the number of the record within its partition, and there is no timestamp. Such
  offsets match no other source: capture one such dump under a cluster id of its own.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from coordinator_core.bytes.coverage import union
from coordinator_core.bytes.log.pack import NO_HEADERS
from coordinator_core.bytes.log.segment import parse_partition_folder
from coordinator_core.bytes.printed.dump_log_output import NOT_PRINTED, DumpedBatch, DumpedGap, read_dump_log_output
from coordinator_core.bytes.printed.formatter_output import (
    FormatterRecord,
    formatter_record,
    is_formatter_object,
    parse_json,
)
from coordinator_core.errors import EncodeError
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.replay.lookup import key_partition
from coordinator_core.text import counted
from jobs.cli_enums import DumpFormat
from jobs.delta.filesystems import filesystem_of
from jobs.delta.scanner import Scanner
from jobs.errors import NoSuchColumn, SourceError
from jobs.settings import Settings
from jobs.sources.dumps.dump_log import BATCHES, FORMATTED, ROWS, DumpFault, DumpLog
from jobs.sources.dumps.files import DumpFile, Found, Line, find_dump_files, read_lines, rearranged_files
from jobs.sources.dumps.pack import READ_BYTES_MAX
from jobs.sources.dumps.rows import (
    BATCHES_SCHEMA,
    NO_BATCH,
    ROWS_SCHEMA,
    BadRow,
    RowRules,
    RowsRead,
    bad_line,
    read_json_lines,
    read_parquet,
)
from jobs.sources.dumps.staging import PieceWriter, Run
from jobs.sources.dumps.where import Where
from jobs.sources.segments import UNREADABLE_FILE

KnownFile = tuple[int, int | None]
"""Size and modification time."""
RunAll = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
UNKNOWN_FORMAT: Final = "UNKNOWN_FORMAT"
ALONE: Final = "keys and values"
"""Kind of rows without producers."""
BAD_ROWS_MAX: Final = 10_000
"""Maximum number of bad rows kept of one file; a last row counts the others."""
BAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum total size of the kept bad rows."""
WORK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum size of the files, or row groups of a Parquet file, that one task reads."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    logs: tuple[DumpLog, ...]
    """By dump, topic and partition."""
    faults: tuple[DumpFault, ...]
    sources: tuple[str, ...]
    """Files and dumps that were read: their faults replace those of earlier runs."""
    notes: tuple[str, ...]
    """Sentences about what the dumps do not contain."""
    files_read: tuple[DumpFile, ...] = ()
    """Files of rows that were read to their end: they need not be read again while they stay as they are."""
    listed: frozenset[str] = frozenset()
    """All files that the dumps have now."""


@dataclass(frozen=True, slots=True)
class _Work:
    """The input of one task."""

    number: int
    uri: str
    files: tuple[DumpFile, ...]
    row_groups: tuple[int, ...] | None
    """Row groups of a single Parquet file; None: all."""
    rules: RowRules
    staging: str
    columns: pa.Schema | None = None
    """Of the whole dump, where a condition is about them."""


@dataclass(slots=True)
class _Done:
    """The result of one task."""

    uri: str
    runs: list[tuple[str, str, int, Run]] = field(default_factory=list)
    """(kind, topic, partition, run)"""
    faults: list[DumpFault] = field(default_factory=list)
    files_read: list[DumpFile] = field(default_factory=list)
    """Files of rows that were read to their end."""
    other_topic_count: int = 0
    other_clusters: Counter[str] = field(default_factory=Counter)
    """Rows of other clusters."""
    record_counts: dict[str, int] = field(default_factory=dict)
    """By kind."""
    unreported: list[DumpedGap] = field(default_factory=list)
    inexact_count: int = 0
    """Batches of kafka-dump-log that are not identical to those of the log."""
    unread_count: int = 0
    """Records of metadata record types that are not read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Fields of a newer Kafka, and the number of records that have them."""
    unprinted: Counter[str] = field(default_factory=Counter)
    """Reasons why records are not printed, with the remedy, and the number of lines for each."""
    wanted_count: int = 0
    """Rows for which `--where` is true."""
    row_count: int = 0
    """Rows of which it was asked."""
    excluded_file_count: int = 0
    """Files of whose rows none can be wanted, by their folders."""
    problem: str | None = None
    """An error that makes the whole dump unreadable: the run stops with it."""


def unpack_dumps(
    settings: Settings, *, staging: str, run_all: RunAll, known: Mapping[str, KnownFile] = MappingProxyType({})
) -> Unpacked:
    """Read the files of all dumps into `staging`, a folder or URI of this run, to be deleted after the capture.

    `run_all` applies a function to each element of a list, such as `partial(run_tasks, session)`. `known`: files of
    rows that an earlier run read, by path. Raises SourceError for a dump that does not exist, has an unknown format, or
    lacks a column.
    """

    def is_known(file: DumpFile) -> bool:
        return known.get(file.path) == (file.size_bytes, file.modified_at_ns)

    uris, rules = settings.dumps, RowRules(settings.dump, settings.topics, settings.cluster_id)
    works: list[_Work] = []
    faults: list[DumpFault] = []
    sources: list[str] = []
    notes: list[str] = []
    rearranged: dict[str, DumpFile] = {}
    listed: set[str] = set()
    for uri in uris:
        found = find_dump_files(uri, rules.dump.format)
        files, unknown = found.files, found.unknown
        if not files and found.columns is None:
            raise SourceError(f"no file of {uri} is Parquet, JSON lines or the output of kafka-dump-log")
        for path, message in unknown:
            faults.append(DumpFault(path, BadRow(message, None, None, None, None, b"", UNKNOWN_FORMAT)))
        listed |= {*(file.path for file in files), *(path for path, _ in unknown)}
        new = [file for file in files if not is_known(file)]
        if new and any(path.startswith(f"{uri.rstrip('/')}/") for path in known):
            again = rearranged_files(uri, new, is_known)
            new = [file for file in new if file.path not in again]
            rearranged |= again
        if len(new) < len(files):
            before = f"{len(files) - len(new):,} of {counted(len(files), 'file')}"
            notes.append(f"{uri}: read before, and unchanged: {before}")
        else:
            sources.append(uri)
        sources += [*(file.path for file in new), *(path for path, _ in unknown)]
        columns = _columns(found, new, rules.dump.where) if rules.dump.where else None
        works += (replace(work, columns=columns) for work in _works(uri, new, rules, staging, len(works)))
    done: Sequence[_Done] = run_all(unpack, works) if works else ()
    problem = next((task.problem for task in done if task.problem is not None), None)
    if problem is not None:
        raise SourceError(problem)
    return Unpacked(
        logs=tuple(_logs(uris, done)),
        faults=(*faults, *chain.from_iterable(task.faults for task in done)),
        sources=tuple(dict.fromkeys(sources)),
        notes=(*notes, *chain.from_iterable(_notes(uri, done, rules) for uri in dict.fromkeys(uris))),
        files_read=(*rearranged.values(), *_wholly_read(done)),
        listed=frozenset(listed),
    )


def _columns(found: Found, new: Sequence[DumpFile], condition: str) -> pa.Schema | None:
    """The columns that a condition may be about: of a Delta table, or of as many files as it takes to know its own.
    Raises SettingsError for what is no condition of them."""
    if found.columns is not None:
        Where(condition, found.columns).check()
        return found.columns
    files = {file.path: file for file in (*reversed(new), *reversed(found.files)) if new}
    of_folders = {name: value.type for file in found.files for name, value in file.typed.items()}
    columns: dict[str, pa.DataType] = {}
    problem: NoSuchColumn | None = None
    for file in files.values():
        if file.format is not DumpFormat.PARQUET:
            continue  # the task refuses it
        filesystem, path = filesystem_of(file.path)
        try:
            with filesystem.open_input_file(path) as source:
                schema = Scanner.of_open(source).schema
        except (OSError, pa.ArrowException):
            continue  # the task reports what is wrong
        there = {item.name: item.type for item in schema}
        if problem is not None and there.keys() <= columns.keys():
            continue
        columns = there | columns | of_folders
        try:
            Where(condition, pa.schema(columns)).check()
        except NoSuchColumn as error:
            problem = error
        else:
            return pa.schema(columns)
    if problem is not None:
        raise problem
    return pa.schema(columns)


def _wholly_read(done: Sequence[_Done]) -> tuple[DumpFile, ...]:
    """The files of rows of which every part was read to its end."""
    unreadable = {fault.source for task in done for fault in task.faults if fault.row.code == UNREADABLE_FILE}
    files = {file.path: file for task in done for file in task.files_read}
    return tuple(file for path, file in files.items() if path not in unreadable)


def _works(uri: str, files: Sequence[DumpFile], rules: RowRules, staging: str, number: int) -> Iterator[_Work]:
    """Yield tasks of similar size, in the order of the dump. Formatter output gets one task, since lines are
    numbered across files."""
    if any(file.format is DumpFormat.JSON and _starts_formatted(file) for file in files):
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
            sizes = Scanner.of_open(source).row_group_bytes
    except (OSError, pa.ArrowInvalid):
        yield None  # the task reports what is wrong
        return
    together: list[int] = []
    for index, size in enumerate(sizes):
        if together and sum(sizes[item] for item in together) + size > WORK_BYTES_MAX:
            yield tuple(together)
            together = []
        together.append(index)
    yield tuple(together)


def _starts_formatted(file: DumpFile) -> bool:
    try:
        with _open_text(file) as stream:
            return any(_is_formatter_line(line) for line in islice(read_lines(stream), FORMAT_LINES))
    except OSError:
        return False


LINE_POSITIONS_MAX: Final = 10_000
"""A batch turns out to be invalid only at its end: this is far more lines than most batches have."""
FORMAT_LINES: Final = 5
"""Number of lines that decide the kind of a JSON file: the first one may be junk."""


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
    unreported: dict[tuple[int, str, int, str], list[tuple[int, int]]] = {}
    order = {uri: index for index, uri in reversed([*enumerate(uris)])}
    for task in done:
        for kind, topic, partition, run in task.runs:
            runs.setdefault((order[task.uri], topic, partition, kind), []).append(run)
        for gap in task.unreported:
            place = order[task.uri], gap.topic, gap.partition, BATCHES
            unreported.setdefault(place, []).append((gap.first_offset, gap.last_offset))
    for place in sorted({*runs, *unreported}):
        index, topic, partition, kind = place
        found = tuple(runs.get(place, ()))
        yield DumpLog(topic, partition, uris[index], kind, found, tuple(union(unreported.get(place, ()))))


def _notes(uri: str, done: Sequence[_Done], rules: RowRules) -> Iterator[str]:
    tasks = [task for task in done if task.uri == uri]
    if rules.dump.where and tasks:
        wanted_count, row_count, excluded_count = (
            sum(getattr(task, name) for task in tasks) for name in ("wanted_count", "row_count", "excluded_file_count")
        )
        those = f" (and none of {counted(excluded_count, 'file')}, by their folders)" if excluded_count else ""
        yield f"{uri}: {wanted_count:,} of {counted(row_count, 'row')}{those} match --where {rules.dump.where}"
    counts = {kind: sum(task.record_counts.get(kind, 0) for task in tasks) for kind in (BATCHES, FORMATTED)}
    if alone_count := sum(task.record_counts.get(ALONE, 0) for task in tasks):
        yield (
            f"{uri}: {counted(alone_count, 'record')} of keys and values. Rows have no markers, producers and "
            "transactions: "
            "these are null, and every commit counts as applied at its own offset"
        )
    if counts[FORMATTED]:
        yield (
            f"{uri}: {counted(counts[FORMATTED], 'record')} as a console formatter prints them. Offsets are their "
            "numbers, "
            f"partitions are those of topics with {rules.dump.partition_count} (dump_partition_count). There are no "
            "times, markers, transactions or records of other types. Capture nothing else of this topic under this "
            "cluster id"
        )
    inexact_count, unread_count = sum(task.inexact_count for task in tasks), sum(task.unread_count for task in tasks)
    if inexact_count:
        yield (
            f"{uri}: {counted(inexact_count, 'batch', 'batches')} with the records that were printed, but not the "
            "log's to the byte: "
            "compressed there, or with what the tool does not print"
        )
    if unread_count:
        yield f"{uri}: left out: {counted(unread_count, 'record')} of the metadata log, of types that are not read"
    left_out = sum((task.left_out for task in tasks), Counter[str]())
    if left_out:
        fields = ", ".join(f"{name} ({count:,})" for name, count in sorted(left_out.items()))
        yield (
            f"{uri}: records with fields of a later Kafka are read without these fields, since a dump does not say how "
            f"they are written: {fields}. Capture segments or the live log to keep them"
        )
    unprinted = sum((task.unprinted for task in tasks), Counter[str]())
    for why, count in sorted(unprinted.items()):
        yield f"{uri}: in bronze.quarantine, without the records: {counted(count, 'line')}: {why}"
    other_count = sum(task.other_topic_count for task in tasks)
    if other_count:
        yield f"{uri}: left out: {counted(other_count, 'record')} of topics that are not chosen (topics)"
    others = sum((task.other_clusters for task in tasks), Counter[str]())
    if others:
        clusters = ", ".join(f"{cluster_id!r} ({count:,})" for cluster_id, count in sorted(others.items()))
        yield f"{uri}: left out: records of other clusters than {rules.cluster_id!r} (--cluster-id): {clusters}"


def unpack(work: _Work) -> _Done:
    """Read some files of a dump and stage their rows."""
    done = _Done(work.uri)
    name = f"{work.number:05d}"
    rows = PieceWriter(work.staging, f"{name}-{ROWS}", "offset")
    batches = PieceWriter(work.staging, f"{name}-{BATCHES}", "base_offset")
    formatted = PieceWriter(work.staging, f"{name}-{FORMATTED}", "offset")
    numbers: dict[tuple[str, int], int] = {}
    where = None if work.columns is None else Where(work.rules.dump.where, work.columns)
    for file in work.files:
        faults = _Faults(file.path)
        try:
            if where is not None and file.format is not DumpFormat.PARQUET:
                raise SourceError("--where takes rows of Parquet files and Delta tables: name other dumps without it")
            if file.format is DumpFormat.PARQUET:
                if where is None or not where.excludes(file.typed):
                    _unpack_parquet(file, work, (rows, batches), faults, done, where)
                done.files_read.append(file)
            elif file.format is DumpFormat.DUMP_LOG:
                _unpack_printed_log(file, work, batches, faults, done)
            elif _starts_formatted(file):
                _unpack_formatted(file, work, formatted, faults, done, numbers)
            else:
                with _open_text(file) as stream:
                    for read in read_json_lines(read_lines(stream), work.rules, file.constants):
                        _add_rows(read, rows, faults, done)
                done.files_read.append(file)
        except SourceError as error:
            done.problem = f"{file.path}: {error}"
            return done
        except (OSError, pa.ArrowException) as error:
            # pyarrow's messages may quote content of the file
            message = f"cannot be read to its end: {type(error).__name__}"
            faults.add(BadRow(message, None, None, None, None, b"", UNREADABLE_FILE))
        done.faults += faults.all()
    for kind, writer in ((ROWS, rows), (BATCHES, batches), (FORMATTED, formatted)):
        writer.flush()
        done.runs += [(kind, *run) for run in writer.runs]
    if where is not None:
        done.wanted_count, done.row_count = where.wanted_count, where.row_count
        done.excluded_file_count = where.excluded_file_count
    return done


class _Faults:
    """The bad rows of one file, up to the limits."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: list[DumpFault] = []
        self._bytes = 0
        self._dropped_count = 0

    def add(self, row: BadRow) -> None:
        if len(self._kept) >= BAD_ROWS_MAX:
            self._dropped_count += 1
            return
        if self._bytes + len(row.payload) > BAD_BYTES_MAX:
            row = row._replace(payload=b"")
        self._bytes += len(row.payload)
        self._kept.append(DumpFault(self._source, row))

    def all(self) -> list[DumpFault]:
        """The kept rows, and one that counts the others."""
        if not self._dropped_count:
            return self._kept
        message = f"more rows of this file that are no records: {self._dropped_count:,}"
        return [*self._kept, DumpFault(self._source, BadRow(message, None, None, None, None, b""))]


def _add_rows(read: RowsRead, writer: PieceWriter, faults: _Faults, done: _Done) -> None:
    writer.write(read.rows)
    for row in read.bad:
        faults.add(row)
    done.other_topic_count += read.other_topic_count
    done.other_clusters += read.other_clusters
    if read.rows.schema == ROWS_SCHEMA:
        done.record_counts[ALONE] = done.record_counts.get(ALONE, 0) + read.rows["producer_id"].null_count


def _unpack_parquet(
    file: DumpFile,
    work: _Work,
    writers: tuple[PieceWriter, PieceWriter],
    faults: _Faults,
    done: _Done,
    where: Where | None,
) -> None:
    rows, batches = writers
    filesystem, path = filesystem_of(file.path)
    with filesystem.open_input_file(path) as source:
        wanted = None if where is None else partial(where.wanted, of_folders=file.typed)
        for read in read_parquet(source, work.rules, file.constants, work.row_groups, wanted):
            _add_rows(read, rows if read.rows.schema == ROWS_SCHEMA else batches, faults, done)


def _unpack_printed_log(file: DumpFile, work: _Work, writer: PieceWriter, faults: _Faults, done: _Done) -> None:
    log = parse_partition_folder(posixpath.basename(file.path).split(".")[0])
    positions: dict[int, int] = {}
    waiting: list[DumpedBatch] = []
    waiting_bytes = 0
    with _open_text(file) as stream:
        for item in read_dump_log_output(_text_lines(read_lines(stream), faults, positions), log=log):
            if isinstance(item, DumpedGap):
                if item.topic in work.rules.topics:
                    done.unreported.append(item)
            elif not isinstance(item, DumpedBatch):
                faults.add(
                    BadRow(
                        message=f"line {item.line_number}: {item.message}",
                        topic=item.topic,
                        partition=item.partition,
                        offset=item.offset,
                        byte_position=positions.get(item.line_number),
                        payload=item.text.encode(errors="replace")[:QUARANTINE_BYTES_MAX],
                        code=item.code,
                        group_id=item.group_id,
                    )
                )
                done.unprinted[item.message] += item.code == NOT_PRINTED and item.topic in work.rules.topics
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


def _batches_table(batches: Sequence[DumpedBatch]) -> pa.Table:
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
    """Yield lines as text. `positions` gets the byte positions of the last lines."""
    for line in lines:
        positions[line.number] = line.position
        if len(positions) > LINE_POSITIONS_MAX:
            del positions[next(iter(positions))]
        try:
            if not line.is_whole:
                raise ValueError
            text = line.data.decode()
        except ValueError:
            reason = "not UTF-8" if line.is_whole else "a line longer than any record"
            faults.add(bad_line(line, reason))
            # the batch continues without the line
            continue
        yield line.number, text


def _unpack_formatted(
    file: DumpFile, work: _Work, writer: PieceWriter, faults: _Faults, done: _Done, numbers: dict[tuple[str, int], int]
) -> None:
    """Unpack formatter output. `numbers`: the next offset of each log partition, across all files."""
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


def _numbered(record: FormatterRecord, partition_count: int, numbers: dict[tuple[str, int], int]) -> tuple[Any, ...]:
    partition = key_partition(record.coordinator_key, partition_count)
    offset = numbers.get((record.topic, partition), 0)
    numbers[record.topic, partition] = offset + 1
    return record.topic, partition, offset, -1, False, record.key, record.value, NO_HEADERS, *NO_BATCH.values()


def _formatted_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(ROWS_SCHEMA)
    arrays = [pa.array(values, item.type) for values, item in zip(columns, ROWS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ROWS_SCHEMA)
