"""Identify the Kafka cluster and the internal topics of the captured logs, so that other logs never mix with them.

A topic that was deleted and recreated, or a cluster that was wiped, begins at offset 0 again. Its batches would fill
gaps of the old log without notice. So a capture keeps the ids that it finds (bronze.identities): the cluster id from
meta.properties or from a live cluster, and topic ids from partition.metadata or from a live cluster. Sources with other
ids are refused before anything is written. So are two sources of one run whose ids differ.

Where a folder has no topic id, batches decide (`coordinator_core.bytes.log.same_log`): those at the lowest offsets that
bronze and the folder share. If their headers agree, as they usually do, nothing else is read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from coordinator_core.bytes.coverage import intersect
from coordinator_core.bytes.log.chunk import U8, BatchColumns
from coordinator_core.bytes.log.records import decode_chunk, frame_chunk
from coordinator_core.bytes.log.same_log import OtherLog, other_log, share_a_batch
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.console.output import time_text
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import filesystem_of
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.sources.segments import DUMP, PartitionLog, Segment, SegmentRead, as_array, kafka_cluster_id_of
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.tables.bronze import IDENTITIES, RECORD_BATCHES

if TYPE_CHECKING:
    from jobs.bronze.plan import Sources
    from jobs.bronze.snapshot import Bronze
    from jobs.sources.broker import Broker
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.dump_log import DumpLog

CLUSTER: Final = "CLUSTER"
TOPIC: Final = "TOPIC"
BEGINNING_BYTES: Final = 1 << 20
"""Number of bytes at the beginning of a segment that are compared first."""
BATCHES_COMPARED_MAX: Final = 500

HEADER_COLUMNS: Final = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "record_count",
    "max_timestamp",
    "crc_valid",
    "redacted_at",
    "source_kind",
)


class Identity(NamedTuple):
    """An id of a cluster or of an internal topic, and where it was found."""

    kind: str
    topic: str
    """Empty where the id is that of the cluster."""
    id: str
    source: str

    @property
    def subject(self) -> tuple[str, str]:
        """What the id belongs to."""
        return self.kind, self.topic


def identities_of(sources: "Sources") -> tuple[Identity, ...]:
    """The distinct ids of the sources. Raises SourceError where two of them differ, before anything is written."""
    found: dict[tuple[str, str], tuple[Identity, str]] = {}
    for identity, place in _all_of(sources.segments, sources.live):
        first, first_place = found.setdefault(identity.subject, (identity, place))
        if first.id != identity.id:
            what = "the cluster id" if first.kind == CLUSTER else f"the id of topic {first.topic}"
            raise SourceError(
                f"{place} and {first_place} are not of one log: {what} is {identity.id} in the one "
                f"and {first.id} in the other. Capture them with a --cluster-id each, in two runs"
            )
    return tuple(identity for identity, _ in found.values())


def refuse_other_identities(
    identities: Iterable[Identity], known: Mapping[tuple[str, str], Identity], cluster_id: str
) -> None:
    """Raise SourceError for a cluster or a topic whose id differs from the one captured under this cluster id."""
    for identity in identities:
        first = known.get(identity.subject)
        if first is None or first.id == identity.id:
            continue
        where = f"it was captured from {first.source} as --cluster-id {cluster_id}"
        if identity.kind == CLUSTER:
            raise SourceError(
                f"{identity.source} is of another Kafka cluster: its cluster id is {identity.id}, and that of "
                f"--cluster-id {cluster_id} is {first.id} ({where}). Nothing was written: give this cluster a "
                "--cluster-id of its own, or begin with a new --warehouse"
            )
        raise SourceError(
            f"topic {identity.topic} was deleted and recreated, or is of another cluster: its topic id is "
            f"{identity.id} in {identity.source}, and was {first.id} when {where}. Its offsets began again. Nothing "
            "was written: capture it with a --cluster-id of its own, or begin with a new --warehouse"
        )


def known_identities(warehouse: Warehouse, bronze: "Bronze") -> dict[tuple[str, str], Identity]:
    """The ids that captures of a cluster kept; for captured topics without one, the id from Admin snapshots."""
    tables = ClusterTables(warehouse, bronze.cluster_id)
    captured = {topic for topic, _ in bronze.known}
    known = {
        (TOPIC, topic): Identity(TOPIC, topic, topic_id, "a live cluster")
        for topic, topic_id in first_topic_ids(tables).items()
        if topic in captured
    }
    return known | _stored(tables)


def _stored(tables: ClusterTables) -> dict[tuple[str, str], Identity]:
    rows = tables.read(IDENTITIES, ["kind", "topic", "id", "source"]).to_pylist()
    stored = (Identity(row["kind"], row["topic"], row["id"], row["source"]) for row in rows)
    return {identity.subject: identity for identity in stored}


def refuse_other_cluster(tables: ClusterTables, broker: "Broker") -> None:
    """Raise SourceError where a live cluster is not the one that was captured under this cluster id.

    For jobs that ask a cluster about other things than its coordinators' logs.
    """
    _refuse_other_cluster(tables, broker.current_cluster_id(), "the live cluster")


def refuse_folders_of_other_clusters(tables: ClusterTables, folders: Iterable[str]) -> None:
    """The same for folders of other topics."""
    for folder in folders:
        _refuse_other_cluster(tables, kafka_cluster_id_of(folder), folder)


def _refuse_other_cluster(tables: ClusterTables, kafka_cluster_id: str | None, source: str) -> None:
    if kafka_cluster_id is not None:
        found = Identity(CLUSTER, "", kafka_cluster_id, source)
        refuse_other_identities([found], _stored(tables), tables.cluster_id)


def other_names(warehouse: Warehouse, bronze: "Bronze", identities: Iterable[Identity]) -> tuple[str, ...]:
    """A sentence where a first capture is of a Kafka cluster that was captured under other cluster ids: one of them may
    be mistyped. Tables and answers of each are apart.
    """
    kafka_id = next((identity.id for identity in identities if identity.kind == CLUSTER), None)
    if kafka_id is None or bronze.known:
        return ()
    rows = warehouse.read(IDENTITIES, ["cluster_id", "kind", "id"]).to_pylist()
    of_cluster = {row["cluster_id"] for row in rows if (row["kind"], row["id"]) == (CLUSTER, kafka_id)}
    names = sorted(of_cluster - {bronze.cluster_id})
    if not names:
        return ()
    return (
        f"this Kafka cluster (its id is {kafka_id}) was captured as --cluster-id {', '.join(names)} before. What is "
        f"captured as {bronze.cluster_id} from now on is kept apart from that",
    )


def keep_identities(tables: ClusterTables, identities: Iterable[Identity], seen_at: datetime) -> tuple[Identity, ...]:
    """Keep the ids that are not known yet. Returns the new ones."""
    kept = {(row["kind"], row["topic"]) for row in tables.read(IDENTITIES, ["kind", "topic"]).to_pylist()}
    new = tuple(identity for identity in identities if identity.subject not in kept)
    if new:
        rows = [{**it._asdict(), "seen_at": seen_at} for it in new]
        application = f"groupledger/identity/{tables.cluster_id}"
        version = max(epoch_ms(seen_at), tables.warehouse.last_version(IDENTITIES, application) + 1)
        tables.write(IDENTITIES, rows, app_id=application, version=version)
    return new


def check_sources(warehouse: Warehouse, bronze: "Bronze", sources: "Sources") -> tuple[Identity, ...]:
    """The ids of the sources.

    Raises SourceError where the sources are not of the logs in bronze, before anything is written.
    """
    identities = identities_of(sources)
    known = known_identities(warehouse, bronze)
    refuse_other_identities(identities, known, bronze.cluster_id)
    refuse_other_batches(warehouse, bronze, sources.segments, known)
    return identities


def refuse_other_batches(
    warehouse: Warehouse, bronze: "Bronze", segments: Sequence[PartitionLog], known: Mapping[tuple[str, str], Identity]
) -> None:
    """Raise SourceError where a log without a topic id has records that cannot be of the log in bronze, or of the log
    in another folder of this run.
    """
    by_place: dict[LogPartition, list[PartitionLog]] = {}
    for log in segments:
        by_place.setdefault((log.topic, log.partition), []).append(log)
    files = _files_by_log(warehouse, bronze)
    for place, logs in by_place.items():
        for index, log in enumerate(logs):
            is_proved = _has_id(log) and (TOPIC, log.topic) in known
            if not is_proved and place in files:
                found = _other_than_bronze(log, bronze.known.get(place, ()), files[place])
                if found is not None:
                    raise SourceError(_other_records(log, found, f"bronze of --cluster-id {bronze.cluster_id}"))
            first = logs[0]
            if index and not (_has_id(log) and _has_id(first)):
                found = _other_than(log, first)
                if found is not None:
                    raise SourceError(_other_records(log, found, first.uri))


def _files_by_log(warehouse: Warehouse, bronze: "Bronze") -> dict[LogPartition, list[TableFile]]:
    files: dict[LogPartition, list[TableFile]] = {}
    for file in warehouse.files(RECORD_BATCHES) if bronze.known else ():
        if file.partition_values["cluster_id"] == bronze.cluster_id and file.row_count:
            files.setdefault((file.partition_values["topic"], file.partition_values["partition"]), []).append(file)
    return files


def _has_id(log: PartitionLog) -> bool:
    # the id of the metadata topic is the same in every cluster, so it identifies nothing
    return log.topic_id is not None and log.topic != METADATA_TOPIC


def _all_of(segments: Iterable[PartitionLog], live: "Iterable[BrokerLog]") -> Iterable[tuple[Identity, str]]:
    """All ids, each with the place where it is: one log directory may have partitions of two topics of one name."""
    logs = [(it.topic, it.topic_id, it.kafka_cluster_id, it.uri, f"/{it.topic}-{it.partition}") for it in segments]
    logs += [(it.topic, it.topic_id, it.kafka_cluster_id, it.address.bootstrap_servers, "") for it in live]
    for topic, topic_id, kafka_cluster_id, source, folder in logs:
        if kafka_cluster_id is not None:
            yield Identity(CLUSTER, "", kafka_cluster_id, source), source
        if topic_id is not None and topic != METADATA_TOPIC:
            yield Identity(TOPIC, topic, topic_id, source), f"{source.rstrip('/')}{folder}"


def _other_records(log: "PartitionLog | DumpLog", found: OtherLog, other: str) -> str:
    def observed(epoch: int | None, at_ms: int) -> str:
        of_epoch = "" if epoch is None else f" of leader epoch {epoch}"
        return f"a record{of_epoch} written at {time_text(at_ms if at_ms >= 0 else None) or 'no known time'}"

    return (
        f"{log.uri}: {log.topic}-{log.partition} is another log than {other} has. At offset {found.offset} it has "
        f"{observed(found.found_epoch, found.found_ms)}, and there it is "
        f"{observed(found.known_epoch, found.known_ms)}: the topic was deleted and recreated, or the folder is of "
        "another cluster. Nothing was written: capture it with a --cluster-id of its own, or begin with a new "
        "--warehouse"
    )


# --- comparison of batches


def _other_than_bronze(
    log: PartitionLog, known: Sequence[tuple[int, int]], files: Sequence[TableFile]
) -> OtherLog | None:
    """The first offset at which a log cannot be the one in bronze, among the lowest offsets that both have."""
    for data, batches, shared in _overlapping(log, known):
        first, last = int(batches.base_offset[shared[0]]), int(batches.last_offset[shared[-1]])
        headers = _bronze_rows(files, first, last, HEADER_COLUMNS)
        if not headers.num_rows:
            continue
        if share_a_batch(_header_columns(headers), _rows_of(batches, shared)):
            return None
        rows = _bronze_rows(files, first, last, (*HEADER_COLUMNS, "batch"))
        bytes_of = b"".join(rows["batch"].to_pylist())
        # a batch that a dump printed may have other bytes than the leader wrote
        is_written = pc.and_(pc.is_valid(rows["leader_epoch"]), pc.not_equal(rows["source_kind"], DUMP))
        has_epoch = is_written.to_numpy(zero_copy_only=False)
        return other_log(decode_chunk(bytes_of), decode_chunk(_bytes(data, batches, shared)), known_has_epoch=has_epoch)
    return None


def refuse_other_dumps(warehouse: Warehouse, bronze: "Bronze", sources: "Sources") -> None:
    """Raise SourceError where a dump cannot be of the log that bronze or another source of this run has.

    A dump has no epochs: only its beginning or its times can prove that.
    """
    folders: dict[LogPartition, PartitionLog] = {}
    for folder in sources.segments:
        folders.setdefault((folder.topic, folder.partition), folder)
    dumps: dict[LogPartition, list[DumpLog]] = {}
    for log in sources.all_dumps:
        if log.has_offsets:
            dumps.setdefault((log.topic, log.partition), []).append(log)
    files = _files_by_log(warehouse, bronze) if dumps else {}
    for place, logs in dumps.items():
        if place in bronze.known or place in folders or len(logs) > 1:
            _refuse_other_dumps_of(logs, bronze, files.get(place, ()), folders.get(place))


def _refuse_other_dumps_of(
    logs: "Sequence[DumpLog]", bronze: "Bronze", files: Sequence[TableFile], folder: PartitionLog | None
) -> None:
    """The same for the dumps of one log partition."""
    known = bronze.known.get((logs[0].topic, logs[0].partition), ())
    first: SegmentRead | None = None
    for index, log in enumerate(logs):
        pieces = _pieces(log)
        beginning = next(pieces, None)
        if beginning is None:
            continue
        read = chain([beginning], pieces)
        shared = [it for it in known if it[1] >= log.first_offset]
        found = {f"bronze of --cluster-id {bronze.cluster_id}": _dump_other_than_bronze(read, shared, files)}
        if folder is not None:
            found[folder.uri] = _dump_other_than(beginning, folder)
        if first is not None:
            found[logs[0].uri] = _other_rows(as_array(first.data), beginning)
        if index == 0:
            first = beginning
        for other, proof in found.items():
            if proof is not None:
                raise SourceError(_other_records(log, proof, other))


def _pieces(log: "DumpLog") -> Iterator[SegmentRead]:
    from jobs.sources.dumps.pack import read_dump_log  # noqa: PLC0415  (a capture without dumps need not load it)

    return (read for read in read_dump_log(log) if len(read.scan.batches))


def _other_rows(known: U8, found: SegmentRead) -> OtherLog | None:
    """Of a piece of a dump."""
    no_epoch = np.zeros(len(found.scan.batches), np.bool_)
    return other_log(decode_chunk(known), decode_chunk(as_array(found.data)), found_has_epoch=no_epoch)


def _dump_other_than_bronze(
    pieces: Iterable[SegmentRead], known: Sequence[tuple[int, int]], files: Sequence[TableFile]
) -> OtherLog | None:
    """The first offset at which a dump cannot be of the log of bronze, among the oldest that both have."""
    if not known:
        return None
    for read in pieces:
        shared = _shared(read.scan.batches, known)
        if not len(shared):
            continue
        first, last = int(read.scan.batches.base_offset[shared[0]]), int(read.scan.batches.last_offset[shared[-1]])
        rows = _bronze_rows(files, first, last, (*HEADER_COLUMNS, "batch"))
        return _other_rows(as_array(b"".join(rows["batch"].to_pylist())), read)
    return None


def _dump_other_than(beginning: SegmentRead, folder: PartitionLog) -> OtherLog | None:
    """The same of a dump and a folder of one run: the beginning of the dump, and what the folder has of it."""
    batches_of_dump = beginning.scan.batches
    span = int(batches_of_dump.base_offset[0]), int(batches_of_dump.last_offset[-1])
    for data, batches, shared in _overlapping(folder, [span]):
        return _other_rows(_bytes(data, batches, shared), beginning)
    return None


def _other_than(log: PartitionLog, first: PartitionLog) -> OtherLog | None:
    """The first offset at which two folders cannot be of one log: compares the oldest segments that overlap."""
    for segment, end in _with_ends(log):
        for other, other_end in _with_ends(first):
            if end < other.base_offset or other_end < segment.base_offset:
                continue
            for data, of_other in zip(_beginnings(segment), _beginnings(other), strict=False):
                batches, others = frame_chunk(data)[0], frame_chunk(of_other)[0]
                if not len(batches) or not len(others):
                    continue
                shared = _shared(batches, [(int(others.base_offset[0]), int(others.last_offset[-1]))])
                if not len(shared):
                    continue
                if share_a_batch(others, _rows_of(batches, shared)):
                    return None
                span = (int(batches.base_offset[shared[0]]), int(batches.last_offset[shared[-1]]))
                both = _shared(others, [span])
                if not len(both):
                    continue  # each has batches only where the other has none
                return other_log(
                    decode_chunk(_bytes(of_other, others, both)), decode_chunk(_bytes(data, batches, shared))
                )
    return None


def _overlapping(log: PartitionLog, ranges: Sequence[OffsetRange]) -> Iterator[tuple[U8, BatchColumns, Any]]:
    """The beginnings of segments that overlap with some offset ranges: bytes, batches, and the rows of the first
    batches that do."""
    for segment, end in _with_ends(log):
        if not intersect([(segment.base_offset, end)], ranges):
            continue
        for data in _beginnings(segment):
            batches, _ = frame_chunk(data)
            shared = _shared(batches, ranges)
            if len(shared):
                yield data, batches, shared


def _with_ends(log: PartitionLog) -> Iterable[tuple[Segment, int]]:
    """Segments, each with the highest offset that it can contain."""
    ends = [segment.base_offset - 1 for segment in log.segments[1:]]
    return zip(log.segments, [*ends, np.iinfo(np.int64).max], strict=True)


def _beginnings(segment: Segment) -> Iterable[U8]:
    """Yield the beginning of a segment, then all of it if it is longer. Unreadable segments are left to the capture."""
    try:
        filesystem, path = filesystem_of(segment.path)
        with filesystem.open_input_file(path) as source:
            yield as_array(source.read_buffer(min(segment.size_bytes, BEGINNING_BYTES)))
        if segment.size_bytes > BEGINNING_BYTES:
            if isinstance(filesystem, fs.LocalFileSystem):
                with pa.memory_map(path) as mapped:
                    yield as_array(mapped.read_buffer())
            else:
                with filesystem.open_input_file(path) as source:
                    yield as_array(source.read_buffer())
    except OSError:
        return


def _shared(batches: BatchColumns, ranges: Sequence[tuple[int, int]]) -> Any:
    """Rows of the first batches that overlap with some offset ranges."""
    firsts = np.array([first for first, _ in ranges], np.int64)
    lasts = np.array([last for _, last in ranges], np.int64)
    nearest = np.searchsorted(firsts, batches.last_offset, side="right") - 1
    rows = np.flatnonzero((nearest >= 0) & (lasts[np.maximum(nearest, 0)] >= batches.base_offset))
    return rows[:BATCHES_COMPARED_MAX]


def _bytes(data: U8, batches: BatchColumns, rows: Any) -> U8:
    parts = [data[int(batches.position[row]) : int(batches.position[row] + batches.size[row])] for row in rows.tolist()]
    return np.concatenate(parts)


def _rows_of(batches: BatchColumns, rows: Any) -> BatchColumns:
    return BatchColumns(*(getattr(batches, name)[rows] for name in BatchColumns.__slots__))


def _header_columns(rows: pa.Table) -> BatchColumns:
    """Headers of rows of bronze: the columns that are compared."""

    def numbers(name: str) -> Any:
        return pc.fill_null(rows[name], -2).to_numpy()

    times = pc.fill_null(rows["max_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()), -1).to_numpy()
    compared = {
        "base_offset": numbers("base_offset"),
        "last_offset": numbers("last_offset"),
        "leader_epoch": numbers("leader_epoch"),
        "record_count": numbers("record_count"),
        "max_timestamp_ms": times,
    }
    nothing = np.zeros(rows.num_rows, np.int64)
    return BatchColumns(*(compared.get(name, nothing) for name in BatchColumns.__slots__))


def _bronze_rows(files: Sequence[TableFile], first: int, last: int, columns: Sequence[str]) -> pa.Table:
    """Undamaged batches that overlap with an offset range, ascending. Batches that were redacted are left out, since
    their bytes differ from Kafka's."""
    parts = []
    for file in files:
        if file.maximum.get("last_offset", last) < first or file.minimum.get("base_offset", first) > last:
            continue
        with Scanner(file.path) as scanner:
            for rows in scanner.row_groups(columns, scanner.may_hold("base_offset", 0, last)):
                is_wanted = pc.and_(
                    pc.and_(pc.greater_equal(rows["last_offset"], first), pc.less_equal(rows["base_offset"], last)),
                    pc.and_(rows["crc_valid"], pc.is_null(rows["redacted_at"])),
                )
                parts.append(rows.filter(is_wanted))
                if parts[-1].num_rows:
                    break
    schema = pa.schema([arrow_schema(RECORD_BATCHES).field(name) for name in columns])
    parts = [part.cast(schema) for part in parts if part.num_rows]
    if not parts:
        return schema.empty_table()
    return pa.concat_tables(parts).sort_by("base_offset").slice(0, BATCHES_COMPARED_MAX)
