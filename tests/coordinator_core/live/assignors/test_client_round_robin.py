"""The client assignor "roundrobin"."""

from collections.abc import Mapping

from hypothesis import given

from coordinator_core.live.assignors.client_group import Subscription, Topic
from coordinator_core.live.assignors.client_round_robin import assign_round_robin
from tests.coordinator_core.live.assignors.client_cases import shown
from tests.coordinator_core.live.assignors.groups import assert_client_answer, client_groups


def test_who_is_not_subscribed_is_passed_over() -> None:
    """The example of RoundRobinAssignor's own page; a topic which does not exist is nobody's."""
    topics = {"t0": Topic(1), "t1": Topic(2), "t2": Topic(3)}
    subscriptions = {
        "C0": Subscription(("t0", "missing")),
        "C1": Subscription(("t0", "t1")),
        "C2": Subscription(("t0", "t1", "t2")),
    }
    expected = "C0=[t0-0] C1=[t1-0] C2=[t1-1, t2-0, t2-1, t2-2]"
    assert shown(assign_round_robin(topics, subscriptions)) == expected


@given(client_groups())
def test_every_partition_has_one_owner(group: tuple[Mapping[str, Topic], Mapping[str, Subscription]]) -> None:
    """Of those that somebody is subscribed to."""
    assert_client_answer(*group, assign_round_robin(*group))


@given(client_groups(is_same_for_all=True))
def test_same_subscriptions_make_even_sizes(group: tuple[Mapping[str, Topic], Mapping[str, Subscription]]) -> None:
    """Sizes differ by one at most."""
    sizes = list(map(len, assign_round_robin(*group).values()))
    assert max(sizes) - min(sizes) <= 1
