"""The client assignor "range", with and without racks."""

from collections.abc import Mapping

import pytest
from hypothesis import given

from coordinator_core.live.assignors.client_group import Subscription, Topic, TopicPartition
from coordinator_core.live.assignors.client_range import assign_range
from tests.coordinator_core.live.assignors.client_cases import GROWING_GROUPS, GrowingGroup, fresh, shown
from tests.coordinator_core.live.assignors.groups import assert_client_answer, client_groups

R0, R1, R2 = (frozenset({f"r{number}"}) for number in range(3))


@pytest.mark.parametrize("case", [case for case in GROWING_GROUPS if case.assignor == "range"], ids=str)
def test_assign_range(case: GrowingGroup) -> None:
    """What Kafka's assignor answered, for two members and for three."""
    assert shown(assign_range(case.topics, fresh("A", "B", topics=case.topics))) == case.of_two
    assert shown(assign_range(case.topics, fresh("A", "B", "C", topics=case.topics))) == case.of_three


def on_racks(**members: str | None) -> dict[str, Subscription]:
    """Members on racks, all subscribed to t and u."""
    return {member_id: Subscription(topics=("t", "u"), rack_id=rack) for member_id, rack in members.items()}


def test_members_get_partitions_on_their_rack() -> None:
    """Where racks differ, A gets what is on r1, B what is on r0, C the rest."""
    topics = {"t": Topic(3, (R0, R1, R2))}
    answer = assign_range(topics, on_racks(A="r1", B="r0", C=None))
    assert shown(answer) == "A=[t-1] B=[t-0] C=[t-2]"


def test_co_partitioned_topics_stay_together() -> None:
    """Partition 0 of both topics is on r1 and goes to B; a partition on no common rack is left for later."""
    topics = {"t": Topic(2, (R1, R0)), "u": Topic(2, (R1, R0))}
    assert shown(assign_range(topics, on_racks(A="r0", B="r1"))) == "A=[t-1, u-1] B=[t-0, u-0]"
    topics = {"t": Topic(2, (R1, R0)), "u": Topic(2, (R0, R1))}
    assert shown(assign_range(topics, on_racks(A="r0", B="r1"))) == "A=[t-0, u-0] B=[t-1, u-1]"


@pytest.mark.parametrize("replica_racks", [(), (R0 | R1, R0 | R1), (R2, R2)])
def test_racks_which_make_no_difference(replica_racks: tuple[frozenset[str], ...]) -> None:
    """No racks, all racks, or racks where nobody is: the first piece goes to A, although it is elsewhere."""
    assert shown(assign_range({"t": Topic(2, replica_racks)}, on_racks(A="r1", B="r0"))) == "A=[t-0] B=[t-1]"


def test_static_members_stand_first() -> None:
    """By instance id."""
    subscriptions = {
        "A": Subscription(("t",)),
        "B": Subscription(("t",), group_instance_id="y"),
        "C": Subscription(("t",), group_instance_id="x"),
    }
    assert shown(assign_range({"t": Topic(3)}, subscriptions)) == "A=[t-2] B=[t-1] C=[t-0]"


def test_lists_follow_the_topics_hash_map() -> None:
    """Topics of one bucket stand in the order in which members name them."""
    topics = {"Aa": Topic(1), "BB": Topic(1)}
    for names in (("Aa", "BB"), ("BB", "Aa")):
        answer = assign_range(topics, {"m": Subscription(names)})
        assert answer == {"m": tuple(TopicPartition(name, 0) for name in names)}


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
