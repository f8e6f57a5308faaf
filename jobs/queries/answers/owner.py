"""owner: who owned a partition at a time, in every group that consumes it.

The rule is that of gold.partition_owners, applied to the rows of this partition, so no audit is needed. Share groups
have no owners, since several members may consume a partition: these members are listed instead.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, TextIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.history.rows import AssignmentRow, EventRow, MemberRow
from coordinator_core.history.views import CURRENT
from coordinator_core.inference.facts.clock import is_time
from coordinator_core.inference.facts.life import NO_PARTITION_COUNTS, GroupLife
from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.groups.owners import partition_owners
from coordinator_core.replay.java.hash_codes import string_order
from jobs.console.names import short
from jobs.console.output import Value, printable, time_text, write_answers
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.part_files import LOG_PARTITION
from jobs.queries.as_of.as_of import GROUPS_LOG, SilverAt
from jobs.queries.as_of.caveats import (
    LOG_POSITION,
    Caveat,
    caveats_of,
    lines_of,
    notes_by_group,
    of_other_groups,
    twice,
    with_notes,
)
from jobs.queries.as_of.in_log import require_partition, require_topic
from jobs.queries.as_of.unread import UnreadRecords, unread_groups, unread_owners_text, unread_records, unread_text
from jobs.silver.rows import rows_of
from schemas.group_types import GroupType
from schemas.tables.silver import GROUP_EVENTS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS

COLUMNS: Final[tuple[str, ...]] = (
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
ANSWER: Final = ("GROUP", "CLIENT-ID", "HOST", "OWNED-FROM", "OWNED-TO", "CONSUMER-ID")

CELLS: Final = attrgetter(
    *("group_id", "group_type", "topic", "partition", "member_id", "instance_id", "client_host", "client_id"),
    "from_generation",
)
NAMED_MAX: Final = 20
"""Maximum number of share group members named in a remark."""


class Owner(NamedTuple):
    """The owner of the partition in a group, and the log partition with the evidence."""

    row: OwnerRow
    log_partition: int
    log_position: str | None = None
    """The log position, if the log passes the time several times with different owners."""


class ShareReader(NamedTuple):
    """A member of a share group to which the partition was assigned."""

    group_id: str
    member_id: str
    client_id: str | None


class Owners(NamedTuple):
    """The owners at a time, and remarks."""

    owners: tuple[Owner, ...]
    ever: tuple[Owner, ...]
    """Who ever owned the partition in any group."""
    caveats: tuple[Caveat, ...]
    share_readers: Sequence[ShareReader]
    """Members of share groups that consumed it then, by group and member."""
    share_groups: Sequence[str]
    """Share groups to which it was ever assigned."""
    unread: Sequence[str]
    """Groups with assignments or subscriptions that cannot be decoded."""
    unread_records: Sequence[UnreadRecords] = ()
    """Records of groups that could not be read at all."""


def find_owners(tables: ClusterTables, *, topic: str, partition: int, at_ms: int | None) -> Owners:
    """The owners of a partition at a time (None: the newest state), by group, in log order.

    If the log passes the time several times, the owners at each position.
    """
    everybody = SilverAt(tables, at_ms)
    lives = list(_lives(everybody, topic, partition))
    ever = [
        Owner(row, life.log_partition)
        for life in lives
        for row in partition_owners(life)
        if row.topic == topic and row.partition == partition
    ]
    ever.sort(key=lambda it: (string_order(it.row.group_id), it.row.from_log_offset, it.row.member_id))
    shares = [(row, life) for life in lives for row in life.assignments if row.group_type == GroupType.SHARE]
    share_groups = sorted({row.group_id for row, _ in shares}, key=string_order)
    groups = {it.row.group_id for it in ever}.union(share_groups)
    passages = everybody.of_groups(groups).passages(with_offsets=False)
    newest = passages[-1]
    found: dict[str, list[list[Owner]]] = {}
    for passage in passages:
        left = passage.left_behind()
        for group_id, of_group in groupby(ever, key=lambda it: it.row.group_id):
            holding = [
                it
                for it in of_group
                if not left.is_past(group_id, it.log_partition) and _is_so(it.row, it.log_partition, passage)
            ]
            known = found.setdefault(group_id, [])
            if all([it.row for it in holding] != [it.row for it in other] for other in known):
                known.append([_placed(it, passage) for it in holding])
    several = [group_id for group_id, known in found.items() if len(known) > 1]
    owners = tuple(
        it if group_id in several else it._replace(log_position=None)
        for group_id, known in found.items()
        for holding in known
        for it in holding
    )
    # what is missing may hide an owner, also in a group that is not known to have read the topic
    places = {it.row.group_id: it.log_partition for it in ever}
    caveats = caveats_of(newest, places, with_offsets=False)
    caveats += of_other_groups(newest if lives else everybody.at(None), places, is_history=not lives)
    if several:
        caveats.append(twice(newest, several))
    unread = unread_groups(everybody, *((everybody.holds(),) if ever else ()), topic=topic)
    left = newest.left_behind()
    readers = {
        ShareReader(row.group_id, row.member_id, _client_id(life, row.member_id))
        for row, life in shares
        if row.assignment == CURRENT
        and not left.is_past(row.group_id, life.log_partition)
        and _is_so(row, life.log_partition, newest)
    }
    in_order = sorted(readers, key=lambda it: (string_order(it.group_id), it.member_id))
    return Owners(owners, tuple(ever), tuple(caveats), in_order, share_groups, unread, unread_records(newest))


def _client_id(life: GroupLife, member_id: str) -> str | None:
    return next((row.client_id for row in reversed(life.members) if row.member_id == member_id), None)


def _is_so(row: OwnerRow | AssignmentRow, log_partition: int, passage: SilverAt) -> bool:
    end = passage.log_end((GROUPS_LOG, log_partition))
    if end is not None:
        return row.from_log_offset < end and (row.to_log_offset is None or row.to_log_offset >= end)
    if passage.at_ms is None:
        return row.to_log_offset is None
    # a record without a timestamp is only known to precede the next one with a timestamp
    has_begun = not is_time(row.valid_from) or row.valid_from <= passage.at_ms
    return has_begun and (row.valid_to is None or passage.at_ms < row.valid_to)


def _placed(owner: Owner, passage: SilverAt) -> Owner:
    end = passage.log_end((GROUPS_LOG, owner.log_partition))
    return owner if end is None else owner._replace(log_position=f"{GROUPS_LOG}-{owner.log_partition}@{end - 1}")


def _lives(everybody: SilverAt, topic: str, partition: int) -> Iterator[GroupLife]:
    """The rows of groups to which the partition was ever assigned, as far as they concern it: one `GroupLife` for
    each log partition."""
    # a task of a streams group represents partitions of topics that only the topology names
    is_topic = (pc.field("topic") == pc.scalar(topic)) | (pc.field("group_type") == pc.scalar(GroupType.STREAMS))
    columns = (*AssignmentRow._fields, LOG_PARTITION)
    rows = everybody.scan(MEMBER_ASSIGNMENTS, columns, is_topic, pc.field("partition") == pc.scalar(partition))
    assignments = _by_place(rows, AssignmentRow)
    those = everybody.of_groups({group_id for group_id, _ in assignments})
    is_topology = pc.field("event_type") == pc.scalar("TOPOLOGY_CHANGED")
    members = _by_place(those.scan(GROUP_MEMBERS, (*MemberRow._fields, LOG_PARTITION)), MemberRow)
    events = _by_place(those.scan(GROUP_EVENTS, (*EventRow._fields, LOG_PARTITION), is_topology), EventRow)
    has_streams = any(row.group_type == GroupType.STREAMS for of_place in assignments.values() for row in of_place)
    counts = everybody.topic_partition_counts() if has_streams else NO_PARTITION_COUNTS
    for place, of_place in sorted(assignments.items()):
        yield GroupLife(
            *place,
            members=tuple(members.get(place, ())),
            assignments=tuple(sorted(of_place, key=lambda row: (row.from_log_offset, row.assignment))),
            events=tuple(sorted(events.get(place, ()), key=lambda row: row.log_offset)),
            partition_counts=counts,
        )


RowOfGroup = TypeVar("RowOfGroup", AssignmentRow, MemberRow, EventRow)


def _by_place(rows: pa.Table, kind: type[RowOfGroup]) -> dict[tuple[str, int], list[RowOfGroup]]:
    found: dict[tuple[str, int], list[RowOfGroup]] = {}
    for row, log_partition in zip(rows_of(rows, kind), rows[LOG_PARTITION].to_pylist(), strict=True):
        found.setdefault((row.group_id or "", log_partition), []).append(row)
    return found


def run_owner(
    tables: ClusterTables,
    *,
    topic: str,
    partition: int,
    at_ms: int | None,
    output_format: str,
    out: TextIO | None = None,
) -> list[str]:
    """Find the owners and print them. Returns the caveats as lines."""
    found = find_owners(tables, topic=topic, partition=partition, at_ms=at_ms)
    if not (found.ever or found.share_groups or found.unread or found.unread_records):
        require_topic(tables, topic)
        require_partition(tables, topic, partition)
    columns, rows = COLUMNS, [_row(it.row) for it in found.owners]
    if any(it.log_position is not None for it in found.owners):
        columns = (*columns, LOG_POSITION)
        rows = [(*cells, it.log_position) for cells, it in zip(rows, found.owners, strict=True)]
    if output_format != "table":
        columns, rows = with_notes(columns, rows, notes_by_group(found.caveats))
    if rows or output_format != "table":
        write_answers(columns, rows, output_format, out or sys.stdout, first=ANSWER)
    return [*_remarks(tables, found, topic, partition, at_ms), *lines_of(found.caveats)]


def _remarks(tables: ClusterTables, found: Owners, topic: str, partition: int, at_ms: int | None) -> Iterator[str]:
    place = f"partition {partition} of topic {printable(topic)[:100]}"
    if found.unread:
        prefix = "" if found.owners else "no owner is known then; " if found.ever else "no owner is known; "
        yield f"{prefix}{unread_text(found.unread)}"
    elif found.unread_records and not found.owners:
        yield "no owner is known then" if found.ever else "no owner is known"
    elif not found.ever and not found.share_groups:
        yield f"no group was ever assigned {place}, as far as the log tells"
    elif found.ever and not found.owners:
        then = "at the end" if at_ms is None else "then"
        yield f"nobody owned it {then}, as far as the log tells{''.join(_others(found.ever, at_ms))}"
    if found.unread_records:
        yield unread_owners_text(tables, found.unread_records)
    for group_id in found.share_groups:
        group = f"share group {printable(group_id)[:100]}"
        of_group = [it for it in found.share_readers if it.group_id == group_id]
        if not of_group:
            yield f"{group} was assigned {place}, but no member of it at that time"
            continue
        names = [f"{printable(it.member_id)} (client {printable(it.client_id or '')})" for it in of_group[:NAMED_MAX]]
        more = f" and {len(of_group) - NAMED_MAX} more" if len(of_group) > NAMED_MAX else ""
        yield f"{group} reads {place} with {', '.join(names)}{more}: a share partition has no single owner"


def _others(ever: Sequence[Owner], at_ms: int | None) -> Iterator[str]:
    """Who had the partition last before a time (None: the end of the log), and who next."""
    until_ms = sys.maxsize if at_ms is None else at_ms
    ended = [(it.row.valid_to, it.row) for it in ever if is_time(it.row.valid_to) and it.row.valid_to <= until_ms]
    begun = [(it.row.valid_from, it.row) for it in ever if is_time(it.row.valid_from) and it.row.valid_from > until_ms]
    if ended:
        last_ms, last = max(ended, key=itemgetter(0))
        yield f"; last {_named(last)} until {time_text(last_ms)}"
    if begun:
        next_ms, following = min(begun, key=itemgetter(0))
        yield f"; next {_named(following)} from {time_text(next_ms)} on"


def _named(it: OwnerRow) -> str:
    client = f"{short(it.client_id or it.member_id)} on {short(it.client_host or '?')}"
    return f"{client} in group {short(it.group_id)}"


def _row(owner: OwnerRow) -> tuple[Value, ...]:
    return (*CELLS(owner), time_text(owner.valid_from), time_text(owner.valid_to))
