"""The Spark data source `kafka_log`: record batches of coordinator topics, byte for byte, batch and streaming.

    spark.dataSource.register(KafkaLogDataSource)
    spark.read.format("kafka_log").option("segments", "/var/kafka/data").load()
    spark.readStream.format("kafka_log").option("segments", uri).option("maxBatchesPerTrigger", 10_000).load()

Options: `segments`, a folder or URI (one; join several loads with union); `topics` and `partitions`, comma-separated,
to choose from it; for streams `maxBatchesPerTrigger`. Rows are those of bronze.record_batches without what a capture
adds.

Partitions of the log are chosen by options alone. Spark 4.2.0 keeps the filters of a relation's last query when its
reader has `pushFilters`, and then gives wrong rows in silence; this reader has none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jobs.arrow_schemas import delta_struct
from jobs.errors import SourceError
from jobs.settings import load_settings
from jobs.sources.segments import (
    ADDED_BY_CAPTURE,
    PartitionLog,
    Segment,
    find_partitions,
    read_segment,
    to_record_batches,
)
from schemas.tables import TABLES

NAME: Final = "kafka_log"

OPTIONS: Final = ("segments", "topics", "partitions", "maxBatchesPerTrigger")


@dataclass(frozen=True, slots=True)
class Selection:
    """What the options choose."""

    uri: str
    topics: tuple[str, ...]
    partitions: tuple[int, ...] | None
    batch_count_max: int | None

    def find(self) -> list[PartitionLog]:
        """The chosen log partitions as they are now."""
        return find_partitions(self.uri, self.topics, self.partitions)


def selection(options: Mapping[str, str]) -> Selection:
    """The options, checked. `options` is Spark's own mapping, which knows a name in any case; a copy would not."""
    known = {name.lower() for name in OPTIONS} | {"path"}
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        raise SourceError(f"unknown option {unknown[0]} of {NAME}; known are: {', '.join(OPTIONS)}")
    uri = options.get("segments") or options.get("path")
    if not uri:
        raise SourceError(f'{NAME} needs .option("segments", FOLDER)')
    topics = options.get("topics")
    partitions = options.get("partitions")
    batch_count_max = options.get("maxBatchesPerTrigger")
    try:
        return Selection(
            uri=uri,
            topics=_names(topics) if topics else load_settings(environment={}).topics,
            partitions=tuple(int(part) for part in _names(partitions)) if partitions else None,
            batch_count_max=int(batch_count_max) if batch_count_max else None,
        )
    except ValueError as error:
        raise SourceError("partitions and maxBatchesPerTrigger take whole numbers") from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass
class LogPart(InputPartition):
    """Segments of a log partition which one task reads, and the offsets it gives of them."""

    log: PartitionLog
    from_offset: int = 0
    to_offset: int | None = None
    """Exclusive; None: to the end."""


class KafkaLogDataSource(DataSource):
    """`kafka_log`, over segment files."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """bronze.record_batches without what a capture adds."""
        columns = TABLES["bronze.record_batches"].columns
        return StructType.fromJson(delta_struct(column for column in columns if column.name not in ADDED_BY_CAPTURE))

    def reader(self, schema: StructType) -> DataSourceReader:
        """All batches there are now."""
        return KafkaLogReader(selection(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """All batches, and those which are appended while the query runs."""
        return KafkaLogStreamReader(selection(self.options))


class KafkaLogReader(DataSourceReader):
    """One task for each log partition, or for each segment where it has several."""

    def __init__(self, chosen: Selection) -> None:
        self._chosen = chosen

    def partitions(self) -> Sequence[InputPartition]:
        """The work of the tasks."""
        return [LogPart(replace(log, segments=(segment,))) for log in self._chosen.find() for segment in log.segments]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of one part."""
        return _read(partition)


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<topic>-<partition>": next offset}`; a log partition without one starts at its beginning."""

    def __init__(self, chosen: Selection) -> None:
        self._chosen = chosen
        self._target: dict[str, int] | None = None
        self._scanned: dict[tuple[str, int], NDArray[np.int64]] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning of every log partition."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxBatchesPerTrigger` rows a micro-batch, or all there is."""
        if self._chosen.batch_count_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._chosen.batch_count_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the target: what is appended from here on is left for the next run."""
        self._target = self.latestOffset({}, ReadAllAvailable())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the next micro-batch goes: `limit` batches on, in the order of topics and partitions."""
        batch_count_left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = dict(start)
        for log in self._chosen.find():
            key = _key(log)
            from_offset = start.get(key, 0)
            next_offsets = self._next_offsets(log, from_offset)
            if self._target is not None:
                next_offsets = next_offsets[next_offsets <= self._target.get(key, 0)]
            if batch_count_left is not None:
                next_offsets = next_offsets[:batch_count_left]
                batch_count_left -= len(next_offsets)
            if len(next_offsets):
                end[key] = int(next_offsets[-1])
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One part for each log partition which has something between."""
        return [
            LogPart(log, start.get(_key(log), 0), end[_key(log)])
            for log in self._chosen.find()
            if end.get(_key(log), 0) > start.get(_key(log), 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of one part."""
        return _read(partition)

    def _next_offsets(self, log: PartitionLog, from_offset: int) -> NDArray[np.int64]:
        """The next offset after each batch from an offset on. What was framed once is not framed again."""
        parts = [np.empty(0, np.int64)]
        for segment in _from(log.segments, from_offset):
            key = segment.path, segment.size_bytes
            if key not in self._scanned:
                self._scanned[key] = read_segment(segment).scan.batches.last_offset + 1
            parts.append(self._scanned[key])
        next_offsets = np.concatenate(parts)
        return next_offsets[next_offsets > from_offset]


def _key(log: PartitionLog) -> str:
    return f"{log.topic}-{log.partition}"


def _from(segments: Sequence[Segment], from_offset: int) -> Sequence[Segment]:
    """The segments which can hold an offset, or later ones."""
    first = max((i for i, segment in enumerate(segments) if segment.base_offset <= from_offset), default=0)
    return segments[first:]


def _read(part: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, LogPart)
    for segment in _from(part.log.segments, part.from_offset):
        if part.to_offset is not None and segment.base_offset >= part.to_offset:
            return
        read = read_segment(segment)
        next_offset = read.scan.batches.last_offset + 1
        rows = next_offset > part.from_offset
        if part.to_offset is not None:
            rows &= next_offset <= part.to_offset
        yield from to_record_batches(read, part.log, rows)
