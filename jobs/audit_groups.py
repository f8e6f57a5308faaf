"""The audit of `__consumer_offsets`: owners, rebalances, odd commits, lag, days; one log partition at a time."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

import msgpack
import numpy as np
import pyarrow as pa

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.broken_rules import group_anomalies
from coordinator_core.inference.groups import GroupGold, audit_group
from coordinator_core.inference.quiet import Quiet, commit_counts, is_noted
from coordinator_core.inference.rows import ShareGroupDayRow
from jobs.arrow_columns import epoch_ms_column, numbers_of
from jobs.audit_log import LagWriter, write_broken_rules
from jobs.audit_work import AuditParts, AuditWork
from jobs.replay_state import changed_versions
from jobs.share_reader import configs
from jobs.silver_reader import group_lives, new_commits
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY, PARTITION_OWNERS, REBALANCES

BUFFERED_ROWS_MAX: Final = 100_000
"""Gold rows held before a row group is written."""


GROUP_GOLD_KEPT: Final = (PARTITION_OWNERS, REBALANCES, COMMIT_ANOMALIES)
"""Of which nothing changes while a group only commits on."""
GROUP_GOLD: Final = (*GROUP_GOLD_KEPT, GROUP_SUMMARY, LAG_HISTORY)


def audit_groups(work: AuditWork, parts: AuditParts) -> None:
    """Audit the groups of the log partitions: all, or those of which more than counts is new."""
    known = configs(work.files)
    lags = LagWriter(work.files, work.inference, parts)
    for log_partition in work.log_partitions:
        packed = work.saved(log_partition)
        saved = KnownGroups({}, {}) if packed is None else KnownGroups.unpacked(packed)
        if log_partition in work.resting:
            _carry(log_partition, work, parts, frozenset())
            parts.done.days.extend(chain.from_iterable(saved.days.values()))
            parts.done.states[work.topic, log_partition] = saved.packed()
            continue
        only = _noted_groups(log_partition, saved, work, parts) if packed is not None and work.keeps_groups else None
        left = KnownGroups({}, {}) if only is None else saved.without(only)
        gold = GroupGold()
        for life in group_lives(work.files, log_partition, only):
            made = audit_group(life, work.inference, known)
            left.quiet[life.group_id] = Quiet.of(life, work.inference)
            if made.share_days:
                left.days[life.group_id] = made.share_days
            gold.extend(made)
            lags.add(life)
            write_broken_rules(group_anomalies(life), work.topic, parts)
            if len(gold) > BUFFERED_ROWS_MAX:
                _write(gold, log_partition, parts)
                gold = GroupGold()
        _write(gold, log_partition, parts)
        lags.flush()
        parts.done.days.extend(chain.from_iterable(left.days.values()))
        parts.done.states[work.topic, log_partition] = left.packed()


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """What an audit leaves of a log partition of `__consumer_offsets`, by group."""

    quiet: dict[str, Quiet]
    days: dict[str, list[ShareGroupDayRow]]
    """Of share groups."""

    def without(self, group_ids: Set[str]) -> "KnownGroups":
        """The others."""
        return KnownGroups(
            {group_id: quiet for group_id, quiet in self.quiet.items() if group_id not in group_ids},
            {group_id: days for group_id, days in self.days.items() if group_id not in group_ids},
        )

    def packed(self) -> bytes:
        """As bytes."""
        days = {group_id: [tuple(day) for day in days] for group_id, days in self.days.items()}
        packed: bytes = msgpack.packb([{group_id: tuple(quiet) for group_id, quiet in self.quiet.items()}, days])
        return packed

    @classmethod
    def unpacked(cls, packed: bytes) -> "KnownGroups":
        """From the bytes of `packed`. Raises StateUnreadable for any other."""
        try:
            quiet, days = msgpack.unpackb(packed)
            return cls(
                {group_id: Quiet(*one) for group_id, one in quiet.items()},
                {group_id: [ShareGroupDayRow(*day) for day in found] for group_id, found in days.items()},
            )
        except (AttributeError, TypeError, ValueError, msgpack.UnpackException) as error:
            raise StateUnreadable(f"what an audit kept of a log partition cannot be read: {error}") from error


def _noted_groups(log_partition: int, saved: KnownGroups, work: AuditWork, parts: AuditParts) -> frozenset[str]:
    """Groups to be audited. Gold of the others is written as it was, new commits added to the counts of their days."""
    changed = changed_versions(work.group_files.get(log_partition, ())).items()
    noted = {group_id for group_id, version in changed if version is None or version > work.audited_version}
    noted |= {group_id for group_id, quiet in saved.quiet.items() if quiet.has_pending}
    added: Counter[tuple[str, int]] = Counter()
    for commits, group, group_ids in new_commits(work.files, log_partition, work.next_offsets[log_partition]):
        quiet = [saved.quiet.get(group_id) for group_id in group_ids]
        is_odd = is_noted(commits, group, quiet, work.inference)
        noted |= {group_ids[code] for code in np.unique(group[is_odd]).tolist()}
        added.update(commit_counts(commits, group, group_ids))
    counts = {place: count for place, count in added.items() if place[0] not in noted}
    summary = list(parts.former_rows(GROUP_SUMMARY, log_partition))
    known = {
        place
        for rows in summary
        for place in zip(rows["group_id"].to_pylist(), epoch_ms_column(rows["day"]).tolist(), strict=True)
    }
    days = {place: saved.quiet[place[0]].day(*place, count) for place, count in counts.items() if place not in known}
    noted |= {group_id for (group_id, _), day in days.items() if day is None}
    _carry(log_partition, work, parts, noted, GROUP_GOLD_KEPT)
    for rows in summary:
        _write_counted(rows, counts, noted, parts)
    new_days = [day for (group_id, _), day in days.items() if day is not None and group_id not in noted]
    parts.write_rows(GROUP_SUMMARY, new_days, log_partition)
    return frozenset(noted)


def _write_counted(
    rows: pa.Table, counts: Mapping[tuple[str, int], int], left_out: Set[str], parts: AuditParts
) -> None:
    """Days as they were, with the commits that were added."""
    group_ids, column = rows["group_id"].to_pylist(), rows.schema.get_field_index("commit_count")
    places = zip(group_ids, epoch_ms_column(rows["day"]).tolist(), strict=True)
    added = np.array([counts.get(place, 0) for place in places], np.int64)
    counted = rows.set_column(column, rows.schema.field(column), pa.array(numbers_of(rows[column]) + added))
    parts.write(GROUP_SUMMARY, counted.filter(pa.array([group_id not in left_out for group_id in group_ids])))


def _carry(
    log_partition: int,
    work: AuditWork,
    parts: AuditParts,
    left_out: Set[str],
    tables: Sequence[Table] = GROUP_GOLD,
) -> None:
    """Gold of the groups of a log partition as it was, but for some of them."""
    for table in tables:
        parts.carry(table, log_partition, left_out)
    parts.carry_broken_rules(log_partition, left_out=left_out)


def _write(gold: GroupGold, log_partition: int, parts: AuditParts) -> None:
    """Write the rows but for the days of share groups, of which the other coordinator topic knows the rest."""
    parts.write_rows(PARTITION_OWNERS, gold.owners, log_partition)
    parts.write_rows(REBALANCES, gold.rebalances, log_partition)
    parts.write_rows(COMMIT_ANOMALIES, gold.anomalies, log_partition)
    parts.write_rows(GROUP_SUMMARY, gold.days, log_partition)
