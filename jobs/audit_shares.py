"""The audit of `__share_group_state`: redeliveries, archived records, and days of share groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.inference import archived as archived_rules
from coordinator_core.inference import redeliveries as redelivery_rules
from coordinator_core.inference.archived import ArchivedColumns
from coordinator_core.inference.redeliveries import CONFIDENCES, RedeliveryColumns
from coordinator_core.inference.rows import ShareGroupDayRow
from coordinator_core.inference.share_log import ShareKeys
from coordinator_core.inference.shares import SHARE, ShareDay, audit_share_log, merged_days
from coordinator_core.log.chunk import I64
from jobs.arrow_schemas import arrow_schema, timestamps
from jobs.audit_log import share_anomalies, write_broken_rules
from jobs.audit_work import AuditDone, AuditParts, AuditWork
from jobs.share_reader import configs, share_log, share_members, share_states
from jobs.silver_rows import rows_table
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, REDELIVERIES, SHARE_GROUP_SUMMARY


def audit_shares(work: AuditWork, parts: AuditParts) -> None:
    """Audit all share partitions of the log partitions."""
    known = configs(work.files)
    members = share_members(work.files)
    for log_partition in work.log_partitions:
        states = share_states(work.files, log_partition)
        log = share_log(work.files, log_partition, states)
        gold = audit_share_log(log, known, members, work.inference)
        parts.write(REDELIVERIES, redeliveries_table(gold.redeliveries, log.keys))
        parts.write(ARCHIVED_RECORDS, archived_table(gold.archived, log.keys))
        parts.done.days.extend(gold.days)
        write_broken_rules(share_anomalies(states, log_partition), work.topic, parts)


def share_days(done: Iterable[AuditDone], cluster_id: str) -> pa.Table:
    """gold.share_group_summary: what the tasks of both coordinator topics know of each group and day."""
    days = [row for task in done for row in task.days]
    rows = merged_days(
        [row for row in days if isinstance(row, ShareDay)], [row for row in days if isinstance(row, ShareGroupDayRow)]
    )
    schema = arrow_schema(SHARE_GROUP_SUMMARY)
    if not rows:
        return schema.empty_table()
    table = rows_table(SHARE_GROUP_SUMMARY, rows, {})
    names = pa.repeat(pa.scalar(cluster_id, pa.string()), len(rows))
    return table.add_column(0, schema.field("cluster_id"), names).cast(schema)


def redeliveries_table(rows: RedeliveryColumns, keys: ShareKeys) -> pa.Table:
    """gold.redeliveries, `cluster_id` left out."""
    return _table(
        REDELIVERIES,
        {
            **_place_columns(rows, keys),
            "from_delivery_count": _numbers(rows.from_delivery_count),
            "to_delivery_count": _numbers(rows.to_delivery_count),
            "cause": _names(rows.cause, redelivery_rules.CAUSES),
            "likely_cause": _names(rows.likely_cause, redelivery_rules.LIKELY_CAUSES),
            "method": _names(rows.method, redelivery_rules.METHODS),
            "confidence": _names(rows.confidence, CONFIDENCES),
            "leader_changed": pa.array(rows.leader_changed),
        },
    )


def archived_table(rows: ArchivedColumns, keys: ShareKeys) -> pa.Table:
    """gold.archived_records, `cluster_id` left out."""
    return _table(
        ARCHIVED_RECORDS,
        {
            **_place_columns(rows, keys),
            "delivery_count": _numbers(rows.delivery_count),
            "delivery_count_limit": _numbers(rows.delivery_count_limit),
            "cause": _names(rows.cause, archived_rules.CAUSES),
            "likely_cause": _names(rows.likely_cause, archived_rules.LIKELY_CAUSES),
            "method": _names(rows.method, archived_rules.METHODS),
            "confidence": _names(rows.confidence, CONFIDENCES),
        },
    )


def _place_columns(rows: RedeliveryColumns | ArchivedColumns, keys: ShareKeys) -> dict[str, pa.Array]:
    """The columns which say of what the rows are, where and when."""
    key = rows.key
    return {
        "group_id": _names(keys.group.astype(np.int32)[key], keys.group_ids),
        "group_type": _names(np.zeros(len(rows), np.int8), (SHARE,)),
        "topic": _distinct_names(keys.topics, key),
        "topic_id": _distinct_names(keys.topic_ids, key),
        "partition": pa.array(keys.partition.astype(np.int32)[key]),
        "first_offset": pa.array(rows.first_offset),
        "last_offset": pa.array(rows.last_offset),
        "log_offset": pa.array(rows.log_offset),
        "at": timestamps(rows.at_ms),
    }


def _table(table: Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Columns in the declared order; texts stay dictionary coded until they are in Parquet."""
    fields = [field.remove_metadata() for field in arrow_schema(table) if field.name != "cluster_id"]
    arrays = [
        columns[field.name]
        if pa.types.is_dictionary(columns[field.name].type)
        else columns[field.name].cast(field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, names=[field.name for field in fields])


def _distinct_names(names: Sequence[str | None], key: I64) -> pa.DictionaryArray:
    """The name of each share partition, by its number; null where it is not known."""
    known = sorted({name for name in names if name is not None})
    numbers = {name: number for number, name in enumerate(known)}
    codes = np.array([-1 if name is None else numbers[name] for name in names], np.int32)
    return _names(codes[key], known)


def _names(codes: Any, names: Sequence[str]) -> pa.DictionaryArray:
    """Names by code; null for -1."""
    indices = _numbers(codes)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _numbers(values: Any) -> pa.Array:
    """Whole numbers; null for what is negative."""
    return pa.array(values, mask=values < 0) if len(values) and values.min() < 0 else pa.array(values)
