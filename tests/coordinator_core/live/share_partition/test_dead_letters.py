"""Records of a share group with a dead letter topic, as the leader of Kafka 4.4 treats them (delivery state 3)."""

import pytest

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.live.share_partition.dead_letters import complete_copy, take_copies
from coordinator_core.live.share_partition.errors import InvalidReadState, UnknownWrite
from coordinator_core.live.share_partition.state import SharePartitionConfig, WriteCause
from schemas.dead_letters import DeadLetterCause
from tests.coordinator_core.live.share_partition.live import (
    ACCEPT,
    ACK,
    ACQ,
    ARC,
    COPYING,
    FAILED,
    LOCK_MS,
    REJECT,
    RELEASE,
    Live,
    Written,
    written,
)

V43, V44 = KafkaVersion(4, 3), KafkaVersion(4, 4)
REJECTED, LIMIT = DeadLetterCause.REJECTED, DeadLetterCause.DELIVERY_LIMIT


def live(limit: int = 5, persisted: tuple[tuple[int, int, int, int], ...] = ()) -> Live:
    """A share partition of such a group."""
    return Live(0, persisted, limit=limit, version=V44, dead_letters=True)


def copies(of: Live) -> list[tuple[int, int, int, DeadLetterCause]]:
    """First and last offset, delivery count and cause of what is to be copied now."""
    return [(it.first_offset, it.last_offset, it.delivery_count, it.cause) for it in take_copies(of.partition)]


def copied(of: Live, error: bool = False) -> list[Written]:
    """All copies are done with, and what is written of that, successfully or not."""
    writes = [complete_copy(of.partition, copy_id) for copy_id in tuple(of.partition.copies_under_way)]
    assert {it.cause for it in writes} <= {WriteCause.DEAD_LETTER}
    return [of.finish(write, FAILED if error else None) for write in writes]


def test_a_rejected_record_is_copied_before_it_is_archived() -> None:
    """State 3 is written, then the broker copies, then state 4 is; only that counts as complete and moves the start."""
    of = live()
    of.acquire("m", (0, 9))
    write = of.begin("m", (0, 9, [ACCEPT, ACCEPT, *[REJECT] * 5, *[ACCEPT] * 3]))
    assert copies(of) == []
    assert write is not None
    assert write.delivery_complete_count == 5
    of.finish(write)
    assert [state for _, state, _ in of.states] == [ACK] * 2 + [COPYING] * 5 + [ACK] * 3
    assert of.window == (2, 9, 10, 3)
    assert copies(of) == [(offset, offset, 1, REJECTED) for offset in range(2, 7)]
    assert copies(of) == []
    assert copied(of) == [((offset, offset, ARC, 1),) for offset in range(2, 7)]
    assert of.window == (10, 10, 10, 0)


@pytest.mark.parametrize("way", ["release", "session", "lock"])
def test_the_last_delivery_allowed_is_copied(way: str) -> None:
    """However it ends, and its cause is the limit."""
    of = live(limit=1)
    of.acquire("m", (0, 9))
    if way == "release":
        writes = [of.acknowledge("m", (0, 9, [RELEASE]))]
    elif way == "session":
        writes = [of.release("m")]
    else:
        writes = of.advance(LOCK_MS)
    assert writes == [((0, 9, COPYING, 1),)]
    assert of.window == (0, 9, 10, 0)
    assert of.acquire("m", (0, 9), at=0) == []
    assert copies(of) == [(0, 9, 1, LIMIT)]
    assert copied(of) == [((0, 9, ARC, 1),)]
    assert of.window == (10, 10, 10, 0)


def test_a_failed_write_copies_nothing() -> None:
    """The records go back to their member. What a lock gave up stays so, and is copied all the same."""
    of = live()
    of.acquire("m", (0, 9))
    of.finish(of.begin("m", (0, 9, [REJECT])), FAILED)
    assert {state for _, state, _ in of.states} == {ACQ}
    assert copies(of) == []
    of = live(limit=1)
    of.acquire("m", (0, 9))
    of.advance(LOCK_MS, FAILED)
    assert copies(of) == [(0, 9, 1, LIMIT)]


def test_a_new_leader_copies_what_the_one_before_left() -> None:
    """By the delivery count it is the limit, else a rejection; what is not archived yet does not count as complete."""
    of = live(limit=3, persisted=((0, 4, COPYING, 1), (5, 6, ACK, 1), (7, 9, COPYING, 3)))
    assert of.window == (0, 9, 10, 2)
    assert copies(of) == [(0, 4, 1, REJECTED), (7, 9, 3, LIMIT)]
    assert copied(of) == [((0, 4, ARC, 1),), ((7, 9, ARC, 3),)]
    assert of.window == (10, 10, 10, 0)


def test_a_release_before_knows_no_such_state() -> None:
    """Kafka 4.3 cannot start from it, and has no dead letter topics."""
    with pytest.raises(InvalidReadState, match=r"Kafka 4\.3 does not know the delivery state ARCHIVING"):
        Live(0, ((0, 4, COPYING, 1),), version=V43)
    with pytest.raises(ValueError, match=r"Kafka 4\.3 has no dead letter topics"):
        SharePartitionConfig(kafka_version=V43, has_dead_letter_topic=True)
    of = Live(version=V44)
    of.acquire("m", (0, 9))
    assert of.acknowledge("m", (0, 9, [REJECT])) == ((0, 9, ARC, 1),)


def test_a_copy_ends_once() -> None:
    """A second end is an error, and changes nothing."""
    of = live()
    of.acquire("m", (0, 9))
    of.acknowledge("m", (0, 9, [REJECT]))
    (copy,) = take_copies(of.partition)
    assert written(complete_copy(of.partition, copy.copy_id)) == ((0, 9, ARC, 1),)
    with pytest.raises(UnknownWrite, match="copy 0 is not under way"):
        complete_copy(of.partition, copy.copy_id)


def test_a_batch_that_is_split_while_it_is_copied_is_archived_whole() -> None:
    """An acknowledgement of other offsets of the range does not lose it."""
    of = live(persisted=((0, 9, COPYING, 2),))
    batch = of.partition.cached.first
    batch.split(of.partition.locks)
    assert copied(of) == [((0, 9, ARC, 2),)]
    assert of.window == (10, 10, 10, 0)
