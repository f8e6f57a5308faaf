"""Kafka's maps of a share group's topics, as dicts in Java's iteration order (see `java.ordered`)."""

from collections.abc import Iterable, Mapping

from coordinator_core.replay.java.hash_codes import string_hash_code, string_order, uuid_hash_code
from coordinator_core.replay.java.hash_map import HashMap, capacity_of_copy, capacity_of_map_copy, in_hash_order
from coordinator_core.replay.java.ordered import map_of, names_in_set_order, set_of
from coordinator_core.replay.java.timeline import timeline_capacity_after, timeline_order

NamedPartitions = Mapping[str, tuple[str, tuple[int, ...]]]
"""Topic id -> (topic name, partitions): Kafka's Map<Uuid, InitMapValue>."""


def named_partitions_of_record(topics: NamedPartitions) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The map that replay makes of a record's topics with names: a HashMap of HashSets."""
    return map_of({topic_id: (name, set_of(numbers)) for topic_id, (name, numbers) in topics.items()})


def combined(first: NamedPartitions, second: NamedPartitions) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The union of both; a topic in both has all its partitions, and the name from the second (combineInitMaps)."""
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
    """A HashMap of the topics without these partitions; a topic without remaining partitions is removed.

    A topic that is not in `partitions` stays, even if it has no partitions.
    """
    left = {}
    for topic_id, (name, numbers) in topics.items():
        gone = set(partitions.get(topic_id, ()))
        remaining = tuple(number for number in numbers if number not in gone)
        if remaining or topic_id not in partitions:
            left[topic_id] = (name, remaining)
    return map_of(left)


def subscribed_names(counts: Mapping[str, int], before: Iterable[str], after: Iterable[str] | None) -> list[str]:
    """Names of subscribed topics in the order of ModernGroup.subscribedTopicNames.

    `counts`: those of the group, in a TimelineHashMap. `after`: the new subscription of a member that had `before`,
    where the heartbeat makes a HashMap of the names with it (computeSubscribedTopicNames); otherwise None. The order in
    which the group's names were added is not kept: of two names in one slot, the alphabetically later one counts as
    newer.
    """
    places = {name: place for place, name in enumerate(sorted(counts, key=string_order))}
    names = timeline_order(places, timeline_capacity_after(len(counts)), string_hash_code)
    if after is None:
        return names
    copied: HashMap[str, int] = HashMap(string_hash_code, capacity_of_map_copy(len(names)))
    for name in names:
        copied[name] = counts[name]
    for name in names_in_set_order(before):
        copied[name] = copied.compute_if_absent(name, int) - 1
        if copied[name] < 1:
            del copied[name]
    for name in names_in_set_order(after):
        copied.compute_if_absent(name, int)
    return list(copied)
