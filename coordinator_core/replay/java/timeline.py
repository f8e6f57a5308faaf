"""The iteration order of Kafka's TimelineHashMap (BaseHashTable), in which coordinators store members and states.

A table of 2^k slots is iterated from the first to the last, each slot from its newest element to its oldest. It doubles
before a put that would leave more than three quarters of an element for each slot, even if the key exists already, and
never shrinks.
"""

from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from coordinator_core.replay.java.hash_codes import HashCode, signed, string_hash_code

TIMELINE_MIN_CAPACITY: Final = 2
FIBONACCI_MULTIPLIER: Final = -7046029254386353131
"""BaseHashTable.findSlot distributes hash codes with it: the top bits of the 64-bit product are the slot."""
UINT64_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF

K = TypeVar("K")


class Placed(Protocol):
    """An element that was inserted into a table."""

    @property
    def place(self) -> int:
        """A number that increases with each insertion."""
        ...


P = TypeVar("P", bound=Placed)


def grown_timeline_capacity(capacity: int, size: int) -> int:
    """Slots of a TimelineHashMap that had `size` keys before a put, even of an existing key."""
    return capacity * 2 if (size + 1) * 3 > capacity * 4 else capacity


def timeline_capacity_after(put_count: int) -> int:
    """Slots of a TimelineHashMap after this many puts of different keys."""
    capacity = TIMELINE_MIN_CAPACITY
    for size in range(put_count):
        capacity = grown_timeline_capacity(capacity, size)
    return capacity


def timeline_order(places: Mapping[K, int], capacity: int, hash_code: HashCode[K]) -> list[K]:
    """Keys in the order of a TimelineHashMap. `places`: for each key, a number that increases with its insertion."""
    shift = 65 - capacity.bit_length()

    def slot_and_age(key: K) -> tuple[int, int]:
        return ((signed(hash_code(key)) * FIBONACCI_MULTIPLIER) & UINT64_MASK) >> shift, -places[key]

    return sorted(places, key=slot_and_age)


def in_timeline_order(members: Mapping[str, P], capacity: int) -> list[P]:
    """Members, given by member id, in the order of a TimelineHashMap."""
    places = {member_id: member.place for member_id, member in members.items()}
    return [members[member_id] for member_id in timeline_order(places, capacity, string_hash_code)]
