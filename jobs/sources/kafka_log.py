"""The Spark data source `kafka_log`: record batches of coordinator topics, byte for byte, batch and streaming.

    spark.dataSource.register(KafkaLogDataSource)
    spark.read.format("kafka_log").option("segments", "/var/kafka/data").load()
    spark.readStream.format("kafka_log").option("bootstrapServers", "localhost:9092").load()

Rows are those of bronze.record_batches without the columns that a capture adds. Options:

- `segments`: a folder or URI of segment files; or `bootstrapServers`: a live cluster, read up to the high watermark
  with isolation level 0, and `commandConfig`: path of the .properties file for the login. Options are visible in plans
  and event logs, so none may contain a secret. One source per load; join several with union.
- `topics`, `partitions`: comma-separated selection.
- `bytesPerPartition`: approximate size that one Spark partition reads of a cluster's log partition.
- `requestTimeoutMs`, `fetchBytesMax`: time-out of a broker, maximum size of a response.
- For streams: `maxBatchesPerTrigger` and `maxBytesPerTrigger`; both can be given. For a live cluster the bytes are
  estimated from samples. `startingOffsets`, JSON of `{"<topic>-<partition>": offset}`, for a new checkpoint.

Log partitions can be selected only with options. Spark 4.2.0 reuses the filters of a relation's last query if its
reader has `pushFilters`, and then silently returns wrong rows; this reader has none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jobs.delta.spark_schemas import spark_schema
from jobs.errors import SourceError
from jobs.settings import BrokerAddress, load_settings
from jobs.sources.broker import TIMEOUT_MS, Broker
from jobs.sources.broker_log import FETCH_BYTES_MAX, list_broker_logs, read_ranges
from jobs.sources.bytes_per_offset import split_ranges
from jobs.sources.fetch import LogRange
from jobs.sources.log_offsets import NO_LIMITS, BrokerOffsets, Limits, Offsets, SegmentOffsets, log_key, segments_from
from jobs.sources.segments import ADDED_BY_CAPTURE, PartitionLog, find_partitions, read_segment, to_record_batches
from schemas.tables import TABLES

NAME: Final = "kafka_log"

OPTIONS: Final = (
    "segments",
    "bootstrapServers",
    "commandConfig",
    "topics",
    "partitions",
    "bytesPerPartition",
    "requestTimeoutMs",
    "fetchBytesMax",
    "maxBatchesPerTrigger",
    "maxBytesPerTrigger",
    "startingOffsets",
)
BYTES_PER_PARTITION: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Selection:
    uri: str | None
    address: BrokerAddress | None
    """Either this or `uri` is set."""
    topics: tuple[str, ...]
    partitions: tuple[int, ...] | None
    bytes_per_partition: int
    timeout_ms: int
    fetch_bytes_max: int
    limits: Limits
    starting_offsets: Mapping[str, int]

    def offsets(self) -> SegmentOffsets | BrokerOffsets:
        """The current end offsets of the log partitions, for a stream."""
        if self.address is not None:
            return BrokerOffsets(self.address, self.topics, self.partitions, self.timeout_ms)
        assert self.uri is not None
        return SegmentOffsets(self.uri, self.topics, self.partitions)


def selection(options: Mapping[str, str]) -> Selection:
    """Parse and check the options. `options` must be Spark's own case-insensitive mapping, not a copy."""
    known = {name.lower() for name in OPTIONS} | {"path"}
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        raise SourceError(f"unknown option {unknown[0]} of {NAME}; known are: {', '.join(OPTIONS)}")
    uri = options.get("segments") or options.get("path")
    servers = options.get("bootstrapServers")
    if bool(uri) == bool(servers):
        raise SourceError(
            f'{NAME} needs either .option("segments", FOLDER) or .option("bootstrapServers", "HOST:PORT")'
        )
    topics = options.get("topics")
    partitions = options.get("partitions")
    try:
        return Selection(
            uri=uri,
            address=BrokerAddress(servers, options.get("commandConfig") or None) if servers else None,
            topics=_names(topics) if topics else load_settings(environment={}).topics,
            partitions=tuple(int(part) for part in _names(partitions)) if partitions else None,
            bytes_per_partition=_positive(options, "bytesPerPartition") or BYTES_PER_PARTITION,
            timeout_ms=_positive(options, "requestTimeoutMs") or TIMEOUT_MS,
            fetch_bytes_max=_positive(options, "fetchBytesMax") or FETCH_BYTES_MAX,
            limits=Limits(_positive(options, "maxBatchesPerTrigger"), _positive(options, "maxBytesPerTrigger")),
            starting_offsets=_starting_offsets(options.get("startingOffsets")),
        )
    except ValueError as error:
        raise SourceError("partitions, sizes, limits and times are whole numbers above zero") from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    number = int(text)
    if number < 1:
        raise ValueError(name)
    return number


def _starting_offsets(text: str | None) -> dict[str, int]:
    try:
        offsets = json.loads(text or "{}")
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not all(type(it) is int and it >= 0 for it in offsets.values()):
        raise SourceError('startingOffsets is JSON of the form {"<topic>-<partition>": offset}')
    return offsets


@dataclass
class LogPart(InputPartition):
    """Segments of a log partition for one task, and the offsets that it returns."""

    log: PartitionLog
    from_offset: int = 0
    to_offset: int | None = None
    """Exclusive; None: to the end."""


@dataclass
class BrokerPart(InputPartition):
    """Offsets of a log partition that one task fetches."""

    address: BrokerAddress
    chosen: LogRange
    timeout_ms: int
    fetch_bytes_max: int


class KafkaLogDataSource(DataSource):
    """`kafka_log`, over segment files or a live cluster."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return NAME

    def schema(self) -> StructType | str:
        """bronze.record_batches without the columns that a capture adds."""
        columns = TABLES["bronze.record_batches"].columns
        return spark_schema(column for column in columns if column.name not in ADDED_BY_CAPTURE)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaLogReader(selection(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of all batches, including those appended while the query runs."""
        return KafkaLogStreamReader(selection(self.options))


class KafkaLogReader(DataSourceReader):
    """One task for each log partition; for large ones, one for each segment or range of offsets."""

    def __init__(self, chosen: Selection) -> None:
        self._chosen = chosen

    def partitions(self) -> Sequence[InputPartition]:
        chosen = self._chosen
        if chosen.address is None:
            assert chosen.uri is not None
            logs = find_partitions(chosen.uri, chosen.topics, chosen.partitions)
            return [LogPart(replace(log, segments=(segment,))) for log in logs for segment in log.segments]
        with Broker.connect(chosen.address, timeout_ms=chosen.timeout_ms) as broker:
            found = list_broker_logs(broker, chosen.topics)
            ranges = [log.range() for log in found if chosen.partitions is None or log.partition in chosen.partitions]
            ranges = [it for it in ranges if it.from_offset < it.to_offset]
            parts = split_ranges(broker, ranges, chosen.bytes_per_partition)
        return [BrokerPart(chosen.address, part, chosen.timeout_ms, chosen.fetch_bytes_max) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches of one part."""
        return _read(partition)


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<topic>-<partition>": next offset}`; a log partition that is missing starts at its beginning."""

    def __init__(self, chosen: Selection) -> None:
        self._chosen = chosen
        self._offsets = chosen.offsets()
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """The beginning of every log partition, or its `startingOffsets`."""
        return dict(self._chosen.starting_offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark accepts one limit; `latestOffset` applies both."""
        limits = self._chosen.limits
        if limits.batch_count_max is not None:
            return ReadMaxRows(limits.batch_count_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end offsets: data appended later is left for the next run."""
        self._target = self._offsets.next({}, NO_LIMITS, None)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """The end offsets of the next micro-batch."""
        limits = self._chosen.limits
        match limit:
            case ReadMaxRows(max_rows):
                limits = replace(limits, batch_count_max=max_rows)
            case ReadMaxBytes(max_bytes):
                limits = replace(limits, bytes_max=max_bytes)
            case _:
                limits = NO_LIMITS
        return self._offsets.next(start, limits, self._target)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """One part for each log partition with data between the offsets."""
        offsets = self._offsets
        chosen = self._chosen
        if isinstance(offsets, SegmentOffsets):
            keyed = [(log_key(log.topic, log.partition), log) for log in offsets.find()]
            return [
                LogPart(log, start.get(key, 0), end[key]) for key, log in keyed if end.get(key, 0) > start.get(key, 0)
            ]
        assert chosen.address is not None
        found = offsets.between(start, end)
        return [BrokerPart(chosen.address, it, chosen.timeout_ms, chosen.fetch_bytes_max) for it in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches of one part."""
        return _read(partition)


def _read(part: InputPartition) -> Iterator[pa.RecordBatch]:
    match part:
        case LogPart():
            yield from _read_segments(part)
        case BrokerPart():
            with Broker.connect(part.address, timeout_ms=part.timeout_ms) as broker:
                for chosen, read in read_ranges(broker, [part.chosen], fetch_bytes_max=part.fetch_bytes_max):
                    yield from to_record_batches(read, chosen)


def _read_segments(part: LogPart) -> Iterator[pa.RecordBatch]:
    for segment in segments_from(part.log.segments, part.from_offset):
        if part.to_offset is not None and segment.base_offset >= part.to_offset:
            return
        read = read_segment(segment)
        next_offset = read.scan.batches.last_offset + 1
        rows = next_offset > part.from_offset
        if part.to_offset is not None:
            rows &= next_offset <= part.to_offset
        yield from to_record_batches(read, part.log, rows)
