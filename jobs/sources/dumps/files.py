"""The files of a dump: find them, detect their format, and read text files line by line in bounded memory."""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from jobs.cli_enums import DumpFormat
from jobs.delta.filesystems import filesystem_of
from jobs.errors import NoSuchSource, SourceError

LINE_BYTES_MAX: Final = 72 * 1024 * 1024
"""A longer line is no record: one of RECORD_BYTES_MAX takes less in base64 and in hex."""

READ_BYTES: Final = 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
"""Number of bytes from which the format of a file is detected."""

_PARQUET_MAGIC: Final = b"PAR1"
_DUMP_LOG_START: Final = re.compile(rb"^(Dumping |baseOffset: |\| |offset: -?[0-9]+ position: )", re.MULTILINE)
_HIVE_FOLDER: Final = re.compile(r"([^=/]+)=([^=/]*)")
_HIDDEN: Final = re.compile(r"\.|_(?!_)")
_COMMIT: Final = re.compile(r"[0-9]{20}\.json")
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

COLUMN_MAPPING: Final = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One file of a dump, to be opened with `jobs.delta.filesystems.filesystem_of`."""

    path: str
    format: DumpFormat
    """Never AUTO or DELTA. JSON includes raw rows and the output of console formatters."""
    size_bytes: int
    constants: Mapping[str, str | None]
    """Values of columns that are not in the file but in the names of its folders (`topic=.../`) or in Delta's log."""
    typed: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """The same with their types: Delta's, and of folders those that Spark and DuckDB infer (BIGINT, DATE or text)."""
    modified_at_ns: int | None = None
    """Modification time, epoch nanoseconds; None if the store or Delta's log has none."""


class UnknownFile(NamedTuple):
    path: str
    message: str


class Found(NamedTuple):
    """What a dump has."""

    files: list[DumpFile]
    unknown: list[UnknownFile]
    columns: pa.Schema | None
    """Of a Delta table; None: its files tell."""


def find_dump_files(uri: str, format_: DumpFormat) -> Found:
    """The files of a dump, by path: of one file, a folder (recursively), or a Delta table.

    Raises SourceError when there is nothing, or for a Delta table that cannot be read without Spark.
    """
    filesystem, root = filesystem_of(uri.rstrip("/") or "/")
    try:
        info = filesystem.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            raise NoSuchSource(f"no such dump: {uri}")
        if info.type == fs.FileType.File:
            if format_ is DumpFormat.DELTA:
                raise SourceError(f"{uri} is a file, and a Delta table is a folder")
            entries = [info]
        else:
            is_delta = filesystem.get_file_info(f"{root}/_delta_log").type == fs.FileType.Directory
            if format_ is DumpFormat.DELTA or (format_ is DumpFormat.AUTO and is_delta):
                return _delta_files(uri)
            entries = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"cannot read the dump {uri}: {str(error).splitlines()[0]}") from error
    found: list[DumpFile] = []
    unknown: list[UnknownFile] = []
    prefix = uri.rstrip("/")
    for entry in sorted(entries, key=lambda entry: entry.path):
        inside = entry.path[len(root) :].lstrip("/")
        if entry.type != fs.FileType.File or _is_hidden(inside):
            continue
        path = f"{prefix}/{inside}" if inside else prefix
        recognised = format_ if format_ is not DumpFormat.AUTO else _recognise(filesystem, entry.path)
        if not entry.size and recognised is not DumpFormat.PARQUET:
            continue  # a text without lines; a Parquet file was cut
        if recognised is None:
            unknown.append(UnknownFile(path, "neither Parquet nor JSON lines nor the output of kafka-dump-log"))
        else:
            constants = _constants(inside)
            found.append(DumpFile(path, recognised, entry.size, constants, modified_at_ns=entry.mtime_ns))
    if not found and not unknown:
        raise NoSuchSource(f"nothing to read: {uri} has no files")
    return Found(_typed(found), unknown, None)


def _is_hidden(path: str) -> bool:
    """Spark writes files such as `_SUCCESS` and `.part-0.crc` into its output folders, and skips them when it reads.

    Kafka's internal topics, with two underscores, are not hidden.
    """
    return any(_HIDDEN.match(part) and "=" not in part for part in path.split("/"))


def _constants(path: str) -> dict[str, str | None]:
    folders = (_HIVE_FOLDER.fullmatch(part) for part in posixpath.dirname(path).split("/"))
    return {
        unquote(match[1]): None if match[2] == _HIVE_NULL else unquote(match[2])
        for match in folders
        if match is not None
    }


def _typed(files: Sequence[DumpFile]) -> list[DumpFile]:
    """Files with the types of what their folders tell: of one column they are the same for all files."""
    typed: list[dict[str, pa.Scalar]] = [{} for _ in files]
    for name in dict.fromkeys(name for file in files for name in file.constants):
        having = [index for index, file in enumerate(files) if name in file.constants]
        for index, value in zip(having, _inferred([files[index].constants[name] for index in having]), strict=True):
            typed[index][name] = value
    return [replace(file, typed=values) for file, values in zip(files, typed, strict=True)]


def _inferred(texts: Sequence[str | None]) -> pa.Array:
    found = pa.array(texts, pa.string())
    for type_ in (pa.int64(), pa.date32()) if found.null_count < len(found) else ():
        try:
            return found.cast(type_)
        except pa.ArrowInvalid:
            continue
    return found


def _recognise(filesystem: fs.FileSystem, path: str) -> DumpFormat | None:
    if path.endswith(".parquet"):  # a lake has thousands, which are not opened each night
        return DumpFormat.PARQUET
    try:
        with filesystem.open_input_stream(path, compression="detect") as stream:
            head: bytes = stream.read(HEAD_BYTES)
    except OSError:
        return None
    if head.startswith(_PARQUET_MAGIC):
        return DumpFormat.PARQUET
    if head.lstrip().startswith(b"{"):
        return DumpFormat.JSON
    return DumpFormat.DUMP_LOG if _DUMP_LOG_START.search(head) else None


def _delta_files(uri: str) -> Found:
    try:
        table = DeltaTable(uri)
        if table.metadata().configuration.get(COLUMN_MAPPING, "none") != "none":
            raise SourceError(f"{uri} maps its columns: write the dump to a table without {COLUMN_MAPPING}")
        adds = pa.table(table.get_add_actions(flatten=False))
        columns = pa.schema(table.schema().to_arrow())
        if pa.table(table.deletion_vectors()).num_rows:
            raise SourceError(f"{uri} has deletion vectors: apply them first, as REORG TABLE ... APPLY (PURGE) does")
        paths = table.file_uris()
    except DeltaError as error:
        raise SourceError(f"cannot read the Delta table {uri}: {str(error).splitlines()[0]}") from error
    by_name = {posixpath.basename(unquote(action["path"])): action for action in adds.to_pylist()}
    files = []
    for path in sorted(paths):
        action = by_name[posixpath.basename(unquote(path))]
        values = action.get("partition") or {}
        constants = {name: None if value is None else str(value) for name, value in values.items()}
        typed = {name: pa.scalar(value, columns.field(name).type) for name, value in values.items()}
        files.append(DumpFile(path, DumpFormat.PARQUET, int(action["size_bytes"]), constants, typed))
    return Found(files, [], columns)


def rearranged_files(uri: str, files: Sequence[DumpFile], is_known: Callable[[DumpFile], bool]) -> dict[str, DumpFile]:
    """Those of some files of a Delta table, by path, that have rows of known files alone, as OPTIMIZE writes them.

    Commits of such files replace others without a change of data. The log is read backwards, to the oldest commit of
    these files; where it has that no more, they are not among those returned.
    """
    filesystem, root = filesystem_of(f"{uri.rstrip('/')}/_delta_log")
    entries = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    commits = sorted((it.path for it in entries if _COMMIT.fullmatch(it.base_name)), reverse=True)
    sought = {posixpath.basename(unquote(file.path)): file for file in files}
    found = dict(sought)
    made_of: dict[str, list[DumpFile]] = {}
    for commit in commits:
        if not sought:
            break
        with filesystem.open_input_stream(commit) as stream:
            actions = [json.loads(line) for line in stream.read().splitlines()]
        added, removed = (_changed(uri, actions, kind) for kind in ("add", "remove"))
        is_rearranged = all(not action["dataChange"] for action, _ in (*added.values(), *removed.values()))
        if is_rearranged and not removed:
            continue  # statistics of files that are there already
        if is_rearranged and sought.keys() & added.keys():
            made_of |= {name: [file for _, file in removed.values()] for name in sought.keys() & added.keys()}
            sought |= {name: file for name, (_, file) in removed.items() if not is_known(file)}
        sought = {name: file for name, file in sought.items() if name not in added}
    whole: set[str] = set()
    for name, sources in reversed(made_of.items()):
        if all(is_known(it) or posixpath.basename(it.path) in whole for it in sources):
            whole.add(name)
    return {file.path: file for name, file in found.items() if name in whole}


def _changed(
    uri: str, actions: Sequence[Mapping[str, Any]], kind: str
) -> dict[str, tuple[Mapping[str, Any], DumpFile]]:
    """Actions of a commit of Delta's log, by the name of their file."""
    changed = {}
    for action in (it[kind] for it in actions if kind in it):
        path = unquote(action["path"])
        file = DumpFile(f"{uri.rstrip('/')}/{path}", DumpFormat.PARQUET, action.get("size", -1), {})
        changed[posixpath.basename(unquote(path))] = action, file
    return changed


class Line(NamedTuple):
    """One line, or one of several JSON objects on a line."""

    number: int
    """From 1; counts lines and objects alike, as returned."""
    position: int
    """Byte position in the decompressed file."""
    data: bytes
    """Without the line end; only the beginning of an overlong line."""
    is_whole: bool


_BACK_TO_BACK: Final = b'}{"key":'
"""The console formatters write no line ends: an object with this beginning starts a new line. Quotes are escaped
inside JSON strings, so this occurs only between objects."""


def read_lines(stream: IO[bytes] | Any, *, bytes_max: int = LINE_BYTES_MAX) -> Iterator[Line]:
    """Yield the lines of a binary stream; empty ones are counted but not yielded. Buffers one line plus `READ_BYTES`.

    Of a line longer than `bytes_max` only the beginning is returned.
    """
    number, position = 0, 0
    buffered = bytearray()
    is_skipping = False
    searched = 0
    while data := stream.read(READ_BYTES):
        buffered += data
        start = 0
        for end, next_start in _line_ends(buffered, max(searched - len(_BACK_TO_BACK), 0)):
            number += 1
            if end > start and not is_skipping:
                yield Line(number, position + start, bytes(buffered[start:end]), True)
            is_skipping = False
            start = next_start
        position += start
        del buffered[:start]
        if is_skipping:
            # keep only what could be the beginning of a line end
            drop = max(len(buffered) - len(_BACK_TO_BACK), 0)
            position += drop
            del buffered[:drop]
        elif len(buffered) > bytes_max:
            yield Line(number + 1, position, bytes(buffered[:bytes_max]), False)
            is_skipping = True
        searched = len(buffered)
    if buffered and not is_skipping:
        yield Line(number + 1, position, bytes(buffered), True)


def _line_ends(data: bytearray, searched: int) -> Iterator[tuple[int, int]]:
    """Yield where lines end and where the next ones begin. Bytes before `searched` were searched already."""
    newline, between = data.find(b"\n", searched), data.find(_BACK_TO_BACK, searched)
    while newline >= 0 or between >= 0:
        if between >= 0 and (newline < 0 or between < newline):
            yield between + 1, between + 1
            between = data.find(_BACK_TO_BACK, between + 1)
        else:
            has_return = newline > 0 and data[newline - 1] == ord("\r")
            yield newline - has_return, newline + 1
            newline = data.find(b"\n", newline + 1)
