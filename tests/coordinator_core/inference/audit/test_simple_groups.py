"""Groups judged many at a time: what is said of each is what is said of it alone."""

from collections import Counter
from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.inference.audit import simple_groups
from coordinator_core.inference.audit.group_past import GroupedCommits
from coordinator_core.inference.audit.groups import GroupGold, judge_group
from coordinator_core.inference.audit.log_anomalies import group_anomalies
from coordinator_core.inference.audit.simple_groups import BEGINNING_EVENTS, Beginning, judge_simple_groups
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.settings import InferenceSettings
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from tests.coordinator_core.history.histories import PRODUCERS, offsets_log
from tests.coordinator_core.inference.group_lives import Replayed
from tests.coordinator_core.live.offsets.reference import ABORT, COMMIT, LogBatch, LogRecord, encode_batches, marker

SETTINGS: Final = InferenceSettings(skip_offset_count=500, stalled_ms=200_000_000)
DAY_MS: Final = 86_400_000


def log_of_commits(random: Random) -> list[bytes]:
    """Twenty groups: most commit and move on, some a few times, some once to each partition; few do anything else."""
    batches = offsets_log(random) if random.random() < 0.3 else []
    made: list[LogBatch] = []
    offsets: Counter[tuple[str, int]] = Counter()
    for number in range(random.randint(1, 30)):
        at_ms = random.choice((-1, *[number * DAY_MS // 3] * 30))
        producer_id = random.choice((*[-1] * 12, *PRODUCERS))
        records = []
        for _ in range(random.randint(1, 4)):
            place = f"g{random.randrange(20)}", random.randrange(3)
            offsets[place] += random.choice((*[0, 1, 2, 3] * 20, -1, 1_000))
            key = make(OFFSET_COMMIT_KEY, group=place[0], topic=f"t{place[1] % 2}", partition=place[1])
            value = make(OFFSET_COMMIT_VALUE, offset=max(offsets[place], 0), commit_timestamp=at_ms)
            reported = None if random.random() < 0.01 else encode_value(TOPIC, RecordType.OFFSET_COMMIT, 4, value)
            records.append(LogRecord(encode_key(TOPIC, RecordType.OFFSET_COMMIT, key), reported, at_ms))
        made.append(LogBatch(tuple(records), producer_id, producer_id >= 0))
        if random.random() < 0.05:
            made.append(marker(random.choice(PRODUCERS), random.choice((ABORT, COMMIT)), at_ms))
    return batches + encode_batches(made, base_offset=200)


def beginning_of(life: GroupLife) -> Beginning | None:
    """If there is nothing else of a group besides its commits."""
    if life.members or life.assignments or {row.event_type for row in life.events} - set(BEGINNING_EVENTS):
        return None
    found = [(row.group_type, row.generation, row.member_count, row.to_log_offset) for row in life.generations]
    if found != [("CLASSIC", 0, 0, None)]:
        return None
    (row,) = life.generations
    created = [event.log_offset for event in life.events if event.event_type == "GROUP_CREATED"]
    last = max(life.events, key=lambda event: (event.log_offset, event.event_index))
    return Beginning(min([*created, row.from_log_offset]), row.from_log_offset, row.valid_from, last.at)


@pytest.mark.parametrize("part", range(4))
def test_many_groups_are_judged_as_one_by_one(part: int) -> None:
    """Facts, anomalies, days and kept commits; what is not plain is left alone, and what is left alone is not plain."""
    seen: Counter[str] = Counter()
    for seed in range(part, 40, 4):
        now = Replayed(None, log_of_commits(Random(f"plain/{seed}")))
        lives = {group_id: now.life(group_id) for group_id in now.group_ids}
        begun = {group_id: made for group_id, life in lives.items() if (made := beginning_of(life)) is not None}
        known = {group_id for group_id, life in lives.items() if any(life[2:6])}
        grouped = GroupedCommits.of(now.pieces(0))
        found = judge_simple_groups(grouped, begun, known, SETTINGS)
        kept = found.kept.slices()
        assert found.pasts.keys() >= {day.group_id for day in found.days} | {row.group_id for row in found.anomalies}, (
            seed
        )
        for group_id, life in lives.items():
            alone = judge_group(life, SETTINGS)
            if group_id not in found.pasts:
                assert not len(found.kept.of_some({group_id}).group), seed
                seen["others"] += 1
                continue
            seen["set once" if alone.past.is_set_once else "plain"] += 1
            seen["unknown"] += group_id not in known
            days = sorted((row for row in found.days if row.group_id == group_id), key=lambda row: row.day)
            anomalies = [row for row in found.anomalies if row.group_id == group_id]
            assert found.pasts[group_id] == alone.past, seed
            assert GroupGold([], [], anomalies, days, []) == alone.gold, seed
            assert not alone.commit_times and not group_anomalies(life), seed
            own = found.kept.commits.taken(kept[group_id])
            for name in ("log_offset", "partition", "committed_offset"):
                assert np.array_equal(getattr(own, name), getattr(life.commits.taken(alone.kept), name)), seed
    assert min(seen[way] for way in ("others", "set once", "plain")) > 15, seen


def test_a_group_of_many_commits_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it did: its columns are long enough by themselves."""
    now = Replayed(None, log_of_commits(Random("plain/1")))
    grouped = GroupedCommits.of(now.pieces(0))
    assert judge_simple_groups(grouped, {}, set(), SETTINGS).pasts
    monkeypatch.setattr(simple_groups, "SIMPLE_GROUP_COMMITS_MAX", 0)
    assert not judge_simple_groups(grouped, {}, set(), SETTINGS).pasts
