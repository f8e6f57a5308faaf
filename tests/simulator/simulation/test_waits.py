"""No operation waits without a reason, and no share partition is passed over: property tests on the virtual clock."""

from collections import Counter

import pytest

from tests.simulator.simulation.random_scenarios import (
    STORIES,
    random_story,
    recorded_fetches,
    recorded_waits,
    slow_waits,
    starved,
)
from tests.simulator.simulation.simulations import Run, run_file, run_text

SHARE = '[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["u"]\nmembers = 1\n'
SCENARIO_MINUTES = {
    "rolling-deploy": 30,
    "bad-day": 30,
    "consumer-protocol": 30,
    "exactly-once": 15,
    "streams": 6,
    "topics-come-and-go": 8,
}


@pytest.mark.parametrize("seed", range(STORIES))
def test_no_write_waits_longer_than_its_replication_takes(seed: int) -> None:
    """In a random story, unless a broker is away; and no share partition with records is passed over."""
    story = random_story(seed)
    with recorded_waits() as waits, recorded_fetches() as fetches:
        Run(story)
    assert waits
    assert slow_waits(story, waits) == []
    assert starved(fetches) == []


@pytest.mark.parametrize("name", SCENARIO_MINUTES)
def test_no_write_of_a_shipped_scenario_waits_without_a_fault(name: str) -> None:
    """They once did: in `share-poison` for the next request, or for the time-out of 5 s."""
    without_waits(name, SCENARIO_MINUTES[name])


def without_waits(name: str, minutes: int | None = None) -> Run:
    """A shipped scenario in which no write waited without a fault, and no share partition was passed over."""
    with recorded_waits() as waits, recorded_fetches() as fetches:
        run = run_file(name, minutes=minutes)
    assert slow_waits(run.simulation.scenario, waits) == []
    assert starved(fetches) == []
    return run


def test_a_plain_share_group_writes_at_each_of_its_fetches() -> None:
    """2 partitions, 1 member, 5 minutes: about 290 fetches acknowledge 2 partitions each, and no write waits."""
    with recorded_waits() as waits:
        run = run_text('[[topic]]\nname = "u"\npartitions = 2\nrate = 40.0\n' + SHARE)
    writes = [wait for wait in waits if wait.operation == "write_state"]
    assert len(writes) > 560
    assert max(wait.duration_ms for wait in writes) <= 3
    assert sum(log.end_offset for log in run.simulation.cluster.shares.logs) >= len(writes)


def test_commits_of_classic_groups_wait_for_their_replication_only() -> None:
    """Sixty groups over three log partitions, so that brokers have requests in the same milliseconds."""
    with recorded_waits() as waits:
        text = (
            '[[group]]\nname = "g"\ncount = 60\ntopics = ["t"]\nmembers = 2\ncommit_interval = "1s"\nstagger = "0ms"\n'
        )
        run_text(text, minutes=2)
    commits = [wait.duration_ms for wait in waits if wait.operation == "commit_offset"]
    assert len(commits) > 9_000
    assert max(commits) <= 3


def test_a_member_gets_records_of_all_its_share_partitions() -> None:
    """3 partitions with 3,000 records a second and one broker: none gets less than a fifth of what is given."""
    topic = '[[topic]]\nname = "u"\npartitions = 3\nrate = 3000.0\n'
    run = run_text(topic + SHARE.replace("members = 1", "members = 1\nmax_poll_records = 500"))
    one_broker = run_text((topic + SHARE), head={"brokers = 3": "brokers = 1"})
    for each in (run, one_broker):
        given: Counter[int] = Counter()
        for line in each.lines("deliveries"):
            given[line["partition"]] += line["last_offset"] - line["first_offset"] + 1
        assert sorted(given) == [0, 1, 2]
        assert min(given.values()) > sum(given.values()) / 5


def test_a_share_consumer_that_does_not_poll_in_time_leaves_and_comes_back() -> None:
    """It leaves at max.poll.interval.ms, keeps what it fetched until the lock runs out, and joins at its next poll."""
    run = run_text(
        '[[topic]]\nname = "u"\npartitions = 2\nrate = 40.0\n'
        + SHARE.replace("members = 1", 'members = 2\nmax_poll_interval = "20s"')
        + '[[fault]]\nkind = "slow_poll"\nat = "1m"\nduration = "50s"\ngroup = "g"\nmember = 0\n'
    )
    start_ms = run.simulation.scenario.start_ms
    causes = [
        (cause["reason"], cause["client_id"], cause["fault"], (cause["at_ms"] - start_ms) // 1000)
        for line in run.lines("generations", group="g")
        for cause in line["causes"]
        if cause["at_ms"] > start_ms + 60_000
    ]
    assert causes == [("MEMBER_LEFT", "g-0", 0, 80), ("MEMBER_JOINED", "g-0", 0, 110)]
    during = [line for line in run.lines("deliveries", client_id="g-0") if 61_000 < line["ts_ms"] - start_ms < 110_000]
    assert during == []
    assert run.lines("lock_timeouts")


def test_retention_gives_up_what_nobody_was_done_with_and_nothing_else() -> None:
    """Records that were accepted are in no line of archived.jsonl. No write of the whole `share-poison` waited without
    a fault, of which 383 of 8,355 did once."""
    run = without_waits("share-poison")
    accepted: dict[tuple[str, int], set[int]] = {}
    for line in run.lines("acknowledgements", group="mailers", error=None):
        offsets = accepted.setdefault((line["topic"], line["partition"]), set())
        if line["acknowledge_type"] == ["ACCEPT"]:
            offsets.update(range(line["first_offset"], line["last_offset"] + 1))
    lost = run.lines("archived", group="mailers", why="RETENTION")
    assert lost
    for line in lost:
        offsets = set(range(line["first_offset"], line["last_offset"] + 1))
        assert offsets.isdisjoint(accepted[line["topic"], line["partition"]])
        assert line["delivery_count"] is not None


def test_what_retention_passed_during_its_last_try_is_given_up_for_its_age() -> None:
    """A leader archives a record below its start offset when the lock runs out, whatever the record's count."""
    run = run_text(
        '[[topic]]\nname = "u"\nrate = 20.0\nretention = "120s"\npoison_every = 20\n'
        + SHARE.replace(
            "members = 1", 'members = 5\nmax_poll_records = 1\nacknowledge = "explicit"\non_poison = "time_out"'
        ),
        minutes=6,
    )
    archived = {(line["ts_ms"], line["first_offset"]): line["why"] for line in run.lines("archived", group="g")}
    found = Counter(
        (first < line["start_offset"], archived[line["ts_ms"], first])
        for line in run.lines("share_writes", group="g", cause="LOCK_TIMEOUT")
        for first, _, state, count in line["state_batches"]
        if state == "ARCHIVED" and count >= 5
    )
    assert found.keys() == {(False, "DELIVERY_LIMIT"), (True, "RETENTION")}
