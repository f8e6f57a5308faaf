"""Audits of the groups of one log, night after night, and what one audit of all of it says."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from coordinator_core.errors import PastTooShort
from coordinator_core.inference.audit.audit_watermark import AuditWatermark
from coordinator_core.inference.audit.commits_only import commit_counts, day_of_commits_only, is_noted
from coordinator_core.inference.audit.days import DayCounts, day_counts
from coordinator_core.inference.audit.group_past import (
    CommitTimesBuilder,
    GroupBefore,
    GroupedCommits,
    GroupFacts,
    MemberCommitTimes,
)
from coordinator_core.inference.audit.groups import GroupGold, Judged, audit_group, in_order, judge_group
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, group_anomalies
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import AnomalyRow, GroupDayRow, OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.inference.group_lives import Replayed


def end_of(batches: list[bytes], before: int) -> int:
    """The offset behind the last of them."""
    return max([before, *(int.from_bytes(batch[:8]) + int.from_bytes(batch[23:27]) + 1 for batch in batches)])


class Nights:
    """Audits of one log, each of what is new: what they said, what they kept, and how they came to it."""

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        self.place = 0
        self.pasts: dict[str, GroupFacts] = {}
        self.kept = GroupedCommits.of(())
        self.commit_times = MemberCommitTimes()
        self.watermark: dict[str, AuditWatermark | None] = {}
        self.gold: dict[str, GroupGold] = {}
        self.broken: dict[str, list[LogAnomalyRow]] = {}
        self.ways: Counter[str] = Counter()

    def audit(self, now: Replayed, next_offset: int) -> None:
        """Audit what is new, up to an offset."""
        begin = min([self.place, *self.kept.pending.tolist()])
        both, is_new = self.kept.and_new(now.pieces(begin), self.place)
        noted = now.group_ids - now.serialized | now.group_ids - self.pasts.keys()
        is_odd = is_noted(both, is_new, self.pasts, self.settings)
        noted |= {both.group_ids[code] for code in np.unique(both.group[is_odd]).tolist()}
        new = both.taken(is_new)
        counts = commit_counts(new.commits, new.group, new.group_ids)
        days = {group_id: self.days_of(group_id, counts) for group_id in self.pasts.keys() - noted}
        noted |= {group_id for group_id, found in days.items() if found is None}
        commit_times = self.commit_times.by_group()
        builder, of_whole = CommitTimesBuilder(), dict[str, Any]()
        for group_id in sorted(now.group_ids):
            life = now.life(group_id)
            if group_id not in noted:
                self.ways["left as it was"] += 1
                if group_id in self.gold:
                    self.gold[group_id].days = days[group_id] or []
                continue
            rows = both.slices().get(group_id, slice(0, 0))
            short = life._replace(commits=both.commits.taken(rows))
            judged = self.judge(life, short, is_new[rows], commit_times.get(group_id, {}))
            self.pasts[group_id] = judged.past
            if len(judged.life.commits) == len(life.commits):
                of_whole[group_id] = judged.life.commits.taken(judged.kept)
            self.watermark[group_id] = judged.watermark
            builder.add(judged.life, judged.gold.owners, judged.commit_times)
        self.commit_times = builder.built(self.commit_times.and_new(new, self.place).without(noted))
        of_parts = both.kept(self.pasts).of_some(of_whole.keys(), are_others=True)
        self.kept = GroupedCommits.of([of_parts.piece, GroupedCommits.of_groups(of_whole.items()).piece])
        self.place = next_offset

    def days_of(self, group_id: str, counts: Mapping[tuple[str, int], int]) -> list[GroupDayRow] | None:
        days = {row.day: row for row in self.gold[group_id].days}
        committed = Counter({day: count for (other, day), count in counts.items() if other == group_id})
        for day, came in day_counts(committed, ()).items():
            made = day_of_commits_only(self.pasts[group_id], group_id, day, came)
            if day in days:
                days[day] = days[day]._replace(**DayCounts.of(days[day]).plus(came)._asdict())
            elif made is None:
                return None
            else:
                days[day] = made
        return [days[day] for day in sorted(days)]

    def judge(self, whole: GroupLife, short: GroupLife, is_new: np.ndarray, commit_times: Any) -> Judged:
        group_id = whole.group_id
        try:
            if group_id not in self.pasts:
                raise PastTooShort("never seen")
            gold = self.gold[group_id]
            days = {row.day: DayCounts.of(row) for row in gold.days}
            before = GroupBefore(self.pasts[group_id], self.place, is_new, commit_times, days, self.watermark[group_id])
            judged = judge_group(in_order(short), self.settings, before=before)
        except PastTooShort as why:
            self.ways[str(why)] += 1
            judged = judge_group(in_order(whole), self.settings)
            anomalies: list[AnomalyRow] = []
            self.broken[group_id] = group_anomalies(judged.life)
        else:
            self.ways["gone on with"] += 1
            if before.watermark is not None:
                self.ways["from a settled place"] += 1
                add_settled(gold, judged, before.watermark)
            anomalies = gold.anomalies
            self.broken[group_id] += group_anomalies(judged.life, self.place)
        self.gold[group_id] = judged.gold
        self.gold[group_id].anomalies = [*anomalies, *judged.gold.anomalies]
        return judged


def after_nights(batches: list[bytes], places: Iterable[int], settings: InferenceSettings) -> Nights:
    """What there is after a night of the batches before each place, and one of the rest; each said what one audit
    says."""
    nights = Nights(settings)
    now: Replayed | None = None
    for first, end in pairwise([0, *places, len(batches)]):
        now = Replayed(now, batches[first:end])
        nights.audit(now, end_of(batches[first:end], nights.place))
        assert_same(nights, now, (first, end))
    return nights


def add_settled(before: GroupGold, judged: Judged, place: AuditWatermark) -> None:
    """Add to rebuilt gold the rows of the settled past, with the commits that came to its days."""
    gold = judged.gold
    owners = [
        row for row in before.owners if row.to_log_offset is not None and row.to_log_offset <= place.generation_at
    ]
    gold.owners = sorted([*owners, *gold.owners], key=owner_order)
    gold.rebalances = [*(row for row in before.rebalances if row.started_at <= place.at_ms), *gold.rebalances]
    days = [row for row in before.days if row.day <= place.day]
    for index, row in enumerate(days):
        late = judged.late.get(row.day, DayCounts())
        days[index] = row._replace(**DayCounts.of(row).plus(late)._asdict())
    gold.days = [*days, *gold.days]
    gold.share_days = [*(row for row in before.share_days if row.day <= place.day), *gold.share_days]


def owner_order(row: OwnerRow) -> tuple[str, str, int, int, str]:
    return row.topic or "", row.topic_id or "", row.partition, row.from_log_offset, row.member_id


def assert_same(nights: Nights, now: Replayed, hint: object) -> None:
    """What the nights said is what one audit says of all groups."""
    for group_id in now.group_ids:
        life = now.life(group_id)
        whole, found = audit_group(life, nights.settings), nights.gold[group_id]
        assert found.owners == whole.owners, hint
        assert found.rebalances == whole.rebalances, hint
        assert sorted(found.anomalies, key=lambda row: row.log_offset) == whole.anomalies, hint
        assert found.days == whole.days, hint
        assert found.share_days == whole.share_days, hint
        broken = nights.broken[group_id]
        assert sorted(broken, key=lambda row: (row.log_offset, row.ordinal, row.rule)) == group_anomalies(life), hint
