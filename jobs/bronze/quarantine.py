"""Who owns which rows of bronze.quarantine: capture and replay each replace their own rows only."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.scan import TORN_TAIL
from coordinator_core.bytes.printed.dump_log_output import NO_OFFSET_AND_TIME, NO_PARTITION, NOT_PRINTED
from coordinator_core.errors import CrcMismatch

OVERLAPPING_BATCH: Final = "OVERLAPPING_BATCH"
"""Some of a batch's offsets are in bronze already, some are not."""
COPIES_PART: Final = "COPIES_PART"
"""A copy of the log continues with an older leader epoch where the log has a newer one."""
COPIES_DIFFER: Final = "COPIES_DIFFER"
"""Two copies have different records at one offset, and no leader epoch explains it: one of them is a dump of rows."""
EPOCH_OUT_OF_ORDER: Final = "EPOCH_OUT_OF_ORDER"
"""The leader epoch of a batch does not fit its place in the log (no checksum covers that field)."""
CAPTURE_BATCH_CODES: Final = (CrcMismatch.code, OVERLAPPING_BATCH, COPIES_PART, COPIES_DIFFER, EPOCH_OUT_OF_ORDER)
"""What capture finds in a batch. What needs decoding (compression, records) is found by replay."""

FORMER_CODES: Final = {"RECORD_NOT_TOLD": NOT_PRINTED}
"""Codes of the last release that have a new name."""
FORMER_MESSAGES: Final = {
    "which log partition this is of is not told": NO_PARTITION,
    "offset and time of the record are not told": NO_OFFSET_AND_TIME,
}
"""Messages of the last release that have new words."""


def with_current_words(rows: pa.Table) -> pa.Table:
    """Replace codes and messages of the last release by today's: they are part of a finding's identity."""
    for column, changes in (("code", FORMER_CODES), ("message", FORMER_MESSAGES)):
        place = rows.schema.get_field_index(column)
        texts = rows[column]
        for former, text in changes.items():
            texts = pc.replace_substring(texts, former, text)
        rows = rows.set_column(place, rows.schema.field(place), texts)
    return rows


def is_of_capture(rows: pa.Table) -> pa.Array:
    """One bool a row of bronze.quarantine: true if capture wrote it, false if replay did."""
    of_batch = pc.and_(
        pc.equal(rows["stage"], "BATCH"), pc.is_in(rows["code"], value_set=pa.array(CAPTURE_BATCH_CODES))
    )
    return pc.or_(pc.equal(rows["stage"], "FILE"), of_batch)


def open_rows(rows: pa.Table) -> pa.Table:
    """The rows without a resolution. The end of a newest segment, where Kafka still writes, is none of them."""
    is_torn = pc.fill_null(pc.ends_with(rows["message"], TORN_TAIL), False)
    return rows.filter(pc.and_(pc.is_null(rows["resolved_at"]), pc.invert(is_torn)))


OPEN_SQL: Final = f"r.resolved_at IS NULL AND NOT coalesce(ends_with(r.message, '{TORN_TAIL}'), false)"
"""`open_rows` as a condition of DuckDB's on a row `r`."""


def open_count(rows: pa.Table) -> int:
    """Number of `open_rows`."""
    return int(open_rows(rows).num_rows)
