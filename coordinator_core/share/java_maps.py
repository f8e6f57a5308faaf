"""Kafka's maps of topic ids and sets of partitions, as dicts and tuples which stand in Java's order.

The order of a `java.util.HashMap` is seen in records and in what an assignor decides. A map made of another one walks
that one; so whoever keeps each map in its order of iteration needs no more than the functions here.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from coordinator_core.assignors.java_order import (
    LOAD_FACTOR,
    TABLE_SIZE_DEFAULT,
    HashMap,
    capacity_of_copy,
    in_hash_order,
    integer_hash_code,
    string_hash_code,
    string_order,
    uuid_hash_code,
)
from coordinator_core.coordinator.java_order import TIMELINE_MIN_CAPACITY, grown_timeline_capacity, timeline_order

V = TypeVar("V")

NamedPartitions = Mapping[str, tuple[str, tuple[int, ...]]]
"""Topic id -> (topic name, partitions): Kafka's Map<Uuid, InitMapValue>."""

ORDERED_BELOW: Final = TABLE_SIZE_DEFAULT
"""Sets of numbers below this stand in ascending order, whatever the size of the table."""


def map_of(entries: Mapping[str, V], *, initial_capacity: int = TABLE_SIZE_DEFAULT) -> dict[str, V]:
    """A HashMap into which the entries were put, in their order."""
    if len(entries) < 2:
        return dict(entries)
    order = in_hash_order(entries, uuid_hash_code, initial_capacity=initial_capacity)
    return {topic_id: entries[topic_id] for topic_id in order}


def copy_of(entries: Mapping[str, V]) -> dict[str, V]:
    """`new HashMap<>(entries)`, whose table is just large enough."""
    return map_of(entries, initial_capacity=_capacity_of_map_copy(len(entries)))


def set_of(numbers: Iterable[int]) -> tuple[int, ...]:
    """`new HashSet<>(numbers)`."""
    distinct = tuple(dict.fromkeys(numbers))
    if all(0 <= number < ORDERED_BELOW for number in distinct):
        return tuple(sorted(distinct))
    return tuple(in_hash_order(distinct, integer_hash_code, initial_capacity=capacity_of_copy(len(distinct))))


def partitions_of_record(partitions: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    """What replay makes of the topics of a record: a HashMap of HashSets."""
    return map_of({topic_id: set_of(numbers) for topic_id, numbers in partitions.items()})


def named_partitions_of_record(topics: NamedPartitions) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The same of topics with names."""
    return map_of({topic_id: (name, set_of(numbers)) for topic_id, (name, numbers) in topics.items()})


def combined(first: NamedPartitions, second: NamedPartitions) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Both together; a topic of both has all its partitions, and the name of the second (combineInitMaps)."""
    topic_ids = in_hash_order([*first, *second], uuid_hash_code, initial_capacity=capacity_of_copy(len(first)))
    merged = {}
    for topic_id in topic_ids:
        name, partitions = first.get(topic_id, ("", ()))
        if topic_id in second:
            name, more = second[topic_id]
            partitions = (*partitions, *more)
        merged[topic_id] = (name, set_of(partitions))
    return map_of(merged)


def without(topics: NamedPartitions, partitions: Mapping[str, Iterable[int]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """A HashMap of what is left of the topics without these partitions; a topic of which nothing is left goes.

    A topic which is not named in `partitions` stays, also where it has no partitions.
    """
    left = {}
    for topic_id, (name, numbers) in topics.items():
        gone = set(partitions.get(topic_id, ()))
        remaining = tuple(number for number in numbers if number not in gone)
        if remaining or topic_id not in partitions:
            left[topic_id] = (name, remaining)
    return map_of(left)


def computed(entries: Iterable[tuple[str, V]]) -> dict[str, V]:
    """A HashMap filled by `computeIfAbsent`, in this order."""
    made: HashMap[str, V] = HashMap(uuid_hash_code)
    for topic_id, value in entries:
        made.compute_if_absent(topic_id, lambda value=value: value)  # type: ignore[misc]
    return dict(made.items())


def subscribed_names(counts: Mapping[str, int], before: Iterable[str], after: Iterable[str] | None) -> list[str]:
    """Names of subscribed topics as ModernGroup.subscribedTopicNames gives them.

    `counts` are the group's, in a TimelineHashMap. `after` is the new subscription of a member which had `before`,
    where the heartbeat makes a HashMap of the names with it (computeSubscribedTopicNames); None: it does not. In which
    order the group's names came is not kept: of two in one slot the later one in the alphabet counts as newer.
    """
    capacity = TIMELINE_MIN_CAPACITY
    for size in range(len(counts)):
        capacity = grown_timeline_capacity(capacity, size)
    places = {name: place for place, name in enumerate(sorted(counts, key=string_order))}
    names = timeline_order(places, capacity)
    if after is None:
        return names
    copied: HashMap[str, int] = HashMap(string_hash_code, _capacity_of_map_copy(len(names)))
    for name in names:
        copied[name] = counts[name]
    for name in names_in_set_order(before):
        copied[name] = copied.compute_if_absent(name, int) - 1
        if copied[name] < 1:
            del copied[name]
    for name in names_in_set_order(after):
        copied.compute_if_absent(name, int)
    return list(copied)


def names_in_set_order(names: Iterable[str]) -> list[str]:
    """`new HashSet<>(names)` of names."""
    listed = tuple(names)
    return in_hash_order(listed, string_hash_code, initial_capacity=capacity_of_copy(len(listed)))


def _capacity_of_map_copy(size: int) -> int:
    """Initial capacity of `new HashMap<>(map)`; of an empty map that of any new one."""
    return int(size / LOAD_FACTOR + 1) if size else TABLE_SIZE_DEFAULT
