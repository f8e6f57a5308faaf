"""history: what happened to a group, event by event, in lines that a terminal takes; groups: which there are, and which
need somebody today.

Both read gold as the last whole audit left it, and start no Spark. What an event rests on is in its line: CERTAIN,
LIKELY or GUESS. Lists with all columns, and with a word on whether they are complete, are `audit`'s.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TextIO

import pyarrow.compute as pc

from coordinator_core.inference.calendar import DAY_MS
from jobs.bronze.log_ends import COORDINATOR_TOPICS, log_ends
from jobs.console.names import short
from jobs.console.output import Value, time_text, write_answers
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.queries.findings import TRANSACTION_MARKER
from jobs.queries.in_log import GROUPS_LOG, require_in_log
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, REBALANCES, REDELIVERIES
from schemas.tables.silver import GROUP_GENERATIONS

LINE_CHARACTERS_MAX: Final = 120
STALLED: Final = "STALLED"
EVENT_COLUMNS: Final = ("at", "event", "confidence", "text")
GROUP_COLUMNS: Final = (
    "GROUP", "TYPE", "STATE", "MEMBERS", "LAST-CHANGE", "REBALANCES", "STORMS", "UNOWNED-MS", "GIVEN-UP", "REDELIVERED",
    "REWINDS", "VERDICT", "WHY",
)  # fmt: skip
OK: Final = "OK"
WARN: Final = "WARN"


class Event(NamedTuple):
    """One thing that happened to a group."""

    at_ms: int
    event: str
    confidence: str | None
    text: str

    @property
    def line(self) -> str:
        """As a terminal shows it."""
        sure = f" ({self.confidence})" if self.confidence else ""
        line = f"{time_text(self.at_ms)} {self.event}{sure}: {self.text}"
        return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[: LINE_CHARACTERS_MAX - 3]}..."


def events_of(
    warehouse: Warehouse, cluster_id: str, group_id: str, *, from_ms: int | None, to_ms: int | None
) -> list[Event]:
    """Rebalances, odd commits, redeliveries and records given up of a group, by time. `to_ms` is exclusive.

    Raises ArgumentError for a group that is not in the log, and for a span outside of what was read.
    """
    require_in_log(warehouse, cluster_id, GROUPS_LOG, from_ms, to_ms, [group_id])
    gold = WholeAudit.newest(warehouse, cluster_id)
    found = [
        *(_rebalance(row) for row in _rows(gold, REBALANCES, group_id, "started_at")),
        *(_commit(row) for row in _rows(gold, COMMIT_ANOMALIES, group_id)),
        *_records("redelivered", _rows(gold, REDELIVERIES, group_id)),
        *_records("given up", _rows(gold, ARCHIVED_RECORDS, group_id)),
    ]
    begins, ends = from_ms if from_ms is not None else -1, to_ms if to_ms is not None else sys.maxsize
    return sorted(event for event in found if begins <= event.at_ms < ends)


def run_history(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    group_id: str,
    from_ms: int | None,
    to_ms: int | None,
    output_format: str,
    out: TextIO | None = None,
) -> None:
    """Print what happened to a group."""
    events = events_of(warehouse, cluster_id, group_id, from_ms=from_ms, to_ms=to_ms)
    sink = out or sys.stdout
    if output_format == "table":
        sink.writelines(f"{event.line}\n" for event in events)
        return
    rows = [(time_text(it.at_ms), it.event, it.confidence, it.text) for it in events]
    write_answers(EVENT_COLUMNS, rows, output_format, sink)


def _rows(gold: WholeAudit, table: Table, group_id: str, time_column: str = "at") -> Iterator[dict[str, Any]]:
    rows = gold.read(table)
    rows = rows.filter(pc.equal(rows["group_id"], group_id))
    for row in rows.to_pylist():
        if row[time_column] is not None:
            yield row | {"at_ms": epoch_ms(row[time_column])}


def _rebalance(row: Mapping[str, Any]) -> Event:
    causes = " + ".join(row["causes"] or [row["cause"] or "UNKNOWN"])
    text = f"to generation {row['to_generation']} by {causes}, {row['member_count']} members"
    if row["partitions_moved"]:
        text += f", {row['partitions_moved']} of {row['partitions_total']} partitions moved"
    if row["unowned_partition_ms"]:
        text += f", {row['unowned_partition_ms']:,} partition-ms unowned"
    return Event(row["at_ms"], "storm rebalance" if row["in_storm"] else "rebalance", row["confidence"], text)


def _commit(row: Mapping[str, Any]) -> Event:
    place = f"{short(row['topic'])}-{row['partition']}"
    text = f"{place} from {_offset(row['from_offset'])} to {_offset(row['to_offset'])}"
    if row["likely_cause"]:
        text += f", {row['likely_cause']}"
    return Event(row["at_ms"], f"commit {row['kind']}", row["confidence"], text)


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def _records(event: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """One event for all records of a partition to which the same happened at one time."""

    def sameness(row: Mapping[str, Any]) -> tuple[Any, ...]:
        topic = row["topic"] or row["topic_id"]
        return row["at_ms"], topic, row["partition"], row["cause"], row["likely_cause"] or "", row["confidence"]

    for (at_ms, topic, partition, cause, likely, confidence), same in groupby(sorted(rows, key=sameness), sameness):
        spans = sorted((row["first_offset"], row["last_offset"]) for row in same)
        count = sum(last - first + 1 for first, last in spans)
        first, last = spans[0][0], spans[-1][1]
        offsets = f"offset {first}" if count == 1 else f"{count:,} records of offsets {first} to {last}"
        why = f"{cause}, {likely}" if likely else cause
        yield Event(at_ms, event, confidence, f"{short(topic)}-{partition} {offsets} by {why}")


class GroupVerdict(NamedTuple):
    """A group at the end of the log, and its last day."""

    group_id: str
    group_type: str
    state: str
    member_count: int | None
    last_change_ms: int | None
    rebalance_count: int
    storm_count: int
    unowned_ms: int
    given_up_count: int
    redelivered_count: int
    rewind_count: int
    verdict: str
    why: str


def group_verdicts(
    warehouse: Warehouse, cluster_id: str, *, from_ms: int | None = None, match: str | None = None
) -> list[GroupVerdict]:
    """Groups that the log still has, those that need somebody first. Counts are from `from_ms` on: a day before the
    newest record that was read, as they are by default. `match`: a part of the id, upper and lower case alike.

    STALLED: the newest odd commit of a partition says so. WARN: storms, records given up, or offsets that went back.
    """
    names = ["group_id", "group_type", "state", "member_count", "valid_from", "valid_to"]
    newest = WholeRun.newest(warehouse, cluster_id).read(GROUP_GENERATIONS, names)
    newest = newest.filter(newest["valid_to"].is_null())
    ends = log_ends(warehouse, cluster_id, COORDINATOR_TOPICS).values()
    last_ms = max((end.newest_ms for end in ends if end.newest_ms is not None), default=0)
    since_ms = from_ms if from_ms is not None else last_ms - DAY_MS
    gold = WholeAudit.newest(warehouse, cluster_id)
    counts = _counts(gold, since_ms)
    stalled = _stalled(gold)
    found = []
    for row in newest.to_pylist():
        group_id = row["group_id"]
        if match is not None and match.casefold() not in group_id.casefold():
            continue
        of_group = counts[group_id]
        why = [
            f"{of_group[name]:,} {words}"
            for name, words in (("storms", "in storms"), ("given up", "given up"), ("rewinds", "rewinds"))
            if of_group[name]
        ]
        verdict = WARN if why else OK
        if stalled[group_id]:
            verdict, why = STALLED, [f"{stalled[group_id]} partitions stay", *why]
        found.append(
            GroupVerdict(
                group_id,
                row["group_type"],
                row["state"],
                row["member_count"],
                None if row["valid_from"] is None else epoch_ms(row["valid_from"]),
                of_group["rebalances"],
                of_group["storms"],
                of_group["unowned"],
                of_group["given up"],
                of_group["redelivered"],
                of_group["rewinds"],
                verdict,
                ", ".join(why),
            )
        )
    order = (STALLED, WARN, OK)
    return sorted(found, key=lambda it: (order.index(it.verdict), -it.storm_count, -it.given_up_count, it.group_id))


def _counts(gold: WholeAudit, since_ms: int) -> Mapping[str, Counter[str]]:
    """What happened to each group since a time."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def since(table: Table, names: Sequence[str], time_column: str = "at") -> Iterator[dict[str, Any]]:
        for row in gold.read(table, ["group_id", time_column, *names]).to_pylist():
            if row[time_column] is not None and epoch_ms(row[time_column]) >= since_ms:
                yield row

    for row in since(REBALANCES, ("in_storm", "unowned_partition_ms"), "started_at"):
        counts[row["group_id"]].update(
            {"rebalances": 1, "storms": int(bool(row["in_storm"])), "unowned": row["unowned_partition_ms"] or 0}
        )
    for row in since(COMMIT_ANOMALIES, ("kind",)):
        counts[row["group_id"]]["rewinds"] += row["kind"] == "REWIND"
    for table, name in ((ARCHIVED_RECORDS, "given up"), (REDELIVERIES, "redelivered")):
        for row in since(table, ("first_offset", "last_offset", "likely_cause")):
            if row["likely_cause"] == TRANSACTION_MARKER:
                continue
            counts[row["group_id"]][name] += row["last_offset"] - row["first_offset"] + 1
    return counts


def _stalled(gold: WholeAudit) -> Mapping[str, int]:
    """Groups, and how many of their partitions the newest odd commit calls stalled."""
    newest: dict[tuple[str, str, int], tuple[int, str]] = {}
    names = ["group_id", "topic", "partition", "log_offset", "kind"]
    for row in gold.read(COMMIT_ANOMALIES, names).to_pylist():
        place = row["group_id"], row["topic"], row["partition"]
        newest[place] = max(newest.get(place, (-1, "")), (row["log_offset"], row["kind"]))
    return Counter(group_id for (group_id, _, _), (_, kind) in newest.items() if kind == STALLED)


def run_groups(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    from_ms: int | None,
    match: str | None,
    needs_attention: bool,
    output_format: str,
    out: TextIO | None = None,
) -> None:
    """Print groups and their verdicts."""
    rows: list[list[Value]] = []
    for line in group_verdicts(warehouse, cluster_id, from_ms=from_ms, match=match):
        if needs_attention and line.verdict == OK:
            continue
        values: dict[str, Value] = {**line._asdict(), "last_change_ms": time_text(line.last_change_ms)}
        rows.append(list(values.values()))
    names = GROUP_COLUMNS if output_format == "table" else [name.lower().replace("-", "_") for name in GROUP_COLUMNS]
    write_answers(names, rows, output_format, out or sys.stdout)
