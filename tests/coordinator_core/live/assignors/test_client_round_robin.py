"""The client assignor "roundrobin"."""

from collections.abc import Mapping

from hypothesis import given

from coordinator_core.live.assignors.client_group import Subscription, Topic
from coordinator_core.live.assignors.client_round_robin import assign_round_robin
from tests.coordinator_core.live.assignors.groups import assert_client_answer, client_groups


@given(client_groups())
def test_every_partition_has_one_owner(group: tuple[Mapping[str, Topic], Mapping[str, Subscription]]) -> None:
    """Of those that somebody is subscribed to."""
    assert_client_answer(*group, assign_round_robin(*group))


@given(client_groups(is_same_for_all=True))
def test_same_subscriptions_make_even_sizes(group: tuple[Mapping[str, Topic], Mapping[str, Subscription]]) -> None:
    """Sizes differ by one at most."""
    sizes = list(map(len, assign_round_robin(*group).values()))
    assert max(sizes) - min(sizes) <= 1
