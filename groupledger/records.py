"""Raw records as a DataFrame: which columns are read, under which names, and with which types.

Columns of Spark's Kafka source are accepted as they are, and so are the metadata columns of Kafka Connect's sinks. For
other names or types, callers pass an argument; nothing is guessed from the content. Record batches, from `kafka_log`
and `bronze.record_batches`, are decoded into records here.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructField, StructType

from coordinator_core.bytes.log.chunk import (
    CONTROL_NONE,
    CONTROL_UNKNOWN,
    I32,
    I64,
    U8,
    BoolArray,
    Finding,
    RecordChunk,
)
from coordinator_core.bytes.log.kernels import read_only
from coordinator_core.bytes.log.records import as_u8, decode_chunk
from coordinator_core.replay.columnar.offsets_kernels import gather_bytes
from coordinator_core.replay.offsets.operations import operation_first_offsets
from jobs.delta.arrow_schemas import arrow_type, sql_type
from jobs.delta.spark_schemas import spark_schema
from jobs.errors import JobError
from jobs.settings import BATCH_COLUMNS, SPELLINGS
from jobs.silver.tasks import CHUNK_DECOMPRESSED_BYTES_MAX
from jobs.sources.segments import CHUNK_BYTES_MAX
from schemas.tables.declare import BIGINT, BINARY, BOOLEAN, INT, STRING, TINYINT, Table
from schemas.tables.declare import Column as Declared

ColumnNames = Mapping[str, str | Column]
"""The caller's columns for names in `EXPECTED`: a column name, or an expression such as `F.unbase64("key_text")`."""


class RecordsError(JobError):
    """A DataFrame is not one of records: names the column and the remedy. Raised before any job runs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A column of raw records."""

    meaning: str
    types: tuple[str, ...]
    """Spark's names of the accepted types."""
    name: str
    is_required: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Accepted names, unless the caller gives one; the first existing name counts."""
        return self.name, *SPELLINGS.get(self.name, ())


_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")


EXPECTED: Final[Mapping[str, Expected]] = {
    "key": Expected("the bytes of the record's key", ("binary",), "key", is_required=True),
    "value": Expected("the bytes of the record's value", ("binary",), "value", is_required=True),
    "partition": Expected("partition of the internal topic", _INTEGERS, "partition", is_required=True),
    "offset": Expected("the record's offset", _INTEGERS, "offset", is_required=True),
    "timestamp": Expected(
        "the record's timestamp; whole numbers are epoch milliseconds",
        ("timestamp", "bigint"),
        "timestamp",
        is_required=True,
    ),
    "topic": Expected("the internal topic", ("string",), "topic"),
    "cluster_id": Expected("the Kafka cluster", ("string",), "cluster_id"),
    "base_offset": Expected("base offset of the record's batch", _INTEGERS, "base_offset"),
    "producer_id": Expected("producer id of the record's batch, -1 where none", _INTEGERS, "producer_id"),
    "is_transactional": Expected("written in a transaction", ("boolean",), "is_transactional"),
    "is_control": Expected("the row is a transaction marker", ("boolean",), "is_control"),
    "control_type": Expected("COMMIT or ABORT of a marker", ("string",), "control_type"),
}
"""The columns of raw records, by the names in the argument `columns`."""

_CASTABLE: Final = ("string", *_INTEGERS, "decimal", "double", "float")
_CAST: Final = "F.expr({cast})"
_TO_TIME: Final = "F.to_timestamp({it})"
_OF_TIME: Final = f"{_CAST} where it is epoch milliseconds"
REMEDIES: Final[Mapping[str, Mapping[str, str]]] = {
    "key": {"string": "F.unbase64({it}) where it is base64, F.unhex({it}) where it is hexadecimal"},
    "timestamp": {
        **dict.fromkeys(("string", "date", "int"), _TO_TIME),
        **dict.fromkeys(("decimal", "double", "float"), _OF_TIME),
        "timestamp_ntz": f"{_TO_TIME}, which takes it for a time of spark.sql.session.timeZone",
    },
    "bigint": dict.fromkeys(_CASTABLE, _CAST),
    "string": dict.fromkeys((*_CASTABLE, "binary"), _CAST),
    "boolean": dict.fromkeys(("string", *_INTEGERS), _CAST),
}
"""Expressions that convert a column: by its name here, or by the required type; then by the type it has."""
REMEDIES_OF_PARTS: Final[Mapping[str, str]] = {
    "struct": "F.col({it})['FIELD']",
    "map": "F.col({it})['KEY']",
    "array": "F.col({it})[0]",
    "variant": "F.variant_get({it}, '$.FIELD', {type})",
}
"""Expressions that extract a part of a column, by the column's type."""
REMEDIES_OF_NULLS: Final[Mapping[str, str]] = {
    "value": "F.lit(None).cast('binary') where all records are tombstones",
    "timestamp": "F.lit(None).cast('timestamp') where nobody knows the time",
}
"""Expressions for required columns of type VOID."""

EXPECTED_OF_BATCHES: Final[Mapping[str, Expected]] = {
    **{name: EXPECTED[name] for name in ("topic", "partition", "base_offset", "cluster_id", "is_transactional")},
    "batch": Expected("a whole batch, as kafka_log gives it", ("binary",), "batch"),
    "crc_valid": Expected("the batch's CRC is right", ("boolean",), "crc_valid"),
}
"""The columns of record batches, under these names only."""

_OPENED: Final = (
    Declared("log_partition", INT, "Partition of the internal topic."),
    Declared("log_offset", BIGINT, "Offset of the record."),
    Declared("timestamp_ms", BIGINT, "Epoch milliseconds, -1 where none."),
    Declared("key", BINARY, "Its key."),
    Declared("value", BINARY, "Its value; null: a tombstone."),
    Declared("operation", BIGINT, "Offset of the first record of the coordinator's operation."),
    Declared("producer_id", BIGINT, "Producer id of the record's batch; -1: it has none; null: not known."),
    Declared("is_transactional", BOOLEAN, "The record's batch is transactional; null: not known."),
    Declared("control_type", TINYINT, "-1: data; 0: ABORT, 1: COMMIT."),
)
OPENED_TYPES: Final = {column.name: arrow_type(column.type) for column in _OPENED}
"""Arrow types of the normalized columns of records."""
_TOPIC: Final = Declared("topic", STRING, "Internal topic.")
_CLUSTER: Final = Declared("cluster_id", STRING, "The Kafka cluster.")


@dataclass(frozen=True, slots=True)
class Records:
    """Records with normalized column names: those in `_OPENED`, as far as the source has them.

    `key`, `value`, `log_partition`, `log_offset` and `timestamp_ms` always exist; `topic` and `cluster_id` if the
    source has them.
    """

    frame: DataFrame
    has_cluster: bool
    has_topic: bool
    has_markers: bool
    """`control_type` exists, so transactions can be decided."""
    batches: DataFrame | None = None
    """The batches from which the records were decoded, if any."""

    def named(self, cluster_id: str) -> "Records":
        """The same with their cluster as a column, which tells apart those of a state."""
        if self.has_cluster:
            return self
        cluster = F.lit(cluster_id)
        batches = None if self.batches is None else self.batches.withColumn("cluster_id", cluster)
        return replace(self, frame=self.frame.withColumn("cluster_id", cluster), batches=batches, has_cluster=True)

    @property
    def columns(self) -> list[str]:
        """The columns that replay reads, without topic and cluster."""
        return [column.name for column in _OPENED if column.name in self.frame.columns]


def require_frame(given: object, name: str) -> None:
    """Raises RecordsError for what is no DataFrame of Spark."""
    if hasattr(given, "isStreaming"):
        return
    of = type(given).__module__.partition(".")[0]
    what = type(given).__name__ + ("" if of in ("builtins", "pathlib") else f" of {of}")
    remedy = "spark.createDataFrame(...) makes one of it"
    if isinstance(given, str | PathLike):
        remedy = f"spark.read.parquet({str(given)!r}), or what reads its format"
    raise RecordsError(f"{name} must be a DataFrame of Spark, and is a {what}: {remedy}")


def require_time(at: object) -> None:
    """Raises RecordsError for what is no time."""
    if at is not None and not isinstance(at, datetime):
        raise RecordsError(
            f"at is a {type(at).__name__}: give a datetime, as datetime(2026, 11, 22, tzinfo=UTC) for the day before"
        )


def read_records(records: DataFrame, columns: ColumnNames | None = None, *, decides: bool = False) -> Records:
    """The columns of `records` with normalized names. Raises RecordsError for a missing or mistyped one.

    `decides`: transactions are to be decided, for which producers must be known.
    """
    require_frame(records, "records")
    named = dict(columns or {})
    if unknown := sorted(named.keys() - EXPECTED.keys()):
        raise RecordsError(f"columns names {unknown[0]!r}, which is none of: {', '.join(EXPECTED)}")
    if not named and {name.lower() for name in records.columns} >= BATCH_COLUMNS:
        return _opened(records)
    found, types = _found(records, EXPECTED, named)
    require_together(found, decides=decides)
    has_producers = "producer_id" in found
    is_control = found.get("is_control")
    shown = {
        "cluster_id": found.get("cluster_id"),
        "topic": found.get("topic"),
        "log_partition": _int(found["partition"]),
        "log_offset": found["offset"].cast("bigint"),
        "timestamp_ms": found["timestamp"] if types["timestamp"] == "bigint" else F.unix_millis(found["timestamp"]),
        "key": found["key"],
        "value": found["value"],
        "operation": found["base_offset"].cast("bigint") if "base_offset" in found else None,
        "producer_id": found["producer_id"].cast("bigint") if has_producers else None,
        "is_transactional": found.get("is_transactional", found["producer_id"] >= 0) if has_producers else None,
        "control_type": None if is_control is None else _control_type(is_control, found),
    }
    frame = records.select(*(column.alias(name) for name, column in shown.items() if column is not None))
    return Records(
        frame,
        has_cluster="cluster_id" in found,
        has_topic="topic" in found,
        has_markers=has_producers and is_control is not None,
    )


def require_together(names: Collection[str], *, decides: bool) -> None:
    """Raises RecordsError for a column that needs another one, which is missing."""
    if "control_type" in names and "is_control" not in names:
        raise RecordsError(
            "records have 'control_type' and no 'is_control', which says which rows are transaction markers: give it, "
            "as F.col('control_type').isNotNull() where only markers have a control_type, or leave control_type out"
        )
    for name in ("is_control", "is_transactional"):
        if decides and name in names and "producer_id" not in names:
            raise RecordsError(
                f"records have {name!r} and no 'producer_id', by which commits and markers of a transaction belong "
                f"together: give producer_id, or leave {name} out"
                + (", and the markers with it: where('not is_control')" if name == "is_control" else "")
            )


def _found(
    records: DataFrame, expected: Mapping[str, Expected], named: ColumnNames
) -> tuple[dict[str, Column], dict[str, str]]:
    """The columns in `expected` that exist, and their types."""
    parts = _parts(records)
    spelled = {name: _spelled(records, parts, name, of, named.get(name)) for name, of in expected.items()}
    found = {
        name: it if isinstance(it, Column) else records[quoted(it)] for name, it in spelled.items() if it is not None
    }
    try:
        schema = records.select(*(column.alias(name) for name, column in found.items())).schema
    except AnalysisException as error:
        raise RecordsError(f"columns has what Spark cannot resolve: {str(error).partition(';')[0]}") from error
    types = {field.name: field.dataType.simpleString() for field in schema}
    for name, type_ in types.items():
        if type_ not in expected[name].types:
            raise RecordsError(_mistyped(name, expected[name], type_, spelled[name]))
    return found, types


def _parts(records: DataFrame) -> dict[str, Column]:
    """The fields of columns that are structs, by their names with that of the column, in lower case."""
    return {
        f"{item.name}.{part.name}".lower(): records[quoted(item.name)].getField(part.name)
        for item in records.schema
        if isinstance(item.dataType, StructType)
        for part in item.dataType
    }


def _spelled(
    records: DataFrame, parts: Mapping[str, Column], name: str, expected: Expected, chosen: object
) -> str | Column | None:
    """The column for an expected one: its name as the records spell it, or an expression; None: there is none."""
    if isinstance(chosen, Column):
        return chosen
    there = {it.lower(): it for it in records.columns}
    spelling: str | None
    if chosen is None:
        spelling = next((it for it in expected.names if it in there or it in parts), None)
    elif isinstance(chosen, str) and chosen.lower() in there:
        spelling = chosen.lower()
    else:
        raise RecordsError(
            f"columns takes {name} from {chosen!r}, and records have {_listed(records)}: give one of these, or an "
            f"expression, as F.col({str(chosen)!r})"
        )
    if spelling is not None and spelling not in there:
        return parts[spelling]
    if spelling is not None:
        count = sum(it.lower() == spelling for it in records.columns)
        if count > 1:
            raise RecordsError(f"records have column {spelling!r} {count} times, which names {name}: drop all but one")
        return there[spelling]
    if expected.is_required:
        raise RecordsError(
            f"records have no column {name!r}: {expected.meaning}, {types_of(expected)}. They "
            f"have {_listed(records)}; say which one it is by columns={{{name!r}: NAME}}"
        )
    return None


def types_of(expected: Expected) -> str:
    """The types that a column may have, in words."""
    return " or ".join(expected.types).replace("tinyint or smallint or ", "").upper().replace(" OR ", " or ")


def _listed(records: DataFrame) -> str:
    return ", ".join(records.columns) or "no columns"


def quoted(name: str) -> str:
    """A column's name as Spark resolves it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def named_columns(frame: DataFrame, table: Table, required: Iterable[str]) -> DataFrame:
    """The columns of a table under their own names, however the DataFrame spells them.

    Raises RecordsError where it lacks a required one, or has one twice or with another type.
    """
    require_frame(frame, table.full_name)
    found: dict[str, list[StructField]] = {}
    for item in frame.schema:
        found.setdefault(item.name.lower(), []).append(item)
    for name in dict.fromkeys(("cluster_id", *required)):
        if name not in found:
            raise RecordsError(
                f"{table.full_name} has no column {name!r}: give the table as a replay or a warehouse has it; this one "
                f"has {', '.join(frame.columns) or 'no columns'}"
            )
        type_, declared = found[name][0].dataType.simpleString(), _type_of(table, name)
        if type_ != declared:
            raise RecordsError(
                f"column {name!r} of {table.full_name} is {type_.upper()} and not {declared.upper()}: give "
                "the table as a replay or a warehouse has it"
            )
    there = [name for name in table.column_names if name in found]
    for name in there:
        if len(found[name]) > 1:
            raise RecordsError(f"{table.full_name} has column {name!r} {len(found[name])} times: drop all but one")
    return frame.select(*(frame[quoted(found[name][0].name)].alias(name) for name in there))


def _type_of(table: Table, name: str) -> str:
    """Spark's name of a column's declared type."""
    (type_,) = (column.type for column in table.columns if column.name == name)
    return sql_type(type_).replace(": ", ":").replace(", ", ",").lower()


def _mistyped(name: str, expected: Expected, type_: str, chosen: str | Column | None) -> str:
    which = (
        f"column {chosen!r}, taken for {name}," if isinstance(chosen, str) and chosen != name else f"column {name!r}"
    )
    return (
        f"{which} of records is {type_.upper()}, and {expected.meaning} is {types_of(expected)}: "
        f"{_remedy(name, expected, type_, chosen)}"
    )


def _remedy(name: str, expected: Expected, type_: str, chosen: str | Column | None) -> str:
    """What to do about a column of a type that it cannot have."""
    family = re.split("[( <]", type_)[0]
    wanted = expected.types[-1]
    it, in_sql = (repr(chosen), quoted(chosen)) if isinstance(chosen, str) else ("...", "...")
    cast = repr(f"try_cast({in_sql} as {wanted})")  # Column.try_cast exists from Spark 4.0 on
    another = f"name another column, columns={{{name!r}: NAME}}"
    if family == "void" and not expected.is_required:
        return f"it holds nulls alone, so leave {name} out"
    if family == "void":
        remedy = REMEDIES_OF_NULLS.get(name)
        another = f"it holds nulls alone, so {another}"
        return another if remedy is None else f"{another}, or {remedy}"
    of_type = REMEDIES.get("key" if wanted == "binary" else name) or REMEDIES[wanted]
    if family in of_type:
        remedy = of_type[family].format(it=it, cast=cast)
        return f"give an expression that makes it so, columns={{{name!r}: ...}}: {remedy}"
    if family in REMEDIES_OF_PARTS:
        part = REMEDIES_OF_PARTS[family].format(it=it, type=repr(wanted))
        return f"{another}, or a part of it: {part}"
    return another


def _int(partition: Column) -> Column:
    """Null for a number that no partition has, which becomes a row of `errors`."""
    return F.when(partition.between(-(2**31), 2**31 - 1), partition).cast("int")


def _control_type(is_control: Column, found: Mapping[str, Column]) -> Column:
    """Kafka's number of the type: from its name where there is one, else from the marker's key (version, type)."""
    of_key = _by_name(F.hex(F.substring(found["key"], 3, 2)), "0001", "0000", F.lit(CONTROL_UNKNOWN))
    type_ = of_key
    if "control_type" in found:
        type_ = _by_name(F.upper(found["control_type"]), "COMMIT", "ABORT", of_key)
    return F.when(is_control, type_).otherwise(F.lit(CONTROL_NONE)).cast("tinyint")


def _by_name(name: Column, commit: str, abort: str, otherwise: Column) -> Column:
    return F.when(name == commit, F.lit(1)).when(name == abort, F.lit(0)).otherwise(otherwise)


# --- record batches


def _opened(records: DataFrame) -> Records:
    """Records of batches as Kafka wrote them, with producers and operations from their headers."""
    found, _ = _found(records, EXPECTED_OF_BATCHES, {})
    found["partition"] = _int(found["partition"])
    batches = records.select(*(column.alias(name) for name, column in found.items()))
    has_cluster = "cluster_id" in found
    declared = (*((_CLUSTER,) if has_cluster else ()), _TOPIC, *_OPENED)
    frame = batches.mapInArrow(_open_batches, spark_schema(declared))
    return Records(frame, has_cluster=has_cluster, has_topic=True, has_markers=True, batches=batches)


def places_of(batches: DataFrame, topic: str) -> tuple[DataFrame, Column]:
    """Cluster, log partition and base offset of batches of a topic, and the column of their last offset: the header
    has it from message format 2 on, and before that the base offset is the last one."""
    delta = F.conv(F.hex(F.substring("batch", 24, 4)), 16, 10).cast("bigint")
    last = F.col("log_offset") + F.when(F.hex(F.substring("batch", 17, 1)) >= "02", delta).otherwise(F.lit(0))
    rows = batches.where(F.col("topic") == F.lit(topic)).where("partition is not null and batch is not null")
    return rows.withColumnsRenamed({"partition": "log_partition", "base_offset": "log_offset"}), last


def _open_batches(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for some in rows:
        for place, chunk, is_known in _chunks_of(some):
            columns = _columns_of(chunk, is_known)
            count = len(chunk.records)
            constants: dict[str, pa.Array] = {
                name: pa.repeat(pa.scalar(place[name], pa.string()), count) for name in _PLACE if name in place
            }
            constants["log_partition"] = pa.repeat(pa.scalar(place["partition"], pa.int32()), count)
            yield pa.RecordBatch.from_pydict(constants | columns)


def batch_findings(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[dict[str, Any], tuple[Finding, ...]]]:
    """Findings in record batches, with topic, partition and cluster."""
    for some in rows:
        for place, chunk, _ in _chunks_of(some):
            if chunk.findings:
                yield place, chunk.findings


_PLACE: Final = ("cluster_id", "topic")


def _chunks_of(rows: pa.RecordBatch) -> Iterator[tuple[dict[str, Any], RecordChunk, BoolArray]]:
    """Yield decoded batches, one log partition at a time: their place, their records, and whether each header has
    the producer."""
    names = [name for name in (*_PLACE, "partition") if name in rows.schema.names]
    places = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
    is_readable = pc.is_valid(rows["batch"])
    if "crc_valid" in rows.schema.names:
        is_readable = pc.and_(is_readable, pc.fill_null(rows["crc_valid"], True))
    together: dict[tuple[Any, ...], list[int]] = {}
    for row, (place, is_kept) in enumerate(zip(places, is_readable.to_pylist(), strict=True)):
        if is_kept:
            together.setdefault(place, []).append(row)
    is_known = np.ones(rows.num_rows, np.bool_)
    if "is_transactional" in rows.schema.names:
        is_known = pc.is_valid(rows["is_transactional"]).to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.binary_length(rows["batch"]), 0).to_numpy()
    for place, indices in together.items():
        ends = np.cumsum(sizes[indices])
        first = 0
        while first < len(indices):
            start = 0 if first == 0 else ends[first - 1]
            after = max(first + 1, int(np.searchsorted(ends, start + CHUNK_BYTES_MAX, side="right")))
            some = indices[first:after]
            data = b"".join(rows["batch"][row].as_py() for row in some)
            chunk = decode_chunk(as_u8(data), chunk_bytes_max=CHUNK_DECOMPRESSED_BYTES_MAX)
            yield dict(zip(names, place, strict=True)), chunk, is_known[some]
            first = after


def _columns_of(chunk: RecordChunk, is_known: BoolArray) -> dict[str, pa.Array]:
    """Columns of `_OPENED` after `log_partition`. `is_known`, one bool a batch: its header has the producer."""
    records, batches = chunk.records, chunk.batches
    batch = records.batch_index
    is_unknown = ~is_known[batch]
    control_type = np.where(batches.is_control, batches.control_type, np.int8(CONTROL_NONE)).astype(np.int8)
    return {
        "log_offset": pa.array(records.offset),
        "timestamp_ms": pa.array(records.timestamp_ms),
        "key": _binary(chunk.data, records.key_position, records.key_length),
        "value": _binary(chunk.data, records.value_position, records.value_length),
        "operation": pa.array(operation_first_offsets(chunk)),
        "producer_id": pa.array(batches.producer_id[batch], mask=is_unknown),
        "is_transactional": pa.array(batches.is_transactional[batch], mask=is_unknown),
        "control_type": pa.array(control_type[batch]),
    }


def _binary(data: U8, positions: I64, lengths: I32) -> pa.BinaryArray:
    """Byte ranges of a buffer as a column; negative length is null."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=starts[1:])
    out = np.empty(int(starts[-1]), np.uint8)
    data = read_only(data)
    gather_bytes(data, data, np.where(lengths > 0, positions, 0), starts, out)
    is_valid = lengths >= 0
    bitmap = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
