"""Maps and sets in Java's order. Orders which are spelt out were seen with Java's own collections."""

import pytest

from coordinator_core.replay.java.ordered import (
    computed,
    copy_of,
    map_of,
    names_in_set_order,
    partitions_of_record,
    set_of,
)

A, B = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
J = "JlI6asN9z1uWnzr0ld53Ug"
ALIKE = "aphBLT6cwzX5gtVuaW0eHw"

# These two share a bucket in tables of 2 to 16, so that the order of insertion is seen.
ONE, OTHER = "7Aup1DRnAn9kMzWtPJpFkQ", "qUhffWOdLPb8abgZ856Pog"


@pytest.mark.parametrize("pair", [(ONE, OTHER), (OTHER, ONE)])
def test_a_map_keeps_the_order_of_insertion_within_a_bucket(pair: tuple[str, str]) -> None:
    """`put` hangs to the end, `computeIfAbsent` to the front."""
    entries = dict.fromkeys(pair, 1)
    assert list(map_of(entries)) == list(pair)
    assert list(computed(entries.items())) == list(reversed(pair))


def test_the_order_does_not_hang_on_insertion_between_buckets() -> None:
    """It is that of the hash codes, within the table; a copy has a smaller table than a map of the usual size."""
    ids = [A, J, ONE]
    assert list(map_of({J: 0, A: 0})) == [A, J]
    assert list(map_of(dict.fromkeys(ids))) == list(map_of(dict.fromkeys(reversed(ids))))
    assert sorted(copy_of(dict.fromkeys(ids, 7)).items()) == sorted(dict.fromkeys(ids, 7).items())


@pytest.mark.parametrize(
    ("numbers", "order"),
    [((3, 1, 2), (1, 2, 3)), ((17, 2), (17, 2)), ((14, 15, 16, 17), (16, 17, 14, 15)), ((), ()), ((5, 5), (5,))],
)
def test_sets_of_partitions(numbers: tuple[int, ...], order: tuple[int, ...]) -> None:
    """A number is its own hash code: within the table ascending, beyond it by the remainder."""
    assert set_of(numbers) == order


def test_partitions_of_a_record() -> None:
    """Topics and partitions by bucket, as HashMap and HashSet hold them."""
    ordered = partitions_of_record({J: [0], ALIKE: [12, 16, 1], B: [], A: [17, 3]})
    assert list(ordered.items()) == [(A, (17, 3)), (ALIKE, (16, 1, 12)), (B, ()), (J, (0,))]


def test_names_in_a_set() -> None:
    """Each once, by bucket; two of one bucket as they came."""
    assert names_in_set_order(["banana", "cherry", "apple", "banana"]) == ["banana", "cherry", "apple"]
