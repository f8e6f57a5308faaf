"""Columns as pages: levels, then values, in the encoding that suits their type.

- Numbers and times: DELTA_BINARY_PACKED. Offsets, times and counts grow in small steps or stay the same.
- Strings: a dictionary, and its indices as RLE; PLAIN where a dictionary would contain most of the strings.
- Booleans: PLAIN, one bit each. Whole batches, states and floating-point numbers: PLAIN.

A page contains all rows of a row group.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.bytes.log.chunk import I32, U8
from jobs.delta.parquet import kernels
from jobs.delta.parquet.schema import Leaf, Physical
from jobs.delta.parquet.thrift import uvarint


class Encoding(IntEnum):
    """Encoding in parquet.thrift."""

    PLAIN = 0
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8


class Page(NamedTuple):
    """One uncompressed page of a leaf. `body` is valid until the next page is made."""

    leaf: Leaf
    encoding: Encoding
    value_count: int
    """Including nulls and empty lists: the number of levels."""
    body: U8
    dictionary: U8 | None = None
    dictionary_count: int = 0
    null_count: int = 0
    """Set for numbers, and where all values are null."""
    bounds: tuple[int, int] | None = None
    """Minimum and maximum; set for numbers unless all are null."""


class _Levels(NamedTuple):
    """The levels that precede the values of a page."""

    data: bytes
    value_count: int


_NO_BITS: Final = np.frombuffer(b"", np.uint8)
_BUFFER_START: Final = 1 << 16
DICTIONARY_SHARE_MAX: Final = 0.5
"""Maximum share of distinct values for a dictionary: with more, its indices only add to the size."""
DICTIONARY_BYTES_MAX: Final = 1 << 20
"""Maximum dictionary size for strings that were not dictionary-encoded before."""


def is_packed(type_: pa.DataType) -> bool:
    """Are values of this type delta-packed?"""
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_))


class PageMaker:
    """Makes pages in a reused buffer, since the first access to new memory is slow."""

    def __init__(self) -> None:
        self._buffer: U8 = np.empty(_BUFFER_START, np.uint8)

    def pages(self, array: pa.Array, leaves: tuple[Leaf, ...]) -> Iterator[Page]:
        """Yield the pages of a column with at least one row; each is valid until the next one.

        Raises ValueError for a null where the schema allows none.
        """
        if pa.types.is_list(array.type) or pa.types.is_map(array.type):
            if array.null_count and not leaves[0].empty_level:
                raise ValueError(f"{leaves[0].path[0]}: null where the schema has none")
            yield from self._list_pages(array, leaves)
            return
        (leaf,) = leaves
        yield self._page(array, leaf, self._flat_levels(array) if leaf.is_optional else _Levels(b"", len(array)))

    def _list_pages(self, array: pa.Array, leaves: tuple[Leaf, ...]) -> Iterator[Page]:
        offsets = _of_buffer(array.buffers()[1], np.int32, array.offset, len(array) + 1)
        if array.null_count and np.diff(offsets)[array.is_null().to_numpy(zero_copy_only=False)].any():
            # Arrow allows a null list to have (invisible) elements
            yield from self._list_pages(array.take(pa.array(np.arange(len(array)))), leaves)
            return
        first, last = int(offsets[0]), int(offsets[-1])
        repetition = np.empty(last - first + len(array), np.uint8)
        definition = np.empty(len(repetition), np.uint8)
        made: dict[int, _Levels] = {}
        """Levels of leaves without nulls, by their definition level: fields of one struct mostly share them."""
        for leaf, values in zip(leaves, _elements(array, leaves[0]), strict=True):
            own = values.slice(first, last - first)
            levels = None if own.null_count else made.get(leaf.definition_max)
            if levels is None:
                count = kernels.list_levels(
                    offsets, _validity(array), leaf.empty_level, leaf.definition_max, repetition, definition
                )
                if own.null_count:
                    kernels.less_of_nulls(definition[:count], leaf.definition_max, _validity(own))
                levels = self._packed(repetition[:count], definition[:count], leaf.definition_max)
                if not own.null_count:
                    made[leaf.definition_max] = levels
            yield self._page(own, leaf, levels)

    def _packed(self, repetition: U8, definition: U8, definition_max: int) -> _Levels:
        out = self._room(kernels.bytes_max(len(repetition) // 2))
        parts = []
        for levels, width in ((repetition, 1), (definition, definition_max.bit_length())):
            size = kernels.put_runs(_read_only(levels), width, out, 0)
            parts += [size.to_bytes(4, "little"), out[:size].tobytes()]
        return _Levels(b"".join(parts), len(repetition))

    def _flat_levels(self, array: pa.Array) -> _Levels:
        count, null_count = len(array), array.null_count
        if null_count in (0, count):
            data = uvarint(count << 1) + bytes([null_count == 0])
        else:
            out = self._room(kernels.bytes_max(count // 8))
            data = out[: kernels.put_bits(_validity(array), count, out, 0)].tobytes()
        return _Levels(len(data).to_bytes(4, "little") + data, count)

    def _page(self, array: pa.Array, leaf: Leaf, levels: _Levels) -> Page:
        """The page of the values that belong to some levels."""
        if array.null_count and not leaf.is_optional:
            raise ValueError(f"{'.'.join(leaf.path)}: null where the schema has none")
        if array.null_count == len(array):
            out, at = self._behind(levels, 0)
            return Page(leaf, Encoding.PLAIN, levels.value_count, out[:at], null_count=len(array))
        match leaf.physical:
            case Physical.BYTE_ARRAY:
                return self._texts(array, leaf, levels)
            case Physical.BOOLEAN:
                return self._flags(array, leaf, levels)
            case Physical.DOUBLE:
                raw = _present(array).view(np.uint8)
                out, at = self._behind(levels, len(raw))
                out[at : at + len(raw)] = raw
                return Page(leaf, Encoding.PLAIN, levels.value_count, out[: at + len(raw)])
        numbers = _present(array)
        out, at = self._behind(levels, kernels.bytes_max(len(numbers)))
        end, *bounds = kernels.put_deltas(numbers, out, at)
        return Page(
            leaf,
            Encoding.DELTA_BINARY_PACKED,
            levels.value_count,
            out[:end],
            null_count=array.null_count,
            bounds=(bounds[0], bounds[1]),
        )

    def _flags(self, array: pa.Array, leaf: Leaf, levels: _Levels) -> Page:
        count = len(array)
        out, at = self._behind(levels, count // 8 + 1)
        bits = _bits(array.buffers()[1], array.offset, count)
        if array.null_count:
            end = kernels.dense_bits(bits, _validity(array), count, out, at)
        else:
            end = at + len(bits)
            out[at:end] = bits
        return Page(leaf, Encoding.PLAIN, levels.value_count, out[:end])

    def _texts(self, array: pa.Array, leaf: Leaf, levels: _Levels) -> Page:
        coded = _coded(array)
        if coded is None:
            out, at = self._behind(levels, _text_bytes(array))
            end = kernels.put_texts(*_text_parts(array), out, at)
            return Page(leaf, Encoding.PLAIN, levels.value_count, out[:end])
        texts, places = coded
        dictionary = np.empty(_text_bytes(texts), np.uint8)
        kernels.put_texts(*_text_parts(texts), dictionary, 0)
        # width 0 is valid for a single string, but not all writers use it
        width = max(1, (len(texts) - 1).bit_length())
        out, at = self._behind(levels, kernels.bytes_max(len(places)) + 1)
        out[at] = width
        end = kernels.put_runs(places, width, out, at + 1)
        return Page(leaf, Encoding.RLE_DICTIONARY, levels.value_count, out[:end], dictionary, len(texts))

    def _behind(self, levels: _Levels, size: int) -> tuple[U8, int]:
        """The buffer, with the levels at its beginning and room for `size` bytes after them; and the position of
        that room."""
        at = len(levels.data)
        out = self._room(at + size)
        if at:
            out[:at] = np.frombuffer(levels.data, np.uint8)
        return out, at

    def _room(self, size: int) -> U8:
        if size > len(self._buffer):
            self._buffer = np.empty(max(size, 2 * len(self._buffer)), np.uint8)
        return self._buffer


def _elements(array: pa.Array, leaf: Leaf) -> list[pa.Array]:
    """The values of the leaves of a list or map column, each from the beginning of its buffers."""
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    values = array.values
    if not pa.types.is_struct(values.type):
        return [values]
    if values.null_count:
        raise ValueError(f"{leaf.path[0]}: an element of a list is null")
    return [values.field(index) for index in range(values.type.num_fields)]


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: the loops are compiled for one kind of array, and most of Arrow's are read-only."""
    values.flags.writeable = False
    return values


def _of_buffer(buffer: pa.Buffer, dtype: Any, offset: int, count: int) -> NDArray[Any]:
    return _read_only(np.frombuffer(buffer, dtype)[offset : offset + count])


def _bits(buffer: pa.Buffer, offset: int, count: int) -> U8:
    """A part of an Arrow bitmap, as whole bytes."""
    start, shift = divmod(offset, 8)
    bits = _of_buffer(buffer, np.uint8, start, (offset + count + 7) // 8 - start)
    if not shift:
        return bits
    own = np.unpackbits(bits, bitorder="little")[shift : shift + count]
    return _read_only(np.packbits(own, bitorder="little"))


def _validity(array: pa.Array) -> U8:
    """The validity bitmap; empty if there is no null."""
    return _bits(array.buffers()[0], array.offset, len(array)) if array.null_count else _NO_BITS


def _present(array: pa.Array) -> NDArray[Any]:
    """Numbers of 4 or 8 bytes without nulls; not copied if there are none."""
    dtype = np.dtype(np.int64) if pa.types.is_timestamp(array.type) else np.dtype(array.type.to_pandas_dtype())
    values = _of_buffer(array.buffers()[1], dtype, array.offset, len(array))
    if dtype.itemsize < 4:
        values = _read_only(values.astype(np.int32))
    if not array.null_count:
        return values
    as_integers = values.view(np.int64) if values.dtype == np.float64 else values
    into = np.empty(len(values), as_integers.dtype)
    return _read_only(into[: kernels.dense(as_integers, _validity(array), into)])


def _coded(array: pa.Array) -> tuple[pa.Array, I32] | None:
    """The distinct strings, and the index of each value that is not null; None where a dictionary does not pay off."""
    if pa.types.is_dictionary(array.type):
        if array.dictionary.null_count:
            raise ValueError("null among the texts of a dictionary")
        return array.dictionary, _present(array.indices)
    if pa.types.is_binary(array.type):
        return None
    heads, lengths = np.empty(len(array), np.int32), np.empty(len(array), np.int32)
    count = kernels.text_runs(*_text_parts(array), heads, lengths)
    if count == 1:
        texts, places = array.slice(heads[0], 1), np.zeros(1, np.int32)
    else:
        coded = array.take(pa.array(heads[:count])).dictionary_encode()
        texts, places = coded.dictionary, _present(coded.indices)
    if len(texts) > DICTIONARY_SHARE_MAX * len(array) or _text_bytes(texts) > DICTIONARY_BYTES_MAX:
        return None
    return texts, _read_only(np.repeat(places, lengths[:count]))


def _text_parts(array: pa.Array) -> tuple[I32, U8, U8]:
    """Offsets, bytes and validity of strings or binary values."""
    _, offsets, data = array.buffers()
    own = _of_buffer(offsets, np.int32, array.offset, len(array) + 1)
    return own, _NO_BITS if data is None else _of_buffer(data, np.uint8, 0, data.size), _validity(array)


def _text_bytes(array: pa.Array) -> int:
    """Size of strings or binary values in PLAIN encoding."""
    offsets = _of_buffer(array.buffers()[1], np.int32, array.offset, len(array) + 1)
    return 4 * len(array) + int(offsets[-1] - offsets[0])
