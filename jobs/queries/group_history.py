"""history: the events of a group, as lines for a terminal. groups: all groups, and which of them need attention.

Both read gold as of the last whole audit, without Spark. Each event has its confidence: CERTAIN, LIKELY or GUESS. For
lists with all columns and a statement of completeness, see `audit`.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TextIO

import pyarrow.compute as pc

from coordinator_core.plurals import counted
from jobs.console.names import short
from jobs.console.output import Value, time_text, write_answers
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.queries.as_of import GROUPS_LOG, SHARES_LOG
from jobs.queries.behind import not_audited_lines
from jobs.queries.caveats import log_remarks
from jobs.queries.clock_steps import ClockStep, clock_steps, step_lines
from jobs.queries.findings import TRANSACTION_MARKER, audit_lacks, groups_not_judged
from jobs.queries.group_verdicts import OK, group_verdicts
from jobs.queries.in_log import require_in_any_log, require_in_log
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, REBALANCES, REDELIVERIES
from schemas.tables.silver import GROUP_GENERATIONS

LINE_CHARACTERS_MAX: Final = 120
EVENT_COLUMNS: Final = ("at", "event", "confidence", "text")
GROUP_COLUMNS: Final = (
    "GROUP", "TYPE", "STATE", "MEMBERS", "LAST-CHANGE", "REBALANCES", "STORMS", "UNOWNED-MS", "GIVEN-UP", "REDELIVERED",
    "REWINDS", "VERDICT", "WHY",
)  # fmt: skip

LOG_OF_TABLE: Final = (
    (REBALANCES, GROUPS_LOG),
    (COMMIT_ANOMALIES, GROUPS_LOG),
    (REDELIVERIES, SHARES_LOG),
    (ARCHIVED_RECORDS, SHARES_LOG),
)
"""The tables with events, and the log that each is from."""
LISTED: Final = "events are listed by the times that the log has, and with their place in it where it has a time twice"


class Event(NamedTuple):
    at_ms: int | None
    """None: its records have no timestamp."""
    event: str
    confidence: str | None
    text: str
    log_position: str | None = None
    """Where it is in the log, if the log has its time more than once."""

    @property
    def line(self) -> str:
        """The event as a line for the terminal."""
        sure = f" ({self.confidence})" if self.confidence else ""
        place = f" at {self.log_position}" if self.log_position else ""
        line = f"{time_text(self.at_ms) or 'at no known time'} {self.event}{sure}{place}: {self.text}"
        return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[: LINE_CHARACTERS_MAX - 3]}..."


def events_and_steps(
    tables: ClusterTables, group_id: str, *, from_ms: int | None, to_ms: int | None
) -> tuple[list[Event], list[ClockStep]]:
    """Rebalances, commit anomalies, redeliveries and archived records of a group, by time, and the clock steps of the
    log partitions that they are from. `to_ms` is exclusive. Events without a timestamp, which may be of any time, come
    last, by kind and in log order.

    Raises ArgumentError for a group that is not in the log, and for a span outside of what was read.
    """
    require_in_log(tables, GROUPS_LOG, from_ms, to_ms, [group_id])
    gold = WholeAudit.newest(tables)
    rows = {
        table: _rows(gold, table, group_id, "started_at" if table is REBALANCES else "at") for table, _ in LOG_OF_TABLE
    }
    logs = {(log, row["log_partition"]) for table, log in LOG_OF_TABLE for row in rows[table]}
    steps = [step for step in clock_steps(gold) if (step.log, step.log_partition) in logs]
    if steps:
        _place(rows, steps, WholeRun.newest(tables), group_id)
    found = [
        *map(_rebalance, rows[REBALANCES]),
        *map(_commit, rows[COMMIT_ANOMALIES]),
        *_records("redelivered", rows[REDELIVERIES]),
        *_records("given up", rows[ARCHIVED_RECORDS]),
    ]
    begins, ends = from_ms if from_ms is not None else -1, to_ms if to_ms is not None else sys.maxsize
    timed = [event for event in found if event.at_ms is not None and begins <= event.at_ms < ends]
    untimed = [event for event in found if event.at_ms is None]
    return [*sorted(timed, key=lambda it: (it.at_ms, it.event, it.confidence or "", it.text)), *untimed], steps


def _place(
    rows: Mapping[Table, Sequence[dict[str, Any]]], steps: Sequence[ClockStep], run: WholeRun, group_id: str
) -> None:
    """Give rows of times that the log has more than once their log position."""
    columns = ["group_id", "log_partition", "incarnation", "generation", "from_log_offset"]
    generations = run.read(GROUP_GENERATIONS, columns)
    of_group = generations.filter(pc.equal(generations["group_id"], group_id)).to_pylist()
    began = {tuple(row[name] for name in columns[1:4]): row["from_log_offset"] for row in of_group}
    for table, log in LOG_OF_TABLE:
        for row in rows[table]:
            is_repeated = row["at_ms"] is not None and any(
                (step.log, step.log_partition) == (log, row["log_partition"]) and step.repeats(row["at_ms"])
                for step in steps
            )
            if is_repeated:
                is_generation = table is REBALANCES
                generation = (row["log_partition"], row.get("incarnation"), row.get("to_generation"))
                log_offset = began.get(generation) if is_generation else row["log_offset"]
                row["log_position"] = f"{log}-{row['log_partition']}@{'?' if log_offset is None else log_offset}"


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
        sink.writelines(f"{event.line}\n" for event in events)
    else:
        is_placed = any(it.log_position for it in events)
        columns = (*EVENT_COLUMNS, "log_position") if is_placed else EVENT_COLUMNS
        rows = [(time_text(it.at_ms), it.event, it.confidence, it.text, it.log_position) for it in events]
        write_answers(columns, [row[: len(columns)] for row in rows], output_format, sink)
    return [*step_lines(steps, from_ms, to_ms, LISTED), *_remarks(tables, group_id)]


def _remarks(tables: ClusterTables, group_id: str | None = None) -> Iterator[str]:
    """What gold lacks of a group, or of all groups."""
    yield from not_audited_lines(tables)
    if group_id is not None and group_id in groups_not_judged(tables):
        yield f"group {short(group_id)} could not be judged, so gold lacks it: see gold.log_anomalies"
    lacks = audit_lacks(tables)
    if lacks:
        yield f"gold was made without: {'; '.join(lacks)}: see gold.log_anomalies"
    group_ids = None if group_id is None else [group_id]
    yield from log_remarks(tables, group_ids, with_offsets=group_id is not None)


def _rows(gold: WholeAudit, table: Table, group_id: str, time_column: str = "at") -> list[dict[str, Any]]:
    """Rows of a group in log order, separately for each log partition."""
    rows = gold.read(table)
    rows = rows.filter(pc.equal(rows["group_id"], group_id))
    found = rows.to_pylist()
    for row in found:
        row["at_ms"] = None if row[time_column] is None else epoch_ms(row[time_column])
    place = ("incarnation", "to_generation") if table is REBALANCES else ("log_offset",)
    return sorted(found, key=itemgetter("log_partition", *place))


def _rebalance(row: Mapping[str, Any]) -> Event:
    causes = " + ".join(row["causes"] or [row["cause"] or "UNKNOWN"])
    text = f"to generation {row['to_generation']} by {causes}, {counted(row['member_count'], 'member')}"
    if row["partitions_moved"]:
        text += f", {row['partitions_moved']} of {row['partitions_total']} partitions moved"
    if row["unowned_partition_ms"]:
        text += f", {row['unowned_partition_ms']:,} partition-ms unowned"
    event = "storm rebalance" if row["in_storm"] else "rebalance"
    return Event(row["at_ms"], event, row["confidence"], text, row.get("log_position"))


def _commit(row: Mapping[str, Any]) -> Event:
    place = f"{short(row['topic'])}-{row['partition']}"
    text = f"{place} from {_offset(row['from_offset'])} to {_offset(row['to_offset'])}"
    if row["likely_cause"]:
        text += f", {row['likely_cause']}"
    return Event(row["at_ms"], f"commit {row['kind']}", row["confidence"], text, row.get("log_position"))


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
        spans = sorted((row["first_offset"], row["last_offset"]) for row in same)
        count = sum(last - first + 1 for first, last in spans)
        first, last = spans[0][0], spans[-1][1]
        offsets = f"offset {first}" if count == 1 else f"{count:,} records of offsets {first} to {last}"
        why = f"{cause}, {likely}" if likely else cause
        at = None if at_ms == sys.maxsize else at_ms
        if likely == TRANSACTION_MARKER:  # a transaction marker takes an offset, but no record is lost
            offsets = offsets.replace(" records of ", " markers at ")
            yield Event(at, "passed over", confidence, f"{short(topic)}-{partition} {offsets}, {likely}", place or None)
        else:
            yield Event(at, event, confidence, f"{short(topic)}-{partition} {offsets} by {why}", place or None)


def run_groups(
    tables: ClusterTables,
    *,
    from_ms: int | None,
    match: str | None,
    needs_attention: bool,
    output_format: str,
    out: TextIO | None = None,
) -> list[str]:
    """Print groups and their verdicts. Returns the caveats as lines.

    Raises ArgumentError for a time after the end of what was read: no group is known to be OK then.
    """
    require_in_any_log(tables, from_ms, None)
    rows: list[list[Value]] = []
    for line in group_verdicts(tables, from_ms=from_ms, match=match):
        if needs_attention and line.verdict == OK:
            continue
        values: dict[str, Any] = {**line._asdict(), "last_change_ms": time_text(line.last_change_ms)}
        rows.append(list(values.values())[: len(GROUP_COLUMNS)])
    names = GROUP_COLUMNS if output_format == "table" else [name.lower().replace("-", "_") for name in GROUP_COLUMNS]
    write_answers(names, rows, output_format, out or sys.stdout)
    return list(_remarks(tables))
