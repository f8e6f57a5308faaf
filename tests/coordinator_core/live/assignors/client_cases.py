"""What Kafka's client assignors answered for two members, and when a third came to them."""

from collections.abc import Mapping
from typing import NamedTuple

from coordinator_core.live.assignors.client_group import Assignment, Subscription, Topic

TWO = {"t0": Topic(3), "t1": Topic(3)}
ONE = {"t0": Topic(7)}
THREE = {"t0": Topic(3), "t1": Topic(2), "t2": Topic(1)}


class GrowingGroup(NamedTuple):
    """Answers for A and B, and after that for A, B and C."""

    assignor: str
    topics: Mapping[str, Topic]
    of_two: str
    of_three: str

    def __str__(self) -> str:
        return f"{self.assignor}-{len(self.topics)}"


GROWING_GROUPS = [
    GrowingGroup(
        "range", TWO, "A=[t0-0, t0-1, t1-0, t1-1] B=[t0-2, t1-2]", "A=[t0-0, t1-0] B=[t0-1, t1-1] C=[t0-2, t1-2]"
    ),
    GrowingGroup(
        "roundrobin", TWO, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t1-2]", "A=[t0-0, t1-0] B=[t0-1, t1-1] C=[t0-2, t1-2]"
    ),
    GrowingGroup(
        "sticky", TWO, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t1-2]", "A=[t0-0, t1-1] B=[t1-0, t0-1] C=[t0-2, t1-2]"
    ),
    GrowingGroup(
        "cooperative-sticky", TWO, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t1-2]", "A=[t0-0, t1-1] B=[t1-0, t0-1] C=[]"
    ),
    GrowingGroup(
        "range",
        ONE,
        "A=[t0-0, t0-1, t0-2, t0-3] B=[t0-4, t0-5, t0-6]",
        "A=[t0-0, t0-1, t0-2] B=[t0-3, t0-4] C=[t0-5, t0-6]",
    ),
    GrowingGroup(
        "roundrobin",
        ONE,
        "A=[t0-0, t0-2, t0-4, t0-6] B=[t0-1, t0-3, t0-5]",
        "A=[t0-0, t0-3, t0-6] B=[t0-1, t0-4] C=[t0-2, t0-5]",
    ),
    GrowingGroup(
        "sticky",
        ONE,
        "A=[t0-0, t0-2, t0-4, t0-6] B=[t0-1, t0-3, t0-5]",
        "A=[t0-0, t0-2, t0-4] B=[t0-1, t0-3] C=[t0-5, t0-6]",
    ),
    GrowingGroup(
        "cooperative-sticky",
        ONE,
        "A=[t0-0, t0-2, t0-4, t0-6] B=[t0-1, t0-3, t0-5]",
        "A=[t0-0, t0-2, t0-4] B=[t0-1, t0-3] C=[]",
    ),
    GrowingGroup(
        "range", THREE, "A=[t0-0, t0-1, t1-0, t2-0] B=[t0-2, t1-1]", "A=[t0-0, t1-0, t2-0] B=[t0-1, t1-1] C=[t0-2]"
    ),
    GrowingGroup(
        "roundrobin", THREE, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t2-0]", "A=[t0-0, t1-0] B=[t0-1, t1-1] C=[t0-2, t2-0]"
    ),
    GrowingGroup(
        "sticky", THREE, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t2-0]", "A=[t0-0, t1-1] B=[t1-0, t2-0] C=[t0-1, t0-2]"
    ),
    GrowingGroup(
        "cooperative-sticky", THREE, "A=[t0-0, t0-2, t1-1] B=[t0-1, t1-0, t2-0]", "A=[t0-0, t1-1] B=[t1-0, t2-0] C=[]"
    ),
]


def fresh(*member_ids: str, topics: Mapping[str, Topic]) -> dict[str, Subscription]:
    """Members who have nothing, subscribed to all topics."""
    return {member_id: Subscription(tuple(topics)) for member_id in member_ids}


def shown(assignment: Assignment) -> str:
    """An answer on one line."""
    return " ".join(
        f"{member_id}=[{', '.join(f'{topic}-{number}' for topic, number in partitions)}]"
        for member_id, partitions in sorted(assignment.items())
    )
