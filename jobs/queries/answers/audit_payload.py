"""`audit --payload`: the records that share groups archived, offset by offset.

Each offset in gold.archived_records is looked up in its source topic, in segment files or on a live cluster, and on
dead-letter topics, if there are any. The source log shows what the coordinator's log cannot: at a transaction marker or
a hole nothing was rejected.
"""

import json
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, TextIO

import pyarrow.compute as pc

from coordinator_core.confidence import CERTAIN
from coordinator_core.inference.facts.configs import DEAD_LETTER_TOPIC
from jobs.bronze.identity import refuse_folders_of_other_clusters, refuse_other_cluster
from jobs.console.output import Value, time_text
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms
from jobs.queries.answers.audit_report import Span, completeness, untimed_statement, within, write_list
from jobs.queries.answers.dead_letters import CAUSE_OF_MESSAGE, COPIED_CAUSES, CopyState, DeadLetters, read_dead_letters
from jobs.queries.answers.payload import Payload, RecordRange, read_payloads
from jobs.queries.as_of.as_of import SHARES_LOG, SilverAt
from jobs.queries.as_of.in_log import require_in_log
from jobs.settings import BrokerAddress
from jobs.sources.broker import TIMEOUT_MS, Broker
from schemas.dead_letters import DeadLetterOrigin
from schemas.tables.gold import ARCHIVED_RECORDS
from schemas.tables.silver import CONFIGS, SHARE_BATCH_TRANSITIONS

ROW_COLUMNS: Final = (
    "group_id",
    "topic",
    "topic_id",
    "partition",
    "first_offset",
    "last_offset",
    "log_offset",
    "at",
    "cause",
    "likely_cause",
    "confidence",
    "dead_letter",
)
COLUMNS: Final = (
    "group_id",
    "topic",
    "partition",
    "offset",
    "at",
    "cause",
    "likely_cause",
    "presence",
    "timestamp",
    "key",
    "value_size",
    "headers",
    "dead_letter",
    "dead_letter_place",
    "dead_letter_message",
    "confidence",
)
ANSWER: Final = (
    *("group_id", "topic", "partition", "offset", "likely_cause", "confidence", "presence", "dead_letter"),
    *("key", "dead_letter_place", "value"),
)

Row = Mapping[str, Any]


def run_payload(
    tables: ClusterTables,
    *,
    span: Span,
    group_ids: Collection[str] | None,
    sources: Sequence[str],
    cluster: BrokerAddress | None = None,
    timeout_ms: int = TIMEOUT_MS,
    dead_letter_topics: Sequence[str] = (),
    with_values: bool = False,
    without_copy: bool = False,
    output_format: str,
    partition_counts: Mapping[str, int] | None = None,
    out: TextIO | None = None,
) -> bool:
    """Print the statement of completeness, then one row for each offset archived in the span. Returns whether it is
    complete.

    `dead_letter_topics`: by default those in the groups' configs. `without_copy`: only offsets archived in a group with
    a dead-letter topic that have no copy there. Raises SourceError where a source cannot be read or is of another
    cluster, ArgumentError like `run_audit_report`.
    """
    out = out or sys.stdout
    log = SHARES_LOG
    require_in_log(tables, log, span.from_ms, span.to_ms, group_ids)
    refuse_folders_of_other_clusters(tables, sources)
    silver = SilverAt(tables, group_ids=group_ids)
    rows = _archived(silver, span)
    ever = rows if span == Span() else _archived(silver, Span())
    if without_copy:
        rows = [row for row in rows if row["dead_letter"] is not None]
    ranges = [
        RecordRange(row["topic"] or "", row["partition"], row["first_offset"], row["last_offset"]) for row in rows
    ]
    topics = dead_letter_topics or _configured_topics(tables)
    with nullcontext() if cluster is None else Broker.connect(cluster, timeout_ms=timeout_ms) as broker:
        if broker is not None:
            refuse_other_cluster(tables, broker)
        payloads = read_payloads(sources, ranges, broker=broker, with_values=with_values)
        letters = read_dead_letters(sources, topics, broker=broker) if topics else None
    complete = completeness(tables, log, span, group_ids, partition_counts)
    complete = complete.adding(*untimed_statement(sum(row["at"] is None for row in rows), span))
    columns = (*COLUMNS, *(["value"] if with_values else []))
    done = _done(silver)
    lines = list(_lines(rows, payloads, letters, done, _ranges(ever), with_values))
    if without_copy:
        place = COLUMNS.index("dead_letter")
        lines = [line for line in lines if line[place] != CopyState.FOUND]
    write_list(complete, columns, lines, output_format, out, first=ANSWER)
    return complete.is_complete


def _archived(silver: SilverAt, span: Span) -> list[Row]:
    """Rows of gold, ordered by group, log position and time."""
    rows: list[Row] = silver.scan(ARCHIVED_RECORDS, ROW_COLUMNS, *within("at", span)).to_pylist()
    return sorted(rows, key=lambda row: (row["group_id"], row["topic"] or "", row["partition"], row["first_offset"]))


def _configured_topics(tables: ClusterTables) -> list[str]:
    """Dead-letter topics in the config of any group."""
    values = tables.read(CONFIGS, ["value"], resource_type="GROUP", name=DEAD_LETTER_TOPIC)["value"]
    return sorted({value for value in values.to_pylist() if value})


SharePlace = tuple[str, str, int]
"""Group id, topic id and partition."""
Done = Mapping[SharePlace, Sequence[tuple[int, int, int]]]
"""Ranges whose ARCHIVING has ended: log offset of the end, first and last offset."""


def _done(silver: SilverAt) -> Done:
    names = ("group_id", "topic_id", "partition", "log_offset", "first_offset", "last_offset")
    ended = silver.scan(SHARE_BATCH_TRANSITIONS, names, pc.field("from_state") == "ARCHIVING")
    done: dict[SharePlace, list[tuple[int, int, int]]] = {}
    for row in ended.to_pylist():
        group_id, topic_id, partition, *range_ = (row[name] for name in names)
        done.setdefault((group_id, topic_id, partition), []).append((range_[0], range_[1], range_[2]))
    return done


def _ranges(rows: Iterable[Row]) -> dict[SharePlace, tuple[list[int], list[int]]]:
    """First offsets and last offsets of all ranges that were given up, each ascending."""
    found: dict[SharePlace, tuple[list[int], list[int]]] = {}
    for row in rows:
        firsts, lasts = found.setdefault((row["group_id"], row["topic_id"], row["partition"]), ([], []))
        insort(firsts, row["first_offset"])
        insort(lasts, row["last_offset"])
    return found


def _lines(
    rows: Iterable[Row],
    payloads: Iterable[Payload],
    letters: DeadLetters | None,
    done: Done,
    ever: Mapping[SharePlace, tuple[Sequence[int], Sequence[int]]],
    with_values: bool,
) -> Iterator[tuple[Value, ...]]:
    found = {(payload.topic, payload.partition, payload.offset): payload for payload in payloads}
    for row in rows:
        firsts, lasts = ever[row["group_id"], row["topic_id"], row["partition"]]
        for offset in range(row["first_offset"], row["last_offset"] + 1):
            payload = found[row["topic"] or "", row["partition"], offset]
            copy = _copy(row, offset, letters, done)
            if bisect_right(firsts, offset) - bisect_left(lasts, offset) > 1:
                # after an admin's reset a record may be given up again: the copy may be of the other time
                copy = copy._replace(cause=None)
            yield (
                row["group_id"],
                row["topic"],
                row["partition"],
                offset,
                time_text(epoch_ms(row["at"])) if row["at"] is not None else None,
                row["cause"],
                copy.cause or row["likely_cause"],
                payload.presence.value,
                _time(payload.timestamp_ms),
                _text(payload.key),
                payload.value_size,
                json.dumps([[name, _text(value)] for name, value in payload.headers], ensure_ascii=False),
                copy.state,
                copy.place,
                copy.message,
                row["confidence"] if copy.cause is None else CERTAIN,
                *([_text(payload.value)] if with_values else []),
            )


class _Copy(NamedTuple):
    """The dead-letter copy of an offset; empty without a dead-letter topic."""

    state: str | None = None
    place: str | None = None
    """Position of the first copy."""
    message: str | None = None
    cause: str | None = None
    """The `likely_cause` that the copy's message confirms."""


def _copy(row: Row, offset: int, letters: DeadLetters | None, done: Done) -> _Copy:
    if letters is None:
        return _Copy(row["dead_letter"] if row["dead_letter"] == CopyState.REFUSED else None)
    origin = DeadLetterOrigin(row["group_id"], row["topic"] or "", row["partition"], offset)
    ended = done.get((row["group_id"], row["topic_id"], row["partition"]), ())
    state = letters.state_of(
        origin,
        row["cause"],
        epoch_ms(row["at"]) if row["at"] is not None else letters.newest_ms,
        row["dead_letter"],
        is_done=any(at > row["log_offset"] and first <= offset <= last for at, first, last in ended),
    ).value
    found = letters.letters.get(origin)
    if not found:
        return _Copy(state)
    first = found[0]
    settled = {CAUSE_OF_MESSAGE.get(letter.message or "") for letter in found}
    cause = settled.pop() if len(settled) == 1 and row["cause"] in COPIED_CAUSES else None
    return _Copy(state, f"{first.topic}-{first.partition}:{first.offset}", first.message, cause)


def _time(timestamp_ms: int | None) -> str | None:
    """A producer may set any timestamp; those beyond the calendar become None."""
    is_shown = timestamp_ms is not None and 0 <= timestamp_ms <= TIMESTAMP_MS_MAX
    return time_text(timestamp_ms) if is_shown else None


def _text(data: bytes | None) -> str | None:
    r"""Bytes as text; invalid UTF-8 as `\xNN`."""
    return None if data is None else data.decode(errors="backslashreplace")
