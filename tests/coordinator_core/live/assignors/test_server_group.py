"""What server assignors are given."""

from coordinator_core.live.assignors.server_group import MemberSpec
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from tests.coordinator_core.live.assignors.groups import A, B, subscription_type_of


def test_subscription_type_of() -> None:
    """Sets are compared, not lists; a group without members is homogeneous."""
    same = {"m0": MemberSpec((A, B)), "m1": MemberSpec((B, A))}
    assert subscription_type_of(same) == subscription_type_of({}) == SubscriptionType.HOMOGENEOUS
    assert subscription_type_of(same | {"m2": MemberSpec((A,))}) == SubscriptionType.HETEROGENEOUS
