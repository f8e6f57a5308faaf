"""Maps of the topics of a share group, in Java's order."""

from coordinator_core.live.share.java_maps import subscribed_names, without
from tests.coordinator_core.live.share.share_clients import BAR, BAZ, FOO


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
