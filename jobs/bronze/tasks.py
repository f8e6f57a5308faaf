"""The work of a capture task: read and check some log partitions, and write what bronze lacks.

A log partition is read from each source that has it. Where several sources have an offset,
`coordinator_core.bytes.log.copies` decides which batch counts, whatever the order of the sources; the batch that it
replaces is removed from bronze. Reads are processed one at a time and not kept: memory is bounded by one read, and by
the headers of batches that two sources have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from mmap import mmap
from typing import TYPE_CHECKING, Final

from coordinator_core.bytes.log.scan import without_misplaced_end
from coordinator_core.bytes.log_partitions import OffsetRange
from jobs.bronze.log_capture import LogCapture
from jobs.bronze.offset_ranges import OffsetRanges
from jobs.bronze.work import CaptureTask, TaskDone
from jobs.errors import JobError
from jobs.sources.segments import (
    UNREADABLE_FILE,
    FirstBatch,
    PartitionLog,
    Segment,
    SegmentRead,
    as_array,
    begins_without_epoch,
    listed_again,
    map_segment,
    read_first_batch,
    read_segment,
)

if TYPE_CHECKING:
    from jobs.sources.broker import Broker
    from jobs.sources.dumps.dump_log import DumpLog
    from jobs.sources.fetch import LogRange

LISTINGS_MAX: Final = 20
"""How often a folder is listed whose files are replaced all the time. What is missing then is read the next time."""


def run_task(task: CaptureTask) -> TaskDone:
    """Read, check and write the log partitions of one task."""
    try:
        return _run(task)
    except JobError as error:
        return TaskDone(error=error)


def _run(task: CaptureTask) -> TaskDone:
    """Process all segment files first, then the broker, then dumps."""
    done = TaskDone()
    captures = [LogCapture(task, work, done) for work in task.work]
    for it in captures:
        it.follow_checkpoints(log.leader_epochs for log in it.work.segments if log.leader_epochs is not None)
        for log in it.work.segments:
            _capture_segments(it, log, done)
    if any(it.work.live is not None for it in captures):
        _capture_live(task, captures)
    for it in captures:
        it.bring_back()
        for dump in it.work.dumps:
            _capture_dump(it, dump)
    for it in captures:
        it.finish()
    return done


def _capture_segments(capture: LogCapture, log: PartitionLog, done: TaskDone) -> None:
    """Map and frame the segments that are not wholly settled or were never compared. An unreadable segment is
    quarantined by name.

    Of a segment that was compared up to a settled offset and has grown or has gaps after it, only the part after the
    last settled batch is read.
    """
    settled_from = OffsetRanges(capture.settled).last_from
    log, mapped = _mapped(log, done, is_part=capture.work.is_part)
    capture.begin(log.log_start_offset)
    is_new_checkpoint = capture.begin_replica(log.leader_epochs)
    next_offset_min = 0
    for index, segment in enumerate(log.segments):
        end = log.segments[index + 1].base_offset if index + 1 < len(log.segments) else capture.work.offset_end
        follower = read_first_batch(log.segments[index + 1]) if index + 1 < len(log.segments) else FirstBatch()
        capture.expect(end, follower.leader_epoch)
        settled_to = settled_from(segment.base_offset)
        was_read = capture.was_read(segment)
        if is_new_checkpoint and segment.path in capture.work.read_files and begins_without_epoch(segment):
            # the new checkpoint may give its batches other leader epochs, though the bytes are unchanged
            was_read, settled_to = False, -1
        if was_read and end is not None and settled_to >= end - 1:
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset)
            continue
        done.read_sources[segment.path] = 0
        try:
            read = _read_segment(capture, segment, settled_to, next_offset_min, mapped.pop(segment.path, None))
        except OSError as error:
            message = f"{segment.path} cannot be read: {error.strerror or type(error).__name__}"
            row = capture.quarantine.add(segment.path, stage="FILE", code=UNREADABLE_FILE, message=message)
            if end is not None:  # another file may have its offsets
                row |= {"from_offset": segment.base_offset, "to_offset": end - 1}
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset)
            continue
        scan = without_misplaced_end(
            read.scan, as_array(read.data), offset_end=end, first_timestamp_ms=follower.timestamp_ms
        )
        read = replace(read, scan=scan)
        if read.is_end:
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset, int(read.scan.batches.base_offset[0]))
            done.read_sources[segment.path] = int(read.scan.batches.position[0])
        next_offset_min = read.scan.next_offset
        capture.add(read)
        capture.note_read(segment, read)
    capture.end(capture.work.offset_end)
    capture.observe_start(log.log_start_offset, max(next_offset_min, log.segments[-1].base_offset))
    capture.end_source()


def _mapped(log: PartitionLog, done: TaskDone, *, is_part: bool) -> tuple[PartitionLog, dict[str, mmap]]:
    """Map the files of a log, as they are at one time: a broker renames, replaces and deletes
    them at any time. Where one is gone, or another one now has its name, the folder is listed again; so it is after
    all of them were mapped, since a listing may miss a file that is renamed meanwhile."""
    listed = log
    for _ in range(LISTINGS_MAX):
        mapped: dict[str, mmap] = {}
        is_whole = True
        for segment in log.segments:
            try:
                data = map_segment(segment)
            except FileNotFoundError:
                is_whole = False
                break
            except OSError:
                continue  # whoever reads the file reports it
            if data is not None:
                mapped[segment.path] = data
                is_whole = is_whole and (segment.is_last or len(data) == segment.size_bytes)
        if is_part:
            done.has_moved = done.has_moved or not is_whole
            break
        now = listed_again(log)
        newest = log.segments[-1].base_offset  # later ones are the next night's
        if is_whole and [it.name for it in now.segments if it.base_offset <= newest] == [
            it.name for it in log.segments
        ]:
            break
        log = now
    segments = sorted([*log.segments, *_lost(listed, log)], key=lambda it: it.base_offset)
    return replace(log, segments=tuple(segments)), mapped


def _lost(before: PartitionLog, now: PartitionLog) -> Iterator[Segment]:
    """Segments that are gone though nothing replaced them: the cleaner merges a segment into the one before it, and
    retention deletes the first ones."""
    unchanged = {(it.name, it.size_bytes, it.modified_ns) for it in before.segments}
    names = {it.base_offset for it in now.segments}
    for segment in before.segments:
        previous = [it for it in now.segments if it.base_offset < segment.base_offset]
        if segment.base_offset not in names and previous:
            last = previous[-1]
            if (last.name, last.size_bytes, last.modified_ns) in unchanged:
                yield segment


def _read_segment(
    capture: LogCapture, segment: Segment, settled_to: int, next_offset_min: int, mapped: mmap | None
) -> SegmentRead:
    """Read a whole segment, or only its end if the rest was compared before and is unchanged. Raises OSError."""
    before = capture.work.read_files.get(segment.path)
    known: OffsetRange | None = None
    if before is not None and before.is_still(segment):
        known = capture.work.end_within(segment.base_offset, settled_to)
    elif before is not None and before.may_have_grown(segment):
        assert before.base_offset is not None
        assert before.last_offset is not None
        if before.last_offset <= settled_to:
            known = before.base_offset, before.last_offset
    read = read_segment(segment, next_offset_min=next_offset_min, known=known, mapped=mapped)
    if read.is_end and before is not None and not before.is_still(segment):
        batches = read.scan.batches
        if int(batches.position[0] + batches.size[0]) != before.end_position:
            # the file did not grow: another file has its name now
            return read_segment(segment, next_offset_min=next_offset_min, mapped=mapped)
    return read


def _capture_dump(capture: LogCapture, log: "DumpLog") -> None:
    """Pack rows of a dump at offsets that no batch spans into batches, so that none overlaps. Add the other rows to
    the batches that span them and lack them."""
    from jobs.sources.dumps.pack import read_dump_log  # noqa: PLC0415

    capture.begin(None)
    capture.leave_out(log.unreported)
    known = capture.covered(log.first_offset)
    for read in read_dump_log(log, known=known, met=capture.meet if log.is_rows else None):
        capture.add(read)
    capture.end(None)
    if log.is_rows:
        capture.end_rows(log.uri)
    capture.end_source()


def _capture_live(task: CaptureTask, captures: Sequence[LogCapture]) -> None:
    """Capture several log partitions from the broker, over one connection."""
    from jobs.sources.broker import Broker  # noqa: PLC0415  (a capture of files need not load Kafka's client)

    waiting = [(it, it.work.live, it.wanted_live()) for it in captures if it.work.live is not None]
    for it, log, wanted in waiting:
        it.observe_start(log.log_start_offset, log.next_offset)
        if not wanted:
            it.begin(log.log_start_offset)  # coverage of the offsets below the log start offset
            it.end(None)
    waiting = [it for it in waiting if it[2]]
    if not waiting:
        return
    with Broker.connect(waiting[0][1].address, timeout_ms=task.request_timeout_ms) as broker:
        while waiting:
            # a fetch request contains a log partition once
            ranges = {log.range(wanted[0][0], wanted[0][1] + 1): it for it, log, wanted in waiting}
            _capture_ranges(broker, ranges, task.fetch_bytes_max)
            waiting = [(it, log, wanted[1:]) for it, log, wanted in waiting if wanted[1:]]
        for it in captures:
            it.end_source()
        # where the last batch of bronze is not in the live log, the copies diverge at an earlier offset: compare the
        # whole log
        apart = {it.work.live.range(): it for it in captures if it.parts_ways and it.work.live is not None}
        if apart:
            _capture_ranges(broker, apart, task.fetch_bytes_max)
            for it in apart.values():
                it.end_source()


def _capture_ranges(broker: "Broker", ranges: "Mapping[LogRange, LogCapture]", fetch_bytes_max: int) -> None:
    from jobs.sources.broker_log import read_ranges  # noqa: PLC0415

    opened: LogRange | None = None
    unread = dict(ranges)
    for chosen, read in read_ranges(broker, ranges, fetch_bytes_max=fetch_bytes_max):
        if chosen is not opened:
            if opened is not None:
                ranges[opened].end_live(opened)
            opened = chosen
            unread.pop(chosen).begin_live(chosen)
        ranges[chosen].add(read)
    if opened is not None:
        ranges[opened].end_live(opened)
    for chosen, capture in unread.items():
        capture.begin_live(chosen)
        capture.end_live(chosen)
