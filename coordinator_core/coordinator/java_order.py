"""The order of Kafka's hash maps, which decides who leads when a leader goes away and which protocol wins a tie.

Kafka takes "the first" of a hash map in these places, so a coordinator that is to agree with Kafka has to know it.
Classic groups keep members in a java.util.HashMap, modern ones in a TimelineHashMap (BaseHashTable) with an order of
its own: a table of 2^k slots is walked from the first to the last, each slot from its newest element to its oldest.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.lookup import java_hash_code

INITIAL_CAPACITY: Final = 16
TREE_BUCKET_SIZE: Final = 8
"""Buckets of more keys become trees; member ids end in random UUIDs, so none comes near."""


def grown_capacity(capacity: int, size: int) -> int:
    """Buckets of a HashMap that had `capacity` and now holds `size` keys: doubled above three quarters; never fewer."""
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def hash_map_order(keys: Iterable[str], capacity: int = INITIAL_CAPACITY) -> list[str]:
    """Keys, given in the order of insertion, as a HashMap of so many buckets iterates over them."""

    def bucket(key: str) -> int:
        code = java_hash_code(key) & 0xFFFF_FFFF
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(keys, key=bucket)


TIMELINE_MIN_CAPACITY: Final = 2
FIBONACCI_MULTIPLIER: Final = -7046029254386353131
"""By which BaseHashTable.findSlot spreads hash codes: the top bits of the 64-bit product are the slot."""


def grown_timeline_capacity(capacity: int, size: int) -> int:
    """Slots of a TimelineHashMap that had `size` keys before a put, even of a key which is there already."""
    return capacity * 2 if (size + 1) * 3 > capacity * 4 else capacity


def timeline_order(places: Mapping[str, int], capacity: int) -> list[str]:
    """Keys in the order of a TimelineHashMap. `places` has, for each key, a number that grows with its arrival."""
    bits = capacity.bit_length() - 1

    def slot(key: str) -> int:
        code = java_hash_code(key)
        return ((code * FIBONACCI_MULTIPLIER) & 0xFFFF_FFFF_FFFF_FFFF) >> (64 - bits)

    return sorted(places, key=lambda key: (slot(key), -places[key]))
