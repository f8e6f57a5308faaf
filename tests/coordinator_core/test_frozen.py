"""Frozen states, changed quickly: as dataclasses.replace does it."""

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from coordinator_core.classic.state import ClassicGroup, ClassicMember
from coordinator_core.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.consumer.subscriptions import subscriptions_of
from coordinator_core.frozen import quickly_made, with_fields
from coordinator_core.share.state import ShareGroup, ShareMember
from coordinator_core.streams.state import StreamsGroup, StreamsMember


@dataclass(frozen=True, slots=True)
class Counted:
    """A state that keeps something it has worked out."""

    name: str
    count: int = 0
    kept: object = field(default=None, init=False, compare=False)


@pytest.mark.parametrize(
    "state",
    [ClassicMember("m", None, "c", "h", 1, 2, b"", b"")]
    + [kind("x") for kind in (ClassicGroup, ConsumerGroup, ShareGroup, StreamsGroup)]
    + [kind("m") for kind in (ConsumerMember, ShareMember, StreamsMember)],
    ids=lambda state: type(state).__name__,
)
def test_a_changed_state_is_what_replace_makes(state: Any) -> None:
    """For each class of state, field by field: the same class, the same values, and the first one as it was."""
    name = fields(state)[0].name
    before = replace(state)
    for changes in ({}, {name: "y"}):
        changed = with_fields(state, **changes)
        assert type(changed) is type(state) and changed == replace(state, **changes)
    assert state == before


def test_a_changed_state_is_frozen_and_holds_nothing_worked_out() -> None:
    """It cannot be written to, and what was worked out for the state before is not taken for its own."""
    state = Counted("a")
    object.__setattr__(state, "kept", 7)
    changed = with_fields(state, count=2)
    assert (changed, changed.kept) == (Counted("a", 2), None)
    unchecked: Any = changed
    with pytest.raises(FrozenInstanceError):
        unchecked.count = 3
    group = with_fields(ConsumerGroup("g"), group_epoch=2)
    assert subscriptions_of(with_fields(group, group_epoch=3)) is not subscriptions_of(group)


def test_a_field_that_is_not_there_is_an_error() -> None:
    """As a keyword that the class does not take."""
    with pytest.raises(AttributeError):
        with_fields(Counted("a"), more=1)


@quickly_made
@dataclass(frozen=True, slots=True)
class QuicklyCounted:
    """As `Counted`, and with a default that is made again each time."""

    name: str
    count: int = 0
    more: list[str] = field(default_factory=list)
    kept: object = field(default=7, init=False, compare=False)


def test_a_quickly_made_object_is_one_of_its_class() -> None:
    """The same arguments, by place and by name, the same defaults, and as frozen."""
    plain: Any = QuicklyCounted("a")
    assert (plain.name, plain.count, plain.more, plain.kept) == ("a", 0, [], 7)
    assert plain.more is not QuicklyCounted("a").more
    assert (
        QuicklyCounted("a", 2, ["b"])
        == QuicklyCounted(more=["b"], count=2, name="a")
        == replace(plain, count=2, more=["b"])
    )
    with pytest.raises(FrozenInstanceError):
        plain.count = 3
    unchecked: Any = QuicklyCounted
    for arguments, named in (((), {}), (("a", 1, [], 7), {}), (("a",), {"kept": 7})):
        with pytest.raises(TypeError):
            unchecked(*arguments, **named)
