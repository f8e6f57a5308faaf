"""Which marker ended an aborted transaction: its own, unless offsets are missing between its records and the marker.

The next marker of a producer in a log partition ends whatever is open of it. Its transaction's own marker may have been
in a part of the log that was not read, or that compaction removed after an earlier capture had read the records. Then
the next one belongs to another transaction.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.confidence import LIKELY
from coordinator_core.inference.facts.log_facts import is_any_between
from coordinator_core.inference.facts.rows import AnomalyRow
from jobs.delta.table_files import TableFile, read_file
from jobs.gold.clock_steps import split_files
from schemas.tables.bronze import RECORD_BATCHES

ABORTED: Final = "ABORTED"
_COLUMNS: Final = ("base_offset", "last_offset", "producer_id", "control_type", "crc_valid")


def with_own_markers(
    rows: Sequence[AnomalyRow], holes: Sequence[int], batch_files: Sequence[TableFile]
) -> Sequence[AnomalyRow]:
    """The rows of a log partition; an ABORTED commit is LIKELY if offsets are missing before the marker that ended its
    transaction, or where no file of bronze has the marker. `holes`: where missing parts begin, ascending. Batches are
    read only where an aborted commit is before a hole.
    """
    last_hole = holes[-1] if holes else -1
    asked = np.array(sorted({row.log_offset for row in rows if row.kind == ABORTED and row.log_offset < last_hole}))
    if not len(asked):
        return rows
    markers = _markers_after(asked.astype(np.int64), batch_files)
    doubtful = {at for at in asked.tolist() if at not in markers or is_any_between(holes, at, markers[at])}
    return [
        row._replace(confidence=LIKELY) if row.kind == ABORTED and row.log_offset in doubtful else row for row in rows
    ]


def _markers_after(asked: I64, files: Sequence[TableFile]) -> dict[int, int]:
    """By log offset of a commit in a transaction, the offset of the next marker of its producer."""
    _, needed = split_files(files, int(asked[0]))
    if not needed:
        return {}
    batches = pa.concat_tables(read_file(file, RECORD_BATCHES, _COLUMNS) for file in needed)
    batches = batches.filter(batches["crc_valid"]).sort_by("base_offset")
    base, last = batches["base_offset"].to_numpy(), batches["last_offset"].to_numpy()
    producer = batches["producer_id"].fill_null(-1).to_numpy()
    ends = np.flatnonzero(batches["control_type"].is_valid().to_numpy())
    of_producer = {int(pid): base[ends[producer[ends] == pid]] for pid in np.unique(producer[ends])}
    found: dict[int, int] = {}
    places = np.searchsorted(base, asked, side="right") - 1
    for at, place in zip(asked.tolist(), places.tolist(), strict=True):
        if place < 0 or at > last[place] or producer[place] < 0:
            continue
        mine = of_producer.get(int(producer[place]), base[:0])
        index = int(np.searchsorted(mine, at))
        if index < len(mine):
            found[at] = int(mine[index])
    return found
