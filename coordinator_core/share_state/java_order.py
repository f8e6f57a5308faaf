"""In which order Kafka's share coordinator walks through its share partitions: that of its hash maps.

It decides the order of records where one job writes for several, and so which snapshot stands at which offset. The
states are in a TimelineHashMap; those of deleted topics go through a java.util.HashSet.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.codec import uuid_bytes
from coordinator_core.coordinator.java_order import FIBONACCI_MULTIPLIER, INITIAL_CAPACITY, grown_capacity
from coordinator_core.lookup import SharePartitionKey, java_hash_code

_INT32: Final = 0xFFFF_FFFF
_INT64: Final = 0xFFFF_FFFF_FFFF_FFFF


def java_hash(key: SharePartitionKey) -> int:
    """SharePartitionKey.hashCode, as a signed 32-bit number: group id, topic id, and a topic partition without name."""
    topic_id = uuid_bytes(key.topic_id)
    halves = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    topic_id_partition = 31 * (31 + ((halves >> 32) ^ halves)) + 31 * (31 + key.partition)
    code = (31 * (31 + java_hash_code(key.group_id)) + topic_id_partition) & _INT32
    return code - 2**32 if code > _INT32 >> 1 else code


def timeline_order(arrivals: Mapping[SharePartitionKey, int], capacity: int) -> list[SharePartitionKey]:
    """Keys as a TimelineHashMap of so many slots has them; `arrivals` grow with the time when each came.

    From the first slot to the last, and each from its newest key to its oldest (BaseHashTable, CurrentIterator).
    """
    shift = 65 - capacity.bit_length()

    def place(key: SharePartitionKey) -> tuple[int, int]:
        return ((java_hash(key) * FIBONACCI_MULTIPLIER) & _INT64) >> shift, -arrivals[key]

    return sorted(arrivals, key=place)


def hash_set_order(keys: Iterable[SharePartitionKey]) -> list[SharePartitionKey]:
    """Keys, given in the order of insertion, as a java.util.HashSet iterates over them."""
    inserted = list(keys)
    capacity = grown_capacity(INITIAL_CAPACITY, len(inserted))

    def bucket(key: SharePartitionKey) -> int:
        code = java_hash(key) & _INT32
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(inserted, key=bucket)
