"""The plan of a capture: which log partitions and segments each task reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coordinator_core.bytes.log_partitions import LogPartition
from jobs.bronze.snapshot import Bronze
from jobs.bronze.work import OFFSET_BYTES, LogWork
from jobs.sources.segments import PartitionLog, Segment
from jobs.spark.tasks import TASKS_PER_CORE

if TYPE_CHECKING:
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.dump_log import DumpLog
    from jobs.sources.dumps.source import Unpacked

TASK_BYTES_MIN: Final = 64 << 20
"""As `tasks.TASK_BYTES_MIN`, in bytes of the sources; bronze is compressed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The log partitions of all sources, as they are now."""

    segments: Sequence[PartitionLog] = ()
    live: "Sequence[BrokerLog]" = ()
    pieces_from: Mapping[LogPartition, int] = field(default_factory=dict)
    """Live logs of which only a piece is captured: the offset to read from, up to their `next_offset`."""
    dumps: "Unpacked | None" = None
    notes: tuple[str, ...] = ()
    """Sentences that name files which are not read."""

    @property
    def all_dumps(self) -> "Sequence[DumpLog]":
        return self.dumps.logs if self.dumps is not None else ()


def plan(
    sources: Sources, bronze: Bronze, task_bytes_max: int, core_count: int = 1, *, may_cut: bool = True
) -> list[LogWork]:
    """The work of a capture: one item a log partition. Large log partitions are cut into several items, if only one
    source has them and they are not compared with bronze.

    Segment files are cut between files, into smaller parts where one log partition has most of the data, so that no
    core idles. A live log is cut at any offset: a batch belongs to the part that contains its last offset.
    """
    segments: dict[LogPartition, list[PartitionLog]] = {}
    for log in sources.segments:
        segments.setdefault((log.topic, log.partition), []).append(log)
    live = {(log.topic, log.partition): log for log in sources.live}
    dumps: dict[LogPartition, list[DumpLog]] = {}
    for dump in sources.all_dumps:
        dumps.setdefault((dump.topic, dump.partition), []).append(dump)
    items = []
    for partition in sorted({*segments, *live, *dumps}):
        item = LogWork(
            *partition,
            segments=tuple(segments.get(partition, ())),
            live=live.get(partition),
            from_offset=sources.pieces_from.get(partition, 0),
            is_piece=partition in sources.pieces_from,
            # dumps of rows know least about the batches, so they come last
            dumps=tuple(sorted(dumps.get(partition, ()), key=lambda dump: dump.is_rows)),
            known=tuple(bronze.known.get(partition, ())),
            settled=bronze.settled(partition),
            damaged=bronze.damaged.get(partition, frozenset()),
            ends=tuple(bronze.ends.get(partition, ())),
            files=bronze.files.get(partition, ()),
            dropped=bronze.dropped.get(partition, ()),
            read_files=bronze.copies.files.get(partition, {}),
            lineage=bronze.copies.lineages.get(partition),
            dumped=tuple(bronze.copies.dumped.get(partition, ())),
            left_out=tuple(bronze.copies.left_out.get(partition, ())),
            parted=tuple(bronze.copies.parted.get(partition, ())),
        )
        items.append(item)
    share_bytes = sum(item.size_bytes for item in items) // (TASKS_PER_CORE * core_count)
    segment_bytes_max = min(task_bytes_max, max(share_bytes, TASK_BYTES_MIN))
    work = []
    for item in items:
        bytes_max = segment_bytes_max if item.live is None else task_bytes_max
        is_compared = bool(item.known) and item.has_unread
        if item.source_count > 1 or item.dumps or is_compared or not may_cut or item.size_bytes <= bytes_max:
            work.append(item)
        elif item.live is None:
            parts = _cut(item.segments[0], bytes_max)
            ends = [part.segments[0].base_offset for part in parts[1:]]
            work += [
                replace(item, segments=(part,), offset_end=end, is_part=True)
                for part, end in zip(parts, [*ends, None], strict=True)
            ]
        else:
            work += _cut_live(item, max(1, task_bytes_max // OFFSET_BYTES))
    return work


def _cut_live(item: LogWork, offsets_max: int) -> list[LogWork]:
    """Cut a live log into consecutive parts of at most `offsets_max` wanted offsets."""
    cuts: list[int] = []
    left = offsets_max
    for first, last in item.wanted(item.settled):
        start = first
        while last - start + 1 > left:
            start += left
            cuts.append(start)
            left = offsets_max
        left -= last - start + 1
    starts = [item.from_offset, *cuts]
    return [replace(item, from_offset=start, offset_end=end) for start, end in zip(starts, [*cuts, None], strict=True)]


def _cut(log: PartitionLog, bytes_max: int) -> list[PartitionLog]:
    """Cut a log into runs of segments of at most `bytes_max`; a larger segment is a run of its own."""
    parts: list[list[Segment]] = []
    size_bytes = 0
    for segment in log.segments:
        if not parts or size_bytes + segment.size_bytes > bytes_max:
            parts.append([])
            size_bytes = 0
        parts[-1].append(segment)
        size_bytes += segment.size_bytes
    return [replace(log, segments=tuple(part)) for part in parts]
