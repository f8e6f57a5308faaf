"""State about the copies of a log that were read: leader epochs, files, and which offsets of bronze changed.

bronze has one batch for each offset, chosen among all copies (`coordinator_core.bytes.log.copies`). The choice must not
depend on the order of the copies, so a capture keeps the start offsets of leader epochs (`state.offset_ranges`), and
those of the log where they moved: a new leader does not know what is below. It
reads no file twice, so it keeps which files it compared (`state.read_files`). Where a capture removes batches from
bronze, or inserts batches below the end of what was replayed, it records the first changed offset (`state.rewrites`)
before it commits; replay starts again there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import subtract
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH, Lineage, has_no_epoch
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.quarantine import COPIES_DIFFER, COPIES_PART
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.sources.segments import Segment
from schemas.tables.bronze import QUARANTINE, RECORD_BATCHES
from schemas.tables.state import OFFSET_RANGES, READ_FILES, REWRITES, Ranges

NO_EPOCH: Final = -1
"""`leader_epoch` of rows that are log start offsets."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of a source as it was when it was read and compared."""

    path: str
    size_bytes: int
    modified_at_ns: int | None
    base_offset: int | None = None
    """Base offset of its last batch; None where it has no batch."""
    last_offset: int | None = None
    end_position: int = 0
    """Byte position at the end of its last batch."""
    read_as: str | None = None
    """For a file of rows: the settings that said how to read it."""

    def is_still(self, file: Segment) -> bool:
        """Is the file unchanged since? Where the store gives no modification time, its size decides."""
        return (self.size_bytes, self.modified_at_ns) == (file.size_bytes, file.modified_ns)

    def may_have_grown(self, file: Segment) -> bool:
        """Is the file larger now?"""
        return file.size_bytes > self.size_bytes and self.base_offset is not None


ROW_FILES: Final[LogPartition] = ("", -1)
"""In place of a log partition: files of rows, which have records of several."""
OF_OLDER_EPOCH: Final = "goes on with leader epoch"
OF_NO_EPOCH: Final = "of no known leader epoch"
"""How a row of quarantine says that the leader epoch of the copy that does not count is not known."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Batches that carry no leader epoch and that batches of another copy replaced."""

    source: str
    content: bytes
    tail_epoch: int = UNKNOWN_EPOCH
    """The leader epoch that their replica's checkpoint gives them, if a newer epoch cut this tail. UNKNOWN_EPOCH:
    batches of another copy have the same offsets; if those are cut, these batches count again."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "LeftOut | None":
        """From a row of quarantine about diverging copies; None where the row keeps no such batches."""
        content, (_, is_tail, rest) = row["bytes"], row["message"].partition(f"{OF_OLDER_EPOCH} ")
        if not content or not has_no_epoch(content):
            return None
        if is_tail:
            return cls(row["source"], content, int(rest.partition(",")[0]))
        return cls(row["source"], content) if f"{OF_NO_EPOCH}, than " in row["message"] else None


DumpedRange = tuple[int, int, str]
"""First and last offset of a range with a record at each offset, and the dump that had them."""


def with_dumped(known: Sequence[DumpedRange], found: Iterable[OffsetRange], source: str) -> tuple[DumpedRange, ...]:
    """Add ranges of a dump to the known ones. Returns the same object where none is new."""
    new = subtract(found, ((first, last) for first, last, _ in known))
    if not new:
        return tuple(known)
    together: list[DumpedRange] = []
    for first, last, of_source in sorted([*known, *((first, last, source) for first, last in new)]):
        if together and together[-1][1] + 1 == first and together[-1][2] == of_source:
            together[-1] = together[-1][0], last, of_source
        else:
            together.append((first, last, of_source))
    return tuple(together)


@dataclass(frozen=True, slots=True)
class Copies:
    """The state about all copies of a cluster."""

    lineages: Mapping[LogPartition, Lineage] = field(default_factory=dict)
    files: Mapping[LogPartition, Mapping[str, ReadFile]] = field(default_factory=dict)
    """By log partition: files by path."""
    dumped: Mapping[LogPartition, Sequence[DumpedRange]] = field(default_factory=dict)
    """Offsets at which dumps of rows had records; ascending, disjoint."""
    left_out: Mapping[LogPartition, Sequence[bytes]] = field(default_factory=dict)
    """Records of dumps that records of the log replaced, each as a batch; quarantine keeps their bytes."""
    parted: Mapping[LogPartition, Sequence[LeftOut]] = field(default_factory=dict)
    """Batches without a leader epoch where copies diverge; quarantine keeps their bytes."""

    @classmethod
    def load(cls, tables: ClusterTables) -> "Copies":
        """The state after the last capture."""
        files: dict[LogPartition, dict[str, ReadFile]] = {}
        names = [item.name for item in fields(ReadFile)]
        for row in tables.read(READ_FILES).to_pylist():
            file = ReadFile(*(row.get(name) for name in names))  # older releases wrote fewer columns
            files.setdefault((row["topic"], row["partition"]), {})[file.path] = file
        dumped: dict[LogPartition, list[DumpedRange]] = {}
        for row in tables.read(OFFSET_RANGES, kind=Ranges.DUMPED).to_pylist():
            found = row["from_offset"], row["to_offset"], row["source"]
            dumped.setdefault((row["topic"], row["partition"]), []).append(found)
        left_out: dict[LogPartition, list[bytes]] = {}
        parted: dict[LogPartition, list[LeftOut]] = {}
        columns = ["topic", "partition", "code", "bytes", "message", "source"]
        rows = tables.read(QUARANTINE, columns)
        of_copies = pc.is_in(rows["code"], value_set=pa.array([COPIES_DIFFER, COPIES_PART]))
        for row in rows.filter(of_copies).to_pylist():
            place = row["topic"], row["partition"]
            if row["code"] == COPIES_PART:
                if (found_parted := LeftOut.of(row)) is not None:
                    parted.setdefault(place, []).append(found_parted)
            elif row["bytes"]:
                left_out.setdefault(place, []).append(row["bytes"])
        return cls(
            read_lineages(tables),
            files,
            {log: tuple(sorted(ranges)) for log, ranges in dumped.items()},
            left_out,
            parted,
        )

    def after(
        self,
        lineages: Mapping[LogPartition, Lineage],
        files: Mapping[LogPartition, Sequence[ReadFile]],
        dumped: Mapping[LogPartition, Sequence[DumpedRange]],
    ) -> "Copies":
        """The state with what a capture found."""
        merged = dict(self.lineages)
        for log, lineage in lineages.items():
            merged[log] = merged[log].merged(lineage) if log in merged else lineage
        read = dict(self.files)
        for log, found in files.items():
            read[log] = {**read.get(log, {}), **{file.path: file for file in found}}
        return replace(self, lineages=merged, files=read, dumped={**self.dumped, **dumped})

    def without(self, disproved: Mapping[LogPartition, Iterable[tuple[int, int]]]) -> "Copies":
        """The state without the leader epochs that damaged headers showed."""
        cut = {log: self.lineages[log].without(batches) for log, batches in disproved.items() if log in self.lineages}
        return replace(self, lineages={**self.lineages, **cut}) if cut else self

    def write_lineages(self, tables: ClusterTables, app_id: str, before: "Copies") -> None:
        """Commit leader epochs. This comes before bronze: an epoch that is known too early does no harm."""
        if self.lineages == before.lineages:
            return
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "leader_epoch": epoch,
                "is_checkpoint": is_checkpoint,
                "from_offset": offset,
                "least_end_offset": least,
                "greatest_end_offset": greatest,
            }
            for (topic, partition), lineage in sorted(self.lineages.items())
            for epoch, is_checkpoint, offset, least, greatest in _entries(lineage)
        ]
        tables.write(OFFSET_RANGES, rows, app_id=app_id, mode=OVERWRITE, kind=Ranges.LEADER_EPOCH)

    def write_dumped(self, tables: ClusterTables, app_id: str, before: "Copies") -> None:
        """Commit the offsets of dumps. This comes before bronze, as for leader epochs."""
        if self.dumped == before.dumped:
            return
        rows = [
            {"topic": topic, "partition": partition, "from_offset": first, "to_offset": last, "source": source}
            for (topic, partition), ranges in sorted(self.dumped.items())
            for first, last, source in ranges
        ]
        tables.write(OFFSET_RANGES, rows, app_id=app_id, mode=OVERWRITE, kind=Ranges.DUMPED)

    def write_files(self, tables: ClusterTables, app_id: str, before: "Copies") -> None:
        """Commit the files read. This comes last: a file that an interrupted run read is read again."""
        if self.files == before.files:
            return
        rows = [
            {"topic": topic, "partition": partition, **asdict(file)}
            for (topic, partition), files in sorted(self.files.items())
            for _, file in sorted(files.items())
        ]
        tables.write(READ_FILES, rows, app_id=app_id, mode=OVERWRITE)


def read_lineages(tables: ClusterTables) -> dict[LogPartition, Lineage]:
    """What is known of the leader epochs and the log start offsets of log partitions."""
    found: dict[LogPartition, tuple[dict[int, int], list[tuple[int, int]], dict[int, tuple[int, int]]]] = {}
    for row in tables.read(OFFSET_RANGES, kind=Ranges.LEADER_EPOCH).to_pylist():
        seen, checkpoint, log_starts = found.setdefault((row["topic"], row["partition"]), ({}, [], {}))
        if row["is_checkpoint"]:
            checkpoint.append((row["leader_epoch"], row["from_offset"]))
        elif row["leader_epoch"] == NO_EPOCH:
            log_starts[row["from_offset"]] = row["least_end_offset"], row["greatest_end_offset"]
        else:
            seen[row["leader_epoch"]] = row["from_offset"]
    return {log: Lineage(seen, tuple(sorted(of_log)), starts) for log, (seen, of_log, starts) in found.items()}


def _entries(lineage: Lineage) -> Iterator[tuple[int, bool, int, int | None, int | None]]:
    """The rows of a log partition in state.offset_ranges: epoch, whether a checkpoint has it, start offset, and the
    least and greatest end offset."""
    yield from ((epoch, False, offset, None, None) for epoch, offset in sorted(lineage.seen.items()))
    yield from ((epoch, True, offset, None, None) for epoch, offset in lineage.checkpoint)
    yield from ((NO_EPOCH, False, start, *ends) for start, ends in sorted(lineage.log_starts.items()))


def capture_application(cluster_id: str) -> str:
    return f"capture/{cluster_id}"


def write_rewrites(
    tables: ClusterTables, capture_version: int, changed: Mapping[LogPartition, int], at: datetime
) -> None:
    """Record the first changed offset of each log partition, before this capture commits to bronze as
    `capture_version`.
    """
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "capture_version": capture_version,
            "from_offset": offset,
            "written_at": at,
        }
        for (topic, partition), offset in sorted(changed.items())
    ]
    tables.write(REWRITES, rows, app_id=capture_application(tables.cluster_id))


def last_capture(tables: ClusterTables) -> int:
    """Number of the last capture that committed to bronze; -1: none did."""
    return tables.warehouse.last_version(RECORD_BATCHES, capture_application(tables.cluster_id))


@dataclass(frozen=True, slots=True)
class Rewrites:
    """Where captures changed bronze below what was already captured, up to one capture."""

    capture_version: int = -1
    changed: Mapping[LogPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """(number of the capture, first offset that changed)."""

    @classmethod
    def load(cls, tables: ClusterTables, capture_version: int) -> "Rewrites":
        """The changes by captures up to `capture_version`."""
        changed: dict[LogPartition, list[tuple[int, int]]] = {}
        for row in tables.read(REWRITES).to_pylist():
            if row["capture_version"] <= capture_version:
                place = row["topic"], row["partition"]
                changed.setdefault(place, []).append((row["capture_version"], row["from_offset"]))
        return cls(capture_version, changed)

    def since(self, log: LogPartition, capture_version: int) -> int | None:
        """The first offset of a log partition that a capture after `capture_version` changed; None where none did."""
        return min((offset for version, offset in self.changed.get(log, ()) if version > capture_version), default=None)


NO_REWRITES: Final = Rewrites()
