"""What the states of groups have in common: they are frozen msgspec structs, which are created and changed at low cost.

A replay creates a state per record. `msgspec.structs.replace` changes one; `gc=False` keeps it out of the garbage
collector, which is safe because no state refers to itself.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final

import msgspec

NOT_COMPARED: Final = frozenset({"members_ever", "name_counts", "place", "processes", "table_capacity"})
"""Fields derived from other fields, or from the order in which members came: equal states may differ in them."""


class Compared(msgspec.Struct, frozen=True):
    """Base of states that are equal if they have the same class and the same fields, except `NOT_COMPARED`."""

    def __eq__(self, other: object) -> bool:
        kind = type(self)
        return type(other) is kind and _compared_fields(kind)(self) == _compared_fields(kind)(other)

    def __hash__(self) -> int:
        return hash(_compared_fields(type(self))(self))

    __ne__ = object.__ne__


@cache
def _compared_fields(kind: type[msgspec.Struct]) -> Callable[[Any], Any]:
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in NOT_COMPARED))
