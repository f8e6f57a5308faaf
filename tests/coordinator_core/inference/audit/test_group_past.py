"""Audits of groups that go on from one another: whatever the nights were, they say what one audit of all says."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.history.histories import commits_on, offsets_log
from tests.coordinator_core.inference.group_lives import GROUP, Replayed, batches_of, commit, generation, moved_member
from tests.coordinator_core.inference.group_nights import Nights, after_nights, assert_same, end_of
from tests.coordinator_core.inference.group_weeks import timed_batches
from tests.lengths import how_many
from tests.recorded import RECORDINGS

HISTORIES: Final = how_many(15)
PARTS: Final = 2
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
        reported = [batches[first:end] for first, end in pairwise([0, *cuts, len(batches)])]
        reported += [commits_on(random, base) for base in (200, 300, 400)]
        for some in reported:
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
    same as before."""
    batches, place = moved_member()
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some, host in ((batches[:place], "/old"), (batches[place:], "/new")):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, host)
        found = [(row.kind, row.owner_client_host) for row in nights.gold[GROUP].anomalies]
        assert found == [("REWIND", host), ("REWIND", "/old")]


@pytest.mark.parametrize("again", [0, 1], ids=["repeated", "moved on"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_night_that_ends_within_an_operation(order: Sequence[int], again: int) -> None:
    """Commits of one time, one after the other, count for nobody where two members own their partitions, unless they
    move on: when a member committed last, and so why it went, is the same wherever nights end."""
    reported = [(0, generation(1, {"m": [0, 2], "other": [1]}))]
    reported += [(10_000 * turn, commit(turn, partition)) for turn in (1, 2, 3) for partition in (0, 1, 2)]
    reported += [(70_000, commit(3 + again, partition)) for partition in order]
    reported.append((100_000, generation(2, {"other": [0, 1, 2]})))
    batches = timed_batches(reported)
    for cut in range(1, len(batches)):
        after_nights(batches, [cut], SETTINGS)


@pytest.mark.parametrize("without_time", [pytest.param((), id="timed"), pytest.param((2,), id="without time")])
def test_a_member_that_subscribes_to_other_topics(without_time: tuple[int, ...]) -> None:
    """Why an offset was deleted goes by what the member was subscribed to then, whatever it subscribes to later."""
    first = [generation(1, {"m": [0]}), commit(10), commit(None)]
    batches = batches_of([*first, generation(2, {"m": [0]}, topics={"m": ["u"]})], without_time=without_time)
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some in (batches[: len(first)], batches[len(first) :]):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, len(some))
        found = [(row.likely_cause, row.method, row.confidence) for row in nights.gold[GROUP].anomalies]
        assert found == [("TOPIC_DELETED", "SUBSCRIBED_TOPIC", "GUESS")]


def nights_of(*parts: list[bytes]) -> list[tuple[str | None, str, str]]:
    """Why the first offset was deleted, as nights of some batches each said at last; each says what one audit says."""
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for some in parts:
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, len(some))
    deleted = [row for row in nights.gold[GROUP].anomalies if row.kind == "DELETED"]
    return [(row.likely_cause, row.method, row.confidence) for row in deleted]


def test_an_admin_deletes_offsets_while_a_member_had_unsubscribed() -> None:
    """That the member is subscribed to the topic again by the end of its time in the group proves nothing."""
    reported = [
        generation(1, {"m": [0, 1]}),
        commit(10),
        commit(10, 1),
        generation(2, {"m": []}, topics={"m": ["u"]}),
        commit(None),
        generation(3, {"m": [0, 1]}),
    ]
    batches = batches_of(reported)
    for cut in range(1, len(batches)):
        assert nights_of(batches[:cut], batches[cut:]) == [("OFFSETS_DELETED", "SOME_PARTITIONS_OF_A_TOPIC", "LIKELY")]


def test_a_topic_that_goes_on() -> None:
    """That a subscribed topic was deleted is a guess; nothing says so when a generation is written whose members had
    unsubscribed by then."""
    begin = [generation(1, {"m": [0]}), commit(10), commit(None)]
    goes_on = batches_of([*begin, commit(5, 1)])
    assert nights_of(goes_on[:3]) == [("TOPIC_DELETED", "SUBSCRIBED_TOPIC", "GUESS")]
    assert nights_of(goes_on[:3], goes_on[3:]) == [("TOPIC_DELETED", "SUBSCRIBED_TOPIC", "GUESS")]
    joined = batches_of([*begin, generation(2, {"m": []}, topics={"m": ["u"]}, state_at=1_500)])
    assert nights_of(joined[:3], joined[3:]) == [(None, "YOUNGER_THAN_RETENTION", "CERTAIN")]


def test_partitions_of_a_topic_that_are_deleted_one_by_one() -> None:
    """Within seconds they are of one topic that was deleted, be it that a night lies between."""
    reported = [generation(1, {"m": [0, 1]}), commit(10), commit(10, 1), commit(None), commit(None, 1)]
    batches = batches_of(reported)
    expected = [("TOPIC_DELETED", "SUBSCRIBED_TOPIC", "GUESS")] * 2
    assert nights_of(batches) == nights_of(batches[:4], batches[4:]) == expected
