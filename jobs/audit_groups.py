"""The audit of `__consumer_offsets`: owners, rebalances, odd commits, lag, days; one log partition at a time."""

from typing import Final

from coordinator_core.inference.broken_rules import group_anomalies
from coordinator_core.inference.groups import GroupGold, audit_group
from jobs.audit_log import LagWriter, write_broken_rules
from jobs.audit_work import AuditParts, AuditWork
from jobs.share_reader import configs
from jobs.silver_reader import group_lives
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, PARTITION_OWNERS, REBALANCES

BUFFERED_ROWS_MAX: Final = 100_000
"""Gold rows held before a row group is written."""


def audit_groups(work: AuditWork, parts: AuditParts) -> None:
    """Audit all groups of the log partitions."""
    gold = GroupGold()
    known = configs(work.files)
    lags = LagWriter(work.files, work.inference, parts)
    for log_partition in work.log_partitions:
        for life in group_lives(work.files, log_partition):
            gold.extend(audit_group(life, work.inference, known))
            lags.add(life)
            write_broken_rules(group_anomalies(life), work.topic, parts)
            if len(gold) > BUFFERED_ROWS_MAX:
                _write(gold, parts)
                gold = GroupGold()
    _write(gold, parts)
    lags.flush()


def _write(gold: GroupGold, parts: AuditParts) -> None:
    parts.write_rows(PARTITION_OWNERS, gold.owners)
    parts.write_rows(REBALANCES, gold.rebalances)
    parts.write_rows(COMMIT_ANOMALIES, gold.anomalies)
    parts.write_rows(GROUP_SUMMARY, gold.days)
    parts.done.days.extend(gold.share_days)
