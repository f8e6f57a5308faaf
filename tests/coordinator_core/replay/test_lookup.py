"""Look-ups: Kafka's own answers, and keys which read back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import LookupKeyError
from coordinator_core.replay.lookup import (
    SharePartitionKey,
    group_partition,
    kafka_abs,
    key_codes,
    key_partition,
    share_partition_partition,
    transactional_id_partition,
)
from tests.conformance.families import lookups

TRACE = Path(__file__).parents[2] / "data" / "traces" / "lookups.jsonl.gz"


def test_lookups_agree_with_kafka() -> None:
    """Every hash, key and partition of Kafka's own trace comes out the same."""
    assert lookups.run(TRACE) == (617, 617, [])


@pytest.mark.parametrize(("number", "absolute"), [(-(2**31), 0), (-1, 1), (0, 0), (2**31 - 1, 2**31 - 1)])
def test_kafka_abs(number: int, absolute: int) -> None:
    """The smallest number has no absolute value in 32 bits; Kafka says 0."""
    assert kafka_abs(number) == absolute


@pytest.mark.parametrize(("group_id", "partition"), [("g", 3), ("group1", 40), ("my-group", 12), ("", 0)])
def test_group_and_transactional_id_partition(group_id: str, partition: int) -> None:
    """Both topics follow one rule."""
    assert group_partition(group_id, 50) == partition
    assert transactional_id_partition(group_id, 50) == partition


def test_share_partition_partition() -> None:
    """The key is hashed as one string."""
    assert share_partition_partition(SharePartitionKey("sg", "AAAAAAAAAAAAAAAAAAAAAQ", 3), 50) == 11


@pytest.mark.parametrize("partition_count", [0, -1])
def test_a_topic_has_partitions(partition_count: int) -> None:
    """A count which no topic has is the caller's error."""
    with pytest.raises(LookupKeyError):
        group_partition("g", partition_count)


@given(keys=st.lists(st.text(st.characters(), max_size=40), max_size=8))
def test_many_keys_at_once(keys: list[str]) -> None:
    """The same as one by one, whatever characters they have and however long they are."""
    keys = [*keys, "", "polygenelubricants", "group:topicId:0"]  # the second has the hash code -2^31
    codes = key_codes(keys)
    for count in (1, 50, 2**31 - 1):
        assert (codes % count).tolist() == [key_partition(key, count) for key in keys]
