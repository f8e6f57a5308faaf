"""Arrow columns as numpy arrays and Python values, for readers without Spark."""

from collections.abc import Collection, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I8, I32, I64
from coordinator_core.inference.facts.calendar import DAY_MS
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, arrow_schema, stored_column
from schemas.tables.declare import Table

CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""A string column as it is stored: dictionary-encoded."""


def columns_read(table: Table, names: Sequence[str], coded: Collection[str] = ()) -> pa.Schema:
    """The schema with which columns are read: those in `coded` have the type `CODED`, the others their
    declared type.
    """
    declared = arrow_schema(table)
    fields = [declared.field(name) for name in names]
    return pa.schema([field.with_type(CODED) if field.name in coded else field for field in fields])


def as_read(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast stored rows to these columns: files of other writers and older versions may have other types, or lack
    columns.
    """
    return pa.Table.from_arrays([stored_column(rows, field) for field in schema], schema=schema)


def together(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of several parts as one chunk, with their own strings only."""
    return own_texts(pa.concat_tables(parts)).unify_dictionaries().combine_chunks()


def own_texts(rows: pa.Table) -> pa.Table:
    """The rows with no dictionary that has more strings than rows: a few rows of many come with the strings of all."""
    for index, field in enumerate(rows.schema):
        column = rows.column(index)
        if field.type == CODED and sum(len(chunk.dictionary) for chunk in column.chunks) > rows.num_rows:
            rows = rows.set_column(index, field, column.cast(pa.string()).dictionary_encode())
    return rows


def codes_of(column: pa.ChunkedArray) -> tuple[I64, list[str]]:
    """Strings as indices into the distinct strings; -1: null."""
    coded = column if column.type == CODED else column.dictionary_encode()
    # one chunk needs no unification, and checking for that takes as long as all the rest
    coded = coded.chunk(0) if coded.num_chunks == 1 else coded.unify_dictionaries().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):  # no rows
        return np.zeros(0, np.int64), []
    return numbers_of(coded.indices), coded.dictionary.to_pylist()


def texts_of(column: pa.ChunkedArray) -> list[Any]:
    """Strings as Python objects, None for null. Equal strings are the same object, which makes comparisons fast."""
    codes, texts = codes_of(column)
    found: list[Any] = np.array([*texts, None], object)[codes].tolist()
    return found


def ordered_codes(column: pa.ChunkedArray) -> tuple[I64, list[str]]:
    """As `codes_of`, with the distinct strings sorted."""
    codes, texts = codes_of(column)
    order = sorted(range(len(texts)), key=texts.__getitem__)
    places = np.full(len(texts) + 1, -1, np.int64)
    places[order] = np.arange(len(texts))
    return places[codes], [texts[index] for index in order]


def indices_in(column: pa.ChunkedArray, values: Sequence[str]) -> I8:
    """Strings as indices into a fixed list; -1: null, or not in the list."""
    codes, texts = codes_of(column)
    places = {text: index for index, text in enumerate(values)}
    found: I8 = np.array([*(places.get(text, -1) for text in texts), -1], np.int8)[codes]
    return found


def numbers_of(column: pa.ChunkedArray | pa.Array) -> I64:
    """Integers; -1: null."""
    filled = pc.fill_null(column, -1) if column.null_count else column
    return filled.to_numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]


def small_numbers_of(column: pa.ChunkedArray) -> I32:
    """As `numbers_of`, for a column of type INT."""
    filled = pc.fill_null(column, -1) if column.null_count else column
    return filled.to_numpy().astype(np.int32, copy=False)  # type: ignore[no-any-return]


def epoch_ms_column(column: pa.ChunkedArray) -> I64:
    """Times as epoch milliseconds; -1: null."""
    micros = numbers_of(column.cast(pa.int64()))
    # null is -1 microsecond here, and rounds down to -1 millisecond
    return micros // 1000


def day_starts(column: pa.ChunkedArray) -> I64:
    """Days as epoch milliseconds of their first instant in UTC; a day before 1970 for null."""
    return numbers_of(column.cast(pa.int32())) * DAY_MS


def values_of(column: pa.ChunkedArray, order: I64 | None = None) -> list[Any]:
    """Python values, in order; times as epoch milliseconds.

    Equal strings are the same object, which makes comparisons fast.
    """
    if column.type == CODED:
        codes, texts = codes_of(column)
        values = np.array([*texts, None], object)[codes]
    elif pa.types.is_integer(column.type) or column.type == TIMESTAMP_TYPE:
        values = _whole_numbers(column)
    else:
        values = np.fromiter(chain.from_iterable(map(_plain, column.chunks)), object, len(column))
    return (values if order is None else values[order]).tolist()  # type: ignore[no-any-return]


def _whole_numbers(column: pa.ChunkedArray) -> Any:
    """Numbers, None for null; times as epoch milliseconds."""
    numbers = numbers_of(column.cast(pa.int64()) if column.type == TIMESTAMP_TYPE else column)
    if column.type == TIMESTAMP_TYPE:
        numbers = numbers // 1000
    if not column.null_count:
        return numbers
    values = numbers.astype(object)
    values[column.is_null().to_numpy()] = None
    return values


def _plain(column: pa.Array) -> list[Any]:
    """Python values, converted one by one only where nothing is faster."""
    is_map = pa.types.is_map(column.type)
    if not is_map and not pa.types.is_list(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    inner = zip(column.keys.to_pylist(), column.items.to_pylist(), strict=True) if is_map else column.values.to_pylist()
    make, values = (dict if is_map else tuple), list(inner)
    intervals = zip(column.is_valid().to_pylist(), pairwise(column.offsets.to_pylist()), strict=True)
    return [make(values[begin:end]) if is_there else None for is_there, (begin, end) in intervals]


def dicts_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by column name: times as epoch milliseconds, lists as tuples, maps as dicts."""
    names = rows.column_names
    texts = {name for name in names if pa.types.is_string(rows.schema.field(name).type)}
    columns = [texts_of(rows[name]) if name in texts else values_of(rows[name]) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
