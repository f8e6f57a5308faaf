"""Capture one log partition into bronze: decide which batches of its copies count, and replace those of bronze."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange, subtract, union
from coordinator_core.bytes.log.chunk import BatchColumns, Finding
from coordinator_core.bytes.log.copies import (
    UNKNOWN_EPOCH,
    BatchRows,
    Lineage,
    Origin,
    choose,
    has_no_epoch,
    out_of_order,
    with_checkpoint_epochs,
)
from coordinator_core.bytes.log.fill import is_same_but_for_latest_time, uncompressed
from coordinator_core.bytes.log.records import checksums_at, crc_valid_batches, frame_chunk
from coordinator_core.bytes.log_partitions import OffsetRange
from coordinator_core.errors import TruncatedBatch
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from jobs.bronze.batches import BronzeBatches, covered_by, written_as_table_file
from jobs.bronze.copies import ReadFile, with_dumped
from jobs.bronze.coverage import COMPACTED_TOPICS, NOT_IN_DUMP, CoverageScan
from jobs.bronze.offset_ranges import OffsetRanges
from jobs.bronze.parted_copies import PartedCopies
from jobs.bronze.quarantine import EPOCH_OUT_OF_ORDER, OVERLAPPING_BATCH
from jobs.bronze.quarantine_rows import QuarantineRows
from jobs.bronze.work import SETTLED, CaptureTask, LogWork, TaskDone, TopicCount
from jobs.bronze.writer import LogWriter, is_damaged, offsets_of
from jobs.delta.filesystems import delete_file
from jobs.delta.part_files import WrittenFile
from jobs.delta.table_files import TableFile
from jobs.delta.times import epoch_ms
from jobs.sources.segments import DUMP, SEGMENT, Segment, SegmentRead, as_array, read_leader_epochs
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.sources.fetch import LogRange


MISPLACED_MAX: Final = 1_000
"""At most this many misplaced batches of one place are compared with bronze; more than that count as different."""
TORN: Final = TruncatedBatch.code


class LogCapture:
    """Captures one log partition: takes the reads of its sources, range by range, in offset order."""

    def __init__(self, task: CaptureTask, work: LogWork, done: TaskDone) -> None:
        self._task = task
        self.work = work
        self._done = done
        self.quarantine = QuarantineRows(done.quarantine, task.run, work.topic, work.partition)
        self.known = list(work.known)
        self._known_ranges = OffsetRanges(self.known)
        self._dropped = OffsetRanges(work.dropped)
        self.settled = list(work.settled)
        self._damaged = set(work.damaged)
        self._observed: list[CoverageRange] = []
        self._writer = LogWriter(task.target, work, task.run)
        self._there = BronzeBatches(work.files)
        self._parted = PartedCopies(self._there, self.quarantine, work.parted)
        self._lineage = Lineage() if work.lineage is None else work.lineage
        self._lineage_before = self._lineage
        self._bounds: list[tuple[int, int]] = []
        """Log start offset and end offset of each copy."""
        self._probe: OffsetRange | None = None
        self.parts_ways = False
        """The last batch of bronze is not in the live log."""
        self._added_count = 0
        """How many files of this run `_there` contains."""
        self._changed_from: int | None = None
        self._checkpoint_file: Segment | None = None
        self._checkpoint: tuple[tuple[int, int], ...] | None = None
        """Of the current replica: leader epochs and their start offsets; None: not read yet."""
        self._epoch_before = UNKNOWN_EPOCH
        """The highest leader epoch that was read from the source so far."""
        self._epoch_after: int | None = None
        """The leader epoch at the beginning of the next segment."""
        self._disproved: set[tuple[int, int]] = set()
        """(leader epoch, base offset) of batches of bronze whose headers proved to be damaged."""
        self._misplaced: list[tuple[dict[str, Any], dict[str, int], dict[OffsetRange, bytes]]] = []
        """Intact batches in the wrong place: row of quarantine, offsets they may hide, and their bytes by offsets."""
        self._end: int | None = None
        """Base offset of the next segment of the source."""
        self._intact: dict[int, bool] = {}
        """Base offsets of damaged batches at which an intact one was read: bronze drops the damaged one. True: the
        intact one has a header of its own, so where the batch ends is known, too."""
        self._dumped = work.dumped
        self._dump_ranges: list[OffsetRange] = []
        self._written: list[WrittenFile] = []
        self._ranges: list[OffsetRange] = []
        self._damaged_written: dict[int, tuple[int, WrittenFile]] = {}
        self._scan: CoverageScan | None = None
        self._count = done.topics.setdefault(work.topic, TopicCount())
        self._count.partition_count += work.offset_end is None
        if work.lineage is None and work.known and not work.dumped:
            # a release that kept neither leader epochs nor offsets of dumps wrote this bronze
            self._there.load()
            self._lineage = self._lineage_before = self._lineage.with_batches(self._there.rows)

    def covered(self, from_offset: int) -> list[OffsetRange]:
        """Offsets of the batches in bronze, and those that retention deleted, as far as an offset or later ones are
        concerned."""
        return union([*self._there.ranges(from_offset), *self.work.dropped])

    def wanted_live(self) -> list[OffsetRange]:
        """Offsets to fetch from the broker. Where the log continues after bronze, also the last batch of bronze: if
        it differs, the copies diverge. Where the log is shorter than bronze, the whole log."""
        wanted, live = self.work.wanted(self.settled), self.work.live
        if live is None or not self.known:
            return wanted
        self._lineage_before = self._lineage
        if live.next_offset <= self.known[-1][1]:
            return [(live.log_start_offset, live.next_offset - 1)] if live.log_start_offset < live.next_offset else []
        ends = [*self.work.ends[-1:]]
        if self._added_count:
            ends.append((int(self._there.rows.base_offset[-1]), int(self._there.rows.last_offset[-1])))
        base_offset, last_offset = max(ends, key=itemgetter(1), default=(-1, -1))
        if wanted and wanted[-1][0] == last_offset + 1 and base_offset >= live.log_start_offset:
            self._probe = base_offset, last_offset
            wanted[-1] = base_offset, wanted[-1][1]
        return wanted

    def _is_probed(self, read: SegmentRead) -> int | None:
        """Find the last batch of bronze in a response; its row if it is the same batch, else sets `parts_ways`."""
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        if self._probe is None or not len(batches) or batches.last_offset[-1] < self._probe[0]:
            return None
        (base_offset, last_offset), self._probe = self._probe, None
        row = int(np.searchsorted(batches.base_offset, base_offset))
        if row < len(batches) and crc_valid[row]:
            found = int(batches.base_offset[row]), int(batches.last_offset[row])
            newest = max(self._lineage_before.seen, default=UNKNOWN_EPOCH)
            epoch = int(batches.leader_epoch[row])
            is_same = epoch == newest
            if epoch == UNKNOWN_EPOCH:
                # a fetch response comes without a leader-epoch-checkpoint
                self._there.load(base_offset, last_offset)
                there = int(np.searchsorted(self._there.rows.base_offset, base_offset))
                is_same = there < len(self._there.rows) and self._there.content(there) == read.content(row)
            if found == (base_offset, last_offset) and is_same:
                return row
        self.parts_ways = True
        return None

    def was_read(self, file: Segment) -> bool:
        """Was a file read and compared before, and is it unchanged since?"""
        before = self.work.read_files.get(file.path)
        return before is not None and before.is_still(file)

    def note_read(self, file: Segment, read: SegmentRead | None = None) -> None:
        """Note that a file was read to its end."""
        last: tuple[int | None, int | None, int] = (None, None, 0)
        if read is not None and len(batches := read.scan.batches):
            end = int(batches.position[-1] + batches.size[-1])
            last = int(batches.base_offset[-1]), int(batches.last_offset[-1]), end
        size_bytes = file.size_bytes if read is None else len(read.data)
        place = self.work.topic, self.work.partition
        self._done.compared.setdefault(place, []).append(ReadFile(file.path, size_bytes, file.modified_ns, *last))

    def follow_checkpoints(self, checkpoints: Iterable[Segment]) -> None:
        """Take the leader epochs of all checkpoints before any batch is compared. Otherwise a tail that one of them
        cuts could first replace a batch of no known epoch, and that batch would be lost."""
        for checkpoint in checkpoints:
            if self.was_read(checkpoint):
                continue
            entries = read_leader_epochs(checkpoint)
            self._parted.checkpoints |= dict.fromkeys((epoch for epoch, _ in entries), checkpoint.path)
            self._follow(self._lineage.with_checkpoint(entries), checkpoint.path)

    def begin_replica(self, checkpoint: Segment | None) -> bool:
        """Begin with the segments of the next replica; `checkpoint` is the leader-epoch-checkpoint in its folder.
        Returns whether the checkpoint changed since it was last read."""
        self._checkpoint_file, self._checkpoint = checkpoint, None
        if checkpoint is None or self.was_read(checkpoint):
            return False
        self._follow(self._lineage.with_checkpoint(self._own_checkpoint()), checkpoint.path)
        self.note_read(checkpoint)
        return True

    def _own_checkpoint(self) -> tuple[tuple[int, int], ...]:
        """Leader epochs and their start offsets from the checkpoint of the current replica."""
        if self._checkpoint is None:
            self._checkpoint = () if self._checkpoint_file is None else read_leader_epochs(self._checkpoint_file)
        return self._checkpoint

    def begin(self, log_start_offset: int | None, from_offset: int | None = None) -> None:
        """Begin a range of consecutive offsets."""
        self._scan = CoverageScan(
            self.work.topic,
            log_start_offset=log_start_offset,
            observed_at_ms=epoch_ms(self._task.run.captured_at),
            from_offset=from_offset,
        )

    def observe_start(self, log_start_offset: int | None, end: int) -> None:
        """Note where the current copy of `__consumer_offsets` begins and ends. Kafka itself prunes the other topics."""
        if self.work.topic == OFFSETS_TOPIC and self.work.offset_end is None:
            self._bounds.append(self._lineage.bounds_of(self._own_checkpoint(), log_start_offset or 0, end))

    def expect(self, offset_end: int | None, leader_epoch: int | None) -> None:
        """Announce the next segment: `offset_end`: the base offset of the segment after it; `leader_epoch`: the
        epoch at the beginning of that segment. None: not known."""
        self._end, self._epoch_after = offset_end, leader_epoch

    def leave_out(self, unreported: Sequence[OffsetRange]) -> None:
        """Note offsets of records that a dump has but does not print."""
        assert self._scan is not None
        self._scan.leave_out(unreported)

    def meet(self, rows: "pa.Table", left_out: "pa.Table") -> None:
        """Take rows of a dump. `left_out`: those at offsets that batches of bronze span."""
        from jobs.sources.dumps.pack import key_values, record_at  # noqa: PLC0415

        offset = np.unique(rows["offset"].to_numpy())
        starts = np.concatenate([[0], np.flatnonzero(np.diff(offset) != 1) + 1])
        ends = np.append(starts[1:], len(offset)) - 1
        if len(offset):
            self._dump_ranges += zip(offset[starts].tolist(), offset[ends].tolist(), strict=True)
        if left_out.num_rows:
            _, firsts = np.unique(left_out["offset"].to_numpy(), return_index=True)
            distinct = left_out.take(firsts).combine_chunks()
            self._there.meet(key_values(distinct), lambda row: record_at(distinct, row))

    def end_rows(self, source: str) -> None:
        """End the rows of one dump: note which offsets it had and where its records differ from bronze."""
        ranges = union(self._dump_ranges)
        self._dump_ranges = []
        differences = self._there.differences()
        same = subtract(ranges, [(it.record.offset, it.record.offset) for it in differences if it.is_log])
        self._dumped = with_dumped(self._dumped, same, source)
        if ranges:
            # these rows are not packed into batches: holes of the dump lie between its rows
            self._say_holes(ranges, ranges)
        for it in differences:
            self.quarantine.add_difference(
                it, source, self._source_of(it.record.offset) if not it.is_log else it.source
            )
        if (changed := self._there.changed_from()) is not None:
            self._change(changed)

    def _say_holes(self, of_dump: Sequence[OffsetRange], known: Iterable[OffsetRange]) -> None:
        """Offsets between the rows of a dump that no other dump has are holes."""
        kind = CoverageKind.COMPACTED if self.work.topic in COMPACTED_TOPICS else CoverageKind.MISSING
        at_ms = epoch_ms(self._task.run.captured_at)
        between = subtract([(of_dump[0][0], of_dump[-1][1])], known)
        self._observed += [CoverageRange(first, last, kind, at_ms, NOT_IN_DUMP) for first, last in between]

    def begin_live(self, chosen: "LogRange") -> None:
        assert self.work.live is not None
        self.begin(self.work.live.log_start_offset, chosen.from_offset)

    def end_live(self, chosen: "LogRange") -> None:
        """End a range of the live log. A piece may end inside a batch that the next piece contains."""
        assert self.work.live is not None
        may_cut = self.work.is_piece and chosen.to_offset == self.work.live.next_offset
        self.end(None if may_cut else chosen.to_offset)

    def add(self, read: SegmentRead) -> None:
        """Write the batches of the next read that count."""
        assert self._scan is not None
        read = self._with_true_epochs(read)
        has_own_epoch = read.scan.batches.leader_epoch >= 0
        if not has_own_epoch.all():
            batches = with_checkpoint_epochs(read.scan.batches, self._own_checkpoint())
            read = self._parted.with_tail_epochs(replace(read, scan=replace(read.scan, batches=batches)))
        chosen, rejected, silent = self._choose(read, has_own_epoch)
        self._writer.write(read, chosen)
        self._scan.add(read, rejected, silent)
        batches = read.scan.batches
        self._count.batch_count += int(chosen.sum())
        self._count.record_count += int(batches.record_count[chosen].sum())
        self._count.size_bytes += int(batches.size[chosen].sum())
        self._quarantine_findings(read)

    def end(self, offset_end: int | None) -> None:
        """End the range. `offset_end`: the end of what was read, exclusive; None: the end of its last batch."""
        assert self._scan is not None
        self._observed += self._scan.finish(offset_end)
        self._scan = None
        self._writer.close()

    def end_source(self) -> None:
        """Make the offsets of this source known, so that the next source need not provide them."""
        self._epoch_before, self._epoch_after, self._end = UNKNOWN_EPOCH, None, None
        self._checkpoint_file, self._checkpoint = None, None
        writer = self._writer
        self._damaged_written |= writer.damaged_files
        self._written += writer.files
        self._ranges += writer.ranges
        self._damaged |= writer.damaged
        if self.work.source_count > 1 or self.parts_ways:
            self._add_written()
        self._writer = LogWriter(self._task.target, self.work, self._task.run)
        self.known = union([*self.known, *writer.ranges])
        self._known_ranges = OffsetRanges(self.known)
        gave = ((r.from_offset, r.to_offset) for r in self._observed if r.kind in SETTLED)
        self.settled = union([*self.settled, *gave])

    def bring_back(self) -> None:
        """Restore batches that others replaced, where those others were cut since."""
        if not self._parted.has_cut:
            return
        self._add_written()
        for read in self._parted.brought_back(self.work.dropped):
            self.begin(None)
            self.add(read)
            self.end(None)
            self.end_source()
            self._add_written()

    def _compare_misplaced(self) -> None:
        """Intact batches in the wrong place hide nothing else if bronze has the same batches."""
        if not self._misplaced:
            return
        self._add_written()
        for row, hidden, batches in self._misplaced:
            if len(batches) > MISPLACED_MAX:
                continue
            self._there.load(hidden["from_offset"], hidden["to_offset"])
            there = self._there.rows
            places = {
                span: index
                for index, span in enumerate(zip(there.base_offset.tolist(), there.last_offset.tolist(), strict=True))
                if span in batches
            }
            if all(
                span in places and self._there.content(places[span])[16:] == content[16:]
                for span, content in batches.items()
            ):
                row.update(hidden)

    def finish(self) -> None:
        """Rewrite the files that lose batches or get records of dumps, and put the results into `TaskDone`."""
        self._compare_misplaced()
        if self._parted.has_doubtful_tails:
            self._add_written()
            self._parted.take_back_tails_of_the_log()
        place = self.work.topic, self.work.partition
        done, target = self._done, self._task.target
        bad, replaced = self._without_damaged()
        done.replaced.setdefault(place, []).extend(replaced)
        files = self._written
        if self._there.has_changes:
            self._add_written()
        if self._there.has_changes or bad:
            # dumps of this run were read after all removals of batches: their rows are in bronze already
            dumped = [(first, last) for first, last, _ in self.work.dumped]
            removed, rest, discarded, now = self._there.finish(target, bad, dumped, self.work.left_out)
            differences = self._there.differences()
            for it in differences:
                dump = self._source_of(it.record.offset)
                self.quarantine.add_difference(it, dump, it.source if it.is_log else dump)
            others = [(it.record.offset, it.record.offset) for it in differences if it.is_log]
            if others:
                self._dumped = tuple(
                    (*part, source)
                    for first, last, source in self._dumped
                    for part in subtract([(first, last)], others)
                )
            gone = {file.path.removeprefix(f"{target.folder}/") for file in discarded}
            files = [file for file in files if file.path not in gone] + rest
            done.removed += removed
            if self._there.has_changes:
                at_ms = epoch_ms(self._task.run.captured_at)
                done.rebuilt[place] = covered_by(now, at_ms)
                # ranges of removed batches would hide what other reads found at their offsets
                self._observed = [r for r in self._observed if r.kind is not CoverageKind.CAPTURED]
                # the removed batches also hid holes of dumps
                known = [(first, last) for first, last, _ in self._dumped]
                for uri in dict.fromkeys(source for _, _, source in self._dumped):
                    self._say_holes([(first, last) for first, last, source in self._dumped if source == uri], known)
            for file in discarded:
                delete_file(file.path)
        done.files += [*files, *(file for _, file in self._damaged_written.values())]
        # do not merge here: ranges of a cut tail must not hide those of the log
        done.coverage.append((place, tuple(self._observed)))
        done.known.setdefault(place, []).extend(self._ranges)
        done.damaged.setdefault(place, set()).update(self._damaged_written)
        if self._changed_from is not None and any(last >= self._changed_from for _, last in self.work.known):
            done.changed[place] = min(self._changed_from, done.changed.get(place, self._changed_from))
        if self._disproved:
            done.disproved[place] = done.disproved.get(place, set()) | self._disproved
        if self._dumped != self.work.dumped:
            done.dumped[place] = self._dumped
        self._lineage = self._lineage.with_log_starts(
            self._bounds, max((end for _, end in self.work.known), default=-1) + 1
        )
        if self._lineage != self.work.lineage:
            before = done.lineages.get(place)
            done.lineages[place] = self._lineage if before is None else before.merged(self._lineage)

    def _without_damaged(self) -> tuple[list[int], list[OffsetRange]]:
        """Delete damaged batches of this run that are intact in another copy. Returns base offsets of earlier runs'
        damaged batches that are to be removed, and offsets that only headers of replaced damaged batches claim. Rows of
        a dump have no header, so what is behind them stays CORRUPT."""
        bad = [offset for offset in self._damaged - self._damaged_written.keys() if offset in self._intact]
        replaced: list[OffsetRange] = []
        for offset in [offset for offset in self._damaged_written if offset in self._intact]:
            last_offset, file = self._damaged_written.pop(offset)
            replaced += [(offset, last_offset)] if self._intact[offset] else []
            delete_file(f"{self._task.target.folder}/{file.path}")
            self._count.batch_count -= 1
        stored = [offsets_of(it) for it in self.work.files if it.row_count and is_damaged(it)]
        replaced += [span for span in stored if span[0] in bad and self._intact[span[0]]]
        claimed = [span for span in stored if span[0] not in bad]
        claimed += [(offset, last_offset) for offset, (last_offset, _) in self._damaged_written.items()]
        return bad, subtract(replaced, claimed)

    def _add_written(self) -> None:
        """Add the new files of this run to `_there`."""
        new, self._added_count = self._written[self._added_count :], len(self._written)
        self._there.add(written_as_table_file(file, self._task.target, self._like()) for file in new)

    def _like(self) -> TableFile:
        run = self._task.run
        values = {"cluster_id": run.cluster_id, "topic": self.work.topic, "partition": self.work.partition}
        return TableFile("", 0, None, values)

    def _with_true_epochs(self, read: SegmentRead) -> SegmentRead:
        """Mark batches with an impossible leader epoch as damaged, like those with a wrong CRC."""
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        if not read.segment.has_header or not len(batches):
            return read
        rows = np.flatnonzero(crc_valid & (batches.leader_epoch >= 0))
        epochs = batches.leader_epoch[rows].astype(np.int64)
        is_odd = np.zeros(len(batches), np.bool_)
        is_odd[rows[out_of_order(epochs, self._epoch_before, self._epoch_after)]] = True
        for row in rows[self._is_damaged_twin(read, rows)].tolist():
            is_odd[row] = True
        known = batches.leader_epoch[rows[~is_odd[rows]]]
        self._epoch_before = max(self._epoch_before, int(known.max(initial=UNKNOWN_EPOCH)))
        if not is_odd.any():
            return read
        findings = [self._odd_epoch(read, row) for row in np.flatnonzero(is_odd).tolist()]
        together = sorted([*read.scan.findings, *findings], key=lambda it: it.byte_position or 0)
        scan = replace(read.scan, crc_valid=crc_valid & ~is_odd, findings=tuple(together))
        return replace(read, scan=scan)

    def _is_damaged_twin(self, read: SegmentRead, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Rows whose batch equals that of bronze but for a damaged leader epoch of its own (a leader writes a batch
        once). Where bronze's epoch is the damaged one, its batch is removed and its epoch forgotten."""
        batches = read.scan.batches
        is_twin = np.zeros(len(rows), np.bool_)
        within, partly = self._known_ranges.compared(batches)
        met = (within | partly)[rows]
        if not met.any():
            return is_twin
        self._there.load(int(batches.base_offset[rows[met][0]]), int(batches.last_offset[rows[met][-1]]))
        there = self._there.rows
        at = np.searchsorted(there.base_offset, batches.base_offset[rows])
        is_in = met & (at < len(there))
        at = np.where(is_in, at, 0)
        if is_in.any():
            epochs = batches.leader_epoch[rows]
            is_in &= (there.base_offset[at] == batches.base_offset[rows]) & (epochs != there.leader_epoch[at])
            is_in &= (there.origin[at] == Origin.LOG) & (there.last_offset[at] == batches.last_offset[rows])
            is_in &= there.leader_epoch[at] != UNKNOWN_EPOCH
        is_out = np.zeros(len(there), np.bool_)
        for index in np.flatnonzero(is_in).tolist():
            row = int(at[index])
            coming, kept = read.content(int(rows[index])), self._there.content(row)
            if coming[16:] != kept[16:] or has_no_epoch(kept):
                continue
            # the epoch that a neighbour shares is right; else drop the higher one, since it would cut more
            come_is_alone = not _has_neighbour(batches.leader_epoch[rows], index)
            there_is_alone = not _has_neighbour(there.leader_epoch, row)
            is_higher = bool(batches.leader_epoch[rows[index]] > there.leader_epoch[row])
            if come_is_alone if come_is_alone != there_is_alone else is_higher:
                is_twin[index] = True
            else:
                is_out[row] = True
        if is_out.any():
            gone = there.take(is_out)
            self._disproved |= set(zip(gone.leader_epoch.tolist(), gone.base_offset.tolist(), strict=True))
            self._lineage = self._lineage.without(self._disproved)
            self._change(int(gone.base_offset.min()))
            for row in np.flatnonzero(is_out).tolist():
                source, content = self._there.source(row), self._there.content(row)
                base_offset, epoch = int(there.base_offset[row]), int(there.leader_epoch[row])
                self.quarantine.add_damaged_epoch(source, base_offset, epoch, content, intact=read.segment.path)
            self._there.take_out(is_out)
            self._forget(zip(gone.base_offset.tolist(), gone.last_offset.tolist(), strict=True))
        return is_twin

    def _forget(self, ranges: Iterable[OffsetRange]) -> None:
        """Bronze no longer has these offsets: the next reads may provide them."""
        self.known = subtract(self.known, ranges)
        self._known_ranges = OffsetRanges(self.known)

    def _odd_epoch(self, read: SegmentRead, row: int) -> Finding:
        batches = read.scan.batches
        start = int(batches.position[row])
        size_bytes = min(int(batches.size[row]), QUARANTINE_BYTES_MAX)
        return Finding(
            stage="BATCH",
            code=EPOCH_OUT_OF_ORDER,
            message=f"leader epoch {int(batches.leader_epoch[row])} cannot be that of its place in the log: the header "
            "is damaged, where no checksum covers it",
            base_offset=int(batches.base_offset[row]),
            byte_position=start,
            payload=read.data.slice(start, size_bytes).to_pybytes(),
        )

    def _choose(
        self, read: SegmentRead, has_own_epoch: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Decide on each batch of a read; three arrays of one bool a batch: the batch is taken; it is intact, bronze
        has some of its offsets, and it is not taken; coverage ignores it, since bronze has its offsets or the log
        lost it."""
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        count = len(batches)
        nothing = np.zeros(count, np.bool_)
        origin = Origin.LOG
        if read.segment.source_kind == DUMP:
            origin = Origin.PRINTED if read.segment.has_header else Origin.ROWS
        come = BatchRows.of(batches, origin, has_own_epoch)
        self._follow(self._lineage.with_batches(come.take(crc_valid)), read.segment.path)
        is_cut = self._lineage.is_cut(come) & crc_valid
        if is_cut.any():
            self._parted.note_tails(read, come, is_cut, self._lineage)
            self._there.load(int(come.base_offset[is_cut][0]), int(come.last_offset[is_cut][-1]))
            own = self._parted.take_out_own(read, come, is_cut)
            if own is not None:
                self._change(own)
        is_here = np.ones(count, np.bool_)
        if self.work.offset_end is not None and read.segment.source_kind == SEGMENT:
            is_here = batches.last_offset < self.work.offset_end
        is_known, is_partial = self._known_ranges.compared(batches)
        meets = (is_known | is_partial) & crc_valid & ~is_cut
        silent = is_cut.copy()
        if self.work.dropped:
            # retention deleted these offsets: they are not captured again
            is_dropped = np.logical_or(*self._dropped.compared(batches))
            meets &= ~is_dropped
            silent |= is_dropped
        is_bad_here = np.isin(batches.base_offset, sorted(self._damaged)) if self._damaged else nothing
        taken_damaged = ~crc_valid & ~is_known & ~is_partial & ~is_bad_here & is_here
        self._note_intact(batches, crc_valid & ~is_cut, has_header=read.segment.has_header)
        # the length of a damaged batch is known from its header alone: an intact batch in bronze overrides that
        silent |= self._there.has_copies(batches, ~crc_valid & (is_known | is_partial))
        probed = self._is_probed(read)
        if probed is None and read.is_end and count:
            probed = 0
        if probed is not None and is_known[probed]:  # else it was removed because of a damaged leader epoch
            # this is the last batch of bronze, which was fetched to compare it: it is the same
            meets[probed] = False
            silent[probed] = True
        chosen = crc_valid & ~is_cut & ~meets & ~silent
        overlaps = nothing.copy()
        if meets.any():
            rows = np.flatnonzero(meets)
            self._there.load(int(batches.base_offset[rows[0]]), int(batches.last_offset[rows[-1]]))
            there = self._there.rows

            def content(row: int) -> tuple[bytes, bytes]:
                coming = read.content(int(rows[row]))
                first = int(batches.base_offset[rows[row]])
                kept, is_filled = self._there.without_fills(int(np.searchsorted(there.base_offset, first)))
                if is_filled:
                    coming = uncompressed(coming)
                    kept = coming if is_same_but_for_latest_time(coming, kept) else kept
                return coming, kept

            def have_same_checksum(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
                here = rows[some]
                coming = checksums_at(as_array(read.data), batches.position[here], batches.magic[here])
                is_same: NDArray[np.bool_] = coming == self._there.checksums(others)
                return is_same

            made = choose(there, come.take(rows), content, have_same_checksum)
            parted = [(int(rows[row]), index, bool(made.is_taken[row])) for row, index in made.parts]
            self._parted.note_parts(read, come, parted)
            is_taken = made.is_taken
            chosen[rows] = is_taken
            silent[rows] = ~is_taken & ~made.is_same
            overlaps[rows] = made.overlaps
            if made.is_replaced.any():
                self._change(int(there.base_offset[made.is_replaced].min()))
                self._there.take_out(made.is_replaced)
            between = rows[is_taken]
            if len(between):
                self._change(int(batches.base_offset[between[0]]))
        rejected = (overlaps | (~is_here & ~is_known)) & crc_valid & ~is_cut
        self._quarantine_rejected(read, rejected)
        return (chosen & is_here) | taken_damaged, rejected, silent & ~rejected

    def _quarantine_rejected(self, read: SegmentRead, rejected: NDArray[np.bool_]) -> None:
        """Quarantine the bytes of intact batches that bronze has in part and does not take."""
        batches = read.scan.batches
        for row in np.flatnonzero(rejected).tolist():
            start = int(batches.position[row])
            size_bytes = min(int(batches.size[row]), QUARANTINE_BYTES_MAX)
            self.quarantine.add(
                read.segment.path,
                stage="BATCH",
                code=OVERLAPPING_BATCH,
                message="some of its offsets are in bronze already, some are not",
                base_offset=int(batches.base_offset[row]),
                byte_position=start if read.segment.source_kind == SEGMENT else None,
                bytes=read.data.slice(start, size_bytes).to_pybytes(),
            )

    def _change(self, offset: int) -> None:
        """Bronze changes from this offset on."""
        self._changed_from = offset if self._changed_from is None else min(self._changed_from, offset)

    def _note_intact(self, batches: BatchColumns, is_good: NDArray[np.bool_], *, has_header: bool) -> None:
        """Remember at which offsets of damaged batches of bronze an intact one is."""
        for offset in self._damaged:
            row = int(np.searchsorted(batches.last_offset, offset, side="left"))
            if row < len(batches) and is_good[row] and batches.base_offset[row] <= offset:
                self._intact[offset] = has_header or self._intact.get(offset, False)

    def _follow(self, lineage: Lineage, source: str) -> None:
        """Take new leader epochs, and remove from bronze the tails that they cut."""
        if lineage is self._lineage:
            return
        starts, self._lineage = self._lineage.starts, lineage
        new = [offset for epoch, offset in lineage.starts.items() if offset < starts.get(epoch, offset + 1)]
        new += [offset for epoch, offset in starts.items() if lineage.starts.get(epoch) != offset]
        if not new or not any(last >= min(new) for _, last in self.known):
            return
        # an older epoch reaches past the start of a newer one only where copies diverge
        for first in self._parted.cut_away(lineage, source):
            self._change(first)

    def _source_of(self, offset: int) -> str:
        """The dump that had a record at this offset."""
        return next((source for first, last, source in self._dumped if first <= offset <= last), "a dump")

    def _quarantine_findings(self, read: SegmentRead) -> None:
        is_file = read.segment.source_kind == SEGMENT
        for finding in read.scan.findings:
            if not is_file and finding.base_offset in self._damaged:
                continue  # found before; a byte position in a fetch response does not identify a place
            row = self.quarantine.add(
                read.segment.path,
                stage=finding.stage,
                code=finding.code,
                message=finding.message,
                offset=finding.offset,
                base_offset=finding.base_offset,
                byte_position=finding.byte_position if is_file else None,
                bytes=finding.payload,
            )
            if is_file and finding.stage == "FILE":
                row.update(self._hidden_by(read, finding.byte_position, row))

    def _hidden_by(self, read: SegmentRead, byte_position: int | None, quarantined: dict[str, Any]) -> dict[str, int]:
        """The offsets that bytes which are not batches may have contained: those between the surrounding batches,
        and those of whole batches among the bytes. Empty where they are not known."""
        scan, batches = read.scan, read.scan.batches
        end_position = next((end for start, end in scan.skipped if start == byte_position), None)
        if byte_position is None or end_position is None:
            return {}
        row = int(np.searchsorted(batches.position, byte_position))
        first = int(batches.last_offset[row - 1]) + 1 if row else read.segment.base_offset
        skipped = as_array(read.data)[byte_position:end_position]
        found, _ = frame_chunk(skipped)
        is_whole = len(found) > 0 and int(found.position[-1] + found.size[-1]) == len(skipped)
        if is_whole and (crc_valid_batches(skipped, found).all() or int(found.base_offset[0]) == first):
            # whole batches that are misplaced or damaged: the CRC does not cover the base offset
            firsts, lasts = [int(found.base_offset.min())], [int(found.last_offset.max())]
            after = int(batches.base_offset[row]) if row < len(batches) else self._end
            if after is not None and first < after:
                firsts, lasts = [first, *firsts], [after - 1, *lasts]
            hidden = {"from_offset": min(firsts), "to_offset": max(lasts)}
            if not crc_valid_batches(skipped, found).all():
                return hidden
            # bronze may have other batches at these offsets: of another log, or with fewer records
            spans = zip(found.base_offset.tolist(), found.last_offset.tolist(), strict=True)
            parts = zip(found.position.tolist(), (found.position + found.size).tolist(), strict=True)
            contents = [skipped[start:end].tobytes() for start, end in parts]
            self._misplaced.append((quarantined, hidden, dict(zip(spans, contents, strict=True))))
            return {}
        if row < len(batches):
            last = int(batches.base_offset[row]) - 1
        elif self._end is not None:
            last = self._end - 1
        elif read.segment.is_last and scan.findings[-1].code == TORN:
            last = first  # of a torn batch
        else:
            return {}
        return {"from_offset": first, "to_offset": last}


def _has_neighbour(epochs: NDArray[Any], row: int) -> bool:
    """Does the previous or the next batch have the same leader epoch?"""
    return (row > 0 and epochs[row - 1] == epochs[row]) or (row + 1 < len(epochs) and epochs[row + 1] == epochs[row])
