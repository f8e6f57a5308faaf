"""Raw records as a DataFrame: which columns are read, under which names, and with which types.

Columns of Spark's Kafka source are accepted as they are, and so are the metadata columns of Kafka Connect's sinks. For
other names or types, callers pass an argument; nothing is guessed from the content. Record batches, from `kafka_log`
and `bronze.record_batches`, are decoded into records here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from coordinator_core.log.chunk import CONTROL_NONE, I32, I64, U8, BoolArray, Finding, RecordChunk
from coordinator_core.log.kernels import read_only
from coordinator_core.log.records import as_u8, decode_chunk
from coordinator_core.offsets.kernels import gather_bytes
from coordinator_core.offsets.operations import operation_first_offsets
from jobs.delta.arrow_schemas import arrow_type, delta_struct
from jobs.errors import JobError
from jobs.silver.tasks import CHUNK_DECOMPRESSED_BYTES_MAX
from jobs.sources.segments import CHUNK_BYTES_MAX
from schemas.tables.declare import BIGINT, BINARY, BOOLEAN, INT, STRING, TINYINT
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
    names: tuple[str, ...]
    """Accepted names, unless the caller gives one; the first existing name counts."""
    is_required: bool = False


_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")


def _spellings(name: str) -> tuple[str, ...]:
    """Spellings of Spark's Kafka source, Connect's sinks (InsertField, KafkaMetadataTransform) and their users."""
    return name, f"kafka_{name}", f"_kafka_metadata_{name}", f"__{name}"


EXPECTED: Final[Mapping[str, Expected]] = {
    "key": Expected("the bytes of the record's key", ("binary",), ("key", "kafka_key", "__key"), is_required=True),
    "value": Expected("the bytes of the record's value", ("binary",), ("value", "kafka_value"), is_required=True),
    "partition": Expected("partition of the internal topic", _INTEGERS, _spellings("partition"), is_required=True),
    "offset": Expected("the record's offset", _INTEGERS, _spellings("offset"), is_required=True),
    "timestamp": Expected(
        "the record's timestamp; whole numbers are epoch milliseconds",
        ("timestamp", "bigint"),
        _spellings("timestamp"),
        is_required=True,
    ),
    "topic": Expected("the internal topic", ("string",), _spellings("topic")),
    "cluster_id": Expected("the Kafka cluster", ("string",), ("cluster_id",)),
    "base_offset": Expected("base offset of the record's batch", _INTEGERS, ("base_offset",)),
    "producer_id": Expected("producer id of the record's batch, -1 where none", _INTEGERS, ("producer_id",)),
    "is_transactional": Expected("written in a transaction", ("boolean",), ("is_transactional",)),
    "is_control": Expected("the row is a transaction marker", ("boolean",), ("is_control",)),
    "control_type": Expected("COMMIT or ABORT of a marker", ("string",), ("control_type",)),
}
"""The columns of raw records, by the names in the argument `columns`."""

REMEDIES: Final[Mapping[str, str]] = {
    "key": "F.unbase64('key') where it is base64, F.unhex('key') where it is hexadecimal",
    "value": "F.unbase64('value') where it is base64, F.unhex('value') where it is hexadecimal",
    "partition": "F.col('partition').cast('int')",
    "offset": "F.col('offset').cast('bigint')",
    "timestamp": "F.to_timestamp('timestamp')",
}
REMEDIES_OF_TIMES: Final[Mapping[str, str]] = {
    "timestamp_ntz": "F.to_timestamp('timestamp'), which takes it for a time of spark.sql.session.timeZone",
    "decimal": "F.col('timestamp').cast('bigint') where it is epoch milliseconds",
    "double": "F.col('timestamp').cast('bigint') where it is epoch milliseconds",
}
"""Remedies for a `timestamp` of another type."""

BATCH_COLUMNS: Final = ("topic", "partition", "base_offset", "batch")
"""A DataFrame with these columns consists of record batches."""

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
    has_producers: bool
    """`producer_id` and `is_transactional` exist."""
    has_markers: bool
    """`control_type` exists, so transactions can be decided."""
    batches: DataFrame | None = None
    """The batches from which the records were decoded, if any."""

    @property
    def columns(self) -> list[str]:
        """The columns that replay reads, without topic and cluster."""
        return [column.name for column in _OPENED if column.name in self.frame.columns]


def read_records(records: DataFrame, columns: ColumnNames | None = None) -> Records:
    """The columns of `records` with normalized names. Raises RecordsError for a missing or mistyped one."""
    named = dict(columns or {})
    if unknown := sorted(named.keys() - EXPECTED.keys()):
        raise RecordsError(f"columns names {unknown[0]!r}, which is none of: {', '.join(EXPECTED)}")
    if not named and set(BATCH_COLUMNS) <= set(records.columns):
        return _opened(records)
    found = _found(records, named)
    types = {
        field.name: field.dataType.simpleString()
        for field in records.select(*(column.alias(name) for name, column in found.items())).schema
    }
    for name, type_ in types.items():
        if type_ not in EXPECTED[name].types:
            raise RecordsError(_mistyped(name, type_, named.get(name)))
    has_producers = "producer_id" in found
    is_control = found.get("is_control")
    shown = {
        "cluster_id": found.get("cluster_id"),
        "topic": found.get("topic"),
        "log_partition": found["partition"].try_cast("int"),  # a number that no partition has becomes a row of `errors`
        "log_offset": found["offset"].cast("bigint"),
        "timestamp_ms": found["timestamp"] if types["timestamp"] == "bigint" else F.unix_millis(found["timestamp"]),
        "key": found["key"],
        "value": found["value"],
        "operation": found["base_offset"].cast("bigint") if "base_offset" in found else None,
        "producer_id": found["producer_id"].cast("bigint") if has_producers else None,
        "is_transactional": _is_transactional(found) if has_producers else None,
        "control_type": None if is_control is None else _control_type(is_control, found),
    }
    frame = records.select(*(column.alias(name) for name, column in shown.items() if column is not None))
    return Records(
        frame,
        has_cluster="cluster_id" in found,
        has_topic="topic" in found,
        has_producers=has_producers,
        has_markers=has_producers and is_control is not None,
    )


def _found(records: DataFrame, named: ColumnNames) -> dict[str, Column]:
    """The columns in `EXPECTED` that exist."""
    there = {name.lower(): name for name in records.columns}
    counts = Counter(name.lower() for name in records.columns)
    found: dict[str, Column] = {}
    for name, expected in EXPECTED.items():
        chosen = named.get(name)
        spelled: str | None
        if chosen is None:
            spelled = next((spelling for spelling in expected.names if spelling in there), None)
        elif isinstance(chosen, str):
            spelled = chosen.lower()
            if spelled not in there:
                raise RecordsError(f"columns takes {name} from {chosen!r}, and records have {_listed(records)}")
        else:
            found[name] = chosen
            continue
        if spelled is not None:
            if counts[spelled] > 1:
                raise RecordsError(
                    f"records have column {spelled!r} {counts[spelled]} times, which names {name}: drop all but one"
                )
            found[name] = records[_quoted(there[spelled])]
        elif expected.is_required:
            raise RecordsError(
                f"records have no column {name!r}: {expected.meaning}, {_types(expected)}. They "
                f"have {_listed(records)}; say which one it is by columns={{{name!r}: NAME}}"
            )
    return found


def _types(expected: Expected) -> str:
    return " or ".join(expected.types).replace("tinyint or smallint or ", "").upper().replace(" OR ", " or ")


def _listed(records: DataFrame) -> str:
    return ", ".join(records.columns) or "no columns"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _mistyped(name: str, type_: str, chosen: str | Column | None) -> str:
    expected = EXPECTED[name]
    which = f"column {chosen!r}, taken for {name}," if isinstance(chosen, str) else f"column {name!r}"
    remedy = REMEDIES.get(name, f"F.col({name!r}).cast({expected.types[-1]!r})")
    if name == "timestamp":
        remedy = REMEDIES_OF_TIMES.get(type_.partition("(")[0], remedy)
    return (
        f"{which} of records is {type_.upper()}, and {expected.meaning} is {_types(expected)}: "
        f"give an expression that makes it so, columns={{{name!r}: ...}}: {remedy}"
    )


def _is_transactional(found: Mapping[str, Column]) -> Column:
    return found["is_transactional"] if "is_transactional" in found else found["producer_id"] >= 0


def _control_type(is_control: Column, found: Mapping[str, Column]) -> Column:
    """Kafka's number of the type: from its name where there is one, else from the marker's key (version, type)."""
    of_key = F.when(F.hex(F.substring(found["key"], 3, 2)) == "0001", F.lit(1)).otherwise(F.lit(0))
    type_ = of_key
    if "control_type" in found:
        name = F.upper(found["control_type"])
        type_ = F.when(name == "COMMIT", F.lit(1)).when(name == "ABORT", F.lit(0)).otherwise(of_key)
    return F.when(is_control, type_).otherwise(F.lit(CONTROL_NONE)).cast("tinyint")


# --- record batches


def _opened(records: DataFrame) -> Records:
    """Records of batches as Kafka wrote them, with producers and operations from their headers."""
    if records.schema["batch"].dataType.simpleString() != "binary":
        raise RecordsError("column 'batch' of records holds no BINARY: whole batches as kafka_log gives them")
    kept = [
        *BATCH_COLUMNS,
        *(name for name in ("cluster_id", "crc_valid", "is_transactional") if name in records.columns),
    ]
    has_cluster = "cluster_id" in records.columns
    declared = (*((_CLUSTER,) if has_cluster else ()), _TOPIC, *_OPENED)
    frame = records.select(*kept).mapInArrow(_open_batches, StructType.fromJson(delta_struct(declared)))
    return Records(
        frame,
        has_cluster=has_cluster,
        has_topic=True,
        has_producers=True,
        has_markers=True,
        batches=records.select(*kept),
    )


def _open_batches(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for some in rows:
        for place, chunk, is_known in _chunks_of(some):
            columns = _columns_of(chunk, is_known)
            count = len(chunk.records)
            constants: dict[str, pa.Array] = {
                name: pa.repeat(pa.scalar(place[name], pa.string()), count) for name in _PLACE if name in place
            }
            constants["log_partition"] = pa.array(np.full(count, place["partition"], np.int32))
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
