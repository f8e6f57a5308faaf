"""The only reader of Parquet files: whole files, or the row groups that statistics do not exclude."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from coordinator_core.text import counted
from jobs.delta.filesystems import filesystem_of, table_of
from jobs.errors import TableDamaged

Read = TypeVar("Read")

CHECKED: Final = {"page_checksum_verification": True}
"""A changed byte in the middle of a page may still be decoded, as another value: pages have checksums."""

Bounds = tuple[Any, Any] | None
"""Minimum and maximum of a column in a row group; None where a row may be null, or without statistics."""


class Scanner:
    """A Parquet file, opened on first access. Use as a context manager.

    `coded`: columns to read dictionary-encoded, as they are stored. `metadata`: the footer, if it was read before.
    """

    def __init__(
        self,
        path: str,
        coded: Collection[str] = (),
        *,
        metadata: pq.FileMetaData | None = None,
        use_threads: bool = False,
    ) -> None:
        self.path = path
        self.coded = tuple(coded)
        self._metadata = metadata
        self._use_threads = use_threads
        self._source: Any = None

    @classmethod
    def of_open(cls, source: Any) -> Self:
        """Scan an open file; the caller closes it."""
        scanner = cls("")
        scanner._parquet = pq.ParquetFile(source, **CHECKED)
        return scanner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        return self._read(self._open)

    def _open(self) -> pq.ParquetFile:
        filesystem, path = filesystem_of(self.path)
        self._source = filesystem.open_input_file(path)
        return pq.ParquetFile(self._source, metadata=self._metadata, read_dictionary=self.coded, **CHECKED)

    def _read(self, read: Callable[[], Read]) -> Read:
        """What is read of the file. Raises TableDamaged where a file of a table is not what was written."""
        try:
            return read()
        except (pa.ArrowInvalid, OSError) as error:
            damage = damage_of(self.path, error)
            if damage is None:
                raise
            raise damage from error

    @property
    def metadata(self) -> pq.FileMetaData:
        if self._metadata is None:
            self._metadata = self._parquet.metadata
        return self._metadata

    @property
    def schema(self) -> pa.Schema:
        return self._parquet.schema_arrow

    @cached_property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(self.metadata.row_group(index).num_rows for index in range(self.metadata.num_row_groups))

    @property
    def row_group_bytes(self) -> list[int]:
        """Uncompressed size of each row group."""
        return [self.metadata.row_group(index).total_byte_size for index in range(self.metadata.num_row_groups)]

    def bounds(self, column: str) -> list[Bounds]:
        """The bounds of a column in each row group."""
        number = self.metadata.schema.to_arrow_schema().get_field_index(column)
        found: list[Bounds] = []
        for index in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(index).column(number).statistics if number >= 0 else None
            if statistics is not None and statistics.has_min_max and statistics.null_count == 0:
                found.append((statistics.min, statistics.max))
            else:
                found.append(None)
        return found

    def may_hold(self, column: str, first: Any, last: Any) -> list[int]:
        """The row groups that may have a value from `first` to `last` in a column."""
        return [
            index
            for index, bounds in enumerate(self.bounds(column))
            if bounds is None or (bounds[0] <= last and bounds[1] >= first)
        ]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read(lambda: self._parquet.read(columns=_listed(columns), use_threads=self._use_threads))

    def read_row_group(self, index: int, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read(
            lambda: self._parquet.read_row_group(index, columns=_listed(columns), use_threads=self._use_threads)
        )

    def row_groups(
        self, columns: Sequence[str] | None = None, indices: Iterable[int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of some row groups, or of all, one row group at a time."""
        for index in range(self.metadata.num_row_groups) if indices is None else indices:
            yield self.read_row_group(index, columns)

    def batches(
        self, columns: Sequence[str], *, rows_max: int, indices: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups, or of all, at most `rows_max` at a time."""
        batches = self._parquet.iter_batches(
            batch_size=rows_max, row_groups=indices, columns=list(columns), use_threads=self._use_threads
        )
        while (batch := self._read(lambda: next(batches, None))) is not None:
            yield batch


def damage_of(path: str, error: Exception) -> TableDamaged | None:
    """The damage that an error of reading a file of a table is about; None where the store failed to deliver it."""
    place = table_of(path)
    if place is None:
        return None
    filesystem, name = filesystem_of(path)
    fault = fault_of(filesystem.get_file_info(name), None)
    if fault is None and isinstance(error, PermissionError):
        fault = "permission denied"
    if fault is None and getattr(error, "errno", None) is None and "AWS Error" not in str(error):
        fault = "it is not what was written"
    return None if fault is None else TableDamaged(place[1], path, fault)


def fault_of(info: fs.FileInfo, size_bytes: int | None) -> str | None:
    """What is wrong with a file, without reading it; None: nothing. `size_bytes`: as it was written, if that is
    known."""
    if info.type == fs.FileType.NotFound:
        return "the file is gone"
    if info.type != fs.FileType.File:
        return "it is a folder"
    if info.size == 0:
        return "it is empty"
    if size_bytes not in (None, info.size):
        return f"it has {info.size:,} of {counted(size_bytes, 'byte')}"
    return None


def read_whole(paths: Iterable[str]) -> None:
    """Read files that something else failed to read. Raises TableDamaged for the first damaged one."""
    for path in paths:
        with Scanner(path) as scanner:
            for _ in scanner.row_groups():
                pass


def _listed(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def dataset_of(
    paths: Sequence[str], schema: pa.Schema, partition_values: Sequence[Mapping[str, Any]] | None = None
) -> Any:
    """Files of one file system as one pyarrow dataset, so that filters prune row groups by statistics.

    `partition_values`: for each file, the columns that it does not store.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415  (slow to import, and few jobs need it)

    places = [filesystem_of(path) for path in paths]
    file_format = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(**CHECKED))
    if partition_values is None:
        return ds.dataset([path for _, path in places], schema=schema, filesystem=places[0][0], format=file_format)
    fragments = [
        file_format.make_fragment(path, filesystem, partition_expression=_all_equal(values, schema))
        for (filesystem, path), values in zip(places, partition_values, strict=True)
    ]
    return ds.FileSystemDataset(fragments, schema, file_format, places[0][0] if places else None)


def _all_equal(values: Mapping[str, Any], schema: pa.Schema) -> Any:
    """A filter: these columns equal these values."""
    found = pc.scalar(True)
    for name, value in values.items():
        column = pc.field(name)
        equal = column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)
        found = equal if len(values) == 1 else found & equal
    return found
