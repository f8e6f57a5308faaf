"""Assignments and records of groups that could not be read, which answers name.

A client did not write an assignment in its protocol's format: without a row of an owner there may still have been one.

An unreadable record may describe a group, so an answer names it if it knows nothing of a group, or calls it Empty.
Early-access features wrote such records: the consumer protocol of Kafka 3.7, share groups of 4.0; Kafka's own tools
cannot read them either. In dumps they are records that an older kafka-dump-log does not print.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.printed.dump_log_output import NOT_PRINTED
from coordinator_core.errors import UnknownValueVersion
from coordinator_core.text import counted
from jobs.console.command_name import command
from jobs.console.names import names_of, short, some_of
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.as_of.as_of import SilverAt
from schemas.tables.silver import GROUP_GENERATIONS, GROUP_MEMBERS

WHY: Final[Mapping[tuple[str, ...], str]] = {
    (NOT_PRINTED,): "a kafka-dump-log of an older release, or of a later one, did not print what makes them",
    (UnknownValueVersion.code,): "as those of a later Kafka",
}
VALUE: Final = "VALUE"
FILE: Final = "FILE"
"""Lines of dumps; they have a group if they are records of one."""


class UnreadRecords(NamedTuple):
    """Unreadable records of one group in one log partition."""

    group_id: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    record_count: int
    codes: tuple[str, ...]
    """Their defects, the most frequent first."""


def unread_records(silver: SilverAt, group_ids: Collection[str] | None = None) -> list[UnreadRecords]:
    """Unreadable records of some groups, or of all, that may have been written by the time, by group and position."""
    rows = silver.quarantined()
    is_of_group = pc.and_(pc.is_in(rows["stage"], pa.array([VALUE, FILE])), pc.is_valid(rows["group_id"]))
    rows = rows.filter(pc.and_(is_of_group, pc.is_null(rows["resolved_at"])))
    found: dict[tuple[str, str, int], list[tuple[int, str]]] = {}
    for row in rows.to_pylist():
        place = row["topic"], row["partition"]
        end = silver.log_end(place)
        if (group_ids is None or row["group_id"] in group_ids) and (end is None or row["offset"] < end):
            found.setdefault((row["group_id"], *place), []).append((row["offset"], row["code"]))
    return [
        UnreadRecords(
            *key,
            first_offset=min(offset for offset, _ in of_group),
            last_offset=max(offset for offset, _ in of_group),
            record_count=len(of_group),
            codes=tuple(code for code, _ in Counter(code for _, code in of_group).most_common()),
        )
        for key, of_group in sorted(found.items())
    ]


def unread_records_text(unread: UnreadRecords) -> str:
    """A sentence: what is not known of a group, why, and where to look."""
    offsets = (
        f"at offset {unread.first_offset}"
        if unread.first_offset == unread.last_offset
        else f"between offsets {unread.first_offset} and {unread.last_offset}"
    )
    why = WHY.get(unread.codes, "as those of early access releases")
    return (
        f"{unread.record_count:,} of its records in {unread.topic}-{unread.partition}, {offsets}, could not be read "
        f"({', '.join(unread.codes)}), {why}: what they say is not in this answer. They are in bronze.quarantine"
    )


def unread_owners_text(tables: ClusterTables, unread: Sequence[UnreadRecords]) -> str:
    """A sentence: a partition without a known owner may have had one."""
    named = names_of(dict.fromkeys(it.group_id for it in unread))
    count = sum(it.record_count for it in unread)
    show = command(f"audit --list quarantine{tables.place_words}")
    return f"{named} may have owned it: {counted(count, 'record')} that could not be read: {show}"


def unread_groups(silver: SilverAt, *conditions: pc.Expression, topic: str | None = None) -> list[str]:
    """Groups with members whose assignments cannot be decoded, in generations that satisfy the conditions, sorted; with
    `topic`, only groups that may have consumed it.
    """
    rows = silver.scan(GROUP_GENERATIONS, ("group_id", "unread_members"), *conditions)
    has_any = pc.greater(pc.fill_null(pc.list_value_length(rows["unread_members"]), 0), 0)
    group_ids: list[str] = pc.unique(rows.filter(has_any)["group_id"]).to_pylist()
    if group_ids and topic is not None:
        names = ("group_id", "subscribed_topics")
        members = silver.of_groups(group_ids).scan(GROUP_MEMBERS, names)
        may_read = (it for it in members.to_pylist() if it[names[1]] is None or topic in it[names[1]])
        group_ids = list({row["group_id"] for row in may_read})
    return sorted(group_ids)


def unread_text(group_ids: Sequence[str]) -> str:
    """A sentence: what is not known, and where to look."""
    named = some_of(repr(short(name)) for name in group_ids)
    groups = "group" if len(group_ids) == 1 else "groups"
    return (
        f"assignments of members of {groups} {named} cannot be read, so it is not known what these members owned: see "
        "gold.log_anomalies, category CLIENT"
    )
