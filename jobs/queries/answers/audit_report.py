"""Lists for auditors: what was archived, redelivered, moved or reset in a time span, and whether the list is complete.

The first lines state completeness, from bronze.coverage: records in a missing, damaged or compacted range cannot be in
the list.
"""

import json
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from coordinator_core.confidence import CONFIDENCES
from coordinator_core.inference.audit.log_anomalies import CLOCK_STEP_MS_MIN
from coordinator_core.text import counted
from jobs.bronze.coverage import from_table
from jobs.bronze.log_ends import LogEnds, log_ends, missing_lines, numbers
from jobs.bronze.quarantine import open_rows
from jobs.cli_enums import Listing
from jobs.console.command_name import command, shell_word
from jobs.console.names import LINE_CHARACTERS_MAX, short, some_of
from jobs.console.output import Value, folded_text, json_line, room_for, time_text, write_answers
from jobs.delta import other_writers
from jobs.delta.arrow_schemas import file_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.part_files import LOG_PARTITION
from jobs.delta.times import epoch_ms, to_datetime
from jobs.errors import ArgumentError
from jobs.queries.answers.findings import COUNTED_APART, audit_lacks, groups_not_judged, sum_line
from jobs.queries.answers.lists import BEGAN_AT, LISTS, NO_MEMBER, OF_GROUPS, OF_SHARES, WHO, of_cause
from jobs.queries.answers.other_columns import MORE
from jobs.queries.answers.restore import offer
from jobs.queries.as_of.as_of import SHARES_LOG, SilverAt, timestamp_scalar
from jobs.queries.as_of.behind import not_audited_lines, not_replayed_lines
from jobs.queries.as_of.caveats import NO_ENDS, moved
from jobs.queries.as_of.clock_steps import ClockStep, clock_steps, step_lines
from jobs.queries.as_of.in_log import require_in_log
from jobs.queries.as_of.unread import unread_groups, unread_text
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.silver.homes import listed_move_text
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE, QUARANTINE
from schemas.tables.gold import PARTITION_OWNERS, REBALANCES
from schemas.tables.silver import GROUP_GENERATIONS, SHARE_PARTITION_STATES

HOLES_LISTED_MAX: Final = 20
SKIPS_LISTED_MAX: Final = 20
UNKNOWN: Final = ("SKIPPED_BY_RESET", None)
"""Kind and count of changes that skipped an unknown number of records: after a deletion, nothing may follow."""
MOVES_LISTED_MAX: Final = 20
RESTORED_MAX: Final = 3
"""Groups whose offsets a list offers to restore."""


BY_NO_MEMBER: Final = (
    f"Not in any log of Kafka's: who commits while the group is empty ({WHO}: {NO_MEMBER}): a tool, or a consumer "
    "without membership"
)
NOT_IN_ANY_LOG: Final = {
    Listing.WITHOUT_COPY: "Not in any log of Kafka's coordinators: which copies a broker failed to write; "
    "`--payload` looks for them on the dead letter topics",
    Listing.ARCHIVED: "Not in any log of Kafka's: which records were given up in silence (aborted transactions, holes "
    "of compacted topics); the share coordinator only counts them",
    Listing.REDELIVERIES: "Not in any log of Kafka's: deliveries in flight when a share partition got a new leader; "
    "delivery counts are lower bounds",
    Listing.DELETED: "Not in any log of Kafka's: the brokers' offsets.retention.minutes; of the settings, "
    "inference.offsets_retention_ms says it (7 days by default); what has no cause may be of an unknown age",
    Listing.RESETS: BY_NO_MEMBER,
    Listing.REWINDS: BY_NO_MEMBER,
    Listing.SKIPPED: BY_NO_MEMBER,
    Listing.SHARE_OFFSETS: "Not in any log of Kafka's: who moved or deleted the offsets",
    Listing.LAG: NO_ENDS[0].upper() + NO_ENDS[1:],
    Listing.FLAPPING: "Not in any log of Kafka's: who asked to rebalance; if nobody flapped, who has all members",
    Listing.REBALANCES: "Not in any log of Kafka's: rebalances of classic groups that ended without a new generation",
}
"""What even a complete list cannot contain."""

NOT_HERE: Final = "Not in this list"
OF_ASSIGNMENTS: Final = frozenset(
    listing for listing, it in LISTS.items() if it.table in (PARTITION_OWNERS, REBALANCES)
)
"""Lists that show assignments."""


class Span(NamedTuple):
    """From inclusive, to exclusive; None: unbounded."""

    from_ms: int | None = None
    to_ms: int | None = None


ALL_TIMES: Final = Span()


class Completeness(NamedTuple):
    """Is a list complete? `statements`: the reasons; the first one is the summary, of what is in `those`."""

    is_complete: bool
    statements: tuple[str, ...]
    those: str = ""

    def adding(self, *statements: str) -> "Completeness":
        """With more statements at the end."""
        return self._replace(statements=(*self.statements, *statements))


class Hole(NamedTuple):
    """Offsets of a log partition that were not read, and the times around them, where known."""

    log_partition: str
    from_offset: int
    to_offset: int
    kind: str
    reason: str | None
    after_ms: int | None
    before_ms: int | None

    def touches(self, span: Span) -> bool:
        """May it contain records of the span? Clocks of leaders may differ by less than what counts as a step."""
        to_ms = None if span.to_ms is None else span.to_ms + CLOCK_STEP_MS_MIN
        from_ms = None if span.from_ms is None else span.from_ms - CLOCK_STEP_MS_MIN
        begins_late = to_ms is not None and self.after_ms is not None and self.after_ms >= to_ms
        ends_early = from_ms is not None and self.before_ms is not None and self.before_ms < from_ms
        return not (begins_late or ends_early)

    def between(self, steps: Iterable[ClockStep]) -> "Hole":
        """The same hole with the times around it as clocks allow that differ: the time before it counts only since the
        last steps back, and behind it only up to the next one. `steps`: those of its log partition."""
        after_ms, before_ms = self.after_ms, self.before_ms
        for step in steps:
            if after_ms is not None and step.log_offset <= self.to_offset + 1:
                after_ms = min(after_ms, step.now_ms)
            if before_ms is not None and step.log_offset > self.from_offset:
                before_ms = max(before_ms, step.before_ms)
        return self._replace(after_ms=after_ms, before_ms=before_ms)

    def text(self) -> str:
        """In words."""
        when = ""
        if self.after_ms is not None and self.before_ms is not None:
            when = f", written between {time_text(self.after_ms)} and {time_text(self.before_ms)}"
        elif self.before_ms is not None:
            when = f", written before {time_text(self.before_ms)}"
        elif self.after_ms is not None:
            when = f", written after {time_text(self.after_ms)}"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.log_partition}: offsets {self.from_offset} to {self.to_offset} {self.kind}{reason}{when}"


def completeness(
    tables: ClusterTables,
    log: str,
    span: Span,
    group_ids: Collection[str] | None = None,
    partition_counts: Mapping[str, int] | None = None,
) -> Completeness:
    """Was everything read that was written to a coordinator topic in a span?

    `partition_counts`: partition counts that the user gives. The claim reaches only as far as each log partition was
    read (`jobs.bronze.log_ends`).
    """
    rows = tables.read(COVERAGE, topic=log)
    coverage = from_table(rows)
    if not coverage:
        return Completeness(False, (f"NOT COMPLETE: nothing of {log} was captured",))
    show = partial(_command_of, tables)
    ends = log_ends(tables, (log,), partition_counts)[log]
    steps = clock_steps(WholeAudit.newest(tables), log)
    ends = _short_of_slow_clocks(ends, steps)
    found = list(missing_lines({log: ends}))
    holes: defaultdict[tuple[str, str], list[Hole]] = defaultdict(list)
    for place, ranges in sorted(coverage.items()):
        for each in holes_of(*place, ranges):
            hole = each.between(step for step in steps if step.log_partition == place[1])
            if hole.touches(span):
                holes[hole.log_partition, hole.kind].append(hole)
    found += [together(those).text() for those in holes.values()]
    found += _behind_the_end(ends, span)
    found += _unread(tables, log)
    found += [
        f"group {short(name)} could not be judged: {show(Listing.NOT_JUDGED, group_ids)}"
        for name in groups_not_judged(tables)
        if group_ids is None or name in group_ids
    ]
    found += [
        f"no group of {name} could be judged: {show(Listing.NOT_JUDGED)}"
        for name in audit_lacks(tables)
        if name.startswith(f"{log}-")
    ]
    found += not_replayed_lines(tables, log)
    found += not_audited_lines(tables)
    found += other_writers.lines(other_writers.written_by_others(tables), tables.place_words)
    if log == SHARES_LOG:
        found += _begun_midway(tables, span, group_ids)
    step_statements = list(_step_lines(tables, steps, span))
    begins = time_text(span.from_ms) or "its beginning"
    until = time_text(span.to_ms) or time_text(ends.proven_ms) or "its last record"
    those = f"{log} ({counted(len(ends.ends), 'log partition')}) from {begins} to {until}"
    if not found:
        remarks = *_remarks(log, ends, span), *step_statements
        return Completeness(True, (_complete(those), *remarks), those)
    lines = found[:HOLES_LISTED_MAX]
    if len(found) > len(lines):
        lines.append(f"... and {len(found) - len(lines):,} more: {show(Listing.HOLES)}")
    lines += step_statements
    return Completeness(False, (f"NOT COMPLETE: not every record of {those} was read", *lines))


def _complete(those: str) -> str:
    return f"COMPLETE: every record of {those} was read"


def _command_of(
    tables: ClusterTables, listing: Listing, group_ids: Collection[str] | None = None, span: Span = ALL_TIMES
) -> str:
    """The command that prints a list, of what was asked for."""
    words = [f"--group {shell_word(it)}" for it in sorted(group_ids or ())]
    words += [
        f"--{name} {time_text(at_ms)}" for name, at_ms in zip(("from", "to"), span, strict=True) if at_ms is not None
    ]
    return command(" ".join([f"audit --list {listing}", *words]) + tables.place_words)


def _short_of_slow_clocks(ends: LogEnds, steps: Sequence[ClockStep]) -> LogEnds:
    """The log ends, reduced where a log partition has not caught up after a clock step: later records may have any
    timestamp since the step, so only the time up to the step is proven."""
    known = dict(ends.ends)
    for step in steps:
        end = known.get(step.log_partition)
        if end is None:
            continue
        last_ms = ends.ends[step.log_partition].last_record_ms
        if last_ms is not None and last_ms <= step.before_ms:
            known[step.log_partition] = end._replace(last_record_ms=step.now_ms, live_until_ms=None)
    return ends._replace(ends=known)


def _step_lines(tables: ClusterTables, steps: Sequence[ClockStep], span: Span) -> Iterator[str]:
    """Statements about clock steps within a bounded span: records of that time may be listed with other times."""
    if span != Span():
        yield from step_lines(tables, steps, span.from_ms, span.to_ms, "rows are listed by the times that the log has")


def _behind_the_end(ends: LogEnds, span: Span) -> Iterator[str]:
    """Statements where a span reaches beyond what was read. Its last millisecond is the one before `to`."""
    to_ms = None if span.to_ms is None else span.to_ms - 1
    if to_ms is None and span.from_ms is None:
        return
    asked_ms = to_ms if to_ms is not None else span.from_ms
    not_read = [] if asked_ms is None else ends.short_of(asked_ms)
    for end in not_read[:HOLES_LISTED_MAX]:
        name = f"{ends.topic}-{end.partition}"
        if end.bound_ms is None:
            why = "it was empty when it was copied" if end.is_empty else "its records have no time"
            yield f"nothing proves up to when {name} was read: {why}, and a copy does not show what came after"
        elif end.live_until_ms == end.bound_ms:
            yield f"nothing is known of {name} after the last capture or copy at {time_text(end.bound_ms)}"
        else:
            yield f"nothing is known of {name} after its last record that was read, of {time_text(end.bound_ms)}"
    if len(not_read) > HOLES_LISTED_MAX:
        yield f"nor of {counted(len(not_read) - HOLES_LISTED_MAX, 'log partition')} more"


def _remarks(log: str, ends: LogEnds, span: Span) -> Iterator[str]:
    """Statements of a complete, open-ended list about the time after what is proven."""
    if span.to_ms is not None:
        return
    newest, proven = time_text(ends.newest_ms), time_text(ends.proven_ms)
    empty = [end.partition for _, end in sorted(ends.ends.items()) if end.bound_ms is None and end.is_empty]
    if proven is None and newest is not None:
        yield f"The newest record that was read is from {newest}: a copy does not show what came after"
    elif proven != newest:
        yield f"After that time, the list has what was read of each partition of {log}: up to {newest} at the latest"
    if empty:
        yield f"Empty when they were copied: log partitions {numbers(empty)}"


def holes_of(topic: str, partition: int, ranges: Sequence[CoverageRange]) -> Iterator[Hole]:
    """Yield what was not read of a log partition, in offset order, including what the cleaner removed."""
    ordered = sorted(ranges, key=lambda covered: covered.from_offset)
    times = _CapturedTimes([covered for covered in ordered if covered.kind is CoverageKind.CAPTURED])
    name = f"{topic}-{partition}"
    next_offset = 0
    for covered in ordered:
        after_ms = times.latest_before(covered.from_offset)
        if covered.from_offset > next_offset:
            # for an unknown reason: mostly before the first capture
            until, before_ms = covered.from_offset - 1, times.earliest_after(next_offset)
            yield Hole(name, next_offset, until, "MISSING", None, after_ms, before_ms)
        if covered.kind is not CoverageKind.CAPTURED:
            kind, before_ms = covered.kind.name, times.earliest_after(covered.to_offset)
            yield Hole(name, covered.from_offset, covered.to_offset, kind, covered.reason, after_ms, before_ms)
        next_offset = max(next_offset, covered.to_offset + 1)


def together(holes: Sequence[Hole]) -> Hole:
    """Holes of one kind in a log partition as one, which says how many they are."""
    first, last = holes[0], holes[-1]
    if first == last:
        return first
    count = sum(it.to_offset - it.from_offset + 1 for it in holes)
    reason = f"{counted(len(holes), 'range')}, {counted(count, 'offset')} in all"
    return first._replace(to_offset=last.to_offset, before_ms=last.before_ms, reason=reason)


class _CapturedTimes:
    """Times (ms) of captured ranges around an offset."""

    def __init__(self, captured: Sequence[CoverageRange]) -> None:
        """`captured`: by their first offset."""
        by_end = sorted(captured, key=lambda it: it.to_offset)
        last_ms = (_NO_TIME if it.last_timestamp_ms is None else it.last_timestamp_ms for it in by_end)
        first_ms = (_NEVER if it.first_timestamp_ms is None else it.first_timestamp_ms for it in reversed(captured))
        self._ends = [it.to_offset for it in by_end]
        self._begins = [it.from_offset for it in captured]
        self._latest = [_NO_TIME, *accumulate(last_ms, max)]
        self._earliest = [_NEVER, *accumulate(first_ms, min)][::-1]

    def latest_before(self, offset: int) -> int | None:
        """The latest time of any range that ends before an offset."""
        time_ms = self._latest[bisect_left(self._ends, offset)]
        return None if time_ms == _NO_TIME else time_ms

    def earliest_after(self, offset: int) -> int | None:
        """The earliest time of any range that begins behind an offset."""
        time_ms = self._earliest[bisect_right(self._begins, offset)]
        return None if time_ms == _NEVER else time_ms


_NO_TIME: Final = -(2**63)
_NEVER: Final = 2**63


def _unread(tables: ClusterTables, log: str) -> Iterator[str]:
    rows = open_rows(tables.read(QUARANTINE, ["code", "message", "resolved_at"], topic=log))
    if rows.num_rows:
        codes = ", ".join(sorted(set(rows["code"].to_pylist())))
        pieces = counted(rows.num_rows, "piece")
        yield f"{pieces} of {log} could not be read ({codes}): {_command_of(tables, Listing.QUARANTINE)}"


def _begun_midway(tables: ClusterTables, span: Span, group_ids: Collection[str] | None) -> Iterator[str]:
    """Statements about share partitions that had updates in the span before their first known snapshot."""
    silver = SilverAt(tables, group_ids=group_ids)
    conditions = [~pc.field("is_complete"), *within("valid_from", span)]
    key = ["group_id", "topic_id", "partition"]
    rows = silver.coded_rows(SHARE_PARTITION_STATES, (*key, "is_complete", "valid_from"), *conditions)
    count = rows.group_by(key).aggregate([]).num_rows
    if count:
        those = counted(count, "share partition")
        yield f"the state before the first snapshot is not known for {those} whose first record is an update"


def within(column: str, span: Span) -> list[Any]:
    """Conditions on rows: their time is in the span, or missing."""
    conditions = []
    if span.from_ms is not None:
        conditions.append(pc.field(column).is_null() | (pc.field(column) >= timestamp_scalar(span.from_ms)))
    if span.to_ms is not None:
        conditions.append(pc.field(column).is_null() | (pc.field(column) < timestamp_scalar(span.to_ms)))
    return conditions


def _asked(listing: Listing, group_ids: Collection[str] | None, span: Span) -> tuple[str, list[Any]]:
    """The condition on rows of a list that are of these groups and in a span, and its values."""
    table, time = LISTS[listing].table, LISTS[listing].time
    # an interval counts for every moment in it
    last = "valid_to" if listing is Listing.OWNERS else time
    values: list[Any] = []
    conditions = ["true"]
    for column, sign, at_ms in ((last, ">" if last != time else ">=", span.from_ms), (time, "<", span.to_ms)):
        if at_ms is not None and time:
            values.append(to_datetime(at_ms))
            conditions.append(f'(r."{column}" IS NULL OR r."{column}" {sign} ${len(values)})')
    if group_ids is not None and "group_id" in table.column_names:
        values.append(sorted(group_ids))
        conditions.append(f"list_contains(${len(values)}, r.group_id)")
    return " AND ".join(conditions), values


def listed(
    tables: ClusterTables, group_ids: Collection[str] | None, listing: Listing, span: Span
) -> tuple[list[str], list[tuple[Value, ...]]]:
    """Columns and rows of a list in a span, ordered by group, time and log position; of rebalances with a certain cause
    by its confidence first."""
    it = LISTS[listing]
    table, time = it.table, it.time
    schema = file_schema(table)
    names = [field.name for field in schema if field.name != "cluster_id" and not pa.types.is_binary(field.type)]
    condition, values = _asked(listing, group_ids, span)
    # of one time, in the order of the log; each incarnation has generations of its own
    places = (LOG_PARTITION, "log_offset", "from_log_offset", "incarnation")
    key = [name for name in ("group_id", time, *places, *table.key) if name in table.column_names]
    order = ", ".join(f'r."{name}" NULLS FIRST' for name in dict.fromkeys(key))
    values_of = {name: f'r."{name}"' for name in names}
    if it.cause:
        values_of |= of_cause(it.cause)
        order = f'list_position({list(CONFIDENCES)}, {values_of["confidence"]}), r."{time}", {order}'
    shown = ", ".join(f'{value} AS "{name}"' for name, value in values_of.items())
    ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
    answer = ledger.answer(
        f"SELECT {shown} FROM {table.full_name} AS r WHERE ({it.where}) AND {condition} ORDER BY {order or 'ALL'}",
        *values,
    )
    rows = list(answer.rows())
    lines = [tuple(map(_value, row)) for row in rows]
    columns = [it.time_name or name if name == time else name for name in names]
    if not it.more:
        return columns, lines
    more = MORE[it.more](ledger, [dict(zip(names, row, strict=True)) for row in rows], it.who)
    all_lines = [(*line, text or None) for line, text in zip(lines, more, strict=True)]
    if it.more == BEGAN_AT:  # ISO 8601, in which order of texts is that of times
        begin, end = time_text(span.from_ms) or "", time_text(span.to_ms) or "~"
        all_lines = [line for line in all_lines if line[-1] is None or begin <= str(line[-1]) < end]
    return [*columns, it.more], all_lines


def overlapping(span: Span) -> list[Any]:
    """Conditions on rows: the interval overlaps with the span."""
    conditions = []
    if span.from_ms is not None:
        ends_after = pc.field("valid_to") > timestamp_scalar(span.from_ms)
        conditions.append(pc.field("valid_to").is_null() | ends_after)
    if span.to_ms is not None:
        begins_before = pc.field("valid_from") < timestamp_scalar(span.to_ms)
        conditions.append(pc.field("valid_from").is_null() | begins_before)
    return conditions


def _skipped(tables: ClusterTables, group_ids: Collection[str] | None, span: Span) -> Iterator[str]:
    """Statements for records that a reset or a deletion of offsets skipped: they were not given up."""
    columns, rows = listed(tables, group_ids, Listing.SHARE_OFFSETS, span)
    found: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
    skips = [
        row for row in found if row["never_delivered_count"] or (row["kind"], row["never_delivered_count"]) == UNKNOWN
    ]
    for row in skips[:SKIPS_LISTED_MAX]:
        count, place = row["never_delivered_count"], f"{short(row['topic'] or row['topic_id'])}-{row['partition']}"
        records = "an unknown number of records" if count is None else counted(count, "record")
        begin = "" if row["from_offset"] is None else f" from offset {row['from_offset']} on"
        what = f"never delivered to group {short(row['group_id'])}: {records} of {place}{begin}"
        yield f"{NOT_HERE}, {what}: {row['kind']} at {row['at']} ({row['confidence']})"
    if len(skips) > SKIPS_LISTED_MAX:
        more = counted(len(skips) - SKIPS_LISTED_MAX, "more change")
        yield f"... and by {more}: {_command_of(tables, Listing.SHARE_OFFSETS, group_ids, span)}"


def _sums(tables: ClusterTables, group_ids: Collection[str] | None, listing: Listing, span: Span, width: int) -> str:
    """What a list sums up to, in a line; empty: it has no rows, or none that are summed."""
    if LISTS[listing].finding is None or not LISTS[listing].time or listing in COUNTED_APART:
        return ""
    ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
    return sum_line(ledger, listing, *_asked(listing, group_ids, span), width)


def _why_storms(rows: Sequence[Mapping[str, Value]]) -> str:
    """What is known of why groups rebalanced again and again, also where no member is to blame."""
    causes = Counter(str(it["cause"]) for it in rows)
    same = sum((it["members_joined"], it["members_left"]) == ("[]", "[]") for it in rows)
    return f"Causes: {some_of(f'{cause} ({count})' for cause, count in causes.most_common())}; " + (
        f"no member came or went in {same} of {counted(len(rows), 'rebalance')}"
    )


def untimed_statement(count: int, span: Span) -> Iterator[str]:
    """A statement for rows without a timestamp."""
    if count and span != Span():
        yield (
            f"{counted(count, 'row')} without a time, because the records have no timestamp: listed whatever the span "
            "is, and perhaps from another time"
        )


def _value(value: Any) -> Value:
    if isinstance(value, datetime):
        return time_text(epoch_ms(value))
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    plain: Value = value
    return plain


def write_list(
    complete: Completeness,
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    output_format: str,
    out: TextIO,
    *,
    first: Sequence[str],
    then: Sequence[str] = (),
    sums: str = "",
) -> None:
    """Print a list behind the statement whether it is complete. In a table for people the reasons come after it, and
    before it what it sums up to."""
    if output_format == "json":
        statement = {"is_complete": complete.is_complete, "completeness": complete.statements}
        out.write(json_line(statement))
        write_answers(columns, rows, output_format, out, first=first)
        return
    is_for_people = output_format == "table"
    first_statement, *others = complete.statements
    if is_for_people and not rows:
        # what the list cannot have may be why it is empty
        others.sort(key=lambda it: (not it.startswith(NOT_HERE), it not in NOT_IN_ANY_LOG.values()))
    lines = [folded_text(f"# {line}", out, "#   ") + "\n" for line in (first_statement, *others)]
    before = 1 if is_for_people else len(lines)
    out.writelines(lines[:before])
    if sums:
        out.write(f"# {sums}\n")
    if rows or not is_for_people:
        write_answers(columns, rows, output_format, out, first=first, then=then)
    else:
        out.write(f"# Nothing is listed{'' if complete.is_complete else ', but not all was read:'}\n")
    out.writelines(lines[before:])


def without_unread(complete: Completeness, listing: Listing, unread: str) -> Completeness:
    """The statement where assignments could not be decoded although every record was read: a list of owners is then
    incomplete.
    """
    if listing is not Listing.OWNERS:
        return complete.adding(unread)
    first, *rest = complete.statements
    if complete.is_complete:
        first = f"NOT {first.replace(' was read', ' was read, but not all that clients wrote')}"
    return Completeness(False, (first, unread, *rest))


def past_statements(tables: ClusterTables, span: Span, group_ids: Collection[str] | None) -> list[str]:
    """Statements about groups with rows of a former log partition, from before `__consumer_offsets` got more
    partitions, as of the end of the span.
    """
    at_ms = None if span.to_ms is None else span.to_ms - 1
    silver = SilverAt(tables, at_ms, group_ids)
    moves = silver.left_behind().moves
    lines = [
        f"group {short(group_id)}: {listed_move_text(move)}"
        for group_id, move in sorted(moves.items())[:MOVES_LISTED_MAX]
    ]
    if len(moves) > len(lines):
        lines.append(
            f"... and {counted(len(moves) - len(lines), 'group')} more: gold names the log partition of each row"
        )
    if group_ids is not None:
        rows = silver.scan(GROUP_GENERATIONS, ("group_id", "log_partition")).to_pylist()
        places = {row["group_id"]: row["log_partition"] for row in rows if row["group_id"] not in moves}
        lines += [f"group {short(group_id)}: {text}" for (group_id,), text in moved(silver, places)]
    return lines


def _of_other_types(silver: SilverAt, listing: Listing) -> Iterator[str]:
    """Statements about requested groups whose type never occurs in this list."""
    of_shares = LISTS[listing].logs == OF_SHARES
    if not of_shares and listing is not Listing.OWNERS:
        return
    rows = silver.scan(GROUP_GENERATIONS, ("group_id", "group_type"))
    types: dict[str, set[str]] = {}
    for row in rows.group_by(["group_id", "group_type"]).aggregate([]).to_pylist():
        types.setdefault(row["group_id"], set()).add(row["group_type"])
    for group_id, found in sorted(types.items()):
        if of_shares and GroupType.SHARE not in found:
            yield f"group {short(group_id)} is no share group: it is never in this list"
        elif listing is Listing.OWNERS and found == {GroupType.SHARE}:
            yield f"group {short(group_id)} is a share group, which has no owners: it is never in this list"


def run_audit_report(
    tables: ClusterTables,
    *,
    listing: Listing,
    span: Span,
    group_ids: Collection[str] | None,
    output_format: str,
    partition_counts: Mapping[str, int] | None = None,
    out: TextIO | None = None,
) -> bool:
    """Print the list after the statement of its completeness. Returns whether it is complete.

    Raises ArgumentError for a group that is not in the log, and for a span outside of the log.
    """
    out = out or sys.stdout
    listed_from = LISTS[listing]
    for log in listed_from.logs:
        require_in_log(tables, log, span.from_ms, span.to_ms, group_ids)
    if group_ids and "group_id" not in listed_from.table.column_names:
        raise ArgumentError(f"rows of --list {listing} have no group: leave out --group")
    if span != Span() and not listed_from.time and listed_from.more != BEGAN_AT:
        raise ArgumentError(f"rows of --list {listing} have no time: leave out --from and --to")
    captured = [log for log, ends in log_ends(tables, listed_from.logs).items() if ends.ends] or listed_from.logs
    of_logs = [completeness(tables, log, span, group_ids, partition_counts) for log in captured]
    of_logs.sort(key=lambda it: it.is_complete)  # the first line is of one that is not, if there is any
    is_complete = all(it.is_complete for it in of_logs)
    statements = [line for it in of_logs for line in it.statements[is_complete:]]
    summary = [_complete(", and of ".join(it.those for it in of_logs))] if is_complete else []
    complete = Completeness(is_complete, tuple(dict.fromkeys([*summary, *statements])))
    silver = SilverAt(tables, group_ids=group_ids)
    if listing in OF_ASSIGNMENTS:
        unread = unread_groups(silver, *overlapping(span))
        if unread:
            complete = without_unread(complete, listing, unread_text(unread))
    if listed_from.logs == OF_GROUPS:
        complete = complete.adding(*past_statements(tables, span, group_ids))
    if listing in NOT_IN_ANY_LOG:
        complete = complete.adding(NOT_IN_ANY_LOG[listing])
    if listing is Listing.ARCHIVED:
        complete = complete.adding(*_skipped(tables, group_ids, span))
    if group_ids:
        complete = complete.adding(*_of_other_types(silver, listing))
    columns, rows = listed(tables, group_ids, listing, span)
    see_also = listed_from.see_also
    if see_also is not None and (there := _sums(tables, group_ids, see_also, span, LINE_CHARACTERS_MAX)):
        complete = complete.adding(f"{NOT_HERE}: {there}: {_command_of(tables, see_also, group_ids, span)}")
    if listing in (Listing.RESETS, Listing.REWINDS):
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        back = [it for it in found if it["at"] is not None and int(it["delta"] or 0) < 0]
        for group_id in list(dict.fromkeys(str(it["group_id"]) for it in back))[:RESTORED_MAX]:
            times = (str(it["at"]) for it in back if it["group_id"] == group_id)
            back_ms = sorted(epoch_ms(datetime.fromisoformat(it)) for it in times)
            complete = complete.adding(*offer(tables, group_id, back_ms))
    if listing is Listing.FLAPPING and rows:
        complete = complete.adding(_why_storms([dict(zip(columns, row, strict=True)) for row in rows]))
    if (time := listed_from.time_name or listed_from.time) in columns:
        place = columns.index(time)
        complete = complete.adding(*untimed_statement(sum(row[place] is None for row in rows), span))
    width = (room_for(out) or LINE_CHARACTERS_MAX) - len("# ")
    sums = _sums(tables, group_ids, listing, span, width) if output_format == "table" and len(rows) > 1 else ""
    first, then = listed_from.first, listed_from.then
    write_list(complete, columns, rows, output_format, out, first=first, then=then, sums=sums)
    return complete.is_complete
