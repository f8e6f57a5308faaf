"""Orders of HashMap and HashSet, against what a JDK printed."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.replay.java.hash_codes import (
    TopicIdPartition,
    integer_hash_code,
    string_hash_code,
    topic_id_partition_hash_code,
    topic_partition_hash_code,
)
from coordinator_core.replay.java.hash_map import (
    HashMap,
    HashSet,
    capacity_for,
    capacity_of_copy,
    capacity_of_map_copy,
    grown,
    in_bucket_order,
    in_hash_order,
)

MEMBERS = [f"member-{number * 7}" for number in range(14)]
MEMBERS_IN_ORDER = [f"member-{number}" for number in (28, 49, 14, 35, 56, 77, 21, 7, 42, 63, 84, 70, 91, 0)]
FEW = ["a", "q", "2", "Q1", "zz", "B1"]
ALIKE = ["".join(parts) for parts in product(("Aa", "BB"), repeat=4)]
"""Sixteen texts with one hash code."""
A = "aphBLT6cwzX5gtVuaW0eHw"
J = "JlI6asN9z1uWnzr0ld53Ug"


@pytest.mark.parametrize("initial_capacity", [4, 16])
def test_a_table_grows_when_it_is_three_quarters_full(initial_capacity: int) -> None:
    """Fourteen elements stand in 32 buckets, wherever the table began."""
    assert in_hash_order(MEMBERS, string_hash_code, initial_capacity=initial_capacity) == MEMBERS_IN_ORDER


def test_what_goes_and_comes_back_is_in_its_bucket_again() -> None:
    """A set does not shrink, and an element which is put twice is there once."""
    members = HashSet(string_hash_code, MEMBERS)
    for member_id in ("member-21", "member-0", "nobody"):
        members.discard(member_id)
    members.add("member-0")
    members.add("member-28")
    assert list(members) == [member_id for member_id in MEMBERS_IN_ORDER if member_id != "member-21"]
    assert (len(members), "member-0" in members, "member-21" in members) == (13, True, False)


def test_a_bucket_which_grows_long_doubles_a_small_table() -> None:
    """With the ninth of one bucket, put doubles the table before it is full."""
    expected = ["Q1", "zz", "a", *ALIKE[:9], "q", "2"]
    assert in_hash_order([*ALIKE[:9], "a", "q", "2", "Q1", "zz"], string_hash_code) == expected
    assert in_hash_order([*FEW, *ALIKE[:8]], string_hash_code) == ["Q1", "zz", "a", *ALIKE[:8], "B1", "q", "2"]
    assert in_hash_order([*range(0, 10 * 1024, 1024), 64, 1], integer_hash_code)[-1] == 1  # a table of 64 stays so


def test_compute_if_absent_puts_in_front() -> None:
    """The newest of a bucket comes first, the eighth doubles a small table, and a full one grows before all else."""
    table: HashMap[str, int] = HashMap(string_hash_code)
    for key in [*FEW, *ALIKE[:7]]:
        assert table.compute_if_absent(key, lambda: 1) == 1
    assert list(table) == ["zz", "Q1", "q", "a", "2", *reversed(ALIKE[:7]), "B1"]
    assert table.compute_if_absent("a", lambda: 2) == 1
    assert list(table) == ["zz", "Q1", "a", *reversed(ALIKE[:7]), "B1", "q", "2"]
    eighth: HashMap[str, int] = HashMap(string_hash_code)
    for key in [*FEW, *ALIKE[:8]]:
        eighth.compute_if_absent(key, lambda: 1)
    assert list(eighth) == ["zz", "Q1", *reversed(ALIKE[:8]), "a", "B1", "q", "2"]


def test_partitions_by_topic_id() -> None:
    """Kafka's record of topic id and partition, put and computed: colliding ones stand the other way round."""
    partitions = [TopicIdPartition(topic_id, number) for topic_id in (A, J) for number in range(6)]
    put: HashMap[TopicIdPartition, int] = HashMap(topic_id_partition_hash_code, 17)
    computed: HashMap[TopicIdPartition, int] = HashMap(topic_id_partition_hash_code, 17)
    for partition in partitions:
        put[partition] = 1
        computed.compute_if_absent(partition, lambda: 1)
    assert shown(put) == "a5 J0 J1 J2 a2 J3 a1 J4 a4 J5 a3 a0"
    assert shown(computed) == "J0 a5 J1 J2 J3 a2 J4 a1 J5 a4 a3 a0"


def shown(table: HashMap[TopicIdPartition, int]) -> str:
    """First letter of the topic id and partition, in order."""
    return " ".join(f"{topic_id[0]}{partition}" for (topic_id, partition), _ in table.items())


def test_partitions_by_topic_name() -> None:
    """Kafka's TopicPartition, with two topics of one hash code."""
    partitions = [(topic, number) for topic in ("t0", "orders", "Aa", "BB") for number in range(3)]
    names = " ".join(f"{topic}-{number}" for topic, number in in_hash_order(partitions, topic_partition_hash_code))
    assert names == "Aa-1 BB-1 Aa-0 BB-0 orders-0 orders-1 t0-2 orders-2 t0-1 t0-0 Aa-2 BB-2"


def test_integers() -> None:
    """An integer is its own hash code, of which the table sees the low bits."""
    assert in_hash_order([3, 17, 16, 40, 1, 100000, 33], integer_hash_code) == [16, 17, 1, 100000, 33, 3, 40]


def test_capacities() -> None:
    """AssignorHelpers.newHashMap leaves room for one more; a copy has at least the usual size."""
    assert [capacity_for(count) for count in (0, 1, 11, 12)] == [2, 3, 17, 18]
    assert [capacity_of_copy(count) for count in (0, 11, 12, 24)] == [16, 16, 17, 33]
    assert [capacity_of_map_copy(count) for count in (0, 1, 12, 24)] == [16, 2, 17, 33]


@given(st.lists(st.text(max_size=3)), st.integers(0, 40))
def test_a_walk_gives_every_element_once(elements: list[str], initial_capacity: int) -> None:
    """Whatever the order, nothing is lost, and what is taken out is gone."""
    found = in_hash_order(elements, string_hash_code, initial_capacity=initial_capacity)
    assert sorted(found) == sorted(set(elements))
    table: HashMap[str, int] = HashMap(string_hash_code, initial_capacity)
    for place, element in enumerate(elements):
        table[element] = place
    for element in found:
        assert table[element] == table.get(element) == len(elements) - 1 - elements[::-1].index(element)
        del table[element]
        assert table.get(element) is None
    assert (len(table), list(table)) == (0, [])


IN_HASH_ORDER = [
    *(55433, 87109, 229651, 174218, 102947, 150461, 63352, 197975, 15838, 23757, 158380, 134623, 142542, 221732, 39595),
    *(95028, 166299, 213813, 205894, 71271, 31676, 118785, 126704, 79190, 190056, 47514, 0, 182137, 110866, 7919),
]
"""What a java.util.HashMap of member-0, member-7919, member-15838 ... prints."""


def test_a_table_of_a_given_size() -> None:
    """Taken from a java.util.HashMap of these keys; the table doubles above three quarters."""
    assert in_bucket_order(["banana", "apple", "cherry"], string_hash_code) == ["banana", "apple", "cherry"]
    numbers = [7919 * number for number in range(30)]
    members = [f"member-{number}" for number in numbers]
    in_order = in_bucket_order(members, string_hash_code, 64)
    assert in_order == [f"member-{number}" for number in IN_HASH_ORDER]
    # A map that has grown keeps its buckets when keys go.
    assert in_bucket_order(members[::3], string_hash_code, 64) == [
        f"member-{number}" for number in IN_HASH_ORDER if number in numbers[::3]
    ]
    assert [grown(size, count) for size, count in ((16, 12), (16, 13), (32, 24), (32, 25))] == [16, 32, 32, 64]


@given(st.lists(st.text(), unique=True))
def test_bucket_order_is_an_order_of_the_keys(keys: list[str]) -> None:
    """Nothing is lost, whatever the keys; keys of one bucket stay in the order of insertion."""
    ordered = in_bucket_order(keys, string_hash_code)
    assert sorted(ordered) == sorted(keys)
    assert in_bucket_order(ordered, string_hash_code) == ordered
