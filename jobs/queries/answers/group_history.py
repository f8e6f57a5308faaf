"""history: the events of a group, as lines for a terminal. groups: all groups, and which of them need attention.

Both read gold as of the last whole audit, without Spark. What is inferred has its confidence: CERTAIN, LIKELY or GUESS;
the rest is what the log says. For
lists with all columns and a statement of completeness, see `audit`.
"""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TextIO

from coordinator_core.history.rows import FORGOTTEN, NEXT_REBALANCE
from coordinator_core.inference.groups.rollouts import FOLLOW_UPS
from coordinator_core.inference.shares.archived import NOT_GIVEN_UP
from coordinator_core.text import counted
from jobs.console.command_name import command, shell_word
from jobs.console.names import names_of, short, some_of
from jobs.console.output import Value, folded_text, time_text, write_answers
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.pinned_versions import of_one_run
from jobs.delta.replay_runs import PinnedTables, WholeRun
from jobs.delta.times import epoch_ms
from jobs.queries.answers.findings import audit_lacks, groups_not_judged
from jobs.queries.answers.group_verdicts import OK, RULES, group_verdicts
from jobs.queries.answers.lists import NOT_GROWN, PARTITIONS_CHANGED
from jobs.queries.answers.other_columns import topics_changed
from jobs.queries.answers.restore import offer
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from jobs.queries.as_of.behind import not_audited_lines
from jobs.queries.as_of.caveats import log_remarks
from jobs.queries.as_of.clock_steps import ClockStep, clock_steps, step_lines
from jobs.queries.as_of.in_log import (
    group_ids_known,
    groups_of_topic,
    require_groups,
    require_in_any_log,
    require_in_log,
)
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, REBALANCES, REDELIVERIES, SHARE_OFFSET_CHANGES
from schemas.tables.silver import GROUP_EVENTS, GROUP_GENERATIONS, GROUP_MEMBERS

LAST_OF_RECORD: Final = sys.maxsize
"""Events of gold come after all of silver that are of the same record."""
EVENT_WORDS: Final = {
    "MEMBER_LEFT": "member gone",
    "STATIC_MEMBER_LEFT": "static member away",
    "GENERATION_STARTED": "rebalance announced",
    FORGOTTEN: "forgotten by a new leader",
}
"""Where the type of an event would claim more than the log says, or is not what it shows."""
SEEN_FIRST: Final = frozenset({"GROUP_CREATED", "MEMBER_JOINED"})
FIRST_SEEN: Final = "first_seen"
EVENT_COLUMNS: Final = ("at", "event", "confidence", "text")
GROUP_COLUMNS: Final = (
    "GROUP", "TYPE", "STATE", "MEMBERS", "LAST-CHANGE", "REBALANCES", "STORMS", "UNOWNED-MS", "GIVEN-UP", "REDELIVERED",
    "EXTRA-DELIVERIES", "REWINDS", "VERDICT", "WHY", "SINCE", "SCORE",
)  # fmt: skip
GROUP_ANSWER: Final = ("GROUP", "VERDICT", "WHY", "SINCE", "SCORE")

LOG_OF_TABLE: Final = (
    (GROUP_EVENTS, GROUPS_LOG),
    (REBALANCES, GROUPS_LOG),
    (COMMIT_ANOMALIES, GROUPS_LOG),
    (REDELIVERIES, SHARES_LOG),
    (ARCHIVED_RECORDS, SHARES_LOG),
    (SHARE_OFFSET_CHANGES, SHARES_LOG),
)
"""The tables with events, and the log that each is from."""
GIVEN_UP: Final = "given up"
NO_RECORDS: Final = {"TRANSACTION_MARKER": " markers at ", "GAP": " gaps at "}
"""What takes offsets and is no record, by `likely_cause`."""
LISTED: Final = "events are listed by the times that the log has, and with their place in it where it has a time twice"
IN_OTHER_EVENTS: Final = frozenset(
    {"GENERATION_STARTED", "GROUP_EMPTIED", "LEADER_CHANGED", "MEMBER_UPDATED", "MEMBER_RECONCILED", "TARGET_COMPUTED"}
)
"""Types of silver.group_events that rebalances have, or that are only steps of one."""


class Event(NamedTuple):
    at_ms: int | None
    """None: its records have no timestamp."""
    event: str
    confidence: str | None
    """None: it is what the log says, or each of several causes has its own in the text."""
    text: str
    place: tuple[str, int, int, int]
    """Log, log partition, log offset, and number within the record."""
    log_position: str | None = None
    """Where it is in the log, if the log has its time more than once."""
    is_back: bool = False
    """Did a committed offset go back?"""

    @property
    def line(self) -> str:
        """The event as a line for the terminal."""
        sure = f" ({self.confidence})" if self.confidence else ""
        place = f" at {self.log_position}" if self.log_position else ""
        return f"{time_text(self.at_ms) or 'at no known time'} {self.event}{sure}{place}: {self.text}"


@of_one_run
def events_and_steps(
    tables: ClusterTables, group_id: str, *, from_ms: int | None, to_ms: int | None
) -> tuple[list[Event], list[ClockStep]]:
    """Changes of a group and its members, rebalances, commit anomalies, redeliveries, archived records, moved offsets
    of share groups, by time, and the clock steps of the log partitions that they are from. `to_ms` is exclusive. Those
    of one time are in the order of the log; so are events without a timestamp, which may be of any time and come last.

    Raises ArgumentError for a group that is not in the log, and for a span outside of what was read.
    """
    require_in_log(tables, GROUPS_LOG, from_ms, to_ms, [group_id])
    gold, run = WholeAudit.newest(tables), WholeRun.newest(tables)
    rows = {table: _rows(run if table is GROUP_EVENTS else gold, table, log, group_id) for table, log in LOG_OF_TABLE}
    logs = {row["place"][:2] for of_table in rows.values() for row in of_table}
    steps = [step for step in clock_steps(gold) if (step.log, step.log_partition) in logs]
    columns = ["log_partition", "incarnation", "generation", "from_log_offset"]
    began = {tuple(row[:3]): row[3] for row in _values(run, GROUP_GENERATIONS, columns, group_id)}
    for row in rows[REBALANCES]:
        at = began.get((row["log_partition"], row["incarnation"], row["to_generation"]))
        row["place"] = (*row["place"][:2], -1 if at is None else at, LAST_OF_RECORD)
    for row in (row for of_table in rows.values() for row in of_table):
        log, log_partition, log_offset, _ = row["place"]
        if row["at_ms"] is not None and any(
            (step.log, step.log_partition) == (log, log_partition) and step.repeats(row["at_ms"]) for step in steps
        ):
            row["log_position"] = f"{log}-{log_partition}@{'?' if log_offset < 0 else log_offset}"
    grown = [
        row
        for row in rows[REBALANCES]
        if any(
            cause == PARTITIONS_CHANGED and method not in NOT_GROWN
            for cause, method in zip(row["causes"] or (), row["cause_methods"] or (), strict=False)
        )
    ]
    if grown:
        ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
        for row, topics in zip(grown, topics_changed(ledger, grown), strict=True):
            row["topics"] = topics
    deleted = {row["place"][:3] for row in rows[COMMIT_ANOMALIES]}
    others = [
        row
        for row in rows[GROUP_EVENTS]
        if (row["event_type"] not in IN_OTHER_EVENTS or NEXT_REBALANCE in dict(row["details"] or ()))
        and (row["event_type"] == FORGOTTEN or row["place"][:3] not in deleted)
    ]
    names = _names(run, group_id)
    found = [
        *_changes(others, _first_seen(rows[GROUP_EVENTS]), names),
        *(_rebalance(row, names) for row in rows[REBALANCES]),
        *(_commit(row, names) for row in rows[COMMIT_ANOMALIES]),
        *_records("redelivered", rows[REDELIVERIES]),
        *_records(GIVEN_UP, rows[ARCHIVED_RECORDS]),
        *map(_offset_change, rows[SHARE_OFFSET_CHANGES]),
    ]
    begins, ends = from_ms if from_ms is not None else -1, to_ms if to_ms is not None else sys.maxsize
    timed = [event for event in found if event.at_ms is not None and begins <= event.at_ms < ends]
    untimed = [event for event in found if event.at_ms is None]
    timed.sort(key=lambda it: (it.at_ms, it.place, it.event, it.text))
    return [*timed, *sorted(untimed, key=lambda it: (it.place, it.event, it.text))], steps


def run_history(
    tables: ClusterTables,
    *,
    group_id: str,
    from_ms: int | None,
    to_ms: int | None,
    output_format: str,
    out: TextIO | None = None,
) -> list[str]:
    """Print the events of a group. Returns the caveats as lines."""
    events, steps = events_and_steps(tables, group_id, from_ms=from_ms, to_ms=to_ms)
    sink = out or sys.stdout
    if output_format == "table":
        sink.writelines(f"{folded_text(event.line, sink)}\n" for event in events)
    else:
        is_placed = any(it.log_position for it in events)
        columns = (*EVENT_COLUMNS, "log_position") if is_placed else EVENT_COLUMNS
        rows = [(time_text(it.at_ms), it.event, it.confidence, it.text, it.log_position) for it in events]
        write_answers(columns, [row[: len(columns)] for row in rows], output_format, sink)
    back_ms = [it.at_ms for it in events if it.is_back and it.at_ms is not None]
    if not events:
        times = [
            it.at_ms for it in events_and_steps(tables, group_id, from_ms=None, to_ms=None)[0] if it.at_ms is not None
        ]
        known = f": they are from {time_text(min(times))} to {time_text(max(times))}" if times else ""
        return [f"no event of group {short(group_id)} is in this span{known}", *_remarks(tables, group_id)]
    return [
        *step_lines(tables, steps, from_ms, to_ms, LISTED),
        *_remarks(tables, group_id),
        *offer(tables, group_id, back_ms),
    ]


def _remarks(tables: ClusterTables, group_id: str | None = None) -> Iterator[str]:
    """What gold lacks of a group, or of all groups."""
    yield from not_audited_lines(tables)
    show = command(f"audit --list not-judged{tables.place_words}")
    if group_id is not None and group_id in groups_not_judged(tables):
        yield f"group {short(group_id)} could not be judged, so gold lacks it: {show}"
    lacks = audit_lacks(tables)
    if lacks:
        yield f"gold was made without: {'; '.join(lacks)}: {show}"
    group_ids = None if group_id is None else [group_id]
    yield from log_remarks(tables, group_ids, with_offsets=group_id is not None)


def _values(tables: PinnedTables, table: Table, columns: Sequence[str], group_id: str) -> list[tuple[Any, ...]]:
    """Some columns of a group's rows."""
    rows = tables.read(table, list(columns), group_id=group_id)
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def _rows(tables: PinnedTables, table: Table, log: str, group_id: str) -> list[dict[str, Any]]:
    """Rows of a group, with their times and places in the log."""
    found: list[dict[str, Any]] = tables.read(table, group_id=group_id).to_pylist()
    for row in found:
        at = row["started_at" if table is REBALANCES else "at"]
        row["at_ms"] = None if at is None else epoch_ms(at)
        row["place"] = (log, row["log_partition"], row.get("log_offset", -1), row.get("event_index", LAST_OF_RECORD))
    return found


Names = Mapping[str, Sequence[tuple[int, str]]]
"""By member id: since which log offset it had which name."""


def _names(run: WholeRun, group_id: str) -> Names:
    """Group instance id, client id and host of members."""
    columns = ["from_log_offset", "member_id", "instance_id", "client_id", "client_host"]
    names: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for since, member_id, instance_id, client_id, host in sorted(
        _values(run, GROUP_MEMBERS, columns, group_id), key=itemgetter(0)
    ):
        client = f"{short(client_id or '?')} on {host or '?'}"
        names[member_id].append((since, f"{short(instance_id)}: {client}" if instance_id else client))
    return names


def _name(names: Names, member_id: str, log_offset: int) -> str:
    """The name of a member at a log offset."""
    known = names.get(member_id, ())
    index = bisect_right(known, log_offset, key=itemgetter(0))
    return known[max(index - 1, 0)][1] if known else f"member {short(member_id)}"


Operation = tuple[Any, ...]


def _operation(row: Mapping[str, Any]) -> Operation:
    """The operation of a row of silver.group_events: one time of one log partition; a record where there is no time."""
    return (*row["place"][:2], row["at_ms"] if row["at_ms"] is not None else -1 - row["place"][2])


def _first_seen(rows: Iterable[Mapping[str, Any]]) -> Set[Operation]:
    """Operations with which the log begins to show a group that was there before."""
    return {_operation(row) for row in rows if FIRST_SEEN in dict(row["details"] or ())}


def _changes(rows: Iterable[Mapping[str, Any]], first_seen: Set[Operation], names: Names) -> Iterator[Event]:
    """One event for all changes of one kind in one operation."""

    def sameness(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return *_operation(row), row["event_type"]

    in_order = sorted(rows, key=itemgetter("place"))
    for (*operation, event_type), same in groupby(sorted(in_order, key=sameness), sameness):
        those = list(same)
        first = those[0]
        texts = dict.fromkeys(_change_text(row, names) for row in those)
        event = EVENT_WORDS.get(event_type, event_type.lower().replace("_", " "))
        if event_type in SEEN_FIRST and tuple(operation) in first_seen:
            event = f"{event.partition(' ')[0]} first seen"
        yield Event(first["at_ms"], event, None, "; ".join(texts), first["place"], first.get("log_position"))


def _change_text(row: Mapping[str, Any], names: Names) -> str:
    """Who or what changed, and how."""
    details = dict(row["details"] or ())
    if NEXT_REBALANCE in details:
        return f"a member is to join again at {time_text(int(details[NEXT_REBALANCE]))}"
    log_offset = row["place"][2]
    parts = []
    if row["member_id"]:
        parts.append(_name(names, row["member_id"], log_offset))
    if replaced := details.pop("replaced_member_id", None):
        parts.append(f"in place of {_name(names, replaced, log_offset - 1)}")
    if row["topic"]:
        parts.append(short(row["topic"]) if row["partition"] is None else f"{short(row['topic'])}-{row['partition']}")
        details.pop("topic_id", None)
    parts += [f"{name.replace('_', ' ')} {short(value)}" for name, value in details.items() if name != FIRST_SEEN]
    return ", ".join(parts) or f"at generation {row['generation']}"


def causes_of(row: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """The causes of a row of gold.rebalances, each with its confidence."""
    causes = row["causes"] or [row["cause"] or "UNKNOWN"]
    return list(zip(causes, row["cause_confidences"] or [row["confidence"]] * len(causes), strict=True))


def _rebalance(row: Mapping[str, Any], names: Names) -> Event:
    causes, sures = zip(*causes_of(row), strict=True)
    is_one = len(set(sures)) == 1
    said = " + ".join(causes if is_one else map("{} ({})".format, causes, sures))
    follow_up = ", follow-up of the one before" if FOLLOW_UPS.issuperset(row["cause_methods"] or [None]) else ""
    text = f"to generation {row['to_generation']} by {said}{follow_up}"
    for change in ("joined", "left"):
        those = [_name(names, it, row["place"][2]) for it in row[f"members_{change}"] or ()]
        text += f", {'gone' if change == 'left' else change}: {some_of(those)}" if those else ""
    if row.get("topics"):
        text += f", topics: {row['topics']}"
    if row["method"] and row["method"] != "IN_LOG":
        text += f", as {row['method']} shows"
    text += f", {counted(row['member_count'], 'member')}"
    if row["partitions_moved"]:
        text += f", {row['partitions_moved']} of {row['partitions_total']} partitions moved"
    if row["unowned_likely_ms"]:
        text += f", {row['unowned_likely_ms']:,} partition-ms likely unowned"
    event = "storm rebalance" if row["in_storm"] else "rebalance"
    return Event(row["at_ms"], event, sures[0] if is_one else None, text, row["place"], row.get("log_position"))


def _commit(row: Mapping[str, Any], names: Names) -> Event:
    place = f"{short(row['topic'])}-{row['partition']}"
    text = f"{place} from {_offset(row['from_offset'])} to {_offset(row['to_offset'])}"
    if row["delta"] is not None and row["delta"] < 0:
        text += f", {-row['delta']:,} back"
    if row["likely_cause"]:
        text += f", {row['likely_cause']}"
    if row["was_group_empty"]:
        text += ", while the group was empty"
    elif row["owner_member_id"]:
        text += f", owner {_name(names, row['owner_member_id'], row['place'][2])}"
    is_back = row["delta"] is not None and row["delta"] < 0 and row["kind"] != "ABORTED"
    kind, position = f"commit {row['kind']}", row.get("log_position")
    return Event(row["at_ms"], kind, row["confidence"], text, row["place"], position, is_back)


def _offset_change(row: Mapping[str, Any]) -> Event:
    place = f"{short(row['topic'] or row['topic_id'])}-{row['partition']}"
    text = f"{place} from {_offset(row['from_offset'])} to {_offset(row['to_offset'])}"
    for count, words in ((row["never_delivered_count"], "never delivered"), (row["delivered_again_count"], "again")):
        text += f", {counted(count, 'record')} {words}" if count else ""
    return Event(row["at_ms"], f"offsets {row['kind']}", row["confidence"], text, row["place"], row.get("log_position"))


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def _records(event: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """One event for all records of a partition with the same fate at the same time."""

    def sameness(row: Mapping[str, Any]) -> tuple[Any, ...]:
        topic = row["topic"] or row["topic_id"]
        # without timestamps, records of the same coordinator record count as simultaneous
        at = (row["at_ms"], -1) if row["at_ms"] is not None else (sys.maxsize, row["log_offset"])
        why = row["cause"], row["likely_cause"] or "", row["confidence"]
        return *at, topic, row["partition"], *why, row.get("log_position") or ""

    for those, same in groupby(sorted(rows, key=sameness), sameness):
        at_ms, _, topic, partition, cause, likely, confidence, place = those
        in_order = sorted(same, key=itemgetter("place"))
        spans = sorted((row["first_offset"], row["last_offset"]) for row in in_order)
        count = sum(last - first + 1 for first, last in spans)
        first, last = spans[0][0], spans[-1][1]
        offsets = f"offset {first}" if count == 1 else f"{count:,} records of offsets {first} to {last}"
        why = f"{cause}, {likely}" if likely else cause
        at = None if at_ms == sys.maxsize else at_ms
        kind, text = event, f"{short(topic)}-{partition} {offsets} by {why}"
        if event == GIVEN_UP and likely in NOT_GIVEN_UP:
            offsets = offsets.replace(" records of ", NO_RECORDS.get(likely, " records of "))
            kind, text = "passed over", f"{short(topic)}-{partition} {offsets}, {likely}"
        yield Event(at, kind, confidence, text, in_order[0]["place"], place or None)


def run_groups(
    tables: ClusterTables,
    *,
    from_ms: int | None,
    match: str | None,
    topic: str | None = None,
    needs_attention: bool,
    gone: bool = False,
    output_format: str,
    out: TextIO | None = None,
) -> list[str]:
    """Print groups and their verdicts. Returns what to look at first, and the caveats, as lines.

    Raises ArgumentError for a time after the end of what was read: no group is known to be OK then.
    """
    require_in_any_log(tables, from_ms, None)
    readers = None if topic is None else groups_of_topic(tables, topic)
    known = group_ids_known(tables)
    every = group_verdicts(tables, from_ms=from_ms, match=match, with_gone=True, known=known)
    asked = [it for it in every if readers is None or it.group_id in readers]
    if match is not None and not asked:
        require_groups(tables, [match])
    verdicts = [it for it in asked if (gone or not it.is_gone) and not (needs_attention and it.verdict == OK)]
    left = [it.group_id for it in asked if it.is_gone and not (gone or (needs_attention and it.verdict == OK))]
    rows: list[list[Value]] = []
    for line in verdicts:
        times = {name: time_text(getattr(line, name)) for name in ("last_change_ms", "since_ms")}
        values: dict[str, Any] = line._asdict() | times
        rows.append(list(values.values())[: len(GROUP_COLUMNS)])
    names = GROUP_COLUMNS if output_format == "table" else [name.lower().replace("-", "_") for name in GROUP_COLUMNS]
    write_answers(names, rows, output_format, out or sys.stdout, first=GROUP_ANSWER)
    options = {"--match": match, "--topic": topic, "--from": from_ms and time_text(from_ms)}
    chosen = "".join(f" {name} {shell_word(value)}" for name, value in options.items() if value)
    remarks = [
        *_gone(left, f"{chosen}{' --needs-attention' * needs_attention}{tables.place_words}", tables.place_words)
    ]
    if output_format != "table":
        return [*remarks, *_remarks(tables)]
    words = (
        f"audit --list {RULES[rule].listing} --group {shell_word(it.group_id)}{tables.place_words}"
        for it in verdicts[:1]
        for rule in it.rules
    )
    first = [] if rows or not needs_attention else ["no group needs attention"]
    worst = (f"{'and' if index else 'look at the worst'}: {command(it)}" for index, it in enumerate(words))
    return [*first, *worst, *remarks, *_remarks(tables)]


def _gone(group_ids: Sequence[str], options: str, place_words: str) -> Iterator[str]:
    """How many groups a list leaves out because they were deleted, and the command that shows them."""
    if group_ids:
        is_one = len(group_ids) == 1
        words = f"history --group {shell_word(group_ids[0])}{place_words}" if is_one else f"groups --gone{options}"
        said = counted(len(group_ids), "more group is gone", "more groups are gone")
        yield f"{said} ({names_of(group_ids)}): {command(words)}"
