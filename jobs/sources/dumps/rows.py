"""Read dump rows with raw keys and values, from Parquet files and JSON lines, as Arrow tables of one schema; of Parquet
files also rows with whole batches.

A row that cannot be a record becomes a `BadRow` with its place; the other rows are read. `DumpColumns` maps columns;
the defaults are the columns of Spark's Kafka source.
"""

import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from coordinator_core.bytes.log.batch import encode_headers
from coordinator_core.bytes.log.chunk import BoolArray
from coordinator_core.bytes.log.pack import NO_HEADERS, RECORD_BYTES_MAX
from coordinator_core.limits import PARTITION_COUNT_MAX, QUARANTINE_BYTES_MAX
from jobs.delta.scanner import Scanner
from jobs.delta.times import EPOCH
from jobs.errors import SourceError
from jobs.settings import BATCH_COLUMNS, DUMP_COLUMNS, SPELLINGS, DumpSettings
from jobs.sources.dumps.files import Line
from jobs.sources.dumps.framing import framed
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC

ROWS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("is_log_append_time", pa.bool_()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("producer_id", pa.int64()),
        pa.field("is_transactional", pa.bool_()),
        pa.field("is_control", pa.bool_()),
        pa.field("base_offset", pa.int64()),
    ]
)
"""Records of a dump. `timestamp_ms` -1: none; `headers`: in wire format; `producer_id` null: it is not known whether
there is one, and what it wrote in transactions; `base_offset` -1: not known."""
BATCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("batch", pa.binary()),
    ]
)
"""Batches: rows of a dump that hold them, and the output of kafka-dump-log."""
STORED_OF_BATCHES: Final = {"topic": "topic", "partition": "partition", "offset": "base_offset", "key": "batch"}
"""What a row that holds a batch has in place of the columns of a record; its value is null."""
NO_BATCH: Final = {"producer_id": None, "is_transactional": False, "is_control": False, "base_offset": -1}
"""Values of the last columns where a dump has keys and values alone."""

OFFSET_MAX: Final = 2**63 - 2
READ_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum size of Parquet rows read at a time, by the average row."""
READ_ROWS_MAX: Final = 256 * 1024
LINES_AT_A_TIME: Final = 4096
LINE_BYTES_AT_A_TIME: Final = 16 * 1024 * 1024

BAD_ROW: Final = "BAD_ROW"
"""Code for a row that cannot be a record."""

UNDECODED: Final = "key or value is not in the encoding (dump_encoding)"
NO_BATCH_HERE: Final = "no whole batch of message format 2 with this base offset and the right checksum"

Encoding = str
"""auto, base64 or hex."""


REQUIRED: Final = ("partition", "offset", "key", "value")


@dataclass(frozen=True, slots=True)
class RowRules:
    """How to interpret the rows of a dump."""

    dump: DumpSettings
    topics: tuple[str, ...]
    """Rows of other topics are counted and left out."""
    cluster_id: str
    """So are those that name another cluster."""

    def names(self, name: str) -> tuple[str, ...]:
        """Names that a column may have: the first one that is there counts."""
        column = getattr(self.dump.columns, name)
        return (column, *SPELLINGS.get(name, ())) if column == name else (column,)


class BadRow(NamedTuple):
    """A row that is not a record."""

    message: str
    """Place and reason."""
    topic: str | None
    partition: int | None
    offset: int | None
    byte_position: int | None
    payload: bytes
    code: str = BAD_ROW
    group_id: str | None = None
    """Group of the record, if the line contains it."""


class RowsRead(NamedTuple):
    rows: pa.Table
    """In ROWS_SCHEMA or BATCHES_SCHEMA."""
    bad: list[BadRow]
    other_topic_count: int
    other_clusters: Counter[str]
    """Other clusters, and how many rows each has."""


# --- Parquet


def read_parquet(
    source: Any,
    rules: RowRules,
    constants: Mapping[str, str | None],
    row_groups: Sequence[int] | None = None,
    where: Callable[[pa.Table], BoolArray] | None = None,
) -> Iterator[RowsRead]:
    """Yield the rows of an open Parquet file in portions. `where`: which rows of a portion are wanted.

    Raises SourceError for missing columns or wrong types, and pyarrow's errors for a damaged file.
    """
    scanner = Scanner.of_open(source)
    twice = [name for name, count in Counter(scanner.schema.names).items() if count > 1]
    if twice:
        raise SourceError(f"it has two columns {twice[0]}: write it with one")
    counts = scanner.row_counts
    has_batches = BATCH_COLUMNS.issubset(scanner.schema.names)
    names = dict(STORED_OF_BATCHES) if has_batches else _stored_names(scanner.schema, rules, constants)
    if has_batches and "cluster_id" in scanner.schema.names:
        names["cluster_id"] = "cluster_id"
    row_bytes = max(sum(scanner.row_group_bytes), 1)
    row_count = max(min(READ_BYTES_MAX * max(sum(counts), 1) // row_bytes, READ_ROWS_MAX), 1)
    chosen = list(range(len(counts))) if row_groups is None else list(row_groups)
    first_row = sum(counts[: chosen[0]]) if chosen else 0
    columns = sorted(set(names.values())) if where is None else scanner.schema.names
    for batch in scanner.batches(columns, rows_max=row_count, indices=chosen):
        found = _found_columns(batch, names, constants, rules)
        if where is not None:
            found = found._replace(is_wanted=where(pa.Table.from_batches([batch])))
        yield _checked(found, rules, partial(_row_place, first_row))
        first_row += batch.num_rows


def _row_place(first_row: int, row: int) -> str:
    return f"row {first_row + row}"


def _stored_names(schema: pa.Schema, rules: RowRules, constants: Mapping[str, str | None]) -> dict[str, str]:
    """Our name -> name in the file, for columns that the file has."""
    there = [*schema.names, *(f"{item.name}.{part.name}" for item in schema for part in _parts(item))]
    found = {name: next((it for it in rules.names(name) if it in there), None) for name in DUMP_COLUMNS}
    stored = {name: column for name, column in found.items() if column is not None}
    required = REQUIRED if rules.dump.topic else ("topic", *REQUIRED)
    for name in required:
        if name not in stored and not any(it in constants for it in rules.names(name)):
            remedy = "; or name the topic (dump_topic)" if name == "topic" else ""
            raise SourceError(
                f"a dump needs a column for the {name}: there is no {rules.names(name)[0]!r} among "
                f"{', '.join([*schema.names, *constants])[:500]}. Set dump_columns.{name}{remedy}"
            )
    return stored


def _parts(item: pa.Field) -> Iterator[pa.Field]:
    return iter(item.type) if pa.types.is_struct(item.type) else iter(())


def _stored(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a field of one that is a struct."""
    if name in batch.schema.names:
        return batch.column(name)
    column, _, part = name.partition(".")
    return pc.struct_field(batch.column(column), part)


class _Columns(NamedTuple):
    """The columns of ROWS_SCHEMA, for batches also those of BATCHES_SCHEMA, as found: null where a value is missing or
    invalid."""

    arrays: dict[str, pa.Array]
    fault: tuple[BoolArray, str]
    """Rows whose key or value cannot be read, and why."""
    cluster_id: pa.Array
    """Null: of the cluster of the run."""
    is_wanted: BoolArray | None = None
    """None: all rows are."""
    schema: pa.Schema = ROWS_SCHEMA
    """Of what is read."""


def _found_columns(
    batch: pa.RecordBatch, names: Mapping[str, str], constants: Mapping[str, str | None], rules: RowRules
) -> _Columns:
    count = batch.num_rows

    def column(name: str) -> pa.Array | None:
        if name in names:
            found = _stored(batch, names[name])
            return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
        mapped = next((it for it in rules.names(name) if it in constants), None)
        return None if mapped is None else pa.repeat(pa.scalar(constants[mapped], pa.string()), count)

    topic = column("topic")
    if topic is None:
        topic = pa.repeat(pa.scalar(rules.dump.topic), count)
    if not _is_text(topic.type):
        raise _wrong_type("topic", topic.type, "texts")
    key, is_bad_key = _binary("key", column("key"), rules.dump.encoding)
    stored, base_offset = column("value"), _integers("offset", column("offset"))
    if stored is None:  # a row is a batch
        value, schema = pa.nulls(count, pa.binary()), BATCHES_SCHEMA
        framed_at, last_offset = framed(key)
        fault = framed_at != base_offset.fill_null(-1).to_numpy(), NO_BATCH_HERE
        of_batches = {"base_offset": base_offset, "last_offset": pa.array(last_offset), "batch": key}
    else:
        value, is_bad_value = _binary("value", stored, rules.dump.encoding)
        fault = is_bad_key | is_bad_value, UNDECODED
        of_batches, schema = {}, ROWS_SCHEMA
    arrays = {
        "topic": topic.cast(pa.string()),
        "partition": _integers("partition", column("partition")),
        "offset": base_offset,
        "timestamp_ms": _times(column("timestamp"), count),
        "is_log_append_time": _time_kinds(column("timestamp_type"), count),
        "key": key,
        "value": value,
        "headers": _headers(column("headers"), count),
        **_of_batches({name: column(name) for name in NO_BATCH}, count),
    }
    cluster_id = column("cluster_id")
    if cluster_id is None or pa.types.is_null(cluster_id.type):
        cluster_id = pa.nulls(count, pa.string())
    if not _is_text(cluster_id.type):
        raise _wrong_type("cluster_id", cluster_id.type, "texts")
    return _Columns(arrays | of_batches, fault, cluster_id, schema=schema)


def _of_batches(found: Mapping[str, pa.Array | None], count: int) -> dict[str, pa.Array]:
    """The columns of `NO_BATCH`. Without markers no transaction ever ends, so producers count only where markers do."""
    columns = {
        name: pa.repeat(pa.scalar(value, ROWS_SCHEMA.field(name).type), count) for name, value in NO_BATCH.items()
    }
    if found["base_offset"] is not None:
        columns["base_offset"] = _integers("base_offset", found["base_offset"]).fill_null(-1)
    if found["producer_id"] is not None and found["is_control"] is not None:
        producer_id, is_control = (
            _integers("producer_id", found["producer_id"]),
            _flags("is_control", found["is_control"]),
        )
        is_known = pc.is_valid(is_control)
        in_transaction = pc.greater_equal(producer_id, 0)
        if found["is_transactional"] is not None:
            in_transaction = pc.coalesce(_flags("is_transactional", found["is_transactional"]), in_transaction)
        columns["producer_id"] = pc.if_else(is_known, producer_id, None)
        columns["is_transactional"] = pc.and_(in_transaction, is_known).fill_null(False)
        columns["is_control"] = is_control.fill_null(False)
    return columns


def _flags(name: str, values: pa.Array) -> pa.Array:
    if not pa.types.is_boolean(values.type):
        raise _wrong_type(name, values.type, "booleans")
    return values


def _wrong_type(name: str, found: pa.DataType, wanted: str) -> SourceError:
    return SourceError(f"the column for the {name} of a dump holds {found}, not {wanted}: cast it when it is dumped")


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _integers(name: str, values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        if values.type == pa.uint64():
            values = pc.if_else(pc.less_equal(values, pa.scalar(OFFSET_MAX, pa.uint64())), values, None)
        return values.cast(pa.int64())
    if _is_text(values.type):
        is_number = pc.match_substring_regex(values, r"^-?[0-9]{1,18}$")
        return pc.if_else(is_number, values, None).cast(pa.int64())
    raise _wrong_type(name, values.type, "whole numbers")


_MS_OF_UNIT: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def _times(values: pa.Array | None, count: int) -> pa.Array:
    """Epoch milliseconds; -1 where there is none."""
    if values is None or pa.types.is_null(values.type):
        return pa.repeat(pa.scalar(-1, pa.int64()), count)
    if pa.types.is_timestamp(values.type):
        factor, divisor = _MS_OF_UNIT[values.type.unit]
        numbers = values.cast(pa.int64())
        is_missing = numbers.is_null().to_numpy(zero_copy_only=False)
        ms = numbers.fill_null(0).to_numpy(zero_copy_only=False) // divisor * factor
        return pa.array(np.where(is_missing, -1, ms))
    if pa.types.is_integer(values.type) and values.type != pa.uint64():
        return values.cast(pa.int64()).fill_null(-1)
    raise _wrong_type("timestamp", values.type, "timestamps or epoch milliseconds")


LOG_APPEND_NAMES: Final = ("logappendtime", "log_append_time", "1")


def _time_kinds(values: pa.Array | None, count: int) -> pa.Array:
    """Is it log append time? Spark's source uses 0 for CreateTime and 1 for LogAppendTime."""
    if values is None or pa.types.is_null(values.type):
        return pa.repeat(pa.scalar(False), count)
    if pa.types.is_integer(values.type):
        return pc.equal(values, pa.scalar(1, values.type)).fill_null(False)
    if _is_text(values.type):
        return pc.is_in(pc.utf8_lower(values.cast(pa.string())), pa.array(LOG_APPEND_NAMES)).fill_null(False)
    raise _wrong_type("timestamp_type", values.type, "0 and 1, or names")


def _binary(name: str, values: pa.Array, encoding: Encoding) -> tuple[pa.Array, BoolArray]:
    """Decoded bytes, and which values are text in another encoding."""
    type_ = values.type
    fine = np.zeros(len(values), np.bool_)
    if _is_text(type_):
        decoded: list[bytes | None] = []
        for row, text in enumerate(values.to_pylist()):
            try:
                decoded.append(None if text is None else decoded_text(text, encoding))
            except ValueError:
                decoded.append(None)
                fine[row] = True
        return pa.array(decoded, pa.binary()), fine
    if pa.types.is_nested(type_) or not (pa.types.is_null(type_) or "binary" in str(type_)):
        raise _wrong_type(name, type_, "bytes, or text in base64 or hex")
    return values.cast(pa.binary()), fine


def decoded_text(text: str, encoding: Encoding) -> bytes:
    """Decode base64 or hex. Raises ValueError for anything else.

    With `auto` the first character decides. Keys begin with a record type below 256 and values with a version or frame
    version below 16, so their first byte is 0 or 1, which is `A` in base64 and `0` in hex.
    """
    is_hex = text.startswith("0") if encoding == "auto" else encoding == "hex"
    if is_hex:
        return binascii.unhexlify(text)
    return binascii.a2b_base64(text, strict_mode=True)


def _headers(values: pa.Array | None, count: int) -> pa.Array:
    """Headers in wire format, from a list of (key, value) structs or a map. Coordinators write no headers."""
    none = pa.scalar(NO_HEADERS)
    if values is None or pa.types.is_null(values.type):
        return pa.repeat(none, count)
    if not pa.types.is_list(values.type) and not pa.types.is_map(values.type):
        raise _wrong_type("headers", values.type, "a list of keys and values")
    lengths = pc.list_value_length(values).fill_null(0)
    if not pc.any(pc.greater(lengths, 0)).as_py():
        return pa.repeat(none, count)
    return pa.array([encode_headers(_pairs(item)) for item in values.to_pylist()], pa.binary())


def _pairs(item: Any) -> list[tuple[str, bytes | None]]:
    pairs = []
    for pair in item or ():
        name, value = tuple(pair.values()) if isinstance(pair, dict) else pair
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise _wrong_type("headers", pa.null(), "texts as keys and bytes as values")
        pairs.append((name, value))
    return pairs


# --- checks


def _checked(found: _Columns, rules: RowRules, place_of: Callable[[int], str]) -> RowsRead:
    """Separate the records of the wanted topics from rows that are not records."""
    rows = pa.table(found.arrays)
    count = rows.num_rows
    topics = pc.is_in(rows["topic"], pa.array(rules.topics, pa.string()))
    is_wanted = topics.to_numpy(zero_copy_only=False) | rows["topic"].is_null().to_numpy()
    is_other = pc.not_equal(found.cluster_id, rules.cluster_id).fill_null(False).to_numpy(zero_copy_only=False)
    others = Counter(found.cluster_id.filter(pa.array(is_wanted & is_other)).to_pylist())
    other_topic_count = int(count - is_wanted.sum())
    is_wanted &= ~is_other
    if found.is_wanted is not None:
        is_wanted &= found.is_wanted
    partition, is_no_partition = _numbers(rows["partition"])
    offset, is_no_offset = _numbers(rows["offset"])
    is_keyless = rows["key"].is_null().to_numpy()
    sizes = sum(pc.binary_length(rows[name]).fill_null(0).to_numpy() for name in ("key", "value", "headers"))
    # the only supported topic whose records have no keys
    needs_key = pc.not_equal(rows["topic"], METADATA_TOPIC).fill_null(True).to_numpy(zero_copy_only=False)
    faults = (
        (rows["topic"].is_null().to_numpy(), "no topic"),
        (is_no_partition | (partition < 0) | (partition >= PARTITION_COUNT_MAX), "no partition that can be"),
        (is_no_offset | (offset < 0) | (offset > OFFSET_MAX), "no offset that can be"),
        found.fault,
        (is_keyless & needs_key, "no key"),
        (sizes > RECORD_BYTES_MAX, "key and value are larger than a record can be"),
    )
    is_good = is_wanted.copy()
    reasons: dict[int, str] = {}
    for is_fault, reason in faults:
        reasons |= dict.fromkeys(np.flatnonzero(is_good & is_fault).tolist(), reason)
        is_good &= ~is_fault
    bad = [_bad_row(rows, row, f"{place_of(row)}: {reason}") for row, reason in sorted(reasons.items())]
    columns = [rows[field.name].combine_chunks().cast(field.type, safe=False) for field in found.schema]
    good = pa.Table.from_arrays(columns, schema=found.schema)
    if not is_good.all():
        good = good.filter(pa.array(is_good))
    return RowsRead(good, bad, other_topic_count, others)


def _numbers(values: pa.ChunkedArray) -> tuple[NDArray[np.int64], BoolArray]:
    return values.fill_null(-1).to_numpy(), values.is_null().to_numpy()


def _bad_row(rows: pa.Table, row: int, message: str) -> BadRow:
    partition, offset = rows["partition"][row].as_py(), rows["offset"][row].as_py()
    payload = rows["key"][row].as_py() or rows["value"][row].as_py() or b""
    return BadRow(
        message=message,
        topic=rows["topic"][row].as_py(),
        partition=partition if partition is not None and 0 <= partition < PARTITION_COUNT_MAX else None,
        offset=offset,
        byte_position=None,
        payload=payload[:QUARANTINE_BYTES_MAX],
    )


# --- JSON lines


def read_json_lines(lines: Iterable[Line], rules: RowRules, constants: Mapping[str, str | None]) -> Iterator[RowsRead]:
    """Yield the rows of JSON lines in portions. A missing field equals null, since Spark leaves out null fields."""
    values = _JsonColumns(rules, constants)
    for line in lines:
        values.add(line)
        if values.is_full:
            yield values.take()
    yield values.take()


class _JsonColumns:
    """Fields of some lines, by column."""

    def __init__(self, rules: RowRules, constants: Mapping[str, str | None]) -> None:
        self._rules = rules
        self._constants = constants
        self._clear()

    def _clear(self) -> None:
        self._lines: list[Line] = []
        self._rows: list[tuple[Any, ...]] = []
        self._bad: list[BadRow] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Are there enough lines for one table?"""
        return len(self._rows) + len(self._bad) >= LINES_AT_A_TIME or self._bytes >= LINE_BYTES_AT_A_TIME

    def add(self, line: Line) -> None:
        """Parse one line."""
        self._bytes += len(line.data)
        try:
            self._rows.append(self._row(line))
            # keep the beginning of a long line, in case it is not a record
            self._lines.append(line._replace(data=line.data[:QUARANTINE_BYTES_MAX]))
        except (ValueError, RecursionError, SourceError) as error:
            reason = str(error) if type(error) in (_NotARow, SourceError) else "not a JSON object"
            self._bad.append(bad_line(line, reason))

    def take(self) -> RowsRead:
        """The rows since the last call."""
        lines, bad = self._lines, self._bad
        cluster_id, *columns = list(zip(*self._rows, strict=True)) or [()] * (1 + len(ROWS_SCHEMA))
        arrays = {
            field.name: pa.array(column, _JSON_TYPES.get(field.name, field.type))
            for field, column in zip(ROWS_SCHEMA, columns, strict=True)
        }
        found = _Columns(arrays, (np.zeros(len(lines), np.bool_), UNDECODED), pa.array(cluster_id, pa.string()))
        read = _checked(found, self._rules, lambda row: f"line {lines[row].number}")
        # a bad row of a text file is reported with its line
        positions = {f"line {line.number}": line for line in lines} if read.bad else {}
        for row in read.bad:
            line = positions[row.message.partition(":")[0]]
            bad.append(row._replace(byte_position=line.position, payload=line.data))
        self._clear()
        return read._replace(bad=bad)

    def _row(self, line: Line) -> tuple[Any, ...]:
        if not line.is_whole:
            raise _NotARow("a line longer than any record")
        node = json.loads(line.data)
        if not isinstance(node, dict):
            raise _NotARow("not a JSON object")
        rules = self._rules

        def found(name: str) -> Any:
            for column in rules.names(name):
                whole, _, part = column.partition(".")
                for fields in (node, self._constants):
                    if column in fields:
                        return fields[column]
                    if part and isinstance(inner := fields.get(whole), dict) and part in inner:
                        return inner[part]
            return None

        topic = found("topic")
        return (
            _text(found("cluster_id"), "cluster_id"),
            rules.dump.topic if topic is None and rules.dump.topic else _text(topic, "topic"),
            _whole(found("partition"), "partition"),
            _whole(found("offset"), "offset"),
            _json_time(found("timestamp")),
            str(found("timestamp_type")).lower() in LOG_APPEND_NAMES,
            _json_bytes(found("key"), "key", rules.dump.encoding),
            _json_bytes(found("value"), "value", rules.dump.encoding),
            encode_headers(_json_headers(found("headers"), rules.dump.encoding)),
            *_json_batch({name: found(name) for name in NO_BATCH}),
        )


_JSON_TYPES: Final = {"partition": pa.int64()}


class _NotARow(ValueError):
    """Why a line is not a row."""


def bad_line(line: Line, reason: str) -> BadRow:
    """A line that is not a record."""
    payload = line.data[:QUARANTINE_BYTES_MAX]
    return BadRow(f"line {line.number}: {reason}", None, None, None, line.position, payload)


def _text(value: Any, name: str) -> str | None:
    if not isinstance(value, str | None):
        raise _NotARow(f"the {name} is no text")
    if value is not None and not value.isascii():
        raise _NotARow(f"no {name} of Kafka")
    return value


def _whole(value: Any, name: str) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if value is None:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _NotARow(f"the {name} is no whole number")
    return value


def _json_time(value: Any) -> int:
    """Epoch milliseconds, or ISO 8601 as Spark writes it; -1 for null."""
    if value is None:
        return -1
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise _NotARow("the timestamp is no time") from None
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _NotARow("the timestamp is no time")
    return value


def _json_batch(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `NO_BATCH`."""
    made = dict(NO_BATCH)
    base_offset, producer_id = (_whole(found[name], name) for name in ("base_offset", "producer_id"))
    made["base_offset"] = -1 if base_offset is None else base_offset
    for name in ("is_control", "is_transactional"):
        if not isinstance(found[name], bool | None):
            raise _NotARow(f"{name} is neither true nor false")
    if producer_id is not None and found["is_control"] is not None:
        in_transaction = producer_id >= 0 if found["is_transactional"] is None else found["is_transactional"]
        made |= {"producer_id": producer_id, "is_transactional": in_transaction, "is_control": found["is_control"]}
    return tuple(made.values())


def _json_bytes(value: Any, name: str, encoding: Encoding) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _NotARow(f"the {name} is no text in base64 or hex")
    try:
        return decoded_text(value, encoding)
    except ValueError:
        raise _NotARow(f"the {name} is not in the encoding (dump_encoding)") from None


def _json_headers(value: Any, encoding: Encoding) -> list[tuple[str, bytes | None]]:
    """Parse `[{"key": ..., "value": ...}]`, as Spark writes headers."""
    if value is None:
        return []
    pairs = []
    for item in value if isinstance(value, list) else [None]:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str) or not item["key"].isprintable():
            raise _NotARow("the headers are no list of keys and values")
        name = item["key"]
        # a header value may be any bytes, so its first character does not identify the encoding
        pairs.append((name, _json_bytes(item.get("value"), "header", "base64" if encoding == "auto" else encoding)))
    return pairs
