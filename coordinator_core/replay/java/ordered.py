"""Java's maps and sets as dicts and tuples in Java's order.

A map made from another one iterates over that one. So if each map is kept in its iteration order, the functions here
are enough. Maps have topic ids as keys; sets are of partitions or names.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from coordinator_core.replay.java.hash_codes import integer_hash_code, string_hash_code, uuid_hash_code
from coordinator_core.replay.java.hash_map import (
    TABLE_SIZE_DEFAULT,
    HashMap,
    capacity_of_copy,
    capacity_of_map_copy,
    in_hash_order,
)

V = TypeVar("V")

ORDERED_BELOW: Final = TABLE_SIZE_DEFAULT
"""Sets of numbers below this are in ascending order, whatever the table size."""


def map_of(entries: Mapping[str, V], *, initial_capacity: int = TABLE_SIZE_DEFAULT) -> dict[str, V]:
    """A HashMap filled with the entries in their order."""
    if len(entries) < 2:
        return dict(entries)
    order = in_hash_order(entries, uuid_hash_code, initial_capacity=initial_capacity)
    return {topic_id: entries[topic_id] for topic_id in order}


def copy_of(entries: Mapping[str, V]) -> dict[str, V]:
    """`new HashMap<>(entries)`, whose table is just large enough."""
    return map_of(entries, initial_capacity=capacity_of_map_copy(len(entries)))


def computed(entries: Iterable[tuple[str, V]]) -> dict[str, V]:
    """A HashMap filled by `computeIfAbsent` in this order."""
    made: HashMap[str, V] = HashMap(uuid_hash_code)
    for topic_id, value in entries:
        made.compute_if_absent(topic_id, lambda value=value: value)  # type: ignore[misc]
    return dict(made.items())


def set_of(numbers: Iterable[int]) -> tuple[int, ...]:
    """`new HashSet<>(numbers)`."""
    distinct = tuple(dict.fromkeys(numbers))
    if all(0 <= number < ORDERED_BELOW for number in distinct):
        return tuple(sorted(distinct))
    return tuple(in_hash_order(distinct, integer_hash_code, initial_capacity=capacity_of_copy(len(distinct))))


def partitions_of_record(partitions: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    """The map that replay makes of a record's topics, in their order: a HashMap of HashSets (Assignment.fromRecord)."""
    return map_of({topic_id: set_of(numbers) for topic_id, numbers in partitions.items()})


def names_in_set_order(names: Iterable[str]) -> list[str]:
    """`new HashSet<>(names)`."""
    listed = tuple(names)
    return in_hash_order(listed, string_hash_code, initial_capacity=capacity_of_copy(len(listed)))
