"""The same on every Spark from 3.5 on, by what all of them have.

`groupBy(...).applyInArrow` streams the rows of a key from Spark 4.2 on, and starts an Arrow stream for each key. Rows
that are shuffled and sorted by key stream in every Spark by `mapInArrow`, which passes many keys in one batch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from schemas.tables.declare import Table

Batches = Iterator[pa.RecordBatch]
T = TypeVar("T")
ROWS_MAX: Final = 1 << 16
"""Maximum number of rows in an Arrow batch returned to Spark."""
STREAM_BYTES: Final = 8 << 20
"""Rows of one table that a task collects before it returns them as one stream."""
STREAMS: Final = "of_table string, stream binary"
"""Rows of several tables in one DataFrame: each row has the table's name, and an Arrow stream."""


def sorted_by_key(frame: DataFrame, keys: Sequence[str], *order: str) -> DataFrame:
    """The rows of each key one after another, in one partition."""
    return frame.repartition(*keys).sortWithinPartitions(*keys, *order)


def for_each_key(function: Callable[[Batches], Iterator[T]], keys: Sequence[str]) -> Callable[[Batches], Iterator[T]]:
    """For mapInArrow over `sorted_by_key`: calls a function with the rows of each key, as a stream."""

    def apply(batches: Batches) -> Iterator[T]:
        for _, parts in groupby(_parts(batches, keys), key=itemgetter(0)):
            yield from function(rows for _, rows in parts)

    return apply


def _parts(batches: Batches, keys: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Slices of batches with the rows of one key each, and the key."""
    for batch in batches:
        begins = np.zeros(batch.num_rows, np.bool_)
        begins[:1] = True
        for column in map(batch.column, keys):
            now, before = column[1:], column[:-1]
            # of a null and a value Arrow does not say that they differ
            differs = pc.coalesce(pc.not_equal(now, before), pc.xor(now.is_null(), before.is_null()))
            begins[1:] |= differs.to_numpy(zero_copy_only=False)
        firsts = np.flatnonzero(begins)
        of_firsts = zip(*(batch.column(name).take(pa.array(firsts)).to_pylist() for name in keys), strict=True)
        for first, count, key in zip(firsts, np.diff(firsts, append=batch.num_rows), of_firsts, strict=True):
            yield key, batch.slice(first, count)


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a small DataFrame: toArrow exists from Spark 4.0 on."""
    streams = frame.mapInArrow(_streams, "stream binary").collect()
    batches = [batch for row in streams for batch in pa.ipc.open_stream(row["stream"])]
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.nulls(0) for name in frame.columns})


def _streams(batches: Batches) -> Batches:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"stream": [stream_of(pa.Table.from_batches([batch]))]})


def stream_of(rows: pa.Table) -> bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=ROWS_MAX)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def in_one_pass(function: Callable[[Batches], Iterator[tuple[Table, pa.Table]]]) -> Callable[[Batches], Batches]:
    """For mapInArrow: the rows of all tables that a function yields, as `STREAMS`."""

    def apply(batches: Batches) -> Batches:
        waiting: dict[str, list[pa.Table]] = {}
        sizes: Counter[str] = Counter()
        for table, rows in function(batches):
            name = table.full_name
            waiting.setdefault(name, []).append(rows)
            sizes[name] += rows.nbytes
            if sizes[name] >= STREAM_BYTES:
                del sizes[name]
                yield _named(name, waiting.pop(name))
        for name, some in waiting.items():
            yield _named(name, some)

    return apply


def _named(name: str, parts: Sequence[pa.Table]) -> pa.RecordBatch:
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    return pa.RecordBatch.from_pydict({"of_table": [name], "stream": [stream_of(rows)]})


def as_streams(frame: DataFrame, table: Table) -> DataFrame:
    """The rows of one table as `STREAMS`."""

    def rows_of(batches: Batches) -> Iterator[tuple[Table, pa.Table]]:
        return ((table, pa.Table.from_batches([batch])) for batch in batches)

    return frame.mapInArrow(in_one_pass(rows_of), STREAMS)


def of_streams(streams: DataFrame, table: Table, schema: StructType) -> DataFrame:
    """The rows of one table among `STREAMS`."""
    return streams.where(F.col("of_table") == F.lit(table.full_name)).select("stream").mapInArrow(_opened, schema)


def _opened(batches: Batches) -> Batches:
    for batch in batches:
        for stream in batch["stream"].to_pylist():
            yield from pa.ipc.open_stream(stream)


def text(value: Column) -> Column:
    """Bytes as text, as Kafka reads them: U+FFFD where they are not UTF-8. There decode() is an error from Spark 4.0
    on, which has a function of its own."""
    if hasattr(F, "make_valid_utf8"):
        return F.make_valid_utf8(value.cast("string"))
    return F.decode(value, "UTF-8")
