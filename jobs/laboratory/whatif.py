"""whatif: replay a group's recorded history with other settings.

Reads the silver rows of one group, and prints the results of `simulator.whatif`: which rebalances, deliveries
and archived records would have been different, under which assumptions, and what the log cannot show.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.kafka_versions import kafka_version as release
from coordinator_core.errors import CoreError, UnknownKafkaVersion, WhatIfError
from coordinator_core.inference.facts.clock import is_time, lacks_times
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.text import counted
from jobs.bronze.log_ends import log_ends, newest_of
from jobs.console.command_name import command
from jobs.console.names import short
from jobs.console.output import Value, folded_text, time_text, write_answers, write_csv, write_json
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import WhatIfArgumentError, WhatIfJobError
from jobs.gold.share_reader import configs
from jobs.queries.as_of.in_log import require_groups, require_in_any_log
from jobs.settings import Settings, first_night
from jobs.silver.bundles import group_lives
from jobs.silver.homes import CoordinatorPartitions, LeftBehind
from jobs.silver.reader import SilverFiles
from jobs.silver.rows import rows_of
from schemas.consumer_offsets import TOPIC as GROUPS_LOG
from schemas.group_types import GroupType
from schemas.share_group_state import TOPIC as SHARES_LOG
from schemas.tables.declare import Table
from schemas.tables.silver import (
    CONFIGS,
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
)
from simulator.whatif.answer import (
    ALL_ASSUMPTIONS,
    MEASURED,
    answer_group,
    answer_share_group,
    answer_share_members_of,
)
from simulator.whatif.release import ABOUT as RELEASE_ABOUT
from simulator.whatif.release import ReleaseSource
from simulator.whatif.settings import Question, Recorded, question_of
from simulator.whatif.shares import Transition
from simulator.whatif.verdicts import TOTAL, Verdict, WhatIfRow

END_OF_TIME: Final = 2**62
GROUP_TABLES: Final = (GROUP_GENERATIONS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS, GROUP_EVENTS, OFFSET_COMMITS)


def asked(
    changed: Sequence[str], recorded: Sequence[str], settings: Settings, kafka_version: str | None = None
) -> Question:
    """The question for the given options. Raises WhatIfArgumentError."""
    usual = Recorded(
        consumer_session_timeout_ms=settings.inference.modern_session_timeout_ms,
        delivery_count_limit=settings.inference.delivery_count_limit,
        record_lock_duration_ms=settings.inference.record_lock_duration_ms,
    )
    try:
        if kafka_version is not None:
            usual = replace(usual, kafka_version=release(kafka_version))
        return question_of(changed, recorded, usual)
    except (WhatIfError, UnknownKafkaVersion) as error:
        raise WhatIfArgumentError(str(error)) from error


def whatif(
    tables: ClusterTables,
    *,
    group_id: str,
    question: Question,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> list[WhatIfRow]:
    """The answers for one group. Raises WhatIfJobError, with the remedy."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise WhatIfArgumentError("--from must be before --to")
    require_in_any_log(tables, from_ms, to_ms)
    if to_ms is not None and (newest_ms := newest_of(log_ends(tables).values())) is not None:
        to_ms = min(to_ms, newest_ms + 1)  # years after the end of the log would be played with nothing to compare
    files = SilverFiles.of(tables, (*GROUP_TABLES, SHARE_BATCH_TRANSITIONS, CONFIGS))
    known = configs(files)
    places = CoordinatorPartitions.newest(tables)
    try:
        if question.changed.is_of_share_records and not question.changed.is_of_members:
            transitions = _transitions(files, group_id, from_ms, to_ms, places)
            if transitions:
                return answer_share_group(group_id, transitions, question, known)
        left = places.left_behind(GROUPS_LOG, None if to_ms is None else to_ms - 1, [group_id])
        life = _life(files, group_id, left)
        if life is None:
            require_groups(tables, [group_id])
            raise WhatIfJobError(
                f"no group {group_id!r} in {tables.warehouse.root}: run "
                f"{command(first_night(tables.warehouse.root, tables.cluster_id))} first, or see "
                + command(f"groups{tables.place_words}")
            )
        if {row.group_type for row in life.generations} == {GroupType.SHARE}:
            if question.changed.is_of_share_members:
                return answer_share_members_of(life, question, known, from_ms=from_ms, to_ms=to_ms)
            return answer_share_group(group_id, (), question, known)
        if lacks_times(life):
            raise WhatIfJobError(
                f"records of group {group_id!r} have no timestamp, so the log does not show how long its members were "
                "silent: what other settings would have changed is not known"
            )
        return answer_group(life, question, known, from_ms=from_ms, to_ms=to_ms)
    except WhatIfError as error:
        raise WhatIfArgumentError(str(error)) from error
    except CoreError as error:
        raise WhatIfJobError(str(error)) from error


def _life(files: SilverFiles, group_id: str, left: LeftBehind) -> GroupLife | None:
    """Silver's rows of a group in the log partition that Kafka uses for it; None without rows."""
    log_partitions = _log_partitions(files, GROUP_GENERATIONS, group_id)
    present = [it for it in log_partitions if not left.is_past(group_id, it)]
    for log_partition in present or log_partitions:
        for life in group_lives(files, log_partition):
            if life.group_id == group_id:
                return life
    return None


def _log_partitions(files: SilverFiles, table: Table, group_id: str) -> list[int]:
    rows = files.scan(table, ["group_id", "log_partition"])
    found: list[int] = pc.unique(rows.filter(_is(rows, group_id))["log_partition"]).to_pylist()
    return sorted(found)


def _is(rows: pa.Table, group_id: str) -> pa.ChunkedArray:
    return pc.equal(rows["group_id"], pa.scalar(group_id, pa.string()))


def _transitions(
    files: SilverFiles, group_id: str, from_ms: int | None, to_ms: int | None, places: CoordinatorPartitions
) -> list[Transition]:
    """Transitions of the group's share partitions, in log order; from a former log partition only those written
    while Kafka used it."""
    found: list[Transition] = []
    left_at = places.left_at(SHARES_LOG)
    for log_partition in _log_partitions(files, SHARE_BATCH_TRANSITIONS, group_id):
        rows = files.read(SHARE_BATCH_TRANSITIONS, ["group_id", *Transition._fields], log_partition)
        of_group = list(rows_of(rows.filter(_is(rows, group_id)), Transition))
        if not all(is_time(row.at) for row in of_group):
            raise WhatIfJobError(
                f"records of share group {group_id!r} have no timestamp, so the log does not show which settings were "
                "in force, nor how long records were acquired: what other settings would have changed is not known"
            )
        found += [
            row
            for row in of_group
            if (from_ms is None or row.at >= from_ms)
            and (to_ms is None or row.at < to_ms)
            and row.at < left_at.get((_key(group_id, row), log_partition), END_OF_TIME)
        ]
    return sorted(found, key=lambda row: (row.topic_id, row.partition, row.log_offset, row.first_offset))


def _key(group_id: str, row: Transition) -> str:
    return SharePartitionKey(group_id, row.topic_id, row.partition).as_coordinator_key()


# --- printing ---

PRINTED_NAMES: Final = {"at_ms": "at"}


def print_rows(rows: Sequence[WhatIfRow], output_format: str, out: TextIO | None = None) -> None:
    """Print the answers: as lines, followed by the assumptions, or with all columns as JSON or CSV.

    There `at_ms` becomes `at`, in ISO 8601.
    """
    out = out or sys.stdout
    named = [
        {PRINTED_NAMES.get(name, name): _plain(name, value) for name, value in row._asdict().items()} for row in rows
    ]
    if output_format == "json":
        write_json(named, out)
    elif output_format == "csv":
        write_csv([PRINTED_NAMES.get(name, name) for name in WhatIfRow._fields], named, out)
    else:
        _print_table(rows, out)


def _plain(name: str, value: object) -> Value:
    if name in PRINTED_NAMES:
        return None if value is None else time_text(int(str(value)))
    if isinstance(value, tuple):
        return " ".join(value)
    assert value is None or isinstance(value, str | int)
    return value


def _print_table(rows: Sequence[WhatIfRow], out: TextIO) -> None:
    answers = [row for row in rows if row.kind != TOTAL]
    total = rows[-1]
    is_of_records = total.deliveries_min is not None
    brief = f"{total.recorded}, {total.would_be}" if is_of_records else _brief(total, answers)
    sure = f" ({total.confidence})" if total.confidence else ""
    sentence = f"group {short(total.group_id)} ({total.group_type.lower()}) with {total.asked}: {brief}{sure}"
    out.write(f"{folded_text(sentence, out)}\n\n")
    if is_of_records:
        write_answers(RECORD_COLUMNS, [_record_cells(row) for row in answers], "table", out, first=ANSWER)
    else:
        write_answers(REBALANCE_COLUMNS, [_rebalance_cells(row) for row in answers], "table", out, first=ANSWER)
    out.write(f"\nin all: {total.recorded}; {total.would_be}\n")
    if is_of_records:
        out.write(f"deliveries: {_span(total.deliveries_min, total.deliveries_max, signed=True)}\n")
    else:
        out.writelines(
            f"{name}: {cell}\n" for name, cell in zip(MEASURES, _measures(total), strict=True) if cell != NO_MEASURE
        )
    if total.kafka_version_source is not None:
        about = RELEASE_ABOUT[ReleaseSource(total.kafka_version_source)]
        out.write(f"played by the rules of Kafka {total.kafka_version}, {about}\n")
    if total.assumptions:
        out.write("\nassumed:\n")
        lines = (f"  {name}: {ALL_ASSUMPTIONS[name]}" for name in total.assumptions)
        out.writelines(f"{folded_text(line, out, '    ')}\n" for line in lines)


def _brief(total: WhatIfRow, answers: Sequence[WhatIfRow]) -> str:
    """How many rebalances there would be, and what would be another, in words."""
    before, after = (
        _span(*(getattr(total, f"rebalances_{when}_{end}") for end in ENDS)) for when in ("before", "after")
    )
    noun = "rebalance" if before == "1" else "rebalances"
    count = f"at least {after.removesuffix('..?')}" if after.endswith("..?") else after.replace("..", " to ")
    words = [f"still {before} {noun}" if before == after else f"{count} in place of {before} {noun}"]
    others = [row for row in answers if row.verdict != Verdict.KEPT]
    known = [row for row in others if row.verdict not in UNKNOWN]
    words += map(_change, known[:1])
    if len(known) > 1:
        words.append(counted(len(known) - 1, "more change"))
    if len(others) > len(known):
        words.append(f"{len(others) - len(known):,} not known")
    return ", ".join(words)


def _change(row: WhatIfRow) -> str:
    """What would be another, of one rebalance."""
    if row.verdict != Verdict.MOVED or row.shift_ms_min is None or row.shift_ms_max is None:
        return f"{row.recorded} {row.would_be}".strip()
    shift_s = (row.shift_ms_min + row.shift_ms_max) / 2000
    digits = 0 if abs(shift_s) >= 10 else 1
    return f"{row.recorded} {abs(shift_s):.{digits}f} s {'earlier' if shift_s < 0 else 'later'}"


UNKNOWN: Final = frozenset({Verdict.CANNOT_TELL, Verdict.NOT_REPRODUCED, Verdict.NOT_PLAYED})
ENDS: Final = ("min", "max")
NO_MEASURE: Final = "? -> ?"
MEASURES: Final = ("rebalances", "partitions moved", "unowned partition-ms", "partition-ms not served")
REBALANCE_COLUMNS: Final = ("at", "generation", "recorded", "verdict", "would be", "later by", *MEASURES, "confidence")
RECORD_COLUMNS: Final = (
    "at",
    "topic",
    "partition",
    "offsets",
    "recorded",
    "verdict",
    "would be",
    "deliveries",
    "confidence",
)
ANSWER: Final = ("at", "topic", "partition", "offsets", "recorded", "verdict", "would be", "later by", "confidence")
"""Columns of both tables."""


def _rebalance_cells(row: WhatIfRow) -> tuple[Value, ...]:
    at = time_text(row.at_ms)
    shift = None if row.shift_ms_min is None else _span(row.shift_ms_min, row.shift_ms_max, signed=True) + " ms"
    return (at, row.generation, row.recorded, row.verdict, row.would_be, shift, *_measures(row), row.confidence)


def _measures(row: WhatIfRow) -> list[str]:
    """The measures, each as `before -> after`."""

    def span(name: str) -> str:
        return _span(getattr(row, f"{name}_min"), getattr(row, f"{name}_max"))

    return [f"{span(f'{name}_before')} -> {span(f'{name}_after')}" for name in MEASURED]


def _record_cells(row: WhatIfRow) -> tuple[Value, ...]:
    at = time_text(row.at_ms)
    offsets = f"{row.first_offset}..{row.last_offset}"
    deliveries = _span(row.deliveries_min, row.deliveries_max, signed=True)
    return (at, row.topic, row.partition, offsets, row.recorded, row.verdict, row.would_be, deliveries, row.confidence)


def _span(least: int | None, most: int | None, *, signed: bool = False) -> str:
    """`3`, or `3..5`."""
    low, high = ("?" if value is None else f"{value:+}" if signed and value else str(value) for value in (least, most))
    return low if low == high else f"{low}..{high}"
