"""What server assignors are given."""

from coordinator_core.assignors.server_group import MemberSpec, SubscriptionType, in_broker_order, subscription_type_of
from tests.coordinator_core.assignors.groups import A, B

J = "JlI6asN9z1uWnzr0ld53Ug"
ALIKE = "aphBLT6cwzX5gtVuaW0eHw"


def test_subscription_type_of() -> None:
    """Sets are compared, not lists; a group without members is homogeneous."""
    same = {"m0": MemberSpec((A, B)), "m1": MemberSpec((B, A))}
    assert subscription_type_of(same) == subscription_type_of({}) == SubscriptionType.HOMOGENEOUS
    assert subscription_type_of(same | {"m2": MemberSpec((A,))}) == SubscriptionType.HETEROGENEOUS


def test_in_broker_order() -> None:
    """Topics and partitions by bucket, as HashMap and HashSet hold them."""
    ordered = in_broker_order({J: [0], ALIKE: [12, 16, 1], B: [], A: [17, 3]})
    assert list(ordered.items()) == [(A, (17, 3)), (ALIKE, (16, 1, 12)), (B, ()), (J, (0,))]
