"""Check whether a question concerns what the log covers: existing groups, times within the log.

Otherwise an empty answer would look like "nothing happened".
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow.compute as pc

from coordinator_core.replay.lookup import group_partition
from coordinator_core.text import counted
from jobs.bronze.log_ends import COORDINATOR_TOPICS, LogEnds, log_ends, newest_of, numbers
from jobs.bronze.partition_counts import known_counts
from jobs.console.names import NAME_CHARACTERS_MAX, or_some
from jobs.console.output import printable, time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG, SilverAt
from jobs.queries.as_of.behind import not_replayed_lines
from jobs.queries.as_of.holes import where_absent
from jobs.silver.replay_failures import failure_text
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_PARTITION_STATES,
    TOPICS,
)
from schemas.tables.state import RUNS

KNOW_TOPICS: Final = (TOPICS, MEMBER_ASSIGNMENTS, SHARE_PARTITION_STATES, OFFSET_COMMITS)
KNOW_GROUPS: Final = (GROUP_GENERATIONS, GROUP_EVENTS, SHARE_PARTITION_STATES, OFFSET_COMMITS)
"""Tables that together have a row of every group; the largest comes last, and is read only if necessary."""


def unknown_groups(tables: ClusterTables, group_ids: Collection[str]) -> set[str]:
    """The groups that do not occur in the log."""
    unknown = set(group_ids)
    for table in KNOW_GROUPS:
        if unknown:
            rows = SilverAt(tables, group_ids=unknown).scan(table, ("group_id",))
            unknown -= set(pc.unique(rows["group_id"]).to_pylist())
    return unknown


def group_ids_known(tables: ClusterTables) -> set[str]:
    """The groups of the log, without those of which it has nothing but offsets."""
    return set[str]().union(*(_names_in(tables, table, "group_id") for table in KNOW_GROUPS[:-1]))


def require_groups(tables: ClusterTables, group_ids: Collection[str] | None) -> None:
    """Raise ArgumentError for groups that do not occur in the log."""
    unknown = unknown_groups(tables, group_ids or ())
    if not unknown:
        return
    failures = SilverAt(tables, group_ids=unknown).failures()
    lacking = " ".join(f"Not all could be replayed: {failure_text(failure)}. " for failure in failures)
    ends = log_ends(tables)[GROUPS_LOG]
    known = group_ids_known(tables)
    names = ", ".join(or_some(name, known) for name in sorted(unknown))
    missing = _missing_places(ends, unknown)
    where = f" {GROUPS_LOG}-{missing[0]}, where it would be, is in no source." if missing else ""
    if not ends.is_count_known and ends.unseen:
        where = f" Log partitions {numbers(ends.unseen)} are in no source, and how many there are is not known."
    lacking_log = where_absent(SilverAt(tables), unknown, is_history=True)
    if lacking_log:
        where += f" What was not read may tell of it: {'; '.join(lacking_log)}."
    raise ArgumentError(
        f"there is no group {names} in what was captured of cluster {tables.cluster_id!r}: {covered_text(ends)}.{where}"
        f" {lacking}Group ids are case-sensitive"
    )


def require_cluster(warehouse: Warehouse, cluster_id: str) -> None:
    """Raise ArgumentError for a cluster of which a warehouse has nothing, although it has others."""
    known = set(warehouse.read(RUNS, ["cluster_id"])["cluster_id"].to_pylist())
    if known and cluster_id not in known:
        known |= set(warehouse.read(COVERAGE, ["cluster_id"])["cluster_id"].to_pylist())
        if cluster_id not in known:
            raise ArgumentError(f"there is no cluster {or_some(cluster_id, known)} in {warehouse.root}")


def require_topic(tables: ClusterTables, topic: str) -> None:
    """Raise ArgumentError for a topic that does not occur in the log, neither by name nor by id."""
    names = set[str]().union(*(_names_in(tables, table, "topic") for table in KNOW_TOPICS))
    if topic in names or topic in _names_in(tables, TOPICS, "topic_id"):
        return
    ends = log_ends(tables)
    remarks = "".join(f"; {remark}" for remark in unread_remarks(ends))
    raise ArgumentError(
        f"there is no topic {or_some(topic, names)} in what was captured of cluster {tables.cluster_id!r}: "
        f"{covered_text(ends[GROUPS_LOG])}{remarks}"
    )


def groups_of_topic(tables: ClusterTables, topic: str) -> set[str]:
    """The groups that committed offsets of a topic, or to which partitions of it were assigned.

    Raises ArgumentError for a topic that does not occur in the log.
    """
    found = set[str]().union(*(_names_in(tables, table, "group_id", topic) for table in KNOW_TOPICS[1:]))
    if not found:
        require_topic(tables, topic)
    return found


def require_partition(tables: ClusterTables, topic: str, partition: int) -> None:
    """Raise ArgumentError for a partition that a topic never had. Any may be there where no log has their number."""
    known = known_counts(tables).get(topic)
    if known is None or partition < known.partition_count:
        return
    seen = set[int]()
    for table in KNOW_TOPICS[1:]:
        rows = SilverAt(tables).scan(table, ("partition",), pc.field("topic") == pc.scalar(topic))
        seen.update(pc.unique(rows["partition"]).to_pylist())
    if partition > max(seen, default=-1):  # a former topic of that name may have had more
        raise ArgumentError(no_partition_text(topic, partition, known.partition_count))


def no_partition_text(topic: str, partition: int, partition_count: int) -> str:
    """A sentence about a partition that a topic does not have."""
    name = printable(topic)[:NAME_CHARACTERS_MAX]
    has = f"0 to {partition_count - 1}" if partition_count > 1 else "only 0"
    return f"topic '{name}' has no partition {partition}: it has {has}"


def _names_in(tables: ClusterTables, table: Table, column: str, topic: str | None = None) -> set[str]:
    """The values of a column, of all topics or of one."""
    conditions = [] if topic is None else [pc.field("topic") == pc.scalar(topic)]
    if table is MEMBER_ASSIGNMENTS:  # a streams group is assigned tasks of subtopologies
        conditions.append(pc.field("group_type") != pc.scalar(GroupType.STREAMS))
    return set(pc.unique(SilverAt(tables).scan(table, (column,), *conditions)[column]).to_pylist()) - {None}


def unread_remarks(all_ends: Mapping[str, LogEnds], group_ids: Collection[str] | None = None) -> Iterator[str]:
    """Sentences about log partitions in no source, of which an answer has nothing.

    For named groups, only where they could be in one.
    """
    ends = all_ends[GROUPS_LOG]
    if not ends.ends:
        yield f"nothing of {GROUPS_LOG} was captured: this answer knows no group's members, owners and offsets"
        return
    missing = ends.missing if group_ids is None else _missing_places(ends, group_ids)
    if missing and group_ids is None:
        count = max(ends.seen_count, 0 if ends.known is None else ends.known.partition_count)
        yield (
            f"{len(missing):,} of {count:,} log partitions of {GROUPS_LOG} are in no source ({numbers(missing)}): the "
            "groups in them are not in this answer"
        )
    elif missing:
        yield (
            f"{', '.join(f'{GROUPS_LOG}-{place}' for place in missing)}, where "
            f"{'it' if len(set(group_ids or ())) == 1 else 'some of them'} would be, is in no source"
        )
    elif not ends.is_count_known and ends.unseen:
        yield (
            f"log partitions {numbers(ends.unseen)} of {GROUPS_LOG} are in no source, and how many it has is not known "
            f"(at least {ends.seen_count:,}; say it with --partitions {GROUPS_LOG}=COUNT): the groups in them are not "
            "in this answer"
        )


def share_remarks(tables: ClusterTables, at_ms: int | None = None) -> Iterator[str]:
    """Sentences about what of the share state log is in no source or not replayed yet, and so not in the answer; and up
    to when it was read, if the time of the answer is later.
    """
    ends = log_ends(tables, (SHARES_LOG,))[SHARES_LOG]
    if not ends.ends:
        yield (
            f"nothing of {SHARES_LOG} was captured: this answer knows no start offsets of share groups, and nothing "
            "that was redelivered or given up"
        )
    elif ends.unseen:
        yield (
            f"log partitions {numbers(ends.unseen)} of {SHARES_LOG} are in no source: start offsets in them, and what "
            "was redelivered or given up, are not in this answer"
        )
    yield from not_replayed_lines(tables, SHARES_LOG)
    if at_ms is not None and ends.newest_ms is not None and ends.newest_ms < at_ms:
        yield _read_up_to(SHARES_LOG, ends.newest_ms)
    elif at_ms is not None:
        yield from _short_of(ends, at_ms)


def _missing_places(ends: LogEnds, group_ids: Collection[str]) -> list[int]:
    """Log partitions in no source that some of these groups hash to."""
    return sorted({place for name in group_ids if (place := _place(name, ends)) in ends.missing})


def require_forwards(from_ms: int | None, to_ms: int | None) -> None:
    """Raise ArgumentError for an empty time span."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise ArgumentError(
            f"there is no time from {time_text(from_ms)} to {time_text(to_ms)}: --from must be before --to"
        )


def require_span(all_ends: Mapping[str, LogEnds], log: str, from_ms: int | None, to_ms: int | None) -> None:
    """Raise ArgumentError for a span that runs backwards, or is entirely outside of what was read of a log."""
    require_forwards(from_ms, to_ms)
    ends = all_ends[log]
    begins_ms, newest_ms = ends.begins_ms, ends.newest_ms
    if to_ms is not None and begins_ms is not None and to_ms <= begins_ms:
        raise ArgumentError(f"--to {time_text(to_ms)} is before the log begins: {covered_text(ends)}")
    if from_ms is not None and newest_ms is not None and from_ms > newest_ms:
        raise ArgumentError(f"--from {time_text(from_ms)} is after the end of what was read: {covered_text(ends)}")


def require_in_any_log(tables: ClusterTables, from_ms: int | None, to_ms: int | None) -> None:
    """Raise ArgumentError for a span entirely outside of what was read of both coordinator logs."""
    all_ends = {log: ends for log, ends in log_ends(tables).items() if ends.begins_ms is not None}
    errors: list[ArgumentError] = []
    for log in all_ends:
        try:
            require_span(all_ends, log, from_ms, to_ms)
        except ArgumentError as error:
            errors.append(error)
    if errors and len(errors) == len(all_ends):
        raise errors[0]


def require_begun(tables: ClusterTables, at_ms: int | None) -> dict[str, LogEnds]:
    """The ends of the coordinators' logs.

    Raises ArgumentError for a time before the first record of all of them, since nothing can be known about it.
    """
    all_ends = log_ends(tables)
    begins = [(it.begins_ms, it) for it in all_ends.values() if it.begins_ms is not None]
    if at_ms is not None and begins:
        begins_ms, ends = min(begins, key=lambda it: it[0])
        if at_ms < begins_ms:
            raise ArgumentError(f"--at {time_text(at_ms)} is before the log begins: {covered_text(ends)}")
    return all_ends


def remarks_behind(
    all_ends: Mapping[str, LogEnds], at_ms: int | None, group_ids: Collection[str] | None = None
) -> Iterator[str]:
    """Sentences where a time is after the end of what was read: up to when the answer is known to be right.

    For named groups, by their log partitions.
    """
    if at_ms is None:
        return
    ends = all_ends[GROUPS_LOG]
    if group_ids is not None and ends.is_count_known:
        places = sorted({_place(group_id, ends) for group_id in group_ids})
        for end in (ends.ends[place] for place in places if place in ends.ends):
            if end.bound_ms is not None and end.bound_ms < at_ms:
                yield _read_up_to(f"{GROUPS_LOG}-{end.partition}", end.bound_ms)
            elif end.bound_ms is None and end.is_empty:
                yield f"{GROUPS_LOG}-{end.partition} was empty when it was copied: what came after that is not known"
        return
    newest_ms = newest_of(all_ends.values())
    if newest_ms is not None and at_ms > newest_ms:
        yield _read_up_to("the log", newest_ms)
    else:
        yield from _short_of(ends, at_ms)


def is_behind(all_ends: Mapping[str, LogEnds], at_ms: int | None) -> bool:
    """Is a time after the end of all that was read?"""
    newest_ms = newest_of(all_ends.values())
    return at_ms is not None and newest_ms is not None and at_ms > newest_ms


def _short_of(ends: LogEnds, at_ms: int) -> Iterator[str]:
    """A sentence about log partitions of which a copy has nothing from a time."""
    short = [it for it in ends.short_of(at_ms) if it.bound_ms is not None or it.is_empty]
    if short:
        yield (
            f"{counted(len(short), 'log partition')} of {ends.topic} ({numbers([it.partition for it in short])}) "
            f"{'was' if len(short) == 1 else 'were'} not read up to that time: what came after is not known"
        )


def _read_up_to(log: str, at_ms: int) -> str:
    return f"{log} was read up to {time_text(at_ms)}: what came after that is not known"


def covered_text(ends: LogEnds) -> str:
    """What was read of a log, in words."""
    if ends.begins_ms is None:
        return f"no record with a time was read of {ends.topic}"
    return f"{ends.topic} was read from {time_text(ends.begins_ms)} to {time_text(ends.newest_ms)}"


def _place(group_id: str, ends: LogEnds) -> int:
    count = ends.known.partition_count if ends.known is not None and ends.is_count_known else ends.seen_count
    return group_partition(group_id, max(count, 1))


def require_in_log(
    tables: ClusterTables,
    log: str,
    from_ms: int | None,
    to_ms: int | None,
    group_ids: Collection[str] | None,
) -> None:
    """Raise ArgumentError for groups that are not in the log, and for a span outside of what was read."""
    require_span(log_ends(tables, COORDINATOR_TOPICS), log, from_ms, to_ms)
    require_groups(tables, group_ids)
