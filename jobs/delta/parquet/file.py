"""Write a Parquet file, row group by row group (parquet-format's README and parquet.thrift)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol
from zlib import crc32

import pyarrow as pa

from coordinator_core.bytes.log.chunk import U8
from jobs.delta.parquet.codecs import CODECS, Compressor
from jobs.delta.parquet.pages import Encoding, Page, PageMaker
from jobs.delta.parquet.schema import Leaf, Physical, leaves_of, schema_elements
from jobs.delta.parquet.thrift import (
    BINARY,
    I32,
    STRUCT,
    Field,
    binary,
    i32,
    i64,
    list_of,
    nested,
    open_struct,
    struct,
    uvarint,
    zigzag,
)

MAGIC: Final = b"PAR1"
FORMAT_VERSION: Final = 2
CREATED_BY: Final = b"groupledger version 1.0.0"
"""In the format that readers parse: a name, `version`, and a number."""
ROW_GROUP_ROWS_MAX: Final = 1 << 20
ROW_GROUP_BYTES_MAX: Final = 1 << 30
"""Maximum size of a row group in memory: the size of a page is a signed 32-bit number."""
DATA_PAGE: Final = 0
DICTIONARY_PAGE: Final = 2
_LEVEL_ENCODINGS: Final = (i32(3, Encoding.RLE), i32(4, Encoding.RLE))
UNCOMPRESSED: Final = 0
"""CompressionCodec in parquet.thrift."""

SAMPLE_BYTES: Final = 1 << 13
SAMPLED_BYTES_MIN: Final = 1 << 15
"""Of larger pages, the beginning is compressed first as a test; smaller pages are compressed at once."""
COMPRESSED_SHARE_MAX: Final = 0.9
"""Maximum compressed share of a page: where a codec gains less than a tenth, it is not worth its time."""


class Stream(Protocol):
    def write(self, data: Any) -> Any:
        """Write bytes."""

    def close(self) -> None:
        """Close the file."""


@dataclass(slots=True)
class _RowGroup:
    chunks: list[bytes]
    row_count: int
    uncompressed_bytes: int = 0
    compressed_bytes: int = 0


class ParquetFileWriter:
    """Writes one file.

    `codec`: one of `CODECS`. lz4 and snappy do not compress delta-packed numbers further, since they gain only a tenth
    there and take as long as the packing; they do compress times, many of which are equal. `statistics`: names of
    numeric columns whose row groups get a minimum and maximum.
    """

    def __init__(self, stream: Stream, schema: pa.Schema, *, codec: str, statistics: Collection[str] = ()) -> None:
        self._stream = stream
        self._schema = schema
        of_name = CODECS[codec]
        self._compressor = None if of_name is None else Compressor(of_name)
        self._statistics = frozenset(statistics)
        self._leaves = [leaves_of(field) for field in schema]
        self._maker = PageMaker()
        self._groups: list[bytes] = []
        self._row_count = 0
        self._position = 0
        self.bounds: dict[str, tuple[int, int]] = {}
        """Minimum and maximum of each numeric column over all rows written; times in microseconds."""
        self._write(MAGIC)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, rows: pa.Table, row_group_rows_max: int | None = None) -> None:
        """Append rows as new row groups. The columns are those of the schema, dictionary-encoded or not."""
        rows_max = min(row_group_rows_max or ROW_GROUP_ROWS_MAX, ROW_GROUP_ROWS_MAX)
        for start in range(0, rows.num_rows, rows_max):
            for part in _bounded(rows.slice(start, rows_max)):
                self._write_group(part)

    def close(self) -> None:
        column_orders = [struct([nested(1, [])])] * sum(map(len, self._leaves))
        footer = struct(
            [
                i32(1, FORMAT_VERSION),
                list_of(2, STRUCT, schema_elements(self._schema)),
                i64(3, self._row_count),
                list_of(4, STRUCT, self._groups),
                binary(6, CREATED_BY),
                list_of(7, STRUCT, column_orders),
            ]
        )
        self._write(footer + len(footer).to_bytes(4, "little") + MAGIC)
        self._stream.close()

    def _write_group(self, rows: pa.Table) -> None:
        start, group = self._position, _RowGroup([], rows.num_rows)
        for column, leaves in zip(rows.columns, self._leaves, strict=True):
            for page in self._maker.pages(_one_array(column), leaves):
                self._write_chunk(page, group)
        fields = [
            list_of(1, STRUCT, group.chunks),
            i64(2, group.uncompressed_bytes),
            i64(3, group.row_count),
            i64(5, start),
            i64(6, group.compressed_bytes),
        ]
        self._groups.append(struct(fields))
        self._row_count += group.row_count

    def _write_chunk(self, page: Page, group: _RowGroup) -> None:
        start, uncompressed_bytes = self._position, 0
        compressor = self._compressor if self._pays(page) else None
        if page.dictionary is not None:
            head = nested(7, [i32(1, page.dictionary_count), i32(2, Encoding.PLAIN)])
            uncompressed_bytes += self._write_page(DICTIONARY_PAGE, head, page.dictionary, compressor)
        data_start = self._position
        head = nested(5, [i32(1, page.value_count), i32(2, page.encoding), *_LEVEL_ENCODINGS])
        uncompressed_bytes += self._write_page(DATA_PAGE, head, page.body, compressor)
        compressed_bytes = self._position - start
        group.uncompressed_bytes += uncompressed_bytes
        group.compressed_bytes += compressed_bytes
        codec = UNCOMPRESSED if compressor is None else compressor.codec.number
        meta = [i64(5, page.value_count), i64(6, uncompressed_bytes), i64(7, compressed_bytes), i64(9, data_start)]
        if page.dictionary is not None:
            meta.append(i64(11, start))
        name = page.leaf.path[0]
        if page.bounds is not None:
            before = self.bounds.get(name, page.bounds)
            self.bounds[name] = (min(before[0], page.bounds[0]), max(before[1], page.bounds[1]))
        if name in self._statistics:
            meta.append(nested(12, _statistics(page)))
        data = struct(meta, *_chunk_head(page.leaf, page.encoding, codec))
        group.chunks.append(struct([i64(2, start), (3, STRUCT, data)]))

    def _pays(self, page: Page) -> bool:
        """Should a page be compressed? A large page is judged by its beginning."""
        if self._compressor is None:
            return False
        if (
            self._compressor.codec.is_quick
            and page.encoding is Encoding.DELTA_BINARY_PACKED
            and not pa.types.is_timestamp(page.leaf.type)
        ):
            return False
        if len(page.body) < SAMPLED_BYTES_MIN:
            return True
        return len(self._compressor.compressed(page.body[:SAMPLE_BYTES])) <= COMPRESSED_SHARE_MAX * SAMPLE_BYTES

    def _write_page(self, kind: int, head: Field, body: U8, compressor: Compressor | None) -> int:
        """Write a page. Returns its uncompressed size, including the header."""
        size = len(body)
        data = body if compressor is None else compressor.compressed(body)
        checksum = crc32(data.data)
        signed = checksum - (checksum >> 31 << 32)
        header = struct([i32(1, kind), i32(2, size), i32(3, len(data)), i32(4, signed), head])
        self._write(header)
        self._write(data)
        return len(header) + size

    def _write(self, data: Any) -> None:
        self._stream.write(data)
        self._position += len(data)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    made = column.combine_chunks()
    return made.chunk(0) if isinstance(made, pa.ChunkedArray) else made


def _bounded(rows: pa.Table) -> Iterator[pa.Table]:
    """Split rows into parts that do not exceed the size of a page."""
    if rows.num_rows > 1 and rows.get_total_buffer_size() > ROW_GROUP_BYTES_MAX and rows.nbytes > ROW_GROUP_BYTES_MAX:
        half = rows.num_rows // 2
        yield from _bounded(rows.slice(0, half))
        yield from _bounded(rows.slice(half))
    else:
        yield rows


@cache
def _chunk_head(leaf: Leaf, encoding: Encoding, codec: int) -> tuple[bytes, int]:
    """The beginning of the metadata that all chunks of a column share, and the number of its last field."""
    encodings = {encoding, Encoding.RLE}
    if encoding is Encoding.RLE_DICTIONARY:
        encodings.add(Encoding.PLAIN)
    fields = [
        i32(1, leaf.physical),
        list_of(2, I32, [zigzag(encoding) for encoding in sorted(encodings)]),
        list_of(3, BINARY, [uvarint(len(name.encode())) + name.encode() for name in leaf.path]),
        i32(4, codec),
    ]
    return open_struct(fields), fields[-1][0]


def _statistics(page: Page) -> list[Field]:
    """Statistics of numbers: the null count, and maximum and minimum unless all values are null."""
    fields = [i64(3, page.null_count)]
    if page.bounds is not None:
        size = 8 if page.leaf.physical is Physical.INT64 else 4
        least, greatest = (value.to_bytes(size, "little", signed=True) for value in page.bounds)
        fields += [binary(5, greatest), binary(6, least)]
    return fields
