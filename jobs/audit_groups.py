"""The audit of `__consumer_offsets`: owners, rebalances, odd commits, lag, days; one log partition at a time."""

from collections.abc import Sequence
from typing import Final

import msgpack

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.broken_rules import group_anomalies
from coordinator_core.inference.groups import GroupGold, audit_group
from coordinator_core.inference.rows import ShareGroupDayRow
from jobs.audit_log import LagWriter, write_broken_rules
from jobs.audit_work import AuditParts, AuditWork
from jobs.share_reader import configs
from jobs.silver_reader import group_lives
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY, PARTITION_OWNERS, REBALANCES

BUFFERED_ROWS_MAX: Final = 100_000
"""Gold rows held before a row group is written."""


GROUP_GOLD: Final = (PARTITION_OWNERS, REBALANCES, COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY)


def audit_groups(work: AuditWork, parts: AuditParts) -> None:
    """Audit all groups of the log partitions."""
    known = configs(work.files)
    lags = LagWriter(work.files, work.inference, parts)
    for log_partition in work.log_partitions:
        if log_partition in work.resting:
            _carry(log_partition, work, parts)
            continue
        days: list[ShareGroupDayRow] = []
        gold = GroupGold()
        for life in group_lives(work.files, log_partition):
            gold.extend(audit_group(life, work.inference, known))
            lags.add(life)
            write_broken_rules(group_anomalies(life), work.topic, parts)
            if len(gold) > BUFFERED_ROWS_MAX:
                days += _write(gold, log_partition, parts)
                gold = GroupGold()
        days += _write(gold, log_partition, parts)
        lags.flush()
        parts.done.days.extend(days)
        parts.done.states[work.topic, log_partition] = pack_group_days(days)


def _carry(log_partition: int, work: AuditWork, parts: AuditParts) -> None:
    """Gold of a log partition as it was."""
    for table in GROUP_GOLD:
        parts.carry(table, log_partition)
    parts.carry_broken_rules(log_partition)
    saved = work.saved(log_partition)
    assert saved is not None
    parts.done.days.extend(unpack_group_days(saved))
    parts.done.states[work.topic, log_partition] = saved


def pack_group_days(days: Sequence[ShareGroupDayRow]) -> bytes:
    """What an audit leaves of a log partition of `__consumer_offsets`: the days of its share groups."""
    packed: bytes = msgpack.packb([tuple(day) for day in days])
    return packed


def unpack_group_days(packed: bytes) -> list[ShareGroupDayRow]:
    """From the bytes of `pack_group_days`. Raises StateUnreadable for any other."""
    try:
        return [ShareGroupDayRow(*day) for day in msgpack.unpackb(packed)]
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise StateUnreadable(f"what an audit kept of a log partition cannot be read: {error}") from error


def _write(gold: GroupGold, log_partition: int, parts: AuditParts) -> list[ShareGroupDayRow]:
    """Write the rows but for the days of share groups, of which the other coordinator topic knows the rest."""
    parts.write_rows(PARTITION_OWNERS, gold.owners, log_partition)
    parts.write_rows(REBALANCES, gold.rebalances, log_partition)
    parts.write_rows(COMMIT_ANOMALIES, gold.anomalies, log_partition)
    parts.write_rows(GROUP_SUMMARY, gold.days, log_partition)
    return gold.share_days
