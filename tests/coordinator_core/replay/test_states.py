"""States of groups: frozen, and equal whatever the order in which their members came."""

from operator import eq, ne
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from coordinator_core.replay.classic.state import ClassicGroup, ClassicMember
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.consumer.subscriptions import subscriptions_of
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, TaskProcesses

CLASSIC_MEMBER = ClassicMember("m", None, "c", "h", 1, 2, b"", b"")
MEMBERS = (CLASSIC_MEMBER, ConsumerMember("m"), ShareMember("m"), StreamsMember("m"))
GROUPS = (ClassicGroup("x"), ConsumerGroup("x"), ShareGroup("x"), StreamsGroup("x"))
MODERN_GROUPS = GROUPS[1:]


def name_of(state: object) -> str:
    """The name of a test case."""
    return type(state).__name__


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        *((member, {"place": 7}) for member in MEMBERS),
        *((group, {"members_ever": 7, "table_capacity": 64}) for group in MODERN_GROUPS),
        (ShareGroup("x"), {"name_counts": Map({"t": 1})}),
        (StreamsGroup("x"), {"processes": TaskProcesses(active=Map({("s", 0): "p"}))}),
    ],
    ids=name_of,
)
def test_what_follows_from_the_order_of_members_is_not_compared(state: Any, changes: dict[str, Any]) -> None:
    """Two states are equal if only derived fields differ, be they asked for equality or for a difference."""
    other = replace(state, **changes)
    assert (eq(state, other), ne(state, other)) == (True, False)


@pytest.mark.parametrize("state", [*MEMBERS, *GROUPS], ids=name_of)
def test_every_other_field_is_compared(state: Any) -> None:
    """States that differ in their first or in their last compared field are not equal, and no state equals another
    kind of object."""
    first, compared = state.__struct_fields__[0], state.__struct_fields__[:2]
    for name in {first, compared[-1]}:
        other = replace(state, **{name: "another"})
        assert (eq(state, other), ne(state, other)) == (False, True)
    assert state != "m"


def test_equal_members_have_one_hash() -> None:
    """A member of a classic group is found in a set, whatever its place in the record."""
    assert len({CLASSIC_MEMBER, replace(CLASSIC_MEMBER, place=3)}) == 1


@pytest.mark.parametrize("state", [*MEMBERS, *GROUPS], ids=name_of)
def test_a_state_is_frozen(state: Any) -> None:
    """It cannot be written to."""
    with pytest.raises(AttributeError):
        setattr(state, state.__struct_fields__[0], "another")


def test_a_changed_group_has_subscriptions_of_its_own() -> None:
    """They are computed once for a group, and again for the group that it becomes."""
    group = ConsumerGroup("g", group_epoch=2)
    assert subscriptions_of(group) is subscriptions_of(group)
    assert subscriptions_of(replace(group, group_epoch=3)) is not subscriptions_of(group)
