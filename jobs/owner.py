"""owner: who owned a partition at a time, in every group that reads it.

The rule is that of gold.partition_owners, over the rows of this one partition: the audit need not have run. Share
groups have no owners: several of their members may read one partition.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

import pyarrow.compute as pc

from coordinator_core.history.rows import AssignmentRow, EventRow, MemberRow
from coordinator_core.inference.clock import is_time
from coordinator_core.inference.life import GroupLife
from coordinator_core.inference.owners import partition_owners
from coordinator_core.inference.rows import OwnerRow
from coordinator_core.java.hash_codes import string_order
from jobs.answers import Value, printable, time_text, write_answers
from jobs.as_of import STREAMS, SilverAt
from jobs.part_files import LOG_PARTITION
from jobs.silver_reader import rows_of
from jobs.sinks import Warehouse
from jobs.unread import unread_groups, unread_text
from schemas.tables.silver import GROUP_EVENTS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS

COLUMNS: Final = (
    "GROUP",
    "GROUP-TYPE",
    "TOPIC",
    "PARTITION",
    "CONSUMER-ID",
    "GROUP-INSTANCE-ID",
    "HOST",
    "CLIENT-ID",
    "FROM-GENERATION",
    "OWNED-FROM",
    "OWNED-TO",
)


def owners_at(
    warehouse: Warehouse, cluster_id: str, *, topic: str, partition: int, at_ms: int | None = None
) -> list[OwnerRow]:
    """Who owned a partition at a time (None: the newest), by group."""
    return _holding(owners_ever(warehouse, cluster_id, topic=topic, partition=partition), at_ms)


def owners_ever(warehouse: Warehouse, cluster_id: str, *, topic: str, partition: int) -> list[OwnerRow]:
    """Who ever owned a partition, by group and in the order of the log."""
    owners = [
        owner
        for life in _lives(warehouse, cluster_id, topic, partition)
        for owner in partition_owners(life)
        if owner.topic == topic and owner.partition == partition
    ]
    return sorted(owners, key=lambda owner: (string_order(owner.group_id), owner.from_log_offset, owner.member_id))


def _holding(owners: Iterable[OwnerRow], at_ms: int | None) -> list[OwnerRow]:
    return [owner for owner in owners if _holds(owner, at_ms)]


def _holds(owner: OwnerRow, at_ms: int | None) -> bool:
    if at_ms is None:
        return owner.to_log_offset is None
    # a record without a time tells no more than that it came before the next one that has one
    has_begun = not is_time(owner.valid_from) or owner.valid_from <= at_ms
    return has_begun and (owner.valid_to is None or at_ms < owner.valid_to)


def _lives(warehouse: Warehouse, cluster_id: str, topic: str, partition: int) -> Iterator[GroupLife]:
    """What silver holds of the groups that were ever assigned the partition, as far as it concerns it."""
    # a task of a streams group stands for a partition of topics which only the topology names
    is_topic = (pc.field("topic") == pc.scalar(topic)) | (pc.field("group_type") == pc.scalar(STREAMS))
    everybody = SilverAt(warehouse, cluster_id)
    columns = (*AssignmentRow._fields, LOG_PARTITION)
    rows = everybody.scan(MEMBER_ASSIGNMENTS, columns, is_topic, pc.field("partition") == pc.scalar(partition))
    log_partitions = dict(zip(rows["group_id"].to_pylist(), rows[LOG_PARTITION].to_pylist(), strict=True))
    assignments: dict[str, list[AssignmentRow]] = {}
    for row in rows_of(rows, AssignmentRow):
        assignments.setdefault(row.group_id, []).append(row)
    those = everybody.of_groups(assignments)
    is_topology = pc.field("event_type") == pc.scalar("TOPOLOGY_CHANGED")
    members = list(rows_of(those.scan(GROUP_MEMBERS, MemberRow._fields), MemberRow))
    events = list(rows_of(those.scan(GROUP_EVENTS, EventRow._fields, is_topology), EventRow))
    for group_id, stretches in sorted(assignments.items()):
        yield GroupLife(
            group_id,
            log_partitions[group_id],
            members=tuple(row for row in members if row.group_id == group_id),
            assignments=tuple(sorted(stretches, key=lambda row: (row.from_log_offset, row.assignment))),
            events=tuple(
                sorted((row for row in events if row.group_id == group_id), key=lambda row: row.log_offset),
            ),
        )


def run_owner(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    topic: str,
    partition: int,
    at_ms: int | None,
    output_format: str,
    out: TextIO | None = None,
) -> str | None:
    """Find the owners and print them; what to remark where there are none."""
    ever = owners_ever(warehouse, cluster_id, topic=topic, partition=partition)
    rows = [_row(owner) for owner in _holding(ever, at_ms)]
    if rows or output_format != "table":
        write_answers(COLUMNS, rows, output_format, out or sys.stdout)
    silver = SilverAt(warehouse, cluster_id, at_ms)
    unread = unread_groups(silver, *((silver.holds(),) if ever else ()), topic=topic)
    if unread:
        found = "" if rows else "no owner is known then; " if ever else "no owner is known; "
        return f"{found}{unread_text(unread)}"
    if not ever:
        name = printable(topic)[:100]
        return f"no group was ever assigned partition {partition} of topic {name}, as far as the log tells"
    return None if rows else "nobody owned it then, as far as the log tells"


def _row(owner: OwnerRow) -> tuple[Value, ...]:
    return (
        owner.group_id,
        owner.group_type,
        owner.topic,
        owner.partition,
        owner.member_id,
        owner.instance_id,
        owner.client_host,
        owner.client_id,
        owner.from_generation,
        time_text(owner.valid_from),
        time_text(owner.valid_to),
    )
