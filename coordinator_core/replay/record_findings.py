"""Records that cannot be read, for bronze.quarantine: bounded, and the same however a log is divided by its keys."""

from dataclasses import replace

from coordinator_core.bytes.log.chunk import Finding, RecordChunk
from coordinator_core.errors import DecodeError
from coordinator_core.limits import QUARANTINE_BYTES_MAX, QUARANTINED_OFFSETS_MAX
from coordinator_core.replay.key_buckets import slot_of_record
from coordinator_core.text import counted

Kind = tuple[int, str, int]
"""Base offset of the batch, code of the error, and slot of the key."""


class RecordFindings:
    """Findings about records of one chunk. `is_share`: of the log of share states.

    Behind the first `limits.QUARANTINED_OFFSETS_MAX` offsets of a batch, all of a kind have one finding.
    """

    def __init__(self, *, is_share: bool = False) -> None:
        self._is_share = is_share
        self._found: list[Finding] = []
        self._alike: dict[Kind, tuple[Finding, int, int]] = {}
        """The first of those that are not in `found`, their number, and the last one's offset."""

    def add(
        self, chunk: RecordChunk, row: int, error: DecodeError, payload: bytes, group_id: str | None = None
    ) -> None:
        """A record whose key or value cannot be read."""
        base_offset = int(chunk.batches.base_offset[chunk.records.batch_index[row]])
        offset = int(chunk.records.offset[row])
        finding = Finding(
            stage="VALUE",
            code=error.code,
            message=error.message,
            base_offset=base_offset,
            offset=offset,
            byte_position=error.byte_position,
            payload=payload[:QUARANTINE_BYTES_MAX],
            group_id=group_id,
        )
        if offset - base_offset < QUARANTINED_OFFSETS_MAX:
            self._found.append(finding)
            return
        kind = base_offset, error.code, slot_of_record(chunk, row, is_share=self._is_share)
        first, count, _ = self._alike.get(kind, (finding, 0, offset))
        self._alike[kind] = first, count + 1, offset

    def __len__(self) -> int:
        """The number of records."""
        return len(self._found) + sum(count for _, count, _ in self._alike.values())

    def taken(self) -> tuple[Finding, ...]:
        """One finding a record, or one for those of a kind."""
        of_kinds = (
            replace(first, message=f"{first.message}: {counted(count, 'record')} up to offset {last}")
            for first, count, last in self._alike.values()
        )
        return (*self._found, *of_kinds)
