"""How long a ShareFetch waits on its broker, what ends that, and the fetch lock (DelayedShareFetch)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share_partition.states import RecordState
from coordinator_core.live.share_state.records import decode_record
from schemas.share_group_state import TOPIC as SHARE_STATE
from tests.simulator.simulation.simulations import Run, run_text

GROUP = """
[[group]]
name = "g"
protocol = "share"
topics = ["t"]
"""
START_MS = 1_767_600_000_000
ONE_PARTITION = {"partitions = 4": "partitions = 1", "brokers = 3": "brokers = 1"}
SELDOM = {**ONE_PARTITION, "rate = 40.0": "rate = 0.37"}
OFTEN = {**ONE_PARTITION, "rate = 40.0": "rate = 4000.0"}


def delays_ms(run: Run, *, is_committed: bool = False) -> list[int]:
    """How long after it could be read each record was delivered first; of those that came with the member there."""
    found: dict[int, int] = {}
    for line in run.lines("deliveries", partition=0):
        for offset in range(line["first_offset"], line["last_offset"] + 1):
            found.setdefault(offset, line["ts_ms"])
    topics, begin_ms = run.simulation.topics, min(found.values())
    delays = []
    for offset, delivered_ms in found.items():
        readable_ms = topics.partition(TopicPartition("t", 0)).growth_ms(
            offset, topics.start_ms - 1, delivered_ms, is_committed=is_committed
        )
        if readable_ms > begin_ms:
            delays.append(delivered_ms - readable_ms)
    return delays


@pytest.mark.parametrize(("wait", "most_ms", "parked_share"), [("900ms", 110, 0.8), ("500ms", 510, 0.35)])
def test_a_parked_fetch_is_answered_as_the_record_comes(wait: str, most_ms: int, parked_share: float) -> None:
    """fetch.max.wait.ms: a record that comes meanwhile is delivered at that very time, any other at the next poll."""
    delays = delays_ms(run_text(GROUP + f'fetch_max_wait = "{wait}"\n', minutes=5, head=SELDOM))
    assert len(delays) > 90
    assert max(delays) <= most_ms
    assert sum(delay == 0 for delay in delays) > parked_share * len(delays)


def test_without_a_wait_records_come_with_the_polls() -> None:
    """fetch.max.wait.ms = 0: a record waits for up to the whole interval of polls."""
    delays = delays_ms(run_text(GROUP + 'fetch_max_wait = "0ms"\n', minutes=5, head=SELDOM))
    assert max(delays) > 900
    assert sum(delay == 0 for delay in delays) < 0.05 * len(delays)


def test_a_fetch_that_finds_nothing_is_answered_after_its_wait() -> None:
    """A member that polls ten times a second asks only once in 500 ms and a poll of a topic without records."""
    text = GROUP + 'poll_interval = "100ms"\n'
    head = {**ONE_PARTITION, "rate = 40.0": "rate = 0.0"}
    counts = {
        wait: run_text(text + f'fetch_max_wait = "{wait}"\n', minutes=2, head=head).summary.request_count
        for wait in ("0ms", "500ms")
    }
    assert counts["0ms"] > 1100
    assert 180 < counts["500ms"] < 280


def test_read_committed_waits_for_the_last_stable_offset() -> None:
    """share.isolation.level read_committed: a parked fetch is answered as the marker comes."""
    head = {**SELDOM, "rate = 0.37": "rate = 1.0\ntransaction_records = 5"}
    text = GROUP + 'isolation_level = "read_committed"\nfetch_max_wait = "900ms"\n'
    delays = delays_ms(run_text(text, minutes=5, head=head), is_committed=True)
    assert len(delays) > 200
    assert max(delays) <= 110
    assert min(delays) == 0


def times(lines: list[dict[str, Any]]) -> set[int]:
    """When they were."""
    return {line["ts_ms"] for line in lines}


@pytest.mark.parametrize(("wait", "some"), [("500ms", True), ("0ms", False)])
def test_what_others_acknowledge_makes_room_for_a_parked_fetch(wait: str, some: bool) -> None:
    """share.partition.max.record.locks: a fetch of a full share partition is answered as the start offset moves."""
    text = GROUP + f'members = 2\nmax_record_locks = 100\nfetch_max_wait = "{wait}"\n'
    run = run_text(text, minutes=2, head=OFTEN)
    at_writes = times(run.lines("deliveries")) & times(run.lines("share_writes"))
    assert (len(at_writes) > 20) is some


@pytest.mark.parametrize(("wait", "some"), [("500ms", True), ("0ms", False)])
def test_a_lock_that_runs_out_ends_the_wait(wait: str, some: bool) -> None:
    """Records whose lock runs out while the fetch of another member is parked are that member's at once."""
    text = GROUP + (
        'members = 5\nacknowledge = "explicit"\non_poison = "time_out"\nrecord_lock_duration = "3300ms"\n'
        f'fetch_max_wait = "{wait}"\n'
    )
    head: Mapping[str, str] = {**ONE_PARTITION, "rate = 40.0": "rate = 0.5\npoison_every = 3"}
    run = run_text(text, minutes=4, head=head)
    again = [line for line in run.lines("deliveries") if line["delivery_count"] > 1]
    at_once = times(run.lines("lock_timeouts")) & times(again)
    assert (len(at_once) > 10) is some


@pytest.mark.parametrize(("wait", "some"), [("500ms", True), ("0ms", False)])
def test_one_fetch_at_a_time_reads_a_share_partition(wait: str, some: bool) -> None:
    """maybeAcquireFetchLock: where a read takes 300 ms, one begins as the other ends, and none before."""
    head = {**OFTEN, "brokers = 1": 'brokers = 1\nshare_fetch_read = "300ms"'}
    run = run_text(GROUP + f'members = 3\nfetch_max_wait = "{wait}"\n', minutes=2, head=head)
    delivered = sorted(times(run.lines("deliveries")))
    gaps = [later - earlier for earlier, later in pairwise(delivered)]
    assert min(gaps) >= 300
    assert (gaps.count(300) > 100) is some


def test_the_first_fetch_waits_for_the_state_to_be_read() -> None:
    """A share partition that is being started parks the fetch: it is not left to the next poll, 20 s later."""
    first = {
        wait: min(
            times(
                run_text(
                    GROUP + f'poll_interval = "20s"\nfetch_max_wait = "{wait}"\n',
                    minutes=2,
                    head={"brokers = 3": "brokers = 1"},
                ).lines("deliveries")
            )
        )
        for wait in ("500ms", "0ms")
    }
    assert first["0ms"] - first["500ms"] > 19_000


def test_a_broker_that_dies_ends_the_waits_on_it() -> None:
    """Members whose fetch was parked find the connection broken, and fetch from the next leader."""
    text = (
        GROUP
        + 'members = 2\n[[fault]]\nkind = "broker_failover"\nat = "60s"\nevery = "60s"\nbroker = 2\nduration = "20s"\n'
    )
    run = run_text(text, minutes=5, head={"rate = 40.0": "rate = 4.0"})
    end_ms = run.simulation.scenario.end_ms
    for partition in range(4):
        assert max(times(run.lines("deliveries", partition=partition))) > end_ms - 15_000


def test_a_member_that_closes_gives_back_what_a_parked_fetch_gave() -> None:
    """The fetch under way ends first; then the session is closed, and no lock has to run out."""
    text = GROUP + 'members = 2\n[[fault]]\nkind = "stop"\nat = "20s"\nevery = "10s"\ngroup = "g"\nduration = "3s"\n'
    run = run_text(text, minutes=4, head={**ONE_PARTITION, "rate = 40.0": "rate = 4.0"})
    assert len(run.lines("faults")) > 40
    assert run.lines("lock_timeouts") == []


def test_a_parked_fetch_outlives_its_member() -> None:
    """Where a member dies, its fetch still acquires what comes: nobody acknowledges that until the lock runs out."""
    text = (
        GROUP
        + 'members = 1\nrecord_lock_duration = "3s"\n'
        + '[[fault]]\nkind = "crash"\nat = "20s"\nevery = "20300ms"\ngroup = "g"\nduration = "3s"\n'
    )
    run = run_text(text, minutes=8, head={**ONE_PARTITION, "rate = 40.0": "rate = 0.7"})
    crashes = [line["ts_ms"] for line in run.lines("faults")]
    late = [
        line
        for line in run.lines("deliveries")
        if any(crash_ms < line["ts_ms"] <= crash_ms + 500 for crash_ms in crashes)
    ]
    assert late
    assert {line["first_offset"] for line in late} <= {line["first_offset"] for line in run.lines("lock_timeouts")}


@pytest.mark.parametrize(("wait", "some"), [("900ms", True), ("0ms", False)])
def test_a_dead_letter_ends_the_wait_of_its_readers(wait: str, some: bool) -> None:
    """Records that brokers themselves add to a dead letter topic are delivered as they come, too."""
    text = (
        GROUP
        + 'acknowledge = "explicit"\non_poison = "reject"\ndead_letter_topic = "dlq.t"\n'
        + f'[[group]]\nname = "readers"\nprotocol = "share"\ntopics = ["dlq.t"]\nfetch_max_wait = "{wait}"\n'
        + '[[topic]]\nname = "dlq.t"\ndead_letters = true\n'
    )
    head = {"brokers = 3": 'brokers = 2\nkafka_version = "4.4"', "rate = 40.0": "rate = 2.0\npoison_every = 10"}
    run = run_text(text, minutes=5, head=head)
    added_ms = {
        record.timestamp_ms
        for log, _ in run.simulation.logs()
        if log.topic == "dlq.t"
        for batch in log.stored_batches()
        for record in iter_records(batch.data)
    }
    assert (len(added_ms & times(run.lines("deliveries", group="readers"))) > 10) is some


@pytest.mark.parametrize(("brokers", "early_ms"), [(1, 0), (3, 0), (3, 1)])
def test_the_truth_has_each_write_of_the_log(brokers: int, early_ms: int) -> None:
    """Also one that is not replicated, or that its leader has no response to, when the scenario ends; and what it gives
    up."""
    head = {"partitions = 4": "partitions = 1", "brokers = 3": f"brokers = {brokers}"}
    head["rate = 40.0"] = "rate = 5.0\ntransaction_records = 1"
    *_, last = run_text(GROUP, minutes=1, head=head).lines("share_writes", cause="ACKNOWLEDGE")
    ended = run_text(GROUP, head={**head, '"5m"': f'"{last["ts_ms"] - START_MS - early_ms}ms"'})
    [state] = ended.lines("end_share")
    *_, written = ended.lines("share_writes")
    assert {**written, "ts_ms": last["ts_ms"]} == last
    assert written["start_offset"] == state["start_offset"]
    given_up = [batch[:2] for batch in written["state_batches"] if batch[2] == "ARCHIVED"]
    assert given_up
    assert given_up == [
        [line["first_offset"], line["last_offset"]] for line in ended.lines("archived", ts_ms=written["ts_ms"])
    ]


def given_up_in_the_log(run: Run) -> set[int]:
    """Offsets that the share coordinator's log has as given up."""
    found = set[int]()
    for log, _ in run.simulation.logs():
        if log.topic == SHARE_STATE:
            for batch in log.stored_batches():
                for record in iter_records(batch.data):
                    assert record.key is not None
                    _, value = decode_record(record.key, record.value)
                    for of_state in () if value is None else value.state_batches:
                        if of_state.delivery_state == RecordState.ARCHIVED:
                            found.update(range(of_state.first_offset, of_state.last_offset + 1))
    return found


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_write_of_a_leader_that_is_lost_is_in_the_truth(broker: int) -> None:
    """Its response is on its way when the broker is lost, so that no member learns that it was written."""
    head = {"partitions = 4": "partitions = 1", "rate = 40.0": "rate = 5.0\ntransaction_records = 1"}
    *_, last = run_text(GROUP, minutes=1, head=head).lines("share_writes", cause="ACKNOWLEDGE")
    fault = (
        f'[[fault]]\nkind = "broker_failover"\nbroker = {broker}\n'
        f'at = "{last["ts_ms"] - START_MS - 1}ms"\nduration = "20s"\n'
    )
    run = run_text(GROUP + fault, minutes=2, head=head)
    given_up = {
        offset for line in run.lines("archived") for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    assert given_up == given_up_in_the_log(run)
    assert last["state_batches"][1][0] in given_up


LARGE = {"partitions = 4": "partitions = 2\nrecord_bytes = 1000", "brokers = 3": "brokers = 1"}


def records_of(run: Run) -> list[dict[int, int]]:
    """Of each answer that gave records, how many of each partition."""
    found: dict[int, dict[int, int]] = {}
    for line in run.lines("deliveries"):
        counts = found.setdefault(line["ts_ms"], {})
        counts[line["partition"]] = counts.get(line["partition"], 0) + line["last_offset"] + 1 - line["first_offset"]
    return list(found.values())


def test_a_fetch_waits_until_there_are_so_many_bytes() -> None:
    """fetch.min.bytes: 90 records of 1,000 bytes, of two partitions together; less only after fetch.max.wait.ms."""
    text = GROUP + "fetch_min_bytes = 90_000\n" + 'fetch_max_wait = "{wait}"\n'
    patient, hasty = (run_text(text.format(wait=wait), minutes=2, head=LARGE) for wait in ("10s", "500ms"))
    sizes = [sum(counts.values()) for counts in records_of(patient)]
    assert len(sizes) > 30
    assert min(sizes[1:]) >= 90
    assert max(sizes[1:]) <= 92
    assert any(sum(counts.values()) < 90 for counts in records_of(hasty)[1:])


@pytest.mark.parametrize(("most", "of_each"), [(60_000, 30), (40_001, 20), (2000, 1)])
def test_partitions_have_equal_parts_of_the_most_bytes(most: int, of_each: int) -> None:
    """fetch.max.bytes: no partition gives more than its part of it."""
    text = GROUP + f"fetch_max_bytes = {most}\n" + 'start_after = "30s"\noffset_reset = "earliest"\n'
    found = records_of(run_text(text, minutes=2, head=LARGE))
    assert max(value for counts in found if len(counts) == 2 for value in [0, *counts.values()]) == of_each
    assert max(sum(counts.values()) for counts in found) == 2 * of_each


def test_a_fetch_of_large_batches_gives_them_whole() -> None:
    """KIP-74: a batch that is larger than fetch.max.bytes comes whole, one in a fetch."""
    head = {**LARGE, "rate = 40.0": "rate = 40.0\nbatch_records = 25"}
    found = records_of(run_text(GROUP + "fetch_max_bytes = 1000\n", minutes=2, head=head))
    assert len(found) > 50
    assert {tuple(counts.values()) for counts in found} == {(25,)}
