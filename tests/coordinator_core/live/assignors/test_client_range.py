"""The client assignor "range", with and without racks."""

from collections.abc import Mapping

from hypothesis import given

from coordinator_core.live.assignors.client_group import Subscription, Topic
from coordinator_core.live.assignors.client_range import assign_range
from tests.coordinator_core.live.assignors.groups import assert_client_answer, client_groups


@given(client_groups())
def test_every_partition_has_one_owner(group: tuple[Mapping[str, Topic], Mapping[str, Subscription]]) -> None:
    """And each topic is divided evenly among its subscribers, racks or not."""
    topics, subscriptions = group
    answer = assign_range(topics, subscriptions)
    assert_client_answer(topics, subscriptions, answer)
    for name in topics:
        counts = [
            sum(partition.topic == name for partition in answer[member_id])
            for member_id, subscription in subscriptions.items()
            if name in subscription.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1
