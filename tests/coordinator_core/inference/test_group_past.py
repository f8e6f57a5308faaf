"""Audits of groups that go on from one another: whatever the nights were, they say what one audit of all says."""

import os
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from coordinator_core.inference.broken_rules import LogAnomalyRow, group_anomalies
from coordinator_core.inference.commit_anomalies import HostsNow
from coordinator_core.inference.days import DayCounts
from coordinator_core.inference.group_past import (
    GroupBefore,
    GroupedCommits,
    GroupFacts,
    HeardBuilder,
    MembersHeard,
    PastTooShort,
)
from coordinator_core.inference.groups import GroupGold, Judged, audit_group, judge_group
from coordinator_core.inference.life import GroupLife
from coordinator_core.inference.quiet import commit_counts, is_noted, quiet_day
from coordinator_core.inference.rows import AnomalyRow, GroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.scan import scan_segment
from tests.conftest import RECORDINGS
from tests.coordinator_core.history.histories import commits_on, offsets_log
from tests.coordinator_core.inference.group_lives import GROUP, Replayed, batches_of, commit, generation, moved_member

HISTORIES: Final = int(os.environ.get("HISTORIES", "80"))
PARTS: Final = 10
FULL_A: Final = RECORDINGS / "full-a" / "logs"
SETTINGS: Final = InferenceSettings(skip_offset_count=500, stalled_ms=10_000)


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
        self.heard = MembersHeard()
        self.gold: dict[str, GroupGold] = {}
        self.broken: dict[str, list[LogAnomalyRow]] = {}
        self.ways: Counter[str] = Counter()

    def audit(self, now: Replayed, next_offset: int) -> None:
        """Audit what is new, up to an offset."""
        begin = min([self.place, *self.kept.pending.tolist()])
        both, is_new = self.kept.and_new(now.pieces(begin), self.place)
        noted = now.group_ids - now.asleep | now.group_ids - self.pasts.keys()
        odd = is_noted(both, is_new, self.pasts, self.settings)
        noted |= {both.group_ids[code] for code in np.unique(both.group[odd]).tolist()}
        new = both.taken(is_new)
        counts = commit_counts(new.commits, new.group, new.group_ids)
        days = {group_id: self.days_of(group_id, counts) for group_id in self.pasts.keys() - noted}
        noted |= {group_id for group_id, found in days.items() if found is None}
        heard = self.heard.by_group()
        builder = HeardBuilder()
        for group_id in sorted(now.group_ids):
            life = now.life(group_id)
            if group_id not in noted:
                self.ways["left as it was"] += 1
                if group_id in self.gold:
                    self.gold[group_id].days = days[group_id] or []
                continue
            rows = both.slices().get(group_id, slice(0, 0))
            short = life._replace(commits=both.commits.taken(rows))
            judged = self.judge(life, short, is_new[rows], heard.get(group_id, {}))
            self.pasts[group_id] = judged.past
            builder.add(judged.life, judged.gold.owners, judged.heard)
        self.heard = builder.built(self.heard.and_new(new).without(noted))
        self.kept, self.place = both.kept(), next_offset

    def days_of(self, group_id: str, counts: Mapping[tuple[str, int], int]) -> list[GroupDayRow] | None:
        days = {row.day: row for row in self.gold[group_id].days}
        for (other, day), count in counts.items():
            if other != group_id:
                continue
            made = quiet_day(self.pasts[group_id], group_id, day, count)
            if day in days:
                days[day] = days[day]._replace(commit_count=days[day].commit_count + count)
            elif made is None:
                return None
            else:
                days[day] = made
        return [days[day] for day in sorted(days)]

    def judge(self, whole: GroupLife, short: GroupLife, is_new: np.ndarray, heard: Any) -> Judged:
        group_id = whole.group_id
        try:
            if group_id not in self.pasts:
                raise PastTooShort("never seen")
            gold = self.gold[group_id]
            days = {row.day: DayCounts(row.commit_count, row.commit_anomaly_count) for row in gold.days}
            before = GroupBefore(self.pasts[group_id], self.place, is_new, heard, days)
            judged = judge_group(short, self.settings, before=before)
        except PastTooShort as why:
            self.ways[str(why)] += 1
            judged = judge_group(whole, self.settings)
            anomalies: list[AnomalyRow] = []
            self.broken[group_id] = group_anomalies(judged.life)
        else:
            self.ways["gone on with"] += 1
            anomalies = [row if judged.hosts is None else with_host(row, judged.hosts) for row in gold.anomalies]
            self.broken[group_id] += group_anomalies(judged.life, self.place)
        self.gold[group_id] = judged.gold
        self.gold[group_id].anomalies = [*anomalies, *judged.gold.anomalies]
        return judged


def with_host(row: AnomalyRow, hosts: HostsNow) -> AnomalyRow:
    owner = row.owner_member_id, row.owner_client_host
    return row._replace(owner_client_host=hosts.of(row.topic, row.partition, row.log_offset, *owner))


def assert_same(nights: Nights, now: Replayed, hint: object) -> None:
    """What the nights said is what one audit says of all groups."""
    for group_id in now.group_ids:
        life = now.life(group_id)
        whole, found = audit_group(life, nights.settings), nights.gold[group_id]
        assert found.owners == whole.owners, hint
        assert found.rebalances == whole.rebalances, hint
        assert sorted(found.anomalies, key=lambda row: row.log_offset) == whole.anomalies, hint
        assert found.days == whole.days, hint
        broken = nights.broken[group_id]
        assert sorted(broken, key=lambda row: (row.log_offset, row.ordinal, row.rule)) == group_anomalies(life), hint


@pytest.mark.parametrize("part", range(PARTS))
def test_nights_say_what_one_audit_says(part: int) -> None:
    """Random groups, random cuts: sometimes much happens in a night, sometimes commits alone."""
    ways: Counter[str] = Counter()
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"nights/{seed}")
        batches = offsets_log(random)
        cuts = sorted(random.randrange(1, len(batches)) for _ in range(random.randrange(3)))
        nights = Nights(SETTINGS)
        now: Replayed | None = None
        told = [batches[first:end] for first, end in pairwise([0, *cuts, len(batches)])]
        told += [commits_on(random, base) for base in (200, 300, 400)]
        for some in told:
            now = Replayed(now, some)
            nights.audit(now, end_of(some, nights.place))
            assert_same(nights, now, seed)
        ways += nights.ways
    assert min(ways[way] for way in ("left as it was", "gone on with")) > HISTORIES // PARTS, ways


@pytest.mark.parametrize("partition", range(5))
def test_nights_over_a_recorded_log_say_what_one_audit_says(partition: int) -> None:
    """Members of real groups come, commit, rebalance and go, the log cut between any of it."""
    (segment,) = (FULL_A / f"__consumer_offsets-{partition}").glob("*.log")
    data = segment.read_bytes()
    scan = scan_segment(np.frombuffer(data, np.uint8), base_offset=0, is_last=True).batches
    bounds = pairwise([*scan.position.tolist(), int(scan.position[-1] + scan.size[-1])])
    batches = [data[begin:end] for begin, end in bounds]
    random = Random(f"recorded/{partition}")
    cuts = sorted(random.randrange(1, len(batches)) for _ in range(4))
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for first, end in pairwise([0, *cuts, len(batches)]):
        now = Replayed(now, batches[first:end])
        nights.audit(now, end_of(batches[first:end], nights.place))
    assert now is not None
    assert_same(nights, now, cuts)
    assert nights.ways["gone on with"] > 4, nights.ways


def test_a_member_that_comes_back_from_another_host() -> None:
    """What was said of commits to its partitions names the host that it has in silver now, what was said of others the
    same as before; and none of its commits is read again."""
    batches, place = moved_member()
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some, host in ((batches[:place], "/old"), (batches[place:], "/new")):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, host)
        found = [(row.kind, row.owner_client_host) for row in nights.gold[GROUP].anomalies]
        assert found == [("REWIND", host), ("REWIND", "/old")]
    assert nights.ways["gone on with"] == 1, nights.ways


@pytest.mark.parametrize("without_time", [pytest.param((), id="timed"), pytest.param((2,), id="without time")])
def test_a_member_that_subscribes_to_other_topics(without_time: tuple[int, ...]) -> None:
    """Why an offset was deleted, at a time or at none, goes by what silver says now of its group's subscriptions."""
    first = [generation(1, {"m": [0]}), commit(10), commit(None)]
    batches = batches_of([*first, generation(2, {"m": [0]}, topics={"m": ["u"]})], without_time=without_time)
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some, method in (
        (batches[: len(first)], "SUBSCRIBED_TOPIC"),
        (batches[len(first) :], "YOUNGER_THAN_RETENTION"),
    ):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, method)
        assert [row.method for row in nights.gold[GROUP].anomalies] == [method]
