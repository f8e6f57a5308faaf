"""The client assignors "sticky" and "cooperative-sticky"."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator_core.bytes.client_protocols import (
    StickyUserData,
    encode_cooperative_sticky_user_data,
    encode_sticky_user_data,
)
from coordinator_core.live.assignors import client_sticky
from coordinator_core.live.assignors.client_group import Assignment, Subscription, Topic, TopicPartition
from coordinator_core.live.assignors.client_sticky import (
    MemberData,
    assign_cooperative_sticky,
    assign_sticky,
    cooperative_member_data,
)
from coordinator_core.live.assignors.errors import AssignorError
from tests.coordinator_core.live.assignors.client_cases import shown


def partitions(*names: str) -> tuple[TopicPartition, ...]:
    """`t0-1` and so on."""
    return tuple(TopicPartition(topic, int(number)) for topic, number in (name.split("-") for name in names))


def with_owned(subscription: Subscription, owned: tuple[TopicPartition, ...], generation: int = 1) -> Subscription:
    """A member who says, in both ways, what it has."""
    grouped = tuple((partition.topic, (partition.partition,)) for partition in owned)
    return replace(
        subscription,
        owned_partitions=owned,
        generation_id=generation,
        user_data=encode_sticky_user_data(StickyUserData(grouped, generation)),
    )


def test_a_third_claim_of_a_later_generation_wins() -> None:
    """Where subscriptions differ, C owns what A and B of an earlier generation both claim."""
    claimed = with_owned(Subscription(("t",)), partitions("t-0"), 1)
    latest = with_owned(Subscription(("t",)), partitions("t-0"), 2)
    subscriptions = {"A": claimed, "B": claimed, "C": latest, "D": Subscription(("u",))}
    answer = assign_sticky({"t": Topic(2), "u": Topic(1)}, subscriptions)
    assert shown(answer) == "A=[t-1] B=[] C=[t-0] D=[u-0]"


def test_moves_which_make_it_no_more_even_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is then what it was before partitions moved, those of members with no part in it included."""
    topics = {"t": Topic(4), "own": Topic(1)}
    owned = partitions("t-0", "t-1", "t-2", "t-3")
    subscriptions = {
        "A": with_owned(Subscription(("t",)), owned),
        "B": with_owned(Subscription(("t",)), ()),
        "C": with_owned(Subscription(("own",)), ()),
    }
    assert shown(assign_sticky(topics, subscriptions)) == "A=[t-2, t-3] B=[t-0, t-1] C=[own-0]"
    monkeypatch.setattr(client_sticky, "_unevenness", len)
    assert shown(assign_sticky(topics, subscriptions)) == "A=[t-0, t-1, t-2, t-3] B=[] C=[own-0]"


def test_kafka_s_null_pointer_is_an_error_of_its_own() -> None:
    """An earlier owner who has all that it is now subscribed to, and nothing to share, is out of the game: Kafka's
    assignor then asks for its partitions in vain.
    """
    topics = {"t": Topic(4), "own": Topic(1)}
    subscriptions = {
        "A": with_owned(Subscription(("t",)), partitions("t-0", "t-1", "t-2", "t-3"), 5),
        "B": with_owned(Subscription(("t",)), (), 5),
        "C": with_owned(Subscription(("own",)), partitions("t-0"), 4),
    }
    with pytest.raises(AssignorError):
        assign_sticky(topics, subscriptions)


@pytest.mark.parametrize("assign", [assign_sticky, assign_cooperative_sticky])
def test_a_group_without_members(assign: Callable[..., Assignment]) -> None:
    """Nobody answers for nobody."""
    assert assign({"t": Topic(1)}, {}) == {}


@pytest.mark.parametrize(
    ("generation_id", "user_data", "generation"),
    [
        (4, encode_cooperative_sticky_user_data(3), 4),
        (None, encode_cooperative_sticky_user_data(3), 3),
        (None, b"", -1),
        (None, None, None),
    ],
)
def test_cooperative_member_data(generation_id: int | None, user_data: bytes | None, generation: int | None) -> None:
    """Partitions are in the subscription, the generation there or, of old clients, in the user data."""
    owned = partitions("t-0")
    subscription = Subscription(("t",), user_data, owned, generation_id)
    assert cooperative_member_data(subscription) == MemberData(owned, generation)
