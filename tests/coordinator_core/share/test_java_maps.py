"""Maps of topic ids in Java's order. Orders which are spelt out were seen with Java's own collections."""

import pytest

from coordinator_core.share.java_maps import combined, computed, copy_of, map_of, set_of, subscribed_names, without
from tests.coordinator_core.share.share_clients import BAR, BAZ, FOO

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
    ids = [FOO, BAR, BAZ]
    assert list(map_of(dict.fromkeys(ids))) == list(map_of(dict.fromkeys(reversed(ids))))
    assert sorted(copy_of(dict.fromkeys(ids, 7)).items()) == sorted(dict.fromkeys(ids, 7).items())


@pytest.mark.parametrize(
    ("numbers", "order"),
    [((3, 1, 2), (1, 2, 3)), ((17, 2), (17, 2)), ((14, 15, 16, 17), (16, 17, 14, 15)), ((), ()), ((5, 5), (5,))],
)
def test_sets_of_partitions(numbers: tuple[int, ...], order: tuple[int, ...]) -> None:
    """A number is its own hash code: within the table ascending, beyond it by the remainder."""
    assert set_of(numbers) == order


def test_two_maps_together() -> None:
    """Partitions of both; the name of the second."""
    first = {FOO: ("old", (0, 2)), BAR: ("bar", (0,))}
    assert combined(first, {FOO: ("foo", (1, 2)), BAZ: ("baz", (0,))}) == {
        FOO: ("foo", (0, 1, 2)),
        BAR: ("bar", (0,)),
        BAZ: ("baz", (0,)),
    }
    assert combined({}, {}) == {}


def test_a_map_without_partitions() -> None:
    """A topic of which nothing is left goes; one which is not named stays, even without partitions."""
    topics = {FOO: ("foo", (0, 1)), BAR: ("bar", (0,)), BAZ: ("baz", ())}
    assert without(topics, {FOO: (0,), BAR: (0, 1)}) == {FOO: ("foo", (1,)), BAZ: ("baz", ())}


def test_names_after_a_change_of_subscription() -> None:
    """Those whose last subscriber left are gone, new ones are there; without a change the group's own."""
    counts = {"foo": 2, "bar": 1}
    assert sorted(subscribed_names(counts, (), None)) == ["bar", "foo"]
    assert sorted(subscribed_names(counts, ("foo", "bar"), ("foo", "zar"))) == ["foo", "zar"]
    assert subscribed_names({}, (), ()) == []
