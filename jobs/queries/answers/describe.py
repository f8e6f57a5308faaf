"""describe: what kafka-consumer-groups, kafka-share-groups and kafka-streams-groups `--describe` would have printed at
a time.

Columns, their order and width, and the order of rows are those of Kafka 4.3.1's ConsumerGroupCommand, ShareGroupCommand
and StreamsGroupCommand, and of 4.4.0's where brokers have that release. What no coordinator's log contains is `-`: end
offsets (and lag), unless they were sampled shortly before, and the coordinator's address, unless the metadata log or a
live cluster provides it. Where Kafka prints rows in hash-table order, they are sorted by member id, or by topic and
partition. Of an empty streams group, of which Kafka's tool prints no offsets, there are those committed.
"""

import gc
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from typing import Final, TextIO

from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.text import counted
from jobs.cli_enums import Tool, View
from jobs.console.names import short
from jobs.console.output import Column, Value, printable, room_for, table_lines, time_text, write_csv, write_json
from jobs.delta.arrow_columns import dicts_of
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.pinned_versions import of_one_run
from jobs.errors import ArgumentError, NoSuchGroupError
from jobs.queries.as_of.as_of import GROUPS_LOG, SAMPLE_AGE_MAX_MS, SilverAt
from jobs.queries.as_of.caveats import (
    LOG_POSITION,
    NO_ENDS,
    NOTE,
    Caveat,
    caveats_of,
    lines_of,
    notes_by_group,
    of_other_groups,
    twice,
)
from jobs.queries.as_of.group_model import Group, Member, SampledEnd, TopicPartition
from jobs.queries.as_of.group_state import by_group
from jobs.queries.as_of.holes import where_absent
from jobs.queries.as_of.in_log import require_groups, share_remarks
from jobs.queries.as_of.logged_coordinators import logged_coordinators
from jobs.queries.as_of.unread import unread_records, unread_records_text
from jobs.silver.replay_failures import failure_text
from schemas.group_types import GroupType
from schemas.tables.silver import GROUP_GENERATIONS

TOOL_OF_TYPE: Final[Mapping[str, Tool]] = {
    GroupType.CLASSIC: Tool.CONSUMER,
    GroupType.CONSUMER: Tool.CONSUMER,
    GroupType.SHARE: Tool.SHARE,
    GroupType.STREAMS: Tool.STREAMS,
}

CONSUMER_PROTOCOLS: Final = frozenset({None, "", "consumer"})
"""Protocol types of classic groups that kafka-consumer-groups lists; Connect's, for example, are not."""

REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

EndOffsets = Mapping[TopicPartition, SampledEnd]
Cells = Mapping[str, Value | tuple[Value, Value]]
"""Values of one row by column name; at least those of its layout. A pair: without and with --verbose."""
Coordinators = Callable[[Mapping[str, int]], Mapping[str, str]]
"""Given log partitions by group id, returns the known coordinators, in the format of the tools."""

COORDINATOR: Final = "COORDINATOR (ID)"


@dataclass(frozen=True, slots=True)
class ShownColumn(Column):
    """A column of a tool."""

    is_verbose: bool = False
    """Shown with --verbose."""
    if_any: bool = False
    """Shown if any row of the group has a value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that a tool prints for a view."""

    words: str
    """The columns as NAME:WIDTH, with marks: `+` it grows with its cells, `w` is_whole, `v` is_verbose, `?` if_any."""
    rows: "Callable[[Group, EndOffsets], Iterator[Cells]]"
    without_rows: bool = False
    """Print the header even without rows."""
    says_empty: bool = True
    """Print a line if the group has no members."""

    def shown(self, verbose: bool, rows: Sequence[Cells]) -> list[ShownColumn]:
        return [
            column
            for column in columns_of(self.words)
            if (verbose or not column.is_verbose)
            and (not column.if_any or any(row[column.name] is not None for row in rows))
        ]


@cache
def columns_of(words: str) -> tuple[ShownColumn, ...]:
    """The columns that a layout has in words; `_` in a name is a space."""
    parts = (re.fullmatch(r"([^:]+):?(\d*)(\D*)", word) for word in words.split())
    return tuple(
        ShownColumn(it[1].replace("_", " "), int(it[2] or 0), *(mark in it[3] for mark in "+wv?"))
        for it in parts
        if it is not None
    )


def _offset_rows(group: Group, ends: EndOffsets) -> Iterator[Cells]:
    """By member, those with most partitions first; then unassigned partitions."""
    holders = sorted((member for member in group.members if member.assigned), key=lambda m: -len(m.assigned))
    for member in holders:
        for place in member.assigned:
            yield _offset_row(group, place, ends, member)
    assigned = {place for member in holders for place in member.assigned}
    for place in sorted(group.offsets.keys() - assigned):
        yield _offset_row(group, place, ends, None)


def _offset_row(group: Group, place: TopicPartition, ends: EndOffsets, member: Member | None) -> Cells:
    committed = group.offsets.get(place)
    if committed and committed.offset < 0:
        committed = None  # brokers accept a negative offset; clients treat it as none
    offset = committed.offset if committed else None
    sample = ends.get(place)
    end = sample.end_offset if sample else None
    if (
        sample
        and committed
        and sample.end_offset < committed.offset
        and committed.committed_at_ms is not None
        and sample.sampled_at_ms < committed.committed_at_ms
    ):
        end = None  # the sample is older than the commit, so the current end offset is unknown
    return {
        "GROUP": group.group_id,
        "TOPIC": place.topic,
        "PARTITION": place.partition,
        "LEADER-EPOCH": committed.leader_epoch if committed else None,
        "CURRENT-OFFSET": offset,
        "LOG-END-OFFSET": end,
        # negative where the commit is beyond the end, as in Kafka's tool
        "LAG": end - offset if end is not None and offset is not None else None,
        "CONSUMER-ID": member.member_id if member else None,
        "HOST": member.client_host if member else None,
        "CLIENT-ID": member.client_id if member else None,
    }


def _member_rows(group: Group, _: EndOffsets) -> Iterator[Cells]:
    kinds = {member.uses_classic_protocol for member in group.members}
    for member in group.members:
        yield {
            "GROUP": group.group_id,
            "CONSUMER-ID": member.member_id,
            "GROUP-INSTANCE-ID": member.instance_id or None,
            "HOST": member.client_host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": None if member.is_unread else len(member.assigned),
            "CURRENT-EPOCH": member.member_epoch,
            "CURRENT-ASSIGNMENT": assignment_text(member.assigned),
            "TARGET-EPOCH": group.assignment_epoch,
            "TARGET-ASSIGNMENT": assignment_text(member.target),
            # this column exists only for groups in the middle of a migration
            "UPGRADED": not member.uses_classic_protocol if {True, False} <= kinds else None,
        }


def _share_member_rows(group: Group, _: EndOffsets) -> Iterator[Cells]:
    for member in group.members:
        yield {
            "GROUP": group.group_id,
            "CONSUMER-ID": member.member_id,
            "HOST": member.client_host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": len(member.assigned),
            "MEMBER-EPOCH": member.member_epoch,
            "ASSIGNMENT": assignment_text(member.assigned) or "",
        }


def _share_offset_rows(group: Group, ends: EndOffsets) -> Iterator[Cells]:
    for place, start in sorted(group.share_starts.items()):
        sample, done = ends.get(place), start.delivery_complete_count
        end = sample.end_offset if sample else None
        is_known = end is not None and start.start_offset is not None and done is not None
        lag = end - start.start_offset - done if is_known else None  # type: ignore[operator]
        yield {
            "GROUP": group.group_id,
            "TOPIC": place.topic,
            "PARTITION": place.partition,
            "LEADER-EPOCH": start.leader_epoch,
            "START-OFFSET": start.start_offset,
            "LAG": lag if lag is not None and lag >= 0 else None,
        }


def _state_rows(group: Group, _: EndOffsets) -> Iterator[Cells]:
    yield {
        "GROUP": group.group_id,
        COORDINATOR: None,
        "ASSIGNMENT-STRATEGY": group.assignor or None,
        "ASSIGNOR": group.assignor or None,
        "STATE": group.state,
        "GROUP-EPOCH": group.group_epoch,
        "TARGET-ASSIGNMENT-EPOCH": group.assignment_epoch,
        "ASSIGNMENT-EPOCH": group.assignment_epoch,
        "#MEMBERS": len(group.members),
    }


def _task_offset_rows(group: Group, ends: EndOffsets) -> Iterator[Cells]:
    """By partition that an active task reads; without members, by partition with a committed offset."""
    read = {
        TopicPartition(topic, task.partition)
        for member in group.members
        for task in member.tasks.get("ACTIVE", ())
        for topic, partition_count in group.inputs.get(task.topic, {}).items()
        if task.partition < partition_count
    }
    for place in sorted(read if group.members else group.offsets):
        row, sample = _offset_row(group, place, ends, None), ends.get(place)
        lag = row["LAG"]
        if row["CURRENT-OFFSET"] is None and sample is not None:
            lag = sample.end_offset - sample.log_start_offset
        yield {**row, "OFFSET-LAG": lag}


def _task_member_rows(group: Group, _: EndOffsets) -> Iterator[Cells]:
    for member in group.members:
        yield {
            "GROUP": group.group_id,
            "TARGET-ASSIGNMENT-EPOCH": group.assignment_epoch,
            "TOPOLOGY-EPOCH": group.topology_epoch,
            "MEMBER": member.member_id,
            "MEMBER-PROTOCOL": "streams",
            "MEMBER-EPOCH": member.member_epoch,
            "PROCESS": member.process_id,
            "CLIENT-ID": member.client_id,
            "ASSIGNMENTS": (_tasks_text(member, TASK_TYPES), _tasks_text(member, (*TASK_TYPES, *TARGET_TASK_TYPES))),
        }


def _tasks_text(member: Member, kinds: Sequence[str]) -> str:
    """`ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 0:[2];` (StreamsGroupCommand.getTasksForPrinting)."""
    texts = []
    for kind in kinds:
        by_subtopology = groupby(member.tasks.get(kind, ()), key=lambda task: task.topic)
        tasks = [f"{name}:[{','.join(str(task.partition) for task in same)}];" for name, same in by_subtopology]
        texts += [f"{kind}:", *tasks] if tasks else []
    return " ".join(texts)


def assignment_text(partitions: Iterable[TopicPartition]) -> str | None:
    """`topic:0,1;other:2`, in the format of both tools; None without partitions."""
    by_topic = groupby(sorted(partitions), key=lambda place: place.topic)
    texts = [f"{topic}:{','.join(str(place.partition) for place in places)}" for topic, places in by_topic]
    return ";".join(sorted(texts)) or None


TASK_TYPES: Final = ("ACTIVE", "STANDBY", "WARMUP")
TARGET_TASK_TYPES: Final = tuple(f"TARGET-{kind}" for kind in TASK_TYPES)

LAYOUTS: Final[Mapping[tuple[Tool, View], Layout]] = {
    (Tool.CONSUMER, View.OFFSETS): Layout(
        "GROUP:15+ TOPIC:15+ PARTITION:10 LEADER-EPOCH:15v CURRENT-OFFSET:15 LOG-END-OFFSET:15 LAG:15 CONSUMER-ID:15+ "
        "HOST:15+ CLIENT-ID",
        _offset_rows,
    ),
    (Tool.CONSUMER, View.MEMBERS): Layout(
        "GROUP:15+ CONSUMER-ID:15+ GROUP-INSTANCE-ID:17+? HOST:15+ CLIENT-ID:15+ #PARTITIONS:15 CURRENT-EPOCH:15v "
        "CURRENT-ASSIGNMENT:20+vw TARGET-EPOCH:15v TARGET-ASSIGNMENT:20+vw UPGRADED:v?",
        _member_rows,
        without_rows=True,
    ),
    (Tool.CONSUMER, View.STATE): Layout(
        "GROUP:15+ COORDINATOR_(ID):25+ ASSIGNMENT-STRATEGY:20 STATE:20 GROUP-EPOCH:15v TARGET-ASSIGNMENT-EPOCH:25v "
        "#MEMBERS",
        _state_rows,
    ),
    (Tool.SHARE, View.OFFSETS): Layout(
        "GROUP:15+ TOPIC:15+ PARTITION:10 LEADER-EPOCH:13v START-OFFSET:13 LAG", _share_offset_rows, says_empty=False
    ),
    (Tool.SHARE, View.MEMBERS): Layout(
        "GROUP:15+ CONSUMER-ID:15+ HOST:15+ CLIENT-ID:15+ #PARTITIONS:12 MEMBER-EPOCH:13v ASSIGNMENT:w",
        _share_member_rows,
    ),
    (Tool.SHARE, View.STATE): Layout(
        "GROUP:15+ COORDINATOR_(ID):25+ STATE:15 GROUP-EPOCH:12v ASSIGNMENT-EPOCH:17v #MEMBERS", _state_rows
    ),
    (Tool.STREAMS, View.OFFSETS): Layout(
        "GROUP:15+ TOPIC:15+ PARTITION:10 CURRENT-OFFSET:15v LEADER-EPOCH:15v LOG-END-OFFSET:15v OFFSET-LAG",
        _task_offset_rows,
    ),
    (Tool.STREAMS, View.MEMBERS): Layout(
        # Kafka's TOPOLOGY-EPOCH has width 15, and no space behind it
        "GROUP:15+ TARGET-ASSIGNMENT-EPOCH:25v TOPOLOGY-EPOCH:14v MEMBER:15+ MEMBER-PROTOCOL:15v MEMBER-EPOCH:15v "
        "PROCESS:15+ CLIENT-ID:15+ ASSIGNMENTS:w",
        _task_member_rows,
    ),
    (Tool.STREAMS, View.STATE): Layout(
        "GROUP:15+ COORDINATOR_(ID):25+ ASSIGNOR:15+? STATE:25 GROUP-EPOCH:15v TARGET-ASSIGNMENT-EPOCH:25v #MEMBERS",
        _state_rows,
    ),
}

TITLES: Final = {Tool.CONSUMER: "Consumer group", Tool.SHARE: "Share group", Tool.STREAMS: "Streams group"}


@dataclass(frozen=True, slots=True)
class Description:
    """One group as a tool shows it."""

    group: Group
    tool: Tool
    layout: Layout
    rows: tuple[Cells, ...]
    log_position: str | None = None
    """The log position of this state, if the log passes the time several times with different states."""
    note: str | None = None
    """What the answer cannot know."""


def _not_there(silver: SilverAt, missing: Sequence[str]) -> str:
    """A sentence: which groups do not exist, and which of them may have existed."""
    unread = unread_records(silver, missing)
    remarks = [f"; {printable(it.group_id)[:100]}: {unread_records_text(it)}" for it in unread]
    failures = [failure_text(it) for it in silver.failures() if it.group_id is None or it.group_id in missing]
    if failures:
        remarks.append(f"; not all could be replayed: {'; '.join(failures)}")
    remarks += (f"; {text}" for text in (*_known_times(silver, missing), *where_absent(silver, missing)))
    return f"no such group at that time: {', '.join(printable(name)[:100] for name in missing)}{''.join(remarks)}"


def _known_times(silver: SilverAt, group_ids: Sequence[str]) -> Iterator[str]:
    """Since when groups are gone that were there before the time; else when they begin."""
    rows = by_group(dicts_of(silver.scan(GROUP_GENERATIONS, ("group_id", "valid_from", "valid_to"))))
    for group_id in group_ids:
        begun, ended = ([row[end] for row in rows[group_id] if row[end]] for end in ("valid_from", "valid_to"))
        before = [it for it in ended if silver.at_ms is None or it <= silver.at_ms]
        if before:
            yield f"{printable(group_id)[:100]} is gone since {time_text(max(before))}"
        elif begun:
            yield f"{printable(group_id)[:100]} begins at {time_text(min(begun))}"


@of_one_run
def describe_with_caveats(
    tables: ClusterTables,
    *,
    view: View,
    at_ms: int | None = None,
    group_ids: Collection[str] | None = None,
    tool: Tool | None = None,
    sample_age_max_ms: int = SAMPLE_AGE_MAX_MS,
) -> tuple[list[Description], list[Caveat]]:
    """Groups at a time (None: the newest state), in the tools' order; and caveats. `group_ids` None: all groups.

    End offsets sampled more than `sample_age_max_ms` before are not shown. A group occurs several times if the log
    passes the time several times and its states differ. Raises ArgumentError for a group that the log does not
    know, NoSuchGroupError for one that does not exist at that time.
    """
    with_offsets = view is View.OFFSETS
    passages = SilverAt(tables, at_ms, group_ids).passages(with_offsets=with_offsets)
    newest = passages[-1]
    ends = newest.end_offsets(sample_age_max_ms) if with_offsets else {}
    found: dict[str, list[Description]] = {}
    for passage in passages:
        for group in passage.groups(with_offsets=with_offsets):
            of_tool = TOOL_OF_TYPE[group.group_type]
            layout = LAYOUTS[of_tool, view]
            rows = tuple(layout.rows(group, ends))
            end = passage.log_end((GROUPS_LOG, group.log_partition))
            position = None if end is None else f"{GROUPS_LOG}-{group.log_partition}@{end - 1}"
            of_group = found.setdefault(group.group_id, [])
            if not any((it.tool, it.rows, it.group.state) == (of_tool, rows, group.state) for it in of_group):
                of_group.append(Description(group, of_tool, layout, rows, position))
    if group_ids is not None:
        missing = sorted(set(group_ids) - found.keys())
        if missing:
            if not unread_records(newest, missing):
                require_groups(tables, missing)
            raise NoSuchGroupError(_not_there(newest, missing))
    several = [group_id for group_id, of_group in found.items() if len(of_group) > 1]
    places = {group_id: of_group[-1].group.log_partition for group_id, of_group in found.items()}
    caveats = caveats_of(
        newest,
        places,
        with_offsets=with_offsets,
        share_groups=_share_groups(of_group[-1].group for of_group in found.values()) if with_offsets else (),
    )
    if several:
        caveats.append(twice(newest, several))
    notes = notes_by_group(caveats)
    shown = [
        replace(it, log_position=it.log_position if group_id in several else None, note=notes.get(group_id))
        for group_id, of_group in sorted(found.items(), key=lambda item: string_order(item[0]))
        for it in of_group
        if group_ids is not None
        or it.group.group_type != GroupType.CLASSIC
        or it.group.protocol_type in CONSUMER_PROTOCOLS
        if tool in (None, it.tool)
    ]
    shown.sort(key=lambda it: list(Tool).index(it.tool))
    names = {it.group.group_id for it in shown}
    said = [caveat for caveat in caveats if names.intersection(caveat.group_ids)]
    return shown, said + (of_other_groups(newest, places) if group_ids is None else [])


def _share_groups(groups: Iterable[Group]) -> list[str]:
    return [group.group_id for group in groups if group.group_type == GroupType.SHARE]


def with_coordinators(descriptions: Sequence[Description], coordinators: Coordinators) -> list[Description]:
    """Add the known coordinators to descriptions of states."""
    found = dict(coordinators({it.group.group_id: it.group.log_partition for it in descriptions}))
    for it in descriptions:
        if it.tool is Tool.STREAMS and it.group.group_id in found:
            found[it.group.group_id] = found[it.group.group_id].replace("  (", " (")  # as StreamsGroupCommand has it
    return [
        replace(it, rows=tuple({**row, COORDINATOR: found.get(it.group.group_id)} for row in it.rows))
        for it in descriptions
    ]


def write_descriptions(descriptions: Sequence[Description], output_format: str, verbose: bool, out: TextIO) -> None:
    """Print descriptions: like the tools do, or as rows with the tools' column names."""
    if output_format == "table":
        for description in descriptions:
            out.writelines(line + "\n" for line in _lines(description, verbose, room_for(out)))
        return
    names: dict[str, None] = {}
    rows: list[dict[str, Value]] = []
    for _, same in groupby(descriptions, key=lambda description: description.layout):
        described = list(same)
        layout, own_rows = described[0].layout, [row for description in described for row in description.rows]
        # without --verbose kafka-streams-groups has no offsets, which a program needs
        is_wide = verbose or described[0].tool is Tool.STREAMS
        shown = [column.name for column in layout.shown(is_wide, own_rows)]
        more = {LOG_POSITION: "log_position", NOTE: "note"}
        more = {name: field for name, field in more.items() if any(getattr(it, field) for it in described)}
        names |= dict.fromkeys([*shown, *more])
        rows += [
            {name: _cell(row, name, is_wide) for name in shown}
            | {name: getattr(it, field) for name, field in more.items()}
            for it in described
            for row in it.rows
        ]
    if output_format == "json":
        write_json(rows, out)
    else:
        write_csv(list(names), rows, out)


def _lines(description: Description, verbose: bool, room: int | None) -> Iterator[str]:
    group, tool, layout, rows = description.group, description.tool, description.layout, description.rows
    title = f"{TITLES[tool]} '{printable(group.group_id)}'"
    if description.log_position is not None:
        yield from ("", f"{title} at log position {description.log_position}:")
    if layout.says_empty and group.state == "Empty":
        yield from ("", f"{'Error: ' if tool is Tool.STREAMS else ''}{title} has no active members.")
    elif tool is Tool.CONSUMER and group.state in REBALANCING:
        yield from ("", f"Warning: {title} is rebalancing.")
    unread_count = sum(member.is_unread for member in group.members)
    if unread_count:
        yield from ("", f"Warning: the assignment of {counted(unread_count, 'member')} of {title} cannot be read.")
    if not layout.says_empty and not rows:
        yield from ("", f"{title} has no offset information.")
    elif rows or layout.without_rows:
        columns = layout.shown(verbose, rows)
        yield ""
        cells = [[_cell(row, it.name, verbose) for it in columns] for row in rows]
        yield from table_lines(columns, cells, room=room)


def _cell(row: Cells, name: str, verbose: bool) -> Value:
    value = row[name]
    return value[verbose] if isinstance(value, tuple) else value


def run_describe(
    tables: ClusterTables,
    *,
    view: View,
    at_ms: int | None,
    group_ids: Collection[str] | None,
    tool: Tool | None,
    verbose: bool,
    output_format: str,
    sample_age_max_ms: int = SAMPLE_AGE_MAX_MS,
    coordinators: Coordinators | None = None,
    out: TextIO | None = None,
) -> list[str]:
    """Describe and print.

    Returns the caveats as lines. `coordinators`: provides coordinators; by default the captured metadata log.
    """
    with no_search_for_cycles():
        described, caveats = describe_with_caveats(
            tables,
            view=view,
            at_ms=at_ms,
            group_ids=group_ids,
            tool=tool,
            sample_age_max_ms=sample_age_max_ms,
        )
        if tool is not None and not described and (unfit := list(_of_other_tools(tables, at_ms, group_ids or ()))):
            raise ArgumentError("; ".join(unfit))
        if view is View.STATE and described:
            described = with_coordinators(described, coordinators or partial(logged_coordinators, tables, at_ms))
        write_descriptions(described, output_format, verbose, out or sys.stdout)
    remarks = list(lines_of(caveats))
    if tool is not None and not described:
        remarks = [f"there was no {tool} group then: leave out --tool for all groups", *remarks]
    if view is View.OFFSETS and any(map(_lacks_lag, (row for it in described for row in it.rows))):
        remarks.append(f"LAG: {NO_ENDS} shortly before")
    if view is View.OFFSETS and _share_groups(it.group for it in described):
        remarks += share_remarks(tables, at_ms)
    return remarks


def _lacks_lag(row: Cells) -> bool:
    return row["LAG"] is None and (row.get("CURRENT-OFFSET") is not None or row.get("START-OFFSET") is not None)


def _of_other_tools(tables: ClusterTables, at_ms: int | None, group_ids: Collection[str]) -> Iterator[str]:
    """Which tools describe named groups, of which the one that was asked for knows none."""
    for it in describe_with_caveats(tables, view=View.STATE, at_ms=at_ms, group_ids=group_ids)[0] if group_ids else ():
        kind = (it.group.group_type or "UNKNOWN").lower()
        yield f"group {short(it.group.group_id)} is a {kind} group: leave out --tool, or name --tool {it.tool}"


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Disable garbage collection: hundreds of thousands of rows have no cycles, and searching for some takes longer
    than printing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
