"""The settled past of groups: nights that leave it alone say what one audit of all says, to the last row."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.history.histories import commits_on, offsets_log
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    Replayed,
    classic,
    commit,
    epoch,
    generation,
    goes,
    joins,
    reconciled,
    target,
)
from tests.coordinator_core.inference.group_nights import Nights, after_nights, assert_same, end_of
from tests.coordinator_core.inference.group_weeks import (
    AWAY_EPOCH,
    DAY_MS,
    logged,
    moved_after_days,
    timed_batches,
    weeks_log,
)
from tests.coordinator_core.live.offsets.reference import encode_batches
from tests.lengths import how_many

HISTORIES: Final = how_many(15)
PARTS: Final = 2
SETTINGS: Final = InferenceSettings(skip_offset_count=500)
TWO_DEPLOYMENTS: Final = {1: (1291, 1149)}
"""Seeds by part: a group with two rolling deployments, of which a night sees the second alone."""


def judged(batches: list[bytes], random: Random, night_count: int) -> Counter[str]:
    """How so many nights over a log went, each of which said what one audit says."""
    cuts = sorted(random.randrange(1, len(batches)) for _ in range(night_count))
    return after_nights(batches, cuts, SETTINGS).ways


def logged_in(reported: list[tuple[int, list[Record]]]) -> list[bytes]:
    """Operations of a group, when and what was written, in batches."""
    return encode_batches([logged(records, at_ms, GROUP) for at_ms, records in reported])


def two_nights(batches: list[bytes], place: int = -1) -> Iterator[Nights]:
    """What there is after a night of the batches before a place, and after one of the others; both said what one audit
    says."""
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some in (batches[:place], batches[place:]):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, len(some))
        yield nights


@pytest.mark.parametrize("part", range(PARTS))
def test_weeks_of_a_group(part: int) -> None:
    """Members come and go, a group empties and fills again, or goes and comes again; perhaps with another one."""
    ways: Counter[str] = Counter()
    for seed in (*range(part, HISTORIES, PARTS), *TWO_DEPLOYMENTS.get(part, ())):
        random = Random(f"weeks/{seed}")
        batches = weeks_log(random, ("g", "h")[: random.randint(1, 2)], random.randint(30, 150))
        ways += judged(batches, random, random.randint(2, 6))
    assert ways["from a settled place"] > HISTORIES // PARTS // 5, ways


@pytest.mark.parametrize("part", range(PARTS))
def test_any_records_over_days(part: int) -> None:
    """Logs that no coordinator writes, hours between any two batches."""
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"days/{seed}")
        batches = offsets_log(random, random.choice((10_000_000, 40_000_000, 90_000_000)))
        batches += commits_on(random, 10_000)
        judged(batches, random, random.randint(1, 5))


def test_a_static_member_that_went_days_ago() -> None:
    """It said so before the place that nights go on from; when it is dropped, that counts."""
    members = ("a", "b", "c")
    reported: list[tuple[int, list[Record]]] = [
        (0, [*joins("a"), *joins("b"), *joins("c", "static-c"), *epoch(1)]),
        (1_000, target(1, {"a": [0], "b": [1], "c": [2]})),
        *((2_000, reconciled(member_id, 1, [number])) for number, member_id in enumerate(members)),
        (60_000, reconciled("c", AWAY_EPOCH, [])),
    ]
    for day, number in ((1, 2), (2, 3), (3, 4)):
        other = f"x{day}"
        reported += [
            (day * DAY_MS, [*joins(other), *epoch(number)]),
            (day * DAY_MS + 1_000, target(number, {"a": [0], "b": [1], "c": [2], other: [3]})),
            *((day * DAY_MS + 2_000, reconciled(one, number, [at])) for at, one in enumerate(("a", "b"))),
            (day * DAY_MS + 2_000, reconciled(other, number, [3])),
        ]
    reported.append((4 * DAY_MS, [*goes("c"), *epoch(5)]))
    *_, nights = two_nights(logged_in(reported))
    assert nights.ways["from a settled place"] == 1, nights.ways
    assert nights.gold[GROUP].rebalances[-1].cause_methods == ("STATIC_MEMBER_AWAY",)


def test_offsets_that_are_deleted_hours_before_a_rebalance() -> None:
    """What is said of rebalances does not go by them: the past is settled, though they are of the day of the next."""
    both = {"m": [0], "other": [1]}
    reported = [(0, generation(1, both))]
    for day in (1, 2, 3):
        reported += [(day * DAY_MS - 1_000, commit(10 * day, partition)) for partition in (0, 1)]
        reported.append((day * DAY_MS + 1_000, commit(None, 1)))
        reported.append((day * DAY_MS + 10_000_000, generation(day + 1, both | {f"x{day}": [2]})))
    *_, nights = two_nights(timed_batches(reported))
    assert nights.ways["from a settled place"] == 1, nights.ways
    assert [row.kind for row in nights.gold[GROUP].anomalies] == ["DELETED"] * 3


def test_a_member_that_comes_back_from_another_host_after_days() -> None:
    """What was said of its commits and of what it owned names that one."""
    found = []
    for nights in two_nights(*moved_after_days()):
        found.append({row.owner_member_id: row.owner_client_host for row in nights.gold[GROUP].anomalies})
    assert found == [{"m": "/old", "other": "/old"}, {"m": "/new", "other": "/old"}]


def test_a_member_whose_host_reported_a_deployment() -> None:
    """Two came, then two went: a deployment, because the new ones were on the hosts of the old ones. When one of them
    comes back from another host days later, it was none."""
    reported: list[tuple[int, list[Record]]] = []
    hosts = {"a1": "/x", "b1": "/y", "a2": "/x", "b2": "/y"}
    steps = ("a1 b1", "a1 b1 a2", "a1 b1 a2 b2", "b1 a2 b2", "a2 b2")
    for number, members in enumerate(map(str.split, steps), 1):
        reported.append((number * 1_000, classic(number, {one: [at] for at, one in enumerate(members)}, hosts=hosts)))
    for day in (1, 2, 3):
        if day == 3:
            hosts |= {"a2": "/z"}
        reported.append((day * DAY_MS, classic(5 + day, {"a2": [0], "b2": [1]}, hosts=hosts)))
    found = []
    for nights in two_nights(logged_in(reported)):
        found.append(sum(row.rollout_id is not None for row in nights.gold[GROUP].rebalances))
    assert found == [4, 0]
    assert not nights.ways["from a settled place"], nights.ways
