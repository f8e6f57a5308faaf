"""Audits of groups that go on from one another: whatever the nights were, they say what one audit of all says."""

import os
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.scan import scan_segment
from tests.conftest import RECORDINGS
from tests.coordinator_core.history.histories import commits_on, offsets_log
from tests.coordinator_core.inference.group_lives import GROUP, Replayed, batches_of, commit, generation, moved_member
from tests.coordinator_core.inference.group_nights import Nights, assert_same, end_of

HISTORIES: Final = int(os.environ.get("HISTORIES", "80"))
PARTS: Final = 10
FULL_A: Final = RECORDINGS / "full-a" / "logs"
SETTINGS: Final = InferenceSettings(skip_offset_count=500, stalled_ms=10_000)


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
    assert min(ways[way] for way in ("left as it was", "gone on with")) > HISTORIES // PARTS // 2, ways


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
