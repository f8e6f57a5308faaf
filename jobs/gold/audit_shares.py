"""The audit of `__share_group_state`: redeliveries, archived records, and days of share groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.confidence import CONFIDENCES
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, not_judged
from coordinator_core.inference.audit.share_past import Kept, kept_of, require_same_groups, settled_to, shown_by
from coordinator_core.inference.facts.columns import taken
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.shares import archived as archived_rules
from coordinator_core.inference.shares import redeliveries as redelivery_rules
from coordinator_core.inference.shares.archived import ArchivedColumns
from coordinator_core.inference.shares.offset_changes import (
    EndedState,
    Endings,
    OffsetChange,
    counts_of_changes,
    ended_states,
    first_start_offsets,
    offset_changes,
)
from coordinator_core.inference.shares.redeliveries import RedeliveryColumns
from coordinator_core.inference.shares.share_days import NO_COUNTS, ShareCounts, merged_days
from coordinator_core.inference.shares.share_log import NO_PAST, GroupPast, ShareKeys, ShareLog, ShareMembers, of_groups
from coordinator_core.inference.shares.shares import audit_share_log
from jobs.delta.arrow_columns import numbers_of
from jobs.delta.arrow_schemas import DAY, arrow_schema, made_schema, timestamps
from jobs.delta.core_tables import constant, days, rows_table
from jobs.errors import OUTSIDE
from jobs.gold.clock_steps import clock_steps
from jobs.gold.former_rows import Outdated
from jobs.gold.group_tables import NO_PLACE
from jobs.gold.isolation import failing, read_or
from jobs.gold.log_anomalies import share_anomalies, write_log_anomalies
from jobs.gold.share_checkpoints import SavedShares
from jobs.gold.share_reader import (
    LAST_PERSISTED,
    StateRows,
    configs,
    endings,
    share_log,
    share_log_as_written,
    share_members,
    share_states,
    slice_ends,
)
from jobs.gold.task import AuditDone, AuditParts, AuditWork
from jobs.silver.row_groups import END_OF_LOG
from schemas.group_types import GroupType
from schemas.tables.common import IS_FORMER_LOG_PARTITION
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    LOG_ANOMALIES,
    REDELIVERIES,
    SHARE_GROUP_SUMMARY,
    SHARE_OFFSET_CHANGES,
)


def share_audit(work: AuditWork, parts: AuditParts) -> Callable[[int], None]:
    """What audits the share partitions of a log partition, from where the last audit left them, or group by group from
    their beginning. Raises PastDiffers where settled rows would differ."""
    known, members = _inputs(work, parts)

    def audit(log_partition: int) -> None:
        is_by_group = log_partition in work.not_replayed or log_partition in work.by_group
        audit_rows = audit_by_group if is_by_group else audit_log
        audit_rows(log_partition, work, parts, known, members)

    return audit


def _inputs(work: AuditWork, parts: AuditParts) -> tuple[Configs, ShareMembers]:
    """Inputs that concern the share groups of the whole cluster, as far as they can be read."""
    files, lacks = work.files, parts.done.lacks
    return (
        read_or(NO_CONFIGS, "configs of groups, topics and brokers", partial(configs, files), lacks),
        read_or({}, "members of share groups", partial(share_members, files), lacks),
    )


def audit_by_group(
    log_partition: int, work: AuditWork, parts: AuditParts, known: Configs, members: ShareMembers
) -> None:
    """Audit all of a log partition at once, without the groups that fail.

    Nothing is settled or kept: the next audit starts from the beginning.
    """
    states = share_states(work.files, log_partition)
    log = replace(share_log(work.files, log_partition, states), holes=work.log(log_partition).holes)
    failed: list[LogAnomalyRow] = []
    judged: list[int] = []
    to_judge = work.judged_of(log_partition, log.keys.group_ids)
    for code, group_id in enumerate(log.keys.group_ids):
        if group_id not in to_judge:
            continue
        own = of_groups(log, [code])
        try:
            gold = audit_share_log(own, known, members, work.inference)
            redeliveries_table(gold.redeliveries, own.keys, log_partition)
            archived_table(gold.archived, own.keys, log_partition)
            gold.counted.counts()
            _changes(ended_states(own), own, work, known)
            share_anomalies(_states_of(states, [code]), log_partition, log.holes)
        except MemoryError:
            raise
        except Exception as error:
            newest = int(own.states.log_offset.max(initial=0))
            failed.append(not_judged(error, group_id, GroupType.SHARE, log_partition, newest))
        else:
            judged.append(code)
    parts.remove_all(log_partition, LOG_ANOMALIES)
    log = of_groups(log, judged)
    gold = audit_share_log(log, known, members, work.inference)
    if len(gold.redeliveries):
        parts.write(REDELIVERIES, redeliveries_table(gold.redeliveries, log.keys, log_partition), is_settled=False)
    if len(gold.archived):
        parts.write(ARCHIVED_RECORDS, archived_table(gold.archived, log.keys, log_partition), is_settled=False)
    parts.done.share_counts.append(gold.counted.counts())
    _write_changes(ended_states(log), log, work, parts, log_partition, known)
    broken = share_anomalies(_states_of(states, judged), log_partition, log.holes)
    write_log_anomalies([*broken, *failed], work.topic, parts)
    write_log_anomalies(clock_steps(work, parts, log_partition), work.topic, parts)


def _states_of(states: StateRows, codes: Sequence[int]) -> StateRows:
    is_wanted = np.isin(states.keys.group[states.key], codes)
    return states._replace(rows=states.rows.filter(pa.array(is_wanted)), key=states.key[is_wanted])


def audit_log(log_partition: int, work: AuditWork, parts: AuditParts, known: Configs, members: ShareMembers) -> None:
    """Audit a log partition in slices, each from where the results of the previous one are settled."""
    packed = work.saved(log_partition)
    saved = None if packed is None else SavedShares.unpacked(packed)
    past = NO_PAST if saved is None else saved.past
    if saved is not None:
        saved.known.require_same(known, members)
    after = NO_PLACE if saved is None else past.from_log_offset - 1
    parts.remove(LOG_ANOMALIES, Outdated(work.topic, log_partition, after))
    ends = slice_ends(work.files, log_partition, 0 if saved is None else saved.next_offset)
    shown = None
    if len(ends) > 1:
        bounds = pairwise((past.from_log_offset, *ends))
        logs = (
            share_log_as_written(work.files, log_partition, from_log_offset=first, to_log_offset=to)
            for first, to in bounds
        )
        shown = shown_by(logs, past)
    for end in ends:
        saved = _audit_slice(log_partition, end, work, parts, known, members, saved, shown)
    assert saved is not None
    write_log_anomalies(clock_steps(work, parts, log_partition, past.from_log_offset), work.topic, parts)
    parts.keep(log_partition, saved.packed())


def _audit_slice(
    log_partition: int,
    end: int,
    work: AuditWork,
    parts: AuditParts,
    known: Configs,
    members: ShareMembers,
    saved: SavedShares | None,
    shown: Mapping[str, GroupPast] | None,
) -> SavedShares:
    """Audit from where the previous slice stopped to a log offset, exclusive."""
    states = share_states(work.files, log_partition, saved, to_log_offset=end)
    log = share_log(work.files, log_partition, states, saved, to_log_offset=end)
    log = replace(log, shown=shown, holes=work.log(log_partition).holes)
    gold = audit_share_log(log, known, members, work.inference)
    require_same_groups(log, gold.pasts, work.inference, known)
    next_offset = int(log.states.log_offset.max(initial=-1)) + 1
    place = settled_to(log, gold.evidence, next_offset, work.inference.late_ms)
    is_last = end == END_OF_LOG
    anomalies = share_anomalies(states, log_partition, log.holes)
    settled = ShareCounts.together([NO_COUNTS if saved is None else saved.counts, gold.counted.counts(place)])
    kept = kept_of(log, gold.evidence, place, known, members)
    unsettled = taken(log.transitions, np.flatnonzero(log.transitions.log_offset >= place))
    ended = [*(() if saved is None else saved.ended), *ended_states(log)]
    left = SavedShares.of(kept, _rows_left(kept, states.rows), unsettled, next_offset, settled, ended)
    # from here on rows are written, and cannot be taken back
    for is_settled in (True, False) if is_last else (True,):
        again, up = _rows_of(gold.redeliveries, place, is_settled), _rows_of(gold.archived, place, is_settled)
        if len(again):
            parts.write(REDELIVERIES, redeliveries_table(again, log.keys, log_partition), is_settled=is_settled)
        if len(up):
            parts.write(ARCHIVED_RECORDS, archived_table(up, log.keys, log_partition), is_settled=is_settled)
    before = NO_COUNTS if saved is None else saved.counts
    if is_last:
        parts.done.share_counts.append(ShareCounts.together([before, gold.counted.counts()]))
        _write_changes(ended, log, work, parts, log_partition, known)
    reported_to = END_OF_LOG if is_last else place
    new = [row for row in anomalies if log.past.from_log_offset <= row.log_offset < reported_to]
    write_log_anomalies(new, work.topic, parts)
    return left


def _changes(ended: Sequence[EndedState], log: ShareLog, work: AuditWork, known: Configs) -> list[OffsetChange]:
    """Rows of gold.share_offset_changes: of all states that ever ended, since later records complete them."""
    is_asked = any(state.is_deletion for state in ended)
    reasons = endings(work.files, work.removed_topics) if is_asked else Endings()
    return list(offset_changes(ended, first_start_offsets(log), reasons, known)) if ended else []


def _write_changes(
    ended: Sequence[EndedState], log: ShareLog, work: AuditWork, parts: AuditParts, log_partition: int, known: Configs
) -> None:
    if rows := _changes(ended, log, work, known):
        parts.write_rows(SHARE_OFFSET_CHANGES, rows, log_partition)
        parts.done.share_counts.append(counts_of_changes(rows))


Rows = TypeVar("Rows", RedeliveryColumns, ArchivedColumns)


def _rows_of(rows: Rows, place: int, is_settled: bool) -> Rows:
    """The settled rows (before a log offset), or the others."""
    return taken(rows, np.flatnonzero((rows.log_offset < place) == is_settled))


def _rows_left(kept: Kept, rows: pa.Table) -> pa.Table:
    """The rows of silver that the settled past needs, with their `last_persisted`, and all rows that are not
    settled."""
    log_offset = numbers_of(rows["log_offset"])
    order = np.argsort(log_offset, kind="stable")
    sorted_offset = log_offset[order]
    places = np.searchsorted(sorted_offset, kept.states.log_offset)
    first = int(np.searchsorted(sorted_offset, kept.settled_to))
    last_persisted = np.append(kept.states.last_persisted, np.full(len(order) - first, -1, np.int64))
    column = rows.schema.get_field_index(LAST_PERSISTED)
    wanted = np.append(order[places], order[first:])
    return rows.take(pa.array(wanted)).set_column(column, LAST_PERSISTED, pa.array(last_persisted))


def share_days(done: Iterable[AuditDone], cluster_id: str, failed: list[LogAnomalyRow]) -> pa.Table:
    """Rows of gold.share_group_summary: joins the results of both coordinator topics by group and day.

    Groups that fail are added to `failed`.
    """
    tasks = list(done)
    counts = [counts for task in tasks for counts in task.share_counts]
    days = [row for task in tasks for row in task.days]
    try:
        return _days_table(counts, days, cluster_id)
    except OUTSIDE:
        raise
    except Exception:
        group_ids = {place.group_id for part in counts for place in part.places} | {row.group_id for row in days}

    def some(of: Set[str]) -> pa.Table:
        own = [row for row in days if row.group_id in of]
        return _days_table([part.of_groups(of) for part in counts], own, cluster_id)

    found = list(failing(sorted(group_ids), some))
    # the days of a group come from log partitions of both topics, so the row names neither
    failed += [not_judged(error, group_id, GroupType.SHARE, 0, 0) for group_id, error in found]
    return some(group_ids - {group_id for group_id, _ in found})


def _days_table(counts: Sequence[ShareCounts], days: Iterable[ShareGroupDayRow], cluster_id: str) -> pa.Table:
    rows = merged_days(counts, days)
    schema = arrow_schema(SHARE_GROUP_SUMMARY)
    if not rows:
        return schema.empty_table()
    table = rows_table(SHARE_GROUP_SUMMARY, rows, {})
    names = pa.repeat(pa.scalar(cluster_id, pa.string()), len(rows))
    return table.add_column(0, schema.field("cluster_id"), names).select(schema.names).cast(schema)


def redeliveries_table(rows: RedeliveryColumns, keys: ShareKeys, log_partition: int) -> pa.Table:
    """Rows of gold.redeliveries, without partition columns."""
    return _table(
        REDELIVERIES,
        {
            **_place_columns(rows, keys, log_partition),
            "from_delivery_count": _numbers(rows.from_delivery_count),
            "to_delivery_count": _numbers(rows.to_delivery_count),
            "cause": _names(rows.cause, redelivery_rules.CAUSES),
            "likely_cause": _names(rows.likely_cause, redelivery_rules.LIKELY_CAUSES),
            "method": _names(rows.method, redelivery_rules.METHODS),
            "confidence": _names(rows.confidence, CONFIDENCES),
            "leader_changed": pa.array(rows.leader_changed),
        },
    )


def archived_table(rows: ArchivedColumns, keys: ShareKeys, log_partition: int) -> pa.Table:
    """Rows of gold.archived_records, without partition columns."""
    return _table(
        ARCHIVED_RECORDS,
        {
            **_place_columns(rows, keys, log_partition),
            "delivery_count": _numbers(rows.delivery_count),
            "delivery_count_limit": _numbers(rows.delivery_count_limit),
            "cause": _names(rows.cause, archived_rules.CAUSES),
            "likely_cause": _names(rows.likely_cause, archived_rules.LIKELY_CAUSES),
            "method": _names(rows.method, archived_rules.METHODS),
            "confidence": _names(rows.confidence, CONFIDENCES),
            "dead_letter": _names(rows.dead_letter, archived_rules.DEAD_LETTER_STATES),
        },
    )


def _place_columns(
    rows: RedeliveryColumns | ArchivedColumns, keys: ShareKeys, log_partition: int
) -> dict[str, pa.Array]:
    """The columns that identify share partition, offset and time."""
    key, at = rows.key, timestamps(rows.at_ms)
    return {
        "group_id": _names(keys.group.astype(np.int32)[key], keys.group_ids),
        "group_type": _names(np.zeros(len(rows), np.int8), (GroupType.SHARE,)),
        "topic": _distinct_names(keys.topics, key),
        "topic_id": _distinct_names(keys.topic_ids, key),
        "partition": pa.array(keys.partition.astype(np.int32)[key]),
        "first_offset": pa.array(rows.first_offset),
        "last_offset": pa.array(rows.last_offset),
        "log_offset": pa.array(rows.log_offset),
        "at": at,
        DAY: days(at),
        "log_partition": constant(log_partition, pa.int32(), len(rows)),
        # set when the rows are written
        IS_FORMER_LOG_PARTITION.name: constant(False, pa.bool_(), len(rows)),
    }


def _table(table: Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Columns in the declared order; strings stay dictionary-encoded until they are in Parquet."""
    arrays = [
        columns[field.name]
        if pa.types.is_dictionary(columns[field.name].type)
        else columns[field.name].cast(field.type)
        for field in made_schema(table)
    ]
    return pa.Table.from_arrays(arrays, names=made_schema(table).names)


def _distinct_names(names: Sequence[str | None], key: I64) -> pa.DictionaryArray:
    """The topic name of each share partition, by its index; null where unknown."""
    known = sorted({name for name in names if name is not None})
    numbers = {name: number for number, name in enumerate(known)}
    codes = np.array([-1 if name is None else numbers[name] for name in names], np.int32)
    return _names(codes[key], known)


def _names(codes: Any, names: Sequence[str]) -> pa.DictionaryArray:
    """Strings by code; null for -1."""
    indices = _numbers(codes)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _numbers(values: Any) -> pa.Array:
    """Integers; null for negative numbers."""
    return pa.array(values, mask=values < 0) if len(values) and values.min() < 0 else pa.array(values)
