"""Hundreds of random histories, compacted somewhere and cut into runs anywhere: what one run makes of them."""

from itertools import pairwise
from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.copies import Load
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.checkpoint import unpack_group
from coordinator_core.history.log_checkpoint import (
    pack_offset_state,
    pack_share_state,
    unpack_offset_state,
    unpack_share_state,
)
from coordinator_core.history.offsets_log import Loaded, OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.rows import GroupRows
from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from tests.coordinator_core.history.histories import RECORDS_MAX, cuts_of, offsets_log, probe, share_log
from tests.coordinator_core.history.test_checkpoint import by_group, texts
from tests.coordinator_core.live.offsets.reference import Row, rows_of
from tests.coordinator_core.live.share_state.reference import chunk_of, columnar_rows
from tests.lengths import how_many

HISTORIES: Final = how_many(60)
"""How many of each coordinator topic; `make fuzz` tries more."""
BY_BYTES: Final = 16
"""One in so many goes through bytes in each run, which takes longer than all else (`test_checkpoint` tries that)."""
PARTS: Final = 5
"""Tests that share them, so that a failure names few."""


def chunk_of_batches(batches: list[bytes]) -> RecordChunk:
    """The batches, decoded."""
    data = np.frombuffer(b"".join(batches), np.uint8)
    return decode_chunk(data, bytes_max=2**20, chunk_bytes_max=2**22, crc="verify")


class Runs:
    """Runs of the replay of one `__consumer_offsets` partition, each from what the one before left."""

    def __init__(self, *, by_bytes: bool) -> None:
        self._by_bytes = by_bytes
        self.state: OffsetsLogState | None = None
        self.commits: dict[int, Row] = {}
        self.forgotten: list[Row] = []
        self._settled = GroupRows()
        self._open: dict[str, GroupRows] = {}

    def run(self, batches: list[bytes], loaded: Loaded | None = None) -> None:
        replay = OffsetsLogReplay(self.state)
        if batches:
            output = replay.feed(chunk_of_batches(batches), loaded)
            self.commits |= {row.log_offset: row for row in rows_of(output.commits)}
            found = [] if output.forgotten is None else rows_of(output.forgotten)
            self.forgotten += [row for row in found if row.change == "FORGOTTEN"]
            self.commits |= {row.log_offset: row for row in found if row.change != "FORGOTTEN"}
            self._settled.extend(output.groups)
        left = replay.export_state()
        columnar = unpack_offset_state(pack_offset_state(left.columnar)) if self._by_bytes else left.columnar
        self.state = OffsetsLogState(columnar, left.groups)
        last = replay.finish()
        self.commits |= {row.log_offset: row for row in rows_of(last.commits)}
        self._open = {group_id: rows for group_id, rows in self._open.items() if group_id in replay.serialized}
        self._open |= by_group(last.groups)

    def rows(self) -> list[str]:
        """Of the groups."""
        together = GroupRows()
        for rows in (self._settled, *self._open.values()):
            together.extend(rows)
        return texts(together)

    def groups(self) -> dict[str, bytes]:
        """The state of the groups."""
        assert self.state is not None
        return dict(self.state.groups)


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_of_groups_in_runs(part: int) -> None:
    """The end state and all rows of `__consumer_offsets` are those of one run."""
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"groups/{seed}")
        batches = offsets_log(random)
        whole, runs = Runs(by_bytes=False), Runs(by_bytes=seed % BY_BYTES == 0)
        whole.run(batches)
        for first, end in pairwise(cuts_of(random, len(batches))):
            runs.run(batches[first:end])
        assert runs.commits == whole.commits, seed
        assert runs.rows() == whole.rows(), seed
        assert runs.groups() == whole.groups(), seed
        # what offsets are in force, and what is pending, shows in what more records make of it
        for each in (whole, runs):
            each.run(probe(len(batches)))
        assert runs.commits == whole.commits, seed


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_of_which_a_new_leader_loads_a_part(part: int) -> None:
    """A leader loads the log from a start that had moved: from there on the state is that of a replay from the start,
    whatever the runs; offsets and groups that only older records had end there."""
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"loads/{seed}")
        batches = [batch for batch in offsets_log(random) if batch]
        start, begin = sorted(random.randint(0, len(batches) - 1) for _ in range(2))
        load = Load(_base_offset(batches[begin]), 1, _base_offset(batches[start]), is_ordered=True)
        loading = OffsetsLogReplay()
        if batches[start:begin]:
            loading.feed(chunk_of_batches(batches[start:begin]))
        loaded = Loaded(load, load.log_start_offset, loading.groups)
        whole, runs, fresh = (Runs(by_bytes=by_bytes) for by_bytes in (False, seed % BY_BYTES == 0, False))
        whole.run(batches[:begin])
        whole.run(batches[begin:], loaded)
        for first, end in pairwise(sorted([*cuts_of(random, len(batches)), begin])):
            runs.run(batches[first:end], loaded if first == begin and first < end else None)
        fresh.run(batches[start:])
        assert (runs.commits, runs.forgotten) == (whole.commits, whole.forgotten), seed
        assert runs.rows() == whole.rows(), seed
        assert runs.groups() == whole.groups(), seed
        states = [
            {
                group_id: (saved.group, saved.share_partitions)
                for group_id, saved in ((it, unpack_group(packed)) for it, packed in each.groups().items())
                if saved.group is not None or saved.share_partitions is not None
            }
            for each in (whole, fresh)
        ]
        assert states[0] == states[1], seed
        keys = [(row.log_offset, row.group, row.topic, row.partition) for row in whole.forgotten]
        assert len(keys) == len({*keys}), seed
        for each in (whole, fresh):
            each.run(probe(len(batches)))
        ends = [
            {place: row for place, row in each.commits.items() if place >= RECORDS_MAX * len(batches)}
            for each in (whole, fresh)
        ]
        assert ends[0] == ends[1], seed


def _base_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_of_share_partitions_in_runs(part: int) -> None:
    """The same of `__share_group_state`."""
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"shares/{seed}")
        log, end = ([(offset, at, event.encoded()) for offset, at, event in it] for it in share_log(random))
        whole = ColumnarShareReplay()
        expected = [whole.feed(chunk_of(log)), whole.feed(chunk_of(end)), whole.finish()]
        columnar = ColumnarShareReplay()
        outputs = []
        cuts = cuts_of(random, len(log))
        for part_of_log in (*(log[first:last] for first, last in pairwise(cuts)), end):
            state = columnar.export_state()
            columnar = ColumnarShareReplay(state if seed % BY_BYTES else unpack_share_state(pack_share_state(state)))
            outputs.append(columnar.feed(chunk_of(part_of_log)))
        # the end makes the state show: one record more of each share partition
        assert columnar_rows([*outputs, columnar.finish()]) == columnar_rows(expected), seed
