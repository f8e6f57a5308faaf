"""Tests of a replicated partition: what is committed, who is in sync, what an election loses."""

import random

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.errors import NoSuchReplica
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.replica import EpochStart, Replica, StoredBatch
from schemas.error_codes import ErrorCode


def batch(count: int = 1, key: bytes = b"k") -> bytes:
    """A batch of so many records."""
    return build_batch([Record(offset, 5, key, b"v") for offset in range(count)], base_sequence=0)


def three(min_insync_replicas: int = 2) -> PartitionLog:
    """A partition on brokers 1, 2 and 3, led by 1."""
    return PartitionLog("t", 0, (1, 2, 3), min_insync_replicas=min_insync_replicas)


def contents(log: PartitionLog, broker_id: int) -> list[tuple[int, int]]:
    """(base offset, leader epoch) of the batches of a replica."""
    return [(stored.base_offset, stored.leader_epoch) for stored in log.replicas[broker_id].batches()]


def test_a_record_is_committed_when_all_in_sync_have_said_that_they_have_it() -> None:
    """The first fetch takes it, the second tells the leader, and a third tells the follower."""
    log = three()
    log.append(1, batch(3))
    assert [log.fetch(2), log.fetch(3)] == [True, True]
    assert (log.high_watermark, log.replicas[2].end_offset) == (0, 3)
    log.fetch(2)
    assert log.high_watermark == 0
    log.fetch(3)
    assert log.high_watermark == 3
    assert log.replicas[2].high_watermark == 0
    log.fetch(2)
    assert log.replicas[2].high_watermark == 3
    assert log.fetch(2) is False


def test_with_too_few_in_sync_nothing_is_written_or_committed() -> None:
    """NOT_ENOUGH_REPLICAS, and the high watermark rests although the leader alone would do (KIP-966)."""
    log = three()
    log.append(1, batch())
    log.shrink_isr(2)
    log.shrink_isr(3)
    assert (log.isr, log.high_watermark) == ((1,), 0)
    with pytest.raises(Refused) as refused:
        log.append(1, batch())
    assert (refused.value.code, log.end_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 1)
    log.fetch(2), log.fetch(2)
    assert (log.isr, log.high_watermark) == ((1, 2), 1)


def test_only_the_leader_takes_batches_and_not_too_large_ones() -> None:
    """The log is as it was."""
    log = PartitionLog("t", 0, (1, 2), message_bytes_max=100)
    for broker_id, data, code in (
        (2, batch(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, batch(20), ErrorCode.MESSAGE_TOO_LARGE),
    ):
        with pytest.raises(Refused) as refused:
            log.append(broker_id, data)
        assert refused.value.code == code
    assert log.end_offset == 0


def test_an_election_loses_what_only_the_old_leader_had() -> None:
    """Replicas cut themselves off where the new leader's log of their last epoch ends, and go on from there."""
    log = three()
    log.append(1, batch(3))
    log.replicate()
    log.append(1, batch(2))
    log.fetch(2)
    log.append(1, batch(4))
    assert (log.replicas[1].end_offset, log.replicas[2].end_offset, log.replicas[3].end_offset) == (9, 5, 3)
    log.shrink_isr(1)
    assert log.leader is None
    assert log.elect_next([2, 3]) == 2
    assert (log.leader_epoch, log.end_offset, log.high_watermark) == (1, 5, 3)
    log.append(2, batch())
    log.replicate((1, 3))
    assert contents(log, 1) == contents(log, 2) == contents(log, 3) == [(0, 0), (3, 0), (5, 1)]
    assert log.isr == (1, 2, 3)
    assert log.high_watermark == 6
    assert log.epochs == (EpochStart(0, 0), EpochStart(1, 5))


def test_the_first_alive_in_sync_replica_in_the_order_of_assignment_leads() -> None:
    """Without one the partition has no leader, and whoever asks for its end gets that error."""
    log = three()
    log.shrink_isr(2)
    assert log.elect_next([3, 2, 1]) == 1
    assert log.elect_next([2, 3]) == 3
    assert log.elect_next([2]) is None
    with pytest.raises(NoSuchReplica):
        _ = log.end_offset
    assert log.fetch(2) is False
    with pytest.raises(NoSuchReplica):
        log.elect(2)
    assert log.elect(2, is_unclean=True) == log.leader_epoch
    assert log.isr == (2,)


def test_brokers_without_a_replica_have_no_part() -> None:
    """A fault of the caller."""
    log = three()
    for call in (log.fetch, log.elect):
        with pytest.raises(NoSuchReplica):
            call(9)


def test_deleting_records_moves_the_start_within_what_is_committed() -> None:
    """It never moves back; batches which end below it are no longer given."""
    log = three()
    log.append(1, batch(2))
    log.append(1, batch(2))
    assert log.delete_records(2) == 0
    log.replicate()
    assert [log.delete_records(offset) for offset in (3, 1, 9)] == [3, 3, 4]
    log.append(1, batch())
    assert [stored.base_offset for stored in log.batches()] == [4]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_committed_is_never_lost(seed: int) -> None:
    """Whatever dies and comes back, as long as elections are clean: each leader has all that was ever committed.

    Its high watermark may be behind its predecessor's for a while, as in Kafka.
    """
    rng = random.Random(seed)
    log = three(rng.choice((1, 2)))
    committed: list[StoredBatch] = []
    alive = {1, 2, 3}
    for number in range(200):
        match rng.randrange(10):
            case 0 | 1 if log.leader is not None and not log.is_under_min_isr:
                log.append(log.leader, batch(rng.randrange(1, 4), str(number).encode()))
            case 2 | 3 | 4 | 5 | 6 if alive:
                log.fetch(rng.choice(sorted(alive)))
            case 7 if alive:
                broker_id = rng.choice(sorted(alive))
                alive.discard(broker_id)
                was_leader = broker_id == log.leader
                log.shrink_isr(broker_id)
                if was_leader:
                    log.elect_next(sorted(alive))
            case 8 | 9:
                alive.add(rng.choice((1, 2, 3)))
                if log.leader is None:
                    log.elect_next(sorted(alive))
        if log.leader is None:
            continue
        stored = list(log.batches())
        assert stored[: len(committed)] == committed
        committed = max(committed, [entry for entry in stored if entry.next_offset <= log.high_watermark], key=len)
        for replica in log.replicas.values():
            below = [entry for entry in replica.batches() if entry.next_offset <= replica.high_watermark]
            assert below == stored[: len(below)]
    assert committed


def test_a_replica_steps_back_epoch_by_epoch() -> None:
    """It has epochs 0, 1 and 3, the leader 0 and 2: what they share ends where epoch 1 began (KIP-279)."""
    follower, leader = Replica(1), Replica(2)
    for base_offset, leader_epoch in ((0, 0), (2, 1), (4, 3)):
        follower.append(StoredBatch(base_offset, base_offset + 2, leader_epoch, -1, b""))
    for base_offset, leader_epoch in ((0, 0), (2, 0), (4, 2)):
        leader.append(StoredBatch(base_offset, base_offset + 2, leader_epoch, -1, b""))
    follower.truncate_to_leader(leader)
    assert (follower.end_offset, follower.epochs) == (2, [EpochStart(0, 0)])


def test_a_cut_inside_a_batch_takes_the_whole_batch() -> None:
    """Batches are not divided."""
    replica = Replica(0)
    for base_offset in (0, 3):
        replica.append(StoredBatch(base_offset, base_offset + 3, 0, -1, b""))
    replica.high_watermark = 6
    replica.truncate(5)
    assert (replica.end_offset, replica.high_watermark) == (3, 3)
