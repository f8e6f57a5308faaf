"""Where copies of one log partition diverge, as recorded in bronze.quarantine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.bytes.coverage import subtract
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, has_no_epoch
from coordinator_core.bytes.log.records import frame_chunk
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.bytes.log_partitions import OffsetRange
from coordinator_core.limits import PARTED_BYTES_MAX
from jobs.bronze.batches import BronzeBatches, whole_tail
from jobs.bronze.copies import LeftOut
from jobs.bronze.quarantine_rows import QuarantineRows
from jobs.sources.segments import Segment, SegmentRead, as_array


class _Lost(NamedTuple):
    """Consecutive batches of one source that batches of another copy replaced."""

    offset: int
    kept: tuple[str, int, bytes]
    """The batch that counts at the first offset: source, leader epoch and bytes."""
    content: bytearray


class PartedCopies:
    """Records where a source and bronze diverge: in a tail that a newer leader epoch cut, or for no known reason."""

    def __init__(self, there: BronzeBatches, quarantine: QuarantineRows, left_out: Iterable[LeftOut] = ()) -> None:
        self._there = there
        self._quarantine = quarantine
        self.has_cut = False
        """Was a tail removed from bronze?"""
        self._lost: dict[LeftOut, None] = {}
        """Batches of no known leader epoch that others replaced, in the order in which they were found."""
        self._tail_epochs: dict[tuple[int, bytes], int] = {}
        """Leader epochs that a checkpoint gives to batches of tails that carry none, by base offset and bytes."""
        for it in left_out:
            if it.tail_epoch == UNKNOWN_EPOCH:
                self._lost[it] = None
            else:
                self._note_contents((batch for _, _, batch in _batches_of(it.content)), it.tail_epoch)
        self._doubtful_tails: list[tuple[dict[str, Any], OffsetRange, bytes]] = []
        """Rows of quarantine about tails whose batches carry no leader epoch, with the first batch of each."""
        self.checkpoints: dict[int, str] = {}
        """By leader epoch: the checkpoint of this run that has it."""

    @property
    def has_doubtful_tails(self) -> bool:
        """Is there a tail whose leader epoch only a checkpoint gives?"""
        return bool(self._doubtful_tails)

    def cut_away(self, lineage: Lineage, source: str) -> list[int]:
        """Remove from bronze the tails that a newer leader epoch cut; `source` showed that epoch.

        Returns the first offset of each tail.
        """
        firsts = []
        self._there.load()
        for tail, path, contents in self._there.cut_away(lineage):
            first, last, epoch = int(tail.base_offset[0]), int(tail.last_offset[0]), int(tail.leader_epoch[0])
            newer = (*lineage.cut_by(epoch, last), source)
            row = self._quarantine.add_tail(path, first, epoch, b"".join(contents), newer=newer)
            self._note_tail(row, (first, last), epoch, contents)
            firsts.append(first)
        self.has_cut = self.has_cut or bool(firsts)
        return firsts

    def note_tails(self, read: SegmentRead, come: BatchRows, is_cut: NDArray[np.bool_], lineage: Lineage) -> None:
        """Quarantine the tails of a read that the log no longer has."""
        epochs = come.leader_epoch
        for row in np.flatnonzero(is_cut).tolist():
            if row and is_cut[row - 1] and epochs[row - 1] == epochs[row]:
                continue
            contents = whole_tail(row, is_cut, epochs, read.content)
            first, last, epoch = int(come.base_offset[row]), int(come.last_offset[row]), int(epochs[row])
            newer, start = lineage.cut_by(epoch, last)
            quarantined = self._quarantine.add_tail(
                read.segment.path, first, epoch, b"".join(contents), newer=(newer, start, self._source_at(start, newer))
            )
            self._note_tail(quarantined, (first, last), epoch, contents)

    def take_out_own(self, read: SegmentRead, come: BatchRows, is_cut: NDArray[np.bool_]) -> int | None:
        """Remove from bronze the batches of a tail without a leader epoch that were captured before a checkpoint gave
        one: those of the same file, and those with the same bytes from a copy without a checkpoint. Returns the first
        offset removed.
        """
        rows = self._there.rows
        at = np.searchsorted(rows.base_offset, come.base_offset[is_cut & ~come.has_own_epoch])
        at = at[at < len(rows)]
        at = at[(rows.leader_epoch[at] == UNKNOWN_EPOCH) & np.isin(rows.base_offset[at], come.base_offset[is_cut])]
        own = [row for row in at.tolist() if self._is_own(read, row)]
        if not own:
            return None
        self.has_cut = True
        self._there.take_out(np.isin(np.arange(len(rows)), own))
        return int(rows.base_offset[own[0]])

    def note_parts(self, read: SegmentRead, come: BatchRows, parted: Sequence[tuple[int, int, bool]]) -> None:
        """Quarantine batches of copies that differ at the same offsets while no leader epoch explains it.

        `parted`: row in the read, row in bronze, and whether the batch of the read counts.
        """
        run: dict[tuple[str, int], _Lost] = {}
        before, full = -2, set[bool]()
        for row, there, is_taken in parted:
            if row != before + 1:
                self._note_lost(run)
                run, full = {}, set()
            before = row
            if is_taken in full:
                continue
            one = read.segment.path, int(come.leader_epoch[row]), read.content(row)
            other = self._there.source(there), int(self._there.rows.leader_epoch[there]), self._there.content(there)
            (source, epoch, content), kept = (other, one) if is_taken else (one, other)
            found = run.setdefault((source, epoch), _Lost(int(come.base_offset[row]), kept, bytearray()))
            if found.content and (epoch != UNKNOWN_EPOCH or len(found.content) + len(content) > PARTED_BYTES_MAX):
                full.add(is_taken)
                continue
            found.content.extend(self._there.without_fills(there)[0] if is_taken else content)
        self._note_lost(run)

    def _note_lost(self, run: Mapping[tuple[str, int], "_Lost"]) -> None:
        """Add one row for each source whose batches do not count. If their leader epoch is known, they are not of
        the log; if not, that is uncertain, and they are kept to be restored."""
        for (source, epoch), it in run.items():
            content = bytes(it.content)
            if epoch == UNKNOWN_EPOCH:
                self._lost[LeftOut(source, content)] = None
            self._quarantine.add_other(it.offset, (source, epoch, content), it.kept)

    def with_tail_epochs(self, read: SegmentRead) -> SegmentRead:
        """Give batches without a leader epoch the epoch of a tail's batch with the same bytes."""
        if not self._tail_epochs:
            return read
        batches = read.scan.batches
        offsets = np.array([offset for offset, _ in self._tail_epochs], np.int64)
        rows = np.flatnonzero((batches.leader_epoch < 0) & np.isin(batches.base_offset, offsets))
        epochs = batches.leader_epoch.copy()
        for row in rows.tolist():
            key = int(batches.base_offset[row]), read.content(row)
            epochs[row] = self._tail_epochs.get(key, UNKNOWN_EPOCH)
        return replace(read, scan=replace(read.scan, batches=replace(batches, leader_epoch=epochs)))

    def brought_back(self, dropped: Sequence[OffsetRange]) -> Iterator[SegmentRead]:
        """Batches that others replaced, where bronze no longer has their offsets.

        Add each read to bronze before asking for the next one: what it restores decides on the next.
        """
        for it in list(self._lost):
            spans = [(first, last) for first, last, _ in _batches_of(it.content)]
            if not subtract(spans, [*self._there.ranges(spans[0][0]), *dropped]):
                continue
            segment = Segment(it.source, it.source, spans[0][0], len(it.content), is_last=False)
            data = pa.py_buffer(it.content)
            yield SegmentRead(segment, data, scan_segment(as_array(data), base_offset=spans[0][0]))

    def take_back_tails_of_the_log(self) -> None:
        """Take back rows about tails that turn out to be of the log.

        A follower from before message format 2 had batches of a newer epoch without a checkpoint entry for it: if
        bronze has the same batch from another replica, the copies agree.
        """
        for row, (first, last), content in self._doubtful_tails:
            self._there.load(first, last)
            at = int(np.searchsorted(self._there.rows.base_offset, first))
            if at < len(self._there.rows) and self._there.content(at) == content:
                self._quarantine.take_back(row)

    def _is_own(self, read: SegmentRead, row: int) -> bool:
        """Does a batch of bronze come from this file, or does the file contain the same batch?"""
        if self._there.source(row) == read.segment.path:
            return True
        at = int(np.searchsorted(read.scan.batches.base_offset, self._there.rows.base_offset[row]))
        return self._there.without_fills(row)[0] == read.content(at)

    def _note_tail(self, row: dict[str, Any], span: OffsetRange, epoch: int, contents: Sequence[bytes]) -> None:
        """Remember a row of quarantine about a tail whose epoch only a checkpoint gives: other batches may
        contradict it."""
        if has_no_epoch(contents[0]):
            self._doubtful_tails.append((row, span, contents[0]))
            self._note_contents(contents, epoch)

    def _note_contents(self, contents: Iterable[bytes], epoch: int) -> None:
        self._tail_epochs |= {(int.from_bytes(content[:8]), content): epoch for content in contents}

    def _source_at(self, offset: int, leader_epoch: int) -> str:
        """The source of bronze's batch at an offset. If that batch has another epoch, the checkpoint that has
        `leader_epoch`."""
        self._there.load(offset)
        row = int(np.searchsorted(self._there.rows.last_offset, offset, side="left"))
        is_there = row < len(self._there.rows)
        if leader_epoch in self.checkpoints and not (is_there and self._there.rows.leader_epoch[row] == leader_epoch):
            return self.checkpoints[leader_epoch]
        return self._there.source(row) if is_there else "another source"


def _batches_of(content: bytes) -> list[tuple[int, int, bytes]]:
    """First offset, last offset and bytes of each whole batch in `content`."""
    found, _ = frame_chunk(content)
    columns = (found.base_offset, found.last_offset, found.position, found.size)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(first, last, content[start : start + size]) for first, last, start, size in rows]
