"""Data topics by time: offsets, retention, stalls, growth, poison."""

import pytest

from coordinator_core.live.assignors.client_group import TopicPartition
from simulator.simulation.scenario import TopicSpec
from simulator.simulation.topics import Topics

AT = TopicPartition("t", 0)
START_MS = 1_000_000


def topics(**fields: object) -> Topics:
    """One topic."""
    spec = TopicSpec("t", **{"rate": 10.0, **fields})  # type: ignore[arg-type]
    return Topics((spec,), start_ms=START_MS, retention_check_interval_ms=1000, seed=1)


def test_offsets_rise_with_time_in_whole_batches() -> None:
    """Ten records a second come in batches of four."""
    data = topics(batch_records=4)
    ends = [data.end_offset(AT, START_MS + elapsed_ms) for elapsed_ms in range(0, 60_000, 100)]
    assert ends == sorted(ends)
    assert {end % 4 for end in ends} == {0}
    assert 590 <= ends[-1] <= 604


def test_fetched_batches_begin_where_the_log_has_them() -> None:
    """A fetch inside a batch gives the whole batch, and no more batches than the records asked for."""
    data = topics(batch_records=4)
    batches = data.partition(AT).log_batches(6, 5, START_MS + 60_000)
    assert [(batch.first_offset, batch.last_offset) for batch in batches] == [(4, 7), (8, 11)]


def test_retention_moves_the_start_from_check_to_check() -> None:
    """What is older than the retention at the last check is gone."""
    data = topics(retention_ms=5000)
    assert data.start_offset(AT, START_MS + 4000) == 0
    assert data.start_offset(AT, START_MS + 10_000) == data.end_offset(AT, START_MS + 5000) > 0
    assert data.start_offset(AT, START_MS + 10_999) == data.start_offset(AT, START_MS + 10_000)


def test_a_stall_holds_the_end_offset() -> None:
    """Nothing comes between its two ends, and then all goes on at the old rate."""
    data = topics()
    data.stall("t", None, START_MS + 10_000, START_MS + 20_000)
    owned = data.end_offset(AT, START_MS + 10_000)
    assert data.end_offset(AT, START_MS + 19_999) == owned
    assert data.end_offset(AT, START_MS + 30_000) == owned + 100


def test_new_partitions_take_their_share() -> None:
    """The same records spread over more partitions."""
    data = topics()
    data.add_partitions("t", 2, START_MS + 10_000)
    assert data.partition_count("t") == 2
    assert data.end_offset(TopicPartition("t", 1), START_MS + 20_000) == pytest.approx(50, abs=1)
    assert data.end_offset(AT, START_MS + 20_000) == pytest.approx(150, abs=1)


def test_deleted_records_stay_deleted() -> None:
    """The log begins at the given offset, at most at its end."""
    data = topics()
    assert data.delete_records(AT, 30, START_MS + 10_000) == 30
    assert data.start_offset(AT, START_MS + 9999) == 0
    assert data.start_offset(AT, START_MS + 10_000) == 30
    assert data.delete_records(AT, 10**9, START_MS + 20_000) == data.end_offset(AT, START_MS + 20_000)


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "expected"),
    [(0, 99, None), (0, 100, 99), (99, 150, 99), (100, 150, 120), (121, 300, 199)],
)
def test_poison_is_found(from_offset: int, to_offset: int, expected: int | None) -> None:
    """Every hundredth record, and one more."""
    data = topics(poison_every=100)
    data.add_poison(AT, 120)
    assert data.partition(AT).next_poison_offset(from_offset, to_offset) == expected


def test_a_topic_that_is_made_again_is_another_one() -> None:
    """It has another id, empty logs and its own number of partitions; the former id is known still."""
    data = topics(partitions=3)
    first_id = data.topic_id("t")
    data.delete("t", START_MS + 10_000)
    assert (data.partition_count("t"), data.exists(AT)) == (0, False)
    assert not data.image(1).topics
    last = data.end_offset(AT, START_MS + 10_000)
    assert data.end_offset(AT, START_MS + 20_000) == last > 0
    assert data.create("t", START_MS + 30_000, 2) == 2
    assert data.topic_id("t") != first_id
    assert data.names() == {first_id: "t", data.topic_id("t"): "t"}
    assert data.end_offset(AT, START_MS + 30_000) <= 1
    assert not data.exists(TopicPartition("t", 2))
    assert (data.made_since("t", START_MS + 30_000), data.made_since("t", START_MS + 30_001)) == (True, False)


def test_a_topic_may_be_absent_at_first() -> None:
    """Until it is made it has no partitions and no id."""
    data = Topics(
        (TopicSpec("t", rate=10.0),),
        start_ms=START_MS,
        retention_check_interval_ms=1000,
        seed=1,
        absent=frozenset({"t"}),
    )
    assert not list(data.partitions())
    assert data.names() == {}
    data.create("t", START_MS + 5000)
    assert data.end_offset(AT, START_MS + 15_000) in {100, 101}
