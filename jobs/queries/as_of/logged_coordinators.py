"""The coordinators of groups at a time, from the captured metadata log.

The coordinator of a group is the leader of its log partition. Leaders are read from bronze on demand: no table has
them, since no coordinator record depends on them.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import pyarrow.compute as pc

from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import DecodeError
from coordinator_core.history.cluster_leaders import ClusterLeaders
from jobs.bronze.reader import rows_in_order
from jobs.delta.cluster_tables import ClusterTables
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables.bronze import RECORD_BATCHES

NO_OP: Final = b"\x01\x14\x00\x00\x00"
"""The end of a batch whose last record is a NoOpRecord: frame version, record type (20), version 0, no tags, no
headers."""


def logged_coordinators(tables: ClusterTables, at_ms: int | None, partitions: Mapping[str, int]) -> Mapping[str, str]:
    """Group -> its coordinator at a time (None: at the end of the log), from the captured metadata log.

    `partitions`: the log partition of each group. Groups whose partition has no known leader are missing.
    """
    files = [file for file in tables.files(RECORD_BATCHES) if file.partition_values["topic"] == METADATA_TOPIC]
    leaders = ClusterLeaders(OFFSETS_TOPIC)
    for rows in rows_in_order(files, ("base_offset", "record_count", "crc_valid", "is_control", "batch")):
        # Controllers write a NoOpRecord twice a second: nine of ten batches can be skipped.
        is_no_op = pc.and_(pc.equal(rows["record_count"], 1), pc.ends_with(rows["batch"], NO_OP))
        is_left_out = pc.or_(pc.fill_null(rows["is_control"], False), is_no_op)
        for batch in rows.filter(pc.and_(rows["crc_valid"], pc.invert(is_left_out)))["batch"]:
            with suppress(DecodeError):
                for record in iter_records(batch.as_py(), is_crc_checked=False):
                    if record.value is not None and (at_ms is None or record.timestamp_ms <= at_ms):
                        leaders.feed(record.value)
    found = {group_id: leaders.leader(partition) for group_id, partition in partitions.items()}
    return {group_id: leader for group_id, leader in found.items() if leader is not None}
