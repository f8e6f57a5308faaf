"""Where copies of one log partition part ways, as bronze.quarantine says it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator_core.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, has_no_epoch
from coordinator_core.log_partitions import OffsetRange
from jobs.bronze.batches import BronzeBatches
from jobs.bronze.quarantine_rows import QuarantineRows
from jobs.sources.segments import SegmentRead


class PartedCopies:
    """Says where a source and bronze part ways: in a tail that a newer leader epoch cut away, or without a known
    reason."""

    def __init__(self, there: BronzeBatches, quarantine: QuarantineRows) -> None:
        self._there = there
        self._quarantine = quarantine
        self._doubtful_tails: list[tuple[dict[str, Any], OffsetRange, bytes]] = []
        """Rows of quarantine about tails in which no leader epoch is written, with their first batch."""
        self.checkpoints: dict[int, str] = {}
        """Of leader epochs that a checkpoint of this run has, where it was read."""

    @property
    def has_doubtful_tails(self) -> bool:
        """Is there a tail whose leader epoch a checkpoint alone says?"""
        return bool(self._doubtful_tails)

    def cut_away(self, lineage: Lineage, source: str) -> list[int]:
        """Take out of bronze the tails that a newer leader epoch, which `source` showed, cut away. First offset of
        each."""
        firsts = []
        self._there.load()
        for tail, path, content in self._there.cut_away(lineage):
            first, last, epoch = int(tail.base_offset[0]), int(tail.last_offset[0]), int(tail.leader_epoch[0])
            newer = (*lineage.cut_by(epoch, last), source)
            row = self._quarantine.add_tail(path, first, epoch, content, newer=newer)
            self._note_tail(row, (first, last), content)
            firsts.append(first)
        return firsts

    def note_tails(self, read: SegmentRead, come: BatchRows, is_cut: NDArray[np.bool_], lineage: Lineage) -> None:
        """Say where a source that is read parts ways with the log."""
        epochs = come.leader_epoch
        for row in np.flatnonzero(is_cut).tolist():
            if row and is_cut[row - 1] and epochs[row - 1] == epochs[row]:
                continue
            content = read.content(row)
            first, last, epoch = int(come.base_offset[row]), int(come.last_offset[row]), int(epochs[row])
            newer, start = lineage.cut_by(epoch, last)
            quarantined = self._quarantine.add_tail(
                read.segment.path, first, epoch, content, newer=(newer, start, self._source_at(start, newer))
            )
            self._note_tail(quarantined, (first, last), content)

    def take_out_own(self, read: SegmentRead, come: BatchRows, is_cut: NDArray[np.bool_]) -> int | None:
        """Take out of bronze what it has of a tail from the same file, from before a checkpoint said its leader epoch.
        The first offset of it."""
        rows = self._there.rows
        at = np.searchsorted(rows.base_offset, come.base_offset[is_cut & ~come.has_own_epoch])
        at = at[at < len(rows)]
        at = at[(rows.leader_epoch[at] == UNKNOWN_EPOCH) & np.isin(rows.base_offset[at], come.base_offset[is_cut])]
        own = [row for row in at.tolist() if self._there.source(row) == read.segment.path]
        if not own:
            return None
        self._there.take_out(np.isin(np.arange(len(rows)), own))
        return int(rows.base_offset[own[0]])

    def note_parts(self, read: SegmentRead, come: BatchRows, parted: Sequence[tuple[int, int, bool]]) -> None:
        """Say where copies have other batches at the same offsets, and no leader epoch says why. Row of the one that
        comes, of the one that is there, and does the former count?"""
        before = -2
        for row, there, is_taken in parted:
            before, is_again = row, row == before + 1
            if is_again:
                continue
            one = read.segment.path, int(come.leader_epoch[row]), read.content(row)
            other = self._there.source(there), int(self._there.rows.leader_epoch[there]), self._there.content(there)
            self._quarantine.add_other(int(come.base_offset[row]), *((other, one) if is_taken else (one, other)))

    def take_back_tails_of_the_log(self) -> None:
        """A follower of before message format 2 had the batches of a newer epoch without an entry of its own: where
        bronze has the same batch from another replica, its copy does not part ways with that."""
        for row, (first, last), content in self._doubtful_tails:
            self._there.load(first, last)
            at = int(np.searchsorted(self._there.rows.base_offset, first))
            if at < len(self._there.rows) and self._there.content(at) == content:
                self._quarantine.take_back(row)

    def _note_tail(self, row: dict[str, Any], span: OffsetRange, content: bytes) -> None:
        """A row of quarantine about a tail: where a checkpoint says its epoch, other batches may contradict it."""
        if has_no_epoch(content):
            self._doubtful_tails.append((row, span, content))

    def _source_at(self, offset: int, leader_epoch: int) -> str:
        """Where bronze has the batch at an offset from; where that is of another epoch, the checkpoint that has it."""
        self._there.load(offset)
        row = int(np.searchsorted(self._there.rows.last_offset, offset, side="left"))
        is_there = row < len(self._there.rows)
        if leader_epoch in self.checkpoints and not (is_there and self._there.rows.leader_epoch[row] == leader_epoch):
            return self.checkpoints[leader_epoch]
        return self._there.source(row) if is_there else "another source"
