"""The same on every Spark from 3.5 on, by what all of them have.

`groupBy(...).applyInArrow` streams the rows of a key from Spark 4.2 on, and starts an Arrow stream for each key. Rows
that are shuffled and sorted by key stream in every Spark by `mapInArrow`, which passes many keys in one batch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

Batches = Iterator[pa.RecordBatch]


def sorted_by_key(frame: DataFrame, keys: Sequence[str], *order: str) -> DataFrame:
    """The rows of each key one after another, in one partition."""
    return frame.repartition(*keys).sortWithinPartitions(*keys, *order)


def for_each_key(function: Callable[[Batches], Batches], keys: Sequence[str]) -> Callable[[Any], Any]:
    """For mapInArrow over `sorted_by_key`: calls a function with the rows of each key, as a stream."""

    def apply(batches: Batches) -> Batches:
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
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"stream": [sink.getvalue().to_pybytes()]})


def text(value: Column) -> Column:
    """Bytes as text, as Kafka reads them: U+FFFD where they are not UTF-8. There decode() is an error from Spark 4.0
    on, which has a function of its own."""
    if hasattr(F, "make_valid_utf8"):
        return F.make_valid_utf8(value.cast("string"))
    return F.decode(value, "UTF-8")
