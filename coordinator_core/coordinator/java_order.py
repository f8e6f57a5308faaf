"""The order of java.util.HashMap, which decides who leads when a leader goes away and which protocol wins a tie.

Kafka takes "the first" of a hash map in these places, so a coordinator that is to agree with Kafka has to know it.
"""

from collections.abc import Iterable
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
