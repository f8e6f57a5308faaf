"""Rows of bronze.quarantine that the capture of one log partition adds."""

from datetime import datetime
from typing import Any

from coordinator_core.bytes.log.batch import build_batch
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH
from coordinator_core.limits import PARTED_BYTES_MAX, QUARANTINE_BYTES_MAX
from jobs.bronze.batches import Difference
from jobs.bronze.copies import OF_NO_EPOCH, OF_OLDER_EPOCH
from jobs.bronze.quarantine import COPIES_DIFFER, COPIES_PART, EPOCH_OUT_OF_ORDER
from jobs.bronze.writer import CaptureRun


class QuarantineRows:
    """Rows about data that could not be read, and about damage that another copy repaired at once: those are written
    resolved.
    """

    def __init__(self, rows: list[dict[str, Any]], run: CaptureRun, topic: str, partition: int) -> None:
        self._rows = rows
        self._place = {"cluster_id": run.cluster_id, "topic": topic, "partition": partition}
        self._seen_at: datetime = run.captured_at
        self._different: set[tuple[int, str]] = set()
        """(offset, dump) for which a difference already has a row."""

    def add(self, source: str, *, stage: str, code: str, message: str, **values: Any) -> dict[str, Any]:
        """Add a row about unreadable data and return it; the caller may fill further columns."""
        row = dict.fromkeys(("offset", "base_offset", "byte_position", "bytes", "from_offset", "to_offset"))
        row |= self._place
        row |= {"stage": stage, "code": code, "message": message, "source": source, "seen_at": self._seen_at}
        row |= values
        self._rows.append(row)
        return row

    def add_damaged_epoch(self, source: str, base_offset: int, epoch: int, content: bytes, *, intact: str) -> None:
        """Add a row: a batch of bronze, from `source`, has a damaged leader epoch; `intact` has the same batch
        undamaged.
        """
        self._add_resolved(
            source,
            code=EPOCH_OUT_OF_ORDER,
            message=f"{source} has leader epoch {epoch} in the batch at offset {base_offset}, which "
            f"{intact} has with another one: the header is damaged, where no checksum covers it",
            resolved_by=f"{intact} has the same batch with the epoch of its place",
            base_offset=base_offset,
            content=content,
        )

    def add_tail(
        self, source: str, first: int, epoch: int, content: bytes, *, newer: tuple[int, int, str]
    ) -> dict[str, Any]:
        """Add a row: `source` continues with an older leader epoch.

        `content`: its batches from there on, or only the first. `newer`: the newer epoch, its start offset, and the
        source that has it.
        """
        newer_epoch, start, newer_source = newer
        return self._add_resolved(
            source,
            code=COPIES_PART,
            message=f"copies of the log part ways at offset {first}: {source} {OF_OLDER_EPOCH} {epoch}, and "
            f"leader epoch {newer_epoch} begins at offset {start} in {newer_source}",
            resolved_by=f"the newer leader epoch, {newer_epoch}, counts: what is older from there on was left out",
            offset=first,
            base_offset=first,
            content=content,
        )

    def take_back(self, row: dict[str, Any]) -> None:
        """Remove a row that was added and is not true."""
        self._rows[:] = [it for it in self._rows if it is not row]

    def add_other(self, first: int, lost: tuple[str, int, bytes], kept: tuple[str, int, bytes]) -> None:
        """Add a row: two sources have batches with different records at the same offsets.

        `lost` and `kept`: source, leader epoch and bytes of each.
        """
        (source, epoch, content), (other, other_epoch, _) = lost, kept
        known = [f"of leader epoch {it}" if it >= 0 else OF_NO_EPOCH for it in (epoch, other_epoch)]
        self._add_resolved(
            source,
            code=COPIES_PART,
            message=f"copies of the log part ways at offset {first}: {source} has another batch there, {known[0]}, "
            f"than {other}, {known[1]}; give the leader-epoch-checkpoint of both with their segments",
            resolved_by=f"that of {other} counts, "
            + (
                "by its leader epoch"
                if other_epoch > epoch
                else "by its bytes alone: which one the log has is not known"
            ),
            offset=first,
            base_offset=first,
            content=content,
        )

    def add_difference(self, it: Difference, dump: str, other: str) -> None:
        """Add a row, once for each offset and dump: a dump and another source have different records at one offset."""
        offset = it.record.offset
        if (offset, dump) in self._different:
            return
        self._different.add((offset, dump))
        counts = f"that of {it.source} counts, whose batch is of the log" if it.is_log else "the later one counts"
        self._add_resolved(
            dump,
            code=COPIES_DIFFER,
            message=f"copies of the log have different records at offset {offset}: {dump} has another than {other}",
            resolved_by=f"{counts}: the other one was left out",
            offset=offset,
            base_offset=it.base_offset,
            content=build_batch([it.record], leader_epoch=UNKNOWN_EPOCH),
        )

    def _add_resolved(
        self, source: str, *, code: str, message: str, resolved_by: str, content: bytes, **values: Any
    ) -> dict[str, Any]:
        return self.add(
            source,
            stage="BATCH",
            code=code,
            message=message,
            bytes=content[: PARTED_BYTES_MAX if code == COPIES_PART else QUARANTINE_BYTES_MAX],
            resolved_at=self._seen_at,
            resolved_by=resolved_by,
            **values,
        )
