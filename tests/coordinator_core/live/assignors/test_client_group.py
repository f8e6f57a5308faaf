"""What client assignors are given."""

from coordinator_core.bytes import client_protocols
from coordinator_core.live.assignors.client_group import (
    Subscription,
    Topic,
    TopicPartition,
    is_rack_aware,
    subscribed_topics,
    subscription_from_protocol,
)


def test_subscription_from_protocol() -> None:
    """Partitions come one by one, and generation -1 is none."""
    decoded = client_protocols.Subscription(3, ("t",), b"u", (("t", (1, 0)), ("u", (2,))), 7, "r")
    owned = (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 2))
    assert subscription_from_protocol(decoded, "i") == Subscription(("t",), b"u", owned, 7, "r", "i")
    nothing = subscription_from_protocol(client_protocols.Subscription(0, ("t",)))
    assert nothing == Subscription(("t",))
    assert (nothing.generation, nothing.rack) == (-1, None)


def test_an_empty_rack_is_none() -> None:
    """Clients may send an empty text."""
    assert (Subscription(rack_id="").rack, Subscription(rack_id="r").rack) == (None, "r")


def test_subscribed_topics() -> None:
    """Those that exist, have partitions and somebody wants, in hash order."""
    topics = {"t1": Topic(1), "t0": Topic(1), "empty": Topic(0), "unwanted": Topic(1)}
    found = subscribed_topics(topics, {"A": Subscription(("missing", "t1", "empty")), "B": Subscription(("t0",))})
    assert list(found) == ["t0", "t1"]


def test_is_rack_aware() -> None:
    """Somebody must be on a rack with replicas, and some partition must not be on all racks."""
    r0, r1 = frozenset({"r0"}), frozenset({"r1"})
    assert is_rack_aware(r0, [r0, r1])
    assert is_rack_aware(r0, [r0, frozenset()])
    assert not is_rack_aware(frozenset({"r2"}), [r0, r1])
    assert not is_rack_aware(r0, [r0 | r1, r0 | r1])
    assert not is_rack_aware(frozenset(), [r0, r1])
    assert not is_rack_aware(r0, [])
